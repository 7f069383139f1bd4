"""Kubelets and controllers for a real API server without any: nodes become ready, bound pods start, run and terminate.

They are those of the simulator, so pods behave the same on both; the same annotations (`sim.muster.dev/...`) control their
behaviour.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar, Final

import msgspec
import structlog

from muster.kube.read.api_resources import resource_of
from muster.kube.read.decoder import BadObject, Decoder
from muster.kube.read.object_references import NODE, POD, ApiObjectRef, GroupKind, Manifest, ManifestView
from muster.kube.read.pod_index import PodIndex
from muster.kube.watch.client import Client
from muster.kube.watch.object_tracker import UpdateType, WatchUpdate
from muster.kube.watch.reflector import Reflector
from muster.kube.write.merge_patch import merged
from muster.kube.write.patch_bodies import STATUS_TRUE, conditions_patch
from muster.lab.remote_store import RemoteStore
from muster.model.node import Node
from muster.model.pod import Pod
from muster.sim.admission import with_defaults
from muster.sim.api_kinds import BadManifest, ref_of, with_string_annotations
from muster.sim.node_controller import NodeController
from muster.sim.object_store import ChangeType, ObjectChange
from muster.sim.object_store import StoreError as LocalError
from muster.sim.pod_behaviour import BEHAVIOUR_PREFIX, behaviour_of
from muster.sim.simulated_kubelet import SimulatedKubelet
from muster.sim.virtual_clock import VirtualClock as Timers
from muster.sim.workload_controller import WorkloadController

log = structlog.get_logger(__name__)

TimeSource = Callable[[], float]
"""Seconds since the epoch. After a jump of a virtual clock, call `wake`."""

NOT_READY: Final = "node.kubernetes.io/not-ready"
_MAX_SLEEP_S = 1.0
_READY_TIMEOUT_S = 60.0
POLL_S = 0.02


class Kubelets:
    """The kubelets of all nodes, as tasks of one event loop. An async context manager.

    `startup_s`: from the bind of a pod to its start; `pod_eviction_timeout_s`: from the failure of a node to the deletion of its
    pods. They send no heartbeats: no controller here would read them.
    """

    watched: ClassVar[tuple[GroupKind, ...]] = (NODE, POD)

    def __init__(
        self,
        client: Client,
        *,
        now: TimeSource = time.time,
        startup_s: float = 1.0,
        pod_eviction_timeout_s: float = 5.0,
    ) -> None:
        self._client = client
        self._now = now
        self._timers = Timers(start=now())
        self._wake_event = asyncio.Event()
        self._decoder = Decoder(())
        self._index = PodIndex()
        self._store = RemoteStore(self._timers, client, decode=_with_valid_behaviour, on_change=self._wake_event.set)
        self._kubelet = SimulatedKubelet(self._store, self._timers, self._index, startup_s=startup_s)
        self._nodes = NodeController(
            self._store, self._timers, self._index, self._kubelet, pod_eviction_timeout_s=pod_eviction_timeout_s
        )
        self._workload_controller = WorkloadController(self._store, self._timers)
        self._reflectors = [Reflector(client, resource_of(*kind), self._on_notices) for kind in self.watched]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Kubelets:
        self._tasks = [
            asyncio.create_task(part) for part in (*(reflector.run() for reflector in self._reflectors), self._run_loop())
        ]
        await asyncio.gather(*(reflector.synced.wait() for reflector in self._reflectors))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        failed = [task.exception() for task in self._tasks if task.done() and not task.cancelled()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._store.close()
        # A bug here must not look like an idle cluster.
        for failure in failed:
            if failure is not None and error is None:
                raise failure

    # -- control ---------------------------------------------------------------------------------------------------------------

    async def register(self, nodes: Iterable[Manifest]) -> None:
        """Create these nodes, and wait until they are ready."""
        manifests = [self._admitted(manifest) for manifest in nodes]
        path = resource_of(*NODE).path("v1")
        await asyncio.gather(*(self._client.request("POST", path, body=manifest) for manifest in manifests))
        node_names = {manifest["metadata"]["name"] for manifest in manifests}
        async with asyncio.timeout(_READY_TIMEOUT_S):
            while not all(self._is_ready(name) for name in node_names):
                self._raise_task_errors()
                await asyncio.sleep(POLL_S)

    def fail_node(self, name: str, *, gone: bool = False, pods_stuck: bool = False) -> None:
        """The node becomes unreachable. `gone`: its object is deleted; `pods_stuck`: its deleted pods stay until it recovers."""
        self._nodes.fail(name, gone=gone, pods_stuck=pods_stuck)
        self._wake_event.set()

    def recover_node(self, name: str) -> None:
        self._nodes.recover(name)
        self._wake_event.set()

    def _raise_task_errors(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    def _admitted(self, node: Manifest) -> ManifestView:
        """The node as its kubelet would register it."""
        return with_defaults(with_string_annotations(node), ref=ref_of(node), store=self._store, now=self._now())

    def _is_ready(self, name: str) -> bool:
        node = self._store.peek(ApiObjectRef(*NODE, "", name))
        return node is not None and self._store.is_idle and not _is_unregistered(node)

    # -- the loop ----------------------------------------------------------------------------------------------------------------

    def _on_notices(self, updates: list[WatchUpdate]) -> None:
        for update in updates:
            if update.update_type is not UpdateType.SYNCED:
                what = ChangeType.DELETED if update.update_type is UpdateType.DELETE else ChangeType.MODIFIED
                self._store.observe(update.kind, what, update.raw)

    async def _run_loop(self) -> None:
        while True:
            self._wake_event.clear()
            self._react_to_all()
            due = self._timers.next_at()
            wait_s = _MAX_SLEEP_S if due is None else max(0.0, min(_MAX_SLEEP_S, due - self._now()))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake_event.wait()

    def _react_to_all(self) -> None:
        """Process all changes and due timers."""
        now = self._now()
        while True:
            self._timers.now = max(self._timers.now, now)
            for change in self._store.drain():
                self._react(change)
            if not self._run_next(now):
                return

    def _run_next(self, now: float) -> bool:
        try:
            return self._timers.run_next(until=now)
        except LocalError as outdated:
            # The timer was set for an object that was replaced or deleted since.
            log.debug("timer outdated", why=str(outdated))
            return True

    def _react(self, change: ObjectChange) -> None:
        what, ref, manifest = change
        if ref[:2] == POD:
            self._react_to_pod(what, ref, manifest)
        elif ref[:2] == NODE:
            self._react_to_node(what, ref, manifest)

    def _react_to_pod(self, what: ChangeType, ref: ApiObjectRef, manifest: ManifestView) -> None:
        pod = self._decoded(manifest)
        if not isinstance(pod, Pod):
            return
        if what is ChangeType.DELETED:
            self._index.drop(ref, uid=pod.uid)
        else:
            self._index.put(ref, pod)
        self._kubelet.on_change(what, ref, pod)
        self._nodes.on_change(what, ref, pod)
        self._workload_controller.on_change(what, ref, manifest)

    def _react_to_node(self, what: ChangeType, ref: ApiObjectRef, manifest: ManifestView) -> None:
        node = self._decoded(manifest)
        if not isinstance(node, Node):
            return
        self._nodes.on_node_change(what, node)
        self._kubelet.on_node_change(what, node)
        if what is ChangeType.ADDED and _is_unregistered(manifest):
            self._store.patch(ref, self._ready_patch(manifest))

    def _ready_patch(self, node: ManifestView) -> Manifest:
        """What a kubelet writes at its start: the Ready condition, and the removal of the not-ready taint."""
        present = (node.get("status") or {}).get("conditions") or []
        ready = {"type": "Ready", "status": STATUS_TRUE, "reason": "KubeletReady", "message": "the kubelet is ready"}
        conditions = conditions_patch([ready], present=present, now=self._now()) if not _has_ready(node) else {}
        taints = [taint for taint in _taints(node) if taint.get("key") != NOT_READY]
        return {"spec": {"taints": taints or None}, **conditions}

    def _decoded(self, manifest: ManifestView) -> object:
        try:
            return self._decoder.decode(manifest)
        except BadObject as bad:
            log.warning("object not decoded", name=manifest["metadata"].get("name"), why=str(bad))
            return None


def _with_valid_behaviour(raw: bytes) -> ManifestView:
    """The object without invalid behaviour annotations (a real server accepts any) and without its large managedFields."""
    manifest: Manifest = msgspec.json.decode(raw)
    manifest["metadata"].pop("managedFields", None)
    try:
        behaviour_of(manifest)
    except BadManifest as bad:
        log.warning("behaviour annotations ignored", name=manifest["metadata"]["name"], why=str(bad))
        invalid = [key for key in manifest["metadata"]["annotations"] if key.startswith(BEHAVIOUR_PREFIX)]
        return merged(manifest, {"metadata": {"annotations": dict.fromkeys(invalid)}})
    return manifest


def _is_unregistered(node: ManifestView) -> bool:
    """No kubelet has registered it yet."""
    return any(taint.get("key") == NOT_READY for taint in _taints(node)) or not _has_ready(node)


def _has_ready(node: ManifestView) -> bool:
    return any(entry.get("type") == "Ready" for entry in (node.get("status") or {}).get("conditions") or [])


def _taints(node: ManifestView) -> list[Any]:
    taints: list[Any] = (node.get("spec") or {}).get("taints") or []
    return taints
