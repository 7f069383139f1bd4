"""A small API server of pods with a memory, which answers oddly when told to: it does something and says that it failed, says
nothing at all, or finds that somebody else was faster. What it was asked is written down.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from tests.kube_write.watch_updates import watch_update

from muster.kube.read.object_references import NODE, POD
from muster.kube.watch.access import Access
from muster.kube.write.merge_patch import merged
from muster.kube.write.write_cache import WriteCache

Manifest = dict[str, Any]
PLANS = "/apis/muster.dev/v1alpha1/namespaces/kube-system/plans"


@dataclass(frozen=True)
class InjectedFault:
    """What happens to a request. `applied`: it is done all the same; status 0: nobody answers. `meanwhile` somebody else acts."""

    status: int = 0
    applied: bool = False
    details: Manifest = field(default_factory=dict)
    message: str = "odd"
    meanwhile: Callable[["FaultyServer"], None] = lambda _: None
    retry_after: str = ""


class FaultyServer:
    def __init__(self) -> None:
        self.pods: dict[str, Manifest] = {}
        self.plans: dict[str, Manifest] = {}
        self.requests: list[str] = []
        """Each request as verb and name, such as `bind a`."""
        self.faults: dict[str, list[InjectedFault]] = {}
        """By the request that they befall, the next one first."""
        self.made = 0
        self.over = asyncio.Event()

    def add(self, name: str, **spec: Any) -> Manifest:
        self.made += 1
        metadata = {"name": name, "namespace": "default", "uid": f"{name}-{self.made}", "resourceVersion": "", "annotations": {}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        return self.put(name, pod)

    def put(self, name: str, pod: Manifest) -> Manifest:
        self.made += 1
        self.pods[name] = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(self.made)}}
        return self.pods[name]

    def change(self, name: str, patch: Manifest) -> Manifest:
        return self.put(name, dict(merged(self.pods[name], patch)))

    def fill_cache(self, cache: WriteCache) -> None:
        """Let a mirror see all there is, and a few nodes."""
        for pod in self.pods.values():
            cache.apply_watch(watch_update(POD, pod))
        for name in ("n1", "n2"):
            node = {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}}
            cache.apply_watch(watch_update(NODE, node))

    # -- answering -------------------------------------------------------------------------------------------------------------

    async def answer(self, request: web.Request) -> web.StreamResponse:
        name, verb = request.match_info["name"], _verb(request)
        body = json.loads(await request.read() or b"{}")
        self.requests.append(f"{verb} {name}")
        inject = next(iter(self.faults.get(f"{verb} {name}", ())), None)
        if inject is None:
            return self._done(verb, name, body)
        self.faults[f"{verb} {name}"].pop(0)
        inject.meanwhile(self)
        if inject.applied:
            self._done(verb, name, body)
        if not inject.status:
            await self.over.wait()
        return _refusal(inject.status, inject.message, details=inject.details, retry_after=inject.retry_after)

    async def answer_plan(self, request: web.Request) -> web.StreamResponse:
        """A request for a Plan, all of which the tests call `plan`."""
        name, verb, body = request.match_info["name"].strip("/"), request.method.lower(), json.loads(await request.read() or b"{}")
        self.requests.append(f"{verb} plan")
        if faults := self.faults.get(f"{verb} plan"):
            if not (fault := faults.pop(0)).status:
                await self.over.wait()
            return _refusal(fault.status, fault.message)
        name = name or body["metadata"]["name"]
        if (verb == "post") == (name in self.plans):
            return _refusal(409 if verb == "post" else 404, f"plan {name}")
        plan = self.plans.get(name, {"metadata": {"name": name, "uid": "uid-plan"}})
        plan = dict(merged(plan, {key: value for key, value in body.items() if key == "spec"}))
        version = int(plan["metadata"].get("resourceVersion", 0)) + 1
        plan["metadata"] = {**plan["metadata"], "resourceVersion": str(version)}
        self.plans[name] = plan
        if verb == "delete":
            del self.plans[name]
        return web.json_response(plan)

    def _done(self, verb: str, name: str, body: Manifest) -> web.Response:
        pod = self.pods.get(name)
        if pod is None:
            return _refusal(404, f'pods "{name}" not found', details={"name": name})
        if why := _conflict(verb, pod, body):
            return _refusal(409, why)
        if verb == "bind":
            notes = body["metadata"].get("annotations") or {}
            self.change(name, {"spec": {"nodeName": body["target"]["name"]}, "metadata": {"annotations": notes}})
        elif verb == "patch":
            body["metadata"].pop("resourceVersion", None)
            if "conditions" in body.get("status", {}):
                body["status"]["conditions"] = _by_type(pod["status"].get("conditions", []), body["status"]["conditions"])
            self.change(name, body)
        elif verb in ("evict", "delete"):
            self.change(name, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        return web.json_response(self.pods[name])


def _verb(request: web.Request) -> str:
    sub = request.match_info.get("sub", "")
    return {"binding": "bind", "eviction": "evict"}.get(sub, request.method.lower())


def _conflict(verb: str, pod: Manifest, body: Manifest) -> str:
    wanted = body.get("metadata", {}) if verb in ("bind", "patch") else {}
    options = body.get("deleteOptions", body) if verb in ("evict", "delete") else {}
    uid = wanted.get("uid") or options.get("preconditions", {}).get("uid")
    if uid and uid != pod["metadata"]["uid"]:
        return "the UID in the precondition is another one"
    if wanted.get("resourceVersion", pod["metadata"]["resourceVersion"]) != pod["metadata"]["resourceVersion"]:
        return "the object has been modified"
    return "pod is already assigned to a node" if verb == "bind" and pod["spec"].get("nodeName") else ""


def _by_type(old: list[Manifest], new: list[Manifest]) -> list[Manifest]:
    return list(({one["type"]: one for one in old} | {one["type"]: one for one in new}).values())


def _refusal(status: int, message: str, *, details: Manifest | None = None, retry_after: str = "") -> web.Response:
    said = {"kind": "Status", "code": status, "message": message, "details": details or {}}
    return web.json_response(said, status=status, headers={"Retry-After": retry_after} if retry_after else {})


@asynccontextmanager
async def faulty_server() -> AsyncIterator[tuple[FaultyServer, Access]]:
    server = FaultyServer()
    app = web.Application()
    for tail in ("", "/{sub}"):
        app.router.add_route("*", "/api/v1/namespaces/default/pods/{name}" + tail, server.answer)
    app.router.add_route("*", PLANS + "{name:/?[^/]*}", server.answer_plan)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield server, Access(f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        server.over.set()
        await runner.cleanup()
