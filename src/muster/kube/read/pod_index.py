"""Which pods stand on which node and gather in which slot. Follows the objects; holds nothing that they do not say."""

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
        self._by_gang_key.setdefault(gang_key_of(pod), {})[ref] = pod

    def drop(self, ref: ApiObjectRef, *, uid: str = "") -> None:
        """The pod is gone. `uid`: only if it is that one, and not another of the same name."""
        before = self._pods.get(ref)
        if before is None or (uid and before.uid != uid):
            return
        del self._pods[ref]
        _drop(self._on_node, before.node or "", ref)
        _drop(self._by_gang_key, gang_key_of(before), ref)

    def on(self, node: str) -> list[tuple[ApiObjectRef, Pod]]:
        """The pods bound to a node, by name."""
        return sorted(self._on_node.get(node, {}).items())

    def gang_pods(self, gang_key: str) -> list[ApiObjectRef]:
        """The pods of a slot such as `volcano:team-a/train`, or of all slots with a title such as `team-a/train`."""
        if ":" in gang_key:
            return sorted(self._by_gang_key.get(gang_key, ()))
        namespace, _, name = gang_key.partition("/")
        alone = self._pods.get(ApiObjectRef(*POD, namespace, name))
        found = [ref for family in FAMILIES for ref in self.gang_pods(f"{family}:{gang_key}")]
        return [ApiObjectRef(*POD, namespace, name), *found] if alone is not None and alone.membership is None else found


def gang_key_of(pod: Pod) -> str:
    """The place where pods of one declared gang gather, as gangs are named by it."""
    if pod.membership is None:
        return f"pod:{pod.uid}"
    return f"{pod.membership.flavour.family}:{pod.namespace}/{pod.membership.name}"


def _drop(places: dict[str, dict[ApiObjectRef, Pod]], place: str, ref: ApiObjectRef) -> None:
    here = places[place]
    del here[ref]
    if not here:
        del places[place]
