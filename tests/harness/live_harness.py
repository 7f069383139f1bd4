"""Scenarios on a real API server: the interface of the simulated cluster, implemented with the parts of a live scheduler.

The steps of a scenario are requests of a user; the scheduler reads and writes through `LiveCluster`; kubelets and controllers
are those of the lab. Each call returns when the cluster has settled: all writes are done and observed by every watcher. So a
scenario has the same result each time, however slow the server is. Time is virtual.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec
from tests.harness.api_discovery import discover_versions
from tests.harness.manifest_completion import complete_manifest, priority_class_for
from tests.harness.recording_client import RecordingClient, Versions
from tests.harness.settling_kubelets import SettlingKubelets
from tests.harness.virtual_time import VirtualTime

from muster.kube.live_cluster import LiveCluster
from muster.kube.read.api_resources import WATCHED, resource_of
from muster.kube.read.decoder import BadObject, Decoder
from muster.kube.read.object_references import POD, ApiObjectRef, GroupKind, Manifest, ManifestView
from muster.kube.watch import reflector
from muster.kube.watch.access import Access
from muster.kube.watch.client import ApiError, resource_of_path
from muster.kube.write.effect_writer import WriteLimits
from muster.kube.write.merge_patch import merged
from muster.model.effects import Effect
from muster.model.events import Event, Upsert
from muster.sim.admission import validate_manifest
from muster.sim.api_kinds import DEFAULT_NAMESPACE, BadManifest, is_namespaced, kinds_named, ref_of, with_string_annotations
from muster.sim.executor import Write
from muster.sim.object_store import Conflict, NotFound
from muster.sim.pod_behaviour import CONTROLLER_ANNOTATION

T = TypeVar("T")

_MERGE_PATCH: Final = "application/merge-patch+json"
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_POLL_S: Final = 0.003
_SETTLE_TIMEOUT_S: Final = 60.0
_CALL_TIMEOUT_S: Final = 2 * _SETTLE_TIMEOUT_S
_NO_PRIORITY_CLASS: Final = "no PriorityClass with name"
_PRIORITY_CLASS_ATTEMPTS: Final = 50
_PRIORITY_CLASS_WAIT_S: Final = 0.02
TEST_PACE: Final = WriteLimits(events_per_s=0, stall_timeout_s=5.0, volume_wait_s=30.0)
"""Without Kubernetes Events: no decision depends on them."""


class NotSettled(Exception):
    """The cluster does not settle."""


class LiveHarness:
    """A context manager, from a thread that has no event loop.

    `scheduler_access`: another way to the server for the scheduler alone; `limits` and `watch_timing`: how it writes and watches.
    `skip_settling`: does the scheduler's next turn come before all is written and seen? Asked at each turn.
    """

    def __init__(
        self,
        access: Callable[[], Coroutine[Any, Any, Access]],
        *,
        scheduler_names: Iterable[str] = ("muster",),
        scheduler_access: Callable[[], Coroutine[Any, Any, Access]] | None = None,
        limits: WriteLimits = TEST_PACE,
        watch_timing: reflector.WatchTiming = reflector.DEFAULT_WATCH_TIMING,
        skip_settling: Callable[[], bool] = lambda: False,
    ) -> None:
        self._access = access
        self._limits = limits
        self._watch_pace = watch_timing
        self._skip_settling = skip_settling
        self._scheduler_access = scheduler_access or access
        self._names = tuple(scheduler_names)
        self._decoder = Decoder(self._names)
        self._virtual_time = VirtualTime()
        self._written_resources: set[str] = set()
        self._is_settled = False
        self._namespaces = {DEFAULT_NAMESPACE}
        self._live: LiveCluster | None = None
        self._live_task: asyncio.Task[None] | None = None

    def __enter__(self) -> LiveHarness:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stage", daemon=True)
        self._thread.start()
        try:
            self._run_on_loop(self._start())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._run_on_loop(self._close(kind, error, trace))
        finally:
            self._stop()

    async def _start(self) -> None:
        access = await self._access()
        self._user_client = RecordingClient(access, virtual_time=self._virtual_time, written_resources=self._written_resources)
        self._kubelet_client = RecordingClient(access, virtual_time=self._virtual_time, written_resources=self._written_resources)
        self._scheduler_client = RecordingClient(
            await self._scheduler_access(), virtual_time=self._virtual_time, written_resources=self._written_resources
        )
        self._versions = await discover_versions(self._user_client)
        self._kubelets = SettlingKubelets(self._kubelet_client, now=lambda: self._virtual_time.now, soft_eviction_cleanup=True)
        await self._kubelets.__aenter__()

    async def _close(self, *error: Any) -> None:
        try:
            await self._end_scheduler()
            await self._kubelets.__aexit__(*error)
        finally:
            for window in (self._user_client, self._kubelet_client, self._scheduler_client):
                await window.close()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run_on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_TIMEOUT_S)

    # -- what a user does ------------------------------------------------------------------------------------------------------

    def apply(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create the object, or merge the manifest into the one that exists. Returns it as it is stored."""
        ref = ref_of(manifest)
        written = with_string_annotations(dict(manifest))
        validate_manifest(written, ref=ref)
        try:
            self._decoder.decode(written)
        except BadObject as bad:
            raise BadManifest(str(bad)) from None
        self._is_settled = False
        return self._run_on_loop(self._translate_errors(self._apply(ref, written)))

    def patch(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Manifest:
        """A JSON merge patch: null removes."""
        self._is_settled = False
        return self._run_on_loop(self._translate_errors(self._patch_resolved(kind, namespace, name, patch)))

    def delete(self, kind: str, namespace: str, name: str, *, permanently: bool = False) -> None:
        """Delete it. `permanently`: no controller recreates it."""
        self._is_settled = False
        self._run_on_loop(self._translate_errors(self._delete(kind, namespace, name, permanently=permanently)))

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """The object, or None. `kind` is `Pod`, or `PodGroup.scheduling.volcano.sh` where a plain name is not clear."""
        self._wait_until_settled()
        try:
            return self._run_on_loop(self._translate_errors(self._resolve(kind, namespace, name)))[1]
        except NotFound:
            return None

    def listed(self, kind: str) -> list[Manifest]:
        """All objects of a kind, by namespace and name."""
        self._wait_until_settled()
        return [one for known in kinds_named(kind) for one in self._run_on_loop(self._translate_errors(self._list(known)))]

    def create_raw(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create exactly this, whatever it is. Raises the client's ApiError where the server does not take it."""
        ref = ref_of(manifest)
        self._is_settled = False
        return self._run_on_loop(self._request("POST", self._path(ref, named=False), manifest))

    async def _apply(self, ref: ApiObjectRef, manifest: Manifest) -> Manifest:
        if await self._get(ref) is not None:
            return await self._patch(ref, {key: part for key, part in manifest.items() if key not in ("apiVersion", "kind")})
        if ref.namespace not in ("", *self._namespaces):
            await self._create_namespace(ref.namespace)
        if ref[:2] == POD and (its_class := priority_class_for(manifest)) is not None:
            await self._apply(ref_of(its_class), its_class)
        return await self._create(ref, manifest)

    async def _create(self, ref: ApiObjectRef, manifest: Manifest) -> Manifest:
        """What stands in a status the server takes only afterwards. A pod that stands somewhere already is bound when it says so,
        lest its kubelet starts what runs."""
        whole = dict(complete_manifest(manifest, ref=ref, now=self._virtual_time.now))
        whole["apiVersion"] = resource_of(*ref[:2]).api_version(self._version(ref[:2]))
        status = whole.pop("status", None) if ref.kind != "Node" else None
        node = whole["spec"].pop("nodeName", "") if ref[:2] == POD and status else ""
        place = (resource_of_path(self._path(ref, named=False)), ref.namespace, ref.name)
        self._virtual_time.set_created(place, manifest["metadata"].get("creationTimestamp"))
        try:
            made = await self._create_retrying(self._path(ref, named=False), whole)
        finally:
            self._virtual_time.set_created(place, None)
        if status:
            made = await self._patch(ref, {"status": status})
        if node:
            await self._bind(ref, node=node)
        return made

    async def _bind(self, ref: ApiObjectRef, *, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": ref.name}, "target": target}
        await self._request("POST", self._path(ref, subresource="binding"), binding)

    async def _create_retrying(self, path: str, manifest: ManifestView) -> Manifest:
        """Create it, as soon as the server's admission has observed the PriorityClass that was created just before."""
        for _ in range(_PRIORITY_CLASS_ATTEMPTS):
            try:
                return await self._request("POST", path, manifest)
            except ApiError as error:
                if _NO_PRIORITY_CLASS not in error.message:
                    raise
                await asyncio.sleep(_PRIORITY_CLASS_WAIT_S)
        return await self._request("POST", path, manifest)

    async def _create_namespace(self, name: str) -> None:
        self._namespaces.add(name)
        ref = ApiObjectRef("", "Namespace", "", name)
        if await self._get(ref) is None:
            await self._create(ref, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def _patch_resolved(self, kind: str, namespace: str, name: str, patch: ManifestView) -> Manifest:
        ref, found = await self._resolve(kind, namespace, name)
        validate_manifest(with_string_annotations(dict(merged(found, patch))), ref=ref)
        return await self._patch(ref, patch)

    async def _patch(self, ref: ApiObjectRef, patch: ManifestView) -> Manifest:
        """The status is written through its subresource, where there is one, and the node of a pod through its binding."""
        answer: Manifest = {}
        rest = {key: part for key, part in _patch_with_texts(patch).items() if key != "status"}
        node = (patch.get("spec") or {}).get("nodeName") if ref[:2] == POD else None
        if node:
            await self._bind(ref, node=node)
            rest["spec"] = {key: part for key, part in rest["spec"].items() if key != "nodeName"}
        if any(rest.values()):
            answer = await self._request("PATCH", self._path(ref), rest)
        if patch.get("status"):
            answer = await self._patch_status(ref, {"status": patch["status"]})
        return answer

    async def _patch_status(self, ref: ApiObjectRef, patch: ManifestView) -> Manifest:
        try:
            return await self._request("PATCH", self._path(ref, subresource="status"), patch)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
        return await self._request("PATCH", self._path(ref), patch)

    async def _delete(self, kind: str, namespace: str, name: str, *, permanently: bool) -> None:
        ref, found = await self._resolve(kind, namespace, name)
        if permanently and CONTROLLER_ANNOTATION in (found["metadata"].get("annotations") or {}):
            await self._patch(ref, {"metadata": {"annotations": {CONTROLLER_ANNOTATION: None}}})
        await self._request("DELETE", self._path(ref), None)

    async def _resolve(self, kind: str, namespace: str, name: str) -> tuple[ApiObjectRef, Manifest]:
        """The object of this name. Of a kind that exists in several API groups, the one in which the name exists."""
        kinds = [known for known in kinds_named(kind) if known in self._versions]
        refs = [ApiObjectRef(*known, (namespace or DEFAULT_NAMESPACE) if is_namespaced(known) else "", name) for known in kinds]
        found = [(ref, one) for ref in refs if (one := await self._get(ref)) is not None]
        if len(found) > 1:
            choices = " or ".join(f"{ref.kind}.{ref.group}" for ref, _ in found)
            raise BadManifest(f"kind: there are {len(found)} objects {kind} {refs[0].full_name}; write {choices}")
        if not found:
            raise NotFound(f"{kind} {namespace}/{name} does not exist")
        return found[0]

    # -- what befalls it -------------------------------------------------------------------------------------------------------

    def fail_node(self, name: str, *, gone: bool = False, pods_stuck: bool = False) -> None:
        """The node becomes unreachable. `gone`: its object is deleted; `pods_stuck`: its deleted pods stay until it recovers."""
        self._call_kubelets(lambda: self._kubelets.fail_node(name, gone=gone, pods_stuck=pods_stuck))

    def recover_node(self, name: str) -> None:
        self._call_kubelets(lambda: self._kubelets.recover_node(name))

    def fail_bind(self, pod: str, *, times: int = 1) -> None:
        """The next binds of this pod (namespace/name) fail."""
        self._scheduler_client.refusals["bind", pod] = times

    def fail_evict(self, pod: str, *, times: int = 1) -> None:
        """The next evictions of this pod (namespace/name) are refused."""
        for verb in ("evict", "delete"):
            self._scheduler_client.refusals[verb, pod] = times

    def _call_kubelets(self, change: Callable[[], None]) -> None:
        """Call the kubelets in their own thread, once they have observed all objects."""
        self._wait_until_settled()

        async def run_change() -> None:
            change()

        self._is_settled = False
        self._run_on_loop(run_change())
        self._wait_until_settled()

    # -- time ------------------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self._virtual_time.now

    def advance(self, seconds: float) -> None:
        """Time passes; what is due in it happens, in order."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds}")
        self._wait_until_settled()
        until = self._virtual_time.now + seconds
        while (due := self._kubelets.next_at()) is not None and due <= until:
            self._move_time(max(due, self._virtual_time.now))
        self._move_time(until)

    def _move_time(self, to: float) -> None:
        async def moved() -> None:
            self._virtual_time.now = to
            self._kubelets.wake()

        self._is_settled = False
        self._run_on_loop(moved())
        self._wait_until_settled()

    # -- what a scheduler sees and does ----------------------------------------------------------------------------------------

    @property
    def writes(self) -> list[Write]:
        """All that schedulers sent, in order, also what the server refused."""
        return self._scheduler_client.writes

    def events(self) -> list[Event]:
        """What happened since the last call."""
        if not self._skip_settling():
            self._wait_until_settled()
        return self._scheduler.events()

    def relist(self) -> list[Event]:
        """All objects as events for a new scheduler; the old one and its state are dropped."""
        self._run_on_loop(self._end_scheduler())
        self._run_on_loop(self._start_scheduler())
        self._is_settled = False
        return self.events()

    def list_events(self) -> list[Event]:
        """All objects as events, without consuming those of `events`."""
        self._wait_until_settled()
        kinds = [one.key for one in WATCHED if one.key in self._versions]
        found = [self._decoder.decode(one) for kind in kinds for one in self._run_on_loop(self._list(kind))]
        return [Upsert(thing) for thing in found if thing is not None]

    def execute(self, effects: Iterable[Effect], *, max_writes: int | None = None) -> None:
        """Carry these out; what fails comes back as an event. `max_writes`: only so many writes, then the scheduler is dead."""
        effects = tuple(effects)
        self._scheduler_client.writes_left = max_writes
        if effects:
            self._is_settled = False
            self._scheduler.execute(effects)
        if max_writes is not None:
            self._run_on_loop(self._kill_scheduler())
        elif not self._skip_settling():
            self._wait_until_settled()

    @property
    def _scheduler(self) -> LiveCluster:
        assert self._live is not None, "relist comes first"
        return self._live

    async def _start_scheduler(self) -> None:
        self._live = LiveCluster(
            self._scheduler_client,
            may_write=lambda: True,
            scheduler_names=self._names,
            now=lambda: self._virtual_time.now,
            limits=self._limits,
            watch_timing=self._watch_pace,
        )
        self._live_task = asyncio.create_task(self._live.run())
        async with asyncio.timeout(_SETTLE_TIMEOUT_S):
            while not self._live.synced:
                await asyncio.sleep(_POLL_S)

    async def _end_scheduler(self) -> None:
        if self._live_task is not None:
            self._live_task.cancel()
            with suppress(asyncio.CancelledError):
                await self._live_task
        self._live = self._live_task = None
        self._scheduler_client.writes_left = None

    async def _kill_scheduler(self) -> None:
        """Once it has written all that it may, or all that it wanted to."""
        async with asyncio.timeout(_SETTLE_TIMEOUT_S):
            while self._scheduler_client.writes_left and self._scheduler.pending_writes:
                await asyncio.sleep(_POLL_S)
            # Responses to requests in flight arrive before the connection is closed.
            await asyncio.sleep(10 * _POLL_S)
        await self._end_scheduler()

    # -- rest ------------------------------------------------------------------------------------------------------------------

    def _wait_until_settled(self) -> None:
        if not self._is_settled:
            self._run_on_loop(self._settle())
            self._is_settled = True

    async def _settle(self) -> None:
        try:
            async with asyncio.timeout(_SETTLE_TIMEOUT_S):
                while not (self._is_quiet() and await self._all_observed() and self._is_quiet()):
                    self._raise_task_errors()
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise NotSettled(self._why_unsettled()) from None

    def _why_unsettled(self) -> str:
        writes, failures = (self._live.pending_writes, self._live.delayed_failures) if self._live is not None else (0, 0)
        unseen = ", ".join(sorted(self._written_resources))
        health = self._live.health().values() if self._live is not None else ()
        failing = "; ".join(str(one) for one in health if one.failures)
        return (
            f"{writes} writes under way, {failures} failures to be reported, kubelets idle: {self._kubelets.is_idle}, "
            f"unseen: {unseen}, watches that fail: {failing}"
        )

    def _is_quiet(self) -> bool:
        return self._kubelets.is_idle and (self._live is None or not (self._live.pending_writes or self._live.delayed_failures))

    async def _all_observed(self) -> bool:
        """Whether every watcher has observed the newest version of all written objects."""
        written_resources = self._written_resources & _RESOURCES.keys()
        self._written_resources.clear()
        for resource in written_resources:
            there = await self._current_versions(_RESOURCES[resource])
            watching = [self._kubelet_client] if self._live is None else [self._kubelet_client, self._scheduler_client]
            if any(window.observed.get(resource, there) != there for window in watching):
                self._written_resources.update(written_resources)
                return False
        return not self._written_resources

    async def _current_versions(self, kind: GroupKind) -> Versions:
        return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in await self._list(kind)}

    def _raise_task_errors(self) -> None:
        if self._live_task is not None and self._live_task.done():
            self._live_task.result()

    # -- asking the server -----------------------------------------------------------------------------------------------------

    async def _translate_errors(self, work: Coroutine[Any, Any, T]) -> T:
        """Errors of the server as exceptions of the simulated cluster."""
        try:
            return await work
        except ApiError as error:
            if error.status == _NOT_FOUND:
                raise NotFound(str(error)) from error
            if error.status == _CONFLICT:
                raise Conflict(str(error)) from error
            raise BadManifest(str(error)) from error

    async def _get(self, ref: ApiObjectRef) -> Manifest | None:
        try:
            found: Manifest = msgspec.json.decode(await self._user_client.request("GET", self._path(ref)))
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return found

    async def _list(self, kind: GroupKind) -> list[Manifest]:
        """By namespace and name, as the server keeps them."""
        if kind not in self._versions:
            return []
        path = resource_of(*kind).path(self._versions[kind])
        items: list[Manifest] = msgspec.json.decode(await self._user_client.request("GET", path))["items"] or []
        titles = {"apiVersion": resource_of(*kind).api_version(self._versions[kind]), "kind": kind[1]}
        return [{**titles, **one} for one in items]

    async def _request(self, method: str, path: str, body: ManifestView | None) -> Manifest:
        content_type = _MERGE_PATCH if method == "PATCH" else "application/json"
        answer: Manifest = msgspec.json.decode(await self._user_client.request(method, path, body=body, content_type=content_type))
        return answer

    def _version(self, kind: GroupKind) -> str:
        try:
            return self._versions[kind]
        except KeyError:
            raise BadManifest(f"kind: the server has no {kind[1]} of {kind[0]!r}") from None

    def _path(self, ref: ApiObjectRef, *, named: bool = True, subresource: str = "") -> str:
        version = self._version(ref[:2])
        return resource_of(*ref[:2]).path(version, namespace=ref.namespace, name=ref.name if named else "", subresource=subresource)


def _patch_with_texts(patch: ManifestView) -> Manifest:
    """Annotations are texts; null still removes one."""
    written = with_string_annotations({"metadata": {}, **patch})
    annotations = (patch.get("metadata") or {}).get("annotations") or {}
    removed = {name: None for name, value in annotations.items() if value is None}
    if not removed:
        return written
    metadata = written["metadata"]
    return {**written, "metadata": {**metadata, "annotations": {**metadata["annotations"], **removed}}}


_RESOURCES: Final = {resource_of_path(resource.path(resource.versions[0])): resource.key for resource in WATCHED}
