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

from muster.adapters.kube import live
from muster.adapters.kube.access import Access
from muster.adapters.kube.client import Client
from muster.adapters.kube.live import LiveCluster
from muster.adapters.kube.refs import NODE, POD
from muster.adapters.kube.resources import resource_of
from muster.config import default_policy
from muster.model.effects import Bind, Effect
from muster.model.events import Event, Seen
from muster.model.node import Node
from muster.model.pod import Kind, Pod
from muster.model.resources import Resources
from muster.service import turns
from muster.service.turns import Turns
from muster.serving.metrics import Metrics

BUSY_S = 0.4


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), timeout=30))


# --- News ---------------------------------------------------------------------------------------------------------------------


def told(what: str, kind: str, name: str, version: int, **more: Any) -> bytes:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), **more}
    return msgspec.json.encode({"type": what, "object": {"apiVersion": "v1", "kind": kind, "metadata": metadata}})


def all_told(kind: str) -> bytes:
    return told("BOOKMARK", kind, "", 1000, annotations={"k8s.io/initial-events-end": "true"})


class SlowServer(Client):
    """Has so many pods and a node, does not answer writes before `gate` is opened, and has news when `news` is set."""

    def __init__(self, pods: int) -> None:
        super().__init__(Access("https://127.0.0.1:1"))
        named = (told("ADDED", "Pod", f"p{number}", number, namespace="default") for number in range(pods))
        self._said = {"/api/v1/pods": [*named, all_told("Pod")], "/api/v1/nodes": [told("ADDED", "Node", "n", 1), all_told("Node")]}
        self.gate = asyncio.Event()
        self.news = asyncio.Event()
        self.gulps: list[int] = []

    async def batches(self, path: str, **_: object) -> AsyncGenerator[list[bytes], None]:
        yield self._said[path]
        if path == "/api/v1/pods":
            await self.news.wait()
            yield [told("MODIFIED", "Pod", "p0", 2000, namespace="default", labels={"new": "yes"})]
        await asyncio.Event().wait()

    async def request(self, *_: object, **__: object) -> bytes:
        await self.gate.wait()
        return b"{}"

    def listen(self, gulp: int) -> None:
        self.gulps.append(gulp)


async def gathered_s(pods: int, *, done_after_s: float | None, monkeypatch: pytest.MonkeyPatch) -> tuple[float, list[int]]:
    """How long the scheduler waits for news while as many pods are being bound, and by which gulps watches are read."""
    monkeypatch.setattr(live, "BUSY_BATCH_S", BUSY_S)
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
            asyncio.get_running_loop().call_later(done_after_s, server.gate.set)
        began = time.monotonic()
        assert await asyncio.to_thread(cluster.wait, 5.0)
        took_s = time.monotonic() - began
        (event,) = cluster.events()
        assert isinstance(event, Seen)
        return took_s, server.gulps
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.close()


def test_news_waits_until_very_many_writes_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        took_s, gulps = await gathered_s(150, done_after_s=0.1, monkeypatch=monkeypatch)
        assert 0.1 <= took_s < BUSY_S
        assert gulps == [2**20, 1]

    play(story)


def test_news_does_not_wait_for_writes_that_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        took_s, gulps = await gathered_s(150, done_after_s=None, monkeypatch=monkeypatch)
        assert BUSY_S <= took_s < 3 * BUSY_S
        assert gulps == [2**20, 1]

    play(story)


def test_news_does_not_wait_for_a_few_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        took_s, gulps = await gathered_s(99, done_after_s=None, monkeypatch=monkeypatch)
        assert took_s < BUSY_S
        assert gulps == []

    play(story)


# --- Lines of the log ---------------------------------------------------------------------------------------------------------


class Crowd:
    """A cluster with one pod for one node, whose writer is as busy as the test says. Only what turns need."""

    synced = True
    pending_writes = 1

    def __init__(self) -> None:
        self.is_busy = True
        self.turns = 0
        self._news: list[Event] = [
            Seen(Node("n", allocatable=Resources((("cpu", 4000), ("pods", 10))))),
            Seen(Pod("u", "a", "p", Kind(request=Resources((("cpu", 1000),))))),
        ]

    def events(self) -> list[Event]:
        news, self._news = self._news, []
        return news

    def execute(self, effects: Iterable[Effect]) -> None: ...

    def wait(self, _: float) -> bool:
        self.turns += 1
        time.sleep(0.01)
        return False

    def wake(self) -> None: ...


def said(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    return [line["event"] for line in lines if line["event"] in ("bind", "ready")]


@pytest.fixture
def heard() -> Iterator[list[MutableMapping[str, Any]]]:
    """The lines of the log, whatever it was made to leave out before."""
    usual = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    with structlog.testing.capture_logs() as lines:
        yield lines
    structlog.configure(**usual)


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("ending", ["done", "late", "stopped"])
def test_lines_of_the_log_wait_for_very_many_writes_and_not_for_ever(
    ending: str, heard: list[MutableMapping[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The memory of the tests is none of its business.
    monkeypatch.setattr(turns, "_settle_memory", lambda: None)
    crowd, times, ended = Crowd(), [1000.0], threading.Event()
    one = Turns(
        cast(LiveCluster, crowd), default_policy(), Metrics(), log=None, clock=lambda: times[-1], ended=lambda _: ended.set()
    )
    one.start()
    wait_until(lambda: crowd.turns >= 3)
    assert said(heard) == ["ready"]
    if ending == "done":
        crowd.is_busy = False
    elif ending == "late":
        times.append(1000.0 + turns.SILENCE_S)
    else:
        one.stop()
    wait_until(lambda: "bind" in said(heard))
    assert said(heard) == ["ready", "bind"]
    one.stop()
    assert ended.wait(10)
