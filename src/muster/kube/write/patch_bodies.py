"""Bodies of patches and bindings for the effects of the scheduler. Pure functions; they send nothing.

All patches are JSON merge patches (RFC 7386) and touch the scheduler's own annotations and status fields only. A pod's annotations
and its nominated node go into one patch of its status subresource, which takes both: a reservation is written whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from muster.kube.read import names
from muster.kube.read.device_flavours import bind_annotations
from muster.kube.read.object_references import ApiObjectRef, Manifest, volume_claim_ref, volume_ref
from muster.kube.read.pod_group_decoding import FLAVOUR_OF_API_GROUP
from muster.model.effects import Bind, Condition, Evict, Nominate, PodGroupStatus, QueueStatus, Reserve
from muster.model.gang import phase_in
from muster.model.printable_text import printable
from muster.model.volume import VolumeChoice

ConditionEntry = dict[str, str]

STATUS_TRUE, STATUS_FALSE = "True", "False"
POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULED = "Scheduled"
INITIALLY_SCHEDULED = "InitiallyScheduled"
"""After the kind: PodGroupInitiallyScheduled, CompositePodGroupInitiallyScheduled."""
VALID = "muster.dev/Valid"
"""Type of the condition on a queue, a node or a HyperNode: whether the scheduler can use its fields."""
VALIDITY_CODES = ("Invalid", "Valid")
"""Codes of conditions that are about an object's own fields, not about the scheduling of its gang."""
MAX_MESSAGE_LENGTH = 32_768
"""The limit of the API for conditions."""
DISRUPTION_TARGET = "DisruptionTarget"
"""Type of the condition on a pod that is about to be deleted on purpose."""
PREEMPTED = "PreemptionByScheduler"
"""The reason by which kubelets and controllers know a pod that the scheduler preempts."""

RESERVATION_ANNOTATIONS = (names.PIPELINED_STATUS, names.PIPELINED_NODE, names.EVICTION_OCCURRED)
SCHEDULER_ANNOTATIONS = names.WRITTEN_ANNOTATIONS
"""All annotations that the scheduler writes onto pods. A pod created as a copy of another must not have them."""
SCHEDULER_LABELS = frozenset({names.SOFT_EVICTION})


# --- Pods ---------------------------------------------------------------------------------------------------------------------


def reservation_patch(effect: Reserve | Nominate) -> Manifest:
    """A reservation of a node, for others to read: the status field in which Kubernetes has the nominated node, and Volcano's
    annotations for a nomination."""
    nominated = isinstance(effect, Nominate)
    annotations = {
        names.PIPELINED_STATUS: "true" if nominated else None,
        names.PIPELINED_NODE: effect.node if nominated else None,
        names.EVICTION_OCCURRED: "true" if isinstance(effect, Nominate) and effect.evicts else None,
    }
    return {"metadata": {"annotations": annotations}, "status": {"nominatedNodeName": effect.node}}


def clear_reservation_patch(*, timed_out: bool = False) -> Manifest:
    """Removes a reservation, and sets Koordinator's timeout annotation where the gang timed out."""
    annotations: dict[str, str | None] = dict.fromkeys(RESERVATION_ANNOTATIONS)
    if timed_out:
        annotations[names.GANG_TIMEOUT] = "true"
    return {"metadata": {"annotations": annotations}, "status": {"nominatedNodeName": None}}


def binding(effect: Bind, *, now: float) -> Manifest:
    """The body of a pod's binding. The UID makes it fail on another pod of the same name. The API server writes its annotations
    onto the pod together with the node: device plugins read them at once."""
    namespace, _, name = effect.pod.rpartition("/")
    metadata: Manifest = {"name": name, "namespace": namespace, "uid": effect.uid}
    if annotations := bind_annotations(effect.grants, node=effect.node, now=now):
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": effect.node},
    }


def volume_patch(choice: VolumeChoice, *, node: str) -> tuple[ApiObjectRef, Manifest]:
    """What has to be written before a pod is bound whose claim waits for its first consumer: which object, and how it changes. A
    volume gets a reference to its claim; a claim without one gets the node on which its driver provisions one."""
    claim = volume_claim_ref(choice.claim)
    if not choice.volume:
        return claim, {"metadata": {"annotations": {names.SELECTED_NODE: node}}}
    ref = {"apiVersion": "v1", "kind": claim.kind, "namespace": claim.namespace, "name": claim.name}
    patch = {"metadata": {"annotations": {names.BOUND_BY_CONTROLLER: "yes"}}, "spec": {"claimRef": ref}}
    return volume_ref(choice.volume), patch


def soft_eviction_patch(effect: Evict, *, now: float) -> Manifest:
    """Requests the owner of the pod to delete it: a label to select by, and an annotation with the preemptor and the reason."""
    request = {"preemptJob": effect.for_gang, "timestamp": rfc3339(now), "reason": printable(effect.why)}
    reason_fields = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
    return {"metadata": {"labels": {names.SOFT_EVICTION: "true"}, "annotations": {names.SOFT_EVICTION: reason_fields}}}


def cancel_eviction_patch() -> Manifest:
    """Removes the label and the annotation of a soft eviction."""
    return {"metadata": {"labels": {names.SOFT_EVICTION: None}, "annotations": {names.SOFT_EVICTION: None}}}


def unscheduled_condition(effect: Condition) -> ConditionEntry:
    """The condition of a pending pod. The reason is the one that autoscalers look for; Muster's code ends the message."""
    message = f"{effect.why} [{effect.code}]" if effect.code else effect.why
    return {"type": POD_SCHEDULED, "status": STATUS_FALSE, "reason": UNSCHEDULABLE, "message": message}


def disruption_condition(effect: Evict) -> ConditionEntry:
    return {"type": DISRUPTION_TARGET, "status": STATUS_TRUE, "reason": PREEMPTED, "message": effect.why}


# --- PodGroups and others -----------------------------------------------------------------------------------------------------


def group_conditions(effect: Condition, ref: ApiObjectRef, *, present: Sequence[Mapping[str, Any]]) -> list[ConditionEntry]:
    """The conditions of this PodGroup or CompositePodGroup."""
    reason_fields = {"reason": effect.code, "message": effect.why}
    if ref.group == names.NATIVE_GROUP:
        condition = f"{ref.kind}{INITIALLY_SCHEDULED}"
        if _status_of(condition, present) == STATUS_TRUE:
            return []  # Kubernetes never resets this condition.
        if not effect.ok:
            reason_fields = {"reason": UNSCHEDULABLE, "message": f"{effect.why} [{effect.code}]"}
        return [{"type": condition, "status": STATUS_TRUE if effect.ok else STATUS_FALSE, **reason_fields}]
    if ref.group == names.VOLCANO_GROUP:
        true, false = (SCHEDULED, UNSCHEDULABLE) if effect.ok else (UNSCHEDULABLE, SCHEDULED)
        entries = [{"type": true, "status": STATUS_TRUE, **reason_fields}]
        return (
            [*entries, {"type": false, "status": STATUS_FALSE, **reason_fields}]
            if _status_of(false, present) == STATUS_TRUE
            else entries
        )
    return [{"type": SCHEDULED, "status": STATUS_TRUE if effect.ok else STATUS_FALSE, **reason_fields}]


def initial_scheduling(effect: PodGroupStatus, *, kind: str, present: Sequence[Mapping[str, Any]]) -> list[ConditionEntry]:
    """The condition of a group of Kubernetes itself whose minimum has nodes. A gang that never waited gets no other."""
    condition = f"{kind}{INITIALLY_SCHEDULED}"
    if effect.phase not in ("Scheduled", "Running", "Finished") or _status_of(condition, present) == STATUS_TRUE:
        return []
    why = f"{effect.scheduled + effect.succeeded} of its members have had a node, as many as it needs"
    return [{"type": condition, "status": STATUS_TRUE, "reason": SCHEDULED, "message": why}]


def validity_condition(effect: Condition) -> ConditionEntry:
    return {"type": VALID, "status": STATUS_TRUE if effect.ok else STATUS_FALSE, "reason": effect.code, "message": effect.why}


def group_status(effect: PodGroupStatus, *, api_group: str) -> Manifest:
    """The status fields that a PodGroup of this API group has."""
    if api_group == names.NATIVE_GROUP:
        return {}
    is_volcano = api_group == names.VOLCANO_GROUP
    status: Manifest = {
        "phase": phase_in(FLAVOUR_OF_API_GROUP[api_group], effect.phase, scheduled=effect.scheduled),
        "running": effect.running,
        "succeeded": effect.succeeded,
        "failed": effect.failed,
    }
    if not is_volcano:
        status["scheduled"] = effect.scheduled
        if effect.start_time is not None:
            status["scheduleStartTime"] = rfc3339(effect.start_time)
    return {"status": status}


def queue_status(effect: QueueStatus, *, present: Mapping[str, Any]) -> Manifest:
    """The status of a queue or quota. Counts are numbers; a resource that an amount no longer has is removed from it."""
    # Volcano's CRD of a Queue requires the field, also where nothing is allocated.
    status: Manifest = {"allocated": {}} if effect.key.startswith("queue/") else {}
    for field, text in effect.fields:
        # Only the first dot separates: the rest may be the name of a resource, such as nvidia.com/gpu.
        head, dot, rest = field.partition(".")
        if dot:
            status.setdefault(head, {})[rest] = text
        else:
            status[head] = int(text) if text.isascii() and text.isdigit() else text
    for head, amounts in status.items():
        known = present.get(head)
        if isinstance(amounts, dict) and isinstance(known, Mapping):
            status[head] = dict.fromkeys(known) | amounts
    return {"status": status}


def conditions_patch(entries: Sequence[ConditionEntry], *, present: Sequence[Mapping[str, Any]], now: float) -> Manifest:
    """A patch of `status.conditions`, empty if it changes nothing. A merge patch replaces a list whole, so the patch repeats the
    conditions of others as they are."""
    conditions = list(present)
    for entry in entries:
        _put_condition(_with_printable_message(entry), into=conditions, now=now)
    return {} if conditions == list(present) else {"status": {"conditions": conditions}}


def _with_printable_message(entry: ConditionEntry) -> ConditionEntry:
    return {**entry, "message": printable(entry["message"])[:MAX_MESSAGE_LENGTH]} if "message" in entry else entry


def _put_condition(entry: ConditionEntry, *, into: list[Mapping[str, Any]], now: float) -> None:
    place = next((i for i, known in enumerate(into) if known.get("type") == entry["type"]), len(into))
    known = into[place] if place < len(into) else {}
    if all(known.get(key) == value for key, value in entry.items()):
        return
    # The time is that of the last change of status, not of the message.
    since = known.get("lastTransitionTime") if known.get("status") == entry["status"] else None
    into[place : place + 1] = [{**entry, "lastTransitionTime": since or rfc3339(now)}]


def _status_of(kind: str, conditions: Sequence[Mapping[str, Any]]) -> object:
    return next((known.get("status") for known in conditions if known.get("type") == kind), None)


def rfc3339(when: float) -> str:
    """A time in the format of API objects: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(int(when), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
