"""What readers of the API cost the scheduler, with 5,000 nodes and 40,000 pods: `.venv/bin/python -m tests.web.reader_load`.

Twenty follow the events and read the whole cluster at each, half of them slowly, while there are ten cycles a second. All threads
of the process share one interpreter, so cycles lose at most the processor time that the others take.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

from tests.web.answer_speed import full_cluster
from tests.web.served import scenario

from muster.cli.cluster_state import read_cluster_state
from muster.config import default_policy
from muster.forecast.dry_run import observed
from muster.model.events import ClusterObject
from muster.service.live_views import LiveViews
from muster.service.scheduling_loop import SchedulingLoop
from muster.web.api_access import LoopbackAccess
from muster.web.api_server import ApiServer
from muster.web.cluster_view import ClusterCopy, copy_cluster
from muster.web.dry_runs import DryRuns
from muster.web.http_server import serving_api
from muster.web.run_history import RunHistory

READERS, SECONDS, GOAL = 20, 60.0, 0.02
_CYCLES_A_SECOND = 10
_SLOW_BYTES, _SLOW_PAUSE_S = 4096, 0.05


class BusyLoop:
    """As much of the scheduling loop as views read: a cluster in which a cycle has just ended."""

    is_ready = True

    def __init__(self, objects: list[ClusterObject], now: float) -> None:
        self._world, self._policy, self._history = observed(default_policy(), objects, now=now), default_policy(), RunHistory()
        self._began = time.monotonic()

    @property
    def cycles(self) -> int:
        return int((time.monotonic() - self._began) * _CYCLES_A_SECOND)

    def copy(self) -> ClusterCopy:
        self._world.memory.cycle = self.cycles
        return copy_cluster(self._world, self._policy, self._history)

    def entries(self, _: str) -> list[dict[str, Any]]:
        return []


async def follow(address: tuple[str, int], *, slow: bool) -> None:
    """Until cancelled."""
    events, events_writer = await asyncio.open_connection(*address)
    events_writer.write(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    while line := await events.readline():
        if line.startswith(b"event: cycle"):
            reader, writer = await asyncio.open_connection(*address, limit=_SLOW_BYTES)
            writer.write(b"GET /api/v1/cluster HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n")
            while await reader.read(_SLOW_BYTES if slow else 2**20):
                await asyncio.sleep(_SLOW_PAUSE_S if slow else 0)
            writer.close()


async def read_for(address: tuple[str, int], seconds: float) -> None:
    tasks = [asyncio.create_task(follow(address, slow=number % 2 == 0)) for number in range(READERS)]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _read(address: tuple[str, int], seconds: float) -> None:
    asyncio.run(read_for(address, seconds))


async def cost(loop: BusyLoop, *, readers: bool) -> float:
    """Processor time of all threads, as part of the time."""
    api = ApiServer(LiveViews(lambda: cast(SchedulingLoop, loop)), DryRuns())
    async with serving_api(api, LoopbackAccess(), ("127.0.0.1", 0)) as address:

        def ask() -> None:
            if not readers:
                time.sleep(SECONDS)
                return
            process = multiprocessing.get_context("spawn").Process(target=_read, args=(address, SECONDS))
            process.start()
            process.join()

        began, cpu = time.monotonic(), time.process_time()
        await asyncio.to_thread(ask)
        return (time.process_time() - cpu) / (time.monotonic() - began)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        state = read_cluster_state(scenario(Path(folder), full_cluster()))
    loop = BusyLoop(list(state.objects), state.now)
    idle = asyncio.run(cost(loop, readers=False))
    read = asyncio.run(cost(loop, readers=True))
    print(f"{READERS} readers take {100 * (read - idle):.1f} % of a processor ({100 * GOAL:g})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
