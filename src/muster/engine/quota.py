"""Free capacity in queues: what a queue and all above it still take, and the sentence if that is not enough.

Limits are enforced on every queue but the root, whatever the policy. Only dimensions that are both requested and configured are
compared; an explicit zero forbids. Plugins that know tighter bounds compare them in the same way.

A bind is compared with usage now; a nomination with usage once the releases under way are done; an ask that
may yet evict looks at nothing but the bound itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from muster.engine.hooks import Ask, Purpose, QuotaFit
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang
from muster.model.pod import Phase, Pod, PodSignature
from muster.model.queue import Queue, show_queue
from muster.model.resource_amounts import Resources, short_name, show_amount
from muster.model.topics import Topic, TopicKey
from muster.state.derived_values import Derived
from muster.state.facts import Member
from muster.state.ledger import LedgerRows
from muster.state.node_table import BoolColumn
from muster.state.queue_tree import QUEUE_CLOSED
from muster.state.resource_columns import Amounts
from muster.state.world import World

if TYPE_CHECKING:
    from muster.engine.session import Session

QUEUE_LIMIT = "QueueLimit"
QUEUE_SHARE = "QueueShare"
QUOTA_MIN = "QuotaMin"
QUEUE_CODES = frozenset({QUEUE_LIMIT, QUEUE_SHARE, QUOTA_MIN})
"""Of refusals because a queue, or one above it, takes no more."""

NOT_COUNTED = ""
"""Names usage that does not count against an ask, because it may be evicted: not said."""

UNLIMITED = 2**61
"""More than any amount, and far enough from the largest integer to be added to."""

EVICTING_ACTIONS = frozenset({"preempt", "gang-preempt", "gang-reclaim", "job-preempt"})
"""Actions that can lower the usage of a full queue."""


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """At most so much in each queue: rows as in the ledger, UNLIMITED where nothing was configured."""

    rows: Amounts
    bound_name: str = "limit"
    code: str = QUEUE_LIMIT
    topics: tuple[TopicKey, ...] = ()
    """What can change the bounds, beside the queues themselves."""
    is_limited: bool = True
    """False where nothing is bounded at all."""


def queue_bounds(world: World, of: Callable[[Queue], Resources]) -> Amounts:
    """One row of bounds for each queue of the ledger."""
    ledger, position = world.ledger, world.columns.position
    for queue in world.facts.tree.nodes.values():
        world.columns.require(of(queue))
    rows = np.full((len(ledger), len(world.columns.names)), UNLIMITED, dtype=np.int64)
    for key, queue in world.facts.tree.nodes.items():
        row = ledger.row[key]
        for name, value in of(queue).items:
            rows[row, position[name]] = value
    return rows


BY_QUEUE = (Topic.QUEUES, Topic.LEDGER_LAYOUT)
"""What is worked out from the queues, row by row of the ledger, depends on these."""

_LIMITS: Derived[QueueBounds] = Derived("limits of queues", *BY_QUEUE)


def limits(world: World) -> QueueBounds:
    """The limits of all queues."""

    def build() -> QueueBounds:
        is_limited = any(queue.limit.items for queue in world.facts.tree.nodes.values())
        return QueueBounds(queue_bounds(world, lambda queue: queue.limit), is_limited=is_limited)

    return _LIMITS.of(world, build)


# -- may the gang enter at all? ----------------------------------------------------------------------------------------------------


def queue_accepts(world: World, gang: Gang) -> Verdict:
    """Every role's queue must exist, have its place in the tree, and be open to gangs that do not run yet."""
    for role in gang.roles:
        fault = world.facts.tree.fault(role.queue)
        if fault is None or (fault.code == QUEUE_CLOSED and world.placements.unplaced_members.get(gang.key, 0) < gang.size):
            continue
        return Verdict(ok=False, why=fault.why, code=fault.code, topics=(Topic.QUEUES.any,))
    return YES


# -- does the whole minimum fit? ---------------------------------------------------------------------------------------------------


def minimum_by_queue(s: Session, ask: Ask) -> dict[str, Amounts]:
    """What the minimum of an ask needs in each queue. Before there are pods, that is what the PodGroup says it needs."""
    if ask.purpose is Purpose.ENQUEUE:
        return {ask.gang.queue: s.world.columns.vector(ask.gang.min_resources)}
    return total_by_queue(s.world, ask.minimum)


def total_by_queue(world: World, pods: Iterable[Pod]) -> dict[str, Amounts]:
    total: dict[str, Amounts] = {}
    signature: PodSignature | None = None
    member: Member | None = None
    count = 0
    for pod in (*pods, None):
        if pod is not None and pod.signature is signature and world.facts.members[pod.uid] is member:
            count += 1
            continue
        if signature is not None and member is not None:
            amounts = count * world.columns.vector(signature.request)
            total[member.queue] = total[member.queue] + amounts if member.queue in total else amounts
        if pod is not None:
            signature, member, count = pod.signature, world.facts.members[pod.uid], 1
    return total


def admit(s: Session, ask: Ask, bound: QueueBounds) -> Verdict:
    """Does the whole minimum fit into its queues and all above them?"""
    if not bound.is_limited:
        return YES
    needed = s.minimum_by_queue(ask)
    if not needed:
        return YES
    if len(needed) == 1:
        ((queue, amounts),) = needed.items()
        rows, wanted = s.world.ledger.rows_up(queue), amounts[None, :]
    else:
        rows, wanted = _merge_rows(s.world, needed)
    return fits(s, bound, rows, _usage(s, ask, rows), wanted)


def _merge_rows(world: World, needed: dict[str, Amounts]) -> tuple[LedgerRows, Amounts]:
    """Rows of all queues concerned, and what is requested of each: a common ancestor is asked for the sum."""
    total: dict[int, Amounts] = {}
    for queue, amounts in needed.items():
        for row in world.ledger.rows_up(queue).tolist():
            total[row] = total[row] + amounts if row in total else amounts
    return np.array(list(total), dtype=np.intp), np.array(list(total.values()), dtype=np.int64)


def _usage(s: Session, ask: Ask, rows: LedgerRows) -> QueueUsage:
    ledger = s.world.ledger
    match ask.purpose:
        case Purpose.ALLOCATE:
            return QueueUsage((("used", ledger.peak_in(rows)),), has_releasing=True)
        case Purpose.NOMINATE:
            return QueueUsage((("used", ledger.planned_in(rows)),))
        case Purpose.EVICT:
            return QueueUsage(((NOT_COUNTED, np.zeros_like(s.inqueue_resources[rows])),))
        case Purpose.ENQUEUE:
            used, evicts = ledger.planned_in(rows), may_evict(s, ask.gang)
            counted = (NOT_COUNTED, 0 * used) if evicts and used.any() else ("used", used)
            return QueueUsage((counted, ("inqueue", s.inqueue_resources[rows])))


def may_evict(s: Session, gang: Gang) -> bool:
    """Could others be evicted for this gang? Then a full queue is no reason to refuse it."""
    return not gang.never_preempts and not EVICTING_ACTIONS.isdisjoint(s.policy.actions)


# -- do further pods like these fit? -----------------------------------------------------------------------------------------------


def quota_fit(s: Session, pod: Pod, bound: QueueBounds, *, count: int, phase: Phase) -> QuotaFit:
    """How many of `count` pods like this one fit into its queues, by the ledger as it is now."""
    if not bound.is_limited:
        return QuotaFit(count)
    world = s.world
    rows = world.ledger.rows_up(world.facts.members[pod.uid].queue)
    return fit_count(s, bound, rows, usage_for(s, pod, rows, phase=phase), world.request(pod), count=count)


def usage_for(s: Session, pod: Pod, rows: LedgerRows, *, phase: Phase) -> QueueUsage:
    """What counts against a pod that is to enter this phase. Its own nomination does not count against it."""
    ledger = s.world.ledger
    if phase is Phase.NOMINATED:
        return QueueUsage((("used", ledger.planned_in(rows)),))
    if s.world.phase(pod) is Phase.NOMINATED:
        return QueueUsage((("used", ledger.used_in(rows)),), has_releasing=True)
    return QueueUsage((("used", ledger.peak_in(rows)),), has_releasing=True)


# -- comparing, and saying so ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """What counts against an ask in some rows, in parts that have a name each."""

    parts: tuple[tuple[str, Amounts], ...]
    has_releasing: bool = False
    """Is what is being released part of it?"""

    @property
    def total(self) -> Amounts:
        total = self.parts[0][1]
        for _, amounts in self.parts[1:]:
            total = total + amounts
        return total


def fits(s: Session, bound: QueueBounds, rows: LedgerRows, usage: QueueUsage, wanted: Amounts) -> Verdict:
    """Do these rows take all that is wanted? `wanted` has one row for all of them, or one for each."""
    over = (usage.total + wanted > bound.rows.take(rows, axis=0)) & (wanted > 0)
    if not np.count_nonzero(over):
        return YES
    at = int(over.any(axis=1).argmax())
    need = wanted[at if len(wanted) > 1 else 0]
    verdict = _over_limit_verdict(s, bound, int(rows[at]), over[at], _usage_in_row(usage, at), need)
    return _with_releasing(s.world, verdict, int(rows[at]), over[at]) if usage.has_releasing else verdict


def fit_count(s: Session, bound: QueueBounds, rows: LedgerRows, usage: QueueUsage, need: Amounts, *, count: int) -> QuotaFit:
    """How many of `count` equal pods do these rows take?"""
    total, most = usage.total, bound.rows.take(rows, axis=0)
    if not np.count_nonzero((total + count * need > most) & (need > 0)):
        return QuotaFit(count)
    requested = np.flatnonzero(need)
    each = (most - total)[:, requested] // need[requested]
    fit = max(0, int(each.min()))
    at = int(each.min(axis=1).argmin())
    over = np.zeros(len(need), dtype=np.bool_)
    over[requested] = each[at] < count
    # The sentence is about those that do not fit: the others count as placed.
    (first, amounts), *others = _usage_in_row(usage, at)
    parts = [(first, amounts + fit * need), *others]
    verdict = _over_limit_verdict(s, bound, int(rows[at]), over, parts, (count - fit) * need)
    return QuotaFit(fit, _with_releasing(s.world, verdict, int(rows[at]), over) if usage.has_releasing else verdict)


_Parts = list[tuple[str, Amounts]]


def _usage_in_row(usage: QueueUsage, at: int) -> _Parts:
    return [(part, amounts[at]) for part, amounts in usage.parts]


def _over_limit_verdict(s: Session, bound: QueueBounds, row: int, over: BoolColumn, parts: _Parts, need: Amounts) -> Verdict:
    """The sentence with its numbers: `queue research: gpu 208 used + 48 requested > 224 limit`."""
    world, most = s.world, bound.rows[row]
    queue = world.ledger.names[row]
    said: list[str] = []
    for column in np.flatnonzero(over).tolist():
        name = world.columns.names[column]
        terms = [f"{show_amount(name, int(amounts[column]))} {part}" for part, amounts in parts[:1] if part]
        terms += [f"{show_amount(name, int(amounts[column]))} {part}" for part, amounts in parts[1:] if amounts[column]]
        terms.append(f"{show_amount(name, int(need[column]))} requested")
        said.append(f"{short_name(name)} {' + '.join(terms)} > {show_amount(name, int(most[column]))} {bound.bound_name}")
    curable = bool((need <= most)[over].all())
    why = f"{show_queue(queue)}: {', '.join(said)}"
    topics = (*(Topic.QUEUE_CAPACITY.of(key) for key in world.ledger.path(queue)[:-1]), *bound.topics)
    return Verdict(ok=False, why=why, code=bound.code, curable=curable, topics=topics)


def _with_releasing(world: World, verdict: Verdict, row: int, over: BoolColumn) -> Verdict:
    """With how much of the usage in the way is being released."""
    releasing = world.ledger.releasing(world.ledger.names[row])
    names = world.columns.names
    columns = np.flatnonzero(over & (releasing > 0)).tolist()
    parts = [f"{short_name(names[column])} {show_amount(names[column], int(releasing[column]))}" for column in columns]
    return replace(verdict, why=f"{verdict.why} ({', '.join(parts)} of it is being released)") if parts else verdict
