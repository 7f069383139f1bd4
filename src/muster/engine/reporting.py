"""What was reported on objects before, and which gangs have something new to report.

What is to be written is compared with what was last written and with what the object says now: nothing is written twice, a new
object under an old name gets its own, and what others wrote over is put right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from muster.engine.session import Session
from muster.model.effects import Condition
from muster.model.gang import Gang
from muster.state.memory import PROBLEMS, STATUS
from muster.state.world import World


@dataclass(frozen=True, slots=True)
class ReportedStatus:
    """A status that was written, and what the object's own status was when that was decided."""

    status: object
    seen: Mapping[str, str]


def is_news(world: World, uid: str, status: object, seen: Mapping[str, str], *, says: Callable[[], bool]) -> bool:
    """Is this status to be written onto the object with this UID? `seen` is its status now, `says` whether that reads so. If it is,
    it counts as written from now on."""
    before = world.memory.reported.get((uid, STATUS))
    if isinstance(before, ReportedStatus) and before.status == status and (before.seen == seen or says()):
        return False
    known = before is None and says()
    world.memory.reported.set((uid, STATUS), ReportedStatus(status, seen))
    return not known


def changed_gangs(s: Session) -> list[str]:
    """Gangs that something happened to since this was last asked, sorted: trials that were undone must not show in the order."""
    world, changes = s.world, s.world.changes
    moved = changes.placements.since(world.memory.reported_placements)
    gangs = changes.gangs.since(world.memory.reported_gangs)
    world.memory.reported_placements = changes.placements.position
    world.memory.reported_gangs = changes.gangs.position
    if moved is None or gangs is None:
        return sorted(world.facts.gangs)
    members = world.facts.members
    touched = {member.gang for uid in dict.fromkeys(moved) if (member := members.get(uid)) is not None}
    touched.update(gangs)
    return sorted(touched.intersection(world.facts.gangs))


def group_uids(world: World, gang: Gang) -> tuple[str, ...]:
    """The UIDs of the PodGroups that a gang consists of."""
    keys = dict.fromkeys(role.group for role in gang.roles if role.group)
    return tuple(group.uid for key in keys if (group := world.facts.groups.get(key)) is not None)


def condition_news(world: World, uid: str, now: Condition | None, all_well: Condition) -> Iterator[Condition]:
    """What is wrong with an object, where that is something else than was last reported on it; that all is well again after
    that."""
    before = world.memory.reported.get((uid, PROBLEMS))
    if now == before:
        return
    if now is not None:
        world.memory.reported.set((uid, PROBLEMS), now)
        yield now
    else:
        world.memory.reported.drop((uid, PROBLEMS))
        yield all_well
