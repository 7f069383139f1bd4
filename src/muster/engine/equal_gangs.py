"""Gangs that differ in nothing that an attempt looks at: where one was refused and nobody moved since, so is the next.

Histories have few kinds of jobs, and a queue that waits has many of each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from muster.engine import explain
from muster.engine.evict.eviction_history import crossing_history
from muster.engine.nominations import AttemptResult
from muster.engine.session import Session
from muster.model.effects import Verdict
from muster.model.gang import Gang, Mode
from muster.state.placements import Step


def equality_key(s: Session, gang: Gang) -> Hashable | None:
    """Equal for gangs that differ in names and times only, and of which nobody has a node or is nominated to one; None where a gang
    is like no other."""
    if gang.subgroups or gang.mode is not Mode.STRICT or gang.siblings or gang.key in s.shows_all_domains:
        return None
    if _has_placements(s, gang):
        return None
    roles = []
    for role in gang.roles:
        if role.queue.startswith("quota/") or role.terminating:
            return None
        # Of pods that share what they say, one is enough.
        distinct = {(id(pod.signature), id(pod.labels)): pod for pod in role.pods}
        if any(s.has_inter_pod_constraints(pod) for pod in distinct.values()):
            return None
        members = tuple([(pod.namespace, pod.priority, pod.signature, pod.nominated_node, pod.run_s) for pod in role.pods])
        roles.append((role.name, role.queue, role.min, role.total, role.has_declared_total, role.succeeded, members))
    kind = (gang.flavour, gang.match_policy, gang.priority, gang.min, gang.never_preempts, gang.topology, gang.is_single_pod)
    return kind, crossing_history(s, gang), tuple(roles)


def _has_placements(s: Session, gang: Gang) -> bool:
    """Has anybody a node, or is nominated to one? What such a gang is told is about its own nodes."""
    placements = s.world.placements
    if placements.unplaced_members.get(gang.key) != gang.size:
        return True
    return bool(placements.reservations) and any(pod.uid in placements.reservations for pod in gang.pods())


class RefusedGangs:
    """The refusals of one cycle, for gangs that are equal: until somebody moves."""

    def __init__(self, s: Session) -> None:
        self._s = s
        self._refused: dict[Hashable, tuple[Gang, Verdict]] = {}
        self._position = 0

    def attempt(self, gang: Gang, attempt: Callable[[], AttemptResult]) -> AttemptResult:
        """The refusal of an equal gang, or what the attempt comes to."""
        world = self._s.world
        # Reservations are taken from gangs later in the order: that depends on which gang it is.
        if world.placements.reserved:
            return attempt()
        journal = world.placements.journal
        if any(isinstance(step, Step) for step in journal[self._position :]):
            self._refused.clear()
        self._position = len(journal)
        key = self._key(gang) if self._refused else None
        known = self._refused.get(key) if key is not None else None
        if known is not None:
            before, verdict = known
            return AttemptResult(complete=False, verdict=explain.said_of_equal(verdict, before, gang))
        result = attempt()
        if not result.complete and not any(isinstance(step, Step) for step in journal[self._position :]):
            if key is None:
                key = self._key(gang)
            if key is not None:
                self._refused[key] = gang, result.verdict
        return result

    def _key(self, gang: Gang) -> Hashable | None:
        """What is kept for others is closed to some gangs and not to all."""
        left_out, found = self._s.left_out, equality_key(self._s, gang)
        return None if found is None else (found, None if left_out is None else left_out.tobytes())
