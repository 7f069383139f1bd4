"""Carries out what a scheduler decided, one API write after the other, and says what failed.

What is written where, the scribe says; here it is done at once. Nothing is written that is there already. All that one round says
of an object goes there in one patch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from muster.kube.read.object_references import ApiObjectRef, Manifest, pod_ref
from muster.kube.read.pod_index import PodIndex
from muster.kube.write import patch_bodies, patch_builder
from muster.kube.write.merge_patch import joined, merged
from muster.model.effects import (
    Bind,
    CancelEviction,
    Condition,
    Effect,
    Evict,
    Nominate,
    PodEffect,
    PodGroupStatus,
    QueueStatus,
    Release,
    Reserve,
    StatusEffect,
)
from muster.model.events import BindFailed, Event, EvictFailed
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
        self._pending_patches: dict[ApiObjectRef, Manifest] = {}
        """Patches of this round that were not sent yet, one for each object."""

    def fail_next(self, verb: str, pod: str, *, times: int) -> None:
        """The next `times` deeds of this verb (bind or evict) on the pod fail."""
        self._injected_failures[verb, pod] = times

    def execute(self, effects: Iterable[Effect], *, max_writes: int | None) -> list[Event]:
        """What failed. Evictions come last: nobody is told to go before all claims on the room are written down.

        `max_writes`: that many writes, then nothing more, as if the scheduler died.
        """
        self._write_limit = None if max_writes is None else len(self.writes) + max_writes
        in_order = sorted(effects, key=lambda effect: isinstance(effect, Evict))
        evictions = sum(isinstance(effect, Evict) for effect in in_order)
        failed: list[Event] = []
        try:
            for some in (in_order[: len(in_order) - evictions], in_order[len(in_order) - evictions :]):
                failed.extend(failure for effect in some if (failure := self._execute_one(effect)) is not None)
                self._flush()
        except _WriteLimitReached:
            self._pending_patches = {}
        return failed

    def _execute_one(self, effect: Effect) -> Event | None:
        match effect:
            case Bind():
                why = self._bind(effect)
                return BindFailed(effect.uid, effect.node, why) if why else None
            case CancelEviction() | Release():
                self._patch_pod(effect)
                # Who may stay is told before the claim ends that says who was to go. And a claim ends before others are bound to
                # the room: one that outlives its room would be in their way after a crash.
                self._flush(pod_ref(effect.pod))
            case Reserve() | Nominate():
                self._patch_pod(effect)
            case Evict():
                return self._evict(effect)
            case Condition() | PodGroupStatus() | QueueStatus():
                self._write_status(effect)
        return None

    # -- pods ------------------------------------------------------------------------------------------------------------------

    def _bind(self, effect: Bind) -> str:
        """Why the pod could not be bound, or nothing."""
        seen = patch_builder.check_bind(effect, self._store)
        if seen.bound:
            self._patch_pod(effect)
        if seen.bound or seen.why:
            return seen.why
        why = self._injected_failure("bind", effect.pod) or self._faults.bind_error(effect.pod) or self._choose_volumes(effect)
        if why:
            return why
        ref = pod_ref(effect.pod)
        self._record_write("bind", ref)
        bound = patch_bodies.conditions_patch(
            [_POD_SCHEDULED_TRUE], present=patch_builder.conditions(self._store.peek(ref)), now=self._clock.now
        )
        status = {**bound.get("status", {}), "nominatedNodeName": None}
        annotations = patch_bodies.binding(effect, now=self._clock.now)["metadata"].get("annotations")
        noted = {"metadata": {"annotations": annotations}} if annotations else {}
        self._store.patch(ref, {"spec": {"nodeName": effect.node}, "status": status, **noted})
        self._patch_pod(effect)
        return ""

    def _choose_volumes(self, effect: Bind) -> str:
        """Write down which volumes the pod's waiting claims get; why that cannot be, or nothing."""
        for choice in effect.volumes:
            why = patch_builder.volume_conflict(choice, self._store)
            if why:
                return why
            ref, patch = patch_builder.volume_write(choice, node=effect.node)
            self._add_patch(ref, patch)
            # Before the bind: after a crash a pod that is bound must not find its volume given to another.
            self._flush(ref)
            volume_controller.bind(self._store, choice)
        return ""

    def _evict(self, effect: Evict) -> EvictFailed | None:
        ref, pod = pod_ref(effect.pod), patch_builder.current_pod(effect, self._store)
        if pod is None or patch_builder.is_terminating(pod):
            return None
        why = self._injected_failure("evict", effect.pod)
        if why:
            return EvictFailed(effect.uid, why)
        if effect.method == "soft":
            self._patch_pod(effect)
            return None
        eviction_refusal = self._budgets.eviction_refusal(ref, pod) if effect.method == "evict" else None
        if eviction_refusal is not None:
            return EvictFailed(effect.uid, eviction_refusal.why, eviction_refusal.budget_name)
        self._record_write(effect.method, ref)
        self._store.delete(ref, uid=effect.uid)
        return None

    def _patch_pod(self, effect: PodEffect) -> None:
        pod = patch_builder.current_pod(effect, self._store)
        patch = None if pod is None else patch_builder.pod_patch(effect, pod, now=self._clock.now)
        if patch is not None:
            self._add_patch(pod_ref(effect.pod), patch)

    def _injected_failure(self, verb: str, pod: str) -> str:
        left = self._injected_failures.get((verb, pod), 0)
        self._injected_failures[verb, pod] = max(0, left - 1)
        return f"the API server refused to {verb} pod {pod}" if left else ""

    # -- words -----------------------------------------------------------------------------------------------------------------

    def _write_status(self, word: StatusEffect) -> None:
        for status_write in patch_builder.status_writes(word, gang_pods=self._index.gang_pods):
            found = self._store.peek(status_write.ref)
            if found is None:
                continue
            # As it will be once all that was noted down is sent.
            present = merged(found, self._pending_patches.get(status_write.ref, {}))
            patch = patch_builder.status_patch(status_write, present, now=self._clock.now)
            if patch is not None:
                self._add_patch(status_write.ref, patch)

    # -- writing ---------------------------------------------------------------------------------------------------------------

    def _add_patch(self, ref: ApiObjectRef, patch: Manifest) -> None:
        self._pending_patches[ref] = joined(self._pending_patches.get(ref, {}), patch)

    def _flush(self, *only: ApiObjectRef) -> None:
        """One write for each object of which something new was said, in the order in which they were first spoken of."""
        for ref in only or list(self._pending_patches):
            patch = self._pending_patches.pop(ref, {})
            if self._store.peek(ref) is not None and self._store.would_change(ref, patch):
                self._record_write("patch", ref)
                self._store.patch(ref, patch)

    def _record_write(self, verb: str, ref: ApiObjectRef) -> None:
        if self._write_limit is not None and len(self.writes) >= self._write_limit:
            raise _WriteLimitReached
        self.writes.append(Write(verb, ref.kind, ref.full_name))


class _WriteLimitReached(Exception):
    """The scheduler died before this write."""


_POD_SCHEDULED_TRUE = {"type": patch_bodies.POD_SCHEDULED, "status": patch_bodies.STATUS_TRUE}
