"""The kubelets: bound pods start, run and end; deleted ones take their time to go; one that does not fit is refused."""

from __future__ import annotations

from math import inf
from typing import Any

from muster.adapters.kube.encode import NO, YES, conditions_patch, stamp
from muster.adapters.kube.index import PodIndex
from muster.adapters.kube.refs import Manifest, Ref, Stored
from muster.adapters.sim.clock import Clock
from muster.adapters.sim.objects import ObjectStore, What
from muster.adapters.sim.wishes import wishes_of
from muster.model.node import Node
from muster.model.pod import Pod, Running
from muster.model.resources import Resources

_READY = ("Initialized", "ContainersReady", "Ready")


class Kubelet:
    """All kubelets of the cluster. One that is `down` does nothing until its node returns."""

    def __init__(self, store: ObjectStore, clock: Clock, index: PodIndex, *, start_s: float) -> None:
        self._store = store
        self._clock = clock
        self._index = index
        self._start_s = start_s
        self._nodes: dict[str, Node] = {}
        self._here: dict[str, dict[str, Resources]] = {}
        """What the pods that were let in on a node take of it, by UID."""
        self._node_of: dict[str, str] = {}
        self._under_way: set[tuple[str, str]] = set()
        """What a timer runs for: a pod's UID and what will become of it."""
        self.down: dict[str, bool] = {}
        """Nodes that do not answer. True: what was deleted there stays until the node returns."""

    def react_to_node(self, what: What, node: Node) -> None:
        if what is What.DELETED:
            self._nodes.pop(node.name, None)
            return
        self._nodes[node.name] = node
        if what is What.ADDED:
            self.catch_up(node.name)

    def react(self, what: What, ref: Ref, pod: Pod) -> None:
        if what is What.DELETED or pod.finished or pod.node is None:
            self._let_go(pod.uid)
        elif pod.node in self._nodes or pod.running is Running.RUNNING or pod.deleted_at is not None:
            self._tend(ref, pod, node=pod.node)

    def catch_up(self, node: str) -> None:
        """The node is there (again): see to all that was bound to it."""
        for ref, pod in self._index.on(node):
            if not pod.finished:
                self._tend(ref, pod, node=node)

    def _tend(self, ref: Ref, pod: Pod, *, node: str) -> None:
        manifest = self._store.peek(ref)
        if manifest is None or manifest["metadata"]["uid"] != pod.uid:
            return
        if pod.uid not in self._node_of:
            lack = self._lack(pod, node=node) if pod.running is Running.PENDING else ""
            if lack:
                self._refuse(ref, pod, lack=lack, node=node)
                return
            self._here.setdefault(node, {})[pod.uid] = pod.kind.request
            self._node_of[pod.uid] = node
        if pod.deleted_at is not None:
            self._plan(f"leave by {manifest['metadata']['deletionTimestamp']}", ref, pod, at=self._leaves_at(manifest))
        elif pod.running is Running.PENDING:
            wish = wishes_of(manifest).start_s
            self._plan("start", ref, pod, at=self._clock.now + (self._start_s if wish is None else wish))
        elif (run_s := wishes_of(manifest).run_s) is not None:
            self._plan("end", ref, pod, at=(pod.created if pod.started is None else pod.started) + run_s)

    def _leaves_at(self, manifest: Stored) -> float:
        wish = wishes_of(manifest).leave_s
        grace_s = manifest["metadata"].get("deletionGracePeriodSeconds") or 0
        return self._clock.now + (grace_s if wish is None else wish)

    def _plan(self, deed: str, ref: Ref, pod: Pod, *, at: float) -> None:
        key = (pod.uid, deed)
        if at == inf or key in self._under_way:
            return
        self._under_way.add(key)
        self._clock.at(at, lambda: self._do(deed, ref, pod))

    def _do(self, deed: str, ref: Ref, planned: Pod) -> None:
        self._under_way.discard((planned.uid, deed))
        manifest = self._store.peek(ref)
        if manifest is None or manifest["metadata"]["uid"] != planned.uid:
            return
        node = planned.node or ""
        leaves = deed.startswith("leave")
        if node in self.down and not (leaves and not self.down[node]):
            return
        if leaves:
            self._store.delete(ref, uid=planned.uid, grace_s=0)
        elif not manifest["metadata"].get("deletionTimestamp"):
            self._store.patch(ref, self._started(manifest) if deed == "start" else self._ended(manifest))

    def _started(self, manifest: Stored) -> Manifest:
        now = self._clock.now
        entries = [{"type": name, "status": YES} for name in _READY]
        conditions = conditions_patch(entries, present=_conditions(manifest), now=now)
        return {"status": {"phase": "Running", "startTime": stamp(now), **conditions.get("status", {})}}

    def _ended(self, manifest: Stored) -> Manifest:
        phase = "Failed" if wishes_of(manifest).fails else "Succeeded"
        entries = [{"type": name, "status": NO, "reason": f"Pod{phase}"} for name in _READY[1:]]
        conditions = conditions_patch(entries, present=_conditions(manifest), now=self._clock.now)
        return {"status": {"phase": phase, **conditions.get("status", {})}}

    # -- letting in ------------------------------------------------------------------------------------------------------------

    def _lack(self, pod: Pod, *, node: str) -> str:
        """The first resource of which the node has too little for this pod, with the numbers; empty if it fits."""
        room = self._nodes[node].allocatable if node in self._nodes else None
        if room is None:
            return ""
        here = self._here.get(node, {}).values()
        for name, asked in pod.kind.request.items:
            used = sum(request[name] for request in here)
            if used + asked > room[name]:
                return f"{name}, requested: {asked}, used: {used}, capacity: {room[name]}"
        return ""

    def _refuse(self, ref: Ref, pod: Pod, *, lack: str, node: str) -> None:
        if node in self.down:
            return
        resource = lack.split(",", 1)[0]
        message = f"Pod was rejected: Node didn't have enough resource: {lack}"
        status = {"phase": "Failed", "reason": f"OutOf{resource}", "message": message}
        self._store.patch(ref, {"status": status}, uid=pod.uid)

    def _let_go(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        if node is not None:
            del self._here[node][uid]


def _conditions(manifest: Stored) -> list[Any]:
    found: list[Any] = (manifest.get("status") or {}).get("conditions") or []
    return found
