"""ElasticQuota: a minimum that is a quota's own, a maximum that it may borrow up to, and whole jobs admitted within them.

Non-preemptible jobs stay within the minimum: what cannot be reclaimed is not lent. Preemptible jobs may borrow up to the maximum,
less what is reserved for the quota's own non-preemptible jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.hooks import Ask, Purpose, QuotaFit
from muster.engine.quota import BY_QUEUE, UNLIMITED, QueueBounds, QueueUsage, fit_count, fits, fits_fast
from muster.engine.session import Session
from muster.engine.shares import over_deserved
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang
from muster.model.pod import Phase, Pod
from muster.model.queue import PREEMPTIBLE_LABEL
from muster.model.resource_amounts import Resources, written
from muster.model.topics import Topic
from muster.plugins._option_field import option
from muster.plugins._runtime_quota import configured_resources, max_rows, min_rows, runtime_quotas, shareable_total
from muster.state.derived_values import Derived
from muster.state.ledger import LedgerRows
from muster.state.resource_columns import Amounts

QUOTA_MIN = "QuotaMin"
MIXED_PREEMPTIBLE = "MixedPreemptible"


@dataclass(frozen=True)
class ElasticQuotas:
    """Jobs in ElasticQuotas are admitted whole: non-preemptible ones within the minimum, preemptible ones up to the maximum.

    With `enableRuntimeQuota` the runtime replaces the maximum: what the quota may use now, following what all quotas request.
    Without it the first to come may borrow all that is idle. Quotas that use the smallest part of their minimum come first.
    """

    enable_runtime_quota: bool = option(False, "Share what is idle by weight instead of first come, first served.")
    enable_min_quota_scale: bool = option(True, "Scale minimums down together where they do not fit into their parent.")
    enable_check_parent_quota: bool = option(False, "Check a job against the runtimes of the quota's ancestors, too.")
    enable_queue_order: bool = option(
        True, "Order quotas by how much of their minimum they use; otherwise gangs are ordered by priority."
    )
    disable_default_preemptiable: bool = option(False, f"Pods without the label {PREEMPTIBLE_LABEL} are not preemptible.")
    disable_default_preemptible: bool = option(False, "The same, in the usual spelling.")
    disable_default_trigger_preemption: bool = option(False, "Only jobs labelled can-preempt may cause evictions.")
    pod_should_be_deleted_when_preempted: bool = option(
        True, "Delete victims; otherwise they are marked for soft eviction, and another controller deletes them."
    )
    name: str = "elastic-quota"

    @property
    def preemptible_by_default(self) -> bool:
        return not (self.disable_default_preemptiable or self.disable_default_preemptible)

    def prepare(self, s: Session) -> None:
        shareable_total(s)

    # -- order and shares ------------------------------------------------------------------------------------------------------

    def queue_key(self, s: Session, queue: str) -> tuple[float, int]:
        if not self.enable_queue_order:
            return (0.0, 0)
        deserved = _min_by_column(s).get(queue)
        if not deserved:
            return (1.0, 1)
        planned, share = s.world.ledger.planned_list(queue), 0.0
        for column, value in deserved:
            part = planned[column] / value
            share = part if part > share else share
        return (share, 0)

    def deserved(self, s: Session, queue: str) -> Resources:
        node = s.world.facts.tree.nodes.get(queue)
        if node is None:
            return Resources()
        return Resources(tuple((name, value) for name, value in node.deserved.items if value))

    def over_share(self, s: Session, queue: str) -> Resources:
        return over_deserved(s, queue, self.deserved(s, queue))

    # -- admission -------------------------------------------------------------------------------------------------------------

    def admit(self, s: Session, ask: Ask) -> Verdict:
        if ask.purpose is Purpose.ENQUEUE:
            return YES
        for queue, need in s.minimum_by_queue(ask).items():
            if queue.startswith("quota/"):
                verdict = self._admit_to_quota(s, queue, need, ask)
                if not verdict.ok:
                    return verdict
        return YES

    def _admit_to_quota(self, s: Session, queue: str, need: Amounts, ask: Ask) -> Verdict:
        """One quota, the whole job. A job that may evict need not fit beside the preemptible ones of its own quota."""
        now = ask.purpose is Purpose.ALLOCATE
        if not s.world.ledger.has_non_preemptible(queue):
            if now and fits_fast(s, self._max_bounds(s), queue, need, own=not self.enable_check_parent_quota):
                return YES
        elif not (verdict := _check_same_preemptible(s, ask.gang)).ok:
            return verdict
        row, up = self._ledger_rows(s, queue)
        if s.world.facts.members[ask.pods[0].uid].preemptible:
            return fits(s, self._max_bounds(s), up, _used_and_kept_min(s, queue, up, now=now), need[None, :])
        verdict = fits(s, _min_bounds(s), row, _non_preemptible_used(s, queue, now=now), need[None, :])
        if not verdict.ok or ask.purpose is Purpose.EVICT:
            return verdict
        return fits(s, self._max_bounds(s), up, QueueUsage((("used", _usage(s, up, now=now)),)), need[None, :])

    def quota_fit(self, s: Session, pod: Pod, *, count: int, phase: Phase) -> QuotaFit:
        member = s.world.facts.members[pod.uid]
        if not member.queue.startswith("quota/"):
            return QuotaFit(count)
        now: bool | None = phase is not Phase.NOMINATED
        if now and s.world.phase(pod) is Phase.NOMINATED:
            now = None
        row, up = self._ledger_rows(s, member.queue)
        need = s.world.request(pod)
        if member.preemptible:
            return fit_count(s, self._max_bounds(s), up, _used_and_kept_min(s, member.queue, up, now=now), need, count=count)
        own = fit_count(s, _min_bounds(s), row, _non_preemptible_used(s, member.queue, now=now), need, count=count)
        all_of_it = fit_count(s, self._max_bounds(s), up, QueueUsage((("used", _usage(s, up, now=now)),)), need, count=count)
        return min(own, all_of_it, key=lambda quota_fit: quota_fit.fit_count)

    def _ledger_rows(self, s: Session, queue: str) -> tuple[LedgerRows, LedgerRows]:
        """The quota's own row, and the rows that its runtime is compared at."""
        up = s.world.ledger.rows_up(queue)
        return up[:1], up if self.enable_check_parent_quota else up[:1]

    def _max_bounds(self, s: Session) -> QueueBounds:
        """The runtimes, or where they are off the maximums: those hold at every level anyway."""
        return _BOUNDS.of(s.world, lambda: self._compute_max_bounds(s), key=self)

    def _compute_max_bounds(self, s: Session) -> QueueBounds:
        if not self.enable_runtime_quota:
            return QueueBounds(max_rows(s), bound_name="max")
        runtime = runtime_quotas(s, scale=self.enable_min_quota_scale).runtime
        return QueueBounds(runtime, bound_name="runtime", topics=(Topic.DEMAND.any, Topic.FREE_CAPACITY.any))

    # -- status ------------------------------------------------------------------------------------------------------------------

    def queue_fields(self, s: Session, queue: str) -> tuple[tuple[str, str], ...]:
        """What Koordinator's scheduler writes onto a quota."""
        node = s.world.facts.tree.nodes[queue]
        if not node.is_quota:
            return ()
        ledger, position = s.world.ledger, s.world.columns.position
        found = runtime_quotas(s, scale=self.enable_min_quota_scale)
        row = ledger.row[queue]
        runtime = found.runtime[row] if self.enable_runtime_quota else max_rows(s)[row]
        amounts_by_field = (
            ("runtime", runtime),
            ("request", found.request[row]),
            ("child-request", ledger.requested(queue)),
            ("non-preemptible-request", ledger.requested_part(queue, preemptible=False)),
            ("non-preemptible-used", ledger.used_part(queue, preemptible=False)),
        )
        fields = (
            (f"{field}.{name}", name, int(amounts[position[name]]))
            for field, amounts in amounts_by_field
            for name in configured_resources(node)
        )
        return tuple(sorted((key, written(name, value)) for key, name, value in fields if value < UNLIMITED))


_BOUNDS: Derived[QueueBounds] = Derived("bounds of quotas", Topic.CYCLE)
_SHARES_OF: Derived[dict[str, tuple[tuple[int, int], ...]]] = Derived("shares of quotas", *BY_QUEUE)


def _min_by_column(s: Session) -> dict[str, tuple[tuple[int, int], ...]]:
    return _SHARES_OF.of(s.world, lambda: _compute_min_by_column(s))


def _compute_min_by_column(s: Session) -> dict[str, tuple[tuple[int, int], ...]]:
    """The minimum of each quota that has one, by column."""
    position = s.world.columns.position
    return {
        key: tuple((position[name], value) for name, value in node.deserved.items if value)
        for key, node in s.world.facts.tree.nodes.items()
        if node.is_quota
    }


def _check_same_preemptible(s: Session, gang: Gang) -> Verdict:
    """All pods of a job are preemptible, or none is."""
    members = s.world.facts.members
    pods = gang.pods()
    preemptible = [pod for pod in pods if members[pod.uid].preemptible]
    if len(preemptible) in (0, len(pods)):
        return YES
    other = next(pod for pod in pods if not members[pod.uid].preemptible)
    are = "is" if len(preemptible) == 1 else "are"
    others = "the other is not" if len(pods) - len(preemptible) == 1 else "the others are not"
    why = (
        f"{len(preemptible)} of its {len(pods)} pods {are} preemptible and {others} "
        f"({preemptible[0].name} is, {other.name} is not): give all of them the same label {PREEMPTIBLE_LABEL}"
    )
    return Verdict(ok=False, why=why, code=MIXED_PREEMPTIBLE)


def _min_bounds(s: Session) -> QueueBounds:
    return QueueBounds(min_rows(s), bound_name="min", code=QUOTA_MIN)


def _usage(s: Session, rows: LedgerRows, *, now: bool | None) -> Amounts:
    """The usage in these rows: the larger of now and after releases (True), after releases (False), or now (None, if nominated)."""
    ledger = s.world.ledger
    if now is None:
        return ledger.used_in(rows)
    return ledger.peak_in(rows) if now else ledger.planned_in(rows)


def _non_preemptible_usage(s: Session, queue: str, *, now: bool | None) -> Amounts:
    """The usage of non-preemptible pods."""
    ledger = s.world.ledger
    if now is None:
        return ledger.used_part(queue, preemptible=False)
    planned = ledger.planned_part(queue, preemptible=False)
    return np.maximum(planned, ledger.used_part(queue, preemptible=False)) if now else planned


def _non_preemptible_used(s: Session, queue: str, *, now: bool | None) -> QueueUsage:
    return QueueUsage((("used by non-preemptible pods", _non_preemptible_usage(s, queue, now=now)[None, :]),))


def _used_and_kept_min(s: Session, queue: str, rows: LedgerRows, *, now: bool | None) -> QueueUsage:
    """The usage in the rows, and what the quota reserves for its own waiting non-preemptible jobs: up to its minimum."""
    used = _usage(s, rows, now=now)
    if not s.world.ledger.has_non_preemptible(queue):
        return QueueUsage((("used", used),))
    requested = s.world.ledger.requested_part(queue, preemptible=False)
    least = min_rows(s)[s.world.ledger.row[queue]]
    own = np.zeros_like(used)
    own[0] = np.maximum(np.where(least < UNLIMITED, np.minimum(least, requested), 0) - _non_preemptible_usage(s, queue, now=now), 0)
    return QueueUsage((("used", used), ("reserved for non-preemptible jobs", own)))
