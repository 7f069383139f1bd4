"""The Lease: one writes, the other waits; and whoever lost it knows before the other begins."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from tests.kube.scripted_api_server import scripted_server

from muster.kube.read.api_resources import LEASE
from muster.kube.watch.access import Access, read_access
from muster.kube.watch.client import Client
from muster.kube.watch.leader_election import LeaderElector, LeaseLost, LeaseTiming
from muster.lab.servers import Servers

QUICK = LeaseTiming(lease_duration_s=5.0, renew_deadline_s=3.0, retry_period_s=0.1)
PATH = LEASE.path("v1", namespace="kube-system", name="muster")
MERGE = "application/merge-patch+json"


def run_async(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), timeout=300))


class Candidate:
    """A leader, and what it was told when it lost."""

    def __init__(self, access: Access, name: str, *, timing: LeaseTiming = QUICK) -> None:
        self.lost: list[str] = []
        self.leader = LeaderElector(access, namespace="kube-system", identity=name, timing=timing, on_lost=self.lost.append)

    async def has_lost(self) -> str:
        while not self.lost:
            await asyncio.sleep(0.01)
        return self.lost[0]


@asynccontextmanager
async def candidates(access: Access, *names: str, timing: LeaseTiming = QUICK) -> AsyncIterator[list[Candidate]]:
    made = [Candidate(access, name, timing=timing) for name in names]
    try:
        yield made
    finally:
        await asyncio.gather(*(candidate.leader.release() for candidate in made))


async def lease_of(client: Client) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(await client.request("GET", PATH))["spec"]
    return spec


# --- A real server ----------------------------------------------------------------------------------------------------------------


def test_one_leads_and_renews_while_another_waits_until_it_is_released(servers: Servers) -> None:
    async def steps() -> None:
        access = await read_access(servers.kubeconfig())
        client = Client(access)
        async with candidates(access, "one", "two") as (one, two):
            assert not one.leader.may_write()
            await one.leader.acquire()
            waiting = asyncio.create_task(two.leader.acquire())
            first = await lease_of(client)
            assert (first["holderIdentity"], first["leaseDurationSeconds"], first["leaseTransitions"]) == ("one", 5, 0)
            # Longer than the lease lasts: it leads on because it renews.
            until = time.monotonic() + 1.5 * QUICK.lease_duration_s
            while time.monotonic() < until:
                assert one.leader.may_write()
                assert not two.leader.may_write()
                assert not waiting.done()
                await asyncio.sleep(0.02)
            assert (await lease_of(client))["renewTime"] > first["renewTime"]
            await one.leader.release()
            assert not one.leader.may_write()
            # Nobody waits until it has expired.
            assert (await lease_of(client)).get("holderIdentity") in (None, "two")
            await waiting
            assert two.leader.may_write()
            assert (await lease_of(client))["leaseTransitions"] == 1
            assert (one.lost, two.lost) == ([], [])
        await client.close()

    run_async(steps)


def test_a_lease_that_nobody_renews_is_taken_when_its_duration_is_over(servers: Servers) -> None:
    async def steps() -> None:
        access = await read_access(servers.kubeconfig())
        client = Client(access)
        # Its clock is wrong by years in either direction, and it makes no difference.
        for year in ("2001", "2093"):
            stamp = f"{year}-01-01T00:00:00.000000Z"
            spec = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "renewTime": stamp, "acquireTime": stamp}
            await client.request("POST", PATH.rpartition("/")[0], body={"metadata": {"name": "muster"}, "spec": spec})
            async with candidates(access, "heir") as (heir,):
                began = time.monotonic()
                await heir.leader.acquire()
                assert QUICK.lease_duration_s <= time.monotonic() - began < QUICK.lease_duration_s + 60.0
                assert (await lease_of(client))["holderIdentity"] == "heir"
            await client.request("DELETE", PATH)
        await client.close()

    run_async(steps)


def test_of_many_candidates_one_wins(servers: Servers) -> None:
    async def steps() -> None:
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
        assert all(result is None or isinstance(result, LeaseLost) for result in results)

    run_async(steps)


@pytest.mark.parametrize(
    ("how", "why"),
    [("taken", "held by another"), ("emptied", "held by no process"), ("deleted", "deleted")],
    ids=["taken", "emptied", "deleted"],
)
def test_a_lease_that_was_taken_away_is_lost(servers: Servers, how: str, why: str) -> None:
    async def steps() -> None:
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

    run_async(steps)


def test_somebody_who_labels_the_lease_takes_nothing_away(servers: Servers) -> None:
    async def steps() -> None:
        access = await read_access(servers.kubeconfig())
        client = Client(access)
        async with candidates(access, "one") as (one,):
            await one.leader.acquire()
            for number in range(10):
                await client.request("PATCH", PATH, body={"metadata": {"labels": {"n": str(number)}}}, content_type=MERGE)
                await asyncio.sleep(QUICK.retry_period_s)
            await asyncio.sleep(QUICK.renew_deadline_s)
            assert one.leader.may_write()
            assert not one.lost
        await client.close()

    run_async(steps)


def test_a_candidate_without_rights_never_leads_and_can_be_stopped(servers: Servers) -> None:
    async def steps() -> None:
        access = await read_access(servers.kubeconfig("stranger"))
        async with candidates(access, "one") as (one,):
            waiting = asyncio.create_task(one.leader.acquire())
            await asyncio.sleep(3 * QUICK.retry_period_s)
            assert not waiting.done()
            await one.leader.release()
            with pytest.raises(LeaseLost, match="released before"):
                await waiting
            assert not one.lost

    run_async(steps)


# --- A server that fails ----------------------------------------------------------------------------------------------------------


class LeaseServer:
    """A server that keeps one lease, and can be told to misbehave: `mode` is fine, deaf, cuts or mute.

    Deaf: no answer and nothing done. Mute: done, but the answer never comes. Cuts: done, and the connection is closed.
    """

    def __init__(self) -> None:
        self.mode = "fine"
        self.version = 0
        self.spec: dict[str, Any] | None = None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if self.mode == "deaf":
            await asyncio.Event().wait()
        answer = await self._done(request)
        if request.method != "GET" and self.mode == "mute":
            await asyncio.Event().wait()
        if request.method != "GET" and self.mode == "cuts":
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
async def lease_server() -> AsyncIterator[tuple[LeaseServer, Access]]:
    made = LeaseServer()
    async with scripted_server(*[made.serve] * 10_000) as (_, access):
        yield made, access


def test_whoever_cannot_renew_stops_to_write_before_another_may_begin() -> None:
    async def steps() -> None:
        async with lease_server() as (server, access), candidates(access, "one") as (one,):
            await one.leader.acquire()
            server.mode = "deaf"
            assert one.leader.write_time_left_s() <= QUICK.renew_deadline_s < QUICK.lease_duration_s
            assert "could not be renewed for 3 s" in await one.has_lost()
            assert not one.leader.may_write()

    run_async(steps)


def test_the_right_to_write_ends_by_the_clock_alone() -> None:
    """Even if the thread that renews it is stuck: the clock stands far ahead the moment after."""

    async def steps() -> None:
        ahead_s = 0.0
        async with lease_server() as (_, access):
            lost: list[str] = []
            leader = LeaderElector(
                access,
                namespace="kube-system",
                identity="one",
                timing=LeaseTiming(),
                on_lost=lost.append,
                clock=lambda: time.monotonic() + ahead_s,
            )
            began = time.monotonic()
            await leader.acquire()
            least_s = 10.0 - (time.monotonic() - began)
            assert least_s - 0.1 <= leader.write_time_left_s() <= 10.0
            before = leader.may_write()
            ahead_s = 10.0
            assert (before, leader.may_write()) == (True, False)
            await leader.release()

    run_async(steps)


def test_a_short_outage_of_the_server_is_survived() -> None:
    async def steps() -> None:
        async with lease_server() as (server, access), candidates(access, "one") as (one,):
            await one.leader.acquire()
            for _ in range(3):
                server.mode = "deaf"
                await asyncio.sleep(0.3)
                server.mode = "fine"
                await asyncio.sleep(0.4)
                assert one.leader.may_write()
            assert not one.lost

    run_async(steps)


@pytest.mark.parametrize("mode", ["mute", "cuts"])
def test_a_renewal_that_was_done_without_an_answer_does_not_cost_the_lease(mode: str) -> None:
    async def steps() -> None:
        async with lease_server() as (server, access), candidates(access, "one") as (one,):
            await one.leader.acquire()
            server.mode, version = mode, server.version
            while server.version == version:
                await asyncio.sleep(0.01)
            server.mode = "fine"
            await asyncio.sleep(QUICK.renew_deadline_s)
            assert one.leader.may_write()
            assert not one.lost

    run_async(steps)


def test_a_lease_that_was_won_without_an_answer_is_found_to_be_ours() -> None:
    async def steps() -> None:
        async with lease_server() as (server, access), candidates(access, "one") as (one,):
            server.mode = "cuts"
            winning = asyncio.create_task(one.leader.acquire())
            while server.version == 0:
                await asyncio.sleep(0.01)
            server.mode = "fine"
            await winning
            assert one.leader.may_write()

    run_async(steps)


@pytest.mark.parametrize("timing", [(10.0, 10.0, 2.0), (15.0, 2.0, 2.0), (15.0, 10.0, 0.0)])
def test_times_that_would_let_two_write_are_refused(timing: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="lease times: duration"):
        LeaseTiming(*timing)
