"""From effects to patches: which object is written to and how it changes, or that there is nothing to write.

Pure: the simulator and the live writer pass in the objects as they are and send what these functions return. An effect on a pod
that is deleted, or that is another one of the same name, does nothing: the watch reports it. What the scheduler did not write
itself is left as it is. The order of writes is in `write_order`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from muster.kube.read.object_references import (
    HYPERNODE,
    POD_GROUP_KIND,
    QUEUE,
    QUOTAS,
    ApiObjectRef,
    Manifest,
    ManifestView,
    node_ref,
    pod_ref,
    volume_claim_ref,
    volume_ref,
)
from muster.kube.read.pod_index import FAMILIES
from muster.kube.write import patch_bodies
from muster.kube.write.merge_patch import joined, merged
from muster.model.effects import (
    Bind,
    CancelEviction,
    Condition,
    Evict,
    Nominate,
    PodEffect,
    PodGroupStatus,
    QueueStatus,
    Release,
    Reserve,
    StatusEffect,
)
from muster.model.volume import VolumeChoice

GangPods = Callable[[str], Sequence[ApiObjectRef]]
"""The pods of a gang key, or of all gang keys with a title."""


class ObjectReader(Protocol):
    """The objects as they are now, read-only."""

    def peek(self, ref: ApiObjectRef) -> ManifestView | None: ...


# --- Pods ---------------------------------------------------------------------------------------------------------------------


def current_pod(effect: PodEffect, objects: ObjectReader) -> ManifestView | None:
    """The pod of the effect, if it still exists."""
    found = objects.peek(pod_ref(effect.pod))
    return found if found is not None and found["metadata"]["uid"] == effect.uid else None


def node_of(pod: ManifestView) -> str:
    found = pod["spec"].get("nodeName")
    return found if isinstance(found, str) else ""


def is_terminating(pod: ManifestView) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


class BindCheck(NamedTuple):
    """The result of the checks before a bind. `bound`: the pod has a node, so there is nothing to send and its reservation is
    obsolete; `why`: the bind fails."""

    bound: bool = False
    why: str = ""


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
    if pod["spec"].get("schedulingGates"):
        return BindCheck(why=f"pod {effect.pod} has scheduling gates")
    if objects.peek(node_ref(effect.node)) is None:
        return BindCheck(why=f"node {effect.node} is gone")
    return _MAY_BIND


def reservation_refusal(effect: Reserve | Nominate, objects: ObjectReader) -> str:
    """Why no reservation can be written onto the pod, or nothing."""
    pod = current_pod(effect, objects)
    if pod is None:
        return f"pod {effect.pod} is gone"
    if at := node_of(pod):
        return f"pod {effect.pod} is bound to {at} already"
    return ""


def incomplete_plan(effect: Evict, *, missing: int, reservations: int) -> str:
    """Why a pod is not evicted for a plan of which some nominations could not be written."""
    return f"pod {effect.pod} was not evicted: {missing} of {reservations} nominations for {effect.for_gang} could not be written"


def is_claim_bound(choice: VolumeChoice, objects: ObjectReader) -> bool:
    claim = objects.peek(volume_claim_ref(choice.claim)) or {}
    return bool((claim.get("spec") or {}).get("volumeName")) and _status(claim).get("phase") == "Bound"


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


def volume_write(choice: VolumeChoice, *, node: str) -> tuple[ApiObjectRef, patch_bodies.Patch]:
    """The object that assigns a volume to a claim that waits for its first consumer, and how it changes."""
    kind, patch = patch_bodies.volume_patch(choice, node=node)
    ref = volume_claim_ref(choice.claim)
    return (ref if kind == ref.kind else volume_ref(choice.volume)), patch


def pod_patch(effect: PodEffect, pod: ManifestView, *, now: float) -> patch_bodies.Patch | None:
    """How the effect changes its pod, or None where it changes nothing. Of a bind: what is left to write after the binding."""
    match effect:
        case Reserve() | Nominate():
            return None if node_of(pod) else patch_bodies.reservation_patch(effect)
        case Release():
            return patch_bodies.clear_reservation_patch(timed_out=effect.timed_out)
        case CancelEviction():
            return patch_bodies.cancel_eviction_patch(now=now)
        case Bind():
            return patch_bodies.clear_reservation_patch()
        case Evict():
            return _soft_eviction_patch(effect, pod, now=now)


def _soft_eviction_patch(effect: Evict, pod: ManifestView, *, now: float) -> patch_bodies.Patch | None:
    """A pod that has the label keeps its annotation: it records since when."""
    patch = patch_bodies.soft_eviction_patch(effect, now=now)
    (label,) = patch["metadata"]["labels"]
    return None if (pod["metadata"].get("labels") or {}).get(label) == "true" else patch


def disruption_patch(effect: Evict, pod: ManifestView, *, now: float) -> patch_bodies.Patch:
    """The DisruptionTarget condition; empty where the pod has it."""
    return patch_bodies.conditions_patch([patch_bodies.disruption_condition(effect)], present=conditions(pod), now=now)


# --- Status updates -----------------------------------------------------------------------------------------------------------


class StatusWrite(NamedTuple):
    """A status update of one object."""

    ref: ApiObjectRef
    update: StatusEffect


UpdatesByKey = dict[str, StatusWrite]
"""The status updates of one object by `status_key`."""


def status_writes(update: StatusEffect, *, gang_pods: GangPods) -> list[StatusWrite]:
    """One for each object that the update concerns. Some of them may not exist."""
    return [StatusWrite(ref, update) for ref in _targets(update, gang_pods=gang_pods)]


def _targets(update: StatusEffect, *, gang_pods: GangPods) -> list[ApiObjectRef]:
    match update:
        case PodGroupStatus():
            return pod_group_refs(update.group)
        case QueueStatus():
            return _queue_refs(update.key)
        case Condition(subject="gang"):
            return [
                ref
                for gang_key in gang_keys_of(update.key)
                for ref in (*pod_group_refs(gang_key), *(gang_pods(gang_key) if _is_for_pods(update) else ()))
            ]
        case Condition(subject="pod"):
            return [pod_ref(update.key)] if not update.ok else []
        case Condition(subject="queue"):
            return _queue_refs(update.key)
        case Condition(subject="node"):
            return [node_ref(update.key)]
        case Condition(subject="domain"):
            return [ApiObjectRef(*HYPERNODE, "", update.key)]
    raise ValueError(f"no status to write for a {update.subject}: {update.key}")


def _is_for_pods(update: Condition) -> bool:
    """The members of a gang that is scheduled get their condition by their binds."""
    return not update.ok or update.code in patch_bodies.VALIDITY_CODES


def gang_keys_of(gang: str) -> list[str]:
    """The gang keys, or their titles, in a gang's key or title: one, or several for a gang group."""
    return gang.replace("+", ",").split(",")


def pod_group_refs(gang_key: str) -> list[ApiObjectRef]:
    """The PodGroups of a gang key, or of all gang keys with this title."""
    gang_keys = [gang_key] if ":" in gang_key else [f"{family}:{gang_key}" for family in FAMILIES]
    found = (patch_bodies.pod_group_of_gang_key(one) for one in gang_keys)
    return [ApiObjectRef(place[0], POD_GROUP_KIND, *place[1:]) for place in found if place is not None]


def _queue_refs(key: str) -> list[ApiObjectRef]:
    """`queue/a` is a Queue, `quota/team/a` an ElasticQuota of either API group."""
    kind, *place = key.split("/")
    return [ApiObjectRef(*known, *place) for known in QUOTAS] if kind == "quota" else [ApiObjectRef(*QUEUE, "", *place)]


def add_updates(pending: dict[ApiObjectRef, UpdatesByKey], status_writes: Iterable[StatusWrite]) -> None:
    """Of two updates with one key, the newer replaces the older."""
    for status_write in status_writes:
        pending.setdefault(status_write.ref, {})[status_key(status_write)] = status_write


def updates_patch(updates: UpdatesByKey, present: ManifestView, *, now: float) -> Manifest | None:
    """All status updates of one object in one patch; None where they change nothing."""
    whole: Manifest = {}
    for status_write in updates.values():
        patch = status_patch(status_write, merged(present, whole), now=now)
        whole = joined(whole, patch or {})
    return None if merged(present, whole) is present else whole


def status_patch(status_write: StatusWrite, present: ManifestView, *, now: float) -> patch_bodies.Patch | None:
    """How the update changes its object; None where it does not apply."""
    ref, update = status_write
    match update:
        case PodGroupStatus():
            return patch_bodies.group_status(update, api_group=ref.group)
        case QueueStatus():
            return patch_bodies.queue_status(update, present=_status(present))
        case Condition():
            entries = _condition_entries(ref, update, present)
            return None if entries is None else patch_bodies.conditions_patch(entries, present=conditions(present), now=now)


def status_key(status_write: StatusWrite) -> str:
    """Which part of an object's status an update is about."""
    update = status_write.update
    if not isinstance(update, Condition):
        return "status"
    return "scheduling" if _is_scheduling_condition(update) else "validity"


def _is_scheduling_condition(update: Condition) -> bool:
    """About the scheduling of a gang or pod, not about the fields of an object."""
    return update.subject == "pod" or (update.subject == "gang" and update.code not in patch_bodies.VALIDITY_CODES)


def _condition_entries(ref: ApiObjectRef, update: Condition, present: ManifestView) -> Sequence[patch_bodies.ConditionEntry] | None:
    if not _is_scheduling_condition(update):
        return [patch_bodies.validity_condition(update)]
    if ref.kind == POD_GROUP_KIND:
        return patch_bodies.group_conditions(update, api_group=ref.group, present=conditions(present))
    return [patch_bodies.unscheduled_condition(update)] if _is_unscheduled(present) else None


def _is_unscheduled(pod: ManifestView) -> bool:
    """A bound pod got its condition by its bind."""
    return not node_of(pod) and not pod["spec"].get("schedulingGates")


def conditions(manifest: ManifestView | None) -> list[Mapping[str, Any]]:
    """Custom objects may have any value in this field: what is no condition is overwritten."""
    found = _status(manifest).get("conditions")
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _status(manifest: ManifestView | None) -> ManifestView:
    found = (manifest or {}).get("status")
    return found if isinstance(found, Mapping) else {}
