"""Kubernetes events: what happened to whom and why, for those who look at an object. Written last, and the first to be dropped.

The same event of the same object is one object with a count, which is written again only now and then.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import structlog

from muster.adapters.kube import scribe
from muster.adapters.kube.client import ApiError
from muster.adapters.kube.encode import VALIDITY, stamp
from muster.adapters.kube.mirror import Mirror
from muster.adapters.kube.refs import Manifest, Ref, pod_ref
from muster.adapters.kube.scribe import Gather, Saying
from muster.adapters.kube.sender import CONFLICT, NotLeading, Sender
from muster.model.effects import Bind, Condition, Effect, Evict, Hold, Nominate, Release, Spare

log = structlog.get_logger(__name__)

COMPONENT: Final = "muster"
NORMAL, WARNING = "Normal", "Warning"
LONGEST_MESSAGE = 1024
"""The API takes no longer ones."""
MOST_WAITING = 5000
MOST_REMEMBERED = 10_000

OneSided = Bind | Hold | Nominate | Release | Spare
"""A deed that concerns its own pod alone; an eviction has a winner as well."""
Faces = Mapping[str, tuple[Ref, ...]]
"""The objects that may stand for a gang, the best first: its PodGroup, else its first pod."""


class News(NamedTuple):
    """One event. The first of `about` that exists is the object that it is about. Where `uid` names the object, it may be gone:
    a pod that had to leave may have left before anybody could say why."""

    about: tuple[Ref, ...]
    reason: str
    message: str
    type: str = NORMAL
    action: str = ""
    uid: str = ""


# --- What is worth an event ---------------------------------------------------------------------------------------------------


def faces(effects: Iterable[Effect], *, gathered: Gather) -> Faces:
    """For each gang that somebody has to be told about."""
    gangs = dict.fromkeys(
        effect.for_gang if isinstance(effect, Evict) else effect.key
        for effect in effects
        if isinstance(effect, Evict) or (isinstance(effect, Condition) and _is_refusal(effect))
    )
    return {gang: _face(gang, gathered=gathered) for gang in gangs}


def _face(gang: str, *, gathered: Gather) -> tuple[Ref, ...]:
    slots = scribe.slots_of(gang)
    groups = [ref for slot in slots for ref in scribe.groups_of(slot)]
    return (*groups, *(ref for slot in slots for ref in gathered(slot)[:1]))


def _is_refusal(word: Condition) -> bool:
    return word.subject == "gang" and not word.ok and word.code not in VALIDITY


def of_words(sayings: Sequence[Saying], faces: Faces) -> list[News]:
    """A gang that is refused says so once, not once for each of its members: those have conditions."""
    refused = dict.fromkeys(one.word for one in sayings if isinstance(one.word, Condition) and _is_refusal(one.word))
    return [News(faces[word.key], "FailedScheduling", f"{word.why} [{word.code}]", WARNING, "Scheduling") for word in refused]


def of_deed(effect: OneSided) -> list[News]:
    match effect:
        case Bind():
            said = ("Scheduled", f"Successfully assigned {effect.pod} to {effect.node}: {effect.why}", "Binding")
        case Nominate():
            said = ("Nominated", f"node {effect.node} is promised: {effect.why}", "Nominating")
        case Release():
            said = ("Released", f"the claim on node {effect.node} ended: {effect.why}", "Releasing")
        case Spare():
            said = ("Spared", f"may stay: {effect.why}", "Sparing")
        case Hold():
            return []
    reason, message, action = said
    return [News((pod_ref(effect.pod),), reason, message, action=action, uid=effect.uid)]


def of_eviction(effect: Evict, faces: Faces) -> list[News]:
    """One for each side."""
    to_victim = f"has to make room on {effect.node} for {effect.for_gang} ({effect.cause}): {effect.why}"
    to_winner = f"evicts {effect.pod} from {effect.node} ({effect.cause}): {effect.why}"
    return [
        News((pod_ref(effect.pod),), "Preempted", to_victim, action="Preempting", uid=effect.uid),
        News(faces.get(effect.for_gang, ()), "Preempting", to_winner, action="Preempting"),
    ]


# --- Writing them -------------------------------------------------------------------------------------------------------------


class _Key(NamedTuple):
    ref: Ref
    uid: str
    reason: str
    message: str


class _Series(msgspec.Struct):
    """One event object, and how often it happened."""

    name: str
    type: str
    action: str
    api_version: str
    first: float
    last: float
    count: int = 1
    written: int = 0
    written_at: float = 0.0


class Recorder:
    """`again_s`: the count of one event is not written more often. `per_second` bounds all of them; 0 writes none."""

    def __init__(
        self, sender: Sender, mirror: Mirror, *, now: Callable[[], float], per_second: float = 50.0, again_s: float = 60.0
    ) -> None:
        self.dropped = 0
        self._sender = sender
        self._mirror = mirror
        self._now = now
        self._per_second = per_second
        self._again_s = again_s
        self._series: dict[_Key, _Series] = {}
        self._waiting: dict[_Key, None] = {}
        self._done: deque[tuple[OneSided, float]] = deque()
        """Deeds to be told of, and when they were done. They come by the thousand and while others are under way, so they are put
        into words when there is time for it."""
        self._awake = asyncio.Event()

    def add(self, news: Iterable[News]) -> None:
        for one in news if self._per_second else ():
            self._note(one, self._now())

    def add_deed(self, deed: OneSided) -> None:
        if not self._per_second:
            return
        if len(self._done) + len(self._waiting) >= MOST_WAITING:
            self.dropped += 1
            return
        self._done.append((deed, self._now()))
        self._awake.set()

    def _note(self, news: News, now: float) -> None:
        ref = next((ref for ref in news.about if news.uid or self._mirror.uid_of(ref)), None)
        if ref is None:
            return
        key = _Key(ref, news.uid or self._mirror.uid_of(ref), news.reason, news.message[:LONGEST_MESSAGE])
        series = self._series.get(key)
        if series is not None:
            series.count += 1
            series.last = now
            if now - series.written_at < self._again_s:
                # The next one after the pause brings the count up to date.
                return
        elif len(self._waiting) >= MOST_WAITING:
            self.dropped += 1
            return
        else:
            self._make_room()
            self._series[key] = _Series(_name(key), news.type, news.action, self._sender.api_version(ref), now, now)
        self._waiting[key] = None
        self._awake.set()

    def _make_room(self) -> None:
        if len(self._series) >= MOST_REMEMBERED:
            for old in [key for key in self._series if key not in self._waiting][: MOST_REMEMBERED // 2]:
                del self._series[old]

    async def run(self, *, quiet: Callable[[], Awaitable[None]]) -> None:
        """For ever, one by one, whenever nobody else has anything to write."""
        while True:
            await self._awake.wait()
            await quiet()
            key = self._next()
            if key is None:
                self._awake.clear()
                continue
            await self._write(key, self._series[key])
            await asyncio.sleep(1.0 / self._per_second)

    def _next(self) -> _Key | None:
        """The next to be written; None where there is none."""
        while self._done and not self._waiting:
            deed, when = self._done.popleft()
            for one in of_deed(deed):
                self._note(one, when)
        key = next(iter(self._waiting), None)
        if key is not None:
            del self._waiting[key]
        return key

    async def _write(self, key: _Key, series: _Series) -> None:
        """An event that cannot be written is lost, and nothing else."""
        namespace = key.ref.namespace or "default"
        count, last = series.count, series.last
        try:
            if series.written:
                patch: Manifest = {"count": count, "lastTimestamp": stamp(last)}
                await self._sender.patch_event(namespace, series.name, patch)
            else:
                await self._sender.create_event(namespace, _event(key, series, namespace=namespace))
        except NotLeading as error:
            self._lose(key, error)
        except ApiError as error:
            if error.status == CONFLICT and not series.written:
                # It was written before we started: go on counting from one.
                series.written = 1
                self._waiting[key] = None
                self._awake.set()
            else:
                self._lose(key, error)
        except Exception as error:
            self._lose(key, error)
        else:
            series.written, series.written_at = count, self._now()

    def _lose(self, key: _Key, error: Exception) -> None:
        self.dropped += 1
        # The server forgets events after a while, and may not have had this one: the next one begins anew.
        self._series.pop(key, None)
        log.debug("an event was lost", reason=key.reason, name=key.ref.title, error=str(error))


def _event(key: _Key, series: _Series, *, namespace: str) -> Manifest:
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
        "firstTimestamp": stamp(series.first),
        "lastTimestamp": stamp(series.last),
        "count": series.count,
    }


def _name(key: _Key) -> str:
    """The same for the same event, so that two schedulers in turn do not write it twice under two names."""
    digest = hashlib.sha256("\0".join((key.uid, key.reason, key.message)).encode(errors="replace")).hexdigest()[:16]
    return f"{key.ref.name[:200].rstrip('-.')}.{digest}"
