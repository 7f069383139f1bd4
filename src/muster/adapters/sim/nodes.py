"""What happens to nodes: they fail and return, and the control plane clears away the pods of those that are lost.

A node that fails is tainted at once. Its pods stay a while (`lost_s`), or for as long as they tolerate that, and are then deleted.
A node whose object is gone takes its pods with it after the same while: nobody is left to ask.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from muster.adapters.kube.encode import NO, YES, conditions_patch, stamp
from muster.adapters.kube.index import PodIndex
from muster.adapters.kube.merge import merged
from muster.adapters.kube.refs import NODE, Manifest, Ref, Stored
from muster.adapters.sim.clock import Clock
from muster.adapters.sim.kubelet import Kubelet
from muster.adapters.sim.objects import NotFound, ObjectStore, What
from muster.model.pod import Pod
from muster.model.selectors import Taint, TaintEffect, Toleration

UNREACHABLE = "node.kubernetes.io/unreachable"

_Doom = tuple[str, str, str]
"""A pod's UID, and key and value of the taint that drives it away."""


class NodeController:
    def __init__(self, store: ObjectStore, clock: Clock, index: PodIndex, kubelet: Kubelet, *, lost_s: float) -> None:
        self._store = store
        self._clock = clock
        self._index = index
        self._kubelet = kubelet
        self._lost_s = lost_s
        self._taints: dict[str, tuple[Taint, ...]] = {}
        """Taints of each node that drive pods away."""
        self._doomed: set[_Doom] = set()
        self._removed: dict[str, Manifest] = {}
        """Nodes that failed so badly that their objects were removed, as they were."""

    # -- what others do to nodes -----------------------------------------------------------------------------------------------

    def fail(self, name: str, *, gone: bool, stuck: bool) -> None:
        ref = node_ref(name)
        node = self._store.get(ref)
        self._kubelet.down[name] = stuck
        if gone:
            self._removed[name] = node
            self._store.delete(ref)
        else:
            self._store.patch(ref, self._unreachable(node))

    def bring_back(self, name: str) -> None:
        if name not in self._kubelet.down:
            raise NotFound(f"Node {name} did not fail")
        del self._kubelet.down[name]
        removed = self._removed.pop(name, None)
        ref = node_ref(name)
        if removed is not None and self._store.peek(ref) is None:
            self._store.create(merged(_as_new(removed), self._reachable(removed)))
        else:
            self._store.patch(ref, self._reachable(self._store.get(ref)))
            self._kubelet.catch_up(name)

    def _unreachable(self, node: Manifest) -> Manifest:
        effects = (TaintEffect.NO_SCHEDULE.value, TaintEffect.NO_EXECUTE.value)
        added = [{"key": UNREACHABLE, "effect": effect, "timeAdded": stamp(self._clock.now)} for effect in effects]
        return {"spec": {"taints": [*_other_taints(node), *added]}, **self._readiness(node, status=NO, reason="NodeStatusUnknown")}

    def _reachable(self, node: Manifest) -> Manifest:
        taints = _other_taints(node)
        return {"spec": {"taints": taints or None}, **self._readiness(node, status=YES, reason="KubeletReady")}

    def _readiness(self, node: Manifest, *, status: str, reason: str) -> Manifest:
        present = (node.get("status") or {}).get("conditions") or []
        entry = {"type": "Ready", "status": status, "reason": reason}
        return conditions_patch([entry], present=present, now=self._clock.now)

    # -- what follows for their pods -------------------------------------------------------------------------------------------

    def react_to_node(self, what: What, name: str, manifest: Stored) -> None:
        if what is What.DELETED:
            self._taints.pop(name, None)
            for ref, pod in self._index.on(name):
                self._orphan(ref, pod, node=name)
            return
        if what is What.ADDED:
            # Whoever brought the node, its kubelet answers.
            self._kubelet.down.pop(name, None)
            self._removed.pop(name, None)
        taints = _driving_taints(manifest)
        if taints:
            self._taints[name] = taints
        else:
            self._taints.pop(name, None)
        for ref, pod in self._index.on(name) if taints else ():
            self._drive_away(ref, pod, node=name)

    def react(self, what: What, ref: Ref, pod: Pod) -> None:
        if what is What.DELETED or pod.node is None:
            return
        if pod.node in self._taints:
            self._drive_away(ref, pod, node=pod.node)
        elif self._store.peek(node_ref(pod.node)) is None:
            self._orphan(ref, pod, node=pod.node)

    def _drive_away(self, ref: Ref, pod: Pod, *, node: str) -> None:
        manifest = self._store.peek(ref)
        if manifest is None or pod.finished or pod.deleted_at is not None:
            return
        for taint in self._taints[node]:
            stays_s = _stays_s(manifest, taint, lost_s=self._lost_s)
            doom = (pod.uid, taint.key, taint.value)
            if stays_s is None or doom in self._doomed:
                continue
            self._doomed.add(doom)
            self._clock.after(stays_s, partial(self._delete, doom, ref, node=node, taint=taint))

    def _delete(self, doom: _Doom, ref: Ref, *, node: str, taint: Taint) -> None:
        self._doomed.discard(doom)
        if self._still_there(ref, uid=doom[0]) and taint in self._taints.get(node, ()):
            self._store.delete(ref, uid=doom[0])

    def _orphan(self, ref: Ref, pod: Pod, *, node: str) -> None:
        doom = (pod.uid, "", node)
        if doom not in self._doomed and not pod.finished:
            self._doomed.add(doom)
            self._clock.after(self._lost_s, lambda: self._collect(doom, ref, node=node))

    def _collect(self, doom: _Doom, ref: Ref, *, node: str) -> None:
        self._doomed.discard(doom)
        if self._still_there(ref, uid=doom[0]) and self._store.peek(node_ref(node)) is None:
            self._store.delete(ref, uid=doom[0], grace_s=0)

    def _still_there(self, ref: Ref, *, uid: str) -> bool:
        """A pod that ended is not lost with its node: whoever counts it can still see how it ended."""
        found = self._store.peek(ref)
        if found is None or found["metadata"]["uid"] != uid:
            return False
        return (found.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def node_ref(name: str) -> Ref:
    return Ref(*NODE, "", name)


def _as_new(node: Manifest) -> Manifest:
    """A node that registers again: the same machine, another object."""
    metadata = {key: value for key, value in node["metadata"].items() if key in ("name", "labels", "annotations")}
    return {**node, "metadata": metadata}


def _other_taints(node: Manifest) -> list[Any]:
    return [taint for taint in (node.get("spec") or {}).get("taints") or [] if taint.get("key") != UNREACHABLE]


def _driving_taints(node: Stored) -> tuple[Taint, ...]:
    taints = (node.get("spec") or {}).get("taints") or []
    driving = (taint for taint in taints if taint.get("effect") == TaintEffect.NO_EXECUTE.value)
    return tuple(Taint(taint["key"], TaintEffect.NO_EXECUTE, taint.get("value") or "") for taint in driving)


def _stays_s(pod: Stored, taint: Taint, *, lost_s: float) -> float | None:
    """How long a pod stays on a node with this taint; None for as long as it likes."""
    tolerations = [written for written in (pod["spec"].get("tolerations") or []) if _toleration(written).tolerates(taint)]
    if not tolerations:
        return lost_s if taint.key == UNREACHABLE else 0.0
    bounds = [max(0.0, float(written["tolerationSeconds"])) for written in tolerations if "tolerationSeconds" in written]
    return min(bounds, default=None)


def _toleration(written: Stored) -> Toleration:
    effect = written.get("effect")
    return Toleration(
        key=written.get("key") or "",
        operator=written.get("operator") or "Equal",
        value=written.get("value") or "",
        effect=TaintEffect(effect) if effect else None,
    )
