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

from muster.kube.watch.api_resources import WATCHED, ApiResource
from muster.kube.watch.client import NO_RESPONSE, TOO_MANY_REQUESTS, ApiError, Client, api_error_of_status

log = structlog.get_logger(__name__)

EXPIRED: Final = 410
"""The server has forgotten the version that we stand at."""
NOT_FOUND: Final = 404
FORBIDDEN: Final = 403
UNSUPPORTED_STATUSES: Final = frozenset({400, 422})
"""What a server says that cannot send a list as the beginning of a watch."""
_RELIST_STATUSES: Final = UNSUPPORTED_STATUSES | {EXPIRED, NOT_FOUND}
_RESOURCE_VERSION_TOO_LARGE: Final = "ResourceVersionTooLarge"
"""What a server says that is behind the version that we stand at, as after a restored backup."""
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends such a beginning."""
_WATCH_LISTS_BEFORE_PAGING = 3
_FAILURES_BEFORE_RELIST = 8


class UpdateType(Enum):
    UPSERT = "seen"
    DELETE = "gone"
    SYNCED = "synced"
    """All that there is has been told."""


class WatchUpdate(NamedTuple):
    """News of one object. After a gap the bytes of a GONE are no more than who it was."""

    kind: tuple[str, str]
    update_type: UpdateType
    raw: bytes = b""


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """How a reflector keeps its time."""

    page: int = 500
    """Objects in one answer of a list."""
    list_timeout_s: float = 60.0
    idle_timeout_s: float = 120.0
    """A watch on which nothing was heard for so long is given up. Servers send a bookmark every minute."""
    initial_wait_s: float = 0.2
    max_wait_s: float = 30.0
    not_served_wait_s: float = 30.0
    """How often a resource is asked for again that the cluster does not have, or not for us."""
    watch_s: float = 300.0
    """The server is asked to end a watch after once to twice this time, so that load moves to servers that are new."""


DEFAULT_WATCH_TIMING: Final = WatchTiming()


@dataclass(slots=True)
class WatchHealth:
    """How a watch is doing, for those who measure."""

    last_received_at: float
    """When anything at all was last heard, by the monotonic clock."""
    events: int = 0
    relists: int = 0
    disconnects: int = 0
    """Watches that ended otherwise than by the server's own time."""
    failures: int = 0
    """Attempts in a row that brought no news."""
    forbidden: bool = False
    not_served: bool = False
    resource_version: str = ""
    """The version up to which everything was heard; empty while it must be listed."""

    def silent_for_s(self) -> float:
        """For how long nothing was heard. A resource that the cluster does not have, or not for us, is quiet and well."""
        return 0.0 if self.not_served or self.forbidden else time.monotonic() - self.last_received_at


UpdateSink = Callable[[list[WatchUpdate]], None]


class Reflector:
    """Lists and watches one resource, for ever. `sink` is called in the event loop with what came in together."""

    def __init__(
        self,
        client: Client,
        resource: ApiResource,
        version: str,
        sink: UpdateSink,
        *,
        timing: WatchTiming = DEFAULT_WATCH_TIMING,
        field_selector: str = "",
    ) -> None:
        self.resource = resource
        self.version = version or resource.versions[0]
        self.synced = asyncio.Event()
        self.health = WatchHealth(last_received_at=time.monotonic())
        self._client = client
        self._sink = sink
        self._timing = timing
        self._selector = {"fieldSelector": field_selector} if field_selector else {}
        self._known: dict[str, tuple[str, str]] = {}
        self._supports_watch_list = True
        self._failed_watch_lists = 0
        self._untried_versions = self._other_versions()

    async def run(self) -> None:
        """For ever; ends only by being cancelled."""
        while True:
            await asyncio.sleep(await self._list_or_watch())

    async def _list_or_watch(self) -> float:
        """Ask once, listen for as long as the server speaks, and say how long to wait before the next time."""
        try:
            if not self.health.resource_version and not self._uses_watch_list:
                await self._list()
                return 0.0
            await self._watch()
        except ApiError as error:
            return self._wait_after_error(error)
        return self._backoff_s()

    @property
    def _uses_watch_list(self) -> bool:
        """A watch that begins with all there is costs the server least. Where it keeps failing, pages may still get through."""
        return self._supports_watch_list and self._failed_watch_lists < _WATCH_LISTS_BEFORE_PAGING

    # -- listing -----------------------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        """All objects, page by page. Pages that the server forgot meanwhile are begun anew, at last in one piece."""
        for page in (self._timing.page, self._timing.page, 0):
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
                "GET", self._path, params=self._list_params(page, token), timeout_s=self._timing.list_timeout_s
            )
            listed = _decode_list(answer)
            self._mark_received()
            updates: list[WatchUpdate] = []
            for raw in listed.items or ():
                try:
                    self._upsert(raw, found=found, updates=updates)
                except _DECODE_ERRORS as error:
                    self._skip_unreadable(raw, error)
            token = listed.metadata.continue_
            if not token:
                self._finish_list(found, resource_version=listed.metadata.resource_version, updates=updates)
            self._emit(updates)
            if not token:
                return

    def _list_params(self, page: int, token: str) -> dict[str, str]:
        params = dict(self._selector)
        if page:
            params["limit"] = str(page)
        if token:
            params["continue"] = token
        return params

    def _finish_list(self, found: set[str], *, resource_version: str, updates: list[WatchUpdate]) -> None:
        """The list is whole: whoever is not in it is gone."""
        updates.extend(self._missed_delete(key) for key in [key for key in self._known if key not in found])
        updates.append(WatchUpdate(self.resource.key, UpdateType.SYNCED))
        self.health.relists += self.synced.is_set()
        self.health.forbidden = self.health.not_served = False
        self.health.resource_version = resource_version
        self._failed_watch_lists = 0
        self._untried_versions = self._other_versions()
        self.synced.set()

    # -- watching ----------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Listen until the server ends it. Without a version to go on from, the watch begins with all that there is."""
        found: set[str] | None = None if self.health.resource_version else set()
        batches = self._client.watch_batches(self._path, params=self._watch_params(), idle_timeout_s=self._timing.idle_timeout_s)
        async with aclosing(batches):
            async for lines in batches:
                self._mark_received()
                if self._apply_lines(lines, found=found):
                    found = None

    def _watch_params(self) -> dict[str, str]:
        params = {
            **self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(self._timing.watch_s * random.uniform(1.0, 2.0))),
        }
        if self.health.resource_version:
            params["resourceVersion"] = self.health.resource_version
        else:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return params

    def _apply_lines(self, lines: Iterable[bytes], *, found: set[str] | None) -> bool:
        """Pass on what the lines say; whether the beginning of the watch was completed by them.

        `found` are the objects that the beginning named so far, None once it is over. What was heard before an error counts.
        """
        updates: list[WatchUpdate] = []
        list_complete = found is None
        try:
            for line in lines:
                try:
                    event = _WATCH_EVENT_DECODER.decode(line)
                    resource_version = self._apply_event(event, found=None if list_complete else found, updates=updates)
                except _DECODE_ERRORS as error:
                    self._skip_unreadable(line, error)
                    continue
                if list_complete:
                    self.health.resource_version = resource_version
                    self.health.failures = 0
                elif found is not None and event.type == "BOOKMARK" and _ends_initial_events(event.object):
                    self._finish_list(found, resource_version=resource_version, updates=updates)
                    list_complete = True
        finally:
            self._emit(updates)
        return list_complete

    def _apply_event(self, event: _WatchEvent, *, found: set[str] | None, updates: list[WatchUpdate]) -> str:
        """The version at which the watch stands after this. Those of objects that begin a watch are in no order."""
        if event.type in ("ADDED", "MODIFIED"):
            return self._upsert(event.object, found=found, updates=updates)
        if event.type == "DELETED":
            return self._delete(event.object, found=found, updates=updates)
        if event.type == "ERROR":
            raise api_error_of_status(event.object)
        return _HEAD_DECODER.decode(event.object).metadata.resource_version

    # -- objects -----------------------------------------------------------------------------------------------------------

    def _upsert(self, raw: msgspec.Raw, *, found: set[str] | None, updates: list[WatchUpdate]) -> str:
        head = _HEAD_DECODER.decode(raw)
        meta = head.metadata
        key = f"{meta.namespace}/{meta.name}"
        if found is not None:
            found.add(key)
        known = self._known.get(key)
        if known is None or known != (meta.uid, meta.resource_version):
            if known is not None and known[0] != meta.uid:
                updates.append(self._missed_delete(key))
            self._known[key] = (meta.uid, meta.resource_version)
            updates.append(
                WatchUpdate(self.resource.key, UpdateType.UPSERT, bytes(raw) if head.kind else self._with_type_meta(raw))
            )
        return meta.resource_version

    def _delete(self, raw: msgspec.Raw, *, found: set[str] | None, updates: list[WatchUpdate]) -> str:
        meta = _HEAD_DECODER.decode(raw).metadata
        key = f"{meta.namespace}/{meta.name}"
        if found is not None:
            found.discard(key)
        known = self._known.get(key)
        if known is not None and known[0] == meta.uid:
            del self._known[key]
            updates.append(WatchUpdate(self.resource.key, UpdateType.DELETE, bytes(raw)))
        return meta.resource_version

    def _missed_delete(self, key: str) -> WatchUpdate:
        """An object that went while nobody listened."""
        namespace, _, name = key.partition("/")
        uid, version = self._known.pop(key)
        said = {
            "apiVersion": self.resource.api_version(self.version),
            "kind": self.resource.kind,
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version},
        }
        return WatchUpdate(self.resource.key, UpdateType.DELETE, msgspec.json.encode(said))

    def _with_type_meta(self, raw: msgspec.Raw) -> bytes:
        """The items of a list do not say what they are."""
        title = f'{{"apiVersion":"{self.resource.api_version(self.version)}","kind":"{self.resource.kind}",'
        return title.encode() + bytes(raw).lstrip()[1:]

    def _emit(self, updates: list[WatchUpdate]) -> None:
        if updates:
            self.health.events += len(updates)
            self._sink(updates)

    def _skip_unreadable(self, raw: bytes | msgspec.Raw, error: Exception) -> None:
        """One object that nobody can read must not hide all the others."""
        log.warning(
            "object skipped", resource=self.resource.plural, group=self.resource.group, bytes=len(bytes(raw)), error=str(error)
        )

    def _mark_received(self) -> None:
        self.health.last_received_at = time.monotonic()

    # -- trouble -----------------------------------------------------------------------------------------------------------

    def _wait_after_error(self, error: ApiError) -> float:
        """What to do differently next time, and when that is."""
        if error.status == NOT_FOUND and self.resource.optional:
            return self._handle_not_served()
        if error.status == FORBIDDEN:
            return self._handle_forbidden(error)
        if error.status in UNSUPPORTED_STATUSES and not self.health.resource_version and self._uses_watch_list:
            self._supports_watch_list = False
            return 0.0
        self.health.disconnects += 1
        self._failed_watch_lists += not self.health.resource_version
        if self._must_relist(error):
            self.health.resource_version = ""
        log.info("watch broken", resource=self.resource.plural, group=self.resource.group, error=str(error))
        return max(error.retry_after_s or 0.0, self._backoff_s())

    def _must_relist(self, error: ApiError) -> bool:
        """The version that we stand at is of no use; or it may be that, since the server refuses it again and again."""
        if error.status in _RELIST_STATUSES or _is_version_too_large(error):
            return True
        return error.status not in (NO_RESPONSE, TOO_MANY_REQUESTS) and self.health.failures >= _FAILURES_BEFORE_RELIST

    def _handle_not_served(self) -> float:
        """The server does not have it: under another version, perhaps, or some day. What it had is gone."""
        self.health.resource_version = ""
        if self._untried_versions:
            self.version, *self._untried_versions = self._untried_versions
            return 0.0
        if not self.health.not_served:
            updates: list[WatchUpdate] = []
            self._finish_list(set(), resource_version="", updates=updates)
            self.health.not_served = True
            self._emit(updates)
        self._untried_versions = self._other_versions()
        return self._timing.not_served_wait_s * random.uniform(0.8, 1.2)

    def _handle_forbidden(self, error: ApiError) -> float:
        """We may not read it. What is known of it stays: a right that was taken away says nothing about the objects."""
        if not self.health.forbidden:
            self.health.forbidden = True
            log.warning("resource may not be read", resource=self.resource.plural, group=self.resource.group, error=str(error))
        if not self.synced.is_set():
            self._emit([WatchUpdate(self.resource.key, UpdateType.SYNCED)])
            self.synced.set()
        return self._timing.not_served_wait_s * random.uniform(0.8, 1.2)

    def _other_versions(self) -> list[str]:
        return [version for version in self.resource.versions if version != self.version]

    def _backoff_s(self) -> float:
        """Longer each time that nothing was heard, and never the same for two."""
        wait_s = min(self._timing.max_wait_s, self._timing.initial_wait_s * 2.0 ** min(self.health.failures, 16))
        self.health.failures += 1
        return wait_s * random.uniform(0.5, 1.0)

    @property
    def _path(self) -> str:
        return self.resource.path(self.version)


async def discover_versions(client: Client) -> dict[tuple[str, str], str]:
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
        if error.status in (NOT_FOUND, FORBIDDEN):
            return frozenset()
        raise
    return frozenset(entry.name for entry in msgspec.json.decode(answer, type=_ApiResources).resources)


# -- shapes ----------------------------------------------------------------------------------------------------------------


class _ApiResource(msgspec.Struct):
    name: str = ""


class _ApiResources(msgspec.Struct):
    resources: list[_ApiResource] = []


class _ObjectHeadMeta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _ObjectHead(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""
    metadata: _ObjectHeadMeta = _ObjectHeadMeta()


class _BookmarkMeta(msgspec.Struct, frozen=True, gc=False):
    annotations: dict[str, str] = {}


class _Bookmark(msgspec.Struct, frozen=True, gc=False):
    metadata: _BookmarkMeta = _BookmarkMeta()


class _WatchEvent(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "continue_": "continue"}, frozen=True):
    resource_version: str = ""
    continue_: str = ""


class _ObjectList(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_WATCH_EVENT_DECODER: Final = msgspec.json.Decoder(_WatchEvent)
_HEAD_DECODER: Final = msgspec.json.Decoder(_ObjectHead)
_BOOKMARK_DECODER: Final = msgspec.json.Decoder(_Bookmark)
_LIST_DECODER: Final = msgspec.json.Decoder(_ObjectList)
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _ends_initial_events(raw: msgspec.Raw) -> bool:
    return _BOOKMARK_DECODER.decode(raw).metadata.annotations.get(INITIAL_EVENTS_END) == "true"


def _is_version_too_large(error: ApiError) -> bool:
    causes = error.details.get("causes")
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == _RESOURCE_VERSION_TOO_LARGE for cause in causes
    )


def _decode_list(answer: bytes) -> _ObjectList:
    try:
        return _LIST_DECODER.decode(answer)
    except _DECODE_ERRORS as error:
        raise ApiError(NO_RESPONSE, "BadAnswer", f"the list cannot be read: {error}") from error
