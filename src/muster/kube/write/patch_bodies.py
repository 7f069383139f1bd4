"""The way back: effects of the scheduler as patches of API objects. Pure functions; whoever talks to a cluster sends them.

All patches are JSON merge patches (RFC 7386) and touch the scheduler's own annotations and status fields only. A pod's annotations
and its nominated node go into one patch of its status subresource, which takes both: a claim is written whole or not at all.
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
"""Type of the condition on a queue, a node or a HyperNode: whether the scheduler can work with it as it is written."""
VALIDITY_CODES = ("Invalid", "Valid")
"""Codes of conditions that are about an object's own fields, not about how its gang fares."""

RESERVATION_ANNOTATIONS = (names.PIPELINED_STATUS, names.PIPELINED_NODE, names.EVICTION_OCCURRED, names.RESERVATION)
SCHEDULER_ANNOTATIONS = names.WRITTEN_ANNOTATIONS
"""All annotations that the scheduler writes onto pods. A pod made anew from an old one must not bear them."""
SCHEDULER_LABELS = frozenset({names.SOFT_EVICTION})

API_GROUP_OF_FAMILY = {dialect.family: group for group, dialect in FLAVOUR_OF_API_GROUP.items()}


# --- Pods ---------------------------------------------------------------------------------------------------------------------


def reservation_patch(effect: Reserve | Nominate) -> Patch:
    """A claim on a node: what Volcano's names can say of a nomination, our own annotation for all of it, and the node's name
    where the API server wants to see it."""
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
    """All of a claim taken back, and the mark of a wait that ran out where it did."""
    annotations: dict[str, str | None] = dict.fromkeys(RESERVATION_ANNOTATIONS)
    if timed_out:
        annotations[names.GANG_TIMEOUT] = "true"
    return {"metadata": {"annotations": annotations}, "status": {"nominatedNodeName": None}}


def binding(effect: Bind, *, now: float) -> Patch:
    """The body of a pod's binding. The UID makes it fail on a pod that was made anew under the same name. The API server writes its
    annotations onto the pod together with the node: device plugins look for them at once."""
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
    """What has to be written before a pod is bound whose claim waited for a node: which kind of object, and how it changes. A
    volume is kept for its claim; for a claim that gets a new one, its driver is told the node. Others do the rest."""
    if not choice.volume:
        return "PersistentVolumeClaim", {"metadata": {"annotations": {names.SELECTED_NODE: node}}}
    namespace, _, name = choice.claim.partition("/")
    ref = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
    return "PersistentVolume", {"metadata": {"annotations": {names.BOUND_BY_CONTROLLER: "yes"}}, "spec": {"claimRef": ref}}


def soft_eviction_patch(effect: Evict, *, now: float) -> Patch:
    """Asks whoever owns the pod to remove it: a label to select by, and an annotation that says for whom and why."""
    mark = {"preemptJob": effect.for_gang, "timestamp": rfc3339(now), "reason": effect.why}
    reason_fields = json.dumps(mark, ensure_ascii=False, separators=(",", ":"))
    return {"metadata": {"labels": {names.SOFT_EVICTION: "true"}, "annotations": {names.SOFT_EVICTION: reason_fields}}}


def cancel_eviction_patch(*, now: float) -> Patch:
    """Takes a soft eviction back."""
    return {
        "metadata": {
            "labels": {names.SOFT_EVICTION: None},
            "annotations": {names.SOFT_EVICTION: None, names.EVICTION_CANCELLED_AT: rfc3339(now)},
        }
    }


def unscheduled_condition(effect: Condition) -> ConditionEntry:
    """What a waiting pod says. The reason is the one that autoscalers look for; our own code stands behind the words."""
    message = f"{effect.why} [{effect.code}]" if effect.code else effect.why
    return {"type": POD_SCHEDULED, "status": STATUS_FALSE, "reason": UNSCHEDULABLE, "message": message}


# --- PodGroups and others -----------------------------------------------------------------------------------------------------


def group_conditions(effect: Condition, *, api_group: str, present: Sequence[Mapping[str, Any]]) -> list[ConditionEntry]:
    """What a PodGroup of this API group says about its gang."""
    reason_fields = {"reason": effect.code, "message": effect.why}
    if api_group == names.NATIVE_GROUP:
        if _status_of(INITIALLY_SCHEDULED, present) == STATUS_TRUE:
            return []  # Once scheduled, always scheduled: Kubernetes does not take this condition back.
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
    """The figures that a PodGroup of this API group has a field for."""
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
    """The status of a queue or quota. Counts are numbers; a resource that an amount no longer names is taken out of it."""
    # Volcano's definition of a Queue takes no status without it, also where nothing is allocated.
    status: Patch = {"allocated": {}} if effect.key.startswith("queue/") else {}
    for field, text in effect.fields:
        # Only the first dot divides: the rest may be the name of a resource, such as nvidia.com/gpu.
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
    """A patch of `status.conditions`, empty if they say all that already. A list is replaced whole by a merge patch, so those of
    others are in it as they are."""
    conditions = list(present)
    for entry in entries:
        _put_condition(entry, into=conditions, now=now)
    return {} if conditions == list(present) else {"status": {"conditions": conditions}}


def _put_condition(entry: ConditionEntry, *, into: list[Mapping[str, Any]], now: float) -> None:
    place = next((i for i, known in enumerate(into) if known.get("type") == entry["type"]), len(into))
    known = into[place] if place < len(into) else {}
    if all(known.get(key) == value for key, value in entry.items()):
        return
    # The time is that of the last change of status, not of the last change of words.
    since = known.get("lastTransitionTime") if known.get("status") == entry["status"] else None
    into[place : place + 1] = [{**entry, "lastTransitionTime": since or rfc3339(now)}]


def _status_of(kind: str, conditions: Sequence[Mapping[str, Any]]) -> object:
    return next((known.get("status") for known in conditions if known.get("type") == kind), None)


def pod_group_of_gang_key(gang_key: str) -> tuple[str, str, str] | None:
    """API group, namespace and name of the PodGroup that a slot (`volcano:team-a/train`) is named after; None for a lone pod."""
    family, _, title = gang_key.partition(":")
    api_group = API_GROUP_OF_FAMILY.get(family)
    namespace, slash, name = title.partition("/")
    return (api_group, namespace, name) if api_group is not None and slash else None


def rfc3339(when: float) -> str:
    """A time as API objects write it: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(int(when), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
