"""Room in queues: what a queue and all above it still take, and the sentence if that is not enough.

Limits are enforced on every queue but the root, whatever the policy. Only dimensions that are both asked for and configured are
compared; an explicit zero forbids. Plugins that know tighter bounds compare them in the same way.

A bind looks at what stands in the queue now; a nomination at what will stand there once the releases under way are done; whoever
may yet evict looks at nothing but the bound itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from muster.engine.hooks import Ask, Purpose, Room
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang
from muster.model.pod import Phase, Pod
from muster.model.queue import Queue, show_queue
from muster.model.resources import Resources, short_name, show_amount
from muster.state.columns import Amounts
from muster.state.ledger import Rows
from muster.state.queues import QUEUE_CLOSED, QueueTree
from muster.state.store import QUEUES
from muster.state.world import World

if TYPE_CHECKING:
    from muster.engine.session import Session

QUEUE_LIMIT = "QueueLimit"

UNLIMITED = 2**61
"""More than any amount, and far enough from the largest integer to be added to."""

EVICTING = frozenset({"preempt", "gang-preempt", "gang-reclaim", "job-preempt"})
"""Actions that can make room in a queue that is full."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """At most so much in each queue: rows as in the ledger, UNLIMITED where nothing was configured."""

    rows: Amounts
    word: str = "limit"
    code: str = QUEUE_LIMIT
    wakes: tuple[str, ...] = ()
    """What can change the bounds, beside the queues themselves."""
    binding: bool = True
    """False where nothing is bounded at all."""


def bounds(world: World, of: Callable[[Queue], Resources]) -> Amounts:
    """One row of bounds for each queue of the ledger."""
    ledger, position = world.ledger, world.columns.position
    for queue in world.tree.nodes.values():
        world.columns.require(of(queue))
    rows = np.full((len(ledger), len(world.columns.names)), UNLIMITED, dtype=np.int64)
    for key, queue in world.tree.nodes.items():
        row = ledger.row[key]
        for name, value in of(queue).items:
            rows[row, position[name]] = value
    return rows


@dataclass(frozen=True, slots=True)
class _Kept:
    tree: QueueTree
    layout: int
    limits: Bounds


def limits(world: World) -> Bounds:
    """The limits of all queues, worked out anew when one of them changes."""
    found = world.memo.get("queue limits")
    if isinstance(found, _Kept) and found.tree is world.tree and found.layout == world.ledger.layout:
        return found.limits
    binding = any(queue.limit.items for queue in world.tree.nodes.values())
    made = Bounds(bounds(world, lambda queue: queue.limit), binding=binding)
    world.memo["queue limits"] = _Kept(world.tree, world.ledger.layout, made)
    return made


# -- may the gang enter at all? ----------------------------------------------------------------------------------------------------


def may_enter(world: World, gang: Gang) -> Verdict:
    """Every role's queue must exist, have its place in the tree, and be open to gangs that do not run yet."""
    for role in gang.roles:
        fault = world.tree.fault(role.queue)
        if fault is None or (fault.code == QUEUE_CLOSED and world.unseated.get(gang.key, 0) < gang.size):
            continue
        return Verdict(ok=False, why=fault.why, code=fault.code, wakes=(QUEUES,))
    return YES


# -- is there room for the whole minimum? ------------------------------------------------------------------------------------------


def needs(s: Session, ask: Ask) -> dict[str, Amounts]:
    """What the minimum of an ask needs in each queue. Before there are pods, that is what the PodGroup says it needs."""
    if ask.purpose is Purpose.ENQUEUE:
        return {ask.gang.queue: s.world.columns.vector(ask.gang.min_resources)}
    return total_by_queue(s.world, ask.minimum)


def total_by_queue(world: World, pods: Iterable[Pod]) -> dict[str, Amounts]:
    total: dict[str, Amounts] = {}
    for queue, request, count in _alike(world, pods):
        amounts = count * world.columns.vector(request)
        total[queue] = total[queue] + amounts if queue in total else amounts
    return total


def _alike(world: World, pods: Iterable[Pod]) -> Iterable[tuple[str, Resources, int]]:
    """Stretches of pods with one request in one queue, and how long they are."""
    members = world.members
    kind, member, count = None, None, 0
    for pod in pods:
        found = members[pod.uid]
        if pod.kind is kind and found is member:
            count += 1
            continue
        if kind is not None and member is not None:
            yield member.queue, kind.request, count
        kind, member, count = pod.kind, found, 1
    if kind is not None and member is not None:
        yield member.queue, kind.request, count


def admit(s: Session, ask: Ask, bound: Bounds) -> Verdict:
    """Does the whole minimum fit into its queues and all above them?"""
    if not bound.binding:
        return YES
    needed = s.needs(ask)
    if len(needed) == 1:
        ((queue, amounts),) = needed.items()
        rows, wanted = s.world.ledger.rows_up(queue), amounts[None, :]
    elif needed:
        rows, wanted = _together(s.world, needed)
    else:
        return YES
    standing = _standing(s, ask, rows)
    over = (standing + wanted > bound.rows[rows]) & (wanted > 0)
    if not over.any():
        return YES
    at = int(over.any(axis=1).argmax())
    need = wanted[at if len(wanted) > 1 else 0]
    return _refusal(s, bound, _Short(int(rows[at]), np.flatnonzero(over[at]), standing[at], need, ask.purpose))


def _together(world: World, needed: dict[str, Amounts]) -> tuple[Rows, Amounts]:
    """Rows of all queues concerned, and what is asked of each: what lies above two of them is asked for both."""
    total: dict[int, Amounts] = {}
    for queue, amounts in needed.items():
        for row in world.ledger.rows_up(queue).tolist():
            total[row] = total[row] + amounts if row in total else amounts
    return np.array(list(total), dtype=np.intp), np.array(list(total.values()), dtype=np.int64)


def _standing(s: Session, ask: Ask, rows: Rows) -> Amounts:
    ledger = s.world.ledger
    match ask.purpose:
        case Purpose.ALLOCATE:
            return np.maximum(ledger.used_in(rows), ledger.taken_in(rows))
        case Purpose.NOMINATE:
            return ledger.taken_in(rows)
        case Purpose.EVICT:
            return np.zeros_like(s.ahead[rows])
        case Purpose.ENQUEUE:
            return s.ahead[rows] if may_evict(s, ask.gang) else s.ahead[rows] + ledger.taken_in(rows)


def may_evict(s: Session, gang: Gang) -> bool:
    """Could somebody be asked to leave for this gang? Then a full queue is no reason to keep it out."""
    return not gang.never_preempts and not EVICTING.isdisjoint(s.policy.actions)


# -- is there room for one more of these? ------------------------------------------------------------------------------------------


def room(s: Session, pod: Pod, bound: Bounds, *, count: int, phase: Phase) -> Room:
    """How many of `count` pods like this one its queues take as the ledger stands now."""
    if not bound.binding:
        return Room(count)
    world = s.world
    queue = world.members[pod.uid].queue
    rows, need = world.ledger.rows_up(queue), world.request(pod)
    standing = standing_for(s, pod, rows, phase=phase)
    return seats(s, bound, rows, standing, need, count=count, phase=phase)


def standing_for(s: Session, pod: Pod, rows: Rows, *, phase: Phase) -> Amounts:
    """What counts against a pod that is to enter this phase. Its own promise is not in its way."""
    ledger = s.world.ledger
    if phase is Phase.NOMINATED:
        return ledger.taken_in(rows)
    if s.world.phase(pod) is Phase.NOMINATED:
        return ledger.used_in(rows)
    return np.maximum(ledger.used_in(rows), ledger.taken_in(rows))


def seats(s: Session, bound: Bounds, rows: Rows, standing: Amounts, need: Amounts, *, count: int, phase: Phase) -> Room:
    """How many of `count` equal pods these rows take; the first row is the queue's own."""
    asked = np.flatnonzero(need)
    if not len(asked) or not len(rows):
        return Room(count)
    each = (bound.rows[rows[:, None], asked] - standing[:, asked]) // need[asked]
    fit = max(0, int(each.min()))
    if fit >= count:
        return Room(count)
    at = int(each.min(axis=1).argmin())
    purpose = Purpose.NOMINATE if phase is Phase.NOMINATED else Purpose.ALLOCATE
    # The sentence is for those who are left over: the others are as good as placed.
    short = _Short(int(rows[at]), asked[each[at] < count], standing[at] + fit * need, (count - fit) * need, purpose)
    return Room(fit, _refusal(s, bound, short))


# -- saying so ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Short:
    """A queue that has not enough: its row, the columns that lack, what stands in it and what was asked for."""

    row: int
    columns: Rows
    standing: Amounts
    need: Amounts
    purpose: Purpose


def _refusal(s: Session, bound: Bounds, short: _Short) -> Verdict:
    """The sentence with its numbers: `queue research: gpu 208 used + 48 asked > 224 limit`."""
    world, most = s.world, bound.rows[short.row]
    queue = world.ledger.names[short.row]
    parts: list[str] = []
    for column in short.columns.tolist():
        name = world.columns.names[column]
        parts.append(f"{short_name(name)} {_terms(s, short, queue, column)} > {show_amount(name, int(most[column]))} {bound.word}")
    curable = bool((short.need <= most)[short.columns].all())
    wakes = (*world.ledger.path(queue)[:-1], *bound.wakes)
    return Verdict(ok=False, why=f"{show_queue(queue)}: {', '.join(parts)}", code=bound.code, curable=curable, wakes=wakes)


def _terms(s: Session, short: _Short, queue: str, column: int) -> str:
    """`208 used (16 leaving) + 16 ahead + 48 asked`, without what is zero."""
    name = s.world.columns.names[column]
    ahead = int(s.ahead[short.row, column]) if short.purpose is Purpose.ENQUEUE else 0
    used = int(short.standing[column]) - ahead
    terms: list[str] = []
    if used or not ahead:
        terms.append(f"{show_amount(name, used)} used{_of_which(s.world, queue, column, short.purpose)}")
    if ahead:
        terms.append(f"{show_amount(name, ahead)} ahead")
    return " + ".join([*terms, f"{show_amount(name, int(short.need[column]))} asked"])


def _of_which(world: World, queue: str, column: int, purpose: Purpose) -> str:
    """How much of what is used is only promised, or about to be free."""
    name = world.columns.names[column]
    leaving, promised = int(world.ledger.leaving(queue)[column]), int(world.ledger.promised(queue)[column])
    if purpose is Purpose.ALLOCATE and leaving > promised:
        return f" ({show_amount(name, leaving)} leaving)"
    if purpose in (Purpose.ALLOCATE, Purpose.NOMINATE) and promised:
        return f" ({show_amount(name, promised)} promised)"
    return ""
