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
from muster.kube.read.pod_group_decoding import FLAVOUR_OF_API_GROUP
from muster.kube.read.reservation_annotation import write_reservation
from muster.model.effects import Bind, Condition, Evict, Nominate, PodGroupStatus, QueueStatus, Reserve
from muster.model.gang import phase_in
from muster.model.pod import Phase, ReservationNote
from muster.model.volume import VolumeChoice

Patch = dict[str, Any]
ConditionEntry = dict[str, str]

STATUS_TRUE, STATUS_FALSE = "True", "False"
POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULED = "Scheduled"
INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"
VALID = "muster.dev/Valid"
"""Type of the condition on a queue, a node or a HyperNode: whether the scheduler can use its fields."""
VALIDITY_CODES = ("Invalid", "Valid")
"""Codes of conditions that are about an object's own fields, not about the scheduling of its gang."""
DISRUPTION_TARGET = "DisruptionTarget"
"""Type of the condition on a pod that is about to be deleted on purpose."""
PREEMPTED = "PreemptionByScheduler"
"""The reason by which kubelets and controllers know a pod that the scheduler preempts."""

RESERVATION_ANNOTATIONS = (names.PIPELINED_STATUS, names.PIPELINED_NODE, names.EVICTION_OCCURRED, names.RESERVATION)
SCHEDULER_ANNOTATIONS = names.WRITTEN_ANNOTATIONS
"""All annotations that the scheduler writes onto pods. A pod created as a copy of another must not have them."""
SCHEDULER_LABELS = frozenset({names.SOFT_EVICTION})

API_GROUP_OF_FAMILY = {flavour.family: group for group, flavour in FLAVOUR_OF_API_GROUP.items()}


# --- Pods ---------------------------------------------------------------------------------------------------------------------


def reservation_patch(effect: Reserve | Nominate) -> Patch:
    """A reservation of a node: Volcano's annotations for a nomination, Muster's annotation for all of it, and the status field in
    which Kubernetes has the nominated node."""
    nominated = isinstance(effect, Nominate)
    annotations = {
        names.PIPELINED_STATUS: "true" if nominated else None,
        names.PIPELINED_NODE: effect.node if nominated else None,
        names.EVICTION_OCCURRED: "true" if isinstance(effect, Nominate) and effect.victims else None,
        names.RESERVATION: write_reservation(_reservation_of(effect), uid=effect.uid),
    }
    return {"metadata": {"annotations": annotations}, "status": {"nominatedNodeName": effect.node}}


def _reservation_of(effect: Reserve | Nominate) -> ReservationNote:
    if isinstance(effect, Reserve):
        return ReservationNote(Phase.RESERVED, effect.node, effect.since, devices=effect.devices)
    return ReservationNote(
        Phase.NOMINATED,
        effect.node,
        effect.since,
        plan=effect.plan,
        size=effect.size,
        victims=effect.victims,
        devices=effect.devices,
    )


def clear_reservation_patch(*, timed_out: bool = False) -> Patch:
    """Removes a reservation, and sets Koordinator's timeout annotation where the gang timed out."""
    annotations: dict[str, str | None] = dict.fromkeys(RESERVATION_ANNOTATIONS)
    if timed_out:
        annotations[names.GANG_TIMEOUT] = "true"
    return {"metadata": {"annotations": annotations}, "status": {"nominatedNodeName": None}}


def binding(effect: Bind, *, now: float) -> Patch:
    """The body of a pod's binding. The UID makes it fail on another pod of the same name. The API server writes its annotations
    onto the pod together with the node: device plugins read them at once."""
    namespace, _, name = effect.pod.rpartition("/")
    metadata: Patch = {"name": name, "namespace": namespace, "uid": effect.uid}
    if annotations := bind_annotations(effect.grants, node=effect.node, now=now):
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": effect.node},
    }


def volume_patch(choice: VolumeChoice, *, node: str) -> tuple[str, Patch]:
    """What has to be written before a pod is bound whose claim waits for its first consumer: which kind of object, and how it
    changes. A volume gets a reference to its claim; a claim without one gets the node on which its driver provisions one."""
    if not choice.volume:
        return "PersistentVolumeClaim", {"metadata": {"annotations": {names.SELECTED_NODE: node}}}
    namespace, _, name = choice.claim.partition("/")
    ref = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
    return "PersistentVolume", {"metadata": {"annotations": {names.BOUND_BY_CONTROLLER: "yes"}}, "spec": {"claimRef": ref}}


def soft_eviction_patch(effect: Evict, *, now: float) -> Patch:
    """Requests the owner of the pod to delete it: a label to select by, and an annotation with the preemptor and the reason."""
    request = {"preemptJob": effect.for_gang, "timestamp": rfc3339(now), "reason": effect.why}
    reason_fields = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
    return {"metadata": {"labels": {names.SOFT_EVICTION: "true"}, "annotations": {names.SOFT_EVICTION: reason_fields}}}


def cancel_eviction_patch(*, now: float) -> Patch:
    """Removes the label and the annotation of a soft eviction."""
    return {
        "metadata": {
            "labels": {names.SOFT_EVICTION: None},
            "annotations": {names.SOFT_EVICTION: None, names.EVICTION_CANCELLED_AT: rfc3339(now)},
        }
    }


def unscheduled_condition(effect: Condition) -> ConditionEntry:
    """The condition of a pending pod. The reason is the one that autoscalers look for; Muster's code ends the message."""
    message = f"{effect.why} [{effect.code}]" if effect.code else effect.why
    return {"type": POD_SCHEDULED, "status": STATUS_FALSE, "reason": UNSCHEDULABLE, "message": message}


def disruption_condition(effect: Evict) -> ConditionEntry:
    return {"type": DISRUPTION_TARGET, "status": STATUS_TRUE, "reason": PREEMPTED, "message": effect.why}


# --- PodGroups and others -----------------------------------------------------------------------------------------------------


def group_conditions(effect: Condition, *, api_group: str, present: Sequence[Mapping[str, Any]]) -> list[ConditionEntry]:
    """The conditions of a PodGroup of this API group."""
    reason_fields = {"reason": effect.code, "message": effect.why}
    if api_group == names.NATIVE_GROUP:
        if _status_of(INITIALLY_SCHEDULED, present) == STATUS_TRUE:
            return []  # Kubernetes never resets this condition.
        if not effect.ok:
            reason_fields = {"reason": UNSCHEDULABLE, "message": f"{effect.why} [{effect.code}]"}
        return [{"type": INITIALLY_SCHEDULED, "status": STATUS_TRUE if effect.ok else STATUS_FALSE, **reason_fields}]
    if api_group == names.VOLCANO_GROUP:
        true, false = (SCHEDULED, UNSCHEDULABLE) if effect.ok else (UNSCHEDULABLE, SCHEDULED)
        entries = [{"type": true, "status": STATUS_TRUE, **reason_fields}]
        return (
            [*entries, {"type": false, "status": STATUS_FALSE, **reason_fields}]
            if _status_of(false, present) == STATUS_TRUE
            else entries
        )
    return [{"type": SCHEDULED, "status": STATUS_TRUE if effect.ok else STATUS_FALSE, **reason_fields}]


def validity_condition(effect: Condition) -> ConditionEntry:
    return {"type": VALID, "status": STATUS_TRUE if effect.ok else STATUS_FALSE, "reason": effect.code, "message": effect.why}


def group_status(effect: PodGroupStatus, *, api_group: str) -> Patch:
    """The status fields that a PodGroup of this API group has."""
    if api_group == names.NATIVE_GROUP:
        return {}
    is_volcano = api_group == names.VOLCANO_GROUP
    status: Patch = {
        "phase": phase_in(FLAVOUR_OF_API_GROUP[api_group], effect.phase),
        "running": effect.running,
        "succeeded": effect.succeeded,
        "failed": effect.failed,
    }
    if not is_volcano:
        status["scheduled"] = effect.scheduled
        if effect.start_time is not None:
            status["scheduleStartTime"] = rfc3339(effect.start_time)
    return {"status": status}


def queue_status(effect: QueueStatus, *, present: Mapping[str, Any]) -> Patch:
    """The status of a queue or quota. Counts are numbers; a resource that an amount no longer has is removed from it."""
    # Volcano's CRD of a Queue requires the field, also where nothing is allocated.
    status: Patch = {"allocated": {}} if effect.key.startswith("queue/") else {}
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


def conditions_patch(entries: Sequence[ConditionEntry], *, present: Sequence[Mapping[str, Any]], now: float) -> Patch:
    """A patch of `status.conditions`, empty if it changes nothing. A merge patch replaces a list whole, so the patch repeats the
    conditions of others as they are."""
    conditions = list(present)
    for entry in entries:
        _put_condition(entry, into=conditions, now=now)
    return {} if conditions == list(present) else {"status": {"conditions": conditions}}


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


def pod_group_of_gang_key(gang_key: str) -> tuple[str, str, str] | None:
    """API group, namespace and name of the PodGroup of a gang key (`volcano:team-a/train`); None for a single pod."""
    family, _, title = gang_key.partition(":")
    api_group = API_GROUP_OF_FAMILY.get(family)
    namespace, slash, name = title.partition("/")
    return (api_group, namespace, name) if api_group is not None and slash else None


def rfc3339(when: float) -> str:
    """A time in the format of API objects: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(int(when), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
