"""Which API object is meant: plain names that all who hold objects share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from muster.adapters.kube import names

Manifest = dict[str, Any]
Stored = Mapping[str, Any]
"""A manifest to look at. Whoever wants another one makes it with `merged`."""

KindKey = tuple[str, str]
"""API group and kind."""

POD: Final[KindKey] = (names.CORE_GROUP, "Pod")
NODE: Final[KindKey] = (names.CORE_GROUP, "Node")
VOLUME: Final[KindKey] = (names.CORE_GROUP, "PersistentVolume")
VOLUME_CLAIM: Final[KindKey] = (names.CORE_GROUP, "PersistentVolumeClaim")
BUDGET: Final[KindKey] = (names.POLICY_GROUP, "PodDisruptionBudget")
HYPERNODE: Final[KindKey] = (names.VOLCANO_TOPOLOGY_GROUP, "HyperNode")
QUEUE: Final[KindKey] = (names.VOLCANO_GROUP, "Queue")
QUOTAS: Final[tuple[KindKey, ...]] = ((names.SIGS_GROUP, "ElasticQuota"), (names.X_K8S_GROUP, "ElasticQuota"))
GROUP_KIND: Final = "PodGroup"


class Ref(NamedTuple):
    """Which object: one name exists once in each kind and namespace. `namespace` is empty for objects of the whole cluster."""

    group: str
    kind: str
    namespace: str
    name: str

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@lru_cache(maxsize=8192)
def pod_ref(title: str) -> Ref:
    """Asked for several times in the course of one deed."""
    namespace, _, name = title.rpartition("/")
    return Ref(*POD, namespace, name)


def claim_ref(key: str) -> Ref:
    """The PersistentVolumeClaim of this namespace/name."""
    namespace, _, name = key.partition("/")
    return Ref(*VOLUME_CLAIM, namespace, name)


def volume_ref(name: str) -> Ref:
    return Ref(*VOLUME, "", name)


def node_ref(name: str) -> Ref:
    return Ref(*NODE, "", name)
