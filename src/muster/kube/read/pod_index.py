"""The pods of each node and of each gang key, as their objects have it."""

from __future__ import annotations

from muster.kube.read.object_references import POD, ApiObjectRef
from muster.model.pod import Pod

FAMILIES = ("volcano", "koordinator", "sigs", "native")


class PodIndex:
    def __init__(self) -> None:
        self._on_node: dict[str, dict[ApiObjectRef, Pod]] = {}
        self._by_gang_key: dict[str, dict[ApiObjectRef, Pod]] = {}
        self._pods: dict[ApiObjectRef, Pod] = {}

    def put(self, ref: ApiObjectRef, pod: Pod) -> None:
        self.drop(ref)
        self._pods[ref] = pod
        self._on_node.setdefault(pod.node or "", {})[ref] = pod
        self._by_gang_key.setdefault(pod.gang_key, {})[ref] = pod

    def drop(self, ref: ApiObjectRef, *, uid: str = "") -> None:
        """`uid`: only if it is this pod, and not another of the same name."""
        before = self._pods.get(ref)
        if before is None or (uid and before.uid != uid):
            return
        del self._pods[ref]
        _drop(self._on_node, before.node or "", ref)
        _drop(self._by_gang_key, before.gang_key, ref)

    def on(self, node: str) -> list[tuple[ApiObjectRef, Pod]]:
        """The pods bound to a node, by name."""
        return sorted(self._on_node.get(node, {}).items())

    def gang_pods(self, gang_key: str) -> list[ApiObjectRef]:
        """The pods of a gang key such as `volcano:team-a/train`, or of all gang keys with a title such as `team-a/train`."""
        if ":" in gang_key:
            return sorted(self._by_gang_key.get(gang_key, ()))
        namespace, _, name = gang_key.partition("/")
        single = self._pods.get(ApiObjectRef(*POD, namespace, name))
        found = [ref for family in FAMILIES for ref in self.gang_pods(f"{family}:{gang_key}")]
        return [ApiObjectRef(*POD, namespace, name), *found] if single is not None and single.membership is None else found


def _drop(index: dict[str, dict[ApiObjectRef, Pod]], key: str, ref: ApiObjectRef) -> None:
    pods = index[key]
    del pods[ref]
    if not pods:
        del index[key]
