"""A client that translates times to virtual time, and records what it has observed and written.

A test can tell from it when all updates have arrived, can have effects refused, and can have the writer die after so many writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

import msgspec
from tests.harness.virtual_time import VirtualTime

from muster.kube.read import names
from muster.kube.watch.access import Access
from muster.kube.watch.client import LEASE_EXPIRED, NO_RESPONSE, READ_METHODS, ApiError, Client, resource_of_path
from muster.sim.executor import Write

_OBJECT_EVENTS: Final = ("ADDED", "MODIFIED", "DELETED")
_FORBIDDEN: Final = 403
_VERBS: Final = {"binding": "bind", "eviction": "evict"}
_BUDGETS: Final = "poddisruptionbudgets.policy"
_KIND_OF_RESOURCE: Final = {"pods": "Pod", "nodes": "Node", "persistentvolumes": "PersistentVolume"}

Versions = dict[str, str]
"""The resourceVersion of each object, by UID."""


class RecordingClient(Client):
    """`written_resources` is shared: the resources that were written and whose update was not observed since."""

    def __init__(self, access: Access, *, virtual_time: VirtualTime, written_resources: set[str]) -> None:
        super().__init__(access)
        self.observed: dict[str, Versions] = {}
        """The versions that lists and watches of this client have received, by resource."""
        self.writes: list[Write] = []
        self.refusals: Counter[tuple[str, str]] = Counter()
        """How many of the next effects are refused, by verb (bind, evict) and pod."""
        self.writes_left: int | None = None
        self._virtual_time = virtual_time
        self._written_resources = written_resources

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object | bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
        retry_throttled: bool = True,
    ) -> bytes:
        if method not in READ_METHODS:
            self._record_write(method, path)
        answer = await super().request(
            method, path, params=params, body=body, content_type=content_type, timeout_s=timeout_s, retry_throttled=retry_throttled
        )
        if method not in READ_METHODS:
            self._mark_written(path)
        return self._translate_response(path, answer, is_first=not (params or {}).get("continue"))

    async def watch_batches(
        self, path: str, *, params: Mapping[str, str], idle_timeout_s: float = 120.0
    ) -> AsyncGenerator[list[bytes], None]:
        resource = resource_of_path(path)
        if "sendInitialEvents" in params:
            self.observed[resource] = {}
        async with aclosing(super().watch_batches(path, params=params, idle_timeout_s=idle_timeout_s)) as batches:
            async for lines in batches:
                yield [self._translate_event(resource, line) for line in lines]

    # -- reading ---------------------------------------------------------------------------------------------------------------

    def _translate_event(self, resource: str, line: bytes) -> bytes:
        event = msgspec.json.decode(line)
        if event["type"] not in _OBJECT_EVENTS:
            return line
        metadata = event["object"]["metadata"]
        self._virtual_time.translate(resource, metadata)
        versions = self.observed.setdefault(resource, {})
        if event["type"] == "DELETED":
            versions.pop(metadata["uid"], None)
        else:
            versions[metadata["uid"]] = metadata["resourceVersion"]
        return msgspec.json.encode(event)

    def _translate_response(self, path: str, answer: bytes, *, is_first: bool) -> bytes:
        found: Any = msgspec.json.decode(answer) if answer.startswith(b"{") else None
        if not isinstance(found, dict) or "metadata" not in found:
            return answer
        resource = resource_of_path(path).partition("/")[0]
        if "items" not in found:
            self._virtual_time.translate(resource, found["metadata"])
            return msgspec.json.encode(found)
        versions = {} if is_first else self.observed.get(resource, {})
        for one in found["items"] or ():
            self._virtual_time.translate(resource, one["metadata"])
            versions[one["metadata"]["uid"]] = one["metadata"]["resourceVersion"]
        self.observed[resource] = versions
        return msgspec.json.encode(found)

    # -- writing ---------------------------------------------------------------------------------------------------------------

    def _record_write(self, method: str, path: str) -> None:
        """Raises the server's error where a test wants this write to fail."""
        write = as_write(method, path)
        if self.refusals[write.verb, write.name] > 0:
            self.refusals[write.verb, write.name] -= 1
            raise ApiError(_FORBIDDEN, "Forbidden", f"the API server refused to {write.verb} pod {write.name}")
        if self.writes_left is not None:
            if not self.writes_left:
                raise ApiError(NO_RESPONSE, LEASE_EXPIRED, f"{method} {path} was not sent: the scheduler is dead")
            self.writes_left -= 1
        self.writes.append(write)
        self._mark_written(path)

    def _mark_written(self, path: str) -> None:
        resource, _, sub = resource_of_path(path).partition("/")
        self._written_resources.add(resource)
        if sub == "eviction":
            # The server counts it in the budget's status.
            self._written_resources.add(_BUDGETS)


def as_write(method: str, path: str) -> Write:
    """The write as the simulated cluster records it."""
    resource, _, sub = resource_of_path(path).partition("/")
    parts = path.strip("/").split("/")
    tail = parts[parts.index(resource.partition(".")[0]) + 1 :]
    namespace = f"{parts[parts.index('namespaces') + 1]}/" if "namespaces" in parts and resource != "namespaces" else ""
    name = f"{namespace}{tail[0]}" if tail else namespace
    verb = "save" if resource.endswith(f".{names.MUSTER_GROUP}") else _VERBS.get(sub, method.lower())
    return Write(verb, _KIND_OF_RESOURCE.get(resource, resource), name)
