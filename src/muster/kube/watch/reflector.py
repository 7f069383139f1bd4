"""Lists and watches one resource: one update for each version of an object, and one for its deletion.

Objects are passed on as the bytes that the server sent, if they changed (`object_tracker`). Errors of the API server are retried
here with backoff and never raised.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from muster.kube.read.api_resources import ApiResource
from muster.kube.read.text_values import read_version
from muster.kube.watch.client import FORBIDDEN, NO_RESPONSE, NOT_FOUND, TOO_MANY_REQUESTS, ApiError, Client, api_error_of_status
from muster.kube.watch.object_tracker import ObjectTracker, WatchUpdate

log = structlog.get_logger(__name__)

EXPIRED: Final = 410
"""The server has compacted the resourceVersion from which the watch should continue."""
UNSUPPORTED_STATUSES: Final = frozenset({400, 422})
"""The response of a server that does not support watch lists (`sendInitialEvents`)."""
_RELIST_STATUSES: Final = UNSUPPORTED_STATUSES | {EXPIRED, NOT_FOUND}
_RESOURCE_VERSION_TOO_LARGE: Final = "ResourceVersionTooLarge"
"""The reason of a server that is behind the requested resourceVersion, as after a restored backup."""
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the initial events of a watch list."""
_WATCH_LISTS_BEFORE_PAGING = 3
_FAILURES_BEFORE_RELIST = 8


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """Page size, timeouts and backoff of a reflector."""

    page: int = 500
    """Objects in one page of a list."""
    list_timeout_s: float = 60.0
    idle_timeout_s: float = 120.0
    """A watch without any event for so long is restarted. Servers send a bookmark every minute."""
    initial_wait_s: float = 0.2
    max_wait_s: float = 30.0
    not_served_wait_s: float = 30.0
    """How often a resource is retried that is not served or forbidden."""
    watch_s: float = 300.0
    """The server is requested to end a watch after one to two times this, so that load is rebalanced to new API servers."""


DEFAULT_WATCH_TIMING: Final = WatchTiming()


@dataclass(slots=True)
class WatchHealth:
    """The state of a watch, for metrics and health checks."""

    last_received_at: float
    """When the last response or event was received, by the monotonic clock."""
    events: int = 0
    relists: int = 0
    disconnects: int = 0
    """Watches that ended with an error."""
    failures: int = 0
    """Consecutive attempts without an event."""
    forbidden: bool = False
    not_served: bool = False
    resource_version: str = ""
    """From which the watch continues; empty where a list is needed."""
    forgotten_version: int = 0
    """The newest one that it continued from before a list was needed."""

    @property
    def newest_version(self) -> int:
        """The newest version that the server is known to have had."""
        return max(self.forgotten_version, read_version(self.resource_version))

    def forget_version(self) -> None:
        self.forgotten_version, self.resource_version = self.newest_version, ""

    def silent_for_s(self) -> float:
        """The time since the last response or event; 0 for a resource that is not served or forbidden."""
        return 0.0 if self.not_served or self.forbidden else time.monotonic() - self.last_received_at


UpdateSink = Callable[[list[WatchUpdate]], None]


class Reflector:
    """Lists and watches one resource. `sink` is called in the event loop with each batch of updates."""

    def __init__(
        self,
        client: Client,
        resource: ApiResource,
        sink: UpdateSink,
        *,
        timing: WatchTiming = DEFAULT_WATCH_TIMING,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.health = WatchHealth(last_received_at=time.monotonic())
        self._client = client
        self._sink = sink
        self._timing = timing
        self._objects = ObjectTracker(resource)
        self._supports_watch_list = True
        self._failed_watch_lists = 0
        self._untried_versions = self._other_versions()

    @property
    def version(self) -> str:
        """In which the resource is read: the best that the server has."""
        return self._objects.version

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(await self._list_or_watch())

    async def _list_or_watch(self) -> float:
        """One list, or one watch until the server ends it. Returns the wait before the next attempt."""
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
        """A watch list is the cheapest for the server. After repeated failures, a list in pages may still succeed."""
        return self._supports_watch_list and self._failed_watch_lists < _WATCH_LISTS_BEFORE_PAGING

    # -- listing -----------------------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        """All objects, page by page. After an expired continue token the list starts again, at last without pages."""
        for page in (self._timing.page, self._timing.page, 0):
            try:
                return await self._list_pages(page)
            except ApiError as error:
                if error.status != EXPIRED or not page:
                    raise
        raise AssertionError("a list without pages returns or raises")

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
                    self._objects.upsert(raw, found=found, updates=updates)
                except _DECODE_ERRORS as error:
                    self._skip_unreadable(raw, error)
            token = listed.metadata.continue_
            if not token:
                self._finish_list(found, resource_version=listed.metadata.resource_version, updates=updates)
            self._emit(updates)
            if not token:
                return

    def _list_params(self, page: int, token: str) -> dict[str, str]:
        params: dict[str, str] = {}
        if page:
            params["limit"] = str(page)
        if token:
            params["continue"] = token
        return params

    def _finish_list(self, found: set[str], *, resource_version: str, updates: list[WatchUpdate]) -> None:
        self._objects.finish_list(found, updates=updates)
        self.health.relists += self.synced.is_set()
        self.health.forbidden = self.health.not_served = False
        self.health.resource_version = resource_version
        self._failed_watch_lists = 0
        self._untried_versions = self._other_versions()
        self.synced.set()

    # -- watching ----------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Until the server ends it. Without a resourceVersion it is a watch list."""
        found: set[str] | None = None if self.health.resource_version else set()
        batches = self._client.watch_batches(self._path, params=self._watch_params(), idle_timeout_s=self._timing.idle_timeout_s)
        async with aclosing(batches):
            async for lines in batches:
                self._mark_received()
                if self._apply_lines(lines, found=found):
                    found = None

    def _watch_params(self) -> dict[str, str]:
        params = {
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
        """Pass on the events of these lines; returns whether the initial events are complete.

        `found` are the objects of the initial events so far, None once they are complete. Events before an error are passed on.
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
        """The resourceVersion after this event. Those of initial events are in no order."""
        if event.type in ("ADDED", "MODIFIED"):
            return self._objects.upsert(event.object, found=found, updates=updates)
        if event.type == "DELETED":
            return self._objects.delete(event.object, found=found, updates=updates)
        if event.type == "ERROR":
            raise api_error_of_status(event.object)
        return _BOOKMARK_DECODER.decode(event.object).metadata.resource_version

    # -- objects -----------------------------------------------------------------------------------------------------------

    def _emit(self, updates: list[WatchUpdate]) -> None:
        if updates:
            self.health.events += len(updates)
            self._sink(updates)

    def _skip_unreadable(self, raw: bytes | msgspec.Raw, error: Exception) -> None:
        """One object that cannot be decoded must not block the others."""
        log.warning(
            "object skipped", resource=self.resource.plural, group=self.resource.group, bytes=len(bytes(raw)), error=str(error)
        )

    def _mark_received(self) -> None:
        self.health.last_received_at = time.monotonic()

    # -- errors ------------------------------------------------------------------------------------------------------------

    def _wait_after_error(self, error: ApiError) -> float:
        """Decides how to continue; returns the wait before the next attempt."""
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
            self.health.forget_version()
        log.info("watch disconnected", resource=self.resource.plural, group=self.resource.group, error=str(error))
        return max(error.retry_after_s or 0.0, self._backoff_s())

    def _must_relist(self, error: ApiError) -> bool:
        """The resourceVersion is invalid, or may be: the server refuses it repeatedly."""
        if error.status in _RELIST_STATUSES or _is_version_too_large(error):
            return True
        return error.status not in (NO_RESPONSE, TOO_MANY_REQUESTS) and self.health.failures >= _FAILURES_BEFORE_RELIST

    def _handle_not_served(self) -> float:
        """The server does not serve it in this version: try the others, then wait. Objects that it had are deleted."""
        self.health.forget_version()
        if self._untried_versions:
            self._objects.version, *self._untried_versions = self._untried_versions
            return 0.0
        if not self.health.not_served:
            updates: list[WatchUpdate] = []
            self._finish_list(set(), resource_version="", updates=updates)
            self.health.not_served = True
            self._emit(updates)
        self._untried_versions = self._other_versions()
        return self._timing.not_served_wait_s * random.uniform(0.8, 1.2)

    def _handle_forbidden(self, error: ApiError) -> float:
        """Known objects stay: a revoked permission says nothing about the objects."""
        if not self.health.forbidden:
            self.health.forbidden = True
            log.warning("resource is forbidden", resource=self.resource.plural, group=self.resource.group, error=str(error))
        if not self.synced.is_set():
            self._emit([self._objects.synced])
            self.synced.set()
        return self._timing.not_served_wait_s * random.uniform(0.8, 1.2)

    def _other_versions(self) -> list[str]:
        return [version for version in self.resource.versions if version != self.version]

    def _backoff_s(self) -> float:
        """Exponential backoff with jitter."""
        wait_s = min(self._timing.max_wait_s, self._timing.initial_wait_s * 2.0 ** min(self.health.failures, 16))
        self.health.failures += 1
        return wait_s * random.uniform(0.5, 1.0)

    @property
    def _path(self) -> str:
        return self.resource.path(self.version)


# -- structs ---------------------------------------------------------------------------------------------------------------


class _BookmarkMeta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


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
_BOOKMARK_DECODER: Final = msgspec.json.Decoder(_Bookmark)
_LIST_DECODER: Final = msgspec.json.Decoder(_ObjectList)
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _ends_initial_events(raw: msgspec.Raw) -> bool:
    annotations = _BOOKMARK_DECODER.decode(raw).metadata.annotations
    return annotations is not None and annotations.get(INITIAL_EVENTS_END) == "true"


def _is_version_too_large(error: ApiError) -> bool:
    causes = error.details.get("causes")
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == _RESOURCE_VERSION_TOO_LARGE for cause in causes
    )


def _decode_list(answer: bytes) -> _ObjectList:
    try:
        return _LIST_DECODER.decode(answer)
    except _DECODE_ERRORS as error:
        raise ApiError(NO_RESPONSE, "BadAnswer", f"the list cannot be decoded: {error}") from error
