"""The kubelets: bound pods start, run and end; deleted ones terminate; a pod that does not fit is rejected."""

from __future__ import annotations

from math import inf

from muster.kube.read.object_references import ApiObjectRef, Manifest, ManifestView
from muster.kube.read.pod_index import PodIndex
from muster.kube.write.patch_bodies import STATUS_FALSE, STATUS_TRUE, conditions_patch, rfc3339
from muster.kube.write.status_updates import conditions
from muster.model.node import Node
from muster.model.pod import Pod, PodStatusPhase
from muster.model.resource_amounts import Resources
from muster.sim.object_store import ChangeType, ObjectStore
from muster.sim.pod_behaviour import behaviour_of
from muster.sim.virtual_clock import VirtualClock

_READY_CONDITIONS = ("Initialized", "ContainersReady", "Ready")


class SimulatedKubelet:
    """All kubelets of the cluster. One that is `unreachable` does nothing until its node recovers."""

    def __init__(self, store: ObjectStore, clock: VirtualClock, index: PodIndex, *, startup_s: float) -> None:
        self._store = store
        self._clock = clock
        self._index = index
        self._start_s = startup_s
        self._nodes: dict[str, Node] = {}
        self._admitted: dict[str, dict[str, Resources]] = {}
        """The requests of the admitted pods of a node, by UID."""
        self._active_timers: set[tuple[str, str]] = set()
        """A pod's UID and its next transition."""
        self.unreachable: dict[str, bool] = {}
        """Nodes whose kubelet does not report. True: deleted pods stay until the node recovers."""

    def on_node_change(self, what: ChangeType, node: Node) -> None:
        if what is ChangeType.DELETED:
            self._nodes.pop(node.name, None)
            return
        self._nodes[node.name] = node
        if what is ChangeType.ADDED:
            self.sync_node(node.name)

    def on_change(self, what: ChangeType, ref: ApiObjectRef, pod: Pod) -> None:
        if what is ChangeType.DELETED or pod.finished or pod.node is None:
            self._admitted.get(pod.node or "", {}).pop(pod.uid, None)
        elif pod.node in self._nodes or pod.status_phase is PodStatusPhase.RUNNING or pod.deleted_at is not None:
            self._sync_pod(ref, pod, node=pod.node)

    def sync_node(self, node: str) -> None:
        """The node is ready (again): sync all pods bound to it."""
        for ref, pod in self._index.on(node):
            if not pod.finished:
                self._sync_pod(ref, pod, node=node)

    def _sync_pod(self, ref: ApiObjectRef, pod: Pod, *, node: str) -> None:
        manifest = self._store.peek(ref)
        if manifest is None or manifest["metadata"]["uid"] != pod.uid:
            return
        admitted = self._admitted.setdefault(node, {})
        if pod.uid not in admitted:
            insufficient = self._insufficient(pod, node=node) if pod.status_phase is PodStatusPhase.PENDING else ""
            if insufficient:
                self._reject_pod(ref, pod, insufficient=insufficient, node=node)
                return
        # A pod that is resized uses what it is given, which its object tells.
        admitted[pod.uid] = pod.signature.request
        if pod.deleted_at is not None:
            self._start_timer(
                f"terminate by {manifest['metadata']['deletionTimestamp']}", ref, pod, at=self._terminates_at(manifest)
            )
        elif pod.status_phase is PodStatusPhase.PENDING:
            override_s = behaviour_of(manifest).startup_s
            self._start_timer("start", ref, pod, at=self._clock.now + (self._start_s if override_s is None else override_s))
        elif (run_s := behaviour_of(manifest).run_s) is not None:
            self._start_timer("end", ref, pod, at=(pod.created if pod.started is None else pod.started) + run_s)

    def _terminates_at(self, manifest: ManifestView) -> float:
        override_s = behaviour_of(manifest).termination_s
        grace_s = manifest["metadata"].get("deletionGracePeriodSeconds") or 0
        return self._clock.now + (grace_s if override_s is None else override_s)

    def _start_timer(self, transition: str, ref: ApiObjectRef, pod: Pod, *, at: float) -> None:
        key = (pod.uid, transition)
        if at == inf or key in self._active_timers:
            return
        self._active_timers.add(key)
        self._clock.at(at, lambda: self._on_timer(transition, ref, pod))

    def _on_timer(self, transition: str, ref: ApiObjectRef, planned: Pod) -> None:
        self._active_timers.discard((planned.uid, transition))
        manifest = self._store.peek(ref)
        if manifest is None or manifest["metadata"]["uid"] != planned.uid:
            return
        node = planned.node or ""
        terminates = transition.startswith("terminate")
        if node in self.unreachable and not (terminates and not self.unreachable[node]):
            return
        if terminates:
            self._store.delete(ref, uid=planned.uid, grace_s=0)
        elif not manifest["metadata"].get("deletionTimestamp"):
            self._store.patch(ref, self._running_patch(manifest) if transition == "start" else self._finished_patch(manifest))

    def _running_patch(self, manifest: ManifestView) -> Manifest:
        now = self._clock.now
        entries = [{"type": name, "status": STATUS_TRUE} for name in _READY_CONDITIONS]
        patch = conditions_patch(entries, present=conditions(manifest), now=now)
        return {"status": {"phase": "Running", "startTime": rfc3339(now), **patch.get("status", {})}}

    def _finished_patch(self, manifest: ManifestView) -> Manifest:
        phase = "Failed" if behaviour_of(manifest).run_fails else "Succeeded"
        entries = [{"type": name, "status": STATUS_FALSE, "reason": f"Pod{phase}"} for name in _READY_CONDITIONS[1:]]
        patch = conditions_patch(entries, present=conditions(manifest), now=self._clock.now)
        return {"status": {"phase": phase, **patch.get("status", {})}}

    # -- admission -----------------------------------------------------------------------------------------------------------

    def _insufficient(self, pod: Pod, *, node: str) -> str:
        """The first resource of which the node has too little for this pod, with the numbers; empty if it fits."""
        allocatable = self._nodes[node].allocatable if node in self._nodes else None
        if allocatable is None:
            return ""
        here = self._admitted.get(node, {}).values()
        for name, requested in pod.signature.request.items:
            used = sum(request[name] for request in here)
            if used + requested > allocatable[name]:
                return f"{name}, requested: {requested}, used: {used}, capacity: {allocatable[name]}"
        return ""

    def _reject_pod(self, ref: ApiObjectRef, pod: Pod, *, insufficient: str, node: str) -> None:
        if node in self.unreachable:
            return
        resource = insufficient.split(",", 1)[0]
        message = f"Pod was rejected: Node didn't have enough resource: {insufficient}"
        status = {"phase": "Failed", "reason": f"OutOf{resource}", "message": message}
        self._store.patch(ref, {"status": status}, uid=pod.uid)
