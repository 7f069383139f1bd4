"""A real API server as a stage for scenarios: the calls of the embedded cluster, carried out by a live scheduler's own parts.

What a scenario does goes to the server as a user would send it; what the scheduler sees and writes goes through `LiveCluster`; what
kubelets and controllers do is done by those of the lab. Each call ends when the cluster is at rest: all is written, and all of it
was seen by everybody. So a story comes out the same each time, however slow the server is. Time is virtual.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec

from muster.adapters.kube import reflector
from muster.adapters.kube.access import Access
from muster.adapters.kube.client import ApiError, path_kind
from muster.adapters.kube.decode import BadObject, Decoder
from muster.adapters.kube.live import LiveCluster
from muster.adapters.kube.merge import merged
from muster.adapters.kube.refs import POD, KindKey, Manifest, Ref, Stored
from muster.adapters.kube.resources import WATCHED, resource_of
from muster.adapters.kube.writer import Pace
from muster.adapters.sim.admission import check
from muster.adapters.sim.hands import Write
from muster.adapters.sim.manifests import DEFAULT_NAMESPACE, BadManifest, is_namespaced, kinds_called, ref_of, with_texts
from muster.adapters.sim.objects import Conflict, NotFound
from muster.adapters.sim.wishes import CONTROLLER
from muster.lab.calendar import Calendar
from muster.lab.completing import class_for, completed
from muster.lab.kubelet import Kubelets
from muster.lab.window import Versions, Window
from muster.model.effects import Effect
from muster.model.events import Event, Seen

T = TypeVar("T")

_MERGE: Final = "application/merge-patch+json"
_ABSENT: Final = 404
_CONFLICT: Final = 409
_POLL_S: Final = 0.003
_REST_S: Final = 60.0
_CALL_S: Final = 2 * _REST_S
_NO_CLASS: Final = "no PriorityClass with name"
_CLASS_TRIES: Final = 50
_CLASS_WAIT_S: Final = 0.02
PACE: Final = Pace(events_per_s=0, patience_s=5.0, volume_wait_s=30.0)
"""Events of the API tell what happened in words, and nobody decides by them: they are left out."""


class NotAtRest(Exception):
    """Something goes on and on, or hangs."""


class RealCluster:
    """A context manager, from a thread that has no event loop.

    `through`: another way to the server for the scheduler alone; `pace` and `watch_pace`: how it writes and watches. `hurries`:
    does the scheduler's next turn come before all is written and seen? Asked at each turn.
    """

    def __init__(
        self,
        access: Callable[[], Coroutine[Any, Any, Access]],
        *,
        scheduler_names: Iterable[str] = ("muster",),
        through: Callable[[], Coroutine[Any, Any, Access]] | None = None,
        pace: Pace = PACE,
        watch_pace: reflector.Pace = reflector.USUAL,
        hurries: Callable[[], bool] = lambda: False,
    ) -> None:
        self._access = access
        self._pace = pace
        self._watch_pace = watch_pace
        self._hurries = hurries
        self._through = through or access
        self._names = tuple(scheduler_names)
        self._decoder = Decoder(self._names)
        self._calendar = Calendar()
        self._touched: set[str] = set()
        self._at_rest = False
        self._namespaces = {DEFAULT_NAMESPACE}
        self._live: LiveCluster | None = None
        self._living: asyncio.Task[None] | None = None

    def __enter__(self) -> RealCluster:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stage", daemon=True)
        self._thread.start()
        try:
            self._do(self._open())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._do(self._close(kind, error, trace))
        finally:
            self._stop()

    async def _open(self) -> None:
        access = await self._access()
        self._user = Window(access, calendar=self._calendar, touched=self._touched)
        self._backstage = Window(access, calendar=self._calendar, touched=self._touched)
        self._eyes = Window(await self._through(), calendar=self._calendar, touched=self._touched)
        self._versions = await reflector.discover(self._user)
        self._kubelets = Kubelets(self._backstage, now=lambda: self._calendar.now, cleans=True, beat_s=None)
        await self._kubelets.__aenter__()

    async def _close(self, *error: Any) -> None:
        try:
            await self._end_scheduler()
            await self._kubelets.__aexit__(*error)
        finally:
            for window in (self._user, self._backstage, self._eyes):
                await window.close()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S)

    # -- what a user does ------------------------------------------------------------------------------------------------------

    def apply(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create the object, or merge the manifest into the one that exists. Returns it as it is stored."""
        ref = ref_of(manifest)
        written = with_texts(dict(manifest))
        check(written, ref=ref)
        try:
            self._decoder.decode(written)
        except BadObject as bad:
            raise BadManifest(str(bad)) from None
        self._at_rest = False
        return self._do(self._asked(self._apply(ref, written)))

    def patch(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Manifest:
        """A JSON merge patch: null removes."""
        self._at_rest = False
        return self._do(self._asked(self._patch_called(kind, namespace, name, patch)))

    def delete(self, kind: str, namespace: str, name: str, *, for_good: bool = False) -> None:
        """Ask it to go. `for_good`: nobody re-creates it."""
        self._at_rest = False
        self._do(self._asked(self._delete(kind, namespace, name, for_good=for_good)))

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """The object, or None. `kind` is `Pod`, or `PodGroup.scheduling.volcano.sh` where a plain name is not clear."""
        self._rest()
        try:
            return self._do(self._asked(self._called(kind, namespace, name)))[1]
        except NotFound:
            return None

    def listed(self, kind: str) -> list[Manifest]:
        """All objects of a kind, by namespace and name."""
        self._rest()
        return [one for known in kinds_called(kind) for one in self._do(self._asked(self._all(known)))]

    def send(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create exactly this, whatever it is. Raises the client's ApiError where the server does not take it."""
        ref = ref_of(manifest)
        self._at_rest = False
        return self._do(self._sent("POST", self._path(ref, named=False), manifest))

    async def _apply(self, ref: Ref, manifest: Manifest) -> Manifest:
        if await self._found(ref) is not None:
            return await self._patch(ref, {key: part for key, part in manifest.items() if key not in ("apiVersion", "kind")})
        if ref.namespace not in ("", *self._namespaces):
            await self._make_namespace(ref.namespace)
        if ref[:2] == POD and (its_class := class_for(manifest)) is not None:
            await self._apply(ref_of(its_class), its_class)
        return await self._create(ref, manifest)

    async def _create(self, ref: Ref, manifest: Manifest) -> Manifest:
        """What stands in a status the server takes only afterwards. A pod that stands somewhere already is bound when it says so,
        lest its kubelet starts what runs."""
        whole = dict(completed(manifest, ref=ref, now=self._calendar.now))
        whole["apiVersion"] = resource_of(*ref[:2]).api_version(self._version(ref[:2]))
        status = whole.pop("status", None) if ref.kind != "Node" else None
        node = whole["spec"].pop("nodeName", "") if ref[:2] == POD and status else ""
        place = (path_kind(self._path(ref, named=False)), ref.namespace, ref.name)
        self._calendar.wish(place, manifest["metadata"].get("creationTimestamp"))
        try:
            made = await self._admitted(self._path(ref, named=False), whole)
        finally:
            self._calendar.wish(place, None)
        if status:
            made = await self._patch(ref, {"status": status})
        if node:
            await self._bind(ref, node=node)
        return made

    async def _bind(self, ref: Ref, *, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": ref.name}, "target": target}
        await self._sent("POST", self._path(ref, sub="binding"), binding)

    async def _admitted(self, path: str, manifest: Stored) -> Manifest:
        """Created, as soon as the server's own doormen have heard of the class that was made a moment ago."""
        for _ in range(_CLASS_TRIES):
            try:
                return await self._sent("POST", path, manifest)
            except ApiError as error:
                if _NO_CLASS not in error.message:
                    raise
                await asyncio.sleep(_CLASS_WAIT_S)
        return await self._sent("POST", path, manifest)

    async def _make_namespace(self, name: str) -> None:
        self._namespaces.add(name)
        ref = Ref("", "Namespace", "", name)
        if await self._found(ref) is None:
            await self._create(ref, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def _patch_called(self, kind: str, namespace: str, name: str, patch: Stored) -> Manifest:
        ref, found = await self._called(kind, namespace, name)
        check(with_texts(dict(merged(found, patch))), ref=ref)
        return await self._patch(ref, patch)

    async def _patch(self, ref: Ref, patch: Stored) -> Manifest:
        """A status has a door of its own, where there is one, and so has the node of a pod."""
        answer: Manifest = {}
        rest = {key: part for key, part in _patch_with_texts(patch).items() if key != "status"}
        node = (patch.get("spec") or {}).get("nodeName") if ref[:2] == POD else None
        if node:
            await self._bind(ref, node=node)
            rest["spec"] = {key: part for key, part in rest["spec"].items() if key != "nodeName"}
        if any(rest.values()):
            answer = await self._sent("PATCH", self._path(ref), rest)
        if patch.get("status"):
            answer = await self._patch_status(ref, {"status": patch["status"]})
        return answer

    async def _patch_status(self, ref: Ref, patch: Stored) -> Manifest:
        try:
            return await self._sent("PATCH", self._path(ref, sub="status"), patch)
        except ApiError as error:
            if error.status != _ABSENT:
                raise
        return await self._sent("PATCH", self._path(ref), patch)

    async def _delete(self, kind: str, namespace: str, name: str, *, for_good: bool) -> None:
        ref, found = await self._called(kind, namespace, name)
        if for_good and CONTROLLER in (found["metadata"].get("annotations") or {}):
            await self._patch(ref, {"metadata": {"annotations": {CONTROLLER: None}}})
        await self._sent("DELETE", self._path(ref), None)

    async def _called(self, kind: str, namespace: str, name: str) -> tuple[Ref, Manifest]:
        """The object that somebody means. A kind that exists in several API groups is the one in which the name exists."""
        kinds = [known for known in kinds_called(kind) if known in self._versions]
        refs = [Ref(*known, (namespace or DEFAULT_NAMESPACE) if is_namespaced(known) else "", name) for known in kinds]
        found = [(ref, one) for ref in refs if (one := await self._found(ref)) is not None]
        if len(found) > 1:
            choices = " or ".join(f"{ref.kind}.{ref.group}" for ref, _ in found)
            raise BadManifest(f"kind: there are {len(found)} objects {kind} {refs[0].title}; write {choices}")
        if not found:
            raise NotFound(f"{kind} {namespace}/{name} does not exist")
        return found[0]

    # -- what befalls it -------------------------------------------------------------------------------------------------------

    def fail_node(self, name: str, *, gone: bool = False, stuck: bool = False) -> None:
        """The node stops answering. `gone`: its object is removed; `stuck`: its deleted pods stay until it returns."""
        self._told(lambda: self._kubelets.fail_node(name, gone=gone, stuck=stuck))

    def return_node(self, name: str) -> None:
        self._told(lambda: self._kubelets.return_node(name))

    def fail_bind(self, pod: str, *, times: int = 1) -> None:
        """The next binds of this pod (namespace/name) fail."""
        self._eyes.refusals["bind", pod] = times

    def fail_evict(self, pod: str, *, times: int = 1) -> None:
        """The next evictions of this pod (namespace/name) are refused."""
        for verb in ("evict", "delete"):
            self._eyes.refusals[verb, pod] = times

    def _told(self, tell: Callable[[], None]) -> None:
        """Kubelets are told in their own thread, once they have seen all there is."""
        self._rest()

        async def told() -> None:
            tell()

        self._at_rest = False
        self._do(told())
        self._rest()

    # -- time ------------------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self._calendar.now

    def advance(self, seconds: float) -> None:
        """Time passes; what is due in it happens, in order."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds}")
        self._rest()
        until = self._calendar.now + seconds
        while (due := self._kubelets.next_at()) is not None and due <= until:
            self._move(max(due, self._calendar.now))
        self._move(until)

    def next_event_at(self) -> float | None:
        """When something happens next by itself, or None if nothing does any more."""
        self._rest()
        return self._calendar.now if self._live is not None and self._live.backlog else self._kubelets.next_at()

    def _move(self, to: float) -> None:
        async def moved() -> None:
            self._calendar.now = to
            self._kubelets.wake()

        self._at_rest = False
        self._do(moved())
        self._rest()

    # -- what a scheduler sees and does ----------------------------------------------------------------------------------------

    @property
    def writes(self) -> list[Write]:
        """All that schedulers sent, in order, also what the server refused."""
        return self._eyes.writes

    def events(self) -> list[Event]:
        """What happened since the last call."""
        if not self._hurries():
            self._rest()
        return self._scheduler.events()

    def relist(self) -> list[Event]:
        """All that exists, for a scheduler that starts anew: the old one is gone with all that it knew."""
        self._do(self._end_scheduler())
        self._do(self._start_scheduler())
        self._at_rest = False
        return self.events()

    def everything(self) -> list[Event]:
        """All that exists, as events; whoever follows `events` is not disturbed."""
        self._rest()
        kinds = [one.key for one in WATCHED if one.key in self._versions]
        found = [self._decoder.decode(one) for kind in kinds for one in self._do(self._all(kind))]
        return [Seen(thing) for thing in found if thing is not None]

    def execute(self, effects: Iterable[Effect], *, stop_after: int | None = None) -> None:
        """Carry these out; what fails comes back as an event. `stop_after`: only so many writes, then the scheduler is dead."""
        effects = tuple(effects)
        self._eyes.writes_left = stop_after
        if effects:
            self._at_rest = False
            self._scheduler.execute(effects)
        if stop_after is not None:
            self._do(self._die())
        elif not self._hurries():
            self._rest()

    @property
    def _scheduler(self) -> LiveCluster:
        assert self._live is not None, "relist comes first"
        return self._live

    async def _start_scheduler(self) -> None:
        self._live = LiveCluster(
            self._eyes,
            may_write=lambda: True,
            scheduler_names=self._names,
            versions=self._versions,
            now=lambda: self._calendar.now,
            pace=self._pace,
            watch_pace=self._watch_pace,
        )
        self._living = asyncio.create_task(self._live.run())
        async with asyncio.timeout(_REST_S):
            while not self._live.synced:
                await asyncio.sleep(_POLL_S)

    async def _end_scheduler(self) -> None:
        if self._living is not None:
            self._living.cancel()
            with suppress(asyncio.CancelledError):
                await self._living
        self._live = self._living = None
        self._eyes.writes_left = None

    async def _die(self) -> None:
        """Once it has written all that it may, or all that it wanted to."""
        async with asyncio.timeout(_REST_S):
            while self._eyes.writes_left and self._scheduler.pending_writes:
                await asyncio.sleep(_POLL_S)
            # What was sent is answered before the connection goes.
            await asyncio.sleep(10 * _POLL_S)
        await self._end_scheduler()

    # -- rest ------------------------------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        if not self._at_rest:
            self._do(self._come_to_rest())
            self._at_rest = True

    async def _come_to_rest(self) -> None:
        try:
            async with asyncio.timeout(_REST_S):
                while not (self._is_still() and await self._all_is_seen() and self._is_still()):
                    self._raise_faults()
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            writes = self._live.pending_writes if self._live is not None else 0
            unseen = ", ".join(sorted(self._touched))
            raise NotAtRest(f"{writes} writes under way, kubelets idle: {self._kubelets.is_idle}, unseen: {unseen}") from None

    def _is_still(self) -> bool:
        return self._kubelets.is_idle and (self._live is None or not (self._live.pending_writes or self._live.withheld))

    async def _all_is_seen(self) -> bool:
        """Has everybody seen the newest version of all that anybody wrote to?"""
        touched = self._touched & _RESOURCES.keys()
        self._touched.clear()
        for resource in touched:
            there = await self._versions_there(_RESOURCES[resource])
            watching = [self._backstage] if self._live is None else [self._backstage, self._eyes]
            if any(window.seen.get(resource, there) != there for window in watching):
                self._touched.update(touched)
                return False
        return not self._touched

    async def _versions_there(self, kind: KindKey) -> Versions:
        return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in await self._all(kind)}

    def _raise_faults(self) -> None:
        if self._living is not None and self._living.done():
            self._living.result()

    # -- asking the server -----------------------------------------------------------------------------------------------------

    async def _asked(self, work: Coroutine[Any, Any, T]) -> T:
        """What the server refuses, in the words of the embedded cluster."""
        try:
            return await work
        except ApiError as error:
            if error.status == _ABSENT:
                raise NotFound(str(error)) from error
            if error.status == _CONFLICT:
                raise Conflict(str(error)) from error
            raise BadManifest(str(error)) from error

    async def _found(self, ref: Ref) -> Manifest | None:
        try:
            found: Manifest = msgspec.json.decode(await self._user.request("GET", self._path(ref)))
        except ApiError as error:
            if error.status == _ABSENT:
                return None
            raise
        return found

    async def _all(self, kind: KindKey) -> list[Manifest]:
        """By namespace and name, as the server keeps them."""
        if kind not in self._versions:
            return []
        path = resource_of(*kind).path(self._versions[kind])
        items: list[Manifest] = msgspec.json.decode(await self._user.request("GET", path))["items"] or []
        titles = {"apiVersion": resource_of(*kind).api_version(self._versions[kind]), "kind": kind[1]}
        return [{**titles, **one} for one in items]

    async def _sent(self, method: str, path: str, body: Stored | None) -> Manifest:
        content_type = _MERGE if method == "PATCH" else "application/json"
        answer: Manifest = msgspec.json.decode(await self._user.request(method, path, body=body, content_type=content_type))
        return answer

    def _version(self, kind: KindKey) -> str:
        try:
            return self._versions[kind]
        except KeyError:
            raise BadManifest(f"kind: the server has no {kind[1]} of {kind[0]!r}") from None

    def _path(self, ref: Ref, *, named: bool = True, sub: str = "") -> str:
        version = self._version(ref[:2])
        return resource_of(*ref[:2]).path(version, namespace=ref.namespace, name=ref.name if named else "", sub=sub)


def _patch_with_texts(patch: Stored) -> Manifest:
    """Annotations are texts; null still removes one."""
    written = with_texts({"metadata": {}, **patch})
    said = (patch.get("metadata") or {}).get("annotations") or {}
    removed = {name: None for name, value in said.items() if value is None}
    if not removed:
        return written
    metadata = written["metadata"]
    return {**written, "metadata": {**metadata, "annotations": {**metadata["annotations"], **removed}}}


_RESOURCES: Final = {path_kind(resource.path(resource.versions[0])): resource.key for resource in WATCHED}
