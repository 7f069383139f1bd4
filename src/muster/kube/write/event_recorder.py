"""Kubernetes events: what happened to an object and why. Written last, and the first to be dropped.

Repetitions of an event are one Event object with a count, which is updated only from time to time.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import structlog

from muster.kube.read.object_references import ApiObjectRef, Manifest, pod_ref
from muster.kube.watch.client import CONFLICT, ApiError
from muster.kube.write import status_updates
from muster.kube.write.api_writer import ApiWriter
from muster.kube.write.patch_bodies import VALIDITY_CODES, rfc3339
from muster.kube.write.status_updates import GangPods, StatusWrite
from muster.kube.write.write_cache import WriteCache
from muster.model.effects import Bind, CancelEviction, Condition, Effect, Evict, Nominate, PodEffect, Release, Reserve
from muster.model.printable_text import printable

log = structlog.get_logger(__name__)

COMPONENT: Final = "muster"
NORMAL, WARNING = "Normal", "Warning"
MAX_MESSAGE_LENGTH = 1024
"""The limit of the API."""
MAX_QUEUED_EVENTS = 5000
MAX_REMEMBERED_EVENTS = 10_000

GangObjects = Mapping[str, tuple[ApiObjectRef, ...]]
"""The objects on which an event of a gang may be recorded, the best first: its PodGroup, else its first pod."""

NO_GANG_OBJECTS: Final[GangObjects] = {}


class KubeEvent(NamedTuple):
    """One event. Its object is the first of `involved` that exists. With a `uid` the object need not exist any more: an evicted pod
    may be deleted before the event is written."""

    involved: tuple[ApiObjectRef, ...]
    reason: str
    message: str
    type: str = NORMAL
    action: str = ""
    uid: str = ""


# --- Effects as events --------------------------------------------------------------------------------------------------------


def gang_objects(effects: Iterable[Effect], *, gang_pods: GangPods) -> GangObjects:
    """For each gang that gets an event."""
    gangs = dict.fromkeys(
        effect.for_gang if isinstance(effect, Evict) else effect.object_key
        for effect in effects
        if isinstance(effect, Evict) or (isinstance(effect, Condition) and _is_refusal(effect))
    )
    return {gang: _objects_of_gang(gang, gang_pods=gang_pods) for gang in gangs}


def _objects_of_gang(gang: str, *, gang_pods: GangPods) -> tuple[ApiObjectRef, ...]:
    gang_keys = status_updates.gang_keys_of(gang)
    groups = [ref for gang_key in gang_keys for ref in status_updates.pod_group_refs(gang_key)]
    return (*groups, *(ref for gang_key in gang_keys for ref in gang_pods(gang_key)[:1]))


def _is_refusal(update: Condition) -> bool:
    return update.subject == "gang" and not update.ok and update.code not in VALIDITY_CODES


def refusal_events(status_writes: Sequence[StatusWrite], gang_objects: GangObjects) -> list[KubeEvent]:
    """One for each refused gang, not for each of its members: those have conditions."""
    refused = dict.fromkeys(one.update for one in status_writes if isinstance(one.update, Condition) and _is_refusal(one.update))
    return [
        KubeEvent(gang_objects[update.object_key], "FailedScheduling", f"{update.why} [{update.code}]", WARNING, "Scheduling")
        for update in refused
    ]


def effect_events(effect: PodEffect, gang_objects: GangObjects) -> list[KubeEvent]:
    """For the pod, and of an eviction for the preemptor as well."""
    events: list[KubeEvent] = []
    match effect:
        case Bind():
            text = ("Scheduled", f"Successfully assigned {effect.pod} to {effect.node}: {effect.why}", "Binding")
        case Nominate():
            text = ("Nominated", f"nominated to node {effect.node}: {effect.why}", "Nominating")
        case Release():
            text = ("Released", f"the reservation on node {effect.node} was released: {effect.why}", "Releasing")
        case CancelEviction():
            text = ("EvictionCancelled", f"eviction cancelled: {effect.why}", "CancellingEviction")
        case Evict():
            why = f"({effect.cause}): {effect.why}"
            text = ("Preempted", f"evicted from {effect.node} for {effect.for_gang} {why}", "Preempting")
            preemptor = gang_objects.get(effect.for_gang, ())
            events = [KubeEvent(preemptor, "Preempting", f"evicts {effect.pod} from {effect.node} {why}", action="Preempting")]
        case Reserve():
            return []
    reason, message, action = text
    return [KubeEvent((pod_ref(effect.pod),), reason, message, action=action, uid=effect.uid), *events]


# --- Writing ------------------------------------------------------------------------------------------------------------------


class _EventKey(NamedTuple):
    ref: ApiObjectRef
    uid: str
    reason: str
    message: str


class _EventSeries(msgspec.Struct):
    """One Event object and its count."""

    name: str
    type: str
    action: str
    api_version: str
    first: float
    last: float
    count: int = 1
    written: int = 0
    written_at: float = 0.0


class EventRecorder:
    """`update_interval_s`: the count of one event is not written more often. `per_second` limits all events; 0 writes none."""

    def __init__(
        self,
        api_writer: ApiWriter,
        cache: WriteCache,
        *,
        now: Callable[[], float],
        per_second: float = 50.0,
        update_interval_s: float = 60.0,
    ) -> None:
        self.dropped = 0
        self._api_writer = api_writer
        self._cache = cache
        self._now = now
        self._per_second = per_second
        self._update_interval_s = update_interval_s
        self._series: dict[_EventKey, _EventSeries] = {}
        self._waiting: dict[_EventKey, None] = {}
        self._done_effects: deque[tuple[PodEffect, GangObjects, float]] = deque()
        """Effects that were carried out, and when. There may be thousands while others are in flight, so their events are built
        later."""
        self._has_work = asyncio.Event()

    def add(self, events: Iterable[KubeEvent]) -> None:
        for event in events if self._per_second else ():
            self._record(event, self._now())

    def add_effect(self, effect: PodEffect, gang_objects: GangObjects) -> None:
        if not self._per_second:
            return
        if len(self._done_effects) + len(self._waiting) >= MAX_QUEUED_EVENTS:
            self.dropped += 1
            return
        self._done_effects.append((effect, gang_objects, self._now()))
        self._has_work.set()

    def _record(self, event: KubeEvent, now: float) -> None:
        ref = next((ref for ref in event.involved if event.uid or self._cache.uid_of(ref)), None)
        if ref is None:
            return
        key = _EventKey(ref, event.uid or self._cache.uid_of(ref), event.reason, printable(event.message)[:MAX_MESSAGE_LENGTH])
        series = self._series.get(key)
        if series is not None:
            series.count += 1
            series.last = now
            if now - series.written_at < self._update_interval_s:
                # The next one after the interval updates the count.
                return
        elif len(self._waiting) >= MAX_QUEUED_EVENTS:
            self.dropped += 1
            return
        else:
            self._forget_old()
            self._series[key] = _EventSeries(_name(key), event.type, event.action, self._api_writer.api_version(ref), now, now)
        self._waiting[key] = None
        self._has_work.set()

    def _forget_old(self) -> None:
        if len(self._series) >= MAX_REMEMBERED_EVENTS:
            for old in [key for key in self._series if key not in self._waiting][: MAX_REMEMBERED_EVENTS // 2]:
                del self._series[old]

    async def run(self, *, until_idle: Callable[[], Awaitable[None]]) -> None:
        """Until cancelled: one event after the other, whenever `until_idle` returns."""
        while True:
            await self._has_work.wait()
            await until_idle()
            key = self._next_key()
            if key is None:
                self._has_work.clear()
                continue
            await self._write(key, self._series[key])
            await asyncio.sleep(1.0 / self._per_second)

    def _next_key(self) -> _EventKey | None:
        """The next event to write, or None."""
        while self._done_effects and not self._waiting:
            effect, gang_objects, when = self._done_effects.popleft()
            for event in effect_events(effect, gang_objects):
                self._record(event, when)
        key = next(iter(self._waiting), None)
        if key is not None:
            del self._waiting[key]
        return key

    async def _write(self, key: _EventKey, series: _EventSeries) -> None:
        """An event that cannot be written is dropped."""
        namespace = key.ref.namespace or "default"
        count, last = series.count, series.last
        try:
            if series.written:
                patch: Manifest = {"count": count, "lastTimestamp": rfc3339(last)}
                await self._api_writer.patch_event(namespace, series.name, patch)
            else:
                await self._api_writer.create_event(namespace, _event(key, series, namespace=namespace))
        except Exception as error:
            if isinstance(error, ApiError) and error.status == CONFLICT and not series.written:
                # A scheduler wrote it before this one started: continue to count from one.
                series.written = 1
                self._waiting[key] = None
                self._has_work.set()
            else:
                self._drop(key, error)
        else:
            series.written, series.written_at = count, self._now()

    def _drop(self, key: _EventKey, error: Exception) -> None:
        self.dropped += 1
        # The server deletes events after a while: the next one creates a new object.
        self._series.pop(key, None)
        log.debug("event dropped", reason=key.reason, name=key.ref.full_name, error=str(error))


def _event(key: _EventKey, series: _EventSeries, *, namespace: str) -> Manifest:
    ref = key.ref
    involved = {"apiVersion": series.api_version, "kind": ref.kind, "name": ref.name, "uid": key.uid}
    if ref.namespace:
        involved["namespace"] = ref.namespace
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": series.name, "namespace": namespace},
        "involvedObject": involved,
        "type": series.type,
        "reason": key.reason,
        "message": key.message,
        "action": series.action,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "firstTimestamp": rfc3339(series.first),
        "lastTimestamp": rfc3339(series.last),
        "count": series.count,
    }


def _name(key: _EventKey) -> str:
    """The same for the same event, so that two successive leaders do not write it twice under two names."""
    digest = hashlib.sha256("\0".join((key.uid, key.reason, key.message)).encode(errors="replace")).hexdigest()[:16]
    return f"{key.ref.name[:200].rstrip('-.')}.{digest}"
