"""What a user does on a real API server, in the calls of a scenario: apply, patch, delete, look. Times are the server's own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.harness.blocking_client import BlockingClient, RequestRefused
from tests.harness.manifest_completion import complete_manifest, priority_class_for

from muster.kube.read.api_resources import resource_of
from muster.kube.read.object_references import POD, ApiObjectRef, GroupKind, Manifest
from muster.sim.api_kinds import DEFAULT_NAMESPACE, BadManifest, is_namespaced, kinds_named, ref_of, with_string_annotations
from muster.sim.pod_behaviour import CONTROLLER_ANNOTATION

MERGE: Final = "application/merge-patch+json"
_ABSENT, _EXISTS = 404, 409
_CLASS_S = 10.0


class ApiUser:
    """`versions` are the served ones. Several threads may share one."""

    def __init__(self, api: BlockingClient, versions: Mapping[GroupKind, str]) -> None:
        self._api = api
        self._turn = threading.Lock()
        self._versions = versions
        self._namespaces = {DEFAULT_NAMESPACE}

    def apply(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create the object, or merge the manifest into the one that exists."""
        ref, written = ref_of(manifest), with_string_annotations(dict(manifest))
        if ref.namespace not in ("", *self._namespaces):
            self._namespaces.add(ref.namespace)
            self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ref.namespace}})
        if ref[:2] == POD and (its_class := priority_class_for(written)) is not None:
            self.apply(its_class)
        try:
            return self._create(ref, written)
        except RequestRefused as error:
            if error.status != _EXISTS:
                raise
            return self._patch(ref, {key: part for key, part in written.items() if key not in ("apiVersion", "kind")})

    def patch(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Manifest:
        ref, _ = self._called(kind, namespace, name)
        return self._patch(ref, patch)

    def delete(self, kind: str, namespace: str, name: str, *, permanently: bool = False) -> None:
        ref, found = self._called(kind, namespace, name)
        if permanently and CONTROLLER_ANNOTATION in (found["metadata"].get("annotations") or {}):
            self._patch(ref, {"metadata": {"annotations": {CONTROLLER_ANNOTATION: None}}})
        self._ask("DELETE", self._path(ref))

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return next((found for _, found in self._found(kind, namespace, name)), None)

    def listed(self, kind: str) -> list[Manifest]:
        return [one for known in kinds_named(kind) if known in self._versions for one in self._all(known)]

    def bind(self, namespace: str, name: str, *, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self._ask("POST", self._path(ApiObjectRef(*POD, namespace, name), subresource="binding"), body=body)

    def _ask(self, method: str, path: str, *, body: object | None = None, content_type: str = "application/json") -> Any:
        with self._turn:
            return self._api.request(method, path, body=body, content_type=content_type)

    # -- how -----------------------------------------------------------------------------------------------------------------------

    def _create(self, ref: ApiObjectRef, manifest: Manifest) -> Manifest:
        """What stands in a status the server takes only afterwards. A pod that stands somewhere already is bound when it says so,
        lest its kubelet starts what runs."""
        whole = dict(complete_manifest(manifest, ref=ref, now=time.time()))
        whole["apiVersion"] = resource_of(*ref[:2]).api_version(self._version(ref[:2]))
        status = whole.pop("status", None) if ref.kind != "Node" else None
        node = whole["spec"].pop("nodeName", "") if ref[:2] == POD and status else ""
        made = self._made(self._path(ref, named=False), whole)
        if status:
            made = self._patch(ref, {"status": status})
        if node:
            self.bind(ref.namespace, ref.name, node=node)
        return made

    def _made(self, path: str, whole: Manifest) -> Manifest:
        """A server may take a moment to know a priority class that was made just now."""
        deadline = time.monotonic() + _CLASS_S
        while True:
            try:
                made: Manifest = self._ask("POST", path, body=whole)
                return made
            except RequestRefused as error:
                if "no PriorityClass" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.02)

    def _patch(self, ref: ApiObjectRef, patch: Mapping[str, Any]) -> Manifest:
        answer: Manifest = {}
        rest = {key: part for key, part in with_string_annotations({"metadata": {}, **patch}).items() if key != "status"}
        if any(rest.values()):
            answer = self._ask("PATCH", self._path(ref), body=rest, content_type=MERGE)
        if patch.get("status"):
            said = {"status": patch["status"]}
            answer = self._ask("PATCH", self._path(ref, subresource="status"), body=said, content_type=MERGE)
        return answer

    def _called(self, kind: str, namespace: str, name: str) -> tuple[ApiObjectRef, Manifest]:
        found = list(self._found(kind, namespace, name))
        if len(found) != 1:
            raise BadManifest(f"there are {len(found)} objects {kind} {namespace}/{name}")
        return found[0]

    def _found(self, kind: str, namespace: str, name: str) -> Iterator[tuple[ApiObjectRef, Manifest]]:
        for known in kinds_named(kind):
            if known not in self._versions:
                continue
            ref = ApiObjectRef(*known, (namespace or DEFAULT_NAMESPACE) if is_namespaced(known) else "", name)
            try:
                yield ref, self._ask("GET", self._path(ref))
            except RequestRefused as error:
                if error.status != _ABSENT:
                    raise

    def _all(self, kind: GroupKind) -> list[Manifest]:
        listed = self._ask("GET", resource_of(*kind).path(self._versions[kind]))
        titles = {"apiVersion": resource_of(*kind).api_version(self._versions[kind]), "kind": kind[1]}
        return [{**titles, **one} for one in listed["items"] or []]

    def _version(self, kind: GroupKind) -> str:
        if kind not in self._versions:
            raise BadManifest(f"kind: the server has no {kind[1]} of {kind[0]!r}")
        return self._versions[kind]

    def _path(self, ref: ApiObjectRef, *, named: bool = True, subresource: str = "") -> str:
        version = self._version(ref[:2])
        return resource_of(*ref[:2]).path(version, namespace=ref.namespace, name=ref.name if named else "", subresource=subresource)
