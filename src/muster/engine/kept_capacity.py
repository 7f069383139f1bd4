"""What is kept for gangs that have waited long, as others are placed: nodes, and what they ask for in their queues.

Gangs after such a gang in the order start there only if they are known to end before it could, or if they could have it evicted.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from muster.engine import explain
from muster.engine.backfill_reservations import keep_capacity
from muster.engine.evict.evict_actions import could_have_evicted
from muster.engine.hooks import Ask, Purpose
from muster.engine.members_to_place import unplaced_members
from muster.engine.quota import QUEUE_CODES, limits
from muster.engine.run_times import run_time
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang
from muster.model.pod import Phase, Placement, Pod
from muster.model.topics import Topic
from muster.state.memory import BackfillReservation
from muster.state.node_table import BoolColumn
from muster.state.trial import Trial

_KeptFor = tuple[Gang, BackfillReservation]


class KeptCapacity:
    """As gangs are visited in their order: what is kept for one is closed to those after it."""

    def __init__(self, s: Session) -> None:
        self._s = s
        self._closed: list[_KeptFor] = []
        self._turn: dict[str, int] = {}
        """Of gangs that had their turn: how much of that was kept for gangs before them."""
        self._evicted_by: dict[tuple[str, Hashable], bool] = {}
        self._kinds: dict[str, Hashable] = {}

    def visited(self, gang: Gang, *, complete: bool) -> None:
        """The gang had its turn: what is kept for it is closed from now on, unless it has started."""
        self._turn[gang.key] = len(self._closed)
        if complete:
            return
        if self._s.is_first_cycle:
            # A scheduler that has just started does not know for whom the one before it kept nodes: those who waited then still do.
            keep_capacity(self._s, gang.key)
        reservation = self._s.world.memory.backfill_reservations.get(gang.key)
        if reservation is not None:
            self._closed.append((gang, reservation))

    def closed_to(self, gang: Gang, *, surplus: bool = False) -> list[_KeptFor]:
        """What this gang may not use: what is kept for those before it. Members above a minimum give way to every gang of their
        priority or above."""
        return [
            (holder, kept)
            for holder, kept in (self._closed if surplus else self._closed[: self._turn.get(gang.key)])
            if holder is not gang
            and (_share_a_queue(self._s, gang, holder) or _might_use(self._s, gang, kept))
            and not (surplus and holder.priority < gang.priority)
            and not _ends_before(self._s, gang, kept.starts_at)
            and not self._could_have_evicted(gang, holder, kept)
        ]

    def _could_have_evicted(self, gang: Gang, holder: Gang, kept: BackfillReservation) -> bool:
        """Were the holder bound there. Asked once in a cycle of gangs that look alike."""
        if gang.key not in self._kinds:
            members = tuple(pod.signature for pod in gang.pods())
            self._kinds[gang.key] = gang.priority, gang.never_preempts, tuple(role.queue for role in gang.roles), members
        key = holder.key, self._kinds[gang.key]
        if key not in self._evicted_by:
            nominations = _nominations(self._s, holder, kept)
            self._evicted_by[key] = bool(nominations) and could_have_evicted(self._s, gang, holder, nominations)
        return self._evicted_by[key]

    def left_out(self, closed: Sequence[_KeptFor]) -> BoolColumn | None:
        """The rows of these nodes as a column, or None where there are none."""
        column = self._s.world.table.mask(node for _, kept in closed for node in kept.nodes)
        return column if column.any() else None

    def admits(self, gang: Gang, closed: Sequence[_KeptFor], pods: Sequence[Pod]) -> Verdict:
        """Do these members fit into their queues beside what is kept there?"""
        s, ask = self._s, Ask(gang, tuple(pods), Purpose.ALLOCATE, needed=len(pods))
        kept = [each for each in closed if _share_a_queue(s, gang, each[0])]
        if not kept or not pods or not s.has_bounded_queues or not s.admit(ask).ok:
            # Where the queue is full anyway, that is the reason that is reported.
            return YES
        with s.trial("simulated", cause="Simulated") as trial:
            _charge_kept(s, trial, gang, kept)
            # Another ask: what the first needs by queue is remembered for it alone.
            verdict = s.admit(replace(ask))
        return YES if verdict.ok else self._named(verdict, kept)

    def admitted_beside(self, gang: Gang, closed: Sequence[_KeptFor], pods: tuple[Pod, ...]) -> tuple[tuple[Pod, ...], Verdict]:
        """Of these members, each of which helps by itself, those that fit into their queues beside what is kept there."""
        s, kept = self._s, [each for each in closed if _share_a_queue(self._s, gang, each[0])]
        if not kept or not s.has_bounded_queues:
            return pods, YES
        admitted: list[Pod] = []
        refused = YES
        with s.trial("simulated", cause="Simulated") as trial:
            _charge_kept(s, trial, gang, kept)
            for _, equal in groupby(pods, key=lambda pod: (id(pod.signature), s.world.facts.members[pod.uid].queue)):
                run = list(equal)
                fit = s.quota_fit(run[0], count=len(run), phase=Phase.BINDING)
                _charge(trial, [(pod, s.world.table.names[0]) for pod in run[: fit.fit_count]])
                admitted += run[: fit.fit_count]
                if not fit.verdict.ok and refused.ok:
                    refused = self._named(fit.verdict, kept)
        return tuple(admitted), refused

    def _named(self, verdict: Verdict, kept: Sequence[_KeptFor]) -> Verdict:
        """A refusal by a queue with what is kept there counted, and for whom."""
        names = ", ".join(f"{holder.full_name}{_by(reservation)}" for holder, reservation in kept)
        topics = (*verdict.topics, Topic.FREE_CAPACITY.any)
        return Verdict(ok=False, why=f"with what is kept for {names}, {verdict.why}", code=verdict.code, topics=topics)

    def explained(self, gang: Gang, verdict: Verdict, closed: Sequence[_KeptFor]) -> Verdict:
        """A refusal with what is kept for whom."""
        is_full = verdict.curable and verdict.code not in QUEUE_CODES
        if verdict.ok or not (is_full or verdict.code in QUEUE_CODES):
            return verdict
        texts = [_kept(kept, f"for {holder.full_name}") for holder, kept in closed if kept.nodes and is_full]
        own = self._s.world.memory.backfill_reservations.get(gang.key)
        if own is not None:
            texts.insert(0, _kept(own, "for it"))
        if not texts:
            return verdict
        # When these nodes are free again, or somebody says how long pods run, the answer changes.
        return replace(verdict, why="; ".join((verdict.why, *texts)), topics=(*verdict.topics, Topic.FREE_CAPACITY.any))


def _might_use(s: Session, gang: Gang, kept: BackfillReservation) -> bool:
    """Is one of these nodes a match for one of its waiting members?"""
    rows = [s.world.table.row[node] for node in kept.nodes if node in s.world.table.row]
    waiting = {pod.signature: pod for pod in gang.pods() if pod.uid not in s.world.placements.by_uid}
    return any(s.match(pod)[rows].any() for pod in waiting.values())


def _share_a_queue(s: Session, gang: Gang, holder: Gang) -> bool:
    """Is there a queue below the root that both are charged to?"""
    path = s.world.facts.tree.path
    own = {level for role in gang.roles for level in path(role.queue)}
    return any(level in own for role in holder.roles for level in path(role.queue) if level in s.world.facts.tree.nodes)


def _nominations(s: Session, holder: Gang, kept: BackfillReservation) -> list[tuple[Pod, str]]:
    """What the holder lacks, on the nodes that are kept for it: where it is only its queue that is full, anywhere."""
    nodes = [node for node in kept.nodes if node in s.world.table.row] or list(s.world.table.names[:1])
    return [(pod, nodes[at % len(nodes)]) for at, pod in enumerate(unplaced_members(s.world, holder).minimum)] if nodes else []


def _charge_kept(s: Session, trial: Trial, gang: Gang, kept: Sequence[_KeptFor]) -> None:
    """What is kept where both are charged: as much as fits into the holder's queues below that. The rest can only start in place of
    what runs there, so it needs no more above."""
    path = s.world.facts.tree.path
    shared = {level for role in gang.roles for level in path(role.queue)}
    for holder, reservation in kept:
        for pod, node in _nominations(s, holder, reservation):
            own = [level for level in path(s.world.facts.members[pod.uid].queue) if level not in shared]
            if _fits_into(s, own, pod):
                _charge(trial, [(pod, node)])


def _fits_into(s: Session, queues: Sequence[str], pod: Pod) -> bool:
    rows = [s.world.ledger.row[queue] for queue in queues if queue in s.world.ledger]
    wanted = s.world.request(pod)
    used = s.world.ledger.planned_in(np.array(rows, dtype=np.intp))
    return not ((used + wanted > limits(s.world).rows[rows]) & (wanted > 0)).any()


def _charge(trial: Trial, nominations: Sequence[tuple[Pod, str]]) -> None:
    for pod, node in nominations:
        trial.restore(pod, Placement(Phase.NOMINATED, node, trial.world.now))


def _kept(kept: BackfillReservation, for_whom: str) -> str:
    if not kept.nodes:
        return f"capacity in its queue is kept {for_whom}{_by(kept)}"
    is_kept = explain.plural(len(kept.nodes), "node is kept", "nodes are kept")
    return f"{is_kept} {for_whom}{_by(kept)}"


def _by(kept: BackfillReservation) -> str:
    where = "there " if kept.nodes else ""
    return "" if kept.starts_at is None else f", which can start {where}by {_clock(kept.starts_at)}"


def _clock(at: float) -> str:
    """The time of day, in UTC."""
    minutes, seconds = divmod(int(at) % 86_400, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}Z"


def _ends_before(s: Session, gang: Gang, starts_at: float | None) -> bool:
    """Is every waiting member known to have ended by then, if it starts now?"""
    if starts_at is None:
        return False
    runs = [run_time(s.world, pod) for pod in gang.pods() if pod.uid not in s.world.placements.by_uid]
    return all(run_s is not None and s.now + run_s <= starts_at for run_s in runs)
