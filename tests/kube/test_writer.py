"""What becomes of a round of writes when the server answers oddly: who is bound, who is told, and what is never done twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.kube.faulty_api_server import FaultyServer, InjectedFault, faulty_server

from muster.kube.read import names
from muster.kube.read.api_resources import resource_of
from muster.kube.read.object_references import ApiObjectRef, pod_ref
from muster.kube.watch.client import Client
from muster.kube.write.effect_writer import EffectWriter, WriteLimits
from muster.kube.write.write_cache import WriteCache
from muster.model.effects import (
    Bind,
    CancelEviction,
    Condition,
    DeletePlan,
    Effect,
    Evict,
    Nominate,
    Release,
    Reserve,
    SavePlan,
)
from muster.model.events import BindFailed, Event, EvictFailed, ReservationFailed, SaveFailed
from muster.model.pod import Phase
from muster.model.saved_state import SavedEvictions, SavedMember, SavedPlan, saved_plan_name

PACE = WriteLimits(timeout_s=0.8, events_per_s=0, stall_timeout_s=0.2, release_timeout_s=1.0)


@dataclass
class WriterFixture:
    """A writer, the server it writes to, and what it told."""

    server: FaultyServer
    cache: WriteCache
    writer: EffectWriter
    reported: list[Event] = field(default_factory=list)

    def uid(self, name: str) -> str:
        uid: str = self.server.pods[name]["metadata"]["uid"]
        return uid

    def annotations(self, name: str) -> dict[str, str]:
        annotations: dict[str, str] = self.server.pods[name]["metadata"]["annotations"]
        return annotations

    def inject(self, request: str, *faults: InjectedFault) -> None:
        self.server.faults[request] = list(faults)

    async def write(self, *effects: Effect) -> None:
        self.writer.submit(effects)
        await asyncio.sleep(0)
        assert await self.writer.drain(timeout_s=120)

    def bind(self, name: str, *, to: str = "n1") -> Bind:
        return Bind(self.uid(name), f"default/{name}", to, f"default/{name}", "it fits")

    def nominate(self, name: str, *, evicts: bool = False) -> Nominate:
        return Nominate(self.uid(name), f"default/{name}", "n1", "default/hi", "capacity", "preempt", 1.0, "p", evicts)

    def save(self, *names: str, victims: tuple[str, ...] = ()) -> SavePlan:
        members = tuple(SavedMember(self.uid(name), f"default/{name}", "n1", Phase.NOMINATED, 1.0, "p") for name in names)
        entry = SavedEvictions("p", "preempt", 1.0, tuple(self.uid(victim) for victim in victims))
        gang = "volcano:default/hi"
        return SavePlan(SavedPlan(gang, members, (entry,), name=saved_plan_name(gang)))

    def evict(self, name: str, *, manner: str = "evict") -> Evict:
        return Evict(
            self.uid(name), f"default/{name}", "n1", f"default/{name}", "default/hi", "hi needs capacity", "preempt", manner
        )


@asynccontextmanager
async def writer_fixture(
    *pods: str, may_write: Callable[[], bool] = lambda: True, limits: WriteLimits = PACE
) -> AsyncIterator[WriterFixture]:
    """Pods with an @ stand on a node."""
    async with faulty_server() as (server, access):
        for pod in pods:
            name, _, node = pod.partition("@")
            server.add(name, **({"nodeName": node} if node else {}))
        cache = WriteCache()
        server.fill_cache(cache)
        client = Client(access)
        reported: list[Event] = []
        writer = EffectWriter(
            client,
            cache,
            on_failure=reported.append,
            may_write=may_write,
            gang_pods=lambda slot: [pod_ref(slot)] if slot.removeprefix("default/") in server.pods else [],
            version_of=lambda kind: resource_of(*kind).versions[0],
            now=lambda: 1.0,
            limits=limits,
        )
        speaking = asyncio.create_task(writer.run())
        try:
            yield WriterFixture(server, cache, writer, reported)
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            await writer.close()
            await client.close()


def run_async(steps: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(steps(), timeout=300)

    asyncio.run(bounded())


def bind_elsewhere(node: str) -> Callable[[FaultyServer], None]:
    return lambda server: void(server.change("a", {"spec": {"nodeName": node}}))


def void(_: Any) -> None:
    return None


def recreate(server: FaultyServer) -> None:
    server.add("a")


def delete(server: FaultyServer) -> None:
    del server.pods["a"]


# --- Binds ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "requests"),
    [
        ([], ["bind a"]),
        ([InjectedFault(409, meanwhile=bind_elsewhere("n1"))], ["bind a", "get a"]),
        ([InjectedFault(500, applied=True)], ["bind a", "get a"]),
        ([InjectedFault(500)], ["bind a", "get a", "bind a"]),
        ([InjectedFault(0, applied=True)], ["bind a", "get a"]),
        ([InjectedFault(0)], ["bind a", "get a", "bind a"]),
        ([InjectedFault(429, retry_after="0")], ["bind a", "get a", "bind a"]),
        ([InjectedFault(409)], ["bind a", "get a", "bind a"]),
    ],
    ids=["all well", "409 bound", "500 done", "500 not done", "silent done", "silent not done", "busy", "409 by another change"],
)
def test_a_bind_that_happened_is_a_success_however_it_was_answered(faults: list[InjectedFault], requests: list[str]) -> None:
    async def steps() -> None:
        async with writer_fixture("a") as at:
            at.inject("bind a", *faults)
            await at.write(at.bind("a"))
            assert at.reported == []
            assert at.server.pods["a"]["spec"]["nodeName"] == "n1"
            assert at.server.requests == requests

    run_async(steps)


@pytest.mark.parametrize(
    ("oddity", "says"),
    [
        (InjectedFault(409, meanwhile=bind_elsewhere("n2")), "is bound to n2 already"),
        (InjectedFault(404, meanwhile=delete), "is gone"),
        (InjectedFault(409, meanwhile=recreate), "is gone"),
        (InjectedFault(403, message="may not bind"), "may not bind"),
        (InjectedFault(422, message="no such field"), "no such field"),
    ],
    ids=["bound elsewhere", "gone", "another one of its name", "forbidden", "refused"],
)
def test_a_bind_that_is_impossible_is_reported_once_and_not_retried(oddity: InjectedFault, says: str) -> None:
    async def steps() -> None:
        async with writer_fixture("a") as at:
            bind = at.bind("a")
            at.inject("bind a", oddity)
            await at.write(bind)
            (failed,) = at.reported
            assert isinstance(failed, BindFailed)
            assert (failed.uid, failed.node) == (bind.uid, "n1")
            assert says in failed.why
            assert at.server.requests.count("bind a") == 1

    run_async(steps)


def test_a_bind_that_is_retried_delays_no_other() -> None:
    async def steps() -> None:
        async with writer_fixture(*"abcd", limits=replace(PACE, pod_write_concurrency=1)) as at:
            at.inject("bind a", InjectedFault(500), InjectedFault(500))
            at.inject("bind b", InjectedFault(500))
            await at.write(*(at.bind(name) for name in "abcd"))
            assert at.reported == []
            assert {name: pod["spec"]["nodeName"] for name, pod in at.server.pods.items()} == dict.fromkeys("abcd", "n1")
            first, again = at.server.requests.index("bind a"), at.server.requests.index("bind a", 1)
            assert {"bind b", "bind c", "bind d"} <= set(at.server.requests[first:again])

    run_async(steps)


def test_a_bind_that_never_works_is_given_up() -> None:
    async def steps() -> None:
        async with writer_fixture("a") as at:
            at.inject("bind a", *[InjectedFault(500)] * 20)
            await at.write(at.bind("a"))
            (failed,) = at.reported
            assert isinstance(failed, BindFailed)
            assert "500" in failed.why
            assert at.server.requests.count("bind a") == 5

    run_async(steps)


def test_a_bind_ends_the_reservation_and_leaves_what_others_wrote() -> None:
    async def steps() -> None:
        async with writer_fixture("a") as at:
            at.server.change("a", {"metadata": {"annotations": {"team": "x"}}})
            at.server.fill_cache(at.cache)
            await at.write(at.nominate("a"))
            assert names.PIPELINED_NODE in at.annotations("a")
            assert at.server.pods["a"]["status"]["nominatedNodeName"] == "n1"
            await at.write(at.bind("a"))
            assert at.annotations("a") == {"team": "x"}
            assert "nominatedNodeName" not in at.server.pods["a"]["status"]
            assert at.server.requests == ["patch a", "bind a", "patch a"]

    run_async(steps)


def test_a_pod_found_bound_elsewhere_loses_its_reservation() -> None:
    async def steps() -> None:
        async with writer_fixture("a") as at:
            await at.write(at.nominate("a"))
            at.inject("bind a", InjectedFault(409, meanwhile=bind_elsewhere("n2")))
            await at.write(at.bind("a"))
            assert [type(event) for event in at.reported] == [BindFailed]
            assert at.annotations("a") == {}

    run_async(steps)


# --- Reservations -----------------------------------------------------------------------------------------------------------------


def test_a_reservation_is_written_onto_the_known_version_or_the_pod_is_read_again() -> None:
    async def steps() -> None:
        async with writer_fixture("a") as at:
            at.server.change("a", {"metadata": {"labels": {"somebody": "else"}}})
            await at.write(at.nominate("a"))
            assert at.server.requests == ["patch a", "get a", "patch a"]
            assert names.PIPELINED_NODE in at.annotations("a")

    run_async(steps)


def test_a_reservation_is_not_written_onto_a_pod_that_has_a_node_by_now() -> None:
    async def steps() -> None:
        async with writer_fixture("a", "v@n1") as at:
            nomination = at.nominate("a")
            bind_elsewhere("n2")(at.server)
            await at.write(nomination)
            assert at.annotations("a") == {}
            assert at.server.requests == ["patch a", "get a"]
            assert [type(event) for event in at.reported] == [ReservationFailed]

    run_async(steps)


def test_a_reservation_that_can_never_be_written_is_reported_and_each_time_later() -> None:
    async def steps() -> None:
        async with writer_fixture("a") as at:
            at.inject("patch a", *[InjectedFault(422, message="no such field")] * 3, InjectedFault(0, applied=True))
            nomination = at.nominate("a")
            await at.write(nomination)
            (failed,) = at.reported
            assert isinstance(failed, ReservationFailed)
            assert (failed.uid, failed.node, failed.since) == (nomination.uid, "n1", nomination.since)
            assert "no such field" in failed.why
            # A scheduler that tries again at once is answered at its leisure.
            await at.write(nomination)
            assert len(at.reported) == 1
            async with asyncio.timeout(120):
                while len(at.reported) < 2:
                    await asyncio.sleep(0.02)
            assert at.server.requests == ["patch a", "patch a"]

    run_async(steps)


def test_what_is_there_already_is_not_written_again() -> None:
    async def steps() -> None:
        async with writer_fixture("a") as at:
            for _ in range(3):
                await at.write(at.nominate("a"))
            assert at.server.requests == ["patch a"]

    run_async(steps)


def test_of_two_rounds_the_later_one_decides_what_is_written_on_a_pod() -> None:
    async def steps() -> None:
        async with writer_fixture("a", "b") as at:
            await at.write(at.nominate("b"))
            release = Release(at.uid("b"), "default/b", "n1", "default/b", "over", "Lost")
            # The first round is held up by its release; the second one must not overtake it.
            at.inject("patch b", InjectedFault(0))
            at.writer.submit([release, at.nominate("a")])
            at.writer.submit([Release(at.uid("a"), "default/a", "n1", "default/a", "over", "Lost")])
            await asyncio.sleep(0)
            assert await at.writer.drain(timeout_s=120)
            assert at.annotations("a") == at.annotations("b") == {}

    run_async(steps)


def test_evictions_are_cancelled_before_the_reservation_ends_and_reservations_end_before_others_are_bound() -> None:
    async def steps() -> None:
        async with writer_fixture("a", "b", "v@n1") as at:
            await at.write(at.nominate("a", evicts=True), at.evict("v", manner="soft"))
            at.server.requests.clear()
            at.inject("patch v", InjectedFault(500))
            at.inject("patch a", InjectedFault(0))
            release = Release(at.uid("a"), "default/a", "n1", "default/a", "over", "Lost")
            cancel = CancelEviction(at.uid("v"), "default/v", "n1", "default/v", "it may stay", "Lost")
            await at.write(at.bind("b"), release, cancel)
            assert [one for one in at.server.requests if "get" not in one] == ["patch v", "patch v", "patch a", "patch a", "bind b"]

    run_async(steps)


# --- Evictions --------------------------------------------------------------------------------------------------------------------


def test_nominations_and_evictions_start_when_their_plan_is_saved() -> None:
    async def steps() -> None:
        async with writer_fixture("a", "b", "v@n1", "w@n1") as at:
            at.inject("post plan", InjectedFault(500))
            await at.write(at.evict("v"), at.nominate("a"), at.nominate("b"), at.save("a", "b", victims=("v",)))
            assert at.reported == []
            assert at.server.requests[:3] == ["post plan", "get plan", "post plan"]
            assert sorted(at.server.requests[3:]) == ["evict v", "patch a", "patch b"]

    run_async(steps)


def test_nobody_is_nominated_and_nobody_evicted_for_a_plan_that_cannot_be_saved() -> None:
    async def steps() -> None:
        async with writer_fixture("a", "b", "v@n1", "w@n1", "x@n1") as at:
            at.inject("post plan", *[InjectedFault(500)] * 10)
            plan = at.save("a", "b", victims=("v", "w"))
            evictions = [at.evict("v"), at.evict("w", manner="delete"), at.evict("x")]
            await at.write(plan, at.nominate("a"), at.nominate("b"), *evictions)
            assert sorted(event.uid for event in at.reported if isinstance(event, EvictFailed)) == [at.uid("v"), at.uid("w")]
            assert sorted(event.uid for event in at.reported if isinstance(event, ReservationFailed)) == [at.uid("a"), at.uid("b")]
            assert [event.key for event in at.reported if isinstance(event, SaveFailed)] == [plan.plan.gang]
            assert [one for one in at.server.requests if "plan" not in one] == ["evict x"]

    run_async(steps)


def test_a_plan_is_created_then_patched_then_deleted_whatever_the_watch_shows() -> None:
    async def steps() -> None:
        async with writer_fixture("a", "b") as at:
            plan = at.save("a")
            await at.write(plan)
            await at.write(at.save("a", "b"))
            (stored,) = at.server.plans.values()
            assert [member["pod"] for member in stored["spec"]["members"]] == ["default/a", "default/b"]
            end = DeletePlan(plan.plan.gang, plan.plan.name)
            await at.write(end)
            await at.write(end)
            await at.write(plan)
            assert at.server.requests == ["post plan", "patch plan", "delete plan", "post plan"]
            assert at.reported == []

    run_async(steps)


def test_a_plan_that_another_scheduler_created_meanwhile_is_replaced() -> None:
    async def steps() -> None:
        async with writer_fixture("a") as at:
            plan = at.save("a")
            at.server.plans[plan.plan.name] = {"metadata": {"name": plan.plan.name, "uid": "u", "resourceVersion": "7"}, "spec": {}}
            await at.write(plan)
            assert at.server.requests == ["post plan", "get plan", "patch plan"]
            assert at.server.plans[plan.plan.name]["spec"]["gang"] == plan.plan.gang

    run_async(steps)


def test_a_budget_that_refuses_is_named_and_not_retried() -> None:
    async def steps() -> None:
        async with writer_fixture("v@n1") as at:
            cause = {"reason": "DisruptionBudget", "message": "The disruption budget db needs 2 healthy pods and has 2 currently"}
            at.inject("evict v", InjectedFault(429, details={"causes": [cause]}, retry_after="10"))
            await at.write(at.evict("v"))
            assert at.reported == [EvictFailed(at.uid("v"), cause["message"], "default/db")]
            assert at.server.requests == ["evict v"]

    run_async(steps)


@pytest.mark.parametrize("manner", ["evict", "delete"])
@pytest.mark.parametrize(
    ("oddity", "times"),
    [
        (InjectedFault(500, applied=True), 1),
        (InjectedFault(0, applied=True), 1),
        (InjectedFault(500), 2),
        (InjectedFault(0), 2),
        (InjectedFault(429), 2),
    ],
    ids=["500 done", "silent done", "500 not done", "silent not done", "busy"],
)
def test_nobody_is_evicted_twice(manner: str, oddity: InjectedFault, times: int) -> None:
    async def steps() -> None:
        async with writer_fixture("v@n1") as at:
            at.inject(f"{manner} v", oddity)
            await at.write(at.evict("v", manner=manner))
            assert at.reported == []
            assert at.server.requests.count(f"{manner} v") == times
            await at.write(at.evict("v", manner=manner))
            assert at.server.requests.count(f"{manner} v") == times

    run_async(steps)


@pytest.mark.parametrize("manner", ["evict", "delete", "soft"])
def test_a_victim_that_is_gone_or_another_one_by_now_is_left_alone(manner: str) -> None:
    async def steps() -> None:
        async with writer_fixture("a@n1", "b@n1") as at:
            old = [at.evict("a", manner=manner), at.evict("b", manner=manner)]
            recreate(at.server)
            del at.server.pods["b"]
            await at.write(*old)
            assert at.reported == []
            assert "deletionTimestamp" not in at.server.pods["a"]["metadata"]
            assert "labels" not in at.server.pods["a"]["metadata"]

    run_async(steps)


def test_a_pod_that_is_deleted_gets_its_condition_first() -> None:
    async def steps() -> None:
        async with writer_fixture("v@n1") as at:
            at.server.change("v", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
            await at.write(at.evict("v", manner="delete"))
            assert at.server.requests == ["patch v", "delete v"]
            said = {one["type"]: one for one in at.server.pods["v"]["status"]["conditions"]}
            assert said["Ready"] == {"type": "Ready", "status": "True"}
            assert (said["DisruptionTarget"]["reason"], said["DisruptionTarget"]["message"]) == (
                "PreemptionByScheduler",
                "hi needs capacity",
            )

    run_async(steps)


def test_a_soft_eviction_marks_the_pod_once() -> None:
    async def steps() -> None:
        async with writer_fixture("v@n1") as at:
            for _ in range(2):
                await at.write(at.evict("v", manner="soft"))
            assert at.server.requests == ["patch v"]
            assert at.server.pods["v"]["metadata"]["labels"] == {"scheduling.koordinator.sh/soft-eviction": "true"}

    run_async(steps)


# --- Words ------------------------------------------------------------------------------------------------------------------------


def waits(name: str, why: str) -> Condition:
    return Condition("pod", f"default/{name}", ok=False, code="InsufficientCapacity", why=why)


def test_status_updates_come_after_pod_effects_and_only_the_newest_is_written() -> None:
    async def steps() -> None:
        async with writer_fixture("a", "b") as at:
            at.inject("bind a", InjectedFault(500))
            at.writer.submit([waits("b", "first"), at.bind("a")])
            at.writer.submit([waits("b", "second"), waits("a", "never said: it is bound by then")])
            await asyncio.sleep(0)
            assert await at.writer.drain(timeout_s=120)
            assert at.server.requests == ["bind a", "get a", "bind a", "patch b"]
            (said,) = at.server.pods["b"]["status"]["conditions"]
            assert said["message"] == "second [InsufficientCapacity]"
            await at.write(waits("b", "second"))
            assert at.server.requests[-1:] == ["patch b"]
            assert len(at.server.requests) == 4

    run_async(steps)


def test_status_updates_wait_for_pod_effects_that_progress_however_many_they_are() -> None:
    async def steps() -> None:
        names = "abcdefgh"
        async with writer_fixture("z", *names, limits=replace(PACE, stall_timeout_s=1.5)) as at:
            at.writer.submit([waits("z", "no capacity")])
            for name in names:
                # Each takes as long as a lost answer does, and the next one begins before it is done.
                at.inject(f"bind {name}", InjectedFault(0, applied=True))
                at.writer.submit([at.bind(name)])
                await asyncio.sleep(0.4)
            assert await at.writer.drain(timeout_s=120)
            assert at.reported == []
            assert at.server.requests[-1] == "patch z"

    run_async(steps)


@pytest.mark.parametrize("limits", [PACE, replace(PACE, stall_timeout_s=30.0, max_status_delay_s=0.2)], ids=["patience", "silence"])
def test_status_updates_do_not_wait_for_a_pod_effect_that_is_stuck(limits: WriteLimits) -> None:
    async def steps() -> None:
        async with writer_fixture("a", "z", limits=limits) as at:
            at.inject("bind a", *[InjectedFault(0)] * 4)
            await at.write(at.bind("a"), waits("z", "no capacity"))
            assert at.server.requests[: at.server.requests.index("patch z")].count("bind a") <= 2
            assert at.server.requests.count("bind a") == 5

    run_async(steps)


def test_the_status_of_a_pod_is_written_with_its_reservation_in_one_patch() -> None:
    async def steps() -> None:
        async with writer_fixture("a") as at:
            await at.write(at.nominate("a"), waits("a", "no capacity"))
            assert at.server.requests == ["patch a"]
            assert at.server.pods["a"]["status"]["conditions"][0]["message"] == "no capacity [InsufficientCapacity]"
            assert at.server.pods["a"]["status"]["nominatedNodeName"]

    run_async(steps)


def test_a_status_update_that_could_not_be_written_is_written_later() -> None:
    async def steps() -> None:
        async with writer_fixture("a") as at:
            at.inject("patch a", InjectedFault(500), InjectedFault(0))
            await at.write(waits("a", "no capacity"))
            assert at.server.requests == ["patch a"] * 3
            assert at.server.pods["a"]["status"]["conditions"][0]["message"] == "no capacity [InsufficientCapacity]"

    run_async(steps)


# --- Leading ----------------------------------------------------------------------------------------------------------------------


def test_who_does_not_lead_writes_nothing_and_reports_nothing() -> None:
    async def steps() -> None:
        async with writer_fixture("a", "b", "v@n1", may_write=lambda: False) as at:
            at.writer.submit(
                [at.bind("a"), at.save("b", victims=("v",)), at.nominate("b"), at.evict("v"), waits("b", "no capacity")]
            )
            await asyncio.sleep(0.1)
            assert at.server.requests == []
            assert at.reported == []

    run_async(steps)


def test_a_lease_that_ends_leaves_none_of_many_binds_behind() -> None:
    async def steps() -> None:
        names = [f"p{number}" for number in range(10)]
        leads = iter([True, True, True])
        async with writer_fixture(
            *names, may_write=lambda: next(leads, False), limits=replace(PACE, pod_write_concurrency=1)
        ) as at:
            await at.write(*(at.bind(name) for name in names))
            assert at.reported == []
            assert at.server.requests == ["bind p0", "bind p1", "bind p2"]
            assert (at.writer.pending, at.writer.active_writes) == (0, 0)

    run_async(steps)


def test_a_lease_that_ends_between_two_tries_ends_the_trying() -> None:
    async def steps() -> None:
        leads = [True, False]
        async with writer_fixture("a", may_write=lambda: leads.pop(0) if len(leads) > 1 else leads[0]) as at:
            at.inject("bind a", InjectedFault(500))
            await at.write(at.bind("a"))
            assert at.server.requests == ["bind a", "get a"]
            assert at.reported == []

    run_async(steps)


def test_a_reservation_is_written_as_it_was_decided() -> None:
    async def steps() -> None:
        async with writer_fixture("a") as at:
            await at.write(Reserve(at.uid("a"), "default/a", "n2", "default/a", "waits", "Waits", 3.0))
            shown = at.cache.peek(ApiObjectRef("", "Pod", "default", "a"))
            assert shown is not None
            assert shown["status"]["nominatedNodeName"] == "n2"
            assert "volcano.sh/pipelined-node" not in at.annotations("a")

    run_async(steps)
