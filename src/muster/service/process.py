"""The life of a scheduler process: acquire the lease, watch, schedule, drain the writes, release the lease.

All I/O runs in one event loop, cycles in one thread beside it, the lease in a thread of its own. The process persists nothing: a
fault that does not pass ends it, and the next process reads everything from the API again.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from muster import __version__
from muster.engine.hooks import Policy
from muster.kube.live_cluster import LiveCluster
from muster.kube.read import names
from muster.kube.read.saved_objects import VERSION
from muster.kube.watch.access import Access
from muster.kube.watch.client import NOT_FOUND, ApiError, Client
from muster.kube.watch.leader_election import DEFAULT_LEASE_TIMING, LeaderElector, LeaseLost, LeaseTiming
from muster.kube.watch.restored_server import until_restored
from muster.rotating_decision_log import RotatingDecisionLog
from muster.service.live_views import LiveViews
from muster.service.probe_server import ProbeServer
from muster.service.prometheus_metrics import Metrics, ServiceState
from muster.service.scheduling_loop import MonotonicClock, SchedulingLoop
from muster.service.shadow import ShadowSettings
from muster.web.api_access import LoopbackAccess, TokenAccess
from muster.web.api_server import ApiServer
from muster.web.dry_runs import DryRuns
from muster.web.http_server import serving_api

log = structlog.get_logger(__name__)

DONE, LEASE_LOST, NOT_INSTALLED, BROKEN = 0, 3, 4, 70
"""Exit codes: stopped by a signal, lease lost, definitions not installed, internal error."""
_RESTORED = -1
"""No exit code: the server's data went back to an earlier state, so everything is read anew."""

DRAIN_TIMEOUT_S: Final = 10.0
_STOP_TIMEOUT_S = 5.0
_SWITCH_INTERVAL_S = 0.001
_CERTIFICATE_INTERVAL_S = 60.0
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Settings of the process; what it decides is in the policy."""

    policy: Policy
    address: tuple[str, int] | None = ("127.0.0.1", 10259)
    lease: tuple[str, str] | None = ("kube-system", "muster")
    """Namespace and name; None: no leader election."""
    namespace: str = names.MUSTER_NAMESPACE
    """The one of Plans and Histories."""
    timing: LeaseTiming = DEFAULT_LEASE_TIMING
    decision_log: Path | None = None
    log_bytes: int = 256 * 2**20
    log_files: int = 5
    queue_metrics: bool = False
    """Metrics of queues for everybody who can connect."""
    api: ApiSettings | None = None
    """The API for other machines; on this one it is beside the probes."""
    shadow: ShadowSettings | None = None
    """Beside another scheduler: nothing is written, and no lease is held."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    address: tuple[str, int]
    certificate: Path
    key: Path


async def serve(settings: ServiceSettings, access: Access) -> int:
    """Run until a signal, and return the exit code."""
    # A cycle must not keep the event loop, which writes, from running for long.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    return await _Service(settings, access).run()


class _Service:
    def __init__(self, settings: ServiceSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._metrics = Metrics()
        self._exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._leader = self._new_leader()
        self._is_leader = False
        self._cluster: LiveCluster | None = None
        self._scheduling_loop: SchedulingLoop | None = None
        self._views = LiveViews(lambda: self._scheduling_loop)
        self._api = ApiServer(self._views, DryRuns())

    async def run(self) -> int:
        scheduler_names = self._settings.policy.settings.scheduler_names
        log.info("starting", version=__version__, server=self._access.server, scheduler_names=scheduler_names)
        state = self._service_state()
        self._metrics.collect_from(state)
        with _signals(self._loop, self._stop):
            async with self._serve_probes(state), self._serve_api():
                picturing = asyncio.create_task(self._views.keep_pictures())
                try:
                    return await self._run_elected()
                finally:
                    picturing.cancel()
                    await asyncio.gather(picturing, return_exceptions=True)
                    self._api.close()
                    log.info("ended")

    @asynccontextmanager
    async def _serve_probes(self, state: ServiceState) -> AsyncIterator[None]:
        address = self._settings.address
        if address is None:
            yield
            return
        probes = ProbeServer(
            state,
            self._metrics,
            queue_metrics=self._settings.queue_metrics,
            add_routes=lambda app: self._api.add_routes(app, LoopbackAccess()),
        )
        async with probes.served(address) as (host, port):
            log.info("serving", address=f"{host}:{port}")
            yield

    @asynccontextmanager
    async def _serve_api(self) -> AsyncIterator[None]:
        """To other machines: with TLS, and for tokens of the cluster."""
        settings = self._settings.api
        if settings is None:
            yield
            return
        client = Client(self._access)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        following = asyncio.create_task(_follow_certificate(context, settings))
        access = TokenAccess(lambda path, body: client.request("POST", path, body=body))
        try:
            async with serving_api(self._api, access, settings.address, context) as (host, port):
                log.info("serving the API", address=f"{host}:{port}")
                yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await client.close()

    # -- leading ---------------------------------------------------------------------------------------------------------------

    async def _run_elected(self) -> int:
        """Acquire the lease, schedule, and release it."""
        if self._leader is None:
            self._is_leader = True
            return await self._lead(lambda: True)
        acquiring = asyncio.ensure_future(self._leader.acquire())
        futures: set[asyncio.Future[Any]] = {acquiring, self._exit_code}
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if self._exit_code.done():
            await self._leader.release()
            with suppress(LeaseLost):
                await acquiring
            return self._exit_code.result()
        await acquiring
        self._is_leader = True
        code = await self._lead(self._leader.may_write)
        self._is_leader = False
        if code != LEASE_LOST:
            # No write is pending any more: another replica may start at once.
            await self._leader.release()
        return code

    async def _lead(self, may_write: Callable[[], bool]) -> int:
        clock = MonotonicClock()
        while (code := await self._schedule(may_write, clock)) == _RESTORED:
            pass
        return code

    async def _schedule(self, may_write: Callable[[], bool], clock: MonotonicClock) -> int:
        settings, is_shadow = self._settings, self._settings.shadow is not None
        client = Client(self._access, observe=self._metrics.observe, may_write=(lambda: False) if is_shadow else may_write)
        if not is_shadow and not await _is_installed(client):
            log.error("the definitions of Plan and History are not installed: run muster crds --install")
            await client.close()
            return NOT_INSTALLED
        cluster = LiveCluster(
            client,
            may_write=may_write,
            scheduler_names=settings.policy.settings.scheduler_names,
            now=clock,
            namespace=settings.namespace,
            read_only=is_shadow,
        )
        self._cluster = cluster
        watching = asyncio.create_task(cluster.run())
        watching.add_done_callback(self._on_watch_end)
        scheduling_loop = self._scheduling_loop = SchedulingLoop(
            cluster,
            settings.policy,
            self._metrics,
            log=self._decision_log(),
            clock=clock,
            on_end=self._on_loop_end,
            shadow=settings.shadow,
        )
        scheduling_loop.start()
        try:
            code = await self._ending(client, cluster)
            await self._shut_down(scheduling_loop, cluster, code)
            return code
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await client.close()

    async def _ending(self, client: Client, cluster: LiveCluster) -> int:
        restored = asyncio.create_task(until_restored(client, received=cluster.newest_version))
        futures: set[asyncio.Future[Any]] = {restored, self._exit_code}
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if self._exit_code.done():
            restored.cancel()
            return self._exit_code.result()
        log.warning("the API server was restored: everything is read anew", why=restored.result())
        return _RESTORED

    async def _shut_down(self, scheduling_loop: SchedulingLoop, cluster: LiveCluster, code: int) -> None:
        """Stop the cycles; then drain the pending writes, if we may still write and they are about the present objects."""
        scheduling_loop.stop()
        if code not in (DONE, _RESTORED):
            return
        await asyncio.to_thread(scheduling_loop.join, _STOP_TIMEOUT_S)
        if code == DONE and not await cluster.drain(timeout_s=DRAIN_TIMEOUT_S):
            log.warning("pending writes not drained in time; the next scheduler decides again", writes=cluster.pending_writes)

    def _decision_log(self) -> RotatingDecisionLog | None:
        settings = self._settings
        if settings.decision_log is None:
            return None
        return RotatingDecisionLog(settings.decision_log, max_bytes=settings.log_bytes, files=settings.log_files)

    # -- ending ----------------------------------------------------------------------------------------------------------------

    def _new_leader(self) -> LeaderElector | None:
        lease = self._settings.lease
        if lease is None:
            return None
        namespace, name = lease
        return LeaderElector(
            self._access, namespace=namespace, name=name, timing=self._settings.timing, on_lost=self._on_lease_lost
        )

    def _on_lease_lost(self, why: str) -> None:
        """In the thread of the lease."""
        self._loop.call_soon_threadsafe(self._end, LEASE_LOST, f"lease lost: {why}")

    def _stop(self, name: str) -> None:
        self._end(DONE, f"received {name}")

    def _on_loop_end(self, error: BaseException | None) -> None:
        """In the scheduler's thread."""
        if error is not None:
            log.error("a cycle failed", exc_info=error)
            self._loop.call_soon_threadsafe(self._end, BROKEN, f"a cycle failed: {type(error).__name__}: {error}")

    def _on_watch_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("watching failed", exc_info=error)
            self._end(BROKEN, f"watching failed: {type(error).__name__}: {error}")

    def _end(self, code: int, why: str) -> None:
        if not self._exit_code.done():
            log.info("stopping", why=why, code=code)
            self._exit_code.set_result(code)

    # -- for probes and metrics ------------------------------------------------------------------------------------------------

    def _service_state(self) -> ServiceState:
        return ServiceState(
            is_leader=lambda: self._is_leader,
            is_synced=lambda: self._scheduling_loop is not None and self._scheduling_loop.is_ready,
            loop_age_s=lambda: 0.0 if self._scheduling_loop is None else self._scheduling_loop.age_s(),
            pending_writes=lambda: 0 if self._cluster is None else self._cluster.pending_writes,
            backlog=lambda: 0 if self._cluster is None else self._cluster.backlog,
            objects_ignored=lambda: 0 if self._cluster is None else len(self._cluster.rejected),
            events_dropped=lambda: 0 if self._cluster is None else self._cluster.events_dropped,
            health=lambda: {} if self._cluster is None else self._cluster.health(),
        )


@contextmanager
def _signals(loop: asyncio.AbstractEventLoop, stop: Callable[[str], None]) -> Iterator[None]:
    """The first signal stops the process in order; a second one has the system's default effect."""

    def on_signal(number: signal.Signals) -> None:
        remove_handlers()
        stop(number.name)

    def remove_handlers() -> None:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        remove_handlers()


async def _follow_certificate(context: ssl.SSLContext, settings: ApiSettings) -> None:
    """Files that are renewed count for new connections."""
    seen = None
    while True:
        with suppress(OSError):
            if (now := (settings.certificate.stat().st_mtime_ns, settings.key.stat().st_mtime_ns)) != seen:
                context.load_cert_chain(settings.certificate, settings.key)
                seen = now
        await asyncio.sleep(_CERTIFICATE_INTERVAL_S)


async def _is_installed(client: Client) -> bool:
    """Does the cluster serve Plans and Histories? Without them nothing that is reserved would survive a restart."""
    try:
        await client.request("GET", f"/apis/{names.MUSTER_GROUP}/{VERSION}")
    except ApiError as error:
        # Whatever else is wrong, the watches say so.
        return error.status != NOT_FOUND
    return True
