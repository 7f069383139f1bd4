"""Backfill reservations: nodes kept for a gang that has waited long for capacity, so that no stream of smaller gangs starves it.

The first gang of each queue that has waited longer than `reserveAfterSeconds`, and that no action had a plan for, gets one: the
nodes where it would fit soonest, and what it asks for in its queues. `kept_capacity` keeps others off. It is no reservation of a
node for one pod: nobody is placed by it, and nobody is evicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from muster.engine import explain
from muster.engine.evict.victims import victim_table_of
from muster.engine.gang_order import order_gangs
from muster.engine.hooks import Ask, Purpose
from muster.engine.members_to_place import unplaced_members
from muster.engine.quota import QUEUE_CODES
from muster.engine.session import Refusals, Session
from muster.engine.soonest_nodes import NEVER, ends_at, soonest_nodes
from muster.model.gang import Gang
from muster.model.pod import PLACED_OR_NOMINATED, Phase, Pod
from muster.state.gangs.gang_stage import reaches_min
from muster.state.gangs.refused_binds import refused_member
from muster.state.memory import BackfillReservation
from muster.state.node_table import BoolColumn

MAX_RESERVATIONS = 8
CHECK_EVERY_S = 60.0
_MOST_ENDING = 1000
"""So many pods of a queue are looked at, those that end first."""


# -- who gets one ----------------------------------------------------------------------------------------------------------------


def update_backfill_reservations(s: Session, refusals: Refusals) -> None:
    """End what is not needed any more, look for better places, and keep nodes for the first gangs that have waited for long."""
    memory, after_s = s.world.memory, s.policy.settings.reserve_after_s
    if not after_s and not len(memory.backfill_reservations):
        return
    # What the scheduler before this one said is not known.
    told = {} if s.is_first_cycle else {key: _told(kept) for key, kept in memory.backfill_reservations.items()}
    for key in list(memory.backfill_reservations):
        if not after_s or not _waits_for_capacity(s, key):
            memory.end_backfill_reservation(key)
        else:
            _move_or_keep(s, s.world.facts.gangs[key])
    searches = 0
    for key in _in_turn(s, refusals) if after_s else ():
        if searches < MAX_RESERVATIONS and key not in memory.backfill_reservations:
            searches += keep_capacity(s, key)
    _end_idle(s)
    for key, kept in memory.backfill_reservations.items():
        if _told(kept) != told.get(key):
            memory.attempt_again_at(key, s.now)


def _told(kept: BackfillReservation) -> tuple[tuple[str, ...], float | None]:
    """What the condition of the gang says of it: after another attempt, in the next cycle."""
    return kept.nodes, kept.starts_at


def _in_turn(s: Session, refusals: Refusals) -> list[str]:
    """Those for which nothing was found come last, and of each queue the first before all second ones: gangs that fit nowhere keep
    nobody else from being looked at."""
    searched, gangs = s.world.memory.backfill_searches, s.world.facts.gangs
    of_queue: Counter[str] = Counter()
    turns: list[tuple[float, int, str]] = []
    for key in (*refusals, *_due(s, refusals)):
        turns.append((searched.get(key, -NEVER), of_queue[gangs[key].queue], key))
        of_queue[gangs[key].queue] += 1
    return [key for *_, key in sorted(turns, key=lambda turn: turn[:2])]


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
    """Keep nodes, or room in its queues, for a gang that has waited for long. False where they were not looked for. Those after it
    give way, in its queue at once and in others where they must: what is kept for them binds nobody before them."""
    memory, gangs = s.world.memory, s.world.facts.gangs
    if not s.policy.settings.reserve_after_s or not _has_waited(s, key):
        return False
    if not _is_first_of_its_queue(s, gangs[key]):
        return False
    kept = memory.backfill_reservations
    after = _after(s, gangs[key])
    found = None
    if len(kept) - len(after) < MAX_RESERVATIONS:
        found = _best(s, gangs[key]) or (_best(s, gangs[key], but=after) if after else None)
    giving_way = None if found is None else _giving_way(s, found, after)
    if found is None or giving_way is None:
        memory.backfill_searches.set(key, s.now)
        return True
    for other in giving_way:
        memory.end_backfill_reservation(other)
    memory.keep_capacity(key, found)
    return True


def _is_first_of_its_queue(s: Session, gang: Gang) -> bool:
    """Of those for which anything is kept: a later one gives way."""
    memory, gangs = s.world.memory, s.world.facts.gangs
    beside = [gangs[key] for key in memory.backfill_reservations if gangs[key].queue == gang.queue]
    for other in beside:
        if s.gang_key(other) > s.gang_key(gang):
            memory.end_backfill_reservation(other.key)
    return all(other.key not in memory.backfill_reservations for other in beside)


def _after(s: Session, gang: Gang) -> list[str]:
    """For whom something is kept, of those that come after it in the order."""
    keys = [
        each.key for each in order_gangs(s, [*(s.world.facts.gangs[key] for key in s.world.memory.backfill_reservations), gang])
    ]
    return keys[keys.index(gang.key) + 1 :]


def _giving_way(s: Session, found: BackfillReservation, after: Sequence[str]) -> list[str] | None:
    """Whose nodes these are, and as many more of those after it, the last first, as there would be too many or too much idle; None
    where that is not enough."""
    kept = s.world.memory.backfill_reservations
    giving_way = [key for key in after if not set(kept[key].nodes).isdisjoint(found.nodes)]
    more = [key for key in after if key not in giving_way]
    while True:
        staying = [each.nodes for key, each in kept.items() if key not in giving_way]
        if len(staying) < MAX_RESERVATIONS and _may_be_idle(s, [*staying, found.nodes]):
            return giving_way
        if not more:
            return None
        giving_way.append(more.pop())


def _waits_for_capacity(s: Session, key: str) -> bool:
    gang, attempts = s.world.facts.gangs.get(key), s.world.memory.attempts.get(key)
    if gang is None or attempts is None or attempts.verdict is None or attempts.verdict.ok:
        return False
    is_preempting = attempts.verdict.code == explain.PREEMPTING
    return (
        attempts.verdict.curable
        and not is_preempting
        and refused_member(s.world, gang) is None
        and not reaches_min(s.world, gang, PLACED_OR_NOMINATED)
    )


def _is_queue_full(s: Session, key: str) -> bool:
    """Is it a queue that was in the way of the gang?"""
    attempts = s.world.memory.attempts.get(key)
    return attempts is not None and attempts.verdict is not None and attempts.verdict.code in QUEUE_CODES


def _has_waited(s: Session, key: str) -> bool:
    started = s.world.memory.attempts[key].started
    return started is not None and s.now - started >= s.policy.settings.reserve_after_s and _waits_for_capacity(s, key)


def _move_or_keep(s: Session, gang: Gang) -> None:
    """The start is worked out anew once a minute; other nodes are kept only where the gang is known to start there earlier, or
    where those that are kept do not drain."""
    memory = s.world.memory
    kept = memory.backfill_reservations[gang.key]
    is_same = bool(kept.nodes) is not _is_queue_full(s, gang.key) and all(node in s.world.table.row for node in kept.nodes)
    if is_same and _minute(kept, s.now) == _minute(kept, kept.checked_at):
        return
    best = _checked(s, gang, kept) if is_same and kept.nodes else _best(s, gang)
    if best is None:
        memory.end_backfill_reservation(gang.key)
    elif best.nodes == kept.nodes:
        memory.keep_capacity(gang.key, replace(best, since=kept.since, moves=kept.moves))
    else:
        memory.keep_capacity(gang.key, replace(best, moves=kept.moves + 1))


def _minute(kept: BackfillReservation, at: float) -> int:
    """Counted since these nodes were chosen, so that a restart does not change when the start is worked out."""
    return int((at - kept.since) // CHECK_EVERY_S)


def _checked(s: Session, gang: Gang, kept: BackfillReservation) -> BackfillReservation | None:
    """The same nodes or others. With each move others are looked for after twice the time: what ends later than was said, or nobody
    knows when, does not drive it from node to node."""
    here, stays_s, times = best_nodes(s, gang, among=kept.nodes), s.now - kept.since, 2**kept.moves
    if here is None or stays_s >= CHECK_EVERY_S * (times - 1):
        elsewhere = best_nodes(s, gang)
        if here is None or (elsewhere is not None and elsewhere.start < here.start):
            return elsewhere
    if here.start < NEVER or stays_s < s.policy.settings.reserve_after_s * times:
        return here
    if best_nodes(s, gang, among=kept.nodes, endless_since=kept.since) is not None:
        return here
    return best_nodes(s, gang, endless_since=kept.since) or here


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


# -- when its queues take it -----------------------------------------------------------------------------------------------------


def _best(s: Session, gang: Gang, *, but: Collection[str] = ()) -> BackfillReservation | None:
    """Where it would start soonest. As long as a queue is full no node is kept: it would only be idle."""
    found = best_nodes(s, gang, but=but)
    if found is None or not _is_queue_full(s, gang.key):
        return found
    start = _fits_queues_at(s, gang)
    return None if start is None else _reservation(s, (), start)


def best_nodes(
    s: Session,
    gang: Gang,
    *,
    among: Collection[str] | None = None,
    but: Collection[str] = (),
    endless_since: float | None = None,
) -> BackfillReservation | None:
    """The domain and nodes where what the gang lacks fits soonest, of those that are kept for nobody else but for these."""
    found = soonest_nodes(s, gang, _usable_rows(s, gang, among, but), endless_since=endless_since)
    return None if found is None else _reservation(s, found.nodes, found.start)


def _usable_rows(s: Session, gang: Gang, among: Collection[str] | None, but: Collection[str]) -> BoolColumn:
    """Nodes that are kept for nobody else but for these, and among these nodes where any are named."""
    others = [each.nodes for key, each in s.world.memory.backfill_reservations.items() if key != gang.key and key not in but]
    table = s.world.table
    usable = ~table.mask(node for nodes in others for node in nodes)
    return usable if among is None else usable & table.mask(among)


def _reservation(s: Session, nodes: tuple[str, ...], start: float) -> BackfillReservation:
    return BackfillReservation(nodes, starts_at=start if start < NEVER else None, checked_at=s.now, since=s.now)


def _fits_queues_at(s: Session, gang: Gang) -> float | None:
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
    at = np.flatnonzero(here & table.ours[:used])
    ending = [
        (end, table.pods[number]) for end, number in zip(ends_at(s, table, at).tolist(), at.tolist(), strict=True) if end < NEVER
    ]
    return sorted(ending, key=lambda each: (each[0], each[1].uid))[:_MOST_ENDING]
