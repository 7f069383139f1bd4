"""The watched resources: names and API paths only, no requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from muster.kube.read import names

LEASE_GROUP: Final = "coordination.k8s.io"


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One kind of object. `versions` are those that can be decoded, the best first; a cluster may not serve an `optional` one."""

    group: str
    kind: str
    plural: str
    versions: tuple[str, ...]
    namespaced: bool
    optional: bool
    only_namespace: str = ""
    """Objects of other namespaces are not read."""

    @property
    def key(self) -> tuple[str, str]:
        return self.group, self.kind

    def api_version(self, version: str) -> str:
        """The `apiVersion` of an object of this version."""
        return f"{self.group}/{version}" if self.group else version

    def path(self, version: str, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Of one object, or of the collection without a name, or of a subresource such as the status."""
        root = f"/apis/{self.group}/{version}" if self.group else f"/api/{version}"
        namespace = namespace or self.only_namespace
        place = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}{place}/{self.plural}{tail}"


def _builtin(group: str, kind: str, plural: str, *, namespaced: bool = False) -> ApiResource:
    return ApiResource(group, kind, plural, ("v1",), namespaced, optional=False)


def _custom(group: str, kind: str, plural: str, *versions: str, namespaced: bool = True) -> ApiResource:
    return ApiResource(group, kind, plural, versions, namespaced, optional=True)


_OWN_VERSION: Final = "v1alpha1"

# Objects that others refer to come first.
WATCHED: Final = (
    ApiResource(names.MUSTER_GROUP, "Plan", "plans", (_OWN_VERSION,), namespaced=True, optional=False),
    ApiResource(names.MUSTER_GROUP, "History", "histories", (_OWN_VERSION,), namespaced=True, optional=False),
    _builtin(names.CORE_GROUP, "Namespace", "namespaces"),
    _builtin(names.NATIVE_GROUP, "PriorityClass", "priorityclasses"),
    _builtin(names.CORE_GROUP, "Node", "nodes"),
    _custom(names.VOLCANO_TOPOLOGY_GROUP, "HyperNode", "hypernodes", "v1alpha1", namespaced=False),
    _builtin(names.STORAGE_GROUP, "StorageClass", "storageclasses"),
    _builtin(names.STORAGE_GROUP, "CSINode", "csinodes"),
    _custom(names.KOORDINATOR_GROUP, "Device", "devices", "v1alpha1", namespaced=False),
    _builtin(names.CORE_GROUP, "PersistentVolume", "persistentvolumes"),
    _builtin(names.CORE_GROUP, "PersistentVolumeClaim", "persistentvolumeclaims", namespaced=True),
    _custom(names.VOLCANO_GROUP, "Queue", "queues", "v1beta1", namespaced=False),
    _custom(names.SIGS_GROUP, "ElasticQuota", "elasticquotas", "v1alpha1"),
    _custom(names.X_K8S_GROUP, "ElasticQuota", "elasticquotas", "v1alpha1"),
    _custom(names.VOLCANO_GROUP, "PodGroup", "podgroups", "v1beta1"),
    _custom(names.SIGS_GROUP, "PodGroup", "podgroups", "v1alpha1"),
    _custom(names.X_K8S_GROUP, "PodGroup", "podgroups", "v1alpha1"),
    _custom(names.NATIVE_GROUP, "CompositePodGroup", "compositepodgroups", "v1beta1", "v1alpha3"),
    # Kubernetes 1.36 serves v1alpha2; 1.37 serves the other two.
    _custom(names.NATIVE_GROUP, "PodGroup", "podgroups", "v1beta1", "v1alpha3", "v1alpha2"),
    _builtin(names.POLICY_GROUP, "PodDisruptionBudget", "poddisruptionbudgets", namespaced=True),
    _builtin(names.CORE_GROUP, "Pod", "pods", namespaced=True),
)

LEASE: Final = _builtin(LEASE_GROUP, "Lease", "leases", namespaced=True)

_BY_KIND = {resource.key: resource for resource in (*WATCHED, LEASE)}


def resource_of(group: str, kind: str) -> ApiResource:
    """The resource of a kind that is watched, or the Lease."""
    return _BY_KIND[group, kind]
