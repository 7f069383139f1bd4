"""From the short form to Kubernetes objects: what `kubectl apply` would be given. Nothing here talks to a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from math import inf

from muster.adapters.kube import names
from muster.model.resources import CPU, MEMORY, PODS
from muster.scenario.story import Amounts, GangSpec, Manifest, RoleSpec, Template

DIALECTS = ("volcano", "koordinator", "sigs", "native", "annotation", "lone")
GANG_LABEL = "sim.muster.dev/gang"
"""Label of every pod that a short form made: to which of the scenario's gangs it belongs."""

_WISH = "sim.muster.dev/"
_GROUP = {
    "volcano": ("scheduling.volcano.sh/v1beta1", "PodGroup.scheduling.volcano.sh"),
    "koordinator": ("scheduling.sigs.k8s.io/v1alpha1", "PodGroup.scheduling.sigs.k8s.io"),
    "sigs": ("scheduling.x-k8s.io/v1alpha1", "PodGroup.scheduling.x-k8s.io"),
    "native": ("scheduling.k8s.io/v1alpha2", "PodGroup.scheduling.k8s.io"),
}
_NODE_DEFAULTS = {CPU: "64", MEMORY: "256Gi", PODS: "110"}


def node(name: str, *, room: Amounts, labels: dict[str, str], taints: list[Manifest], cordoned: bool) -> Manifest:
    amounts = {**_NODE_DEFAULTS, **dict(room)}
    spec: Manifest = {"taints": taints} if taints else {}
    if cordoned:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def queue(name: str, *, spec: Manifest, state: str) -> Manifest:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"state": state},
    }


def priority_class(name: str, *, value: int, is_default: bool = False, preempts: bool = True) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "globalDefault": is_default,
        "preemptionPolicy": "PreemptLowerPriority" if preempts else "Never",
    }


def class_of(gang: GangSpec) -> Manifest | None:
    """The class that stands for a gang's bare number, if it has one."""
    return None if gang.priority is None or gang.class_name else priority_class(class_name_of(gang), value=gang.priority)


def class_name_of(gang: GangSpec) -> str:
    if gang.class_name or gang.priority is None:
        return gang.class_name
    return f"priority-{gang.priority}" if gang.priority >= 0 else f"priority-minus-{-gang.priority}"


# -- gangs -------------------------------------------------------------------------------------------------------------------------


def group_kind(gang: GangSpec) -> str:
    """The kind of its PodGroup as a cluster is asked for it; empty where it has none."""
    return _GROUP[gang.dialect][1] if gang.dialect in _GROUP else ""


def group(gang: GangSpec, *, now: float) -> Manifest | None:
    """The PodGroup, in the dialect that the gang speaks."""
    if gang.dialect not in _GROUP:
        return None
    annotations = _gang_annotations(gang)
    if gang.queue and gang.dialect != "volcano":
        annotations[names.VOLCANO_QUEUE_NAME] = gang.queue
    metadata: Manifest = {"name": gang.name, "namespace": gang.namespace, "creationTimestamp": stamp(now + gang.created_s)}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": _GROUP[gang.dialect][0], "kind": "PodGroup", "metadata": metadata, "spec": _group_spec(gang)}


def _group_spec(gang: GangSpec) -> Manifest:
    if gang.dialect == "native":
        spec: Manifest = {"schedulingPolicy": {"gang": {"minCount": gang.min}}}
    else:
        spec = {"minMember": gang.min}
    if class_name_of(gang):
        spec["priorityClassName"] = class_name_of(gang)
    if gang.dialect == "volcano":
        if gang.queue:
            spec["queue"] = gang.queue
        if gang.roles[0].name:
            spec["minTaskMember"] = {role.name: role.min for role in gang.roles}
        if gang.topology is not None:
            spec["networkTopology"] = gang.topology
    return spec


def _gang_annotations(gang: GangSpec) -> Manifest:
    said = {
        names.GANG_MODE: gang.mode,
        names.GANG_WAITING_TIME: gang.wait,
        names.GANG_MATCH_POLICY: gang.match,
        names.GANG_TOTAL_NUMBER: "" if gang.total is None else str(gang.total),
    }
    annotations: Manifest = {name: value for name, value in said.items() if value}
    if gang.group:
        annotations[names.GANG_GROUPS] = json.dumps(gang.group)
    return annotations


def pods(gang: GangSpec, *, now: float) -> Iterator[Manifest]:
    """The members that exist from the beginning."""
    for role in gang.roles:
        for number in range(role.arrived):
            yield pod(gang, role, number, now=now)


def pod(gang: GangSpec, role: RoleSpec, number: int, *, now: float) -> Manifest:
    template = role.template
    labels, annotations = {GANG_LABEL: gang.name, **template.labels}, {**_wishes(gang, template), **template.annotations}
    spec = _pod_spec(gang, template)
    _join(gang, role, labels=labels, annotations=annotations, spec=spec)
    made: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(gang.name, role.name, number),
            "namespace": gang.namespace,
            "creationTimestamp": stamp(now + gang.created_s),
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
    }
    if number < len(role.at):
        spec["nodeName"] = role.at[number]
        made["status"] = {"phase": "Running", "startTime": stamp(now + gang.created_s)}
    return made


def pod_name(gang: str, role: str, number: int) -> str:
    return f"{gang}-{role}-{number}" if role else f"{gang}-{number}"


def _pod_spec(gang: GangSpec, template: Template) -> Manifest:
    spec: Manifest = {
        "schedulerName": gang.scheduler,
        "containers": [{"name": "main", "resources": {"requests": dict(template.each)}}],
    }
    if class_name_of(gang):
        spec["priorityClassName"] = class_name_of(gang)
    if gang.priority is not None:
        spec["priority"] = gang.priority
    if template.selector:
        spec["nodeSelector"] = template.selector
    if template.tolerations:
        spec["tolerations"] = list(template.tolerations)
    if template.affinity:
        spec["affinity"] = template.affinity
    return {**spec, **template.spec}


def _join(gang: GangSpec, role: RoleSpec, *, labels: dict[str, str], annotations: Manifest, spec: Manifest) -> None:
    """Say to which gang the pod belongs, as the dialect has it."""
    match gang.dialect:
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
            annotations.update(_gang_annotations(gang))
            annotations[names.GANG_NAME] = gang.name
            annotations[names.GANG_MIN_AVAILABLE] = str(gang.min)
    if gang.queue and gang.dialect != "volcano":
        annotations[names.VOLCANO_QUEUE_NAME] = gang.queue


def _wishes(gang: GangSpec, template: Template) -> Manifest:
    """What the simulated cluster should do with the pod."""
    leaves = template.leaves_s
    said: Manifest = {
        "run-seconds": _seconds(template.runs_s),
        "exit": "failed" if template.ends == "Failed" else None,
        "start-seconds": _seconds(template.starts_s),
        "leave-seconds": "never" if leaves == inf else _seconds(leaves),
        "controller": "recreate" if gang.recreate else None,
        "recreate-after": _seconds(gang.recreate_after_s),
        "recreate-limit": None if gang.recreate_limit is None else str(gang.recreate_limit),
    }
    return {f"{_WISH}{wish}": value for wish, value in said.items() if value is not None}


def _seconds(value: float | None) -> str | None:
    if value is None:
        return None
    return str(int(value)) if value == int(value) else repr(value)


def stamp(when: float) -> str:
    """A time as Kubernetes writes it."""
    return datetime.fromtimestamp(when, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
