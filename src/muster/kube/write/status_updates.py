"""Status updates: which objects each concerns, and how it changes them, or that there is nothing to write.

Pure, and shared with the simulator. What the scheduler did not write itself is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from muster.kube.read.names import NATIVE_GROUP
from muster.kube.read.object_references import (
    COMPOSITE_KIND,
    HYPERNODE,
    POD_GROUP_KIND,
    QUEUE,
    QUOTAS,
    ApiObjectRef,
    Manifest,
    ManifestView,
    node_ref,
    pod_ref,
)
from muster.kube.read.pod_group_decoding import FLAVOUR_OF_API_GROUP
from muster.kube.write import patch_bodies
from muster.kube.write.merge_patch import joined, merged
from muster.model.effects import Condition, PodGroupStatus, QueueStatus, StatusEffect
from muster.model.gang import COMPOSITE_FAMILY

GangPods = Callable[[str], Sequence[ApiObjectRef]]
"""The pods of a gang key, or of all gang keys with a title."""


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
                for gang_key in gang_keys_of(update.object_key)
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
    """The PodGroup of a gang key (`volcano:team-a/train`), or those of all gang keys with this title; none of a single pod."""
    family, _, title = gang_key.rpartition(":")
    namespace, slash, name = title.partition("/")
    if family == COMPOSITE_FAMILY:
        return [ApiObjectRef(NATIVE_GROUP, COMPOSITE_KIND, namespace, name)]
    groups = (group for group, flavour in FLAVOUR_OF_API_GROUP.items() if slash and family in ("", flavour.family))
    return [ApiObjectRef(group, POD_GROUP_KIND, namespace, name) for group in groups]


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


def status_patch(status_write: StatusWrite, present: ManifestView, *, now: float) -> Manifest | None:
    """How the update changes its object; None where it does not apply."""
    ref, update = status_write
    match update:
        case PodGroupStatus() if ref.group == NATIVE_GROUP:
            known = conditions(present)
            entries = patch_bodies.initial_scheduling(update, kind=ref.kind, present=known)
            return patch_bodies.conditions_patch(entries, present=known, now=now)
        case PodGroupStatus():
            return patch_bodies.group_status(update, api_group=ref.group)
        case QueueStatus():
            return patch_bodies.queue_status(update, present=_status(present))
        case Condition():
            found = _condition_entries(ref, update, present)
            return None if found is None else patch_bodies.conditions_patch(found, present=conditions(present), now=now)


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
    if ref.kind in (POD_GROUP_KIND, COMPOSITE_KIND):
        return patch_bodies.group_conditions(update, ref, present=conditions(present))
    return [patch_bodies.unscheduled_condition(update)] if _is_unscheduled(present) else None


def _is_unscheduled(pod: ManifestView) -> bool:
    """A bound pod got its condition by its bind."""
    return not node_of(pod) and not is_gated(pod)


def node_of(pod: ManifestView) -> str:
    found = pod["spec"].get("nodeName")
    return found if isinstance(found, str) else ""


def is_gated(pod: ManifestView) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def conditions(manifest: ManifestView | None) -> list[Mapping[str, Any]]:
    """Custom objects may have any value in this field: what is no condition is overwritten."""
    found = _status(manifest).get("conditions")
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _status(manifest: ManifestView | None) -> ManifestView:
    found = (manifest or {}).get("status")
    return found if isinstance(found, Mapping) else {}
