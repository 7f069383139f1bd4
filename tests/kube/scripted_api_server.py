"""A small server that plays a script: what a real API server seldom does, such as to cut a watch in the middle of a line.

Each request is answered by the next act. Once they are used up, requests hang until the test is over.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from muster.kube.watch.access import Access

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScriptedServer:
    """`requests` are the requests so far."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[web.Request] = []
        self.over = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if not self.replies:
            await self.over.wait()
            return web.Response(status=503)
        return await self.replies.pop(0)(request)

    def queries(self, name: str) -> list[str | None]:
        return [request.query.get(name) for request in self.requests]


@asynccontextmanager
async def scripted_server(*replies: Reply) -> AsyncIterator[tuple[ScriptedServer, Access]]:
    scripted = ScriptedServer(*replies)
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", scripted.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield scripted, Access(f"http://127.0.0.1:{port}")
    finally:
        scripted.over.set()
        await runner.cleanup()


def replies_with(status: int = 200, body: object = None, **headers: str) -> Reply:
    async def reply(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=json.dumps(body or {}).encode(), headers=named)

    return reply


def refuses_with(status: int, reason: str = "", message: str = "", **headers: str) -> Reply:
    return replies_with(status, {"kind": "Status", "code": status, "reason": reason, "message": message}, **headers)


def hangs() -> Reply:
    async def reply(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    return reply


def streams(*pieces: bytes, then: str = "ends") -> Reply:
    """A watch that sends these bytes. `then` it ends, hangs, or is cut."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            # Each piece goes out alone, so that the client sees the seams.
            await asyncio.sleep(0)
        if then == "hangs":
            await asyncio.Event().wait()
        if then == "cut":
            assert request.transport is not None
            request.transport.abort()
        return response

    return reply


def watches(*events: Mapping[str, Any], then: str = "ends") -> Reply:
    return streams(*(json.dumps(event).encode() + b"\n" for event in events), then=then)


def pod_object(name: str, version: int, *, uid: str = "", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, **more}


def event(what: str, name: str, version: int, **more: Any) -> dict[str, Any]:
    return {"type": what, "object": pod_object(name, version, **more)}


def bookmark(version: int, *, ends_list: bool = False) -> dict[str, Any]:
    notes = {"k8s.io/initial-events-end": "true"} if ends_list else {}
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": str(version), "annotations": notes}}}


def expired() -> dict[str, Any]:
    return {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
