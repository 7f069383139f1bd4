"""The permit wait of gangs with reserved nodes is paused while one of their members is nominated.

While victims terminate for it a gang cannot help waiting: a nomination has a bound of its own. So the time since when a
node is reserved is moved by the time for which a member was nominated, and saved so: a restart finds what was left of the wait.
"""

from __future__ import annotations

from dataclasses import replace

from muster.engine.session import Session
from muster.model.gang import Gang
from muster.model.pod import Phase


def pause_permit_waits(s: Session) -> None:
    """Take the time out of each wait for which members were nominated and are no more, or were nominated anew."""
    world = s.world
    before, nominated = dict(world.memory.nominated_since.items()), _nominated_since(s)
    _remember(s, nominated)
    for key in sorted(before):
        gang, until = world.facts.gangs.get(key), nominated.get(key, s.now)
        if gang is not None and until > before[key]:
            _extend_wait(s, gang, before[key], until)


def _remember(s: Session, nominated: dict[str, float]) -> None:
    memory = s.world.memory.nominated_since
    for key in list(memory):
        if key not in nominated:
            memory.drop(key)
    for key, since in nominated.items():
        if memory.get(key) != since:
            memory.set(key, since)


def _nominated_since(s: Session) -> dict[str, float]:
    """Since when each gang with reserved nodes has had a nomination. A gang without reserved nodes has no wait to pause."""
    world = s.world
    waiting = {member.gang for uid in world.placements.reserved if (member := world.facts.members.get(uid)) is not None}
    found: dict[str, float] = {}
    for uid in world.placements.reservations if waiting else ():
        member, placement = world.facts.members.get(uid), world.placements.by_uid[uid]
        if member is not None and member.gang in waiting and placement.phase is Phase.NOMINATED:
            found[member.gang] = min(placement.since, found.get(member.gang, placement.since))
    return found


def _extend_wait(s: Session, gang: Gang, start: float, until: float) -> None:
    """Members that had a node reserved meanwhile have waited for that much less."""
    reserved = [(pod, s.world.placement(pod)) for pod in gang.pods() if s.world.phase(pod) is Phase.RESERVED]
    for pod, placement in reserved:
        paused = until - max(start, placement.since)
        if paused > 0:
            why = f"the {paused:.0f} s for which its victims terminated are no part of its wait"
            with s.trial(why, cause="WaitPaused") as trial:
                trial.restore(pod, replace(placement, since=placement.since + paused))
                trial.commit()
