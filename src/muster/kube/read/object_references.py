"""References to API objects: group, kind, namespace and name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from muster.kube.read import names

Manifest = dict[str, Any]
ManifestView = Mapping[str, Any]
"""A read-only manifest; `merged` makes a changed one."""

GroupKind = tuple[str, str]
"""API group and kind."""

POD: Final[GroupKind] = (names.CORE_GROUP, "Pod")
NODE: Final[GroupKind] = (names.CORE_GROUP, "Node")
VOLUME: Final[GroupKind] = (names.CORE_GROUP, "PersistentVolume")
VOLUME_CLAIM: Final[GroupKind] = (names.CORE_GROUP, "PersistentVolumeClaim")
BUDGET: Final[GroupKind] = (names.POLICY_GROUP, "PodDisruptionBudget")
HYPERNODE: Final[GroupKind] = (names.VOLCANO_TOPOLOGY_GROUP, "HyperNode")
QUEUE: Final[GroupKind] = (names.VOLCANO_GROUP, "Queue")
QUOTAS: Final[tuple[GroupKind, ...]] = ((names.SIGS_GROUP, "ElasticQuota"), (names.X_K8S_GROUP, "ElasticQuota"))
POD_GROUP_KIND: Final = "PodGroup"
COMPOSITE_KIND: Final = "CompositePodGroup"


class ApiObjectRef(NamedTuple):
    """One API object. `namespace` is empty for cluster-scoped objects."""

    group: str
    kind: str
    namespace: str
    name: str

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@lru_cache(maxsize=8192)
def pod_ref(full_name: str) -> ApiObjectRef:
    """Cached: it is needed several times for each effect."""
    namespace, _, name = full_name.rpartition("/")
    return ApiObjectRef(*POD, namespace, name)


def volume_claim_ref(key: str) -> ApiObjectRef:
    """The PersistentVolumeClaim of this namespace/name."""
    namespace, _, name = key.partition("/")
    return ApiObjectRef(*VOLUME_CLAIM, namespace, name)


def volume_ref(name: str) -> ApiObjectRef:
    return ApiObjectRef(*VOLUME, "", name)


def node_ref(name: str) -> ApiObjectRef:
    return ApiObjectRef(*NODE, "", name)
