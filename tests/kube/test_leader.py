"""The Lease: one writes, the other waits; and whoever lost it knows before the other begins."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from tests.kube.stage import staged

from muster.adapters.kube.access import Access, read_access
from muster.adapters.kube.client import Client
from muster.adapters.kube.leader import Leader, Lost, Times
from muster.adapters.kube.resources import LEASE
from muster.lab.servers import Servers

QUICK = Times(duration_s=2.0, deadline_s=1.0, retry_s=0.1)
PATH = LEASE.path("v1", namespace="kube-system", name="muster")
MERGE = "application/merge-patch+json"


def play(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), timeout=60))


class Candidate:
    """A leader, and what it was told when it lost."""

    def __init__(self, access: Access, name: str, *, times: Times = QUICK) -> None:
        self.lost: list[str] = []
        self.leader = Leader(access, namespace="kube-system", identity=name, times=times, on_lost=self.lost.append)

    async def has_lost(self) -> str:
        while not self.lost:
            await asyncio.sleep(0.01)
        return self.lost[0]


@asynccontextmanager
async def candidates(access: Access, *names: str, times: Times = QUICK) -> AsyncIterator[list[Candidate]]:
    made = [Candidate(access, name, times=times) for name in names]
    try:
        yield made
    finally:
        await asyncio.gather(*(candidate.leader.release() for candidate in made))


async def lease_of(client: Client) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(await client.request("GET", PATH))["spec"]
    return spec


# --- A real server ------------------------------------------------------------------------------------------------------------


def test_one_leads_and_renews_while_another_waits_until_it_is_released(servers: Servers) -> None:
    async def story() -> None:
        access = await read_access(servers.kubeconfig())
        client = Client(access)
        async with candidates(access, "one", "two") as (one, two):
            assert not one.leader.may_write()
            await one.leader.acquire()
            waiting = asyncio.create_task(two.leader.acquire())
            first = await lease_of(client)
            assert (first["holderIdentity"], first["leaseDurationSeconds"], first["leaseTransitions"]) == ("one", 2, 0)
            # Longer than the lease lasts: it leads on because it renews.
            until = time.monotonic() + 2 * QUICK.duration_s
            while time.monotonic() < until:
                assert one.leader.may_write()
                assert not two.leader.may_write()
                assert not waiting.done()
                await asyncio.sleep(0.02)
            assert (await lease_of(client))["renewTime"] > first["renewTime"]
            released_at = time.monotonic()
            await one.leader.release()
            assert not one.leader.may_write()
            await waiting
            assert time.monotonic() - released_at < QUICK.deadline_s
            assert two.leader.may_write()
            assert (await lease_of(client))["leaseTransitions"] == 1
            assert (one.lost, two.lost) == ([], [])
        await client.close()

    play(story)


def test_a_lease_that_nobody_renews_is_taken_when_it_has_stood_still_for_its_duration(servers: Servers) -> None:
    async def story() -> None:
        access = await read_access(servers.kubeconfig())
        client = Client(access)
        # Its clock is wrong by years in either direction, and nobody minds.
        for year in ("2001", "2093"):
            stamp = f"{year}-01-01T00:00:00.000000Z"
            spec = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "renewTime": stamp, "acquireTime": stamp}
            await client.request("POST", PATH.rpartition("/")[0], body={"metadata": {"name": "muster"}, "spec": spec})
            async with candidates(access, "heir") as (heir,):
                began = time.monotonic()
                await heir.leader.acquire()
                assert QUICK.duration_s <= time.monotonic() - began < QUICK.duration_s + 5.0
                assert (await lease_of(client))["holderIdentity"] == "heir"
            await client.request("DELETE", PATH)
        await client.close()

    play(story)


def test_of_many_candidates_one_wins(servers: Servers) -> None:
    async def story() -> None:
        access = await read_access(servers.kubeconfig())
        async with candidates(access, *(f"c{number}" for number in range(5))) as many:
            waits = [asyncio.create_task(candidate.leader.acquire()) for candidate in many]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for _ in range(30):
                assert sum(candidate.leader.may_write() for candidate in many) == 1
                await asyncio.sleep(0.02)
            for candidate in many:
                await candidate.leader.release()
            results = await asyncio.gather(*waits, return_exceptions=True)
        assert sum(result is None for result in results) >= 1
        assert all(result is None or isinstance(result, Lost) for result in results)

    play(story)


@pytest.mark.parametrize(
    ("how", "why"),
    [("taken", "held by another"), ("emptied", "held by nobody"), ("deleted", "deleted")],
    ids=["taken", "emptied", "deleted"],
)
def test_a_lease_that_was_taken_away_is_lost(servers: Servers, how: str, why: str) -> None:
    async def story() -> None:
        access = await read_access(servers.kubeconfig())
        client = Client(access)
        async with candidates(access, "one") as (one,):
            await one.leader.acquire()
            if how == "deleted":
                await client.request("DELETE", PATH)
            else:
                holder = "another" if how == "taken" else None
                await client.request("PATCH", PATH, body={"spec": {"holderIdentity": holder}}, content_type=MERGE)
            assert why in await one.has_lost()
            assert not one.leader.may_write()
        if how == "taken":
            # Whoever lost it does not give back what is another's.
            assert (await lease_of(client))["holderIdentity"] == "another"
        assert len(one.lost) == 1
        await client.close()

    play(story)


def test_somebody_who_labels_the_lease_takes_nothing_away(servers: Servers) -> None:
    async def story() -> None:
        access = await read_access(servers.kubeconfig())
        client = Client(access)
        async with candidates(access, "one") as (one,):
            await one.leader.acquire()
            for number in range(10):
                await client.request("PATCH", PATH, body={"metadata": {"labels": {"n": str(number)}}}, content_type=MERGE)
                await asyncio.sleep(QUICK.retry_s)
            await asyncio.sleep(QUICK.deadline_s)
            assert one.leader.may_write()
            assert not one.lost
        await client.close()

    play(story)


def test_a_candidate_without_rights_never_leads_and_can_be_stopped(servers: Servers) -> None:
    async def story() -> None:
        access = await read_access(servers.kubeconfig("stranger"))
        async with candidates(access, "one") as (one,):
            waiting = asyncio.create_task(one.leader.acquire())
            await asyncio.sleep(3 * QUICK.retry_s)
            assert not waiting.done()
            await one.leader.release()
            with pytest.raises(Lost, match="released before"):
                await waiting
            assert not one.lost

    play(story)


# --- A server that fails ------------------------------------------------------------------------------------------------------


class Desk:
    """A server that keeps one lease, and can be told to misbehave: `mood` is fine, deaf, cuts or mute.

    Deaf: no answer and nothing done. Mute: done, but the answer never comes. Cuts: done, and the connection is closed.
    """

    def __init__(self) -> None:
        self.mood = "fine"
        self.version = 0
        self.spec: dict[str, Any] | None = None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if self.mood == "deaf":
            await asyncio.Event().wait()
        answer = await self._done(request)
        if request.method != "GET" and self.mood == "mute":
            await asyncio.Event().wait()
        if request.method != "GET" and self.mood == "cuts":
            assert request.transport is not None
            request.transport.abort()
        return answer

    async def _done(self, request: web.Request) -> web.Response:
        if request.method != "GET":
            body = await request.json()
            if request.method == "PATCH" and body["metadata"]["resourceVersion"] != str(self.version):
                return web.json_response({"reason": "Conflict"}, status=409)
            self.spec = {**(self.spec or {}), **body["spec"]}
            self.version += 1
        if self.spec is None:
            return web.json_response({"reason": "NotFound"}, status=404)
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "spec": self.spec})


@asynccontextmanager
async def desk() -> AsyncIterator[tuple[Desk, Access]]:
    made = Desk()
    async with staged(*[made.serve] * 10_000) as (_, access):
        yield made, access


def test_whoever_cannot_renew_stops_to_write_before_another_may_begin() -> None:
    async def story() -> None:
        async with desk() as (server, access), candidates(access, "one") as (one,):
            await one.leader.acquire()
            server.mood = "deaf"
            deaf_at = time.monotonic()
            assert "could not be renewed for 1 s" in await one.has_lost()
            assert not one.leader.may_write()
            assert time.monotonic() - deaf_at < QUICK.duration_s

    play(story)


def test_the_right_to_write_ends_by_the_clock_alone() -> None:
    """Even if the thread that renews it is stuck: the clock stands far ahead the moment after."""

    async def story() -> None:
        ahead_s = 0.0
        async with desk() as (_, access):
            lost: list[str] = []
            leader = Leader(
                access,
                namespace="kube-system",
                identity="one",
                times=Times(),
                on_lost=lost.append,
                clock=lambda: time.monotonic() + ahead_s,
            )
            await leader.acquire()
            assert 9.0 < leader.writes_left_s() <= 10.0
            before = leader.may_write()
            ahead_s = 10.0
            assert (before, leader.may_write()) == (True, False)
            await leader.release()

    play(story)


def test_a_short_deafness_is_survived() -> None:
    async def story() -> None:
        async with desk() as (server, access), candidates(access, "one") as (one,):
            await one.leader.acquire()
            for _ in range(3):
                server.mood = "deaf"
                await asyncio.sleep(0.3)
                server.mood = "fine"
                await asyncio.sleep(0.4)
                assert one.leader.may_write()
            assert not one.lost

    play(story)


@pytest.mark.parametrize("mood", ["mute", "cuts"])
def test_a_renewal_that_was_done_without_an_answer_does_not_cost_the_lease(mood: str) -> None:
    async def story() -> None:
        async with desk() as (server, access), candidates(access, "one") as (one,):
            await one.leader.acquire()
            server.mood, version = mood, server.version
            while server.version == version:
                await asyncio.sleep(0.01)
            server.mood = "fine"
            await asyncio.sleep(QUICK.deadline_s)
            assert one.leader.may_write()
            assert not one.lost

    play(story)


def test_a_lease_that_was_won_without_an_answer_is_found_to_be_ours() -> None:
    async def story() -> None:
        async with desk() as (server, access), candidates(access, "one") as (one,):
            server.mood = "cuts"
            winning = asyncio.create_task(one.leader.acquire())
            while server.version == 0:
                await asyncio.sleep(0.01)
            server.mood = "fine"
            await winning
            assert one.leader.may_write()

    play(story)


@pytest.mark.parametrize("times", [(10.0, 10.0, 2.0), (15.0, 2.0, 2.0), (15.0, 10.0, 0.0)])
def test_times_that_would_let_two_write_are_refused(times: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="lease times: duration"):
        Times(*times)
