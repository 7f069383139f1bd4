"""A decision log in files of limited size, each of which can be replayed by itself.

A file starts with all existing objects, as after a restart of the scheduler. So a new file is started only together with a new
scheduler state, built from the objects that are kept here, and only when that equals a restart: all effects are visible in the
objects. Until then a file grows beyond its limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import structlog

from muster.decision_log import DecisionLogWriter
from muster.model.effects import Bind, CancelEviction, Evict, Nominate, Outcome, PodEffect, Release, Reserve
from muster.model.events import BindFailed, ClusterObject, Delete, Event, EvictFailed, ReservationFailed, Upsert, event_subject
from muster.model.pod import Pod
from muster.private_file import open_private

log = structlog.get_logger(__name__)

WRITE_TIMEOUT_S: Final = 60.0
"""An effect that is not visible after this time was dropped by the writer."""


class LatestObjects:
    """All existing objects in their last version."""

    def __init__(self) -> None:
        self._upserts: dict[tuple[str, str], Upsert] = {}

    def apply(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Upsert):
                key = event_subject(event.obj)
                known = self._upserts.get(key)
                if known is None or event.obj.version >= known.obj.version:
                    self._upserts[key] = event
            elif isinstance(event, Delete):
                self._upserts.pop((event.kind, event.key), None)

    def events(self) -> list[Upsert]:
        return list(self._upserts.values())

    def listed(self) -> list[ClusterObject]:
        return [event.obj for event in self._upserts.values()]


class RotatingDecisionLog:
    """`path` is the newest file, `path.1` the one before it. At most `files` are kept."""

    def __init__(self, path: Path, *, max_bytes: int = 256 * 2**20, files: int = 5) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._files = files
        self._file: IO[bytes] | None = None
        self._objects = LatestObjects()
        self._in_flight: dict[str, tuple[PodEffect, float]] = {}
        self._now = 0.0
        self._header_bytes = 0

    # -- entries ---------------------------------------------------------------------------------------------------------------

    def begin(self, policy: str) -> None:
        self.close()
        self._objects, self._in_flight, self._header_bytes = LatestObjects(), {}, 0
        with self._stopping_on_error():
            self._rotate()
            self._file = open_private(self._path, "wb")
            DecisionLogWriter(self._file).begin(policy)

    def events(self, events: Iterable[Event]) -> None:
        events = list(events)
        self._objects.apply(events)
        for event in events:
            self._apply(event)
        if self._file is not None:
            with self._stopping_on_error():
                DecisionLogWriter(self._file).events(events)

    def outcome(self, outcome: Outcome) -> None:
        self._now = outcome.now
        for effect in outcome.effects:
            if isinstance(effect, PodEffect):
                self._in_flight[effect.uid] = (effect, outcome.now)
        if self._file is not None:
            with self._stopping_on_error():
                # A file that starts with many objects is kept until it has grown to twice that size.
                self._header_bytes = self._header_bytes or self._file.tell()
                DecisionLogWriter(self._file).outcome(outcome)
                self._file.flush()

    # -- files -----------------------------------------------------------------------------------------------------------------

    def is_full(self) -> bool:
        """The file is large enough or was moved away, and all effects are visible in the objects."""
        if self._file is None:
            return False
        if self._file.tell() < max(self._max_bytes, 2 * self._header_bytes) and not self._was_moved(self._file):
            return False
        return all(self._now - since > WRITE_TIMEOUT_S for _, since in self._in_flight.values())

    def _was_moved(self, file: IO[bytes]) -> bool:
        """By somebody who rotates logs: what is written from now on belongs into a new file."""
        try:
            return not os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except OSError:
            return True

    @property
    def facts(self) -> list[Upsert]:
        """All existing objects in their last version."""
        return self._objects.events()

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with self._stopping_on_error():
                file.close()

    @contextmanager
    def _stopping_on_error(self) -> Iterator[None]:
        """A log that cannot be written must not stop the scheduler: logging ends until the next file is started."""
        try:
            yield
        except OSError as error:
            file, self._file = self._file, None
            log.error("decision log cannot be written and ends here", file=str(self._path), error=str(error))
            if file is not None:
                with suppress(OSError):
                    file.close()

    def _rotate(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not self._path.exists() or not self._path.stat().st_size:
            return
        for number in range(self._files - 1, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    # -- effects in flight -------------------------------------------------------------------------------------------

    def _apply(self, event: Event) -> None:
        match event:
            case Upsert(obj=obj):
                if isinstance(obj, Pod) and obj.uid in self._in_flight and _is_visible(obj, self._in_flight[obj.uid][0]):
                    del self._in_flight[obj.uid]
            case Delete(key=key):
                self._in_flight.pop(key, None)
            case BindFailed(uid=uid) | EvictFailed(uid=uid) | ReservationFailed(uid=uid):
                self._in_flight.pop(uid, None)


def _is_visible(pod: Pod, effect: PodEffect) -> bool:
    """Does the pod show the effect?"""
    match effect:
        case Bind():
            return pod.node is not None
        case Reserve(node=node) | Nominate(node=node):
            return pod.node is not None or pod.nominated_node == node
        case Release(timed_out=timed_out):
            return pod.nominated_node is None and (pod.timed_out or not timed_out)
        case Evict():
            return pod.deleted_at is not None or pod.eviction_marked_at is not None or pod.finished
        case CancelEviction():
            return pod.eviction_marked_at is None
