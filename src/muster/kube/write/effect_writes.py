"""The writes that carry out one effect on a pod, one after the other: pure, and shared with the simulator.

A sequence of writes looks at the objects as they are before each write, so nothing is written that is there already. An effect on a
pod that is deleted, or that is another one of the same name, writes nothing: the watch reports it. The order of effects is in
`write_order`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Literal, NamedTuple, Protocol

from muster.kube.read import names
from muster.kube.read.object_references import (
    ApiObjectRef,
    Manifest,
    ManifestView,
    node_ref,
    pod_ref,
    volume_claim_ref,
    volume_ref,
)
from muster.kube.read.pod_decoding import MAX_GRACE_S
from muster.kube.read.saved_objects import history_ref, history_spec, new_object, plan_ref, plan_specs
from muster.kube.write import patch_bodies
from muster.kube.write.merge_patch import joined, merged
from muster.kube.write.status_updates import conditions, is_gated, node_of
from muster.model.effects import (
    Bind,
    CancelEviction,
    DeletePlan,
    Evict,
    Nominate,
    PodEffect,
    Release,
    Reserve,
    SaveHistory,
    SavePlan,
    StateEffect,
)
from muster.model.events import BindFailed, EvictFailed, ReservationFailed, SaveFailed
from muster.model.saved_state import SavedPlan
from muster.model.volume import VolumeChoice


class ApiWrite(NamedTuple):
    """One write to the API server. `purpose` completes the sentence "the API server did not ...".

    `exact`: only at the resourceVersion that was checked. `optional`: the effect succeeds without it.
    """

    verb: Literal["bind", "create", "patch", "evict", "delete"]
    ref: ApiObjectRef
    uid: str
    body: Manifest
    purpose: str
    exact: bool = False
    optional: bool = False


class VolumeWait(NamedTuple):
    """Controllers have to bind these claims, or provision volumes for them."""

    choices: list[VolumeChoice]


WrittenEffect = PodEffect | StateEffect

WriteSequence = Generator[ApiWrite | VolumeWait, bool, str]
"""Gets True for a write that succeeded; False: look at the objects again. After a wait, False: do not wait any longer. Returns why
the effect failed, or nothing."""


def advance(sequence: WriteSequence, *, done: bool | None = None) -> ApiWrite | VolumeWait | str:
    """The next write or wait, or the result at the end of the sequence. `done` is the answer to the one before."""
    try:
        return next(sequence) if done is None else sequence.send(done)
    except StopIteration as end:
        result: str = end.value
        return result


FailureEvent = BindFailed | ReservationFailed | EvictFailed | SaveFailed


class FailedEffect(NamedTuple):
    """Why an effect failed; `budget` names the PodDisruptionBudget that forbids an eviction, or is empty."""

    why: str
    budget: str = ""


class ObjectReader(Protocol):
    """The objects as they are now, read-only."""

    def peek(self, ref: ApiObjectRef) -> ManifestView | None: ...


class EffectWrites:
    """`pending_status` returns the pending status updates of an object in the given state: they go into the same patch.
    `namespace` is the scheduler's own, in which Plans and Histories are."""

    def __init__(
        self,
        objects: ObjectReader,
        *,
        now: Callable[[], float],
        pending_status: Callable[[ApiObjectRef, ManifestView], Manifest | None],
        namespace: str = names.MUSTER_NAMESPACE,
    ) -> None:
        self._objects = objects
        self._namespace = namespace
        self._now = now
        self._pending_status = pending_status

    def target(self, effect: WrittenEffect) -> ApiObjectRef:
        """The object that the effect writes."""
        match effect:
            case SavePlan(plan=plan):
                return plan_ref(plan.name, namespace=self._namespace)
            case DeletePlan(name=name):
                return plan_ref(name, namespace=self._namespace)
            case SaveHistory(history=history):
                return history_ref(history.name, namespace=self._namespace)
            case _:
                return pod_ref(effect.pod)

    def sequence(self, effect: WrittenEffect) -> WriteSequence:
        match effect:
            case SavePlan(plan=plan):
                return self._save_plan(plan)
            case SaveHistory(history=history):
                return self._save(self.target(effect), history_spec(history))
            case DeletePlan(name=name):
                return self._delete_plan(name)
            case Bind():
                return self._bind(effect)
            case Reserve() | Nominate():
                return self._reserve(effect)
            case Release() | CancelEviction():
                return self._release(effect)
            case Evict(method="soft"):
                return self._request_soft_eviction(effect)
            case Evict():
                return self._evict(effect)

    # -- objects of the scheduler's own ----------------------------------------------------------------------------------------

    def _save_plan(self, plan: SavedPlan) -> WriteSequence:
        """The first object last: it says which others count, so a plan is there whole or as it was."""
        specs = plan_specs(plan)
        before = self._parts(plan.name)
        for name, spec in reversed(specs.items()):
            yield from self._save(plan_ref(name, namespace=self._namespace), spec)
        yield from self._delete_plans(name for name in before if name not in specs)
        return ""

    def _delete_plan(self, name: str) -> WriteSequence:
        return self._delete_plans([name, *self._parts(name)])

    def _delete_plans(self, plans: Iterable[str]) -> WriteSequence:
        for name in plans:
            yield from self._delete(plan_ref(name, namespace=self._namespace))
        return ""

    def _parts(self, plan: str) -> list[str]:
        present = self._objects.peek(plan_ref(plan, namespace=self._namespace)) or {}
        return list((present.get("spec") or {}).get("parts") or ())

    def _save(self, ref: ApiObjectRef, spec: Manifest) -> WriteSequence:
        purpose = f"save {ref.kind} {ref.full_name}"
        while True:
            present = self._objects.peek(ref)
            if present is None:
                is_saved = yield ApiWrite("create", ref, "", new_object(ref, spec), purpose)
            else:
                is_saved = yield ApiWrite("patch", ref, present["metadata"]["uid"], {"spec": spec}, purpose, exact=True)
            if is_saved:
                return ""

    def _delete(self, ref: ApiObjectRef) -> WriteSequence:
        while (present := self._objects.peek(ref)) is not None:
            if (yield ApiWrite("delete", ref, present["metadata"]["uid"], {}, f"delete {ref.kind} {ref.full_name}")):
                break
        return ""

    # -- binds -----------------------------------------------------------------------------------------------------------------

    def _bind(self, effect: Bind) -> WriteSequence:
        """Volumes come first: after a crash a bound pod must not find its volume taken."""
        why = (yield from self._provide_volumes(effect)) if effect.volumes else ""
        why = why or (yield from self._post_binding(effect))
        pod = current_pod(effect, self._objects)
        if pod is not None and has_reservation(pod) and node_of(pod):
            # Also where it is found to be bound to another node: a bound pod needs no reservation.
            yield from self._patch_pod(effect, patch_bodies.clear_reservation_patch(), optional=True)
        return why

    def _post_binding(self, effect: Bind) -> WriteSequence:
        purpose = f"bind pod {effect.pod} to {effect.node}"
        while not (check := check_bind(effect, self._objects)).is_settled:
            binding = patch_bodies.binding(effect, now=self._now())
            if (yield ApiWrite("bind", pod_ref(effect.pod), effect.uid, binding, purpose)):
                return ""
        return check.why

    def _provide_volumes(self, effect: Bind) -> WriteSequence:
        """Why the pod cannot have its volumes on this node, or nothing."""
        check = check_bind(effect, self._objects)
        for choice in () if check.is_settled else effect.volumes:
            if why := (yield from self._assign_volume(choice, node=effect.node)):
                return why
        while not check.is_settled:
            waiting = [one for one in effect.volumes if not is_claim_bound(one, self._objects)]
            if why := next(filter(None, (self._why_no_volume(one, node=effect.node) for one in waiting)), ""):
                return why
            if not waiting or not (yield VolumeWait(waiting)):
                return ""
            check = check_bind(effect, self._objects)
        return check.why

    def _assign_volume(self, choice: VolumeChoice, *, node: str) -> WriteSequence:
        """Write which volume a claim gets, or on which node one is provisioned; why that is not possible, or nothing."""
        ref, patch = patch_bodies.volume_patch(choice, node=node)
        purpose = f"write to {ref.kind} {ref.full_name}"
        while not is_claim_bound(choice, self._objects):
            why, present = volume_conflict(choice, self._objects), self._objects.peek(ref)
            if why or present is None or merged(present, patch) is present:
                return why
            if (yield ApiWrite("patch", ref, present["metadata"]["uid"], patch, purpose, exact=True)):
                return ""
        return ""

    def _why_no_volume(self, choice: VolumeChoice, *, node: str) -> str:
        """A driver that cannot provision the volume on the selected node removes the annotation."""
        claim = self._objects.peek(volume_claim_ref(choice.claim))
        if choice.volume or claim is None:
            return volume_conflict(choice, self._objects)
        selected = (claim["metadata"].get("annotations") or {}).get(names.SELECTED_NODE)
        return "" if selected == node else f"no volume can be provisioned for claim {choice.claim} on {node}"

    # -- patches of pods -------------------------------------------------------------------------------------------------------

    def _reserve(self, effect: Reserve | Nominate) -> WriteSequence:
        is_there = yield from self._patch_pod(effect, patch_bodies.reservation_patch(effect), exact=True, only_unbound=True)
        if is_there:
            return ""
        pod = current_pod(effect, self._objects)
        return f"pod {effect.pod} is gone" if pod is None else f"pod {effect.pod} is bound to {node_of(pod)} already"

    def _release(self, effect: Release | CancelEviction) -> WriteSequence:
        if isinstance(effect, Release):
            patch = patch_bodies.clear_reservation_patch(timed_out=effect.timed_out)
        else:
            patch = patch_bodies.cancel_eviction_patch()
        return "" if (yield from self._patch_pod(effect, patch)) else f"pod {effect.pod} is gone"

    def _request_soft_eviction(self, effect: Evict) -> WriteSequence:
        """A pod that has the label keeps its annotation: it records since when."""
        pod = current_pod(effect, self._objects)
        has_label = pod is not None and (pod["metadata"].get("labels") or {}).get(names.SOFT_EVICTION) == "true"
        if pod is not None and not is_terminating(pod) and not has_label:
            yield from self._patch_pod(effect, patch_bodies.soft_eviction_patch(effect, now=self._now()))
        return ""

    def _patch_pod(
        self, effect: PodEffect, patch: Manifest, *, exact: bool = False, optional: bool = False, only_unbound: bool = False
    ) -> Generator[ApiWrite, bool, bool]:
        """Is the pod as the patch wants it? Its pending status updates go into the same patch."""
        ref = pod_ref(effect.pod)
        while (pod := current_pod(effect, self._objects)) is not None and not (only_unbound and node_of(pod)):
            patched = merged(pod, patch)
            if patched is pod:
                return True
            whole = joined(patch, self._pending_status(ref, patched) or {})
            if (yield ApiWrite("patch", ref, effect.uid, whole, f"patch pod {effect.pod}", exact=exact, optional=optional)):
                return True
        return False

    # -- evictions -------------------------------------------------------------------------------------------------------------

    def _evict(self, effect: Evict) -> WriteSequence:
        """The Eviction API writes the condition DisruptionTarget itself; before a deletion the scheduler does."""
        ref, purpose = pod_ref(effect.pod), f"evict pod {effect.pod}"
        verb: Literal["evict", "delete"] = "evict" if effect.method == "evict" else "delete"
        has_condition = verb == "evict"
        while (pod := current_pod(effect, self._objects)) is not None and not is_terminating(pod):
            patch = {} if has_condition else self._disruption_patch(effect, pod)
            if patch:
                has_condition = yield ApiWrite("patch", ref, effect.uid, patch, purpose)
            elif (yield ApiWrite(verb, ref, effect.uid, _eviction_options(pod), purpose)):
                return ""
        return ""

    def _disruption_patch(self, effect: Evict, pod: ManifestView) -> Manifest:
        return patch_bodies.conditions_patch([patch_bodies.disruption_condition(effect)], present=conditions(pod), now=self._now())


# --- Checks -------------------------------------------------------------------------------------------------------------------


def current_pod(effect: PodEffect, objects: ObjectReader) -> ManifestView | None:
    """The pod of the effect, if it still exists."""
    found = objects.peek(pod_ref(effect.pod))
    return found if found is not None and found["metadata"]["uid"] == effect.uid else None


def has_reservation(pod: ManifestView) -> bool:
    """Is there anything to be cleared after its bind? Most pods never had a reservation."""
    annotations, status = pod["metadata"].get("annotations"), pod.get("status") or {}
    return bool(status.get("nominatedNodeName") or (annotations and not _RESERVATION_KEYS.isdisjoint(annotations)))


_RESERVATION_KEYS = frozenset(patch_bodies.RESERVATION_ANNOTATIONS)


def is_terminating(pod: ManifestView) -> bool:
    metadata = pod["metadata"]
    return bool(metadata.get("deletionTimestamp")) and (metadata.get("deletionGracePeriodSeconds") or 0) <= MAX_GRACE_S


def _eviction_options(pod: ManifestView) -> Manifest:
    """A pod that has more time to terminate than others wait for gets less."""
    grace_s = (pod.get("spec") or {}).get("terminationGracePeriodSeconds") or 0
    return {"gracePeriodSeconds": MAX_GRACE_S} if grace_s > MAX_GRACE_S else {}


class BindCheck(NamedTuple):
    """The result of the checks before a bind. `bound`: the pod has a node, so there is nothing to send and its reservation is
    obsolete; `why`: the bind fails."""

    bound: bool = False
    why: str = ""

    @property
    def is_settled(self) -> bool:
        return self.bound or bool(self.why)


_MAY_BIND = BindCheck()


def check_bind(effect: Bind, objects: ObjectReader) -> BindCheck:
    """A pod that is bound to the target already is no failure."""
    pod = current_pod(effect, objects)
    if pod is None:
        return BindCheck(why=f"pod {effect.pod} with UID {effect.uid} is gone")
    if at := node_of(pod):
        return BindCheck(bound=True, why="" if at == effect.node else f"pod {effect.pod} is bound to {at} already")
    if is_terminating(pod):
        return BindCheck(why=f"pod {effect.pod} is being deleted")
    if is_gated(pod):
        return BindCheck(why=f"pod {effect.pod} has scheduling gates")
    if objects.peek(node_ref(effect.node)) is None:
        return BindCheck(why=f"node {effect.node} is gone")
    return _MAY_BIND


def is_claim_bound(choice: VolumeChoice, objects: ObjectReader) -> bool:
    claim = objects.peek(volume_claim_ref(choice.claim)) or {}
    return bool((claim.get("spec") or {}).get("volumeName")) and (claim.get("status") or {}).get("phase") == "Bound"


def volume_conflict(choice: VolumeChoice, objects: ObjectReader) -> str:
    """Why the claim cannot be bound to this volume, or nothing."""
    if objects.peek(volume_claim_ref(choice.claim)) is None:
        return f"claim {choice.claim} is gone"
    if not choice.volume:
        return ""
    volume = objects.peek(volume_ref(choice.volume))
    if volume is None:
        return f"volume {choice.volume} is gone"
    holder = (volume.get("spec") or {}).get("claimRef") or {}
    taken_by = f"{holder.get('namespace', 'default')}/{holder.get('name')}" if holder else choice.claim
    return f"volume {choice.volume} went to claim {taken_by}" if taken_by != choice.claim else ""


# --- Failures -----------------------------------------------------------------------------------------------------------------


PLAN_NOT_SAVED = FailedEffect("its plan could not be saved, so a restart would not know of it")
"""No node is kept for a pod, and no pod is evicted, for a plan that could not be written."""


def failure_event(effect: WrittenEffect, failed: FailedEffect) -> FailureEvent | None:
    """The event by which the scheduler learns of it. A failed release concerns nobody: the watch shows what became of the pod."""
    match effect:
        case Bind():
            return BindFailed(effect.uid, effect.node, failed.why)
        case Reserve() | Nominate():
            return ReservationFailed(effect.uid, effect.node, effect.since, failed.why)
        case Evict():
            return EvictFailed(effect.uid, failed.why, failed.budget)
        case SavePlan():
            return SaveFailed("SavedPlan", effect.plan.gang, failed.why)
        case DeletePlan():
            return SaveFailed("SavedPlan", effect.gang, failed.why)
        case SaveHistory():
            return SaveFailed("SavedHistory", effect.history.name, failed.why)
        case Release() | CancelEviction():
            return None
