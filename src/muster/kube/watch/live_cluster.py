"""A real cluster: what happens there comes in as events, what a cycle decided goes out as writes. It decides nothing.

Two threads meet here. The event loop reads watches, keeps the mirror and writes. The scheduler's thread takes events, decides and
hands over effects; it also decodes what came in, so that a flood of news cannot hold up the writes, and so that of an object that
changed ten times meanwhile only the last version is ever decoded.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec
import structlog

from muster.kube.read.decoder import BadObject, Decoder, event_subject
from muster.kube.read.object_references import HYPERNODE, NODE, POD, POD_GROUP_KIND, QUEUE, QUOTAS, ApiObjectRef, GroupKind
from muster.kube.read.pod_index import PodIndex
from muster.kube.watch import reflector
from muster.kube.watch.api_resources import WATCHED, ApiResource
from muster.kube.watch.client import Client
from muster.kube.watch.reflector import Reflector, UpdateType, WatchHealth, WatchUpdate
from muster.kube.write.effect_writer import DEFAULT_WRITE_LIMITS, EffectWriter, WriteLimits
from muster.kube.write.patch_bodies import API_GROUP_OF_FAMILY
from muster.kube.write.write_cache import ObjectIdentity, WriteCache
from muster.model.effects import Condition, Effect
from muster.model.events import Delete, Event, Upsert
from muster.model.pod import Pod

log = structlog.get_logger(__name__)

BATCH_S: Final = 0.02
"""After the first news the rest is waited for so long: the pods of a gang are made one after the other."""
BUSY_BATCH_S: Final = 2.0
"""So long, at most, while many writes are under way. What would be decided meanwhile could not be written before them; most of the
news is what we did ourselves, and every look at it holds the writes up."""
_MANY_WRITES: Final = 100
_BUSY_READ_BYTES: Final = 2**20
"""So much of a watch is read at once meanwhile: a piece of news that comes alone wakes the event loop as much as a thousand do."""
MAX_REJECTED: Final = 1000
_REQUIRED_KINDS: Final = frozenset({POD, NODE})

RejectedObject = tuple[str, str, str]
"""Kind, name and what is wrong."""


class _InboxEntry(NamedTuple):
    update: WatchUpdate
    identity: ObjectIdentity


class LiveCluster:
    """Made inside the event loop that `run` runs in. `events`, `execute` and `wait` belong to the scheduler's thread.

    `versions` are the served versions, where they are known: `discover_versions` tells. What is served later is found later.
    """

    def __init__(
        self,
        client: Client,
        *,
        may_write: Callable[[], bool],
        scheduler_names: Collection[str] = ("muster",),
        versions: Mapping[GroupKind, str] | None = None,
        resources: Iterable[ApiResource] = WATCHED,
        now: Callable[[], float] = time.time,
        limits: WriteLimits = DEFAULT_WRITE_LIMITS,
        watch_timing: reflector.WatchTiming = reflector.DEFAULT_WATCH_TIMING,
        batch_s: float = BATCH_S,
    ) -> None:
        self.rejected: list[RejectedObject] = []
        """Objects that no event could be made of."""
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder(tuple(scheduler_names))
        self._index = PodIndex()
        self._cache = WriteCache()
        self._batch_s = batch_s
        self._arrived = threading.Condition()
        self._inbox: dict[tuple[GroupKind, str], _InboxEntry] = {}
        self._failures: list[Event] = []
        self._wake_requested = False
        self._synced = threading.Event()
        versions = versions or {}
        self._reflectors = {
            one.key: Reflector(client, one, versions.get(one.key, ""), self._receive, timing=watch_timing) for one in resources
        }
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
        )

    # -- in the event loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Watch and write until cancelled. What is under way then is broken off: `drain` first where it should not be."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for one in self._reflectors.values():
                    tasks.create_task(one.run())
                tasks.create_task(self._writer.run())
        finally:
            await self._writer.close()

    async def drain(self, *, timeout_s: float) -> bool:
        """Until all that was handed over is written; False where that takes too long."""
        return await self._writer.drain(timeout_s=timeout_s)

    def _receive(self, updates: list[WatchUpdate]) -> None:
        entry = [one for update in updates if (one := self._cache_update(update)) is not None]
        with self._arrived:
            for one in entry:
                self._inbox[one.update.kind, one.identity.uid or one.identity.ref.full_name] = one
            self._arrived.notify()
        if not self._unsynced:
            self._synced.set()

    def _cache_update(self, update: WatchUpdate) -> _InboxEntry | None:
        if update.update_type is UpdateType.SYNCED:
            self._mark_synced(update.kind)
            return None
        try:
            return _InboxEntry(update, self._cache.apply_watch(update.kind, update.update_type, update.raw))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as bad:
            # Not even its name can be read. No API server sends such a thing.
            log.warning("an object cannot be read", kind=update.kind, error=str(bad))
            return None

    def _mark_synced(self, kind: GroupKind) -> None:
        """All of a kind was told, or may not be read at all. Without pods and nodes every node would look empty, or gone."""
        if kind in _REQUIRED_KINDS and self._reflectors[kind].health.forbidden:
            log.error("nothing is decided before this may be read", resource=self._reflectors[kind].resource.plural)
            return
        self._unsynced.discard(kind)

    def _add_failure(self, failure: Event) -> None:
        with self._arrived:
            self._failures.append(failure)
            self._arrived.notify()

    # -- in the scheduler's thread ---------------------------------------------------------------------------------------------

    def events(self) -> list[Event]:
        """What happened since the last call."""
        with self._arrived:
            inbox, self._inbox = self._inbox, {}
            failures, self._failures = self._failures, []
            self._wake_requested = False
        changes = [event for entry in inbox.values() if (event := self._event(entry)) is not None]
        return [*changes, *failures]

    def execute(self, effects: Iterable[Effect]) -> None:
        """Have these carried out. What fails comes back as an event."""
        self._writer.submit(effects)

    def wait(self, timeout_s: float) -> bool:
        """Until something happened or `wake` was called, and a moment longer for the rest of it; False where nothing did."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._inbox or self._failures or self._wake_requested, timeout=timeout_s):
                return False
        self._collect_batch()
        return True

    def _collect_batch(self) -> None:
        """Wait for the rest of the news; where many writes are under way until they are done, but not for very long."""
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

    def _event(self, entry: _InboxEntry) -> Event | None:
        update, identity = entry
        if update.kind == POD and update.update_type is UpdateType.DELETE:
            uid = identity.uid or identity.ref.full_name
            self._index.drop(identity.ref, uid=uid)
            return Delete("Pod", uid, identity.version)
        try:
            thing = self._decoder.decode_as(update.kind, update.raw)
        except BadObject as bad:
            self._reject(identity.ref, str(bad))
            return None
        if thing is None:
            return None
        if update.update_type is UpdateType.DELETE:
            return Delete(*event_subject(thing), identity.version)
        if isinstance(thing, Pod):
            self._index.put(identity.ref, thing)
        return Upsert(thing)

    def _reject(self, ref: ApiObjectRef, why: str) -> None:
        """An object that the scheduler cannot read says so itself, where it has a place for that."""
        rejected = (ref.kind, ref.full_name, why)
        if rejected in self.rejected:
            return
        self.rejected = [*self.rejected[-MAX_REJECTED + 1 :], rejected]
        log.warning("an object was ignored", kind=ref.kind, name=ref.full_name, why=why)
        if (subject := _condition_subject(ref)) is not None:
            self.execute([Condition(*subject, ok=False, code="Invalid", why=why)])

    # -- from any thread -------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Let whoever waits go on."""
        with self._arrived:
            self._wake_requested = True
            self._arrived.notify_all()

    @property
    def synced(self) -> bool:
        """Has all that exists been told at least once? What `events` has not taken yet may still be in the inbox."""
        return self._synced.is_set()

    @property
    def pending_writes(self) -> int:
        return self._writer.pending

    @property
    def is_busy(self) -> bool:
        """Are many writes under way? Whatever else is done then holds them up."""
        return self._writer.active_writes >= _MANY_WRITES

    @property
    def delayed_failures(self) -> int:
        """Failures that the scheduler is told of later, because the same thing fails again and again."""
        return self._writer.delayed_failures

    @property
    def events_dropped(self) -> int:
        return self._writer.events_dropped

    @property
    def backlog(self) -> int:
        """Objects with news that nobody has taken yet."""
        return len(self._inbox)

    def health(self) -> dict[GroupKind, WatchHealth]:
        return {kind: one.health for kind, one in self._reflectors.items()}


_FAMILY_OF_API_GROUP = {group: family for family, group in API_GROUP_OF_FAMILY.items()}


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
        return "gang", f"{_FAMILY_OF_API_GROUP[ref.group]}:{ref.full_name}"
    return None
