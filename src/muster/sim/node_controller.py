"""The node lifecycle controller: nodes fail and recover, and the pods of failed nodes are deleted.

A failed node is tainted at once. Its pods are deleted after `pod_eviction_timeout_s`, or after their own toleration seconds.
The pods of a node whose object was deleted are deleted after the same time: no kubelet is left to terminate them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from muster.kube.read.object_references import ApiObjectRef, Manifest, ManifestView, node_ref
from muster.kube.read.pod_index import PodIndex
from muster.kube.write.merge_patch import merged
from muster.kube.write.patch_bodies import STATUS_FALSE, STATUS_TRUE, conditions_patch, rfc3339
from muster.kube.write.status_updates import conditions
from muster.model.node import Node
from muster.model.pod import Pod
from muster.model.pod_constraints import Taint, TaintEffect, Toleration
from muster.sim.object_store import ChangeType, NotFound, ObjectStore
from muster.sim.simulated_kubelet import SimulatedKubelet
from muster.sim.virtual_clock import VirtualClock

UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"


class _Deletion(NamedTuple):
    """Of a pod with this UID, for a taint of its node, or None where the node does not exist any more."""

    ref: ApiObjectRef
    uid: str
    node: str
    taint: Taint | None


class NodeController:
    def __init__(
        self, store: ObjectStore, clock: VirtualClock, index: PodIndex, kubelet: SimulatedKubelet, *, pod_eviction_timeout_s: float
    ) -> None:
        self._store = store
        self._clock = clock
        self._index = index
        self._kubelet = kubelet
        self._pod_eviction_timeout_s = pod_eviction_timeout_s
        self._no_execute_by_node: dict[str, tuple[Taint, ...]] = {}
        """Taints of each node that drive pods away."""
        self._scheduled_deletions: set[_Deletion] = set()
        self._removed_nodes: dict[str, Manifest] = {}
        """Nodes that failed so badly that their objects were removed, as they were."""

    # -- what others do to nodes -----------------------------------------------------------------------------------------------

    def fail(self, name: str, *, gone: bool, pods_stuck: bool) -> None:
        ref = node_ref(name)
        node = self._store.get(ref)
        self._kubelet.unreachable[name] = pods_stuck
        if gone:
            self._removed_nodes[name] = node
            self._store.delete(ref)
        else:
            self._store.patch(ref, self._unreachable_patch(node))

    def recover(self, name: str) -> None:
        if name not in self._kubelet.unreachable:
            raise NotFound(f"Node {name} did not fail")
        del self._kubelet.unreachable[name]
        removed = self._removed_nodes.pop(name, None)
        ref = node_ref(name)
        if removed is not None and self._store.peek(ref) is None:
            self._store.create(merged(_reregistered(removed), self._reachable_patch(removed)))
        else:
            self._store.patch(ref, self._reachable_patch(self._store.get(ref)))
            self._kubelet.sync_node(name)

    def _unreachable_patch(self, node: Manifest) -> Manifest:
        effects = (TaintEffect.NO_SCHEDULE.value, TaintEffect.NO_EXECUTE.value)
        added = [{"key": UNREACHABLE_TAINT, "effect": effect, "timeAdded": rfc3339(self._clock.now)} for effect in effects]
        return {
            "spec": {"taints": [*_other_taints(node), *added]},
            **self._ready_condition_patch(node, status=STATUS_FALSE, reason="NodeStatusUnknown"),
        }

    def _reachable_patch(self, node: Manifest) -> Manifest:
        taints = _other_taints(node)
        return {"spec": {"taints": taints or None}, **self._ready_condition_patch(node, status=STATUS_TRUE, reason="KubeletReady")}

    def _ready_condition_patch(self, node: Manifest, *, status: str, reason: str) -> Manifest:
        entry = {"type": "Ready", "status": status, "reason": reason}
        return conditions_patch([entry], present=conditions(node), now=self._clock.now)

    # -- what follows for their pods -------------------------------------------------------------------------------------------

    def on_node_change(self, what: ChangeType, node: Node) -> None:
        name = node.name
        if what is ChangeType.DELETED:
            self._no_execute_by_node.pop(name, None)
            for ref, pod in self._index.on(name):
                self._delete_orphan(ref, pod, node=name)
            return
        if what is ChangeType.ADDED:
            # Whoever brought the node, its kubelet answers.
            self._kubelet.unreachable.pop(name, None)
            self._removed_nodes.pop(name, None)
        self._no_execute_by_node[name] = tuple(taint for taint in node.taints if taint.effect is TaintEffect.NO_EXECUTE)
        for ref, pod in self._index.on(name) if self._no_execute_by_node[name] else ():
            self._delete_for_taints(ref, pod, node=name)

    def on_change(self, what: ChangeType, ref: ApiObjectRef, pod: Pod) -> None:
        if what is ChangeType.DELETED or pod.node is None:
            return
        if self._no_execute_by_node.get(pod.node):
            self._delete_for_taints(ref, pod, node=pod.node)
        elif self._store.peek(node_ref(pod.node)) is None:
            self._delete_orphan(ref, pod, node=pod.node)

    def _delete_for_taints(self, ref: ApiObjectRef, pod: Pod, *, node: str) -> None:
        manifest = self._store.peek(ref)
        if manifest is None or pod.deleted_at is not None:
            return
        for taint in self._no_execute_by_node[node]:
            stays_s = _toleration_s(manifest, taint, pod_eviction_timeout_s=self._pod_eviction_timeout_s)
            if stays_s is not None:
                deletion = _Deletion(ref, pod.uid, node, taint)
                self._schedule(deletion, pod, after_s=stays_s)

    def _delete_orphan(self, ref: ApiObjectRef, pod: Pod, *, node: str) -> None:
        self._schedule(_Deletion(ref, pod.uid, node, None), pod, after_s=self._pod_eviction_timeout_s)

    def _schedule(self, deletion: _Deletion, pod: Pod, *, after_s: float) -> None:
        if deletion not in self._scheduled_deletions and not pod.finished:
            self._scheduled_deletions.add(deletion)
            self._clock.call_after(after_s, lambda: self._delete(deletion))

    def _delete(self, deletion: _Deletion) -> None:
        """Unless its cause is gone, or the pod ended: whoever counts it can still see how it ended."""
        self._scheduled_deletions.discard(deletion)
        ref, uid, node, taint = deletion
        found = self._store.peek(ref)
        if found is None or found["metadata"]["uid"] != uid:
            return
        is_due = self._store.peek(node_ref(node)) is None if taint is None else taint in self._no_execute_by_node.get(node, ())
        if is_due and (found.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            self._store.delete(ref, uid=uid, grace_s=0 if taint is None else None)


def _reregistered(node: Manifest) -> Manifest:
    """A node that registers again: the same machine, another object."""
    metadata = {key: value for key, value in node["metadata"].items() if key in ("name", "labels", "annotations")}
    return {**node, "metadata": metadata}


def _other_taints(node: Manifest) -> list[Any]:
    return [taint for taint in (node.get("spec") or {}).get("taints") or [] if taint.get("key") != UNREACHABLE_TAINT]


def _toleration_s(pod: ManifestView, taint: Taint, *, pod_eviction_timeout_s: float) -> float | None:
    """How long a pod stays on a node with this taint; None for as long as it likes."""
    tolerations = [written for written in (pod["spec"].get("tolerations") or []) if _toleration(written).tolerates(taint)]
    if not tolerations:
        return pod_eviction_timeout_s if taint.key == UNREACHABLE_TAINT else 0.0
    bounds = [max(0.0, float(written["tolerationSeconds"])) for written in tolerations if "tolerationSeconds" in written]
    return min(bounds, default=None)


def _toleration(written: ManifestView) -> Toleration:
    effect = written.get("effect")
    return Toleration(
        key=written.get("key") or "",
        operator=written.get("operator") or "Equal",
        value=written.get("value") or "",
        effect=TaintEffect(effect) if effect else None,
    )
