"""A decision log that does not grow for ever: files of a certain size, each of which can be run again by itself.

A file must begin with all that exists, as a scheduler that starts anew would see it. So a new file is begun only together with a
new memory, made of the facts that are kept here, and only at a moment when that is the same as a restart: nothing that was decided
is still to be seen. Until such a moment comes, a file grows beyond its size.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import structlog

from muster.decision_log import DecisionLogWriter
from muster.model.effects import Bind, CancelEviction, Evict, Nominate, Outcome, PodEffect, Release, Reserve
from muster.model.events import BindFailed, ClusterObject, Delete, Event, EvictFailed, ReservationFailed, Upsert
from muster.model.pod import Pod

log = structlog.get_logger(__name__)

PATIENCE_S: Final = 60.0
"""A deed that is not seen for so long was given up by whoever carried it out."""


class RollingLog:
    """`path` is the newest file, `path.1` the one before it. At most `files` of them are kept."""

    def __init__(self, path: Path, *, most_bytes: int = 256 * 2**20, files: int = 5) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._files = files
        self._file: IO[bytes] | None = None
        self._facts: dict[tuple[str, str], Upsert] = {}
        self._under_way: dict[str, tuple[PodEffect, float]] = {}
        self._now = 0.0
        self._begun_bytes = 0

    # -- what a scheduler tells --------------------------------------------------------------------------------------------------

    def begin(self, policy: str) -> None:
        self.close()
        self._facts, self._under_way, self._begun_bytes = {}, {}, 0
        with _Trouble(self):
            self._shift()
            self._file = self._path.open("wb")
            DecisionLogWriter(self._file).begin(policy)

    def events(self, events: Iterable[Event]) -> None:
        events = list(events)
        for event in events:
            self._learn(event)
        if self._file is not None:
            with _Trouble(self):
                DecisionLogWriter(self._file).events(events)

    def outcome(self, outcome: Outcome) -> None:
        self._now = outcome.now
        for effect in outcome.effects:
            if isinstance(effect, PodEffect):
                self._under_way[effect.uid] = (effect, outcome.now)
        if self._file is not None:
            with _Trouble(self):
                # A file that begins with much must become worth its beginning.
                self._begun_bytes = self._begun_bytes or self._file.tell()
                DecisionLogWriter(self._file).outcome(outcome)
                self._file.flush()

    # -- beginning a new file --------------------------------------------------------------------------------------------------

    def is_full(self) -> bool:
        """It is time for a new file, and a new memory would lose nothing."""
        if self._file is None or self._file.tell() < max(self._most_bytes, 2 * self._begun_bytes):
            return False
        return all(self._now - since > PATIENCE_S for _, since in self._under_way.values())

    @property
    def facts(self) -> list[Upsert]:
        """All that exists, as it was last seen."""
        return list(self._facts.values())

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with _Trouble(self):
                file.close()

    def _shift(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not self._path.exists() or not self._path.stat().st_size:
            return
        for number in range(self._files - 1, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    # -- what exists, and what is still to be seen -------------------------------------------------------------------------------

    def _learn(self, event: Event) -> None:
        match event:
            case Upsert(obj=thing):
                key = _subject(thing)
                known = self._facts.get(key)
                if known is None or thing.version >= known.obj.version:
                    self._facts[key] = event
                if isinstance(thing, Pod) and thing.uid in self._under_way and _shows(thing, self._under_way[thing.uid][0]):
                    del self._under_way[thing.uid]
            case Delete(kind=what, key=name):
                self._facts.pop((what, name), None)
                self._under_way.pop(name, None)
            case BindFailed(uid=uid) | EvictFailed(uid=uid) | ReservationFailed(uid=uid):
                self._under_way.pop(uid, None)


def _subject(thing: ClusterObject) -> tuple[str, str]:
    """As `Delete` names it."""
    if isinstance(thing, Pod):
        return "Pod", thing.uid
    key: str = getattr(thing, "key", "") or thing.name
    return type(thing).__name__, key


def _shows(pod: Pod, deed: PodEffect) -> bool:
    """Does the object say what was done to it?"""
    match deed:
        case Bind():
            return pod.node is not None
        case Reserve(node=node) | Nominate(node=node):
            return pod.node is not None or (pod.reservation_note is not None and pod.reservation_note.node == node)
        case Release(timed_out=timed_out):
            return pod.reservation_note is None and (pod.timed_out or not timed_out)
        case Evict():
            return pod.deleted_at is not None or pod.eviction_marked_at is not None or pod.finished
        case CancelEviction():
            return pod.eviction_marked_at is None


class _Trouble:
    """A log that cannot be written must not stop the scheduler: it ends, and says so. The next file is tried again."""

    def __init__(self, log_: RollingLog) -> None:
        self._log = log_

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, OSError):
            return False
        file, self._log._file = self._log._file, None
        log.error("the decision log cannot be written and ends here", file=str(self._log._path), error=str(error))
        if file is not None:
            with suppress(OSError):
                file.close()
        return True
