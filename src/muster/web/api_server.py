"""The HTTP routes of the API and the page: read-only, versioned, described by `static/openapi.json`.

It shares aiohttp with the probes, which have it for the client of the API server; a server of threads would need one for each
reader that is slow. Each response is one of the views that are kept as bytes, so a slow reader delays nobody.
"""

from __future__ import annotations

import asyncio
import gzip
import math
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Final

import msgspec
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from muster.kube.watch.client import ApiError
from muster.model.gang import Stage
from muster.model.printable_text import printable_json
from muster.web.api_access import ApiAccess, Denied, Reader
from muster.web.cluster_view import PARTS, ClusterView, JsonRow
from muster.web.dry_runs import MAX_JOB_BYTES, OK, DryRunAnswer, DryRuns
from muster.web.view_source import NotReady, ViewSource
from muster.web.visibility import hidden_names, is_visible, named_namespaces, visible_answer, visible_entries, visible_view

API_VERSION: Final = 1
API: Final = "/api/v1"
MAX_STREAMS: Final = 100
_POLL_S = 1.0
_KEEPALIVE_S = 15.0
_MIN_GZIP_BYTES = 2000
_SEND_TIMEOUT_S = 20.0
_BODY_TIMEOUT_S = 20.0
_MAX_SHOWN = 20
_MAX_NAMED = 20
"""Namespaces in one error of which is asked whether they may be seen."""
STARTS_INTERVAL_S: Final = 30.0
"""For so long expected starts are not worked out anew."""
_MAX_STREAM_S = 600.0
"""A reader that follows for longer connects again, and is asked again who she is."""
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SCRIPTS: Final = (
    *("text.js", "data.js", "map.js", "rows.js", "answers.js"),
    *("cluster_view.js", "gang_views.js", "eviction_view.js", "plan_view.js", "app.js"),
)
"""In the order in which they are read."""
_PAGE_FILES: Final = {"index.html": "text/html", "style.css": "text/css", **dict.fromkeys(SCRIPTS, "text/javascript")}
_GANG_FILTERS: Final = ("namespace", "queue", "stage")


def static_text(name: str) -> str:
    return files("muster.web").joinpath("static", name).read_text(encoding="utf-8")


class ApiServer:
    """`add_routes` may be called for several servers, each with its own access."""

    def __init__(self, source: ViewSource, dry_runs: DryRuns) -> None:
        self._source = source
        self._dry_runs = dry_runs
        self._streams = 0
        self._starts: tuple[float, DryRunAnswer] | None = None
        self._asking_starts = asyncio.Lock()
        self._shown_of: ClusterView | None = None
        self._shown: dict[frozenset[str], ClusterView] = {}

    def close(self) -> None:
        self._dry_runs.close()

    def add_routes(self, app: web.Application, access: ApiAccess) -> None:
        routes = _Routes(self, access)
        app.middlewares.append(_errors_as_json)
        app.router.add_get("/", _page_file("index.html"))
        for name in _PAGE_FILES:
            app.router.add_get(f"/{name}", _page_file(name))
        app.router.add_get(f"{API}/openapi.json", _open_api)
        for part in (*PARTS, "cluster"):
            app.router.add_get(f"{API}/{part}", routes.answering(partial(self._part, part)))
        app.router.add_get(f"{API}/gangs/{{namespace}}/{{name}}", routes.answering(self._gang))
        app.router.add_get(f"{API}/why/{{namespace}}/{{name}}", routes.answering(self._why))
        app.router.add_get(f"{API}/starts", routes.answering(self._expected_starts))
        app.router.add_post(f"{API}/plan", routes.answering(self._plan))
        app.router.add_get(f"{API}/events", routes.answering(self._events))

    async def view(self, request: web.Request) -> ClusterView:
        at = request.query.get("at", "")
        try:
            time_s = float(at) if at else None
        except ValueError:
            time_s = math.nan
        if time_s is not None and not math.isfinite(time_s):
            raise _Refused(400, f"at={at!r} is no time in seconds since 1970")
        return await self._source.view(time_s)

    async def _visible(self, view: ClusterView, sees: frozenset[str] | None) -> ClusterView:
        """Made once for all tenants who see the same."""
        if sees is None:
            return view
        if self._shown_of is not view or len(self._shown) >= _MAX_SHOWN:
            self._shown_of, self._shown = view, {}
        shown = self._shown
        if sees not in shown:
            shown[sees] = await asyncio.to_thread(visible_view, view, sees)
        return shown[sees]

    async def _part(self, part: str, request: web.Request, caller: _Caller) -> web.Response:
        view = await self._visible(await self.view(request), caller.sees)
        filters = {key: request.query[key] for key in _GANG_FILTERS if key in request.query} if part == "gangs" else {}
        if filters:
            return _json({**_head(view), "gangs": [row for row in view.gangs if _matches(row, filters)]})
        if part not in view.encoded:
            found = view.parts() if part == "cluster" else {part: getattr(view, part)}
            view.encoded[part] = await asyncio.to_thread(_encode, {**_head(view), **found})
        return await _send(request, view, part)

    async def _gang(self, request: web.Request, caller: _Caller) -> web.Response:
        name, view = _gang_name(request), await self.view(request)
        row = next((row for row in view.gangs if row["gang"] == name), None)
        if row is None or not is_visible(name, caller.sees):
            raise _Refused(404, f"there is no gang {name} in the cluster")
        hide = hidden_names(view, caller.sees)
        history = visible_entries(self._source.entries(name), caller.sees, hide)
        # Roles of one gang may lie in several namespaces.
        members = [each for each in view.members(name) if is_visible(each["pod"], caller.sees)]
        return _json({**_head(view), "gang": {**row, "why": hide(row["why"])}, "members": members, "history": history})

    async def _why(self, request: web.Request, caller: _Caller) -> web.Response:
        name = _gang_name(request)
        if not is_visible(name, caller.sees):
            raise _Refused(404, f"there is no gang {name} in the cluster")
        return await self._ask({"ask": "why", "gang": name, "outlook": _wants_outlook(request)}, request, caller)

    async def _plan(self, request: web.Request, caller: _Caller) -> web.Response:
        try:
            text = (await _body(request)).decode()
        except UnicodeDecodeError:
            raise _Refused(400, "a job is a manifest in YAML or JSON, in UTF-8") from None
        namespace = request.query.get("namespace", "")
        return await self._ask(
            {"ask": "plan", "job": text, "namespace": namespace, "outlook": _wants_outlook(request)}, request, caller
        )

    async def _ask(self, question: JsonRow, request: web.Request, caller: _Caller) -> web.Response:
        answer = await self._dry_runs.ask(question, self._source.question_state)
        sees, view = caller.sees, await self.view(request)
        error = str(answer.body.get("error", ""))
        planned = {row["gang"].partition("/")[0] for row in answer.body.get("gangs", [])}
        # Her namespace may have had no gang so far.
        if asked := planned or set(sorted(named_namespaces(error))[:_MAX_NAMED]):
            sees = await caller.reader.visible(partial(_as_they_are, asked | (sees or set())))
        hidden = hidden_names(view, sees)
        if answer.status != OK:
            raise _Refused(answer.status, hidden(error))
        if sees is not None and planned - sees:
            raise _Refused(403, "this job is in a namespace whose pods you may not list")
        return _json({"apiVersion": API_VERSION, **visible_answer(answer.body, sees, hidden)})

    async def _expected_starts(self, _: web.Request, caller: _Caller) -> web.Response:
        """Worked out once for all readers, and only where somebody asks."""
        async with self._asking_starts:
            if self._starts is None or time.monotonic() >= self._starts[0]:
                answer = await self._dry_runs.ask({"ask": "starts"}, self._source.question_state)
                if answer.status != OK:
                    raise _Refused(answer.status, str(answer.body.get("error", "")))
                self._starts = (time.monotonic() + STARTS_INTERVAL_S, answer)
            body = self._starts[1].body
        rows = [row for row in body["starts"] if is_visible(row["gang"], caller.sees)]
        return _json({"apiVersion": API_VERSION, **body, "starts": rows})

    async def _events(self, request: web.Request, caller: _Caller) -> web.StreamResponse:
        """One event whenever there is a newer view. A reader that is slow gets fewer of them."""
        if self._streams >= MAX_STREAMS:
            raise _Refused(429, f"{MAX_STREAMS} readers follow already")
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        self._streams += 1
        try:
            await self._follow(request, response, caller)
        except (ConnectionError, TimeoutError, NotReady, Denied, ApiError):
            pass
        finally:
            self._streams -= 1
        return response

    async def _follow(self, request: web.Request, response: web.StreamResponse, caller: _Caller) -> None:
        sent, silent_s, until = -1, 0.0, time.monotonic() + _MAX_STREAM_S
        while time.monotonic() < until:
            line = b""
            view = await self.view(request)
            # There are more cycles than views of them.
            if view.cycle != sent:
                sent, line = view.cycle, b"event: cycle\ndata: " + _encode({**_head(view), "summary": view.summary}) + b"\n\n"
            elif silent_s >= _KEEPALIVE_S:
                line = b": nothing new\n\n"
            if line:
                silent_s = 0.0
                # Her token may have ended since.
                await caller.identify()
                async with asyncio.timeout(_SEND_TIMEOUT_S):
                    await response.write(line)
            await asyncio.sleep(_POLL_S)
            silent_s += _POLL_S


@dataclass(frozen=True, slots=True)
class _Caller:
    """Who asks, and the namespaces that she may see; None: all. `identify` asks again who she is, and raises Denied."""

    reader: Reader
    sees: frozenset[str] | None
    identify: Callable[[], Awaitable[Reader]]


class _Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Routes:
    """Asks who is there before anything is answered."""

    def __init__(self, server: ApiServer, access: ApiAccess) -> None:
        self._server = server
        self._access = access

    def answering(self, answer: Callable[[web.Request, _Caller], Awaitable[web.StreamResponse]]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                _refuse_other_sites(request)
                _refuse_unknown_parameters(request)
                return await answer(request, await self._caller(request))
            except NotReady as error:
                return _json({"error": str(error)}, status=503)
            except (Denied, _Refused) as error:
                return _json({"error": str(error)}, status=error.status)
            except ApiError as error:
                return _json({"error": f"the API server did not say who you are: {error}"}, status=503)

        return handle

    async def _caller(self, request: web.Request) -> _Caller:
        scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        bearer = token.strip() if scheme.lower() == "bearer" else ""
        identify = partial(self._access.reader, remote=request.remote or "", host=request.host, token=bearer)
        reader = await identify()

        async def namespaces() -> set[str]:
            asked = request.match_info.get("namespace", "")
            return {asked} if asked else {row["gang"].partition("/")[0] for row in (await self._server.view(request)).gangs}

        return _Caller(reader, await reader.visible(namespaces), identify)


def _refuse_other_sites(request: web.Request) -> None:
    """A browser says from where its user's page asks; programs say nothing."""
    origin = request.headers.get(hdrs.ORIGIN)
    same = request.headers.get("Sec-Fetch-Site", "none") in ("same-origin", "none")
    if not same or (origin is not None and origin.partition("://")[2] != request.host):
        raise _Refused(403, "a page of another site may not ask this")


def _refuse_unknown_parameters(request: web.Request) -> None:
    """A filter with a slip in its name or value would look as if it had found nothing, or everything."""
    resource = request.match_info.route.resource
    method = hdrs.METH_GET if request.method == hdrs.METH_HEAD else request.method
    known = _parameters().get((resource.canonical if resource else "", method), ())
    for name in request.query:
        if name not in known:
            raise _Refused(400, f"there is no parameter {name!r} here; known: {', '.join(known) or 'none'}")
        if len(request.query.getall(name)) > 1:
            raise _Refused(400, f"{name} is given twice")
    stages = [each.value for each in Stage]
    if (stage := request.query.get("stage")) is not None and stage not in stages:
        raise _Refused(400, f"there is no stage {stage!r}; known: {', '.join(stages)}")


@cache
def _parameters() -> dict[tuple[str, str], tuple[str, ...]]:
    """Of each path and method, as they are described."""
    paths: dict[str, dict[str, JsonRow]] = msgspec.json.decode(static_text("openapi.json"))["paths"]
    return {
        (path, method.upper()): tuple(each["name"] for each in described.get("parameters", ()) if each["in"] == "query")
        for path, methods in paths.items()
        for method, described in methods.items()
    }


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Paths and methods that do not exist: whoever reads JSON reads that, too."""
    try:
        return await handler(request)
    except web.HTTPClientError as error:
        if not request.path.startswith("/api"):
            raise
        what = (
            f"{request.method} is not allowed here"
            if error.status == 405
            else f"there is no {request.path}; see {API}/openapi.json"
        )
        answer = _json({"error": what}, status=error.status)
        if hdrs.ALLOW in error.headers:
            answer.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
        return answer


async def _body(request: web.Request) -> bytes:
    """All of it, within a time: it may come in pieces, and be larger than it says."""
    too_large = _Refused(413, f"a job has at most {MAX_JOB_BYTES} bytes")
    if (request.content_length or 0) > MAX_JOB_BYTES:
        raise too_large
    found = bytearray()
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            async for chunk in request.content.iter_any():
                found += chunk
                if len(found) > MAX_JOB_BYTES:
                    raise too_large
    except TimeoutError:
        raise _Refused(408, f"the job did not arrive within {_BODY_TIMEOUT_S:g} s") from None
    return bytes(found)


def _wants_outlook(request: web.Request) -> bool:
    outlook = request.query.get("outlook", "false")
    if outlook not in ("true", "false"):
        raise _Refused(400, f"outlook={outlook!r} is neither true nor false")
    return outlook == "true"


def _page_file(name: str) -> Handler:
    """The page itself tells nothing: everybody may have it."""

    async def handle(_: web.Request) -> web.Response:
        return web.Response(text=static_text(name), content_type=_PAGE_FILES[name], headers=_HEADERS)

    return handle


async def _open_api(_: web.Request) -> web.Response:
    return web.Response(text=static_text("openapi.json"), content_type="application/json", headers=_HEADERS)


def _gang_name(request: web.Request) -> str:
    return f"{request.match_info['namespace']}/{request.match_info['name']}"


def _matches(row: JsonRow, filters: dict[str, str]) -> bool:
    namespace, queue = row["gang"].partition("/")[0], row["queue"]
    values = {"namespace": (namespace,), "queue": (queue, queue.partition("/")[2]), "stage": (row["stage"],)}
    return all(wanted in values[key] for key, wanted in filters.items())


def _head(view: ClusterView) -> JsonRow:
    return {"apiVersion": API_VERSION, "cycle": view.cycle, "time": view.time}


def _encode(document: JsonRow) -> bytes:
    return printable_json(msgspec.json.encode(document))


async def _send(request: web.Request, view: ClusterView, part: str) -> web.Response:
    """Compressed once for all readers."""
    body, headers = view.encoded[part], {**_HEADERS, "Content-Type": "application/json"}
    if len(body) >= _MIN_GZIP_BYTES and "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
        if f"{part} gzip" not in view.encoded:
            view.encoded[f"{part} gzip"] = await asyncio.to_thread(gzip.compress, body, 3)
        body, headers = view.encoded[f"{part} gzip"], {**headers, "Content-Encoding": "gzip"}
    return web.Response(body=body, headers=headers)


def _json(document: JsonRow, *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=_encode(document), content_type="application/json", headers=_HEADERS)


async def _as_they_are(namespaces: Collection[str]) -> Collection[str]:
    return namespaces
