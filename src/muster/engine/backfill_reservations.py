"""Backfill reservations: nodes kept for a gang that has waited long for capacity, so that no stream of smaller gangs starves it.

The first gang of each queue that has waited longer than `reserveAfterSeconds`, and that no action had a plan for, gets one: the
nodes where it would fit soonest. Gangs after it in the order may start there only if they are known to end before it could
(backfill). It is no reservation of a node for one pod: nobody is placed by it, and nobody is evicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from muster.engine import explain
from muster.engine.evict.victims import victim_table_of
from muster.engine.gang_order import order_gangs
from muster.engine.hooks import Ask, Purpose
from muster.engine.members_to_place import unplaced_members
from muster.engine.session import Refusals, Session
from muster.model.effects import Verdict
from muster.model.gang import Gang
from muster.model.pod import PLACED_OR_NOMINATED, Phase, Pod
from muster.state.gangs.gang_stage import reaches_min
from muster.state.gangs.refused_binds import refused_member
from muster.state.memory import BackfillReservation
from muster.state.node_table import BoolColumn, FloatColumn, RowIndex
from muster.state.resource_columns import Amounts

MAX_RESERVATIONS = 8
CHECK_EVERY_S = 60.0
NEVER = np.inf


# -- while gangs are placed ------------------------------------------------------------------------------------------------------


class KeptNodes:
    """The nodes that are kept, as gangs are visited in their order: each is closed to those after the gang that it is kept for."""

    def __init__(self, s: Session) -> None:
        self._s = s
        self._closed: list[tuple[Gang, BackfillReservation]] = []

    def visited(self, gang: Gang, *, complete: bool) -> None:
        """The gang had its turn: what is kept for it is closed from now on, unless it has started."""
        if complete:
            return
        if self._s.is_first_cycle:
            # A scheduler that has just started does not know for whom the one before it kept nodes: those who waited then still do.
            _keep_nodes(self._s, gang.key)
        reservation = self._s.world.memory.backfill_reservations.get(gang.key)
        if reservation is not None:
            self._closed.append((gang, reservation))

    def closed_to(self, gang: Gang, *, surplus: bool = False) -> list[tuple[Gang, BackfillReservation]]:
        """What this gang may not use. Members above a minimum give way to every gang of their priority or above."""
        return [
            (holder, kept)
            for holder, kept in self._closed
            if not (surplus and holder.priority < gang.priority)
            and not (gang.priority > holder.priority and gang.queue == holder.queue)
            and not _ends_before(self._s, gang, kept.starts_at)
        ]

    def left_out(self, closed: Sequence[tuple[Gang, BackfillReservation]]) -> BoolColumn | None:
        """The rows of these nodes as a column, or None where there are none."""
        if not closed:
            return None
        row = self._s.world.table.row
        column = np.zeros(len(row), dtype=np.bool_)
        column[[row[node] for _, kept in closed for node in kept.nodes if node in row]] = True
        return column

    def explained(self, gang: Gang, verdict: Verdict, closed: Sequence[tuple[Gang, BackfillReservation]]) -> Verdict:
        """A refusal with what is kept for whom."""
        texts = [f"{_kept(kept, 'for ' + holder.full_name)}" for holder, kept in closed]
        own = self._s.world.memory.backfill_reservations.get(gang.key)
        if own is not None:
            texts.insert(0, _kept(own, "for it"))
        if verdict.ok or not texts or verdict.code != explain.NO_CAPACITY:
            return verdict
        return Verdict(
            ok=False,
            why="; ".join((verdict.why, *texts)),
            code=verdict.code,
            curable=verdict.curable,
            topics=verdict.topics,
            at=verdict.at,
        )


def _kept(kept: BackfillReservation, for_whom: str) -> str:
    is_kept = explain.plural(len(kept.nodes), "node is kept", "nodes are kept")
    start = "" if kept.starts_at is None else f", which can start there by {_clock(kept.starts_at)}"
    return f"{is_kept} {for_whom}{start}"


def _clock(at: float) -> str:
    """The time of day, in UTC."""
    minutes, seconds = divmod(int(at) % 86_400, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}Z"


def _ends_before(s: Session, gang: Gang, starts_at: float | None) -> bool:
    """Is every waiting member known to have ended by then, if it starts now?"""
    if starts_at is None:
        return False
    runs = [pod.run_s for pod in gang.pods() if pod.uid not in s.world.placements.by_uid]
    return all(run_s is not None and s.now + run_s <= starts_at for run_s in runs)


# -- who gets one ----------------------------------------------------------------------------------------------------------------


def update_backfill_reservations(s: Session, refusals: Refusals) -> None:
    """End what is not needed any more, look for better places, and keep nodes for the first gangs that have waited for long."""
    memory, after_s = s.world.memory, s.policy.settings.reserve_after_s
    if not after_s and not len(memory.backfill_reservations):
        return
    for key in list(memory.backfill_reservations):
        if not after_s or not _waits_for_capacity(s, key):
            memory.end_backfill_reservation(key)
    searches = 0
    for key in (*refusals, *_due(s, refusals)) if after_s else ():
        if key in memory.backfill_reservations:
            _move_or_keep(s, s.world.facts.gangs[key])
        elif searches < MAX_RESERVATIONS:
            searches += _keep_nodes(s, key)
    _end_idle(s)


def _due(s: Session, refusals: Refusals) -> list[str]:
    """Gangs that have waited for long since this cycle, but were not attempted in it, in their order."""
    memory, gangs = s.world.memory, s.world.facts.gangs
    latest = s.now - s.policy.settings.reserve_after_s
    due = []
    for key in s.world.placements.unplaced_members:
        attempts = memory.attempts.get(key)
        if attempts is None or attempts.started is None or attempts.started > latest or key in refusals:
            continue
        if attempts.started > latest - (s.now - memory.decided_at):
            due.append(gangs[key])
    return [gang.key for gang in order_gangs(s, due)] if due else []


def _keep_nodes(s: Session, key: str) -> bool:
    """Keep nodes for a gang that has waited for long, if it may have any. False where they were not even looked for."""
    memory = s.world.memory
    if not s.policy.settings.reserve_after_s or not _has_waited(s, key) or not _may_have_one(s, s.world.facts.gangs[key]):
        return False
    found = best_nodes(s, s.world.facts.gangs[key])
    if found is not None and (not len(memory.backfill_reservations) or _idle(s, found.nodes) <= _most_idle(s)):
        memory.keep_nodes(key, found)
    return True


def _waits_for_capacity(s: Session, key: str) -> bool:
    gang, attempts = s.world.facts.gangs.get(key), s.world.memory.attempts.get(key)
    if gang is None or attempts is None or attempts.verdict is None or attempts.verdict.ok:
        return False
    is_refused = attempts.verdict.code == explain.NO_CAPACITY and refused_member(s.world, gang) is None
    return is_refused and not reaches_min(s.world, gang, PLACED_OR_NOMINATED)


def _has_waited(s: Session, key: str) -> bool:
    started = s.world.memory.attempts[key].started
    return started is not None and s.now - started >= s.policy.settings.reserve_after_s and _waits_for_capacity(s, key)


def _may_have_one(s: Session, gang: Gang) -> bool:
    """One for each queue, and not more than so many in all."""
    memory, gangs = s.world.memory, s.world.facts.gangs
    queues = {gangs[key].queue for key in memory.backfill_reservations}
    return gang.queue not in queues and len(memory.backfill_reservations) < MAX_RESERVATIONS


def _move_or_keep(s: Session, gang: Gang) -> None:
    """The start is worked out anew once a minute; other nodes are kept only where the gang is known to start there earlier."""
    memory = s.world.memory
    kept = memory.backfill_reservations[gang.key]
    if s.now < kept.checked_at + CHECK_EVERY_S and all(node in s.world.table.row for node in kept.nodes):
        return
    here, elsewhere = best_nodes(s, gang, among=kept.nodes), best_nodes(s, gang)
    best = here or elsewhere
    if here is not None and elsewhere is not None and elsewhere.start < here.start:
        best = elsewhere
    if best is None:
        memory.end_backfill_reservation(gang.key)
    else:
        memory.keep_nodes(gang.key, best)


def _end_idle(s: Session) -> None:
    """All but the first together leave no more idle than the policy allows: the latest ends."""
    memory = s.world.memory
    later = list(memory.backfill_reservations)[1:]
    while later and sum(_idle(s, memory.backfill_reservations[key].nodes) for key in later) > _most_idle(s):
        memory.end_backfill_reservation(later.pop())


def _most_idle(s: Session) -> float:
    return s.policy.settings.max_reserved_idle_percent / 100.0


def _idle(s: Session, nodes: Iterable[str]) -> float:
    """The part of the cluster that is free on these nodes, of the resource of which it is most."""
    table = s.world.table
    rows = [table.row[node] for node in nodes if node in table.row]
    free = (table.allocatable[rows] - table.used[rows]).sum(axis=0)
    return float((free / np.maximum(table.allocatable.sum(axis=0), 1)).max(initial=0.0))


# -- where it would fit soonest ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Spaces:
    """Spaces for one member each, the soonest first: from when on, how full the node is now, and its row."""

    at: FloatColumn
    used: FloatColumn
    row: RowIndex


def best_nodes(s: Session, gang: Gang, *, among: Sequence[str] | None = None) -> BackfillReservation | None:
    """The domain and nodes where what the gang lacks fits soonest, by known run times; else where most is free."""
    members = unplaced_members(s.world, gang).minimum
    domains = s.where(Ask(gang, members, Purpose.ALLOCATE, needed=len(members))).domains if members else ()
    if not domains:
        return None
    spaces = _spaces(s, gang, members, among)
    table = s.world.table
    best: tuple[tuple[float, float, int], RowIndex] | None = None
    for domain in domains:
        found = np.flatnonzero(domain.mask(len(table))[spaces.row])[: len(members)]
        if len(found) < len(members):
            continue
        rows = spaces.row[found]
        key = (float(spaces.at[found[-1]]), round(float(spaces.used[found].sum()), 9), int(rows[0]))
        if best is None or key < best[0]:
            best = key, rows
    if best is None:
        return None
    (start, *_), rows = best
    nodes = tuple(table.names[row] for row in dict.fromkeys(rows.tolist()))
    return BackfillReservation(nodes, starts_at=start if start < NEVER else None, checked_at=s.now)


def _spaces(s: Session, gang: Gang, members: Sequence[Pod], among: Sequence[str] | None) -> _Spaces:
    """From when on each node has space for one, two, three of these members. Members that differ count with the most that any of
    them requests."""
    world, table = s.world, s.world.table
    signatures = {pod.signature: pod for pod in members}.values()
    request = np.max([world.request(pod) for pod in signatures], axis=0)
    asked = np.flatnonzero(request > 0)
    usable = _usable_rows(s, gang, among)
    for pod in signatures:
        usable &= s.match(pod)
    free = (table.allocatable - table.planned)[:, asked]
    used = (table.planned[:, asked] / np.maximum(table.allocatable[:, asked], 1)).max(axis=1, initial=0.0).round(9)
    now = np.clip((free // request[asked]).min(axis=1), 0, len(members)) * usable
    row, ends, requests = _ending_pods(s, usable, asked)
    first = np.searchsorted(row, row)
    gone = np.cumsum(requests, axis=0)
    freed = gone - (gone[first] - requests[first])
    count = np.clip(((free[row] + freed) // request[asked]).min(axis=1), 0, len(members)).astype(np.int64)
    before = np.concatenate([[0], count[:-1]]) if len(count) else count
    more = count - np.where(first == np.arange(len(row)), now[row], before)
    rows = np.concatenate([np.repeat(np.arange(len(table)), now), np.repeat(row, more)])
    at = np.concatenate([np.full(int(now.sum()), s.now), np.repeat(ends, more)])
    order = np.lexsort((rows, used[rows], at))
    return _Spaces(at[order], used[rows][order], rows[order])


def _usable_rows(s: Session, gang: Gang, among: Sequence[str] | None) -> BoolColumn:
    """Nodes that are kept for nobody else, and among these where any are named."""
    row = s.world.table.row
    usable = np.full(len(row), among is None)
    usable[[row[node] for node in among or () if node in row]] = True
    kept = [each.nodes for key, each in s.world.memory.backfill_reservations.items() if key != gang.key]
    usable[[row[node] for nodes in kept for node in nodes if node in row]] = False
    return usable


def _ending_pods(s: Session, usable: BoolColumn, asked: RowIndex) -> tuple[RowIndex, FloatColumn, Amounts]:
    """Placed pods of ours on these rows, by row and by when they end: the row, the time, and what they request."""
    table = victim_table_of(s.world)
    used = len(table.pods)
    runs = (table.phase[:used] == Phase.BOUND) | (table.phase[:used] == Phase.BINDING)
    here = table.alive[:used] & runs & (table.row[:used] >= 0)
    here[here] = usable[table.row[:used][here]]
    at = np.array([number for number in np.flatnonzero(here).tolist() if table.pods[number].ours], dtype=np.intp)
    ends = np.array([_ends_at(s, table.pods[number]) for number in at.tolist()], dtype=np.float64)
    order = np.lexsort((ends, table.row[at]))
    return table.row[at][order], ends[order], table.request[at][order][:, asked]


def _ends_at(s: Session, pod: Pod) -> float:
    if pod.run_s is None:
        return NEVER
    started = pod.started if pod.started is not None else s.world.placement(pod).since
    return max(s.now, started + pod.run_s)
