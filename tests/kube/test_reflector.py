"""A resource as it is on the server: every version told once, whatever happens to the connection."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.kube.stage import bookmark, event, expired, refuses, says, staged, streams, thing, watches

from muster.adapters.kube.access import Access, read_access
from muster.adapters.kube.client import ApiError, Client
from muster.adapters.kube.reflector import Notice, Pace, Reflector, What, discover
from muster.adapters.kube.resources import WATCHED, Resource, resource_of
from muster.adapters.sim.manifests import KINDS, is_namespaced
from muster.lab.servers import Servers

POD = resource_of("", "Pod")
QUICK = Pace(page=2, quiet_s=5.0, first_wait_s=0.001, longest_wait_s=0.01, absent_wait_s=0.01)


def play(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), timeout=60))


class Ear:
    """What was told, as short words: `seen a 3`, `gone a 3`, `synced`."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self._news = asyncio.Event()

    def hear(self, notices: list[Notice]) -> None:
        assert notices
        self.notices += notices
        self._news.set()

    @property
    def words(self) -> list[str]:
        return [word(notice) for notice in self.notices]

    async def until(self, last: str) -> list[str]:
        """All words so far, once this one was said; they are forgotten then."""
        while last not in self.words:
            self._news.clear()
            await self._news.wait()
        words = self.words
        self.notices.clear()
        return words


def word(notice: Notice) -> str:
    if notice.what is What.SYNCED:
        return "synced"
    said = json.loads(notice.raw)
    assert (said["kind"], said["metadata"]["uid"] != "") == (notice.kind[1], True)
    return f"{notice.what.value} {said['metadata']['name']} {said['metadata']['resourceVersion']}"


@asynccontextmanager
async def reflected(
    access: Access, resource: Resource = POD, *, pace: Pace = QUICK, version: str = ""
) -> AsyncIterator[tuple[Reflector, Ear]]:
    client, ear = Client(access), Ear()
    reflector = Reflector(client, resource, version, ear.hear, pace=pace)
    running = asyncio.create_task(reflector.run())
    try:
        yield reflector, ear
        assert not running.done(), "a reflector never ends by itself"
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await client.close()


def items(*objects: dict[str, Any], at: int, more: str = "") -> dict[str, Any]:
    """A list as the server writes it: its items do not say what they are."""
    bare = [{key: value for key, value in one.items() if key not in ("kind", "apiVersion")} for one in objects]
    return {"kind": "PodList", "metadata": {"resourceVersion": str(at), "continue": more}, "items": bare}


def beginning(*names: tuple[str, int], at: int) -> list[dict[str, Any]]:
    return [*(event("ADDED", name, version) for name, version in names), bookmark(at, ends_list=True)]


# --- Listing ------------------------------------------------------------------------------------------------------------------


def test_a_watch_that_begins_with_all_there_is_goes_on_with_what_is_new() -> None:
    async def story() -> None:
        news = [event("MODIFIED", "a", 12), event("ADDED", "c", 13), event("DELETED", "b", 14)]
        async with (
            staged(watches(*beginning(("a", 5), ("b", 3), at=11), *news, then="hangs")) as (stage, access),
            reflected(access) as (reflector, ear),
        ):
            assert await ear.until("gone b 14") == ["seen a 5", "seen b 3", "synced", "seen a 12", "seen c 13", "gone b 14"]
            assert reflector.synced.is_set()
            assert reflector.health.at == "14"
            asked = dict(stage.asked[0].query)
            assert {key: asked[key] for key in ("watch", "sendInitialEvents", "resourceVersionMatch", "allowWatchBookmarks")} == {
                "watch": "true",
                "sendInitialEvents": "true",
                "resourceVersionMatch": "NotOlderThan",
                "allowWatchBookmarks": "true",
            }

    play(story)


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_that_cannot_do_that_is_asked_for_pages(status: int) -> None:
    async def story() -> None:
        pages = [says(200, items(thing("a", 5), thing("b", 3), at=11, more="next")), says(200, items(thing("c", 4), at=11))]
        async with (
            staged(refuses(status, "Invalid"), *pages, watches(event("MODIFIED", "a", 12), then="hangs")) as (stage, access),
            reflected(access) as (_, ear),
        ):
            assert await ear.until("seen a 12") == ["seen a 5", "seen b 3", "seen c 4", "synced", "seen a 12"]
            assert stage.queries("limit")[1:] == ["2", "2", None]
            assert stage.queries("continue")[1:] == [None, "next", None]
            assert stage.queries("resourceVersion")[1:] == [None, None, "11"]

    play(story)


def test_pages_that_the_server_forgot_are_begun_anew_and_nothing_is_told_twice() -> None:
    async def story() -> None:
        first = says(200, items(thing("a", 5), thing("b", 3), at=11, more="next"))
        whole = says(200, items(thing("a", 5), thing("c", 12), at=13))
        gone = refuses(410, "Expired")
        async with (
            staged(refuses(422), first, gone, first, gone, whole) as (stage, access),
            reflected(access) as (_, ear),
        ):
            # `b` was told from a page of a list that was never completed.
            assert await ear.until("synced") == ["seen a 5", "seen b 3", "seen c 12", "gone b 3", "synced"]
            assert stage.queries("limit")[5] is None

    play(story)


def test_a_beginning_that_was_cut_is_begun_anew_and_nothing_is_told_twice_or_gone() -> None:
    async def story() -> None:
        cut = watches(event("ADDED", "a", 5), event("ADDED", "b", 3), then="cut")
        async with (
            staged(cut, watches(*beginning(("b", 3), ("a", 5), ("c", 4), at=11), then="hangs")) as (stage, access),
            reflected(access) as (_, ear),
        ):
            assert await ear.until("synced") == ["seen a 5", "seen b 3", "seen c 4", "synced"]
            assert stage.queries("sendInitialEvents") == ["true", "true"]

    play(story)


def test_where_beginnings_keep_failing_pages_are_tried() -> None:
    async def story() -> None:
        broken = refuses(500, "InternalError")
        async with (
            staged(broken, broken, broken, says(200, items(thing("a", 5), at=11))) as (_, access),
            reflected(access) as (_, ear),
        ):
            assert await ear.until("synced") == ["seen a 5", "synced"]

    play(story)


# --- Going on -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["ends", "cut"])
def test_a_watch_that_broke_goes_on_from_the_last_version_heard(ending: str) -> None:
    async def story() -> None:
        first = watches(*beginning(("a", 5), at=11), event("MODIFIED", "a", 12), bookmark(40), then=ending)
        second = watches(event("MODIFIED", "a", 41), then="hangs")
        async with staged(first, second) as (stage, access), reflected(access) as (_, ear):
            assert await ear.until("seen a 41") == ["seen a 5", "synced", "seen a 12", "seen a 41"]
            assert stage.queries("resourceVersion") == [None, "40"]

    play(story)


def test_half_an_event_counts_as_none() -> None:
    async def story() -> None:
        lines = [json.dumps(one).encode() + b"\n" for one in [*beginning(at=11), event("ADDED", "a", 12)]]
        half = json.dumps(event("ADDED", "b", 13)).encode()[:40]
        again = watches(event("ADDED", "b", 13), then="hangs")
        async with staged(streams(*lines, half, then="cut"), again) as (stage, access), reflected(access) as (_, ear):
            assert await ear.until("seen b 13") == ["synced", "seen a 12", "seen b 13"]
            assert stage.queries("resourceVersion") == [None, "12"]

    play(story)


def test_a_watch_that_fell_silent_is_opened_anew() -> None:
    async def story() -> None:
        silent = watches(*beginning(("a", 5), at=11), then="hangs")
        pace = Pace(quiet_s=0.1, first_wait_s=0.001)
        async with (
            staged(silent, watches(event("DELETED", "a", 12), then="hangs")) as (stage, access),
            reflected(access, pace=pace) as (reflector, ear),
        ):
            assert await ear.until("gone a 12") == ["seen a 5", "synced", "gone a 12"]
            assert stage.queries("resourceVersion") == [None, "11"]
            assert reflector.health.breaks == 1

    play(story)


@pytest.mark.parametrize("end", [watches(expired()), refuses(410, "Expired")], ids=["in the stream", "as an answer"])
def test_after_a_gap_only_what_changed_meanwhile_is_told(end: Any) -> None:
    async def story() -> None:
        first = watches(*beginning(("same", 5), ("changed", 6), ("left", 7), ("made-anew", 8), at=11))
        anew = event("ADDED", "made-anew", 23, uid="another")
        second = watches(
            event("ADDED", "same", 5),
            event("ADDED", "changed", 21),
            anew,
            event("ADDED", "new", 22),
            bookmark(30, ends_list=True),
            event("DELETED", "same", 31),
            then="hangs",
        )
        async with staged(first, end, second) as (stage, access), reflected(access) as (reflector, ear):
            await ear.until("synced")
            assert await ear.until("gone same 31") == [
                "seen changed 21",
                "gone made-anew 8",
                "seen made-anew 23",
                "seen new 22",
                "gone left 7",
                "synced",
                "gone same 31",
            ]
            assert stage.queries("resourceVersion") == [None, "11", None]
            assert reflector.health.relists == 1

    play(story)


def test_a_server_that_is_behind_us_is_listed_anew() -> None:
    async def story() -> None:
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        behind = says(504, {"kind": "Status", "code": 504, "reason": "Timeout", "details": {"causes": causes}})
        first, again = watches(*beginning(("a", 50), at=60)), watches(*beginning(("a", 7), at=8), then="hangs")
        async with staged(first, refuses(504, "Timeout"), behind, again) as (stage, access), reflected(access) as (_, ear):
            await ear.until("synced")
            assert await ear.until("synced") == ["seen a 7", "synced"]
            assert stage.queries("resourceVersion") == [None, "60", "60", None]

    play(story)


def test_what_went_in_a_gap_is_told_with_all_that_names_it() -> None:
    async def story() -> None:
        first, second = watches(*beginning(("a", 5), at=11), expired()), watches(*beginning(at=12), then="hangs")
        async with staged(first, second) as (_, access), reflected(access) as (_, ear):
            while [notice.what for notice in ear.notices].count(What.SYNCED) < 2:
                await asyncio.sleep(0.001)
            farewell = next(notice for notice in ear.notices if notice.what is What.GONE)
        assert json.loads(farewell.raw) == {key: thing("a", 5)[key] for key in ("kind", "apiVersion", "metadata")}
        assert farewell.kind == ("", "Pod")

    play(story)


def test_objects_that_come_and_go_while_a_watch_begins_are_told_in_order() -> None:
    async def story() -> None:
        first = watches(
            event("ADDED", "a", 5), event("ADDED", "b", 6), event("DELETED", "a", 12), bookmark(12, ends_list=True), then="hangs"
        )
        async with staged(first) as (_, access), reflected(access) as (_, ear):
            assert await ear.until("synced") == ["seen a 5", "seen b 6", "gone a 12", "synced"]

    play(story)


def test_other_errors_inside_a_watch_are_waited_out_without_listing_again() -> None:
    async def story() -> None:
        trouble = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"}}
        first = watches(*beginning(("a", 5), at=11), trouble)
        busy = refuses(429, "TooManyRequests", Retry_After="0")
        async with (
            staged(first, *[busy] * 5, watches(event("MODIFIED", "a", 12), then="hangs")) as (stage, access),
            reflected(access) as (_, ear),
        ):
            assert await ear.until("seen a 12") == ["seen a 5", "synced", "seen a 12"]
            assert set(stage.queries("resourceVersion")[1:]) == {"11"}

    play(story)


def test_a_version_that_is_refused_again_and_again_is_given_up() -> None:
    async def story() -> None:
        odd = watches({"type": "ERROR", "object": {"kind": "Status", "message": "nobody knows"}})
        first, again = watches(*beginning(("a", 5), at=11)), watches(*beginning(("a", 5), ("b", 6), at=12), then="hangs")
        async with staged(first, *[odd] * 8, again) as (stage, access), reflected(access) as (_, ear):
            await ear.until("synced")
            assert await ear.until("synced") == ["seen b 6", "synced"]
            assert stage.queries("resourceVersion") == [None, *["11"] * 8, None]

    play(story)


def test_the_wait_grows_while_nothing_is_heard_and_is_short_again_after_news() -> None:
    async def story() -> None:
        async with staged() as (_, access):
            reflector = Reflector(Client(access), POD, "v1", lambda _: None, pace=Pace(first_wait_s=1.0, longest_wait_s=30.0))
            waits = [reflector._backoff_s() for _ in range(12)]
            assert all(2**step / 2 <= wait <= 2**step for step, wait in enumerate(waits[:5]))
            assert all(15 <= wait <= 30 for wait in waits[5:])
            reflector._take([json.dumps(one).encode() for one in [*beginning(at=11), bookmark(12)]], found=set())
            assert reflector._backoff_s() <= 1.0

    play(story)


# --- What a cluster lacks -----------------------------------------------------------------------------------------------------


def test_a_resource_that_the_cluster_lacks_counts_as_heard_and_is_found_when_it_is_installed() -> None:
    async def story() -> None:
        absent = refuses(404, "NotFound")
        found = watches({"type": "ADDED", "object": {**thing("q", 5), "kind": "Queue"}}, bookmark(11, ends_list=True), then="hangs")
        async with (
            staged(absent, absent, absent, found) as (_, access),
            reflected(access, resource_of("scheduling.volcano.sh", "Queue")) as (reflector, ear),
        ):
            await reflector.synced.wait()
            assert reflector.health.absent
            assert (await ear.until("seen q 5"))[:2] == ["synced", "seen q 5"]
            while reflector.health.absent:
                await asyncio.sleep(0.001)

    play(story)


def test_a_resource_is_looked_for_under_all_versions_that_we_can_read() -> None:
    async def story() -> None:
        absent = refuses(404, "NotFound")
        group = resource_of("scheduling.k8s.io", "PodGroup")
        async with (
            staged(absent, absent, watches(*beginning(at=11), then="hangs")) as (stage, access),
            reflected(access, group) as (reflector, ear),
        ):
            assert await ear.until("synced") == ["synced"]
            assert [request.path.split("/")[3] for request in stage.asked] == list(group.versions)
            assert not reflector.health.absent

    play(story)


def test_the_objects_of_a_resource_that_was_removed_are_gone() -> None:
    async def story() -> None:
        queue = resource_of("scheduling.volcano.sh", "Queue")
        first = watches({"type": "ADDED", "object": {**thing("q", 5), "kind": "Queue"}}, bookmark(11, ends_list=True))
        async with (
            staged(first, refuses(404), refuses(404)) as (_, access),
            reflected(access, queue) as (_, ear),
        ):
            await ear.until("synced")
            assert await ear.until("synced") == ["gone q 5", "synced"]

    play(story)


def test_pods_that_are_not_found_are_not_taken_for_gone() -> None:
    async def story() -> None:
        first, again = watches(*beginning(("a", 5), at=11)), watches(*beginning(("a", 5), ("b", 6), at=12), then="hangs")
        async with staged(first, refuses(404), again) as (_, access), reflected(access) as (_, ear):
            await ear.until("synced")
            assert await ear.until("synced") == ["seen b 6", "synced"]

    play(story)


def test_a_resource_that_we_may_not_read_counts_as_heard_and_what_was_known_of_it_stays() -> None:
    async def story() -> None:
        refused = refuses(403, "Forbidden", "no")
        first = watches(*beginning(("a", 5), at=11))
        async with (
            staged(refused, refused, first, refused, watches(event("DELETED", "a", 12), then="hangs")) as (_, access),
            reflected(access) as (reflector, ear),
        ):
            await reflector.synced.wait()
            assert reflector.health.refused
            assert await ear.until("gone a 12") == ["synced", "seen a 5", "synced", "gone a 12"]

    play(story)


# --- Strange objects ----------------------------------------------------------------------------------------------------------


def test_one_object_that_cannot_be_read_hides_no_other() -> None:
    async def story() -> None:
        deep = b'{"type":"ADDED","object":{"metadata":{"name":"deep"},"spec":' + b"[" * 9000 + b"]" * 9000 + b"}}\n"
        odd = b'{"type":"ADDED","object":{"metadata":{"name":7}}}\n{"type":\n'
        whole = [json.dumps(one).encode() + b"\n" for one in beginning(("a", 5), at=11)]
        async with staged(streams(deep, odd, *whole, then="hangs")) as (_, access), reflected(access) as (_, ear):
            assert await ear.until("synced") == ["seen a 5", "synced"]
        listed = items(thing("a", 5), at=11)
        listed["items"].append({"metadata": {"name": 7}})
        async with staged(refuses(422), says(200, listed)) as (_, access), reflected(access) as (_, ear):
            assert await ear.until("synced") == ["seen a 5", "synced"]

    play(story)


def test_an_object_of_many_megabytes_is_one_object() -> None:
    async def story() -> None:
        huge = event("ADDED", "huge", 5, note="x" * 5_000_000)
        async with staged(watches(huge, *beginning(at=11), then="hangs")) as (_, access), reflected(access) as (_, ear):
            while len(ear.notices) < 2:
                await asyncio.sleep(0.001)
            assert json.loads(ear.notices[0].raw) == huge["object"]

    play(story)


# --- The table of resources ---------------------------------------------------------------------------------------------------


def test_what_is_watched_is_what_the_simulator_keeps_in_the_same_order() -> None:
    kinds = [kind for kind in KINDS if kind[1] != "Lease"]
    assert [resource.key for resource in WATCHED] == kinds
    assert [resource.namespaced for resource in WATCHED] == [is_namespaced(kind) for kind in kinds]


def test_paths() -> None:
    queue = resource_of("scheduling.volcano.sh", "Queue")
    assert POD.path("v1") == "/api/v1/pods"
    assert POD.path("v1", namespace="a", name="b", sub="binding") == "/api/v1/namespaces/a/pods/b/binding"
    assert queue.path("v1beta1", namespace="a", name="q") == "/apis/scheduling.volcano.sh/v1beta1/queues/q"


# --- A real server ------------------------------------------------------------------------------------------------------------


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "none"}]}}


PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"


def test_a_real_server_serves_what_kubernetes_has_and_not_what_is_not_installed(servers: Servers) -> None:
    async def story() -> None:
        client = Client(await read_access(servers.kubeconfig()))
        served = await discover(client)
        await client.close()
        assert served["", "Pod"] == served["policy", "PodDisruptionBudget"] == "v1"
        assert served["scheduling.k8s.io", "PodGroup"] == "v1alpha2"
        assert ("scheduling.volcano.sh", "Queue") not in served
        assert all(resource.key in served for resource in WATCHED if not resource.optional)

    play(story)


@pytest.mark.parametrize("by_watch", [True, False], ids=["by watch", "by pages"])
def test_all_that_happens_on_a_real_server_is_told(servers: Servers, by_watch: bool) -> None:
    async def story() -> None:
        access = await read_access(servers.kubeconfig())
        client = Client(access)
        for name in ("a", "b", "c"):
            await client.request("POST", PODS, body=pod(name))
        async with reflected(access) as (reflector, ear):
            reflector._knows_initial_events = by_watch
            await reflector.synced.wait()
            listed = ear.notices[:]
            assert sorted(json.loads(notice.raw)["metadata"]["name"] for notice in listed[:-1]) == ["a", "b", "c"]
            assert all(json.loads(notice.raw)["apiVersion"] == "v1" for notice in listed[:-1])
            assert listed[-1].what is What.SYNCED
            ear.notices.clear()
            patched = await client.request("PATCH", PODS + "/a", body={"metadata": {"labels": {"x": "y"}}}, content_type=MERGE)
            await client.request("DELETE", PODS + "/b", params={"gracePeriodSeconds": "0"})
            version = json.loads(patched)["metadata"]["resourceVersion"]
            while not any(notice.what is What.GONE for notice in ear.notices):
                await asyncio.sleep(0.01)
            assert ear.words[0] == f"seen a {version}"
            assert ear.words[-1].startswith("gone b ")
        await client.close()

    play(story)


THING = Resource("lab.muster.dev", "Thing", "things", ("v2", "v1"), namespaced=True, optional=True)
KIND_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(resource: Resource, version: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def test_a_kind_that_is_installed_while_we_run_and_removed_again_on_a_real_server(servers: Servers) -> None:
    """In between, the version that we stand at is one that the server has forgotten."""

    async def story() -> None:
        access = await read_access(servers.kubeconfig())
        client = Client(access)
        folder = THING.path("v1", namespace="default")
        async with reflected(access, THING) as (reflector, ear):
            assert await ear.until("synced") == ["synced"]
            assert reflector.health.absent
            await client.request("POST", KIND_PATH, body=definition(THING, "v1"))
            await ear.until("synced")
            assert reflector.version == "v1"
            made = {name: await create(client, folder, name) for name in ("a", "b")}
            assert await ear.until(f"seen b {made['b']}") == [f"seen a {made['a']}", f"seen b {made['b']}"]
        await client.request("DELETE", f"{folder}/b")
        made["c"] = await create(client, folder, "c")
        async with reflected(access, THING, version="v1") as (later, gap):
            later._known, later.health.at = reflector._known, "1"
            words = await gap.until("synced")
            assert sorted(words) == [f"gone b {made['b']}", f"seen c {made['c']}", "synced"]
            await client.request("DELETE", f"{KIND_PATH}/things.lab.muster.dev")
            while later._known:
                await asyncio.sleep(0.01)
            assert {said.split()[1] for said in gap.words if said.startswith("gone")} == {"a", "c"}
        await client.close()

    play(story)


async def create(client: Client, folder: str, name: str) -> str:
    """Make a Thing and say its version. A new kind is served only after a while."""
    body = {"apiVersion": THING.api_version("v1"), "kind": THING.kind, "metadata": {"name": name}}
    while True:
        try:
            answer = await client.request("POST", folder, body=body)
        except ApiError as error:
            if error.status != 404:
                raise
            await asyncio.sleep(0.05)
        else:
            return str(json.loads(answer)["metadata"]["resourceVersion"])


def test_a_reader_without_rights_is_told_so_by_a_real_server(servers: Servers) -> None:
    async def story() -> None:
        access = await read_access(servers.kubeconfig("stranger"))
        async with reflected(access) as (reflector, ear):
            assert await ear.until("synced") == ["synced"]
            assert reflector.health.refused

    play(story)
