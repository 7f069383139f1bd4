"""Carries out the effects of a scheduler on the simulated cluster, one API write after the other, and returns what failed.

The order of writes is that of `kube.write.write_order`, the same as in production. Nothing is written that is there already. All
status updates of one object go there in one patch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from muster.kube.read import names
from muster.kube.read.object_references import VOLUME, VOLUME_CLAIM, ApiObjectRef, Manifest, ManifestView
from muster.kube.read.pod_index import PodIndex
from muster.kube.write import patch_bodies
from muster.kube.write.effect_writes import (
    PLAN_NOT_SAVED,
    ApiWrite,
    EffectWrites,
    FailedEffect,
    VolumeWait,
    WrittenEffect,
    advance,
    current_pod,
    failure_event,
    is_terminating,
)
from muster.kube.write.status_updates import UpdatesByKey, add_updates, conditions, updates_patch
from muster.kube.write.write_order import EffectWrite, order_writes
from muster.model.effects import Bind, Effect, Evict, SavePlan
from muster.model.events import Event
from muster.model.volume import VolumeChoice
from muster.sim import volume_controller
from muster.sim.disruption_budgets import DisruptionBudgets
from muster.sim.fault_injection import BindFaultInjector
from muster.sim.object_store import ObjectStore
from muster.sim.virtual_clock import VirtualClock


class Write(NamedTuple):
    """One write by the scheduler. The verb is bind, patch, delete or evict, and save for a Plan or a History, whatever is done to
    it; the name has its namespace in front."""

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
        self._effect_writes = EffectWrites(store, now=lambda: clock.now, pending_status=self._pending_patch)

    def fail_next(self, verb: str, pod: str, *, times: int) -> None:
        """The next `times` effects of this verb (bind or evict) on the pod fail."""
        self._injected_failures[verb, pod] = times

    def execute(self, effects: Iterable[Effect], *, max_writes: int | None) -> list[Event]:
        """What failed. `max_writes`: that many writes, then nothing more, as if the scheduler died."""
        self._write_limit = None if max_writes is None else len(self.writes) + max_writes
        batch = order_writes(tuple(effects), gang_pods=self._index.gang_pods)
        self._pending_status = {}
        add_updates(self._pending_status, batch.status_writes)
        failed: list[Event] = []
        try:
            not_saved: set[str] = set()
            for write in (write for stage in batch.stages for write in stage):
                failure = self._carry_out(write, not_saved)
                if failure is not None:
                    not_saved |= {write.effect.plan.gang} if isinstance(write.effect, SavePlan) else set()
                    event = failure_event(write.effect, failure)
                    failed += [event] if event is not None else []
            self._write_status()
        except _WriteLimitReached:
            pass
        return failed

    def _carry_out(self, write: EffectWrite, not_saved: set[str]) -> FailedEffect | None:
        """`not_saved` are the gangs whose plans could not be saved."""
        effect, plans = write
        if not not_saved.isdisjoint(plans):
            return PLAN_NOT_SAVED
        if isinstance(effect, Evict) and (refused := self._refused_eviction(effect)):
            return refused
        sequence = self._effect_writes.sequence(effect)
        step = advance(sequence)
        while not isinstance(step, str):
            if isinstance(step, VolumeWait):
                self._bind_volumes(step.choices)
            elif refused := self._write(step, effect):
                return refused
            step = advance(sequence, done=isinstance(step, ApiWrite))
        return FailedEffect(step) if step else None

    # -- writes ----------------------------------------------------------------------------------------------------------------

    def _write(self, write: ApiWrite, effect: WrittenEffect) -> FailedEffect | None:
        """What the API server makes of a write, or why it refuses it."""
        ref, pod = write.ref, self._store.peek(write.ref)
        if write.verb == "create":
            self._record_write("create", ref)
            self._store.create(write.body)
        elif write.verb == "bind" and isinstance(effect, Bind):
            why = self._injected_failure("bind", effect.pod) or self._faults.bind_error(effect.pod)
            if why:
                return FailedEffect(why)
            self._record_write("bind", ref)
            self._store.patch(ref, self._bound_pod_patch(write.body, pod))
        elif write.verb == "patch":
            self._patch(ref, write.body)
            self._bind_volumes(_assigned_volumes(write))
        else:
            refusal = self._budgets.eviction_refusal(ref, pod) if write.verb == "evict" and pod is not None else None
            if refusal is not None:
                return FailedEffect(refusal.why, refusal.budget_name)
            self._record_write(write.verb, ref)
            self._store.delete(ref, uid=write.uid, grace_s=write.body.get("gracePeriodSeconds"))
        return None

    def _bind_volumes(self, choices: Iterable[VolumeChoice]) -> None:
        for choice in choices:
            volume_controller.bind(self._store, choice)

    def _bound_pod_patch(self, binding: Manifest, pod: ManifestView | None) -> Manifest:
        bound = patch_bodies.conditions_patch([_POD_SCHEDULED_TRUE], present=conditions(pod), now=self._clock.now)
        status = {**bound.get("status", {}), "nominatedNodeName": None}
        annotations = binding["metadata"].get("annotations")
        metadata = {"metadata": {"annotations": annotations}} if annotations else {}
        return {"spec": {"nodeName": binding["target"]["name"]}, "status": status, **metadata}

    def _refused_eviction(self, effect: Evict) -> FailedEffect | None:
        pod = current_pod(effect, self._store)
        why = "" if pod is None or is_terminating(pod) else self._injected_failure("evict", effect.pod)
        return FailedEffect(why) if why else None

    def _injected_failure(self, verb: str, pod: str) -> str:
        left = self._injected_failures.get((verb, pod), 0)
        if not left:
            return ""
        self._injected_failures[verb, pod] = left - 1
        return f"the API server refused to {verb} pod {pod}"

    def _pending_patch(self, ref: ApiObjectRef, present: ManifestView) -> Manifest | None:
        return updates_patch(self._pending_status.get(ref, {}), present, now=self._clock.now)

    def _write_status(self) -> None:
        for ref in self._pending_status:
            present = self._store.peek(ref)
            patch = None if present is None else self._pending_patch(ref, present)
            if patch is not None:
                self._patch(ref, patch)

    def _patch(self, ref: ApiObjectRef, patch: Manifest) -> None:
        if self._store.would_change(ref, patch):
            self._record_write("patch", ref)
            self._store.patch(ref, patch)

    def _record_write(self, verb: str, ref: ApiObjectRef) -> None:
        if self._write_limit is not None and len(self.writes) >= self._write_limit:
            raise _WriteLimitReached
        self.writes.append(Write("save" if ref.group == names.MUSTER_GROUP else verb, ref.kind, ref.full_name))


class _WriteLimitReached(Exception):
    """The scheduler died before this write."""


_POD_SCHEDULED_TRUE = {"type": patch_bodies.POD_SCHEDULED, "status": patch_bodies.STATUS_TRUE}


def _assigned_volumes(write: ApiWrite) -> list[VolumeChoice]:
    """The claim that a patch gives a volume, or a node on which one is provisioned."""
    if write.ref[:2] == VOLUME_CLAIM:
        return [VolumeChoice(write.ref.full_name, "")]
    if write.ref[:2] != VOLUME:
        return []
    claim = write.body["spec"]["claimRef"]
    return [VolumeChoice(f"{claim['namespace']}/{claim['name']}", write.ref.name)]
