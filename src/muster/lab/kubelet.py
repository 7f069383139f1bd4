"""Kubelets and controllers for a real API server that has none: nodes become ready, bound pods start, run, end and go.

They are those of the embedded cluster, so a pod lives the same life on both. Pods say how they want to be played with the
same annotations (`sim.muster.dev/...`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

import msgspec
import structlog

from muster.adapters.kube import names
from muster.adapters.kube import reflector as watching
from muster.adapters.kube.client import Client
from muster.adapters.kube.decode import BadObject, Decoder
from muster.adapters.kube.encode import YES, conditions_patch
from muster.adapters.kube.index import PodIndex
from muster.adapters.kube.merge import merged
from muster.adapters.kube.refs import BUDGET, NODE, POD, VOLUME, VOLUME_CLAIM, Manifest, Ref, Stored
from muster.adapters.kube.resources import resource_of
from muster.adapters.sim import volumes
from muster.adapters.sim.admission import admitted
from muster.adapters.sim.budgets import Budgets
from muster.adapters.sim.cleanup import Cleanup
from muster.adapters.sim.clock import Clock as Timers
from muster.adapters.sim.controllers import Controllers
from muster.adapters.sim.kubelet import Kubelet
from muster.adapters.sim.manifests import BadManifest, ref_of, with_texts
from muster.adapters.sim.nodes import NodeController
from muster.adapters.sim.objects import ApiError as LocalError
from muster.adapters.sim.objects import Change, What
from muster.adapters.sim.wishes import PREFIX, wishes_of
from muster.lab.heartbeat import Heartbeat
from muster.lab.remote import RemoteStore
from muster.model.node import Node
from muster.model.pod import Pod
from muster.model.volumes import VolumeChoice

log = structlog.get_logger(__name__)

Now = Callable[[], float]
"""The time in seconds since 1970. A test may give one that it moves; it then calls `wake`."""

NOT_READY: Final = "node.kubernetes.io/not-ready"
_WATCHED: Final = (NODE, volumes.CLASS, VOLUME, VOLUME_CLAIM, BUDGET, POD)
_LONGEST_SLEEP_S = 1.0
_POLL_S = 0.02


class Kubelets:
    """All of them, for all nodes, as tasks of one event loop. Use as an async context manager.

    `start_s`: from a bind to the start of the pod; `lost_s`: from the failure of a node to the deletion of its pods;
    `cleans`: somebody deletes pods that are marked for a soft eviction and say after how long; `beat_s` None: no heartbeats.
    """

    def __init__(
        self,
        client: Client,
        *,
        now: Now = time.time,
        start_s: float = 1.0,
        lost_s: float = 5.0,
        cleans: bool = False,
        beat_s: float | None = 10.0,
    ) -> None:
        self._client = client
        self._now = now
        self._timers = Timers(start=now())
        self._awake = asyncio.Event()
        self._decoder = Decoder(())
        self._index = PodIndex()
        self._store = RemoteStore(self._timers, client, read=_playable, awake=self._awake.set)
        self._budgets = Budgets(self._store)
        self._kubelet = Kubelet(self._store, self._timers, self._index, start_s=start_s)
        self._nodes = NodeController(self._store, self._timers, self._index, self._kubelet, lost_s=lost_s)
        self._controllers = Controllers(self._store, self._timers)
        self._cleanup = Cleanup(self._store, self._timers) if cleans else None
        self._heartbeat = Heartbeat(client, now=now, every_s=beat_s, silent=self._kubelet.down) if beat_s is not None else None
        self._reflectors = [watching.Reflector(client, resource_of(*kind), "v1", self._hear) for kind in _WATCHED]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Kubelets:
        beats = [] if self._heartbeat is None else [self._heartbeat.run()]
        parts = [*(reflector.run() for reflector in self._reflectors), self._turn(), *beats]
        self._tasks = [asyncio.create_task(part) for part in parts]
        await asyncio.gather(*(reflector.synced.wait() for reflector in self._reflectors))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        failed = [task.exception() for task in self._tasks if task.done() and not task.cancelled()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._store.close()
        # A fault of ours must not pass for a cluster in which nothing happens.
        for fault in failed:
            if fault is not None and error is None:
                raise fault

    # -- what others do --------------------------------------------------------------------------------------------------------

    async def register(self, nodes: Iterable[Manifest], *, timeout_s: float = 60.0) -> None:
        """Create these nodes, and wait until they are ready."""
        wanted = [self._described(manifest) for manifest in nodes]
        path = resource_of(*NODE).path("v1")
        await asyncio.gather(*(self._client.request("POST", path, body=manifest) for manifest in wanted))
        names_of = {manifest["metadata"]["name"] for manifest in wanted}
        async with asyncio.timeout(timeout_s):
            while not all(self._is_ready(name) for name in names_of):
                self._raise_faults()
                await asyncio.sleep(_POLL_S)

    def fail_node(self, name: str, *, gone: bool = False, stuck: bool = False) -> None:
        """The node stops answering. `gone`: its object is removed; `stuck`: its deleted pods stay until it returns."""
        self._nodes.fail(name, gone=gone, stuck=stuck)
        self._awake.set()

    def return_node(self, name: str) -> None:
        self._nodes.bring_back(name)
        self._awake.set()

    def wake(self) -> None:
        """Somebody moved the time."""
        self._awake.set()

    def next_at(self) -> float | None:
        """When something happens next by itself, or None if nothing does any more."""
        return self._timers.next_at()

    async def settle(self, *, timeout_s: float = 30.0) -> None:
        """Until all that the server knows now was seen, all that is due was done, and the server knows of that, too."""
        async with asyncio.timeout(timeout_s):
            while not (self.is_idle and await self._is_up_to_date() and self.is_idle):
                self._raise_faults()
                await asyncio.sleep(_POLL_S)

    @property
    def is_idle(self) -> bool:
        """All that was heard was reacted to, all that is due was done, and nothing is on its way to the server."""
        due = self._timers.next_at()
        is_due = due is not None and due <= self._now()
        return not self._awake.is_set() and self._store.is_idle and not self._store.has_changes() and not is_due

    async def _is_up_to_date(self) -> bool:
        for kind in _WATCHED:
            listed = msgspec.json.decode(await self._client.request("GET", resource_of(*kind).path("v1")))
            metadata = [item["metadata"] for item in listed["items"]]
            if {one["uid"]: one["resourceVersion"] for one in metadata} != self._store.versions(kind):
                return False
        return True

    def _raise_faults(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    def _described(self, node: Manifest) -> Stored:
        """The node as its kubelet would describe it."""
        return admitted(with_texts(node), ref=ref_of(node), store=self._store, now=self._now())

    def _is_ready(self, name: str) -> bool:
        node = self._store.peek(Ref(*NODE, "", name))
        return node is not None and self._store.is_idle and not _is_new(node)

    # -- turning the wheels ------------------------------------------------------------------------------------------------------

    def _hear(self, notices: list[watching.Notice]) -> None:
        for kind, what, raw in notices:
            if what is not watching.What.SYNCED:
                self._store.hear(kind, What.DELETED if what is watching.What.GONE else What.MODIFIED, raw)

    async def _turn(self) -> None:
        while True:
            self._awake.clear()
            self._settle()
            due = self._timers.next_at()
            wait_s = _LONGEST_SLEEP_S if due is None else max(0.0, min(_LONGEST_SLEEP_S, due - self._now()))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._awake.wait()

    def _settle(self) -> None:
        """Let everybody react to what changed and to what is due."""
        now = self._now()
        while True:
            self._timers.now = max(self._timers.now, now)
            for change in self._store.drain():
                self._react(change)
            self._budgets.settle()
            if not self._run_next(now):
                return

    def _run_next(self, now: float) -> bool:
        try:
            return self._timers.run_next(until=now)
        except LocalError as gone:
            # What was planned for an object that is another one by now, or gone.
            log.debug("too late", why=str(gone))
            return True

    def _react(self, change: Change) -> None:
        what, ref, manifest = change
        if ref[:2] == POD:
            self._react_to_pod(what, ref, manifest)
        elif ref[:2] == NODE:
            self._react_to_node(what, ref, manifest)
        elif ref[:2] == BUDGET:
            self._budgets.react(ref)
        elif what is not What.DELETED and (choice := _chosen(ref, manifest)) is not None:
            volumes.bind(self._store, choice)

    def _react_to_pod(self, what: What, ref: Ref, manifest: Stored) -> None:
        pod = self._thing(manifest)
        if not isinstance(pod, Pod):
            return
        if what is What.DELETED:
            self._index.drop(ref, uid=pod.uid)
        else:
            self._index.put(ref, pod)
        self._kubelet.react(what, ref, pod)
        self._nodes.react(what, ref, pod)
        self._controllers.react(what, ref, manifest)
        if self._cleanup is not None:
            self._cleanup.react(what, ref, manifest)
        self._budgets.react(ref)

    def _react_to_node(self, what: What, ref: Ref, manifest: Stored) -> None:
        node = self._thing(manifest)
        if not isinstance(node, Node):
            return
        self._nodes.react_to_node(what, node.name, manifest)
        self._kubelet.react_to_node(what, node)
        if self._heartbeat is not None:
            self._heartbeat.react(ref.name, gone=what is What.DELETED)
        if what is What.ADDED and _is_new(manifest):
            self._store.patch(ref, self._readiness(manifest))

    def _readiness(self, node: Stored) -> Manifest:
        """What a kubelet says when it starts. What the server wrote onto the new node goes; what its maker said of it stays."""
        present = (node.get("status") or {}).get("conditions") or []
        ready = {"type": "Ready", "status": YES, "reason": "KubeletReady", "message": "the kubelet is ready"}
        said = conditions_patch([ready], present=present, now=self._now()) if not _has_ready(node) else {}
        taints = [taint for taint in _taints(node) if taint.get("key") != NOT_READY]
        return {"spec": {"taints": taints or None}, **said}

    def _thing(self, manifest: Stored) -> object:
        try:
            return self._decoder.decode(manifest)
        except BadObject as bad:
            log.warning("object not understood", name=manifest["metadata"].get("name"), why=str(bad))
            return None


def _playable(raw: bytes) -> Stored:
    """The object without wishes that nobody can read (a real server takes any annotation), and without the notes on who wrote
    what, which are most of it."""
    found: Manifest = msgspec.json.decode(raw)
    found["metadata"].pop("managedFields", None)
    try:
        wishes_of(found)
    except BadManifest as bad:
        log.warning("wishes ignored", name=found["metadata"]["name"], why=str(bad))
        wishes = [key for key in found["metadata"]["annotations"] if key.startswith(PREFIX)]
        return merged(found, {"metadata": {"annotations": dict.fromkeys(wishes)}})
    return found


def _chosen(ref: Ref, manifest: Stored) -> VolumeChoice | None:
    """What a scheduler chose for a claim that waited: a volume that is kept for it, or a node on which one is to be made."""
    annotations, spec = manifest["metadata"].get("annotations") or {}, manifest.get("spec") or {}
    if ref[:2] == VOLUME_CLAIM and names.SELECTED_NODE in annotations and not spec.get("volumeName"):
        return VolumeChoice(claim=ref.title, volume="")
    kept = spec.get("claimRef")
    if ref[:2] == VOLUME and kept and names.BOUND_BY_CONTROLLER in annotations:
        return VolumeChoice(claim=f"{kept['namespace']}/{kept['name']}", volume=ref.name)
    return None


def _is_new(node: Stored) -> bool:
    """No kubelet has said anything about it yet."""
    return any(taint.get("key") == NOT_READY for taint in _taints(node)) or not _has_ready(node)


def _has_ready(node: Stored) -> bool:
    return any(entry.get("type") == "Ready" for entry in (node.get("status") or {}).get("conditions") or [])


def _taints(node: Stored) -> list[Any]:
    found: list[Any] = (node.get("spec") or {}).get("taints") or []
    return found
