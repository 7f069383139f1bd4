"""The page of a running scheduler can be dragged back: pictures of the last hours, bounded, and the newest view beside them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from tests.web.served import scenario

from muster.cli.view import read_views
from muster.service.live_views import LiveViews
from muster.service.past_views import PastViews
from muster.service.scheduling_loop import SchedulingLoop
from muster.web.cluster_view import ClusterCopy, ClusterView
from muster.web.recorded_views import RecordedViews


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedViews:
    return read_views(scenario(tmp_path_factory.mktemp("past")))


def views(recorded: RecordedViews) -> list[ClusterView]:
    """One for each time: two cycles may have the same."""
    found = {recorded.times[at]: recorded.frame(at) for at in reversed(range(len(recorded.times)))}
    return sorted(found.values(), key=lambda view: view.time)


def test_a_moment_of_the_past_is_shown_as_it_was(recorded: RecordedViews) -> None:
    past, seen = PastViews(), views(recorded)
    for view in seen[:-1]:
        past.keep(view)
    newest = seen[-1]
    for view in seen[:-1]:
        found = past.view(view.time + 0.5, newest)
        assert (found.time, found.cycle, found.summary) == (view.time, view.cycle, view.summary)
        assert (found.gangs, found.nodes, found.queues, found.domains) == (view.gangs, view.nodes, view.queues, view.domains)
        assert found.evictions == [row for row in newest.evictions if row["time"] <= view.time]
    assert past.view(newest.time + 1, newest) is newest
    assert past.view(0.0, newest).time == seen[0].time


def test_pictures_are_bounded_in_number_and_in_size(recorded: RecordedViews) -> None:
    seen = views(recorded)
    few, small = PastViews(most=2), PastViews(max_bytes=1)
    for view in seen:
        for past in (few, small):
            past.keep(view)
            past.keep(view)
    assert few.times() == [seen[-2].time, seen[-1].time]
    assert small.times() == []
    assert small.view(0.0, seen[-1]) is seen[-1]


@dataclass
class Copied:
    """A scheduling loop, as far as views need one."""

    copies: list[ClusterCopy]
    cycles: int = 0
    is_ready: bool = True

    def copy(self) -> ClusterCopy:
        return self.copies[min(self.cycles, len(self.copies) - 1)]


def test_a_running_scheduler_keeps_pictures_and_names_their_times(recorded: RecordedViews, monkeypatch: Any) -> None:
    monkeypatch.setattr("muster.service.live_views.MIN_INTERVAL_S", 0.0)
    monkeypatch.setattr("muster.service.live_views.IDLE_RATIO", 0)
    loop = Copied(recorded._frames)

    async def run() -> tuple[ClusterView, ClusterView]:
        live = LiveViews(lambda: cast(SchedulingLoop, loop))
        keeping = asyncio.create_task(live.keep_pictures(0.01))
        while loop.cycles < len(loop.copies) - 1:
            shown = await live.view()
            while shown.time not in live.past.times():
                await asyncio.sleep(0.01)
            loop.cycles += 1
        keeping.cancel()
        newest = await live.view()
        return newest, await live.view(newest.timeline["times"][0])

    newest, oldest = asyncio.run(run())
    assert newest.timeline["times"] == sorted(set(recorded.times))
    assert replace(newest, members=oldest.members, timeline={}) != replace(oldest, timeline={})
    assert oldest.time == recorded.times[0]
    assert oldest.gangs == recorded.frame(0).gangs


class Busy(Copied):
    """A loop that runs a cycle between any two questions, and of which a copy costs some milliseconds."""

    spent_s = 0.0

    def copy(self) -> ClusterCopy:
        began = time.thread_time()
        self.cycles += 1
        while time.thread_time() - began < 0.004:
            pass
        self.spent_s += time.thread_time() - began
        return self.copies[-1]


def test_twenty_readers_take_two_percent_of_the_time(recorded: RecordedViews, monkeypatch: Any) -> None:
    monkeypatch.setattr("muster.service.live_views.MIN_INTERVAL_S", 0.0)
    loop = Busy(recorded._frames)

    async def run() -> float:
        live = LiveViews(lambda: cast(SchedulingLoop, loop))
        began = time.monotonic()

        async def read() -> None:
            while time.monotonic() - began < 3:
                await live.view()
                await asyncio.sleep(0.001)

        await asyncio.gather(*(read() for _ in range(20)))
        return time.monotonic() - began

    took_s = asyncio.run(run())
    assert loop.cycles >= 2
    # The first view is made at once, whatever comes after it.
    assert (loop.spent_s - loop.spent_s / loop.cycles) / took_s < 0.02
