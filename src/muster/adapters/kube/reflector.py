"""One resource as it is on the server: each object told once for each of its versions, and told gone once.

Objects are passed on as the bytes that the server sent. Of each the name, UID and version are remembered, so that after a gap,
when all is listed again, only what is new is told. Trouble of the cluster is waited out here and never raised.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

import msgspec
import structlog

from muster.adapters.kube.client import BUSY, UNREACHED, ApiError, Client, refusal_in
from muster.adapters.kube.resources import WATCHED, Resource

log = structlog.get_logger(__name__)

EXPIRED: Final = 410
"""The server has forgotten the version that we stand at."""
ABSENT: Final = 404
REFUSED: Final = 403
NOT_UNDERSTOOD: Final = frozenset({400, 422})
"""What a server says that cannot send a list as the beginning of a watch."""
_START_OVER: Final = NOT_UNDERSTOOD | {EXPIRED, ABSENT}
_TOO_NEW: Final = "ResourceVersionTooLarge"
"""What a server says that is behind the version that we stand at, as after a restored backup."""
LIST_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends such a beginning."""
_BEGINNINGS_BEFORE_PAGES = 3
_REFUSALS_BEFORE_LISTING = 8


class What(Enum):
    SEEN = "seen"
    GONE = "gone"
    SYNCED = "synced"
    """All that there is has been told."""


class Notice(NamedTuple):
    """News of one object. After a gap the bytes of a GONE are no more than who it was."""

    kind: tuple[str, str]
    what: What
    raw: bytes = b""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a reflector keeps its time."""

    page: int = 500
    """Objects in one answer of a list."""
    list_timeout_s: float = 60.0
    quiet_s: float = 120.0
    """A watch on which nothing was heard for so long is given up. Servers send a bookmark every minute."""
    first_wait_s: float = 0.2
    longest_wait_s: float = 30.0
    absent_wait_s: float = 30.0
    """How often a resource is asked for again that the cluster does not have, or not for us."""
    watch_s: float = 300.0
    """The server is asked to end a watch after once to twice this time, so that load moves to servers that are new."""


USUAL: Final = Pace()


@dataclass(slots=True)
class Health:
    """How a watch is doing, for those who measure."""

    heard_at: float
    """When anything at all was last heard, by the monotonic clock."""
    events: int = 0
    relists: int = 0
    breaks: int = 0
    """Watches that ended otherwise than by the server's own time."""
    failures: int = 0
    """Attempts in a row that brought no news."""
    refused: bool = False
    absent: bool = False
    at: str = ""
    """The version up to which everything was heard; empty while it must be listed."""

    def quiet_s(self) -> float:
        """For how long nothing was heard. A resource that the cluster does not have, or not for us, is quiet and well."""
        return 0.0 if self.absent or self.refused else time.monotonic() - self.heard_at


Sink = Callable[[list[Notice]], None]


class Reflector:
    """Lists and watches one resource, for ever. `sink` is called in the event loop with what came in together."""

    def __init__(
        self, client: Client, resource: Resource, version: str, sink: Sink, *, pace: Pace = USUAL, field_selector: str = ""
    ) -> None:
        self.resource = resource
        self.version = version or resource.versions[0]
        self.synced = asyncio.Event()
        self.health = Health(heard_at=time.monotonic())
        self._client = client
        self._sink = sink
        self._pace = pace
        self._selector = {"fieldSelector": field_selector} if field_selector else {}
        self._known: dict[str, tuple[str, str]] = {}
        self._knows_initial_events = True
        self._failed_beginnings = 0
        self._untried = self._other_versions()

    async def run(self) -> None:
        """For ever; ends only by being cancelled."""
        while True:
            await asyncio.sleep(await self._turn())

    async def _turn(self) -> float:
        """Ask once, listen for as long as the server speaks, and say how long to wait before the next time."""
        try:
            if not self.health.at and not self._begins_by_watch:
                await self._list()
                return 0.0
            await self._follow()
        except ApiError as error:
            return self._wait_after(error)
        return self._backoff_s()

    @property
    def _begins_by_watch(self) -> bool:
        """A watch that begins with all there is costs the server least. Where it keeps failing, pages may still get through."""
        return self._knows_initial_events and self._failed_beginnings < _BEGINNINGS_BEFORE_PAGES

    # -- listing -----------------------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        """All objects, page by page. Pages that the server forgot meanwhile are begun anew, at last in one piece."""
        for page in (self._pace.page, self._pace.page, 0):
            try:
                return await self._list_pages(page)
            except ApiError as error:
                if error.status != EXPIRED or not page:
                    raise
        raise AssertionError("a list in one piece returns or raises")

    async def _list_pages(self, page: int) -> None:
        found, token = set[str](), ""
        while True:
            answer = await self._client.request(
                "GET", self._path, params=self._list_params(page, token), timeout_s=self._pace.list_timeout_s
            )
            listed = _decoded(answer)
            self._heard()
            notices: list[Notice] = []
            for raw in listed.items or ():
                try:
                    self._see(raw, found=found, notices=notices)
                except _UNREADABLE as error:
                    self._skip(raw, error)
            token = listed.metadata.continue_
            if not token:
                self._complete(found, at=listed.metadata.resource_version, notices=notices)
            self._tell(notices)
            if not token:
                return

    def _list_params(self, page: int, token: str) -> dict[str, str]:
        params = dict(self._selector)
        if page:
            params["limit"] = str(page)
        if token:
            params["continue"] = token
        return params

    def _complete(self, found: set[str], *, at: str, notices: list[Notice]) -> None:
        """The list is whole: whoever is not in it is gone."""
        notices.extend(self._farewell(key) for key in [key for key in self._known if key not in found])
        notices.append(Notice(self.resource.key, What.SYNCED))
        self.health.relists += self.synced.is_set()
        self.health.refused = self.health.absent = False
        self.health.at = at
        self._failed_beginnings = 0
        self._untried = self._other_versions()
        self.synced.set()

    # -- watching ----------------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Listen until the server ends it. Without a version to go on from, the watch begins with all that there is."""
        found: set[str] | None = None if self.health.at else set()
        batches = self._client.batches(self._path, params=self._watch_params(), quiet_s=self._pace.quiet_s)
        async with aclosing(batches):
            async for lines in batches:
                self._heard()
                if self._take(lines, found=found):
                    found = None

    def _watch_params(self) -> dict[str, str]:
        params = {
            **self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(self._pace.watch_s * random.uniform(1.0, 2.0))),
        }
        if self.health.at:
            params["resourceVersion"] = self.health.at
        else:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return params

    def _take(self, lines: Iterable[bytes], *, found: set[str] | None) -> bool:
        """Pass on what the lines say; whether the beginning of the watch was completed by them.

        `found` are the objects that the beginning named so far, None once it is over. What was heard before an error counts.
        """
        notices: list[Notice] = []
        begun = found is None
        try:
            for line in lines:
                try:
                    event = _EVENT.decode(line)
                    at = self._hear(event, found=None if begun else found, notices=notices)
                except _UNREADABLE as error:
                    self._skip(line, error)
                    continue
                if begun:
                    self.health.at = at
                    self.health.failures = 0
                elif found is not None and event.type == "BOOKMARK" and _ends_list(event.object):
                    self._complete(found, at=at, notices=notices)
                    begun = True
        finally:
            self._tell(notices)
        return begun

    def _hear(self, event: _Event, *, found: set[str] | None, notices: list[Notice]) -> str:
        """The version at which the watch stands after this. Those of objects that begin a watch are in no order."""
        if event.type in ("ADDED", "MODIFIED"):
            return self._see(event.object, found=found, notices=notices)
        if event.type == "DELETED":
            return self._lose(event.object, found=found, notices=notices)
        if event.type == "ERROR":
            raise refusal_in(event.object)
        return _HEAD.decode(event.object).metadata.resource_version

    # -- objects -----------------------------------------------------------------------------------------------------------

    def _see(self, raw: msgspec.Raw, *, found: set[str] | None, notices: list[Notice]) -> str:
        head = _HEAD.decode(raw)
        meta = head.metadata
        key = f"{meta.namespace}/{meta.name}"
        if found is not None:
            found.add(key)
        known = self._known.get(key)
        if known is None or known != (meta.uid, meta.resource_version):
            if known is not None and known[0] != meta.uid:
                notices.append(self._farewell(key))
            self._known[key] = (meta.uid, meta.resource_version)
            notices.append(Notice(self.resource.key, What.SEEN, bytes(raw) if head.kind else self._titled(raw)))
        return meta.resource_version

    def _lose(self, raw: msgspec.Raw, *, found: set[str] | None, notices: list[Notice]) -> str:
        meta = _HEAD.decode(raw).metadata
        key = f"{meta.namespace}/{meta.name}"
        if found is not None:
            found.discard(key)
        known = self._known.get(key)
        if known is not None and known[0] == meta.uid:
            del self._known[key]
            notices.append(Notice(self.resource.key, What.GONE, bytes(raw)))
        return meta.resource_version

    def _farewell(self, key: str) -> Notice:
        """An object that went while nobody listened."""
        namespace, _, name = key.partition("/")
        uid, version = self._known.pop(key)
        said = {
            "apiVersion": self.resource.api_version(self.version),
            "kind": self.resource.kind,
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version},
        }
        return Notice(self.resource.key, What.GONE, msgspec.json.encode(said))

    def _titled(self, raw: msgspec.Raw) -> bytes:
        """The items of a list do not say what they are."""
        title = f'{{"apiVersion":"{self.resource.api_version(self.version)}","kind":"{self.resource.kind}",'
        return title.encode() + bytes(raw).lstrip()[1:]

    def _tell(self, notices: list[Notice]) -> None:
        if notices:
            self.health.events += len(notices)
            self._sink(notices)

    def _skip(self, raw: bytes | msgspec.Raw, error: Exception) -> None:
        """One object that nobody can read must not hide all the others."""
        log.warning(
            "object skipped", resource=self.resource.plural, group=self.resource.group, bytes=len(bytes(raw)), error=str(error)
        )

    def _heard(self) -> None:
        self.health.heard_at = time.monotonic()

    # -- trouble -----------------------------------------------------------------------------------------------------------

    def _wait_after(self, error: ApiError) -> float:
        """What to do differently next time, and when that is."""
        if error.status == ABSENT and self.resource.optional:
            return self._without()
        if error.status == REFUSED:
            return self._refused(error)
        if error.status in NOT_UNDERSTOOD and not self.health.at and self._begins_by_watch:
            self._knows_initial_events = False
            return 0.0
        self.health.breaks += 1
        self._failed_beginnings += not self.health.at
        if self._must_start_over(error):
            self.health.at = ""
        log.info("watch broken", resource=self.resource.plural, group=self.resource.group, error=str(error))
        return max(error.retry_after_s or 0.0, self._backoff_s())

    def _must_start_over(self, error: ApiError) -> bool:
        """The version that we stand at is of no use; or it may be that, since the server refuses it again and again."""
        if error.status in _START_OVER or _is_too_new(error):
            return True
        return error.status not in (UNREACHED, BUSY) and self.health.failures >= _REFUSALS_BEFORE_LISTING

    def _without(self) -> float:
        """The server does not have it: under another version, perhaps, or some day. What it had is gone."""
        self.health.at = ""
        if self._untried:
            self.version, *self._untried = self._untried
            return 0.0
        if not self.health.absent:
            notices: list[Notice] = []
            self._complete(set(), at="", notices=notices)
            self.health.absent = True
            self._tell(notices)
        self._untried = self._other_versions()
        return self._pace.absent_wait_s * random.uniform(0.8, 1.2)

    def _refused(self, error: ApiError) -> float:
        """We may not read it. What is known of it stays: a right that was taken away says nothing about the objects."""
        if not self.health.refused:
            self.health.refused = True
            log.warning("resource may not be read", resource=self.resource.plural, group=self.resource.group, error=str(error))
        if not self.synced.is_set():
            self._tell([Notice(self.resource.key, What.SYNCED)])
            self.synced.set()
        return self._pace.absent_wait_s * random.uniform(0.8, 1.2)

    def _other_versions(self) -> list[str]:
        return [version for version in self.resource.versions if version != self.version]

    def _backoff_s(self) -> float:
        """Longer each time that nothing was heard, and never the same for two."""
        wait_s = min(self._pace.longest_wait_s, self._pace.first_wait_s * 2.0 ** min(self.health.failures, 16))
        self.health.failures += 1
        return wait_s * random.uniform(0.5, 1.0)

    @property
    def _path(self) -> str:
        return self.resource.path(self.version)


async def discover(client: Client) -> dict[tuple[str, str], str]:
    """Which version of each watched resource the server has; what it does not have is not in it."""
    places = sorted({(resource.group, version) for resource in WATCHED for version in resource.versions})
    answers = await asyncio.gather(*(_served(client, group, version) for group, version in places))
    served = dict(zip(places, answers, strict=True))
    return {
        resource.key: version
        for resource in WATCHED
        for version in reversed(resource.versions)
        if resource.plural in served[resource.group, version]
    }


async def _served(client: Client, group: str, version: str) -> frozenset[str]:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        answer = await client.request("GET", path)
    except ApiError as error:
        # Discovery may be closed to us; the resources themselves tell what we may read.
        if error.status in (ABSENT, REFUSED):
            return frozenset()
        raise
    return frozenset(entry.name for entry in msgspec.json.decode(answer, type=_ApiResources).resources)


# -- shapes ----------------------------------------------------------------------------------------------------------------


class _ApiResource(msgspec.Struct):
    name: str = ""


class _ApiResources(msgspec.Struct):
    resources: list[_ApiResource] = []


class _Meta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""
    metadata: _Meta = _Meta()


class _MarkMeta(msgspec.Struct, frozen=True, gc=False):
    annotations: dict[str, str] = {}


class _Mark(msgspec.Struct, frozen=True, gc=False):
    metadata: _MarkMeta = _MarkMeta()


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "continue_": "continue"}, frozen=True):
    resource_version: str = ""
    continue_: str = ""


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_EVENT: Final = msgspec.json.Decoder(_Event)
_HEAD: Final = msgspec.json.Decoder(_Head)
_MARK: Final = msgspec.json.Decoder(_Mark)
_LIST: Final = msgspec.json.Decoder(_List)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _ends_list(raw: msgspec.Raw) -> bool:
    return _MARK.decode(raw).metadata.annotations.get(LIST_END) == "true"


def _is_too_new(error: ApiError) -> bool:
    causes = error.details.get("causes")
    return isinstance(causes, list) and any(isinstance(cause, dict) and cause.get("reason") == _TOO_NEW for cause in causes)


def _decoded(answer: bytes) -> _List:
    try:
        return _LIST.decode(answer)
    except _UNREADABLE as error:
        raise ApiError(UNREACHED, "BadAnswer", f"the list cannot be read: {error}") from error
