"""A real cluster: watches become events, effects become writes. It makes no decisions.

Two threads meet here. The event loop reads watches, keeps the write cache and writes. The scheduling loop takes events, decides and
submits effects; it also decodes the objects, so that a burst of updates cannot delay writes, and so that of an object that changed
ten times between two cycles only the last version is decoded.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

import msgspec
import structlog

from muster.kube.read import names
from muster.kube.read.api_resources import WATCHED, ApiResource
from muster.kube.read.decoder import BadObject, Decoder
from muster.kube.read.object_references import HYPERNODE, NODE, POD, POD_GROUP_KIND, QUEUE, QUOTAS, ApiObjectRef, GroupKind
from muster.kube.read.pod_group_decoding import FLAVOUR_OF_API_GROUP
from muster.kube.read.pod_index import PodIndex
from muster.kube.read.saved_objects import HISTORY, PLAN
from muster.kube.read.text_values import read_version
from muster.kube.watch import reflector
from muster.kube.watch.client import Client
from muster.kube.watch.object_tracker import UpdateType, WatchUpdate
from muster.kube.watch.reflector import Reflector, WatchHealth
from muster.kube.write.effect_writer import DEFAULT_WRITE_LIMITS, EffectWriter, WriteLimits
from muster.kube.write.write_cache import WriteCache
from muster.model.effects import Condition, Effect
from muster.model.events import Delete, Event, Upsert, event_subject
from muster.model.pod import Pod

log = structlog.get_logger(__name__)

BATCH_S: Final = 0.02
"""How long to wait for more updates after the first: the pods of a gang are created one after the other."""
BUSY_BATCH_S: Final = 2.0
"""The same while many writes are in flight, at most. Decisions made meanwhile could not be written before them; most of the updates
are the result of these writes, and decoding them would delay the rest."""
_MANY_WRITES: Final = 100
_BUSY_READ_BYTES: Final = 2**20
"""How much of a watch is read at once meanwhile: one update wakes the event loop as much as a thousand do."""
MAX_REJECTED: Final = 1000
_REQUIRED_KINDS: Final = frozenset({POD, NODE, PLAN, HISTORY})

RejectedObject = tuple[str, str, str]
"""Kind, name and what is wrong."""


class LiveCluster:
    """Made inside the event loop that `run` runs in. `events`, `execute` and `wait` belong to the thread of the
    scheduling loop. `namespace` is that of Plans and Histories. `read_only`: no effect is carried out, and Plans and Histories are
    not read, because they are another scheduler's."""

    def __init__(
        self,
        client: Client,
        *,
        may_write: Callable[[], bool],
        scheduler_names: Collection[str] = ("muster",),
        resources: Iterable[ApiResource] = WATCHED,
        now: Callable[[], float] = time.time,
        limits: WriteLimits = DEFAULT_WRITE_LIMITS,
        watch_timing: reflector.WatchTiming = reflector.DEFAULT_WATCH_TIMING,
        batch_s: float = BATCH_S,
        namespace: str = names.MUSTER_NAMESPACE,
        read_only: bool = False,
    ) -> None:
        self.rejected: list[RejectedObject] = []
        """Objects that could not be decoded."""
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder(tuple(scheduler_names))
        self._index = PodIndex()
        self._cache = WriteCache()
        self._batch_s = batch_s
        self._arrived = threading.Condition()
        self._inbox: dict[tuple[GroupKind, str], WatchUpdate] = {}
        self._failures: list[Event] = []
        self._wake_requested = False
        self._read_only = read_only
        self._synced = threading.Event()
        resources = [one for one in resources if not (read_only and one.group == names.MUSTER_GROUP)]
        watched = [replace(one, only_namespace=namespace) if one.group == names.MUSTER_GROUP else one for one in resources]
        self._reflectors = {one.key: Reflector(client, one, self._receive, timing=watch_timing) for one in watched}
        self._unsynced = set(self._reflectors)
        self._writer = EffectWriter(
            client,
            self._cache,
            on_failure=self._add_failure,
            may_write=may_write,
            gang_pods=self._index.gang_pods,
            version_of=lambda kind: self._reflectors[kind].version,
            now=now,
            limits=limits,
            namespace=namespace,
        )

    # -- in the event loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Watch and write until cancelled. Writes in flight are cancelled as well: `drain` first to complete them."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for one in self._reflectors.values():
                    tasks.create_task(one.run())
                tasks.create_task(self._writer.run())
        finally:
            await self._writer.close()

    async def drain(self, *, timeout_s: float) -> bool:
        """Until all that was submitted is written; False at the timeout."""
        return await self._writer.drain(timeout_s=timeout_s)

    def _receive(self, updates: list[WatchUpdate]) -> None:
        received = [update for update in updates if self._cache_update(update)]
        with self._arrived:
            for update in received:
                self._inbox[update.kind, update.uid or update.ref.full_name] = update
            self._arrived.notify()
        if not self._unsynced:
            self._synced.set()

    def _cache_update(self, update: WatchUpdate) -> bool:
        """Is it an update of an object that can be decoded?"""
        if update.update_type is UpdateType.SYNCED:
            self._mark_synced(update.kind)
            return False
        try:
            self._cache.apply_watch(update)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as bad:
            # No API server sends such an object.
            log.warning("object cannot be decoded", kind=update.kind, error=str(bad))
            return False
        return True

    def _mark_synced(self, kind: GroupKind) -> None:
        """All objects of a kind were received, or it is forbidden. Without pods or nodes every node would seem empty or deleted,
        without Plans nothing would seem to be reserved."""
        if kind in _REQUIRED_KINDS and self._reflectors[kind].health.forbidden:
            log.error("no scheduling before this resource may be read", resource=self._reflectors[kind].resource.plural)
            return
        self._unsynced.discard(kind)

    def _add_failure(self, failure: Event) -> None:
        with self._arrived:
            self._failures.append(failure)
            self._arrived.notify()

    # -- in the thread of the scheduling loop ----------------------------------------------------------------------------------

    def events(self) -> list[Event]:
        """What happened since the last call."""
        with self._arrived:
            inbox, self._inbox = self._inbox, {}
            failures, self._failures = self._failures, []
            self._wake_requested = False
        changes = [event for update in inbox.values() if (event := self._event(update)) is not None]
        return [*changes, *failures]

    def execute(self, effects: Iterable[Effect]) -> None:
        """Submit effects. What fails comes back as an event."""
        if not self._read_only:
            self._writer.submit(effects)

    def wait(self, timeout_s: float) -> bool:
        """Until an update is received or `wake` is called, plus the batch time; False at the timeout."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._inbox or self._failures or self._wake_requested, timeout=timeout_s):
                return False
        self._collect_batch()
        return True

    def _collect_batch(self) -> None:
        """Wait for more updates; while many writes are in flight, until they are done or `BUSY_BATCH_S` have passed."""
        time.sleep(self._batch_s)
        if not self.is_busy:
            return
        self._set_min_read_bytes(_BUSY_READ_BYTES)
        until = time.monotonic() + BUSY_BATCH_S
        while self._writer.active_writes and not self._wake_requested and time.monotonic() < until:
            time.sleep(self._batch_s)
        self._set_min_read_bytes(1)
        time.sleep(self._batch_s)

    def _set_min_read_bytes(self, min_bytes: int) -> None:
        self._loop.call_soon_threadsafe(self._client.set_min_read_bytes, min_bytes)

    def _event(self, update: WatchUpdate) -> Event | None:
        is_deleted, version = update.update_type is UpdateType.DELETE, read_version(update.version)
        if update.kind == POD and is_deleted:
            uid = update.uid or update.ref.full_name
            self._index.drop(update.ref, uid=uid)
            return Delete("Pod", uid, version)
        try:
            obj = self._decoder.decode_as(update.kind, update.raw)
        except BadObject as bad:
            self._reject(update.ref, str(bad))
            return None
        except Exception as error:
            # A bug. Whoever wrote this object must not stop the scheduling of all others with it.
            log.error("object cannot be decoded", kind=update.ref.kind, name=update.ref.full_name, exc_info=error)
            self._reject(update.ref, f"cannot be decoded: {type(error).__name__}")
            return None
        if obj is None:
            return None
        if is_deleted:
            return Delete(*event_subject(obj), version)
        if isinstance(obj, Pod):
            self._index.put(update.ref, obj)
        return Upsert(obj)

    def _reject(self, ref: ApiObjectRef, why: str) -> None:
        """An object that cannot be decoded gets a condition, where its kind has conditions."""
        rejected = (ref.kind, ref.full_name, why)
        if rejected in self.rejected:
            return
        self.rejected = [*self.rejected[-MAX_REJECTED + 1 :], rejected]
        log.warning("object ignored", kind=ref.kind, name=ref.full_name, why=why)
        if (subject := _condition_subject(ref)) is not None:
            self.execute([Condition(*subject, ok=False, code="Invalid", why=why)])

    # -- from any thread -------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """End a `wait`."""
        with self._arrived:
            self._wake_requested = True
            self._arrived.notify_all()

    @property
    def synced(self) -> bool:
        """Were all existing objects received once? Some may still be in the inbox."""
        return self._synced.is_set()

    @property
    def pending_writes(self) -> int:
        return self._writer.pending

    @property
    def is_busy(self) -> bool:
        """Are many writes in flight? Other work would delay them."""
        return self._writer.active_writes >= _MANY_WRITES

    @property
    def delayed_failures(self) -> int:
        """Failures that are reported later, because the same write fails repeatedly."""
        return self._writer.delayed_failures

    @property
    def events_dropped(self) -> int:
        return self._writer.events_dropped

    @property
    def backlog(self) -> int:
        """Objects with updates that `events` has not returned yet."""
        return len(self._inbox)

    def health(self) -> dict[GroupKind, WatchHealth]:
        return {kind: one.health for kind, one in self._reflectors.items()}

    def newest_version(self) -> int:
        """The newest version of the API server's data that any watch received."""
        return max(one.health.newest_version for one in self._reflectors.values())


def _condition_subject(ref: ApiObjectRef) -> tuple[str, str] | None:
    """Subject and key of a condition on this object."""
    kind = ref[:2]
    if kind == POD:
        return "pod", ref.full_name
    if kind == NODE:
        return "node", ref.name
    if kind == QUEUE:
        return "queue", f"queue/{ref.name}"
    if kind in QUOTAS:
        return "queue", f"quota/{ref.full_name}"
    if kind == HYPERNODE:
        return "domain", ref.name
    if ref.kind == POD_GROUP_KIND:
        return "gang", f"{FLAVOUR_OF_API_GROUP[ref.group].family}:{ref.full_name}"
    return None
