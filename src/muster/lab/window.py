"""A client that looks at a server through a calendar, and knows what it has seen and what was written.

Whoever holds it reads virtual times and notices nothing. Whoever plays a story can tell from it when all the news has arrived,
can have deeds refused, and can have the writer die after so many writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

import msgspec

from muster.adapters.kube.access import Access
from muster.adapters.kube.client import LEASE_OVER, READS, UNREACHED, ApiError, Client, path_kind
from muster.adapters.sim.hands import Write
from muster.lab.calendar import Calendar

_TOLD: Final = ("ADDED", "MODIFIED", "DELETED")
_REFUSED: Final = 403
_VERBS: Final = {"binding": "bind", "eviction": "evict"}
_BUDGETS: Final = "poddisruptionbudgets.policy"
_KINDS: Final = {"pods": "Pod", "nodes": "Node", "persistentvolumes": "PersistentVolume"}

Versions = dict[str, str]
"""Of each object its version, by UID."""


class Window(Client):
    """`touched` is shared: the resources that somebody wrote to, and that are not known to have been seen since."""

    def __init__(self, access: Access, *, calendar: Calendar, touched: set[str]) -> None:
        super().__init__(access)
        self.seen: dict[str, Versions] = {}
        """What the lists and watches of this client have told, by resource."""
        self.writes: list[Write] = []
        self.refusals: Counter[tuple[str, str]] = Counter()
        """How many of the next deeds are refused, by verb (bind, evict) and pod."""
        self.writes_left: int | None = None
        self._calendar = calendar
        self._touched = touched

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object | bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
        retry_busy: bool = True,
    ) -> bytes:
        if method not in READS:
            self._begin(method, path)
        answer = await super().request(
            method, path, params=params, body=body, content_type=content_type, timeout_s=timeout_s, retry_busy=retry_busy
        )
        if method not in READS:
            self._touch(path)
        return self._translated(path, answer, is_first=not (params or {}).get("continue"))

    async def batches(self, path: str, *, params: Mapping[str, str], quiet_s: float = 120.0) -> AsyncGenerator[list[bytes], None]:
        resource = path_kind(path)
        if "sendInitialEvents" in params:
            self.seen[resource] = {}
        async with aclosing(super().batches(path, params=params, quiet_s=quiet_s)) as batches:
            async for lines in batches:
                yield [self._heard(resource, line) for line in lines]

    # -- reading ---------------------------------------------------------------------------------------------------------------

    def _heard(self, resource: str, line: bytes) -> bytes:
        event = msgspec.json.decode(line)
        if event["type"] not in _TOLD:
            return line
        metadata = event["object"]["metadata"]
        self._calendar.translate(resource, metadata)
        versions = self.seen.setdefault(resource, {})
        if event["type"] == "DELETED":
            versions.pop(metadata["uid"], None)
        else:
            versions[metadata["uid"]] = metadata["resourceVersion"]
        return msgspec.json.encode(event)

    def _translated(self, path: str, answer: bytes, *, is_first: bool) -> bytes:
        found: Any = msgspec.json.decode(answer) if answer.startswith(b"{") else None
        if not isinstance(found, dict) or "metadata" not in found:
            return answer
        resource = path_kind(path).partition("/")[0]
        if "items" not in found:
            self._calendar.translate(resource, found["metadata"])
            return msgspec.json.encode(found)
        versions = {} if is_first else self.seen.get(resource, {})
        for one in found["items"] or ():
            self._calendar.translate(resource, one["metadata"])
            versions[one["metadata"]["uid"]] = one["metadata"]["resourceVersion"]
        self.seen[resource] = versions
        return msgspec.json.encode(found)

    # -- writing ---------------------------------------------------------------------------------------------------------------

    def _begin(self, method: str, path: str) -> None:
        """Raises what the server would answer, where somebody wants this write to fail."""
        write = _write(method, path)
        if self.refusals[write.verb, write.name] > 0:
            self.refusals[write.verb, write.name] -= 1
            raise ApiError(_REFUSED, "Forbidden", f"the API server refused to {write.verb} pod {write.name}")
        if self.writes_left is not None:
            if not self.writes_left:
                raise ApiError(UNREACHED, LEASE_OVER, f"{method} {path} was not sent: the scheduler is dead")
            self.writes_left -= 1
        self.writes.append(write)
        self._touch(path)

    def _touch(self, path: str) -> None:
        resource, _, sub = path_kind(path).partition("/")
        self._touched.add(resource)
        if sub == "eviction":
            # The server counts it in the budget's status.
            self._touched.add(_BUDGETS)


def _write(method: str, path: str) -> Write:
    """The write in the words of the embedded cluster."""
    resource, _, sub = path_kind(path).partition("/")
    parts = path.strip("/").split("/")
    tail = parts[parts.index(resource.partition(".")[0]) + 1 :]
    namespace = f"{parts[parts.index('namespaces') + 1]}/" if "namespaces" in parts and resource != "namespaces" else ""
    name = f"{namespace}{tail[0]}" if tail else namespace
    return Write(_VERBS.get(sub, method.lower()), _KINDS.get(resource, resource), name)
