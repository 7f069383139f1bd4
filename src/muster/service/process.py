"""A scheduler of a real cluster as a process: from the first word with the API server to the last write.

All that talks lives in one event loop; cycles run in one thread beside it; the lease has a thread of its own. The process keeps
nothing: whatever goes wrong for good ends it, and the next one reads everything from the API again.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from muster import __version__
from muster.adapters.kube.access import Access
from muster.adapters.kube.client import Client
from muster.adapters.kube.leader import USUAL, Leader, Lost, Times
from muster.adapters.kube.live import LiveCluster
from muster.adapters.rolling import RollingLog
from muster.engine.hooks import Policy
from muster.service.turns import Clock, Turns
from muster.serving.metrics import Metrics, State
from muster.serving.pages import Pages

log = structlog.get_logger(__name__)

DONE, LEASE_LOST, BROKEN = 0, 3, 70
"""How a process ends: it was asked to, another leads now, or something is wrong with Muster."""

DRAIN_S: Final = 10.0
_STOP_S = 5.0
_SWITCH_S = 0.001
_ASKS_TO_STOP = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a service runs; what it decides is in its policy."""

    policy: Policy
    address: tuple[str, int] | None = ("127.0.0.1", 10259)
    lease: tuple[str, str] | None = ("kube-system", "muster")
    """Namespace and name; None: no other scheduler runs."""
    times: Times = USUAL
    decision_log: Path | None = None
    log_bytes: int = 256 * 2**20
    log_files: int = 5
    qps: float | None = None


async def serve(settings: Settings, access: Access) -> int:
    """Run until told to stop, and say how it ended."""
    # A cycle must not keep the loop that writes from its next turn for long.
    sys.setswitchinterval(_SWITCH_S)
    return await _Service(settings, access).run()


class _Service:
    def __init__(self, settings: Settings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._metrics = Metrics()
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._leader = self._candidate()
        self._leads = False
        self._cluster: LiveCluster | None = None
        self._turns: Turns | None = None

    async def run(self) -> int:
        log.info(
            "starting", version=__version__, server=self._access.server, schedules=self._settings.policy.settings.scheduler_names
        )
        state = self._state()
        self._metrics.follow(state)
        with _signals(self._loop, self._stop):
            async with self._pages(state):
                try:
                    return await self._campaign()
                finally:
                    log.info("ended")

    @asynccontextmanager
    async def _pages(self, state: State) -> AsyncIterator[None]:
        address = self._settings.address
        if address is None:
            yield
            return
        async with Pages(state, self._metrics).served(address) as (host, port):
            log.info("serving", address=f"{host}:{port}")
            yield

    # -- one life --------------------------------------------------------------------------------------------------------------

    async def _campaign(self) -> int:
        """Wait for the lease, schedule, and give it back."""
        if self._leader is None:
            self._leads = True
            return await self._lead(lambda: True)
        acquiring = asyncio.ensure_future(self._leader.acquire())
        futures: set[asyncio.Future[Any]] = {acquiring, self._ended}
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if self._ended.done():
            await self._leader.release()
            with suppress(Lost):
                await acquiring
            return self._ended.result()
        await acquiring
        self._leads = True
        code = await self._lead(self._leader.may_write)
        self._leads = False
        if code != LEASE_LOST:
            # Nothing is under way any more: another may begin at once.
            await self._leader.release()
        return code

    async def _lead(self, may_write: Callable[[], bool]) -> int:
        settings = self._settings
        client = Client(self._access, qps=settings.qps, observe=self._metrics.observe, may_write=may_write)
        clock = Clock()
        cluster = LiveCluster(client, may_write=may_write, scheduler_names=settings.policy.settings.scheduler_names, now=clock)
        self._cluster = cluster
        watching = asyncio.create_task(cluster.run())
        watching.add_done_callback(self._watching_ended)
        turns = self._turns = Turns(
            cluster, settings.policy, self._metrics, log=self._decision_log(), clock=clock, ended=self._turns_ended
        )
        turns.start()
        try:
            code = await self._ended
            await self._wind_up(turns, cluster, code)
            return code
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await client.close()

    async def _wind_up(self, turns: Turns, cluster: LiveCluster, code: int) -> None:
        """No more cycles; then what was begun is ended, if we still may write."""
        turns.stop()
        if code != DONE:
            return
        await asyncio.to_thread(turns.join, _STOP_S)
        if not await cluster.drain(timeout_s=DRAIN_S):
            log.warning("not all writes were done in time; the next scheduler sees to them", writes=cluster.pending_writes)

    def _decision_log(self) -> RollingLog | None:
        settings = self._settings
        if settings.decision_log is None:
            return None
        return RollingLog(settings.decision_log, most_bytes=settings.log_bytes, files=settings.log_files)

    # -- how it ends -----------------------------------------------------------------------------------------------------------

    def _candidate(self) -> Leader | None:
        lease = self._settings.lease
        if lease is None:
            return None
        namespace, name = lease
        return Leader(self._access, namespace=namespace, name=name, times=self._settings.times, on_lost=self._lost)

    def _lost(self, why: str) -> None:
        """In the thread of the lease."""
        self._loop.call_soon_threadsafe(self._end, LEASE_LOST, f"the lease is lost: {why}")

    def _stop(self, name: str) -> None:
        self._end(DONE, f"asked to stop by {name}")

    def _turns_ended(self, error: BaseException | None) -> None:
        """In the scheduler's thread."""
        if error is not None:
            log.error("a cycle failed", exc_info=error)
            self._loop.call_soon_threadsafe(self._end, BROKEN, f"a cycle failed: {type(error).__name__}: {error}")

    def _watching_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("watching failed", exc_info=error)
            self._end(BROKEN, f"watching failed: {type(error).__name__}: {error}")

    def _end(self, code: int, why: str) -> None:
        if not self._ended.done():
            log.info("stopping", why=why, code=code)
            self._ended.set_result(code)

    # -- what others may ask ---------------------------------------------------------------------------------------------------

    def _state(self) -> State:
        return State(
            is_leader=lambda: self._leads,
            is_synced=lambda: self._turns is not None and self._turns.is_ready,
            turn_age_s=lambda: 0.0 if self._turns is None else self._turns.age_s(),
            pending_writes=lambda: 0 if self._cluster is None else self._cluster.pending_writes,
            inbox=lambda: 0 if self._cluster is None else self._cluster.backlog,
            ignored=lambda: 0 if self._cluster is None else len(self._cluster.rejected),
            events_dropped=lambda: 0 if self._cluster is None else self._cluster.events_dropped,
            health=lambda: {} if self._cluster is None else self._cluster.health(),
        )


@contextmanager
def _signals(loop: asyncio.AbstractEventLoop, stop: Callable[[str], None]) -> Iterator[None]:
    """The first signal asks for an orderly end; the second is the system's own business."""

    def heard(number: signal.Signals) -> None:
        forget()
        stop(number.name)

    def forget() -> None:
        for number in _ASKS_TO_STOP:
            loop.remove_signal_handler(number)

    for number in _ASKS_TO_STOP:
        loop.add_signal_handler(number, heard, number)
    try:
        yield
    finally:
        forget()
