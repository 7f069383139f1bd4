"""Carries out the effects of a scheduler on the simulated cluster, one API write after the other, and returns what failed.

The order of writes is that of `kube.write.write_order`, the same as in production. Nothing is written that is there already. All
status updates of one object go there in one patch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from muster.kube.read.object_references import ApiObjectRef, Manifest, ManifestView, pod_ref
from muster.kube.read.pod_index import PodIndex
from muster.kube.write import patch_bodies, patch_builder
from muster.kube.write.merge_patch import joined, merged
from muster.kube.write.patch_builder import UpdatesByKey
from muster.kube.write.write_order import PodWrite, WriteStep, order_writes, steps_of
from muster.model.effects import Bind, Effect, Evict, Nominate, PodEffect, Reserve
from muster.model.events import BindFailed, Event, EvictFailed, ReservationFailed
from muster.sim import volume_controller
from muster.sim.disruption_budgets import DisruptionBudgets
from muster.sim.fault_injection import BindFaultInjector
from muster.sim.object_store import ObjectStore
from muster.sim.virtual_clock import VirtualClock


class Write(NamedTuple):
    """One write by the scheduler. The verb is bind, patch, delete or evict; the name has its namespace in front."""

    verb: str
    kind: str
    name: str


class EffectExecutor:
    def __init__(
        self, store: ObjectStore, clock: VirtualClock, index: PodIndex, budgets: DisruptionBudgets, faults: BindFaultInjector
    ) -> None:
        self.writes: list[Write] = []
        self._store = store
        self._clock = clock
        self._index = index
        self._budgets = budgets
        self._faults = faults
        self._injected_failures: dict[tuple[str, str], int] = {}
        self._write_limit: int | None = None
        self._pending_status: dict[ApiObjectRef, UpdatesByKey] = {}

    def fail_next(self, verb: str, pod: str, *, times: int) -> None:
        """The next `times` effects of this verb (bind or evict) on the pod fail."""
        self._injected_failures[verb, pod] = times

    def execute(self, effects: Iterable[Effect], *, max_writes: int | None) -> list[Event]:
        """What failed. `max_writes`: that many writes, then nothing more, as if the scheduler died."""
        self._write_limit = None if max_writes is None else len(self.writes) + max_writes
        batch = order_writes(effects, gang_pods=self._index.gang_pods)
        self._pending_status = {}
        patch_builder.add_updates(self._pending_status, batch.status_writes)
        failed: list[Event] = []
        try:
            unreserved: set[str] = set()
            for pod_write in (pod_write for stage in batch.stages for pod_write in stage):
                failure = self._write_effect(pod_write, unreserved)
                if failure is not None:
                    failed.append(failure)
            self._write_status()
        except _WriteLimitReached:
            pass
        return failed

    def _write_effect(self, pod_write: PodWrite, unreserved: set[str]) -> Event | None:
        """`unreserved` are the UIDs of pods whose reservation could not be written."""
        effect, after = pod_write
        match effect:
            case Bind():
                why = self._bind(effect)
                return BindFailed(effect.uid, effect.node, why) if why else None
            case Evict():
                missing = sum(uid in unreserved for uid in after)
                if missing:
                    return EvictFailed(effect.uid, patch_builder.incomplete_plan(effect, missing=missing, reservations=len(after)))
                return self._evict(effect)
            case Reserve() | Nominate():
                why = patch_builder.reservation_refusal(effect, self._store)
                if why:
                    unreserved.add(effect.uid)
                    return ReservationFailed(effect.uid, effect.node, effect.since, why)
        self._patch_pod(effect)
        return None

    # -- pods ------------------------------------------------------------------------------------------------------------------

    def _bind(self, effect: Bind) -> str:
        """Why the pod could not be bound, or nothing."""
        why = ""
        for step in steps_of(effect):
            if step is WriteStep.CLEAR_RESERVATION:
                if patch_builder.check_bind(effect, self._store).bound:
                    self._patch_pod(effect)
            elif not why:
                why = self._assign_volumes(effect) if step is WriteStep.VOLUMES else self._post_binding(effect)
        return why

    def _assign_volumes(self, effect: Bind) -> str:
        """Write which volumes the waiting claims of the pod get; why that is not possible, or nothing."""
        check = patch_builder.check_bind(effect, self._store)
        if check.bound or check.why:
            return check.why
        for choice in effect.volumes:
            if patch_builder.is_claim_bound(choice, self._store):
                continue
            why = patch_builder.volume_conflict(choice, self._store)
            if why:
                return why
            self._patch(*patch_builder.volume_write(choice, node=effect.node))
            volume_controller.bind(self._store, choice)
        return ""

    def _post_binding(self, effect: Bind) -> str:
        check = patch_builder.check_bind(effect, self._store)
        if check.bound or check.why:
            return check.why
        why = self._injected_failure("bind", effect.pod) or self._faults.bind_error(effect.pod)
        if why:
            return why
        ref = pod_ref(effect.pod)
        self._record_write("bind", ref)
        self._store.patch(ref, self._bound_pod_patch(effect, self._store.peek(ref)))
        return ""

    def _bound_pod_patch(self, effect: Bind, pod: ManifestView | None) -> Manifest:
        """What the API server makes of a binding."""
        bound = patch_bodies.conditions_patch([_POD_SCHEDULED_TRUE], present=patch_builder.conditions(pod), now=self._clock.now)
        status = {**bound.get("status", {}), "nominatedNodeName": None}
        annotations = patch_bodies.binding(effect, now=self._clock.now)["metadata"].get("annotations")
        metadata = {"metadata": {"annotations": annotations}} if annotations else {}
        return {"spec": {"nodeName": effect.node}, "status": status, **metadata}

    def _evict(self, effect: Evict) -> EvictFailed | None:
        pod = patch_builder.current_pod(effect, self._store)
        if pod is None or patch_builder.is_terminating(pod):
            return None
        why = self._injected_failure("evict", effect.pod)
        if why:
            return EvictFailed(effect.uid, why)
        for step in steps_of(effect):
            failure = self._eviction_step(step, effect, pod)
            if failure is not None:
                return failure
        return None

    def _eviction_step(self, step: WriteStep, effect: Evict, pod: ManifestView) -> EvictFailed | None:
        ref = pod_ref(effect.pod)
        if step is WriteStep.PATCH:
            self._patch_pod(effect)
        elif step is WriteStep.DISRUPTION_CONDITION:
            self._patch(ref, patch_builder.disruption_patch(effect, pod, now=self._clock.now))
        else:
            refusal = self._budgets.eviction_refusal(ref, pod) if step is WriteStep.EVICTION else None
            if refusal is not None:
                return EvictFailed(effect.uid, refusal.why, refusal.budget_name)
            self._record_write(effect.method, ref)
            self._store.delete(ref, uid=effect.uid)
        return None

    def _injected_failure(self, verb: str, pod: str) -> str:
        left = self._injected_failures.get((verb, pod), 0)
        self._injected_failures[verb, pod] = max(0, left - 1)
        return f"the API server refused to {verb} pod {pod}" if left else ""

    # -- patches ---------------------------------------------------------------------------------------------------------------

    def _patch_pod(self, effect: PodEffect) -> None:
        """In one patch with the status updates of the pod."""
        pod = patch_builder.current_pod(effect, self._store)
        patch = None if pod is None else patch_builder.pod_patch(effect, pod, now=self._clock.now)
        if pod is None or patch is None:
            return
        patched, ref = merged(pod, patch), pod_ref(effect.pod)
        if patched is not pod:
            updates = patch_builder.updates_patch(self._pending_status.get(ref, {}), patched, now=self._clock.now)
            self._patch(ref, joined(patch, updates or {}))

    def _write_status(self) -> None:
        for ref, updates in self._pending_status.items():
            present = self._store.peek(ref)
            patch = None if present is None else patch_builder.updates_patch(updates, present, now=self._clock.now)
            if patch is not None:
                self._patch(ref, patch)

    def _patch(self, ref: ApiObjectRef, patch: Manifest) -> None:
        if self._store.would_change(ref, patch):
            self._record_write("patch", ref)
            self._store.patch(ref, patch)

    def _record_write(self, verb: str, ref: ApiObjectRef) -> None:
        if self._write_limit is not None and len(self.writes) >= self._write_limit:
            raise _WriteLimitReached
        self.writes.append(Write(verb, ref.kind, ref.full_name))


class _WriteLimitReached(Exception):
    """The scheduler died before this write."""


_POD_SCHEDULED_TRUE = {"type": patch_bodies.POD_SCHEDULED, "status": patch_bodies.STATUS_TRUE}
