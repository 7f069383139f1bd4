"""A client whose API server is the object store of the simulator. It responds at once or after a delay, and records writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import msgspec
from tests.harness.recording_client import as_write

from muster.kube.read.api_resources import WATCHED
from muster.kube.read.object_references import POD, VOLUME, VOLUME_CLAIM, ApiObjectRef
from muster.kube.watch.access import Access
from muster.kube.watch.client import ApiError, Client
from muster.kube.write import patch_bodies
from muster.kube.write.merge_patch import joined, merged
from muster.model.volume import VolumeChoice
from muster.sim import volume_controller
from muster.sim.executor import Write
from muster.sim.object_store import Conflict, NotFound, ObjectStore


class StoreClient(Client):
    """`on_write` is called after each write. `delays`: requests take a random time; without it they never suspend."""

    def __init__(self, store: ObjectStore, *, on_write: Callable[[], None], delays: Random | None = None) -> None:
        super().__init__(Access("http://store.invalid"))
        self.writes: list[Write] = []
        self._store = store
        self._on_write = on_write
        self._delays = delays

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,  # noqa: ARG002
        body: object | bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,  # noqa: ARG002
        retry_throttled: bool = True,  # noqa: ARG002
    ) -> bytes:
        if self._delays is not None:
            await asyncio.sleep(self._delays.uniform(0.0, 0.01))
        ref = _ref_of_path(path)
        sent: dict[str, Any] = msgspec.json.decode(body) if isinstance(body, bytes) else {}
        try:
            if method != "GET":
                write = as_write(method, path)
                if method == "POST" and not ref.name:
                    ref = ref._replace(name=sent["metadata"]["name"])
                    self._store.create(sent)
                else:
                    verb = method.lower() if write.verb == "save" else write.verb
                    self._write(verb, ref, sent, strategic="strategic" in content_type)
                self.writes.append(write._replace(kind=ref.kind, name=ref.full_name))
                self._on_write()
            if method == "DELETE" and write.verb == "save":
                return b"{}"
            return json.dumps(self._store.get(ref)).encode()
        except NotFound as error:
            raise ApiError(404, "NotFound", str(error)) from error
        except Conflict as error:
            raise ApiError(409, "Conflict", str(error)) from error

    def _write(self, verb: str, ref: ApiObjectRef, sent: dict[str, Any], *, strategic: bool) -> None:
        if verb == "bind":
            self._bind(ref, sent)
        elif verb == "patch":
            self._patch(ref, sent, strategic=strategic)
        else:
            options = sent.get("deleteOptions", sent)
            self._store.delete(ref, uid=options["preconditions"]["uid"])

    def _bind(self, ref: ApiObjectRef, binding: dict[str, Any]) -> None:
        pod = self._store.get(ref)
        scheduled = {"type": patch_bodies.POD_SCHEDULED, "status": patch_bodies.STATUS_TRUE}
        present = pod["status"].get("conditions", [])
        conditions = patch_bodies.conditions_patch([scheduled], present=present, now=0.0)
        patch = joined({"spec": {"nodeName": binding["target"]["name"]}, "status": {"nominatedNodeName": None}}, conditions)
        self._store.patch(ref, patch, uid=binding["metadata"]["uid"])

    def _patch(self, ref: ApiObjectRef, patch: dict[str, Any], *, strategic: bool) -> None:
        metadata = patch["metadata"]
        uid, version = metadata.pop("uid"), metadata.pop("resourceVersion", None)
        present = self._store.get(ref)
        if version not in (None, present["metadata"]["resourceVersion"]):
            raise Conflict(f"{ref.full_name} has another version")
        if strategic and "conditions" in patch.get("status", {}):
            by_type = {one["type"]: one for one in present.get("status", {}).get("conditions", [])}
            by_type |= {one["type"]: one for one in patch["status"]["conditions"]}
            patch["status"]["conditions"] = list(by_type.values())
        if merged(present, patch) is present:
            raise AssertionError(f"a patch of {ref.full_name} that changes nothing was sent")
        self._store.patch(ref, patch, uid=uid)
        if ref[:2] == VOLUME:
            claim = patch["spec"]["claimRef"]
            volume_controller.bind(self._store, VolumeChoice(f"{claim['namespace']}/{claim['name']}", ref.name))
        elif ref[:2] == VOLUME_CLAIM:
            volume_controller.bind(self._store, VolumeChoice(ref.full_name, ""))


def _ref_of_path(path: str) -> ApiObjectRef:
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = rest[1] if rest[0] == "namespaces" and len(rest) > 2 else ""
    plural, name, *_ = [*(rest[2:] if namespace else rest), ""]
    kind = next((one.kind for one in WATCHED if (one.group, one.plural) == (group, plural)), POD[1])
    return ApiObjectRef(group, kind, namespace, name)
