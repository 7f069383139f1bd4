"""The objects of a real API server, for the wheels of the embedded cluster: its kubelets and controllers turn here unchanged.

What they read is what the server told, and over it what they wrote themselves and the server has not answered yet: so nobody
does a thing twice because the news of it is on its way. Writes on one object go out one after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog

from muster.adapters.kube.client import ApiError, Client
from muster.adapters.kube.merge import merged
from muster.adapters.kube.refs import BUDGET, KindKey, Manifest, Ref, Stored
from muster.adapters.kube.resources import resource_of
from muster.adapters.sim.clock import Clock
from muster.adapters.sim.manifests import KINDS, ref_of
from muster.adapters.sim.objects import Change, Conflict, ObjectStore, What

log = structlog.get_logger(__name__)

# Its lists of conditions are merged by type: those that others write meanwhile stay.
_PATCH = "application/strategic-merge-patch+json"
_TRIES = 5
_FIRST_WAIT_S = 0.1
_PASSED_BY = frozenset({404, 409})
"""Answers of a world that moved on meanwhile."""
_SETTLED = _PASSED_BY | {400, 403, 422}
"""Answers that asking again would not change."""


@dataclass(frozen=True, slots=True)
class _Write:
    method: str
    path: str
    body: Manifest
    content_type: str = "application/json"


@dataclass(slots=True)
class _Lane:
    """What is under way for one object: writes, how it looks once they are done, and what was heard of it meanwhile."""

    writes: deque[_Write] = field(default_factory=deque)
    ahead: Stored | None = None
    heard: list[tuple[What, Stored]] = field(default_factory=list)


class RemoteStore(ObjectStore):
    """Kinds of Kubernetes itself, in version v1. `read` makes an object of what the server sent; `awake` is called when there is
    something to react to."""

    def __init__(self, clock: Clock, client: Client, *, read: Callable[[bytes], Stored], awake: Callable[[], None]) -> None:
        super().__init__(clock)
        self._client = client
        self._read = read
        self._awake = awake
        self._told: dict[KindKey, dict[Ref, Stored]] = {kind: {} for kind in KINDS}
        self._lanes: dict[Ref, _Lane] = {}
        self._log: list[Change] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # -- looking ---------------------------------------------------------------------------------------------------------------

    def peek(self, ref: Ref) -> Stored | None:
        lane = self._lanes.get(ref)
        return lane.ahead if lane is not None and lane.ahead is not None else self._told[ref[:2]].get(ref)

    def scan(self, kind: KindKey) -> Iterator[tuple[Ref, Stored]]:
        found = self._told[kind]
        return ((ref, self.peek(ref) or found[ref]) for ref in sorted(found))

    def drain(self) -> list[Change]:
        changes, self._log = self._log, []
        return changes

    def has_changes(self) -> bool:
        return bool(self._log)

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way to the server."""
        return not self._lanes

    def versions(self, kind: KindKey) -> dict[str, str]:
        """Of each object that the server told of, by UID."""
        found = (manifest["metadata"] for manifest in self._told[kind].values())
        return {metadata["uid"]: metadata["resourceVersion"] for metadata in found}

    # -- hearing ---------------------------------------------------------------------------------------------------------------

    def hear(self, kind: KindKey, what: What, raw: bytes) -> None:
        """What the server says of an object. It waits while we write on that object ourselves."""
        manifest = self._read(raw)
        metadata = manifest["metadata"]
        ref = Ref(*kind, metadata.get("namespace") or "", metadata["name"])
        lane = self._lanes.get(ref)
        if lane is not None:
            lane.heard.append((what, manifest))
        else:
            self._believe(ref, what, manifest)

    def _believe(self, ref: Ref, what: What, manifest: Stored) -> None:
        told = self._told[ref[:2]]
        before = told.get(ref)
        if before is not None and before["metadata"]["uid"] == manifest["metadata"]["uid"]:
            if what is What.DELETED:
                del told[ref]
                # After a gap only the name of what is gone is told; what it was is known here.
                self._note(What.DELETED, ref, before if "spec" not in manifest else manifest)
            elif _version(manifest) > _version(before):
                told[ref] = manifest
                self._note(What.MODIFIED, ref, manifest)
        elif what is not What.DELETED:
            if before is not None:
                self._note(What.DELETED, ref, before)
            told[ref] = manifest
            self._note(What.ADDED, ref, manifest)

    def _note(self, what: What, ref: Ref, manifest: Stored) -> None:
        self._log.append(Change(what, ref, manifest))
        self._awake()

    # -- changing --------------------------------------------------------------------------------------------------------------

    def create(self, manifest: Stored) -> Stored:
        ref = ref_of(manifest)
        if self.peek(ref) is not None:
            raise Conflict(f"{ref.kind} {ref.title} exists already")
        made = merged(manifest, {"metadata": {"uid": None, "resourceVersion": None, "creationTimestamp": None}})
        path = resource_of(ref.group, ref.kind).path("v1", namespace=ref.namespace)
        unborn = merged(made, {"metadata": {"uid": "", "resourceVersion": "0", "generation": 1}})
        self._send(ref, _Write("POST", path, dict(made)), ahead=unborn)
        return unborn

    def patch(self, ref: Ref, patch: Stored, *, uid: str = "") -> Stored:
        old = self._need(ref, uid=uid)
        new = merged(old, patch)
        if new is old:
            return old
        metadata = {"uid": old["metadata"]["uid"]} if old["metadata"]["uid"] else {}
        if ref[:2] == BUDGET:
            # Evictions count on the status as well; what they wrote since must not be written over.
            metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        for sub, part in _parts(patch, old=old):
            body = merged(part, {"metadata": metadata})
            self._send(ref, _Write("PATCH", _path(ref, sub=sub), dict(body), _PATCH), ahead=new)
        return new

    def delete(self, ref: Ref, *, uid: str = "", grace_s: int | None = None) -> None:
        old = self._need(ref, uid=uid)
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if known := uid or old["metadata"]["uid"]:
            options["preconditions"] = {"uid": known}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        self._send(ref, _Write("DELETE", _path(ref), options), ahead=None)

    # -- sending ---------------------------------------------------------------------------------------------------------------

    def _send(self, ref: Ref, write: _Write, *, ahead: Stored | None) -> None:
        lane = self._lanes.get(ref)
        is_new = lane is None
        lane = self._lanes.setdefault(ref, _Lane())
        lane.writes.append(write)
        lane.ahead = ahead if ahead is not None else lane.ahead
        if is_new:
            task = asyncio.get_running_loop().create_task(self._carry_out(ref, lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Send nothing more, and wait for the answers to what was sent."""
        for lane in self._lanes.values():
            lane.writes.clear()
        await asyncio.gather(*self._tasks)

    async def _carry_out(self, ref: Ref, lane: _Lane) -> None:
        heard: list[tuple[What, Stored]] = []
        while lane.writes:
            write = lane.writes.popleft()
            try:
                answer = await self._tried(write)
                if answer is not None:
                    heard.append((What.MODIFIED, answer))
            except ApiError as error:
                tell = log.debug if error.status in _PASSED_BY else log.warning
                tell("write refused", method=write.method, path=write.path, error=str(error))
        del self._lanes[ref]
        for what, manifest in (*heard, *lane.heard):
            self._believe(ref, what, manifest)
        # Also where nothing was heard: whoever waits for this to be over looks again.
        self._awake()

    async def _tried(self, write: _Write) -> Stored | None:
        """The object as it is now; None after a deletion, of which the watch tells. Trouble that may pass is waited out."""
        for attempt in range(_TRIES):
            try:
                raw = await self._client.request(write.method, write.path, body=write.body, content_type=write.content_type)
            except ApiError as error:
                if error.status in _SETTLED or attempt == _TRIES - 1:
                    raise
                await asyncio.sleep(_FIRST_WAIT_S * 2**attempt)
            else:
                return None if write.method == "DELETE" else self._read(raw)
        raise AssertionError("the last attempt returns or raises")


def _path(ref: Ref, *, sub: str = "") -> str:
    return resource_of(ref.group, ref.kind).path("v1", namespace=ref.namespace, name=ref.name, sub=sub)


def _parts(patch: Stored, *, old: Stored) -> Iterator[tuple[str, Stored]]:
    """The status has a door of its own, and what is not status another one."""
    rest = {key: value for key, value in patch.items() if key != "status"}
    if rest:
        yield "", rest
    if "status" in patch:
        yield "status", {"status": _only_new_conditions(patch["status"], old=old.get("status") or {})}


def _only_new_conditions(status: Stored, *, old: Stored) -> Stored:
    """A condition that is as it was may have been changed by others since: it is not sent."""
    if "conditions" not in status:
        return status
    known: list[Any] = old.get("conditions") or []
    return {**status, "conditions": [entry for entry in status["conditions"] if entry not in known]}


def _version(manifest: Stored) -> int:
    return int(manifest["metadata"].get("resourceVersion") or 0)
