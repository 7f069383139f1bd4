"""Backfill reservations: nodes kept for a gang that has waited long for capacity, so that no stream of smaller gangs starves it.

The first gang of each queue that has waited longer than `reserveAfterSeconds`, and that no action had a plan for, gets one: the
nodes where it would fit soonest, and what it asks for in its queues. `kept_capacity` keeps others off. It is no reservation of a
node for one pod: nobody is placed by it, and nobody is evicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from muster.engine import explain
from muster.engine.domain_placement import place_in_allowed_domains
from muster.engine.evict.victims import victim_table_of
from muster.engine.gang_order import order_gangs
from muster.engine.hooks import Ask, Purpose
from muster.engine.members_to_place import unplaced_members
from muster.engine.quota import QUEUE_CODES
from muster.engine.reservations import could_ever_complete
from muster.engine.run_times import run_time
from muster.engine.session import Refusals, Session
from muster.model.gang import Gang
from muster.model.pod import PLACED, PLACED_OR_NOMINATED, Phase, Pod
from muster.state.gangs.gang_stage import reaches_min
from muster.state.gangs.refused_binds import refused_member
from muster.state.memory import BackfillReservation
from muster.state.node_table import BoolColumn, FloatColumn, RowIndex
from muster.state.pod_terms import terms_of
from muster.state.resource_columns import Amounts

MAX_RESERVATIONS = 8
CHECK_EVERY_S = 60.0
NEVER = np.inf
_OVERTIME_S = 60.0
"""A pod that runs so much longer than was declared is one of which nobody knows when it ends."""
_MOST_DOMAINS = 3
"""So many domains are tried, those first that have space first."""
_MOST_ENDING = 1000
"""So many pods of a queue are looked at, those that end first."""


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
            searches += keep_capacity(s, key)
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


def keep_capacity(s: Session, key: str) -> bool:
    """Keep nodes, or room in its queues, for a gang that has waited for long. False where they were not even looked for. A gang of
    its queue that comes after it gives way: what is kept for that one binds nobody before it."""
    memory, gangs = s.world.memory, s.world.facts.gangs
    if not s.policy.settings.reserve_after_s or not _has_waited(s, key):
        return False
    for other in [other for other in memory.backfill_reservations if gangs[other].queue == gangs[key].queue]:
        if s.gang_key(gangs[other]) > s.gang_key(gangs[key]):
            memory.end_backfill_reservation(other)
    if not _may_have_one(s, gangs[key]):
        return False
    found = _best(s, s.world.facts.gangs[key])
    if found is not None and _may_be_idle(s, [*(each.nodes for each in memory.backfill_reservations.values()), found.nodes]):
        memory.keep_capacity(key, found)
    return True


def _waits_for_capacity(s: Session, key: str) -> bool:
    gang, attempts = s.world.facts.gangs.get(key), s.world.memory.attempts.get(key)
    if gang is None or attempts is None or attempts.verdict is None or attempts.verdict.ok:
        return False
    lacks_room = attempts.verdict.code == explain.NO_CAPACITY or (attempts.verdict.curable and _is_queue_full(s, key))
    return lacks_room and refused_member(s.world, gang) is None and not reaches_min(s.world, gang, PLACED_OR_NOMINATED)


def _is_queue_full(s: Session, key: str) -> bool:
    """Is it a queue that was in the way of the gang?"""
    attempts = s.world.memory.attempts.get(key)
    return attempts is not None and attempts.verdict is not None and attempts.verdict.code in QUEUE_CODES


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
    is_same = bool(kept.nodes) is not _is_queue_full(s, gang.key) and all(node in s.world.table.row for node in kept.nodes)
    if is_same and s.now < kept.checked_at + CHECK_EVERY_S:
        return
    here, elsewhere = best_nodes(s, gang, among=kept.nodes) if is_same and kept.nodes else None, _best(s, gang)
    best = here or elsewhere
    if here is not None and elsewhere is not None and elsewhere.start < here.start:
        best = elsewhere
    if best is None:
        memory.end_backfill_reservation(gang.key)
    else:
        memory.keep_capacity(gang.key, best)


def _end_idle(s: Session) -> None:
    """All together leave no more idle than the policy allows: the latest ends."""
    memory = s.world.memory
    while not _may_be_idle(s, [each.nodes for each in memory.backfill_reservations.values()]):
        memory.end_backfill_reservation(list(memory.backfill_reservations)[-1])


def _may_be_idle(s: Session, kept: Sequence[Sequence[str]]) -> bool:
    """One is not bounded: the one that leaves most idle, so that nobody takes that right from the others by being the first to keep
    a node or two. There is always one that may be kept."""
    idle = [_idle(s, nodes) for nodes in kept]
    return len(idle) < 2 or sum(idle) - max(idle) <= s.policy.settings.max_reserved_idle_percent / 100.0


def _idle(s: Session, nodes: Iterable[str]) -> float:
    """The part of the cluster that is free on these nodes, of the resource of which it is most."""
    table = s.world.table
    rows = [table.row[node] for node in nodes if node in table.row]
    free = (table.allocatable[rows] - table.used[rows]).sum(axis=0)
    return float((free / np.maximum(table.allocatable.sum(axis=0), 1)).max(initial=0.0))


# -- when its queues have room ---------------------------------------------------------------------------------------------------


def _best(s: Session, gang: Gang) -> BackfillReservation | None:
    """Where it would start soonest. As long as a queue is full no node is kept: it would only be idle."""
    found = best_nodes(s, gang)
    if found is None or not _is_queue_full(s, gang.key):
        return found
    start = _room_in_queues_at(s, gang)
    return None if start is None else BackfillReservation((), starts_at=start if start < NEVER else None, checked_at=s.now)


def _room_in_queues_at(s: Session, gang: Gang) -> float | None:
    """When its queues take what it lacks, by known run times; NEVER where these do not tell, None where they cannot."""
    members = unplaced_members(s.world, gang).minimum
    if not s.admit(Ask(gang, members, Purpose.EVICT)).ok:
        return None
    ending = _ending_in_queues(s, gang)
    with s.trial("simulated", cause="Simulated") as trial:
        released, enough = 0, len(ending) + 1
        few, many = 0, len(ending)
        while few <= many:
            middle = (few + many) // 2
            if middle < released:
                trial.undo_to(trial.mark() - (released - middle))
            for _, pod in ending[released:middle]:
                trial.release(pod)
            released = middle
            if s.admit(Ask(gang, members, Purpose.NOMINATE)).ok:
                enough, many = middle, middle - 1
            else:
                few = middle + 1
    if enough > len(ending):
        return NEVER
    return s.now if not enough else ending[enough - 1][0]


def _ending_in_queues(s: Session, gang: Gang) -> list[tuple[float, Pod]]:
    """Pods of ours that are charged to a queue that the gang is charged to, too, the first to end first."""
    table, path = victim_table_of(s.world), s.world.facts.tree.path
    used, own = len(table.pods), {level for role in gang.roles for level in path(role.queue)} & s.world.facts.tree.nodes.keys()
    beside = [number for queue, number in table.queue_number.items() if not own.isdisjoint(path(queue))]
    runs = (table.phase[:used] == Phase.BOUND) | (table.phase[:used] == Phase.BINDING)
    here = table.alive[:used] & runs & np.isin(table.gang_queue[table.gang[:used]], beside)
    pods = [table.pods[number] for number in np.flatnonzero(here).tolist()]
    ending = [(_ends_at(s, pod), pod) for pod in pods if pod.ours]
    return sorted((each for each in ending if each[0] < NEVER), key=lambda each: (each[0], each[1].uid))[:_MOST_ENDING]


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
    able: list[tuple[tuple[float, float, int], RowIndex]] = []
    for domain in domains:
        found = np.flatnonzero(domain.mask(len(table))[spaces.row])[: len(members)]
        if len(found) == len(members):
            rows = spaces.row[found]
            able.append(((float(spaces.at[found[-1]]), round(float(spaces.used[found].sum()), 9), int(rows[0])), rows))
    for (start, *_), rows in sorted(able, key=lambda each: each[0])[:_MOST_DOMAINS]:
        nodes = tuple(table.names[row] for row in dict.fromkeys(rows.tolist()))
        fits = could_ever_complete(s, gang) if _is_queue_full(s, gang.key) else _fits_there(s, gang, members, nodes, start)
        if fits:
            return BackfillReservation(nodes, starts_at=start if start < NEVER else None, checked_at=s.now)
    return None


def _fits_there(s: Session, gang: Gang, members: Sequence[Pod], nodes: Sequence[str], start: float) -> bool:
    """Would the gang start once the pods on these nodes have ended that are known to end by then, or all of ours where nobody
    knows? Spaces are amounts alone: a gang that something else keeps out would keep the nodes for ever."""
    rows, table, world = [s.world.table.row[node] for node in nodes], victim_table_of(s.world), s.world
    used = len(table.pods)
    needed = [target.selection for pod in members[:1] for target in terms_of(pod).required_affinity]
    with s.trial("simulated", cause="Simulated") as trial:
        for number in np.flatnonzero(table.alive[:used] & np.isin(table.row[:used], rows)).tolist():
            pod = table.pods[number]
            is_needed = any(selection.matches_pod(world.facts.namespaces, pod) for selection in needed)
            if pod.ours and world.phase(pod) in PLACED and not is_needed and (start >= NEVER or _ends_at(s, pod) <= start):
                trial.release(pod)
        place_in_allowed_domains(s, trial, gang, members, phase=Phase.NOMINATED)
        return reaches_min(world, gang, PLACED_OR_NOMINATED)


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
    most = 1 if any(_is_alone_on_its_node(s, pod) for pod in signatures) else len(members)
    now = np.clip((free // request[asked]).min(axis=1), 0, most) * usable
    row, ends, requests = _ending_pods(s, usable, asked)
    first = np.searchsorted(row, row)
    gone = np.cumsum(requests, axis=0)
    freed = gone - (gone[first] - requests[first])
    count = np.clip(((free[row] + freed) // request[asked]).min(axis=1), 0, most).astype(np.int64)
    before = np.concatenate([[0], count[:-1]]) if len(count) else count
    more = count - np.where(first == np.arange(len(row)), now[row], before)
    rows = np.concatenate([np.repeat(np.arange(len(table)), now), np.repeat(row, more)])
    at = np.concatenate([np.full(int(now.sum()), s.now), np.repeat(ends, more)])
    order = np.lexsort((rows, used[rows], at))
    return _Spaces(at[order], used[rows][order], rows[order])


def _is_alone_on_its_node(s: Session, pod: Pod) -> bool:
    """Does it keep pods like itself off its node?"""
    apart = terms_of(pod).required_anti_affinity
    return bool(pod.signature.ports) or any(target.selection.matches_pod(s.world.facts.namespaces, pod) for target in apart)


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
    run_s = run_time(s.world, pod)
    if run_s is None:
        return NEVER
    started = pod.started if pod.started is not None else s.world.placement(pod).since
    # Who runs longer than was declared may do so for ever.
    return max(s.now, started + run_s) if s.now <= started + run_s + _OVERTIME_S else NEVER
