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

from muster.adapters.kube import reflector
from muster.adapters.kube.client import Client
from muster.adapters.kube.decode import BadObject, Decoder, subject_of
from muster.adapters.kube.encode import API_GROUP_OF_FAMILY
from muster.adapters.kube.index import PodIndex
from muster.adapters.kube.mirror import Head, Mirror
from muster.adapters.kube.reflector import Health, Notice, Reflector, What
from muster.adapters.kube.refs import GROUP_KIND, HYPERNODE, NODE, POD, QUEUE, QUOTAS, KindKey, Ref
from muster.adapters.kube.resources import WATCHED, Resource
from muster.adapters.kube.writer import DEFAULT_PACE, Pace, Writer
from muster.model.effects import Condition, Effect
from muster.model.events import Event, Gone, Seen
from muster.model.pod import Pod

log = structlog.get_logger(__name__)

BATCH_S: Final = 0.02
"""After the first news the rest is waited for so long: the pods of a gang are made one after the other."""
BUSY_BATCH_S: Final = 2.0
"""So long, at most, while many writes are under way. What would be decided meanwhile could not be written before them; most of the
news is what we did ourselves, and every look at it holds the writes up."""
_MANY_WRITES: Final = 100
_GULP: Final = 2**20
"""So much of a watch is read at once meanwhile: a piece of news that comes alone wakes the event loop as much as a thousand do."""
MOST_REJECTED: Final = 1000
_VITAL: Final = frozenset({POD, NODE})

Rejected = tuple[str, str, str]
"""Kind, name and what is wrong."""


class _News(NamedTuple):
    notice: Notice
    head: Head


class LiveCluster:
    """Made inside the event loop that `run` runs in. `events`, `execute` and `wait` belong to the scheduler's thread.

    `versions` are the served versions, where they are known: `discover` tells. What is served later is found later.
    """

    def __init__(
        self,
        client: Client,
        *,
        may_write: Callable[[], bool],
        scheduler_names: Collection[str] = ("muster",),
        versions: Mapping[KindKey, str] | None = None,
        resources: Iterable[Resource] = WATCHED,
        now: Callable[[], float] = time.time,
        pace: Pace = DEFAULT_PACE,
        watch_pace: reflector.Pace = reflector.USUAL,
        batch_s: float = BATCH_S,
    ) -> None:
        self.rejected: list[Rejected] = []
        """Objects that no event could be made of."""
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder(tuple(scheduler_names))
        self._index = PodIndex()
        self._mirror = Mirror()
        self._batch_s = batch_s
        self._arrived = threading.Condition()
        self._inbox: dict[tuple[KindKey, str], _News] = {}
        self._failures: list[Event] = []
        self._woken = False
        self._synced = threading.Event()
        versions = versions or {}
        self._reflectors = {
            one.key: Reflector(client, one, versions.get(one.key, ""), self._take, pace=watch_pace) for one in resources
        }
        self._unsynced = set(self._reflectors)
        self._writer = Writer(
            client,
            self._mirror,
            tell=self._tell,
            may_write=may_write,
            gathered=self._index.gathered,
            version_of=lambda kind: self._reflectors[kind].version,
            now=now,
            pace=pace,
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

    def _take(self, notices: list[Notice]) -> None:
        news = [one for notice in notices if (one := self._mirrored(notice)) is not None]
        with self._arrived:
            for one in news:
                self._inbox[one.notice.kind, one.head.uid or one.head.ref.title] = one
            self._arrived.notify()
        if not self._unsynced:
            self._synced.set()

    def _mirrored(self, notice: Notice) -> _News | None:
        if notice.what is What.SYNCED:
            self._note_synced(notice.kind)
            return None
        try:
            return _News(notice, self._mirror.take(notice.kind, notice.what, notice.raw))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as bad:
            # Not even its name can be read. No API server sends such a thing.
            log.warning("an object cannot be read", kind=notice.kind, error=str(bad))
            return None

    def _note_synced(self, kind: KindKey) -> None:
        """All of a kind was told, or may not be read at all. Without pods and nodes every node would look empty, or gone."""
        if kind in _VITAL and self._reflectors[kind].health.refused:
            log.error("nothing is decided before this may be read", resource=self._reflectors[kind].resource.plural)
            return
        self._unsynced.discard(kind)

    def _tell(self, failure: Event) -> None:
        with self._arrived:
            self._failures.append(failure)
            self._arrived.notify()

    # -- in the scheduler's thread ---------------------------------------------------------------------------------------------

    def events(self) -> list[Event]:
        """What happened since the last call."""
        with self._arrived:
            inbox, self._inbox = self._inbox, {}
            failures, self._failures = self._failures, []
            self._woken = False
        told = [event for news in inbox.values() if (event := self._event(news)) is not None]
        return [*told, *failures]

    def execute(self, effects: Iterable[Effect]) -> None:
        """Have these carried out. What fails comes back as an event."""
        self._writer.submit(effects)

    def wait(self, timeout_s: float) -> bool:
        """Until something happened or `wake` was called, and a moment longer for the rest of it; False where nothing did."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._inbox or self._failures or self._woken, timeout=timeout_s):
                return False
        self._gather()
        return True

    def _gather(self) -> None:
        """Wait for the rest of the news; where many writes are under way until they are done, but not for very long."""
        time.sleep(self._batch_s)
        if not self.is_busy:
            return
        self._listen(_GULP)
        until = time.monotonic() + BUSY_BATCH_S
        while self._writer.busy_with and not self._woken and time.monotonic() < until:
            time.sleep(self._batch_s)
        self._listen(1)
        time.sleep(self._batch_s)

    def _listen(self, gulp: int) -> None:
        self._loop.call_soon_threadsafe(self._client.listen, gulp)

    def _event(self, news: _News) -> Event | None:
        notice, head = news
        if notice.kind == POD and notice.what is What.GONE:
            uid = head.uid or head.ref.title
            self._index.drop(head.ref, uid=uid)
            return Gone("Pod", uid, head.version)
        try:
            thing = self._decoder.decode_as(notice.kind, notice.raw)
        except BadObject as bad:
            self._reject(head.ref, str(bad))
            return None
        if thing is None:
            return None
        if notice.what is What.GONE:
            return Gone(*subject_of(thing), head.version)
        if isinstance(thing, Pod):
            self._index.put(head.ref, thing)
        return Seen(thing)

    def _reject(self, ref: Ref, why: str) -> None:
        """An object that the scheduler cannot read says so itself, where it has a place for that."""
        rejected = (ref.kind, ref.title, why)
        if rejected in self.rejected:
            return
        self.rejected = [*self.rejected[-MOST_REJECTED + 1 :], rejected]
        log.warning("an object was ignored", kind=ref.kind, name=ref.title, why=why)
        if (place := _place_of(ref)) is not None:
            self.execute([Condition(*place, ok=False, code="Invalid", why=why)])

    # -- from any thread -------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Let whoever waits go on."""
        with self._arrived:
            self._woken = True
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
        return self._writer.busy_with >= _MANY_WRITES

    @property
    def withheld(self) -> int:
        """Failures that the scheduler is told of later, because the same thing fails again and again."""
        return self._writer.withheld

    @property
    def events_dropped(self) -> int:
        return self._writer.events_dropped

    @property
    def backlog(self) -> int:
        """Objects with news that nobody has taken yet."""
        return len(self._inbox)

    def health(self) -> dict[KindKey, Health]:
        return {kind: one.health for kind, one in self._reflectors.items()}


_FAMILY = {group: family for family, group in API_GROUP_OF_FAMILY.items()}


def _place_of(ref: Ref) -> tuple[str, str] | None:
    """Subject and key of a condition on this object."""
    kind = ref[:2]
    if kind == POD:
        return "pod", ref.title
    if kind == NODE:
        return "node", ref.name
    if kind == QUEUE:
        return "queue", f"queue/{ref.name}"
    if kind in QUOTAS:
        return "queue", f"quota/{ref.title}"
    if kind == HYPERNODE:
        return "domain", ref.name
    if ref.kind == GROUP_KIND:
        return "gang", f"{_FAMILY[ref.group]}:{ref.title}"
    return None
