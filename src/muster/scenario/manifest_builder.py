"""From the short forms to Kubernetes manifests. Nothing here talks to a cluster."""

from __future__ import annotations

from collections.abc import Iterator

from muster.kube.read import names
from muster.kube.read.object_references import Manifest
from muster.kube.write.patch_bodies import rfc3339
from muster.model.resource_amounts import CPU, MEMORY, PODS
from muster.scenario.syntax_tree import GangSpec, RoleSpec, pod_name
from muster.sim.pod_behaviour import BEHAVIOUR_PREFIX

GANG_FLAVOURS = ("volcano", "koordinator", "sigs", "native", "annotation", "single-pod")
SCENARIO_GANG_LABEL = "sim.muster.dev/gang"
"""Label of every pod of a short form: the scenario's gang that it belongs to."""

_POD_GROUP_KINDS = {
    "volcano": ("scheduling.volcano.sh/v1beta1", "PodGroup.scheduling.volcano.sh"),
    "koordinator": ("scheduling.sigs.k8s.io/v1alpha1", "PodGroup.scheduling.sigs.k8s.io"),
    "sigs": ("scheduling.x-k8s.io/v1alpha1", "PodGroup.scheduling.x-k8s.io"),
    "native": ("scheduling.k8s.io/v1alpha2", "PodGroup.scheduling.k8s.io"),
}
_NODE_DEFAULTS = {CPU: "64", MEMORY: "256Gi", PODS: "110"}


def node(
    name: str, *, allocatable: tuple[tuple[str, str], ...], labels: dict[str, str], taints: list[Manifest], unschedulable: bool
) -> Manifest:
    amounts = {**_NODE_DEFAULTS, **dict(allocatable)}
    spec: Manifest = {"taints": taints} if taints else {}
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def queue(name: str, *, spec: Manifest, state: str, annotations: Manifest) -> Manifest:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
        "status": {"state": state},
    }


def priority_class(
    name: str, *, value: int, is_default: bool = False, preempts: bool = True, annotations: Manifest | None = None
) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "annotations": annotations or {}},
        "value": value,
        "globalDefault": is_default,
        "preemptionPolicy": "PreemptLowerPriority" if preempts else "Never",
    }


def priority_class_for(priority: int) -> Manifest:
    """The priority class for a plain number."""
    name = f"priority-{priority}" if priority >= 0 else f"priority-minus-{-priority}"
    return priority_class(name, value=priority)


# -- gangs -------------------------------------------------------------------------------------------------------------------------


def pod_group_kind(gang: GangSpec) -> str:
    """The kind of its PodGroup with its API group; empty where it has none."""
    return _POD_GROUP_KINDS[gang.flavour][1] if gang.flavour in _POD_GROUP_KINDS else ""


def group(gang: GangSpec, *, now: float) -> Manifest | None:
    """The PodGroup, in the gang's API flavour."""
    if gang.flavour not in _POD_GROUP_KINDS:
        return None
    annotations = dict(gang.annotations)
    if gang.queue and gang.flavour != "volcano":
        annotations[names.VOLCANO_QUEUE_NAME] = gang.queue
    metadata: Manifest = {
        "name": gang.name,
        "namespace": gang.namespace,
        "creationTimestamp": rfc3339(now - gang.age_s),
    }
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": _POD_GROUP_KINDS[gang.flavour][0],
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": _pod_group_spec(gang),
    }


def _pod_group_spec(gang: GangSpec) -> Manifest:
    if gang.flavour == "native":
        spec: Manifest = {"schedulingPolicy": {"gang": {"minCount": gang.min}}}
    else:
        spec = {"minMember": gang.min}
    if gang.priority_class_name:
        spec["priorityClassName"] = gang.priority_class_name
    if gang.flavour == "volcano":
        if gang.queue:
            spec["queue"] = gang.queue
        if gang.roles[0].name:
            spec["minTaskMember"] = {role.name: role.min for role in gang.roles}
        if gang.topology is not None:
            spec["networkTopology"] = gang.topology
    return {**spec, **gang.pod_group_spec}


def gang_manifests(gang: GangSpec, *, now: float) -> Iterator[Manifest]:
    """Its priority class and its PodGroup, where it has them, and the members that exist from the beginning."""
    yield from (manifest for manifest in (gang.priority_class, group(gang, now=now)) if manifest is not None)
    for role in gang.roles:
        for number in range(role.existing):
            yield pod(gang, role, number, now=now)


def pod(gang: GangSpec, role: RoleSpec, number: int, *, now: float) -> Manifest:
    labels = {SCENARIO_GANG_LABEL: gang.name, **role.template.labels}
    annotations = {**gang.pod_annotations, **role.template.annotations}
    spec = {**_scheduling_spec(gang), **role.template.spec}
    _set_membership(gang, role, labels=labels, annotations=annotations, spec=spec)
    made: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(gang.name, role.name, number),
            "namespace": gang.namespace,
            "creationTimestamp": rfc3339(now - gang.age_s),
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
    }
    if gang.recreate:
        made["metadata"]["ownerReferences"] = [_owner(gang)]
    if number < len(role.running_on):
        spec["nodeName"] = role.running_on[number]
        made["status"] = {"phase": "Running", "startTime": rfc3339(now - gang.age_s)}
    return made


def _owner(gang: GangSpec) -> Manifest:
    """The controller that creates its members anew."""
    uid = f"{gang.namespace}-{gang.name}-controller"
    return {"apiVersion": "batch/v1", "kind": "Job", "name": gang.name, "uid": uid, "controller": True}


def _scheduling_spec(gang: GangSpec) -> Manifest:
    spec: Manifest = {"schedulerName": gang.scheduler_name}
    if gang.priority_class_name:
        spec["priorityClassName"] = gang.priority_class_name
    if gang.priority is not None:
        spec["priority"] = gang.priority
    return spec


def _set_membership(gang: GangSpec, role: RoleSpec, *, labels: dict[str, str], annotations: Manifest, spec: Manifest) -> None:
    """Mark the pod as a member of its gang, as the API flavour has it."""
    match gang.flavour:
        case "volcano":
            annotations[names.VOLCANO_GROUP_NAME] = gang.name
            if role.name:
                annotations[names.VOLCANO_TASK] = role.name
        case "koordinator":
            labels[names.SIGS_POD_GROUP] = gang.name
        case "sigs":
            labels[names.X_K8S_POD_GROUP] = gang.name
        case "native":
            spec["schedulingGroup"] = {"podGroupName": gang.name}
        case "annotation":
            annotations.update(gang.annotations)
            annotations[names.GANG_NAME] = gang.name
            annotations[names.GANG_MIN_AVAILABLE] = str(gang.min)
    if gang.queue and gang.flavour != "volcano":
        annotations[names.VOLCANO_QUEUE_NAME] = gang.queue


def behaviour_annotations(behaviour: dict[str, float | str | None]) -> Manifest:
    """How the simulated cluster runs a pod; None is the default."""
    return {f"{BEHAVIOUR_PREFIX}{name}": _number_text(value) for name, value in behaviour.items() if value is not None}


def _number_text(value: float | str) -> str:
    return str(value) if isinstance(value, str) or value != int(value) else str(int(value))
