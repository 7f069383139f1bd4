"""Leader election with a Lease: at most one scheduler writes.

The leader renews the lease. A candidate takes it when it was not renewed for its whole duration. Each side measures with its own
monotonic clock, so no two clocks are compared: the leader counts from before it sends a renewal, candidates from after they
observed one. The leader stops writing at the renew deadline, a candidate starts at the lease duration; the time between is for the
last writes to end.

It runs in its own thread with its own connection: neither a long cycle nor a full queue of writes can delay a renewal.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from muster.kube.read.api_resources import LEASE
from muster.kube.read.wire import ObjectMeta
from muster.kube.watch.access import Access
from muster.kube.watch.client import CONFLICT, NO_RESPONSE, NOT_FOUND, ApiError, Client

log = structlog.get_logger(__name__)

_MERGE_PATCH = "application/merge-patch+json"
_NEVER = float("-inf")
_JITTER = 1.2


def boot_clock_s() -> float:
    """A clock that also counts while the machine is suspended, where the system has one: the lease expires meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """The times of leader election. The difference of the first two is for writes in flight."""

    lease_duration_s: float = 15.0
    """A candidate may take a lease that was not renewed for so long."""
    renew_deadline_s: float = 10.0
    """The leader stops when it could not renew for so long."""
    retry_period_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease_duration_s > self.renew_deadline_s > self.retry_period_s * _JITTER > 0:
            raise ValueError(
                f"lease times: duration {self.lease_duration_s:g} s > renew deadline {self.renew_deadline_s:g} s"
                f" > {_JITTER} x retry {self.retry_period_s:g} s must hold"
            )


DEFAULT_LEASE_TIMING: Final = LeaseTiming()


class LeaseLost(Exception):
    """Another process holds the lease, or it could not be renewed in time."""


class LeaderElector:
    """One candidate. `on_lost` is called once, in the thread of the lease, when leadership is lost."""

    def __init__(
        self,
        access: Access,
        *,
        namespace: str,
        name: str = "muster",
        identity: str = "",
        timing: LeaseTiming = DEFAULT_LEASE_TIMING,
        on_lost: Callable[[str], None],
        clock: Callable[[], float] = boot_clock_s,
    ) -> None:
        # An identity that is never used again: a restarted process waits like any other until its old lease has expired.
        self.identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self._access = access
        self._lease_name = (namespace, name)
        self._timing = timing
        self._on_lost = on_lost
        self._clock = clock
        self._may_write_until = _NEVER
        self._acquired: Future[None] = Future()
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run_thread, name="lease", daemon=True)
        self._lock = threading.Lock()
        self._started = False
        self._stopped = False

    def may_write(self) -> bool:
        """Whether a write may start now. Thread-safe and cheap."""
        return self.write_time_left_s() > 0

    def write_time_left_s(self) -> float:
        """For how long a write may start if the lease is not renewed."""
        return 0.0 if self._stopped else max(0.0, self._may_write_until - self._clock())

    async def acquire(self) -> None:
        """Wait until this process is the leader. From then on the lease is renewed, until it is released or lost."""
        with self._lock:
            if not self._started and not self._stopped:
                self._started = True
                self._thread.start()
        await asyncio.shield(asyncio.wrap_future(self._acquired))

    async def release(self) -> None:
        """Release the lease, if held, so that another may take it at once. The caller has ended all writes."""
        with self._lock:
            self._stopped = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._stop.set)
        if self._started:
            await asyncio.to_thread(self._thread.join)
        self._fail_waiters(LeaseLost("it was released before it was acquired"))

    def _fail_waiters(self, error: BaseException) -> None:
        """`acquire` raises this error."""
        if not self._acquired.done():
            self._acquired.set_exception(error)

    # -- in the thread -----------------------------------------------------------------------------------------------------

    def _run_thread(self) -> None:
        try:
            asyncio.run(self._run())
        except LeaseLost as lost:
            log.error("lease lost", identity=self.identity, why=str(lost))
            self._on_lost(str(lost))
        except BaseException as error:
            # A bug here must not leave a process that never learns that it lost the lease.
            is_waited_for = not self._acquired.done()
            self._fail_waiters(error)
            if not is_waited_for:
                self._on_lost(f"the thread of leader election failed: {error!r}")
            raise

    async def _run(self) -> None:
        self._attach_loop()
        client = Client(self._access)
        lease = _LeaseClient(client, identity=self.identity, lease_name=self._lease_name, timing=self._timing, clock=self._clock)
        try:
            await self._acquire_lease(lease)
            await self._keep_renewing(lease)
            await lease.release(timeout_s=self._timing.retry_period_s)
        finally:
            self._may_write_until = _NEVER
            with self._lock:
                self._loop = None
            await client.close()

    def _attach_loop(self) -> None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
            if self._stopped:
                self._stop.set()

    async def _acquire_lease(self, lease: _LeaseClient) -> None:
        while not self._stopped:
            try:
                since = await lease.take(timeout_s=self._timing.renew_deadline_s)
            except ApiError as error:
                since = _NEVER
                log.warning("lease not readable", identity=self.identity, error=str(error))
            self._may_write_until = since + self._timing.renew_deadline_s
            # A response after the deadline is too late: the next attempt finds the lease held and renews it.
            if self.may_write():
                log.info("lease acquired", identity=self.identity)
                self._acquired.set_result(None)
                return
            await self._pause(self._timing.retry_period_s * random.uniform(1.0, _JITTER))

    async def _keep_renewing(self, lease: _LeaseClient) -> None:
        """Until stopped."""
        while True:
            await self._pause(min(self._timing.retry_period_s, self.write_time_left_s()))
            if self._stopped:
                return
            left_s = self.write_time_left_s()
            if not left_s:
                raise LeaseLost(f"it could not be renewed for {self._timing.renew_deadline_s:g} s")
            try:
                async with asyncio.timeout(left_s):
                    since = await lease.renew(timeout_s=min(left_s, 2 * self._timing.retry_period_s))
            except (ApiError, TimeoutError) as error:
                log.warning(
                    "lease not renewed", identity=self.identity, left_s=round(self.write_time_left_s(), 1), error=str(error)
                )
            else:
                self._may_write_until = since + self._timing.renew_deadline_s

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return


class _LeaseClient:
    """The Lease object as one candidate observes it."""

    def __init__(
        self, client: Client, *, identity: str, lease_name: tuple[str, str], timing: LeaseTiming, clock: Callable[[], float]
    ) -> None:
        namespace, name = lease_name
        self._client = client
        self._identity = identity
        self._collection_path = LEASE.path("v1", namespace=namespace)
        self._path = LEASE.path("v1", namespace=namespace, name=name)
        self._name = name
        self._timing = timing
        self._clock = clock
        self._version = ""
        self._is_held = False
        self._record = b""
        self._unchanged_since = 0.0

    async def take(self, *, timeout_s: float) -> float:
        """Since when this process holds the lease, by its own clock; never, if another does."""
        try:
            found = await self._get(timeout_s=timeout_s)
            if found is None:
                return await self._create(timeout_s=timeout_s)
            if not self._is_free(found):
                return _NEVER
            return await self._write(self._acquisition(found.spec), version=found.metadata.resource_version, timeout_s=timeout_s)
        except ApiError as error:
            # Another candidate was faster.
            if error.status == CONFLICT:
                return _NEVER
            raise

    async def renew(self, *, timeout_s: float) -> float:
        """Since when it is renewed, counted from before the request. Raises LeaseLost if another process holds it."""
        try:
            return await self._write(self._renewal_spec(), version=self._version, timeout_s=timeout_s)
        except ApiError as error:
            if error.status not in (CONFLICT, NOT_FOUND):
                raise
        # A renewal without a response may have been carried out, or another client may have changed the object.
        found = await self._get(timeout_s=timeout_s)
        if found is None or found.spec.holder_identity != self._identity:
            self._is_held = False
            raise LeaseLost(f"it is held by {found.spec.holder_identity or 'no process'}" if found else "it was deleted")
        return await self._write(self._renewal_spec(), version=found.metadata.resource_version, timeout_s=timeout_s)

    async def release(self, *, timeout_s: float) -> None:
        if not self._is_held:
            return
        spec = {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": _now()}
        try:
            await self._write(spec, version=self._version, timeout_s=timeout_s)
        except ApiError as error:
            # Then candidates wait until it has expired.
            log.warning("lease not released", identity=self._identity, error=str(error))

    def _is_free(self, found: _LeaseObject) -> bool:
        """Without a holder, held by this process, or not renewed for the holder's duration and for that of this process."""
        record = msgspec.json.encode(found.spec)
        if record != self._record:
            self._record, self._unchanged_since = record, self._clock()
        holder = found.spec.holder_identity
        expiry_s = max(self._timing.lease_duration_s, float(found.spec.lease_duration_seconds or 0))
        return not holder or holder == self._identity or self._clock() - self._unchanged_since >= expiry_s

    async def _get(self, *, timeout_s: float) -> _LeaseObject | None:
        try:
            answer = await self._client.request("GET", self._path, timeout_s=timeout_s, retry_throttled=False)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        return _decode_lease(answer)

    async def _create(self, *, timeout_s: float) -> float:
        requested_at = self._clock()
        body = {
            "apiVersion": LEASE.api_version("v1"),
            "kind": LEASE.kind,
            "metadata": {"name": self._name},
            "spec": {**self._renewal_spec(), "acquireTime": _now(), "leaseTransitions": 0},
        }
        answer = await self._client.request("POST", self._collection_path, body=body, timeout_s=timeout_s, retry_throttled=False)
        return self._record_success(answer, requested_at=requested_at)

    async def _write(self, spec: dict[str, Any], *, version: str, timeout_s: float) -> float:
        requested_at = self._clock()
        body = {"metadata": {"resourceVersion": version}, "spec": spec}
        answer = await self._client.request(
            "PATCH", self._path, body=body, content_type=_MERGE_PATCH, timeout_s=timeout_s, retry_throttled=False
        )
        return self._record_success(answer, requested_at=requested_at)

    def _record_success(self, answer: bytes, *, requested_at: float) -> float:
        self._version = _decode_lease(answer).metadata.resource_version
        self._is_held = True
        return requested_at

    def _acquisition(self, old: _LeaseSpec) -> dict[str, Any]:
        if old.holder_identity == self._identity:
            return self._renewal_spec()
        return {**self._renewal_spec(), "acquireTime": _now(), "leaseTransitions": (old.lease_transitions or 0) + 1}

    def _renewal_spec(self) -> dict[str, Any]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": math.ceil(self._timing.lease_duration_s),
            "renewTime": _now(),
        }


class _LeaseSpec(msgspec.Struct, rename="camel", frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


class _LeaseObject(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _LeaseSpec = _LeaseSpec()


_LEASE_DECODER: Final = msgspec.json.Decoder(_LeaseObject)


def _decode_lease(answer: bytes) -> _LeaseObject:
    try:
        return _LEASE_DECODER.decode(answer)
    except msgspec.DecodeError as error:
        raise ApiError(NO_RESPONSE, "BadAnswer", f"the lease cannot be decoded: {error}") from error


def _now() -> str:
    """For people who read the Lease object; no candidate uses it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
