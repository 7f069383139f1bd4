"""Manifests for tests of the simulated cluster: the shortest that say what a test needs."""

from __future__ import annotations

from typing import Any

from muster.model.effects import Bind, Evict
from muster.model.events import Delete, Event, Upsert
from muster.model.pod import Pod
from muster.sim.cluster import SimCluster

Manifest = dict[str, Any]


def node(name: str = "n1", *, cpu: int = 8, gpu: int = 0, taints: list[Manifest] | None = None, **labels: str) -> Manifest:
    capacity = {"cpu": str(cpu), "memory": "64Gi", **({"nvidia.com/gpu": str(gpu)} if gpu else {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints} if taints else {},
        "status": {"capacity": capacity},
    }


def pod(
    name: str = "a",
    *,
    namespace: str = "default",
    cpu: int = 1,
    at: str = "",
    gang: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, Any] | None = None,
    spec: Manifest | None = None,
    **behaviour: object,
) -> Manifest:
    """`behaviour` are annotations of the embedded cluster: `run_seconds=5` is `sim.muster.dev/run-seconds: "5"`."""
    wanted = {f"sim.muster.dev/{key.replace('_', '-')}": str(value) for key, value in behaviour.items()}
    member = {"scheduling.k8s.io/group-name": gang} if gang else {}
    containers = [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels or {},
            "annotations": {**wanted, **member, **(annotations or {})},
        },
        "spec": {"schedulerName": "muster", "containers": containers, **({"nodeName": at} if at else {}), **(spec or {})},
    }


def pod_group(name: str = "g", *, flavour: str = "volcano", min_member: int = 2, namespace: str = "default") -> Manifest:
    api_version = {
        "volcano": "scheduling.volcano.sh/v1beta1",
        "koordinator": "scheduling.sigs.k8s.io/v1alpha1",
        "sigs": "scheduling.x-k8s.io/v1alpha1",
        "native": "scheduling.k8s.io/v1beta1",
    }[flavour]
    spec = {"schedulingPolicy": {"gang": {"minCount": min_member}}} if flavour == "native" else {"minMember": min_member}
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def budget(name: str = "b", **spec: object) -> Manifest:
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}


def uid_of(cluster: SimCluster, name: str, *, namespace: str = "default") -> str:
    uid: str = found(cluster, "Pod", name, namespace=namespace)["metadata"]["uid"]
    return uid


def found(cluster: SimCluster, kind: str, name: str, *, namespace: str = "default") -> Manifest:
    manifest = cluster.get(kind, namespace, name)
    assert manifest is not None, f"{kind} {namespace}/{name} does not exist"
    return manifest


def phase(cluster: SimCluster, name: str) -> str:
    """The pod's phase, `leaving` while it is asked to go, `gone` when it is not there."""
    manifest = cluster.get("Pod", "default", name)
    if manifest is None:
        return "gone"
    text: str = manifest["status"]["phase"]
    return "leaving" if "deletionTimestamp" in manifest["metadata"] else text


def bind(cluster: SimCluster, name: str, *, to: str = "n1", uid: str = "") -> Bind:
    return Bind(uid or uid_of(cluster, name), f"default/{name}", to, f"default/{name}", "it fits")


def evict(cluster: SimCluster, name: str, *, manner: str = "delete") -> Evict:
    uid = uid_of(cluster, name)
    return Evict(uid, f"default/{name}", "n1", f"default/{name}", "default/hi", "default/hi needs cpu 4", "Preempted", manner)


def pods_in(events: list[Event]) -> list[str]:
    """The pods that events are about: names of those seen, UIDs of those gone."""
    seen = [event.obj.name for event in events if isinstance(event, Upsert) and isinstance(event.obj, Pod)]
    return [*seen, *(event.key for event in events if isinstance(event, Delete) and event.kind == "Pod")]
