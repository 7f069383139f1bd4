"""The wait time of gangs that hold nodes stands still while one of their members is nominated.

While somebody leaves for it a gang is not to blame for waiting: the promise has a bound of its own. So the beginning of a hold is
put off by the time for which a member was nominated, and is written down anew with it: a restart finds what was left of the wait.
"""

from __future__ import annotations

from dataclasses import replace

from muster.engine.session import Session
from muster.model.gang import Gang
from muster.model.pod import Phase


def pause_permit_waits(s: Session) -> None:
    """Take the time out of each wait for which members were nominated and are no more, or were nominated anew."""
    world = s.world
    stood, standing = dict(world.memory.nominated_since.items()), _nominated_since(s)
    _remember(s, standing)
    for key in sorted(stood):
        gang, until = world.facts.gangs.get(key), standing.get(key, s.now)
        if gang is not None and until > stood[key]:
            _extend_wait(s, gang, stood[key], until)


def _remember(s: Session, standing: dict[str, float]) -> None:
    memory = s.world.memory.nominated_since
    for key in list(memory):
        if key not in standing:
            memory.drop(key)
    for key, since in standing.items():
        if memory.get(key) != since:
            memory.set(key, since)


def _nominated_since(s: Session) -> dict[str, float]:
    """Since when each gang that holds nodes and has a nomination has had one. Who holds nothing has no wait to stand still."""
    world = s.world
    holders = {member.gang for uid in world.placements.reserved if (member := world.facts.members.get(uid)) is not None}
    found: dict[str, float] = {}
    for uid in world.placements.reservations if holders else ():
        member, placement = world.facts.members.get(uid), world.placements.by_uid[uid]
        if member is not None and member.gang in holders and placement.phase is Phase.NOMINATED:
            found[member.gang] = min(placement.since, found.get(member.gang, placement.since))
    return found


def _extend_wait(s: Session, gang: Gang, start: float, until: float) -> None:
    """Whoever was held meanwhile has waited for that much less."""
    held = [(pod, s.world.placement(pod)) for pod in gang.pods() if s.world.phase(pod) is Phase.RESERVED]
    for pod, placement in held:
        stood = until - max(start, placement.since)
        if stood > 0:
            why = f"the {stood:.0f} s for which others left for it are no part of its wait"
            with s.trial(why, cause="WaitStoodStill") as trial:
                trial.restore(pod, replace(placement, since=placement.since + stood))
                trial.commit()
