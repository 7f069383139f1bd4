"""A resource as it is on the server: every version told once, whatever happens to the connection."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.harness.api_discovery import discover_versions
from tests.kube.scripted_api_server import (
    bookmark,
    event,
    expired,
    pod_object,
    refuses_with,
    replies_with,
    scripted_server,
    streams,
    watches,
)

from muster.kube.read.api_resources import WATCHED, ApiResource, resource_of
from muster.kube.watch.access import Access, read_access
from muster.kube.watch.client import ApiError, Client
from muster.kube.watch.object_tracker import UpdateType, WatchUpdate
from muster.kube.watch.reflector import Reflector, WatchTiming
from muster.lab.servers import Servers
from muster.sim.api_kinds import KINDS, is_namespaced

POD = resource_of("", "Pod")
QUICK = WatchTiming(page=2, idle_timeout_s=5.0, initial_wait_s=0.001, max_wait_s=0.01, not_served_wait_s=0.01)


def run_async(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), timeout=300))


class NoticeRecorder:
    """What was told, as short words: `upsert a 3`, `delete a 3`, `synced`."""

    def __init__(self) -> None:
        self.updates: list[WatchUpdate] = []
        self._news = asyncio.Event()

    def record(self, updates: list[WatchUpdate]) -> None:
        assert updates
        self.updates += updates
        self._news.set()

    @property
    def notice_lines(self) -> list[str]:
        return [notice_line(update) for update in self.updates]

    async def until(self, last: str) -> list[str]:
        """All words so far, once this one was said; they are forgotten then."""
        while last not in self.notice_lines:
            self._news.clear()
            await self._news.wait()
        notice_lines = self.notice_lines
        self.updates.clear()
        return notice_lines


def notice_line(update: WatchUpdate) -> str:
    if update.update_type is UpdateType.SYNCED:
        return "synced"
    said = json.loads(update.raw)
    assert (said["kind"], said["metadata"]["uid"] != "") == (update.kind[1], True)
    return f"{update.update_type.value} {said['metadata']['name']} {said['metadata']['resourceVersion']}"


@asynccontextmanager
async def running_reflector(
    access: Access, resource: ApiResource = POD, *, timing: WatchTiming = QUICK
) -> AsyncIterator[tuple[Reflector, NoticeRecorder]]:
    client, recorder = Client(access), NoticeRecorder()
    reflector = Reflector(client, resource, recorder.record, timing=timing)
    running = asyncio.create_task(reflector.run())
    try:
        yield reflector, recorder
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


def initial_events(*names: tuple[str, int], at: int) -> list[dict[str, Any]]:
    return [*(event("ADDED", name, version) for name, version in names), bookmark(at, ends_list=True)]


# --- Listing ------------------------------------------------------------------------------------------------------------------


def test_a_watch_that_begins_with_all_there_is_goes_on_with_what_is_new() -> None:
    async def steps() -> None:
        news = [event("MODIFIED", "a", 12), event("ADDED", "c", 13), event("DELETED", "b", 14)]
        async with (
            scripted_server(watches(*initial_events(("a", 5), ("b", 3), at=11), *news, then="hangs")) as (scripted, access),
            running_reflector(access) as (reflector, recorder),
        ):
            assert await recorder.until("delete b 14") == [
                "upsert a 5",
                "upsert b 3",
                "synced",
                "upsert a 12",
                "upsert c 13",
                "delete b 14",
            ]
            assert reflector.synced.is_set()
            assert reflector.health.resource_version == "14"
            requests = dict(scripted.requests[0].query)
            assert {
                key: requests[key] for key in ("watch", "sendInitialEvents", "resourceVersionMatch", "allowWatchBookmarks")
            } == {
                "watch": "true",
                "sendInitialEvents": "true",
                "resourceVersionMatch": "NotOlderThan",
                "allowWatchBookmarks": "true",
            }

    run_async(steps)


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_that_cannot_stream_lists_is_listed_in_pages(status: int) -> None:
    async def steps() -> None:
        pages = [
            replies_with(200, items(pod_object("a", 5), pod_object("b", 3), at=11, more="next")),
            replies_with(200, items(pod_object("c", 4), at=11)),
        ]
        async with (
            scripted_server(refuses_with(status, "Invalid"), *pages, watches(event("MODIFIED", "a", 12), then="hangs")) as (
                scripted,
                access,
            ),
            running_reflector(access) as (_, recorder),
        ):
            assert await recorder.until("upsert a 12") == ["upsert a 5", "upsert b 3", "upsert c 4", "synced", "upsert a 12"]
            assert scripted.queries("limit")[1:] == ["2", "2", None]
            assert scripted.queries("continue")[1:] == [None, "next", None]
            assert scripted.queries("resourceVersion")[1:] == [None, None, "11"]

    run_async(steps)


def test_pages_that_expired_are_begun_anew_and_nothing_is_reported_twice() -> None:
    async def steps() -> None:
        first = replies_with(200, items(pod_object("a", 5), pod_object("b", 3), at=11, more="next"))
        whole = replies_with(200, items(pod_object("a", 5), pod_object("c", 12), at=13))
        gone = refuses_with(410, "Expired")
        async with (
            scripted_server(refuses_with(422), first, gone, first, gone, whole) as (scripted, access),
            running_reflector(access) as (_, recorder),
        ):
            # `b` was told from a page of a list that was never completed.
            assert await recorder.until("synced") == ["upsert a 5", "upsert b 3", "upsert c 12", "delete b 3", "synced"]
            assert scripted.queries("limit")[5] is None

    run_async(steps)


def test_an_initial_list_that_was_cut_is_begun_anew_and_nothing_is_reported_twice_or_deleted() -> None:
    async def steps() -> None:
        cut = watches(event("ADDED", "a", 5), event("ADDED", "b", 3), then="cut")
        async with (
            scripted_server(cut, watches(*initial_events(("b", 3), ("a", 5), ("c", 4), at=11), then="hangs")) as (scripted, access),
            running_reflector(access) as (_, recorder),
        ):
            assert await recorder.until("synced") == ["upsert a 5", "upsert b 3", "upsert c 4", "synced"]
            assert scripted.queries("sendInitialEvents") == ["true", "true"]

    run_async(steps)


def test_where_initial_watches_keep_failing_pages_are_tried() -> None:
    async def steps() -> None:
        broken = refuses_with(500, "InternalError")
        async with (
            scripted_server(broken, broken, broken, replies_with(200, items(pod_object("a", 5), at=11))) as (_, access),
            running_reflector(access) as (_, recorder),
        ):
            assert await recorder.until("synced") == ["upsert a 5", "synced"]

    run_async(steps)


# --- Going on -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["ends", "cut"])
def test_a_watch_that_broke_goes_on_from_the_last_version_received(ending: str) -> None:
    async def steps() -> None:
        first = watches(*initial_events(("a", 5), at=11), event("MODIFIED", "a", 12), bookmark(40), then=ending)
        second = watches(event("MODIFIED", "a", 41), then="hangs")
        async with scripted_server(first, second) as (scripted, access), running_reflector(access) as (_, recorder):
            assert await recorder.until("upsert a 41") == ["upsert a 5", "synced", "upsert a 12", "upsert a 41"]
            assert scripted.queries("resourceVersion") == [None, "40"]

    run_async(steps)


def test_half_an_event_counts_as_none() -> None:
    async def steps() -> None:
        lines = [json.dumps(one).encode() + b"\n" for one in [*initial_events(at=11), event("ADDED", "a", 12)]]
        half = json.dumps(event("ADDED", "b", 13)).encode()[:40]
        again = watches(event("ADDED", "b", 13), then="hangs")
        async with (
            scripted_server(streams(*lines, half, then="cut"), again) as (scripted, access),
            running_reflector(access) as (_, recorder),
        ):
            assert await recorder.until("upsert b 13") == ["synced", "upsert a 12", "upsert b 13"]
            assert scripted.queries("resourceVersion") == [None, "12"]

    run_async(steps)


def test_a_watch_that_fell_silent_is_opened_anew() -> None:
    async def steps() -> None:
        silent = watches(*initial_events(("a", 5), at=11), then="hangs")
        timing = WatchTiming(idle_timeout_s=0.1, initial_wait_s=0.001)
        async with (
            scripted_server(silent, watches(event("DELETED", "a", 12), then="hangs")) as (scripted, access),
            running_reflector(access, timing=timing) as (reflector, recorder),
        ):
            assert await recorder.until("delete a 12") == ["upsert a 5", "synced", "delete a 12"]
            assert scripted.queries("resourceVersion") == [None, "11"]
            assert reflector.health.disconnects == 1

    run_async(steps)


@pytest.mark.parametrize("end", [watches(expired()), refuses_with(410, "Expired")], ids=["in the stream", "as an answer"])
def test_after_a_gap_only_what_changed_meanwhile_is_reported(end: Any) -> None:
    async def steps() -> None:
        first = watches(*initial_events(("same", 5), ("changed", 6), ("left", 7), ("made-anew", 8), at=11))
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
        async with scripted_server(first, end, second) as (scripted, access), running_reflector(access) as (reflector, recorder):
            await recorder.until("synced")
            assert await recorder.until("delete same 31") == [
                "upsert changed 21",
                "delete made-anew 8",
                "upsert made-anew 23",
                "upsert new 22",
                "delete left 7",
                "synced",
                "delete same 31",
            ]
            assert scripted.queries("resourceVersion") == [None, "11", None]
            assert reflector.health.relists == 1

    run_async(steps)


def test_a_server_that_is_behind_us_is_listed_anew() -> None:
    async def steps() -> None:
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        behind = replies_with(504, {"kind": "Status", "code": 504, "reason": "Timeout", "details": {"causes": causes}})
        first, again = watches(*initial_events(("a", 50), at=60)), watches(*initial_events(("a", 7), at=8), then="hangs")
        async with (
            scripted_server(first, refuses_with(504, "Timeout"), behind, again) as (scripted, access),
            running_reflector(access) as (_, recorder),
        ):
            await recorder.until("synced")
            assert await recorder.until("synced") == ["upsert a 7", "synced"]
            assert scripted.queries("resourceVersion") == [None, "60", "60", None]

    run_async(steps)


def test_what_was_deleted_in_a_gap_is_reported_with_all_that_names_it() -> None:
    async def steps() -> None:
        first, second = watches(*initial_events(("a", 5), at=11), expired()), watches(*initial_events(at=12), then="hangs")
        async with scripted_server(first, second) as (_, access), running_reflector(access) as (_, recorder):
            while [update.update_type for update in recorder.updates].count(UpdateType.SYNCED) < 2:
                await asyncio.sleep(0.001)
            farewell = next(update for update in recorder.updates if update.update_type is UpdateType.DELETE)
        assert json.loads(farewell.raw) == {key: pod_object("a", 5)[key] for key in ("kind", "apiVersion", "metadata")}
        assert farewell.kind == ("", "Pod")

    run_async(steps)


def test_objects_that_come_and_go_while_a_watch_begins_are_reported_in_order() -> None:
    async def steps() -> None:
        first = watches(
            event("ADDED", "a", 5), event("ADDED", "b", 6), event("DELETED", "a", 12), bookmark(12, ends_list=True), then="hangs"
        )
        async with scripted_server(first) as (_, access), running_reflector(access) as (_, recorder):
            assert await recorder.until("synced") == ["upsert a 5", "upsert b 6", "delete a 12", "synced"]

    run_async(steps)


def test_other_errors_inside_a_watch_are_waited_out_without_listing_again() -> None:
    async def steps() -> None:
        trouble = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"}}
        first = watches(*initial_events(("a", 5), at=11), trouble)
        busy = refuses_with(429, "TooManyRequests", Retry_After="0")
        async with (
            scripted_server(first, *[busy] * 5, watches(event("MODIFIED", "a", 12), then="hangs")) as (scripted, access),
            running_reflector(access) as (_, recorder),
        ):
            assert await recorder.until("upsert a 12") == ["upsert a 5", "synced", "upsert a 12"]
            assert set(scripted.queries("resourceVersion")[1:]) == {"11"}

    run_async(steps)


def test_a_version_that_is_refused_again_and_again_is_given_up() -> None:
    async def steps() -> None:
        odd = watches({"type": "ERROR", "object": {"kind": "Status", "message": "nobody knows"}})
        first, again = watches(*initial_events(("a", 5), at=11)), watches(*initial_events(("a", 5), ("b", 6), at=12), then="hangs")
        async with scripted_server(first, *[odd] * 8, again) as (scripted, access), running_reflector(access) as (_, recorder):
            await recorder.until("synced")
            assert await recorder.until("synced") == ["upsert b 6", "synced"]
            assert scripted.queries("resourceVersion") == [None, *["11"] * 8, None]

    run_async(steps)


def test_the_backoff_grows_while_nothing_is_received_and_is_short_again_after_news() -> None:
    async def steps() -> None:
        async with scripted_server() as (_, access):
            reflector = Reflector(Client(access), POD, lambda _: None, timing=WatchTiming(initial_wait_s=1.0, max_wait_s=30.0))
            waits = [reflector._backoff_s() for _ in range(12)]
            assert all(2**step / 2 <= wait <= 2**step for step, wait in enumerate(waits[:5]))
            assert all(15 <= wait <= 30 for wait in waits[5:])
            reflector._apply_lines([json.dumps(one).encode() for one in [*initial_events(at=11), bookmark(12)]], found=set())
            assert reflector._backoff_s() <= 1.0

    run_async(steps)


# --- What a cluster lacks -----------------------------------------------------------------------------------------------------


def test_a_resource_that_the_cluster_lacks_counts_as_synced_and_is_found_when_it_is_installed() -> None:
    async def steps() -> None:
        not_served = refuses_with(404, "NotFound")
        found = watches(
            {"type": "ADDED", "object": {**pod_object("q", 5), "kind": "Queue"}}, bookmark(11, ends_list=True), then="hangs"
        )
        async with (
            scripted_server(not_served, not_served, not_served, found) as (_, access),
            running_reflector(access, resource_of("scheduling.volcano.sh", "Queue")) as (reflector, recorder),
        ):
            await reflector.synced.wait()
            assert reflector.health.not_served
            assert (await recorder.until("upsert q 5"))[:2] == ["synced", "upsert q 5"]
            while reflector.health.not_served:
                await asyncio.sleep(0.001)

    run_async(steps)


def test_a_resource_is_looked_for_under_all_versions_that_we_can_read() -> None:
    async def steps() -> None:
        not_served = refuses_with(404, "NotFound")
        group = resource_of("scheduling.k8s.io", "PodGroup")
        async with (
            scripted_server(not_served, not_served, watches(*initial_events(at=11), then="hangs")) as (scripted, access),
            running_reflector(access, group) as (reflector, recorder),
        ):
            assert await recorder.until("synced") == ["synced"]
            assert [request.path.split("/")[3] for request in scripted.requests] == list(group.versions)
            assert not reflector.health.not_served

    run_async(steps)


def test_the_objects_of_a_resource_that_was_removed_are_deleted() -> None:
    async def steps() -> None:
        queue = resource_of("scheduling.volcano.sh", "Queue")
        first = watches({"type": "ADDED", "object": {**pod_object("q", 5), "kind": "Queue"}}, bookmark(11, ends_list=True))
        async with (
            scripted_server(first, refuses_with(404), refuses_with(404)) as (_, access),
            running_reflector(access, queue) as (_, recorder),
        ):
            await recorder.until("synced")
            assert await recorder.until("synced") == ["delete q 5", "synced"]

    run_async(steps)


def test_pods_that_are_not_found_are_not_taken_for_deleted() -> None:
    async def steps() -> None:
        first, again = watches(*initial_events(("a", 5), at=11)), watches(*initial_events(("a", 5), ("b", 6), at=12), then="hangs")
        async with scripted_server(first, refuses_with(404), again) as (_, access), running_reflector(access) as (_, recorder):
            await recorder.until("synced")
            assert await recorder.until("synced") == ["upsert b 6", "synced"]

    run_async(steps)


def test_a_resource_that_we_may_not_read_counts_as_synced_and_what_was_known_of_it_stays() -> None:
    async def steps() -> None:
        refused = refuses_with(403, "Forbidden", "no")
        first = watches(*initial_events(("a", 5), at=11))
        async with (
            scripted_server(refused, refused, first, refused, watches(event("DELETED", "a", 12), then="hangs")) as (_, access),
            running_reflector(access) as (reflector, recorder),
        ):
            await reflector.synced.wait()
            assert reflector.health.forbidden
            assert await recorder.until("delete a 12") == ["synced", "upsert a 5", "synced", "delete a 12"]

    run_async(steps)


# --- Strange objects ----------------------------------------------------------------------------------------------------------


def test_one_object_that_cannot_be_read_hides_no_other() -> None:
    async def steps() -> None:
        deep = b'{"type":"ADDED","object":{"metadata":{"name":"deep"},"spec":' + b"[" * 9000 + b"]" * 9000 + b"}}\n"
        odd = b'{"type":"ADDED","object":{"metadata":{"name":7}}}\n{"type":\n'
        whole = [json.dumps(one).encode() + b"\n" for one in initial_events(("a", 5), at=11)]
        async with (
            scripted_server(streams(deep, odd, *whole, then="hangs")) as (_, access),
            running_reflector(access) as (_, recorder),
        ):
            assert await recorder.until("synced") == ["upsert a 5", "synced"]
        listed = items(pod_object("a", 5), at=11)
        listed["items"].append({"metadata": {"name": 7}})
        async with (
            scripted_server(refuses_with(422), replies_with(200, listed)) as (_, access),
            running_reflector(access) as (_, recorder),
        ):
            assert await recorder.until("synced") == ["upsert a 5", "synced"]

    run_async(steps)


def test_an_object_of_many_megabytes_is_one_object() -> None:
    async def steps() -> None:
        huge = event("ADDED", "huge", 5, note="x" * 5_000_000)
        async with (
            scripted_server(watches(huge, *initial_events(at=11), then="hangs")) as (_, access),
            running_reflector(access) as (_, recorder),
        ):
            while len(recorder.updates) < 2:
                await asyncio.sleep(0.001)
            assert json.loads(recorder.updates[0].raw) == huge["object"]

    run_async(steps)


# --- The table of resources ---------------------------------------------------------------------------------------------------


def test_what_is_watched_is_what_the_simulator_keeps_in_the_same_order() -> None:
    kinds = [kind for kind in KINDS if kind[1] != "Lease"]
    assert [resource.key for resource in WATCHED] == kinds
    assert [resource.namespaced for resource in WATCHED] == [is_namespaced(kind) for kind in kinds]


def test_paths() -> None:
    queue = resource_of("scheduling.volcano.sh", "Queue")
    assert POD.path("v1") == "/api/v1/pods"
    assert POD.path("v1", namespace="a", name="b", subresource="binding") == "/api/v1/namespaces/a/pods/b/binding"
    assert queue.path("v1beta1", namespace="a", name="q") == "/apis/scheduling.volcano.sh/v1beta1/queues/q"


# --- A real server ------------------------------------------------------------------------------------------------------------


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "none"}]}}


PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"


def test_a_real_server_serves_what_kubernetes_has_and_not_what_is_not_installed(servers: Servers) -> None:
    async def steps() -> None:
        client = Client(await read_access(servers.kubeconfig()))
        served = await discover_versions(client)
        await client.close()
        assert served["", "Pod"] == served["policy", "PodDisruptionBudget"] == "v1"
        assert served["scheduling.k8s.io", "PodGroup"] == "v1alpha2"
        assert ("scheduling.volcano.sh", "Queue") not in served
        assert all(resource.key in served for resource in WATCHED if not resource.optional)

    run_async(steps)


@pytest.mark.parametrize("by_watch", [True, False], ids=["by watch", "by pages"])
def test_all_that_happens_on_a_real_server_is_reported(servers: Servers, by_watch: bool) -> None:
    async def steps() -> None:
        access = await read_access(servers.kubeconfig())
        client = Client(access)
        for name in ("a", "b", "c"):
            await client.request("POST", PODS, body=pod(name))
        async with running_reflector(access) as (reflector, recorder):
            reflector._supports_watch_list = by_watch
            await reflector.synced.wait()
            listed = recorder.updates[:]
            assert sorted(json.loads(update.raw)["metadata"]["name"] for update in listed[:-1]) == ["a", "b", "c"]
            assert all(json.loads(update.raw)["apiVersion"] == "v1" for update in listed[:-1])
            assert listed[-1].update_type is UpdateType.SYNCED
            recorder.updates.clear()
            patched = await client.request("PATCH", PODS + "/a", body={"metadata": {"labels": {"x": "y"}}}, content_type=MERGE)
            await client.request("DELETE", PODS + "/b", params={"gracePeriodSeconds": "0"})
            version = json.loads(patched)["metadata"]["resourceVersion"]
            while not any(update.update_type is UpdateType.DELETE for update in recorder.updates):
                await asyncio.sleep(0.01)
            assert recorder.notice_lines[0] == f"upsert a {version}"
            assert recorder.notice_lines[-1].startswith("delete b ")
        await client.close()

    run_async(steps)


THING = ApiResource("lab.muster.dev", "Thing", "things", ("v2", "v1"), namespaced=True, optional=True)
KIND_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(resource: ApiResource, version: str) -> dict[str, Any]:
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

    async def steps() -> None:
        access = await read_access(servers.kubeconfig())
        client = Client(access)
        folder = THING.path("v1", namespace="default")
        async with running_reflector(access, THING) as (reflector, recorder):
            assert await recorder.until("synced") == ["synced"]
            assert reflector.health.not_served
            await client.request("POST", KIND_PATH, body=definition(THING, "v1"))
            await recorder.until("synced")
            assert reflector.version == "v1"
            made = {name: await create(client, folder, name) for name in ("a", "b")}
            assert await recorder.until(f"upsert b {made['b']}") == [f"upsert a {made['a']}", f"upsert b {made['b']}"]
        await client.request("DELETE", f"{folder}/b")
        made["c"] = await create(client, folder, "c")
        async with running_reflector(access, THING) as (later, gap):
            later._objects, later.health.resource_version = reflector._objects, "1"
            notice_lines = await gap.until("synced")
            assert sorted(notice_lines) == [f"delete b {made['b']}", "synced", f"upsert c {made['c']}"]
            await client.request("DELETE", f"{KIND_PATH}/things.lab.muster.dev")
            while later._objects.known:
                await asyncio.sleep(0.01)
            assert {said.split()[1] for said in gap.notice_lines if said.startswith("delete")} == {"a", "c"}
        await client.close()

    run_async(steps)


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


def test_a_reader_without_rights_gets_an_error_from_a_real_server(servers: Servers) -> None:
    async def steps() -> None:
        access = await read_access(servers.kubeconfig("stranger"))
        async with running_reflector(access) as (reflector, recorder):
            assert await recorder.until("synced") == ["synced"]
            assert reflector.health.forbidden

    run_async(steps)
