"""The client of the API server: what it repeats, what it bounds, and what it says when it fails."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiohttp import web
from tests.kube.scripted_api_server import hangs, refuses_with, replies_with, scripted_server, streams

from muster.kube.watch.access import Access, Credentials, read_access
from muster.kube.watch.client import LEASE_EXPIRED, ApiError, Client, resource_of_path
from muster.lab.servers import Servers

NODES = "/api/v1/nodes"


def run_async(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), timeout=300))


# --- Answers ----------------------------------------------------------------------------------------------------------------------


def test_a_busy_server_is_retried_when_it_says() -> None:
    async def steps() -> None:
        busy = refuses_with(429, "TooManyRequests", Retry_After="0")
        async with scripted_server(busy, busy, replies_with(200, {"ok": True})) as (scripted, access):
            client = Client(access)
            assert await client.request("GET", NODES) == b'{"ok": true}'
            assert len(scripted.requests) == 3
            await client.close()

    run_async(steps)


def test_a_busy_server_is_not_retried_for_ever() -> None:
    async def steps() -> None:
        async with scripted_server(*[refuses_with(429, Retry_After="0")] * 20) as (scripted, access):
            client = Client(access)
            with pytest.raises(ApiError) as refused:
                await client.request("GET", NODES)
            assert refused.value.status == 429
            assert len(scripted.requests) == 5
            await client.close()

    run_async(steps)


def test_an_eviction_that_a_budget_refuses_is_reported_at_once_with_when_to_retry() -> None:
    async def steps() -> None:
        details = {"causes": [{"reason": "DisruptionBudget", "message": "needs 2"}]}
        body = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "no", "details": details}
        async with scripted_server(replies_with(429, body, Retry_After="10")) as (scripted, access):
            client = Client(access)
            with pytest.raises(ApiError) as refused:
                await client.request("POST", "/api/v1/namespaces/a/pods/b/eviction", body={}, retry_throttled=False)
            assert (refused.value.retry_after_s, refused.value.details) == (10.0, details)
            assert len(scripted.requests) == 1
            await client.close()

    run_async(steps)


def test_a_refusal_carries_the_message_of_the_server() -> None:
    async def steps() -> None:
        async with scripted_server(refuses_with(409, "Conflict", "the object has been modified"), replies_with(502)) as (_, access):
            client = Client(access)
            with pytest.raises(ApiError, match="409 Conflict: the object has been modified"):
                await client.request("PATCH", NODES + "/a", body={}, content_type="application/merge-patch+json")
            with pytest.raises(ApiError, match="502 Bad Gateway"):
                await client.request("GET", NODES)
            await client.close()

    run_async(steps)


def test_no_answer_is_an_error_of_status_zero() -> None:
    async def steps() -> None:
        async with scripted_server(hangs()) as (_, access):
            client = Client(access, timeout_s=0.1)
            with pytest.raises(ApiError, match="no response") as late:
                await client.request("GET", NODES)
            assert late.value.status == 0
            await client.close()
        client = Client(access)
        with pytest.raises(ApiError, match="GET /api/v1/nodes") as away:
            await client.request("GET", NODES)
        assert away.value.status == 0
        await client.close()

    run_async(steps)


def test_an_answer_that_breaks_off_is_an_error_and_not_half_an_answer() -> None:
    async def steps() -> None:
        async with scripted_server(streams(b'{"items": [', then="cut")) as (_, access):
            client = Client(access)
            with pytest.raises(ApiError) as cut:
                await client.request("GET", NODES)
            assert cut.value.status == 0
            await client.close()

    run_async(steps)


def test_every_exchange_is_observed() -> None:
    async def steps() -> None:
        seen: list[tuple[str, str, int]] = []
        async with scripted_server(replies_with(201), refuses_with(404), streams(b"{}\n")) as (_, access):
            client = Client(access, observe=lambda method, kind, status, _: seen.append((method, kind, status)))
            await client.request("POST", "/api/v1/namespaces/a/pods/b/binding", body={"target": {}})
            with pytest.raises(ApiError):
                await client.request("GET", "/apis/scheduling.volcano.sh/v1beta1/namespaces/a/podgroups/b")
            async for _lines in client.watch_batches(NODES, params={"watch": "true"}):
                pass
            await client.close()
        assert seen == [("POST", "pods/binding", 201), ("GET", "podgroups.scheduling.volcano.sh", 404), ("WATCH", "nodes", 200)]

    run_async(steps)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api/v1/namespaces", "namespaces"),
        ("/api/v1/namespaces/a", "namespaces"),
        ("/api/v1/namespaces/a/status", "namespaces/status"),
        ("/api/v1/namespaces/a/pods/b", "pods"),
        ("/api/v1/nodes/b/status", "nodes/status"),
        ("/apis/policy/v1/poddisruptionbudgets", "poddisruptionbudgets.policy"),
        ("/apis/scheduling.volcano.sh/v1beta1/queues/q/status", "queues.scheduling.volcano.sh/status"),
        ("/apis/policy/v1", "apis/policy/v1"),
        ("/readyz", "readyz"),
    ],
)
def test_a_path_is_counted_by_what_it_is_about(path: str, kind: str) -> None:
    assert resource_of_path(path) == kind


# --- Bounds -----------------------------------------------------------------------------------------------------------------------


def test_no_more_requests_are_under_way_than_allowed() -> None:
    async def steps() -> None:
        under_way, most = 0, 0

        async def slow(_: web.Request) -> web.StreamResponse:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.01)
            under_way -= 1
            return web.Response()

        async with scripted_server(*[slow] * 30) as (_, access):
            client = Client(access, concurrency=3)
            await asyncio.gather(*(client.request("GET", NODES) for _ in range(30)))
            await client.close()
        assert most == 3

    run_async(steps)


def test_a_write_carries_its_timeout() -> None:
    async def steps() -> None:
        async with scripted_server(replies_with(), replies_with()) as (scripted, access):
            client = Client(access)
            await client.request("POST", NODES, body={}, timeout_s=2.5)
            await client.request("GET", NODES, timeout_s=2.5)
            await client.close()
        assert scripted.queries("timeout") == ["2500ms", None]

    run_async(steps)


# --- The lease --------------------------------------------------------------------------------------------------------------------


def test_nothing_is_written_without_the_lease_and_all_may_be_read() -> None:
    async def steps() -> None:
        async with scripted_server(replies_with()) as (scripted, access):
            client = Client(access, may_write=lambda: False)
            with pytest.raises(ApiError) as refused:
                await client.request("DELETE", NODES + "/a")
            await client.request("GET", NODES)
            await client.close()
        assert refused.value.reason == LEASE_EXPIRED
        assert [request.method for request in scripted.requests] == ["GET"]

    run_async(steps)


def test_a_write_that_waited_in_line_until_the_lease_was_over_is_not_sent() -> None:
    async def steps() -> None:
        leads = True
        came, go_on = asyncio.Event(), asyncio.Event()

        async def slow(_: web.Request) -> web.StreamResponse:
            came.set()
            await go_on.wait()
            return web.Response()

        async with scripted_server(slow) as (scripted, access):
            client = Client(access, concurrency=1, may_write=lambda: leads)
            first = asyncio.create_task(client.request("POST", NODES, body={}))
            second = asyncio.create_task(client.request("POST", NODES, body={}))
            await came.wait()
            leads = False
            go_on.set()
            await first
            with pytest.raises(ApiError, match="was not sent"):
                await second
            await client.close()
        assert len(scripted.requests) == 1

    run_async(steps)


# --- Credentials ------------------------------------------------------------------------------------------------------------------


def test_credentials_that_the_server_refuses_are_read_again_once_for_all_who_wait() -> None:
    async def steps() -> None:
        reads = 0

        async def reload() -> Credentials:
            nonlocal reads
            reads += 1
            return Credentials("Bearer new")

        async def guarded(request: web.Request) -> web.StreamResponse:
            return web.Response(status=200 if request.headers.get("Authorization") == "Bearer new" else 401)

        async with scripted_server(*[guarded] * 40) as (_, access):
            access.credentials, access.reload = Credentials("Bearer old"), reload
            client = Client(access)
            await asyncio.gather(*(client.request("GET", NODES) for _ in range(10)))
            await client.close()
        assert reads == 1

    run_async(steps)


def test_credentials_that_are_refused_though_they_are_new_are_an_error() -> None:
    async def steps() -> None:
        async def reload() -> Credentials:
            return Credentials("Bearer old")

        async with scripted_server(*[refuses_with(401, "Unauthorized")] * 4) as (scripted, access):
            access.reload = reload
            client = Client(access)
            with pytest.raises(ApiError, match="401 Unauthorized"):
                await client.request("GET", NODES)
            await client.close()
        assert len(scripted.requests) == 2

    run_async(steps)


# --- Streams ----------------------------------------------------------------------------------------------------------------------


async def lines_of(access: Access, *, idle_timeout_s: float = 10.0, min_bytes: int = 1) -> list[bytes]:
    client = Client(access)
    client.set_min_read_bytes(min_bytes)
    try:
        batches = client.watch_batches(NODES, params={"watch": "true"}, idle_timeout_s=idle_timeout_s)
        return [line async for lines in batches for line in lines]
    finally:
        await client.close()


def test_lines_are_whole_wherever_the_bytes_were_parted() -> None:
    async def steps() -> None:
        huge = b"x" * 3_000_000
        whole = b"\n".join([b"one", b"two", huge, b"", b"three"]) + b"\n"
        for size in (1_500_001, 700_003, 65_536):
            pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
            async with scripted_server(streams(*pieces)) as (_, access):
                assert await lines_of(access) == [b"one", b"two", huge, b"three"]
        async with scripted_server(streams(*(bytes([byte]) for byte in b"one\n\ntwo\nthree\n"))) as (_, access):
            assert await lines_of(access) == [b"one", b"two", b"three"]

    run_async(steps)


def test_half_a_line_at_the_end_is_no_line() -> None:
    async def steps() -> None:
        async with scripted_server(streams(b"one\ntw")) as (_, access):
            assert await lines_of(access) == [b"one"]

    run_async(steps)


def test_a_stream_that_falls_silent_or_is_cut_is_given_up() -> None:
    async def steps() -> None:
        for ending in ("hangs", "cut"):
            async with scripted_server(streams(b"one\n", then=ending)) as (_, access):
                with pytest.raises(ApiError) as broken:
                    await lines_of(access, idle_timeout_s=0.2)
                assert broken.value.status == 0

    run_async(steps)


def test_closing_a_watch_frees_the_connection() -> None:
    async def steps() -> None:
        async with scripted_server(streams(b"one\n", b"two\n", then="hangs"), replies_with()) as (_, access):
            client = Client(access)
            batches = client.watch_batches(NODES, params={"watch": "true"})
            assert await anext(batches)
            await batches.aclose()
            await client.request("GET", NODES)
            await client.close()

    run_async(steps)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets bytes wait until there are enough of them")
def test_a_watch_that_is_read_in_large_chunks_arrives_later_and_as_a_whole() -> None:
    async def steps() -> None:
        said = asyncio.Queue[bytes]()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"one\n"))
            while words := await said.get():
                writer.write(words)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        client = Client(Access(f"http://{host}:{port}"))
        batches = client.watch_batches(NODES, params={"watch": "true"})
        assert await anext(batches) == [b"one"]
        client.set_min_read_bytes(4096)
        heard = asyncio.ensure_future(anext(batches))
        for word in (b"two\n", b"three\n"):
            said.put_nowait(chunk(word))
            await asyncio.sleep(0.05)
        assert not heard.done()
        client.set_min_read_bytes(1)
        assert await heard == [b"two", b"three"]
        client.set_min_read_bytes(4096)
        said.put_nowait(chunk(b"x" * 5000 + b"\n") + chunk(b""))
        said.put_nowait(b"")
        assert [line async for lines in batches for line in lines] == [b"x" * 5000]
        # A connection that a watch leaves behind is one like any other.
        assert await client.request("GET", NODES, timeout_s=60.0) == b"{}"
        await client.close()
        server.close()
        await server.wait_closed()

    run_async(steps)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets bytes wait until there are enough of them")
def test_the_end_of_a_watch_arrives_however_little_came_before_it() -> None:
    async def steps() -> None:
        async with scripted_server(streams(b"one\n", b"two\n", then="cut")) as (_, access):
            with pytest.raises(ApiError):
                await asyncio.wait_for(lines_of(access, idle_timeout_s=60, min_bytes=2**16), timeout=50)

    run_async(steps)


# --- A real server ----------------------------------------------------------------------------------------------------------------


def test_a_real_server_is_reached_by_a_certificate_and_says_what_it_refuses(servers: Servers) -> None:
    async def steps() -> None:
        admin = Client(await read_access(servers.kubeconfig()))
        made = await admin.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "seen"}})
        assert b'"seen"' in made
        with pytest.raises(ApiError) as twice:
            await admin.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "seen"}})
        assert (twice.value.status, twice.value.reason) == (409, "AlreadyExists")
        await admin.close()
        stranger = Client(await read_access(servers.kubeconfig("stranger")))
        with pytest.raises(ApiError) as refused:
            await stranger.request("GET", "/api/v1/secrets")
        assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
        await stranger.close()

    run_async(steps)


def test_a_server_that_another_authority_signed_is_not_believed(servers: Servers) -> None:
    async def steps() -> None:
        access = await read_access(servers.kubeconfig())
        other = Client(Access(access.server))
        with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED") as unknown:
            await other.request("GET", "/version")
        assert unknown.value.status == 0
        await other.close()

    run_async(steps)
