"""While very many writes are under way all else waits for them, but not for long: reading news, deciding anew, lines of the log."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, cast

import msgspec
import pytest
import structlog
import structlog.testing

from muster.config import default_policy
from muster.kube import live_cluster
from muster.kube.live_cluster import LiveCluster
from muster.kube.read.api_resources import resource_of
from muster.kube.read.object_references import NODE, POD
from muster.kube.watch.access import Access
from muster.kube.watch.client import Client
from muster.model.effects import Bind, Effect
from muster.model.events import Event, Upsert
from muster.model.node import Node
from muster.model.pod import Pod, PodSignature
from muster.model.resource_amounts import Resources
from muster.service import scheduling_loop
from muster.service.prometheus_metrics import Metrics
from muster.service.scheduling_loop import SchedulingLoop

SHORT_S = 0.4
LONG_S = 60.0
"""Longer than anything here takes, on any machine."""


def run_async(steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(steps(), timeout=300))


# --- News -------------------------------------------------------------------------------------------------------------------------


def watch_event(what: str, kind: str, name: str, version: int, **more: Any) -> bytes:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), **more}
    return msgspec.json.encode({"type": what, "object": {"apiVersion": "v1", "kind": kind, "metadata": metadata}})


def end_of_list(kind: str) -> bytes:
    return watch_event("BOOKMARK", kind, "", 1000, annotations={"k8s.io/initial-events-end": "true"})


class SlowServer(Client):
    """Has so many pods and a node, does not answer writes before `writes_answered` is opened, and has news when `news` is set."""

    def __init__(self, pods: int) -> None:
        super().__init__(Access("https://127.0.0.1:1"))
        named = (watch_event("ADDED", "Pod", f"p{number}", number, namespace="default") for number in range(pods))
        self._initial_events = {
            "/api/v1/pods": [*named, end_of_list("Pod")],
            "/api/v1/nodes": [watch_event("ADDED", "Node", "n", 1), end_of_list("Node")],
        }
        self.writes_answered = asyncio.Event()
        self.news = asyncio.Event()
        self.gulps: list[int] = []

    async def watch_batches(self, path: str, **_: object) -> AsyncGenerator[list[bytes], None]:
        yield self._initial_events[path]
        if path == "/api/v1/pods":
            await self.news.wait()
            yield [watch_event("MODIFIED", "Pod", "p0", 2000, namespace="default", labels={"new": "yes"})]
        await asyncio.Event().wait()

    async def request(self, *_: object, **__: object) -> bytes:
        await self.writes_answered.wait()
        return b"{}"

    def set_min_read_bytes(self, min_bytes: int) -> None:
        self.gulps.append(min_bytes)


async def wait_for_news_s(
    pods: int, *, busy_s: float, done_after_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[float, list[int]]:
    """How long the scheduler waits for news while as many pods are being bound, and by which gulps watches are read."""
    monkeypatch.setattr(live_cluster, "BUSY_BATCH_S", busy_s)
    server = SlowServer(pods)
    cluster = LiveCluster(server, may_write=lambda: True, resources=[resource_of(*kind) for kind in (POD, NODE)], batch_s=0.005)
    running = asyncio.create_task(cluster.run())
    try:
        while not cluster.synced:
            await asyncio.sleep(0.01)
        assert len(cluster.events()) == pods + 1
        cluster.execute([Bind(f"uid-p{number}", f"default/p{number}", "n", "", "") for number in range(pods)])
        assert cluster.is_busy == (pods >= 100)
        server.news.set()
        if done_after_s is not None:
            asyncio.get_running_loop().call_later(done_after_s, server.writes_answered.set)
        began = time.monotonic()
        assert await asyncio.to_thread(cluster.wait, 2 * LONG_S)
        took_s = time.monotonic() - began
        (event,) = cluster.events()
        assert isinstance(event, Upsert)
        return took_s, server.gulps
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.close()


def test_news_waits_until_very_many_writes_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps() -> None:
        took_s, gulps = await wait_for_news_s(150, busy_s=LONG_S, done_after_s=0.1, monkeypatch=monkeypatch)
        assert 0.1 <= took_s < LONG_S
        assert gulps == [2**20, 1]

    run_async(steps)


def test_news_does_not_wait_for_writes_that_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps() -> None:
        took_s, gulps = await wait_for_news_s(150, busy_s=SHORT_S, done_after_s=None, monkeypatch=monkeypatch)
        assert SHORT_S <= took_s < LONG_S
        assert gulps == [2**20, 1]

    run_async(steps)


def test_news_does_not_wait_for_a_few_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps() -> None:
        took_s, gulps = await wait_for_news_s(99, busy_s=LONG_S, done_after_s=None, monkeypatch=monkeypatch)
        assert took_s < LONG_S
        assert gulps == []

    run_async(steps)


# --- Lines of the log -------------------------------------------------------------------------------------------------------------


class BusyCluster:
    """A cluster with one pod for one node, whose writer is as busy as the test says. Only what the scheduling loop needs."""

    synced = True
    pending_writes = 1

    def __init__(self) -> None:
        self.is_busy = True
        self.scheduling_loop = 0
        self._news: list[Event] = [
            Upsert(Node("n", allocatable=Resources((("cpu", 4000), ("pods", 10))))),
            Upsert(Pod("u", "a", "p", PodSignature(request=Resources((("cpu", 1000),))))),
        ]

    def events(self) -> list[Event]:
        news, self._news = self._news, []
        return news

    def execute(self, effects: Iterable[Effect]) -> None: ...

    def wait(self, _: float) -> bool:
        self.scheduling_loop += 1
        time.sleep(0.01)
        return False

    def wake(self) -> None: ...


def event_names(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    return [line["event"] for line in lines if line["event"] in ("bind", "ready")]


@pytest.fixture
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    """The lines of the log, whatever it was made to leave out before."""
    usual = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    with structlog.testing.capture_logs() as lines:
        yield lines
    structlog.configure(**usual)


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("ending", ["done", "late", "stopped"])
def test_lines_of_the_log_wait_for_very_many_writes_and_not_for_ever(
    ending: str, log_lines: list[MutableMapping[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The memory of the tests is none of its business.
    monkeypatch.setattr(scheduling_loop, "_freeze_gc", lambda: None)
    busy_cluster, times, on_end = BusyCluster(), [1000.0], threading.Event()
    one = SchedulingLoop(
        cast(LiveCluster, busy_cluster),
        default_policy(),
        Metrics(),
        log=None,
        clock=lambda: times[-1],
        on_end=lambda _: on_end.set(),
    )
    one.start()
    wait_until(lambda: busy_cluster.scheduling_loop >= 3)
    assert event_names(log_lines) == ["ready"]
    if ending == "done":
        busy_cluster.is_busy = False
    elif ending == "late":
        times.append(1000.0 + scheduling_loop.MAX_LOG_DELAY_S)
    else:
        one.stop()
    wait_until(lambda: "bind" in event_names(log_lines))
    assert event_names(log_lines) == ["ready", "bind"]
    one.stop()
    assert on_end.wait(120)
