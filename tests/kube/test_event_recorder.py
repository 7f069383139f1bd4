"""Kubernetes events: one object for the same thing said many times, and nothing that stops anybody else."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web
from tests.kube.scripted_api_server import ScriptedServer, refuses_with, replies_with, scripted_server
from tests.kube_write.watch_updates import watch_update

from muster.kube.read.object_references import POD, pod_ref
from muster.kube.watch.client import Client
from muster.kube.write import event_recorder
from muster.kube.write.api_writer import ApiWriter
from muster.kube.write.event_recorder import EventRecorder, KubeEvent
from muster.kube.write.status_updates import StatusWrite
from muster.kube.write.write_cache import WriteCache
from muster.model.effects import Condition, Evict

POD_A = {"metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "1"}}
NEWS = KubeEvent((pod_ref("default/missing"), pod_ref("default/a")), "Scheduled", "it has a node")


def cache_of_a() -> WriteCache:
    cache = WriteCache()
    cache.apply_watch(watch_update(POD, POD_A))
    return cache


def records(bodies: list[Any]) -> Callable[[web.Request], Any]:
    async def reply(request: web.Request) -> web.StreamResponse:
        bodies.append(json.loads(await request.read()))
        return web.json_response({})

    return reply


async def requests(scripted: ScriptedServer, times: int) -> None:
    for _ in range(12_000):
        if len(scripted.requests) >= times and not scripted.replies:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"asked {len(scripted.requests)} times only")


async def nothing() -> None:
    return None


def test_the_same_event_is_written_once_and_its_count_after_a_while() -> None:
    async def steps() -> None:
        bodies: list[Any] = []
        clock = [100.0]
        async with scripted_server(records(bodies), records(bodies)) as (scripted, access):
            client = Client(access)
            api_writer = ApiWriter(client, WriteCache(), version_of=lambda _: "v1", may_write=lambda: True)
            recorder = EventRecorder(api_writer, cache_of_a(), now=lambda: clock[0], per_second=1000, update_interval_s=60)
            running = asyncio.create_task(recorder.run(until_idle=nothing))
            recorder.add([NEWS, NEWS])
            while not bodies:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            recorder.add([NEWS])
            assert len(scripted.requests) == 1
            clock[0] += 61
            recorder.add([NEWS])
            await requests(scripted, 2)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.close()
        first, then = bodies
        assert (first["involvedObject"]["name"], first["involvedObject"]["uid"], first["count"]) == ("a", "u", 2)
        assert then == {"count": 4, "lastTimestamp": "1970-01-01T00:02:41Z"}
        assert scripted.requests[1].path.endswith(first["metadata"]["name"])

    asyncio.run(asyncio.wait_for(steps(), 30))


def test_an_event_that_is_refused_is_lost_and_the_count_of_an_existing_one_goes_on() -> None:
    async def steps() -> None:
        async with scripted_server(refuses_with(403), refuses_with(409), replies_with()) as (scripted, access):
            client = Client(access)
            api_writer = ApiWriter(client, WriteCache(), version_of=lambda _: "v1", may_write=lambda: True)
            recorder = EventRecorder(api_writer, cache_of_a(), now=lambda: 1.0, per_second=1000)
            running = asyncio.create_task(recorder.run(until_idle=nothing))
            recorder.add([NEWS, NEWS._replace(reason="Other")])
            await requests(scripted, 3)
            assert [request.method for request in scripted.requests] == ["POST", "POST", "PATCH"]
            assert recorder.dropped == 1
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.close()

    asyncio.run(asyncio.wait_for(steps(), 30))


def test_a_victim_that_is_gone_by_now_still_gets_its_event() -> None:
    async def steps() -> None:
        bodies: list[Any] = []
        async with scripted_server(records(bodies)) as (_, access):
            client = Client(access)
            api_writer = ApiWriter(client, WriteCache(), version_of=lambda _: "v1", may_write=lambda: True)
            recorder = EventRecorder(api_writer, WriteCache(), now=lambda: 1.0, per_second=1000)
            running = asyncio.create_task(recorder.run(until_idle=nothing))
            # Nobody is there to speak for the gang that it left for.
            recorder.add(
                event_recorder.effect_events(Evict("v-uid", "default/v", "n", "default/v", "default/a", "capacity", "preempt"), {})
            )
            while not bodies:
                await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.close()
        (said,) = bodies
        assert (said["reason"], said["involvedObject"]["name"], said["involvedObject"]["uid"]) == ("Preempted", "v", "v-uid")

    asyncio.run(asyncio.wait_for(steps(), 30))


def test_under_pressure_events_are_dropped_and_counted() -> None:
    async def steps() -> None:
        async with scripted_server() as (_, access):
            client = Client(access)
            api_writer = ApiWriter(client, WriteCache(), version_of=lambda _: "v1", may_write=lambda: True)
            recorder = EventRecorder(api_writer, cache_of_a(), now=lambda: 1.0)
            recorder.add(NEWS._replace(message=str(i)) for i in range(event_recorder.MAX_QUEUED_EVENTS + 7))
            assert recorder.dropped == 7
            await client.close()

    asyncio.run(steps())


def test_a_refused_gang_says_so_once_and_an_eviction_on_both_sides() -> None:
    refused = Condition("gang", "default/a", ok=False, code="InsufficientCapacity", why="no capacity")
    evicted = Evict("v", "default/v", "n", "default/v", "default/a", "capacity", "preempt")
    gang_objects = event_recorder.gang_objects([refused, evicted], gang_pods=lambda slot: [pod_ref(slot), pod_ref("default/b")])
    assert gang_objects["default/a"][-1] == pod_ref("default/a")
    status_writes = [StatusWrite(pod_ref(name), refused) for name in ("default/a", "default/b")]
    assert [(one.reason, one.type) for one in event_recorder.refusal_events(status_writes, gang_objects)] == [
        ("FailedScheduling", "Warning")
    ]
    to_victim, to_winner = event_recorder.effect_events(evicted, gang_objects)
    assert (to_victim.involved, to_victim.reason) == ((pod_ref("default/v"),), "Preempted")
    assert (to_winner.involved, to_winner.reason) == (gang_objects["default/a"], "Preempting")
