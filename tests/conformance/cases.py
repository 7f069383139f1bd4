"""Small cases in the corpus's own format, for what the corpus does not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.conformance.corpus import Case, Json

EVERYTHING = ("priority", "gang", "conformance", "predicates", "proportion", "network-topology-aware", "binpack")
RECLAIMING = ("priority", "gang", "conformance", "predicates", "capacity", "network-topology-aware", "binpack")
_ON = (
    "enableJobOrder", "enableJobReady", "enableJobPipelined", "enableJobStarving", "enableTaskOrder", "enablePreemptable",
    "enableReclaimable", "enablePreemptive", "enableQueueOrder", "enablePredicate", "enableNodeOrder", "enabledAllocatable",
    "enabledOverused", "enabledHyperNodeOrder", "enabledHyperNodeGradient",
)  # fmt: skip


def node(name: str, *, gpu: int, **labels: str) -> Json:
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpu)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": allocatable},
    }


def pods(group: str, count: int, *, gpu: int, on: str = "", start: int = 0, **spec: object) -> list[Json]:
    return [_pod(f"{group}-{i}", group, gpu=gpu, on=on, spec=spec) for i in range(start, start + count)]


def _pod(name: str, group: str, *, gpu: int, on: str, spec: Json) -> Json:
    container = {"name": "c0", "resources": {"requests": {"nvidia.com/gpu": str(gpu)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"ns-{name}",
            "annotations": {"scheduling.k8s.io/group-name": group},
        },
        "spec": {"containers": [container], **({"nodeName": on} if on else {}), **spec},
        "status": {"phase": "Running" if on else "Pending"},
    }


def group(name: str, *, least: int, priority: str = "low", queue: str = "q", phase: str = "", **spec: object) -> Json:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"minMember": least, "priorityClassName": priority, "queue": queue, **spec},
        "status": {"phase": phase or "Inqueue"},
    }


def hypernode(name: str, *nodes: str) -> Json:
    members = [{"type": "Node", "selector": {"exactMatch": {"name": each}}} for each in nodes]
    spec = {"tier": 1, "members": members}
    return {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": name}, "spec": spec}


def queue(name: str, *, gpu: int = 0, parent: str = "") -> Json:
    spec: Json = {
        "weight": 1,
        **({"deserved": {"nvidia.com/gpu": str(gpu)}} if gpu else {}),
        **({"parent": parent} if parent else {}),
    }
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"state": "Open"},
    }


def with_deserved(written: Json, **amounts: str) -> Json:
    return {**written, "spec": {**written["spec"], "deserved": amounts}}


def _class(name: str, value: int) -> Json:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def case(
    *actions: str,
    nodes: Sequence[Json],
    groups: Sequence[Json],
    members: Sequence[Json],
    queues: Sequence[Json] = (),
    hypernodes: Sequence[Json] = (),
    actual: Json | None = None,
    plugins: Sequence[str] = EVERYTHING,
    off: Mapping[str, Sequence[str]] | None = None,
    **fields: object,
) -> Case:
    """A session with everything switched on but what is `off`, and what Volcano is said to have done."""
    flags = {name: {flag: flag not in (off or {}).get(name, ()) for flag in _ON} for name in plugins}
    written = {
        "id": "own/Case/00",
        "kind": "session",
        "actions": list(actions),
        "plugins": [[{"name": name, "enabled": flags[name]} for name in plugins]],
        "objects": {
            "nodes": list(nodes),
            "podgroups": list(groups),
            "pods": list(members),
            "queues": list(queues) or [queue("q")],
            "hypernodes": list(hypernodes),
            "priorityclasses": [_class("low", 10), _class("high", 1000)],
        },
        "stable": True,
        "actual": {"binds": {}, "evicted": [], **(actual or {})},
        **fields,
    }
    return Case(written, "own/Case")
