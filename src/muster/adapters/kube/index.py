"""Which pods stand on which node and gather in which slot. Follows the objects; holds nothing that they do not say."""

from __future__ import annotations

from muster.adapters.kube.refs import POD, Ref
from muster.model.pod import Pod

FAMILIES = ("volcano", "koordinator", "sigs", "native")


class PodIndex:
    def __init__(self) -> None:
        self._on_node: dict[str, dict[Ref, Pod]] = {}
        self._in_slot: dict[str, dict[Ref, Pod]] = {}
        self._pods: dict[Ref, Pod] = {}

    def put(self, ref: Ref, pod: Pod) -> None:
        self.drop(ref)
        self._pods[ref] = pod
        self._on_node.setdefault(pod.node or "", {})[ref] = pod
        self._in_slot.setdefault(slot_of(pod), {})[ref] = pod

    def drop(self, ref: Ref, *, uid: str = "") -> None:
        """The pod is gone. `uid`: only if it is that one, and not another of the same name."""
        before = self._pods.get(ref)
        if before is None or (uid and before.uid != uid):
            return
        del self._pods[ref]
        _drop(self._on_node, before.node or "", ref)
        _drop(self._in_slot, slot_of(before), ref)

    def on(self, node: str) -> list[tuple[Ref, Pod]]:
        """The pods bound to a node, by name."""
        return sorted(self._on_node.get(node, {}).items())

    def gathered(self, slot: str) -> list[Ref]:
        """The pods of a slot such as `volcano:team-a/train`, or of all slots with a title such as `team-a/train`."""
        if ":" in slot:
            return sorted(self._in_slot.get(slot, ()))
        namespace, _, name = slot.partition("/")
        alone = self._pods.get(Ref(*POD, namespace, name))
        found = [ref for family in FAMILIES for ref in self.gathered(f"{family}:{slot}")]
        return [Ref(*POD, namespace, name), *found] if alone is not None and alone.membership is None else found


def slot_of(pod: Pod) -> str:
    """The place where pods of one declared gang gather, as gangs are named by it."""
    if pod.membership is None:
        return f"pod:{pod.uid}"
    return f"{pod.membership.dialect.family}:{pod.namespace}/{pod.membership.name}"


def _drop(places: dict[str, dict[Ref, Pod]], place: str, ref: Ref) -> None:
    here = places[place]
    del here[ref]
    if not here:
        del places[place]
