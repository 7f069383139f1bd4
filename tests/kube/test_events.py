"""Kubernetes events: one object for the same thing said many times, and nothing that stops anybody else."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web
from tests.kube.stage import Stage, refuses, says, staged

from muster.adapters.kube import events
from muster.adapters.kube.client import Client
from muster.adapters.kube.events import News, Recorder
from muster.adapters.kube.mirror import Mirror
from muster.adapters.kube.reflector import What
from muster.adapters.kube.refs import POD, pod_ref
from muster.adapters.kube.scribe import Saying
from muster.adapters.kube.sender import Sender
from muster.model.effects import Condition, Evict

POD_A = {"metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "1"}}
NEWS = News((pod_ref("default/missing"), pod_ref("default/a")), "Scheduled", "it has a node")


def mirror_of_a() -> Mirror:
    mirror = Mirror()
    mirror.take(POD, What.SEEN, json.dumps(POD_A).encode())
    return mirror


def keeps(bodies: list[Any]) -> Callable[[web.Request], Any]:
    async def act(request: web.Request) -> web.StreamResponse:
        bodies.append(json.loads(await request.read()))
        return web.json_response({})

    return act


async def asked(stage: Stage, times: int) -> None:
    for _ in range(500):
        if len(stage.asked) >= times and not stage.acts:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"asked {len(stage.asked)} times only")


async def nothing() -> None:
    return None


def test_the_same_event_is_written_once_and_its_count_after_a_while() -> None:
    async def story() -> None:
        bodies: list[Any] = []
        clock = [100.0]
        async with staged(keeps(bodies), keeps(bodies)) as (stage, access):
            client = Client(access)
            sender = Sender(client, version_of=lambda _: "v1", may_write=lambda: True)
            recorder = Recorder(sender, mirror_of_a(), now=lambda: clock[0], per_second=1000, again_s=60)
            running = asyncio.create_task(recorder.run(quiet=nothing))
            recorder.add([NEWS, NEWS])
            while not bodies:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            recorder.add([NEWS])
            assert len(stage.asked) == 1
            clock[0] += 61
            recorder.add([NEWS])
            await asked(stage, 2)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.close()
        first, then = bodies
        assert (first["involvedObject"]["name"], first["involvedObject"]["uid"], first["count"]) == ("a", "u", 2)
        assert then == {"count": 4, "lastTimestamp": "1970-01-01T00:02:41Z"}
        assert stage.asked[1].path.endswith(first["metadata"]["name"])

    asyncio.run(asyncio.wait_for(story(), 30))


def test_an_event_that_is_refused_is_lost_and_one_that_stood_there_before_is_counted_on() -> None:
    async def story() -> None:
        async with staged(refuses(403), refuses(409), says()) as (stage, access):
            client = Client(access)
            sender = Sender(client, version_of=lambda _: "v1", may_write=lambda: True)
            recorder = Recorder(sender, mirror_of_a(), now=lambda: 1.0, per_second=1000)
            running = asyncio.create_task(recorder.run(quiet=nothing))
            recorder.add([NEWS, NEWS._replace(reason="Other")])
            await asked(stage, 3)
            assert [request.method for request in stage.asked] == ["POST", "POST", "PATCH"]
            assert recorder.dropped == 1
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.close()

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_victim_that_is_gone_by_now_is_still_told_why() -> None:
    async def story() -> None:
        bodies: list[Any] = []
        async with staged(keeps(bodies)) as (_, access):
            client = Client(access)
            sender = Sender(client, version_of=lambda _: "v1", may_write=lambda: True)
            recorder = Recorder(sender, Mirror(), now=lambda: 1.0, per_second=1000)
            running = asyncio.create_task(recorder.run(quiet=nothing))
            # Nobody is there to speak for the gang that it left for.
            recorder.add(events.of_eviction(Evict("v-uid", "default/v", "n", "default/v", "default/a", "room", "preempt"), {}))
            while not bodies:
                await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.close()
        (said,) = bodies
        assert (said["reason"], said["involvedObject"]["name"], said["involvedObject"]["uid"]) == ("Preempted", "v", "v-uid")

    asyncio.run(asyncio.wait_for(story(), 30))


def test_under_pressure_events_are_dropped_and_counted() -> None:
    async def story() -> None:
        async with staged() as (_, access):
            client = Client(access)
            sender = Sender(client, version_of=lambda _: "v1", may_write=lambda: True)
            recorder = Recorder(sender, mirror_of_a(), now=lambda: 1.0)
            recorder.add(NEWS._replace(message=str(i)) for i in range(events.MOST_WAITING + 7))
            assert recorder.dropped == 7
            await client.close()

    asyncio.run(story())


def test_a_refused_gang_says_so_once_and_an_eviction_on_both_sides() -> None:
    refused = Condition("gang", "default/a", ok=False, code="NoRoom", why="no room")
    evicted = Evict("v", "default/v", "n", "default/v", "default/a", "room", "preempt")
    faces = events.faces([refused, evicted], gathered=lambda slot: [pod_ref(slot), pod_ref("default/b")])
    assert faces["default/a"][-1] == pod_ref("default/a")
    sayings = [Saying(pod_ref(name), refused) for name in ("default/a", "default/b")]
    assert [(one.reason, one.type) for one in events.of_words(sayings, faces)] == [("FailedScheduling", "Warning")]
    to_victim, to_winner = events.of_eviction(evicted, faces)
    assert (to_victim.about, to_victim.reason) == ((pod_ref("default/v"),), "Preempted")
    assert (to_winner.about, to_winner.reason) == (faces["default/a"], "Preempting")
