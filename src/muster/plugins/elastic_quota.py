"""ElasticQuota: a minimum that is a quota's own, a maximum that it may borrow up to, and whole jobs admitted within them.

Non-preemptible jobs stay within the minimum: what cannot be taken back is not lent. Preemptible jobs may borrow up to the maximum,
less what is kept for the quota's own non-preemptible jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.hooks import Ask, Purpose, Room
from muster.engine.quota import BY_QUEUE, UNLIMITED, Bounds, Standing, fits, fits_easily, seats
from muster.engine.session import Session
from muster.engine.shares import beyond
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang
from muster.model.pod import Phase, Pod
from muster.model.queue import PREEMPTIBLE_LABEL
from muster.model.resources import Resources, written
from muster.model.topics import Topic
from muster.plugins._options import option
from muster.plugins._runtime import configures, maximums, minimums, quota_total, runtimes
from muster.state.columns import Amounts
from muster.state.derived import Derived
from muster.state.ledger import Rows

QUOTA_MIN = "QuotaMin"
MIXED = "MixedPreemptible"


@dataclass(frozen=True)
class ElasticQuota:
    """Jobs in ElasticQuotas are admitted whole: non-preemptible ones within the minimum, preemptible ones up to the maximum.

    With `enableRuntimeQuota` the maximum gives way to the runtime: what the quota may use now, following what all quotas ask for.
    Without it whoever comes first may borrow all that is idle. Quotas that use the smallest part of their minimum go first.
    """

    enable_runtime_quota: bool = option(False, "Share what is idle by weight instead of leaving it to whoever comes first.")
    enable_min_quota_scale: bool = option(True, "Scale minimums down together where they do not fit into their parent.")
    enable_check_parent_quota: bool = option(False, "Hold a job to the runtimes of the quota's ancestors, too.")
    enable_queue_order: bool = option(True, "Order quotas by how much of their minimum they use; otherwise gangs go by priority.")
    disable_default_preemptiable: bool = option(False, f"Pods without the label {PREEMPTIBLE_LABEL} are not preemptible.")
    disable_default_preemptible: bool = option(False, "The same, in the usual spelling.")
    disable_default_trigger_preemption: bool = option(False, "Only jobs labelled can-preempt may cause evictions.")
    pod_should_be_deleted_when_preempted: bool = option(True, "Delete victims; otherwise they are marked, and somebody else does.")
    name: str = "elastic_quota"

    @property
    def preemptible_by_default(self) -> bool:
        return not (self.disable_default_preemptiable or self.disable_default_preemptible)

    def prepare(self, s: Session) -> None:
        quota_total(s)

    # -- order and shares ------------------------------------------------------------------------------------------------------

    def queue_key(self, s: Session, queue: str) -> tuple[float, int]:
        if not self.enable_queue_order:
            return (0.0, 0)
        deserved = _in_use(s).get(queue)
        if not deserved:
            return (1.0, 1)
        taken, share = s.world.ledger.taken_list(queue), 0.0
        for column, value in deserved:
            part = taken[column] / value
            share = part if part > share else share
        return (share, 0)

    def deserved(self, s: Session, queue: str) -> Resources:
        node = s.world.facts.tree.nodes.get(queue)
        if node is None:
            return Resources()
        return Resources(tuple((name, value) for name, value in node.deserved.items if value))

    def over_share(self, s: Session, queue: str) -> Resources:
        return beyond(s, queue, self.deserved(s, queue))

    # -- admission -------------------------------------------------------------------------------------------------------------

    def admit(self, s: Session, ask: Ask) -> Verdict:
        if ask.purpose is Purpose.ENQUEUE:
            return YES
        for queue, need in s.needs(ask).items():
            if queue.startswith("quota/"):
                verdict = self._admit_to(s, queue, need, ask)
                if not verdict.ok:
                    return verdict
        return YES

    def _admit_to(self, s: Session, queue: str, need: Amounts, ask: Ask) -> Verdict:
        """One quota, the whole job. A job that may yet evict need not fit beside the preemptible ones of its own quota."""
        now = ask.purpose is Purpose.ALLOCATE
        if not s.world.ledger.has_fixed(queue):
            if now and fits_easily(s, self._most(s), queue, need, own=not self.enable_check_parent_quota):
                return YES
        elif not (verdict := _agree(s, ask.gang)).ok:
            return verdict
        row, up = self._rows(s, queue)
        if s.world.facts.members[ask.pods[0].uid].preemptible:
            return fits(s, self._most(s), up, _with_kept(s, queue, up, now=now), need[None, :])
        verdict = fits(s, _least(s), row, _non_preemptible(s, queue, now=now), need[None, :])
        if not verdict.ok or ask.purpose is Purpose.EVICT:
            return verdict
        return fits(s, self._most(s), up, Standing((("used", _figures(s, up, now=now)),)), need[None, :])

    def quota_room(self, s: Session, pod: Pod, *, count: int, phase: Phase) -> Room:
        member = s.world.facts.members[pod.uid]
        if not member.queue.startswith("quota/"):
            return Room(count)
        now: bool | None = phase is not Phase.NOMINATED
        if now and s.world.phase(pod) is Phase.NOMINATED:
            now = None
        row, up = self._rows(s, member.queue)
        need = s.world.request(pod)
        if member.preemptible:
            return seats(s, self._most(s), up, _with_kept(s, member.queue, up, now=now), need, count=count)
        own = seats(s, _least(s), row, _non_preemptible(s, member.queue, now=now), need, count=count)
        all_of_it = seats(s, self._most(s), up, Standing((("used", _figures(s, up, now=now)),)), need, count=count)
        return min(own, all_of_it, key=lambda room: room.seats)

    def _rows(self, s: Session, queue: str) -> tuple[Rows, Rows]:
        """The quota's own row, and the rows that its runtime is compared at."""
        up = s.world.ledger.rows_up(queue)
        return up[:1], up if self.enable_check_parent_quota else up[:1]

    def _most(self, s: Session) -> Bounds:
        """The runtimes, or where they are off the maximums: those hold at every level anyway."""
        return _BOUNDS.of(s.world, lambda: self._bounds(s), key=self)

    def _bounds(self, s: Session) -> Bounds:
        if not self.enable_runtime_quota:
            return Bounds(maximums(s), word="max")
        runtime = runtimes(s, scale=self.enable_min_quota_scale).runtime
        return Bounds(runtime, word="runtime", topics=(Topic.DEMAND.any, Topic.FREE_CAPACITY.any))

    # -- status ------------------------------------------------------------------------------------------------------------------

    def queue_fields(self, s: Session, queue: str) -> tuple[tuple[str, str], ...]:
        """What Koordinator's scheduler writes onto a quota."""
        node = s.world.facts.tree.nodes[queue]
        if not node.is_quota:
            return ()
        ledger, position = s.world.ledger, s.world.columns.position
        found = runtimes(s, scale=self.enable_min_quota_scale)
        row = ledger.row[queue]
        runtime = found.runtime[row] if self.enable_runtime_quota else maximums(s)[row]
        figures = (
            ("runtime", runtime),
            ("request", found.request[row]),
            ("child-request", ledger.requested(queue)),
            ("non-preemptible-request", ledger.requested_part(queue, preemptible=False)),
            ("non-preemptible-used", ledger.used_part(queue, preemptible=False)),
        )
        fields = ((f"{word}.{name}", name, int(amounts[position[name]])) for word, amounts in figures for name in configures(node))
        return tuple(sorted((key, written(name, value)) for key, name, value in fields if value < UNLIMITED))


_BOUNDS: Derived[Bounds] = Derived("bounds of quotas", Topic.CYCLE)
_SHARES_OF: Derived[dict[str, tuple[tuple[int, int], ...]]] = Derived("shares of quotas", *BY_QUEUE)


def _in_use(s: Session) -> dict[str, tuple[tuple[int, int], ...]]:
    return _SHARES_OF.of(s.world, lambda: _shares(s))


def _shares(s: Session) -> dict[str, tuple[tuple[int, int], ...]]:
    """The minimum of each quota that has one, by column."""
    position = s.world.columns.position
    return {
        key: tuple((position[name], value) for name, value in node.deserved.items if value)
        for key, node in s.world.facts.tree.nodes.items()
        if node.is_quota
    }


def _agree(s: Session, gang: Gang) -> Verdict:
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
    return Verdict(ok=False, why=why, code=MIXED)


def _least(s: Session) -> Bounds:
    return Bounds(minimums(s), word="min", code=QUOTA_MIN)


def _figures(s: Session, rows: Rows, *, now: bool | None) -> Amounts:
    """What stands in these rows: now or soon, whichever is more; soon only (False); or now only (None), for who has a promise."""
    ledger = s.world.ledger
    if now is None:
        return ledger.used_in(rows)
    return ledger.standing_in(rows) if now else ledger.taken_in(rows)


def _part(s: Session, queue: str, *, now: bool | None) -> Amounts:
    """What non-preemptible pods have of it."""
    ledger = s.world.ledger
    if now is None:
        return ledger.used_part(queue, preemptible=False)
    taken = ledger.taken_part(queue, preemptible=False)
    return np.maximum(taken, ledger.used_part(queue, preemptible=False)) if now else taken


def _non_preemptible(s: Session, queue: str, *, now: bool | None) -> Standing:
    return Standing((("used by non-preemptible pods", _part(s, queue, now=now)[None, :]),))


def _with_kept(s: Session, queue: str, rows: Rows, *, now: bool | None) -> Standing:
    """What stands in the rows, and what the quota keeps for its own non-preemptible jobs that wait: up to its minimum."""
    used = _figures(s, rows, now=now)
    if not s.world.ledger.has_fixed(queue):
        return Standing((("used", used),))
    asked = s.world.ledger.requested_part(queue, preemptible=False)
    least = minimums(s)[s.world.ledger.row[queue]]
    own = np.zeros_like(used)
    own[0] = np.maximum(np.where(least < UNLIMITED, np.minimum(least, asked), 0) - _part(s, queue, now=now), 0)
    return Standing((("used", used), ("kept for non-preemptible jobs", own)))
