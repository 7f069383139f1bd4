"""What becomes of a round of writes when the server answers oddly: who is bound, who is told, and what is never done twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.kube.odd import Oddity, OddServer, odd_server

from muster.adapters.kube.client import Client
from muster.adapters.kube.mirror import Mirror
from muster.adapters.kube.refs import Ref, pod_ref
from muster.adapters.kube.resources import resource_of
from muster.adapters.kube.writer import Pace, Writer
from muster.model.effects import Bind, Condition, Effect, Evict, Hold, Nominate, Release, Spare
from muster.model.events import BindFailed, ClaimFailed, Event, EvictFailed

PACE = Pace(timeout_s=0.3, events_per_s=0, patience_s=0.2, release_s=1.0)
CLAIM = "muster.dev/claim"


@dataclass
class Desk:
    """A writer, the server it writes to, and what it told."""

    server: OddServer
    mirror: Mirror
    writer: Writer
    told: list[Event] = field(default_factory=list)

    def uid(self, name: str) -> str:
        uid: str = self.server.pods[name]["metadata"]["uid"]
        return uid

    def notes(self, name: str) -> dict[str, str]:
        notes: dict[str, str] = self.server.pods[name]["metadata"]["annotations"]
        return notes

    def odd(self, request: str, *oddities: Oddity) -> None:
        self.server.oddities[request] = list(oddities)

    async def write(self, *effects: Effect) -> None:
        self.writer.submit(effects)
        await asyncio.sleep(0)
        assert await self.writer.drain(timeout_s=30)

    def bind(self, name: str, *, to: str = "n1") -> Bind:
        return Bind(self.uid(name), f"default/{name}", to, f"default/{name}", "it fits")

    def nominate(self, name: str, *, victims: tuple[str, ...] = (), plan: str = "p", size: int = 1) -> Nominate:
        title, uids = f"default/{name}", tuple(self.uid(victim) for victim in victims)
        return Nominate(self.uid(name), title, "n1", "default/hi", "room", "preempt", 1.0, plan, size, uids)

    def evict(self, name: str, *, manner: str = "evict") -> Evict:
        return Evict(self.uid(name), f"default/{name}", "n1", f"default/{name}", "default/hi", "hi needs room", "preempt", manner)


@asynccontextmanager
async def desk(*pods: str, may_write: Callable[[], bool] = lambda: True, pace: Pace = PACE) -> AsyncIterator[Desk]:
    """Pods with an @ stand on a node."""
    async with odd_server() as (server, access):
        for pod in pods:
            name, _, node = pod.partition("@")
            server.add(name, **({"nodeName": node} if node else {}))
        mirror = Mirror()
        server.show(mirror)
        client = Client(access)
        told: list[Event] = []
        writer = Writer(
            client,
            mirror,
            tell=told.append,
            may_write=may_write,
            gathered=lambda slot: [pod_ref(slot)] if slot.removeprefix("default/") in server.pods else [],
            version_of=lambda kind: resource_of(*kind).versions[0],
            now=lambda: 1.0,
            pace=pace,
        )
        speaking = asyncio.create_task(writer.run())
        try:
            yield Desk(server, mirror, writer, told)
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            await writer.close()
            await client.close()


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(story(), timeout=60)

    asyncio.run(bounded())


def elsewhere(node: str) -> Callable[[OddServer], None]:
    return lambda server: void(server.change("a", {"spec": {"nodeName": node}}))


def void(_: Any) -> None:
    return None


def another(server: OddServer) -> None:
    server.add("a")


def gone(server: OddServer) -> None:
    del server.pods["a"]


# --- Binds --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("oddities", "asked"),
    [
        ([], ["bind a"]),
        ([Oddity(409, meanwhile=elsewhere("n1"))], ["bind a", "get a"]),
        ([Oddity(500, applied=True)], ["bind a", "get a"]),
        ([Oddity(500)], ["bind a", "get a", "bind a"]),
        ([Oddity(0, applied=True)], ["bind a", "get a"]),
        ([Oddity(0)], ["bind a", "get a", "bind a"]),
        ([Oddity(429, retry_after="0")], ["bind a", "get a", "bind a"]),
        ([Oddity(409)], ["bind a", "get a", "bind a"]),
    ],
    ids=["all well", "409 bound", "500 done", "500 not done", "silent done", "silent not done", "busy", "409 by another change"],
)
def test_a_bind_that_happened_is_a_success_however_it_was_answered(oddities: list[Oddity], asked: list[str]) -> None:
    async def story() -> None:
        async with desk("a") as at:
            at.odd("bind a", *oddities)
            await at.write(at.bind("a"))
            assert at.told == []
            assert at.server.pods["a"]["spec"]["nodeName"] == "n1"
            assert at.server.asked == asked

    play(story)


@pytest.mark.parametrize(
    ("oddity", "says"),
    [
        (Oddity(409, meanwhile=elsewhere("n2")), "is bound to n2 already"),
        (Oddity(404, meanwhile=gone), "is gone"),
        (Oddity(409, meanwhile=another), "is gone"),
        (Oddity(403, message="may not bind"), "may not bind"),
        (Oddity(422, message="no such field"), "no such field"),
    ],
    ids=["bound elsewhere", "gone", "another one of its name", "forbidden", "refused"],
)
def test_a_bind_that_cannot_be_is_told_once_and_not_tried_again(oddity: Oddity, says: str) -> None:
    async def story() -> None:
        async with desk("a") as at:
            bind = at.bind("a")
            at.odd("bind a", oddity)
            await at.write(bind)
            (failed,) = at.told
            assert isinstance(failed, BindFailed)
            assert (failed.uid, failed.node) == (bind.uid, "n1")
            assert says in failed.why
            assert at.server.asked.count("bind a") == 1

    play(story)


def test_a_bind_that_is_tried_again_holds_up_no_other() -> None:
    async def story() -> None:
        async with desk(*"abcd", pace=replace(PACE, deeds_at_once=1)) as at:
            at.odd("bind a", Oddity(500), Oddity(500))
            at.odd("bind b", Oddity(500))
            await at.write(*(at.bind(name) for name in "abcd"))
            assert at.told == []
            assert {name: pod["spec"]["nodeName"] for name, pod in at.server.pods.items()} == dict.fromkeys("abcd", "n1")
            first, again = at.server.asked.index("bind a"), at.server.asked.index("bind a", 1)
            assert {"bind b", "bind c", "bind d"} <= set(at.server.asked[first:again])

    play(story)


def test_a_bind_that_never_works_is_given_up() -> None:
    async def story() -> None:
        async with desk("a") as at:
            at.odd("bind a", *[Oddity(500)] * 20)
            await at.write(at.bind("a"))
            (failed,) = at.told
            assert isinstance(failed, BindFailed)
            assert "500" in failed.why
            assert at.server.asked.count("bind a") == 5

    play(story)


def test_a_bind_ends_the_claim_and_leaves_what_others_wrote() -> None:
    async def story() -> None:
        async with desk("a") as at:
            at.server.change("a", {"metadata": {"annotations": {"team": "x"}}})
            at.server.show(at.mirror)
            await at.write(at.nominate("a"))
            assert CLAIM in at.notes("a")
            assert at.server.pods["a"]["status"]["nominatedNodeName"] == "n1"
            await at.write(at.bind("a"))
            assert at.notes("a") == {"team": "x"}
            assert "nominatedNodeName" not in at.server.pods["a"]["status"]
            assert at.server.asked == ["patch a", "bind a", "patch a"]

    play(story)


def test_a_pod_found_bound_elsewhere_loses_its_claim() -> None:
    async def story() -> None:
        async with desk("a") as at:
            await at.write(at.nominate("a"))
            at.odd("bind a", Oddity(409, meanwhile=elsewhere("n2")))
            await at.write(at.bind("a"))
            assert [type(event) for event in at.told] == [BindFailed]
            assert at.notes("a") == {}

    play(story)


# --- Claims -------------------------------------------------------------------------------------------------------------------


def test_a_claim_goes_onto_the_version_that_was_seen_or_the_pod_is_looked_at_again() -> None:
    async def story() -> None:
        async with desk("a") as at:
            at.server.change("a", {"metadata": {"labels": {"somebody": "else"}}})
            await at.write(at.nominate("a"))
            assert at.server.asked == ["patch a", "get a", "patch a"]
            assert CLAIM in at.notes("a")

    play(story)


def test_a_claim_is_not_written_onto_a_pod_that_has_a_node_by_now() -> None:
    async def story() -> None:
        async with desk("a", "v@n1") as at:
            claim = at.nominate("a", victims=("v",))
            elsewhere("n2")(at.server)
            await at.write(claim, at.evict("v"))
            assert at.notes("a") == {}
            assert at.server.asked == ["patch a", "get a"]
            assert [type(event) for event in at.told] == [ClaimFailed, EvictFailed]

    play(story)


def test_a_claim_that_can_never_be_written_is_told_and_each_time_later() -> None:
    async def story() -> None:
        async with desk("a") as at:
            at.odd("patch a", *[Oddity(422, message="no such field")] * 3, Oddity(0, applied=True))
            claim = at.nominate("a")
            await at.write(claim)
            (failed,) = at.told
            assert isinstance(failed, ClaimFailed)
            assert (failed.uid, failed.node, failed.since) == (claim.uid, "n1", claim.since)
            assert "no such field" in failed.why
            # A scheduler that tries again at once is answered at its leisure.
            await at.write(claim)
            assert len(at.told) == 1
            async with asyncio.timeout(5):
                while len(at.told) < 2:
                    await asyncio.sleep(0.02)
            assert at.server.asked == ["patch a", "patch a"]

    play(story)


def test_what_is_there_already_is_not_written_again() -> None:
    async def story() -> None:
        async with desk("a") as at:
            for _ in range(3):
                await at.write(at.nominate("a"))
            assert at.server.asked == ["patch a"]

    play(story)


def test_of_two_rounds_the_later_one_has_the_last_word_on_a_pod() -> None:
    async def story() -> None:
        async with desk("a", "b") as at:
            await at.write(at.nominate("b"))
            release = Release(at.uid("b"), "default/b", "n1", "default/b", "over", "Lost")
            # The first round is held up by its release; the second one must not overtake it.
            at.odd("patch b", Oddity(0))
            at.writer.submit([release, at.nominate("a")])
            at.writer.submit([Release(at.uid("a"), "default/a", "n1", "default/a", "over", "Lost")])
            await asyncio.sleep(0)
            assert await at.writer.drain(timeout_s=30)
            assert at.notes("a") == at.notes("b") == {}

    play(story)


def test_who_may_stay_is_told_before_the_claim_ends_and_claims_end_before_others_are_bound() -> None:
    async def story() -> None:
        async with desk("a", "b", "v@n1") as at:
            await at.write(at.nominate("a", victims=("v",)), at.evict("v", manner="soft"))
            at.server.asked.clear()
            at.odd("patch v", Oddity(500))
            at.odd("patch a", Oddity(0))
            release = Release(at.uid("a"), "default/a", "n1", "default/a", "over", "Lost")
            spare = Spare(at.uid("v"), "default/v", "n1", "default/v", "it may stay", "Lost")
            await at.write(at.bind("b"), release, spare)
            assert [one for one in at.server.asked if "get" not in one] == ["patch v", "patch v", "patch a", "patch a", "bind b"]

    play(story)


# --- Evictions ----------------------------------------------------------------------------------------------------------------


def test_evictions_start_when_all_claims_of_their_plan_are_written() -> None:
    async def story() -> None:
        async with desk("a", "b", "v@n1", "w@n1") as at:
            at.odd("patch b", Oddity(0), Oddity(500))
            claims = [at.nominate(name, victims=("v",), size=2) for name in ("a", "b")]
            unrelated = replace(at.evict("w"), for_gang="default/other")
            await at.write(at.evict("v"), *claims, unrelated)
            assert at.told == []
            asked = at.server.asked
            last_claim = max(i for i, one in enumerate(asked) if one.startswith("patch"))
            assert asked.index("evict w") < last_claim < asked.index("evict v")

    play(story)


def test_nobody_is_evicted_for_a_plan_whose_claims_cannot_be_written() -> None:
    async def story() -> None:
        async with desk("a", "b", "v@n1", "w@n1", "x@n1") as at:
            at.odd("patch b", *[Oddity(500)] * 10)
            torn = [at.nominate(name, victims=("v", "w"), size=2) for name in ("a", "b")]
            await at.write(*torn, at.evict("v"), at.evict("w", manner="delete"))
            assert sorted(event.uid for event in at.told if isinstance(event, EvictFailed)) == [at.uid("v"), at.uid("w")]
            assert not any(one.startswith(("evict", "delete")) for one in at.server.asked)

    play(story)


def test_a_budget_that_refuses_is_named_and_not_asked_again() -> None:
    async def story() -> None:
        async with desk("v@n1") as at:
            cause = {"reason": "DisruptionBudget", "message": "The disruption budget db needs 2 healthy pods and has 2 currently"}
            at.odd("evict v", Oddity(429, details={"causes": [cause]}, retry_after="10"))
            await at.write(at.evict("v"))
            assert at.told == [EvictFailed(at.uid("v"), cause["message"], "default/db")]
            assert at.server.asked == ["evict v"]

    play(story)


@pytest.mark.parametrize("manner", ["evict", "delete"])
@pytest.mark.parametrize(
    ("oddity", "times"),
    [(Oddity(500, applied=True), 1), (Oddity(0, applied=True), 1), (Oddity(500), 2), (Oddity(0), 2), (Oddity(429), 2)],
    ids=["500 done", "silent done", "500 not done", "silent not done", "busy"],
)
def test_nobody_is_evicted_twice(manner: str, oddity: Oddity, times: int) -> None:
    async def story() -> None:
        async with desk("v@n1") as at:
            at.odd(f"{manner} v", oddity)
            await at.write(at.evict("v", manner=manner))
            assert at.told == []
            assert at.server.asked.count(f"{manner} v") == times
            await at.write(at.evict("v", manner=manner))
            assert at.server.asked.count(f"{manner} v") == times

    play(story)


@pytest.mark.parametrize("manner", ["evict", "delete", "soft"])
def test_a_victim_that_is_gone_or_another_one_by_now_is_left_alone(manner: str) -> None:
    async def story() -> None:
        async with desk("a@n1", "b@n1") as at:
            old = [at.evict("a", manner=manner), at.evict("b", manner=manner)]
            another(at.server)
            del at.server.pods["b"]
            await at.write(*old)
            assert at.told == []
            assert "deletionTimestamp" not in at.server.pods["a"]["metadata"]
            assert "labels" not in at.server.pods["a"]["metadata"]

    play(story)


def test_a_pod_that_is_deleted_is_told_why_first() -> None:
    async def story() -> None:
        async with desk("v@n1") as at:
            at.server.change("v", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
            await at.write(at.evict("v", manner="delete"))
            assert at.server.asked == ["patch v", "delete v"]
            said = {one["type"]: one for one in at.server.pods["v"]["status"]["conditions"]}
            assert said["Ready"] == {"type": "Ready", "status": "True"}
            assert (said["DisruptionTarget"]["reason"], said["DisruptionTarget"]["message"]) == (
                "PreemptionByScheduler",
                "hi needs room",
            )

    play(story)


def test_a_soft_eviction_marks_the_pod_once() -> None:
    async def story() -> None:
        async with desk("v@n1") as at:
            for _ in range(2):
                await at.write(at.evict("v", manner="soft"))
            assert at.server.asked == ["patch v"]
            assert at.server.pods["v"]["metadata"]["labels"] == {"scheduling.koordinator.sh/soft-eviction": "true"}

    play(story)


# --- Words --------------------------------------------------------------------------------------------------------------------


def waits(name: str, why: str) -> Condition:
    return Condition("pod", f"default/{name}", ok=False, code="NoRoom", why=why)


def test_words_come_after_deeds_and_only_the_newest_is_said() -> None:
    async def story() -> None:
        async with desk("a", "b") as at:
            at.odd("bind a", Oddity(500))
            at.writer.submit([waits("b", "first"), at.bind("a")])
            at.writer.submit([waits("b", "second"), waits("a", "never said: it is bound by then")])
            await asyncio.sleep(0)
            assert await at.writer.drain(timeout_s=30)
            assert at.server.asked == ["bind a", "get a", "bind a", "patch b"]
            (said,) = at.server.pods["b"]["status"]["conditions"]
            assert said["message"] == "second [NoRoom]"
            await at.write(waits("b", "second"))
            assert at.server.asked[-1:] == ["patch b"]
            assert len(at.server.asked) == 4

    play(story)


def test_words_wait_for_deeds_that_get_done_however_many_they_are() -> None:
    async def story() -> None:
        names = "abcdefgh"
        async with desk("z", *names, pace=replace(PACE, patience_s=0.25)) as at:
            at.writer.submit([waits("z", "no room")])
            for name in names:
                # Each takes as long as a lost answer does, and the next one begins before it is done.
                at.odd(f"bind {name}", Oddity(0, applied=True))
                at.writer.submit([at.bind(name)])
                await asyncio.sleep(0.15)
            assert await at.writer.drain(timeout_s=30)
            assert at.told == []
            assert at.server.asked[-1] == "patch z"

    play(story)


@pytest.mark.parametrize("pace", [PACE, replace(PACE, patience_s=30.0, silence_s=0.2)], ids=["patience", "silence"])
def test_words_do_not_wait_for_a_deed_that_gets_nowhere(pace: Pace) -> None:
    async def story() -> None:
        async with desk("a", "z", pace=pace) as at:
            at.odd("bind a", *[Oddity(0)] * 4)
            await at.write(at.bind("a"), waits("z", "no room"))
            assert at.server.asked[: at.server.asked.index("patch z")].count("bind a") <= 2
            assert at.server.asked.count("bind a") == 5

    play(story)


def test_what_is_said_of_a_pod_goes_with_its_claim_in_one_patch() -> None:
    async def story() -> None:
        async with desk("a") as at:
            await at.write(at.nominate("a"), waits("a", "no room"))
            assert at.server.asked == ["patch a"]
            assert at.server.pods["a"]["status"]["conditions"][0]["message"] == "no room [NoRoom]"
            assert at.server.pods["a"]["status"]["nominatedNodeName"]

    play(story)


def test_a_word_that_could_not_be_written_is_said_later() -> None:
    async def story() -> None:
        async with desk("a") as at:
            at.odd("patch a", Oddity(500), Oddity(0))
            await at.write(waits("a", "no room"))
            assert at.server.asked == ["patch a"] * 3
            assert at.server.pods["a"]["status"]["conditions"][0]["message"] == "no room [NoRoom]"

    play(story)


# --- Leading ------------------------------------------------------------------------------------------------------------------


def test_who_does_not_lead_writes_nothing_and_tells_nothing() -> None:
    async def story() -> None:
        async with desk("a", "b", "v@n1", may_write=lambda: False) as at:
            at.writer.submit([at.bind("a"), at.nominate("b", victims=("v",)), at.evict("v"), waits("b", "no room")])
            await asyncio.sleep(0.1)
            assert at.server.asked == []
            assert at.told == []

    play(story)


def test_a_lease_that_ends_leaves_none_of_many_binds_behind() -> None:
    async def story() -> None:
        names = [f"p{number}" for number in range(10)]
        leads = iter([True, True, True])
        async with desk(*names, may_write=lambda: next(leads, False), pace=replace(PACE, deeds_at_once=1)) as at:
            await at.write(*(at.bind(name) for name in names))
            assert at.told == []
            assert at.server.asked == ["bind p0", "bind p1", "bind p2"]
            assert (at.writer.pending, at.writer.busy_with) == (0, 0)

    play(story)


def test_a_lease_that_ends_between_two_tries_ends_the_trying() -> None:
    async def story() -> None:
        leads = [True, False]
        async with desk("a", may_write=lambda: leads.pop(0) if len(leads) > 1 else leads[0]) as at:
            at.odd("bind a", Oddity(500))
            await at.write(at.bind("a"))
            assert at.server.asked == ["bind a", "get a"]
            assert at.told == []

    play(story)


def test_a_hold_is_kept_as_it_was_said() -> None:
    async def story() -> None:
        async with desk("a") as at:
            await at.write(Hold(at.uid("a"), "default/a", "n2", "default/a", "waits", "Waits", 3.0))
            shown = at.mirror.peek(Ref("", "Pod", "default", "a"))
            assert shown is not None
            assert shown["status"]["nominatedNodeName"] == "n2"
            assert "volcano.sh/pipelined-node" not in at.notes("a")

    play(story)
