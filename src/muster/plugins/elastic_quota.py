"""ElasticQuota: a minimum that is a quota's own, a maximum that it may borrow up to, and whole jobs admitted within them.

Non-preemptible jobs stay within the minimum: what cannot be reclaimed is not lent. Preemptible jobs may borrow up to the maximum,
less what is reserved for the quota's own non-preemptible jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from muster.engine.fair_shares import SharesByQueue, prepare_shares, share_key
from muster.engine.hooks import Ask, Purpose, QuotaFit
from muster.engine.option_field import option
from muster.engine.quota import BY_QUEUE, QUOTA_MIN, UNLIMITED, QueueBounds, QueueUsage, fit_count, fits, queue_bounds
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang
from muster.model.pod import Phase, Pod
from muster.model.queue import PREEMPTIBLE_LABEL
from muster.model.resource_amounts import Resources, written
from muster.model.topics import Topic
from muster.plugins._runtime_quota import configured_resources, max_rows, min_rows, runtime_quotas, shareable_total
from muster.state.derived_values import Derived
from muster.state.facts import Member
from muster.state.ledger import LedgerRows
from muster.state.resource_columns import Amounts

MIXED_PREEMPTIBLE = "MixedPreemptible"


@dataclass(frozen=True)
class ElasticQuotas:
    """Jobs in ElasticQuotas are admitted whole: non-preemptible ones within the minimum, preemptible ones up to the maximum.

    With `enableRuntimeQuota` the runtime replaces the maximum: what the quota may use now, following what all quotas request.
    Without it the first to come may borrow all that is idle. Quotas that use the smallest part of their minimum come first, and
    those that use all of it after them, the one first that uses the smallest part of its fair share.
    """

    enable_runtime_quota: bool = option(False, "Share what is idle by weight instead of first come, first served.")
    enable_min_quota_scale: bool = option(True, "Scale minimums down together where they do not fit into their parent.")
    enable_check_parent_quota: bool = option(False, "Check a job against the minimums and runtimes of the quota's ancestors, too.")
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
        prepare_shares(s)

    # -- order and shares ------------------------------------------------------------------------------------------------------

    def queue_key(self, s: Session, queue: str) -> tuple[int, float]:
        if not self.enable_queue_order:
            return (0, 0.0)
        return share_key(s, queue, _deserved(s).by_queue.get(queue, ()) if queue.startswith("quota/") else ())

    def deserved(self, s: Session) -> Amounts:
        return _deserved(s).rows

    def configured_share(self, s: Session, queue: str) -> Resources:
        return s.world.facts.tree.node(queue).deserved

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
        if s.world.ledger.has_non_preemptible(queue) and not (verdict := _check_same_preemptible(s, ask.gang)).ok:
            return verdict
        evicts = ask.purpose is Purpose.EVICT
        for bounds, rows, usage in self._checks(s, queue, s.world.facts.members[ask.pods[0].uid], now=now, evicts=evicts):
            verdict = fits(s, bounds, rows, usage, need[None, :])
            if not verdict.ok or evicts:
                return verdict
        return YES

    def quota_fit(self, s: Session, pod: Pod, *, count: int, phase: Phase) -> QuotaFit:
        member = s.world.facts.members[pod.uid]
        if not member.queue.startswith("quota/"):
            return QuotaFit(count)
        now: bool | None = phase is not Phase.NOMINATED
        if now and s.world.phase(pod) is Phase.NOMINATED:
            now = None
        need, checks = s.world.request(pod), self._checks(s, member.queue, member, now=now)
        found = [fit_count(s, bounds, rows, usage, need, count=count) for bounds, rows, usage in checks]
        return min(found, key=lambda quota_fit: quota_fit.fit_count)

    def _checks(
        self, s: Session, queue: str, member: Member, *, now: bool | None, evicts: bool = False
    ) -> Iterator[tuple[QueueBounds, LedgerRows, QueueUsage]]:
        """What a member's request is compared with: non-preemptible ones with the minimum first, all with the runtime, or the
        maximum. A job that may evict need not fit beside the preemptible pods below the quota's ancestors: others may be
        evicted."""
        rows = s.world.ledger.rows_up(queue)
        if not self.enable_check_parent_quota:
            rows = rows[:1]
        if member.preemptible:
            bounding = rows[:1] if evicts else rows
            kept_min = _kept_min(s, queue, rows, now=now)
            usage = _used_and_kept_min(_usage(s, bounding, now=now), kept_min)
            yield self._max_bounds(s), bounding, replace(usage, has_releasing=now is not False)
            return
        fixed = np.stack([_non_preemptible_usage(s, s.world.ledger.names[row], now=now) for row in rows.tolist()])
        min_bounds = QueueBounds(min_rows(s), bound_name="min", code=QUOTA_MIN)
        yield min_bounds, rows, QueueUsage((("used by non-preemptible pods", fixed),))
        yield self._max_bounds(s), rows, QueueUsage((("used", _usage(s, rows, now=now)),), has_releasing=now is not False)

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
_DESERVED: Derived[SharesByQueue] = Derived("shares of quotas", *BY_QUEUE)


def _deserved(s: Session) -> SharesByQueue:
    """The minimum of each quota that has one, and what queues are deserved."""
    return _DESERVED.of(s.world, lambda: SharesByQueue.of(s, _compute_deserved(s)))


def _compute_deserved(s: Session) -> Amounts:
    found = queue_bounds(s.world, lambda queue: queue.deserved)
    found[found == UNLIMITED] = 0
    return found


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


def _used_and_kept_min(used: Amounts, kept_min: Amounts | None) -> QueueUsage:
    """The usage in some rows, the quota's own first, and what the quota reserves for its own non-preemptible jobs."""
    if kept_min is None:
        return QueueUsage((("used", used),))
    own = np.zeros_like(used)
    own[0] = kept_min
    return QueueUsage((("used", used), ("reserved for non-preemptible jobs", own)))


def _kept_min(s: Session, queue: str, rows: LedgerRows, *, now: bool | None) -> Amounts | None:
    """What a quota reserves for its own waiting non-preemptible jobs, up to its minimum. None where it has no such jobs."""
    if not s.world.ledger.has_non_preemptible(queue):
        return None
    requested = s.world.ledger.requested_part(queue, preemptible=False) - _never_admitted(s, queue, rows)
    least = min_rows(s)[s.world.ledger.row[queue]]
    reserved = np.where(least < UNLIMITED, np.minimum(least, requested), 0)
    kept: Amounts = np.maximum(reserved - _non_preemptible_usage(s, queue, now=now), 0)
    return kept


_NEVER_ADMITTED: Derived[Amounts] = Derived("requests of jobs that a quota can never admit", *BY_QUEUE, Topic.DEMAND)


def _never_admitted(s: Session, queue: str, rows: LedgerRows) -> Amounts:
    """What non-preemptible jobs request that would not fit into the quota, or an ancestor that is checked, even by themselves:
    nothing is reserved for them."""
    return _NEVER_ADMITTED.of(s.world, lambda: _sum_never_admitted(s, queue, rows), key=(queue, len(rows)))


def _sum_never_admitted(s: Session, queue: str, rows: LedgerRows) -> Amounts:
    world = s.world
    most = np.minimum(min_rows(s)[rows], max_rows(s)[rows]).min(axis=0)
    total: Amounts = np.zeros_like(most)
    for key in sorted(world.facts.gangs_in_queue.get(queue, ())):
        gang = world.facts.gangs[key]
        pods = [pod for pod in gang.pods() if _is_non_preemptible_in(s, pod, queue)]
        requests: Amounts = np.array([world.request(pod) for pod in pods], dtype=np.int64).reshape(len(pods), len(most))
        if bool((requests[: gang.min].sum(axis=0) > most).any()):
            total += requests.sum(axis=0)
    return total


def _is_non_preemptible_in(s: Session, pod: Pod, queue: str) -> bool:
    member = s.world.facts.members.get(pod.uid)
    return member is not None and member.queue == queue and not member.preemptible
