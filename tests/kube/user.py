"""What a user does on a real API server, in the calls of a scenario: apply, patch, delete, look. Times are the server's own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from muster.adapters.kube.refs import POD, KindKey, Manifest, Ref
from muster.adapters.kube.resources import resource_of
from muster.adapters.sim.manifests import DEFAULT_NAMESPACE, BadManifest, is_namespaced, kinds_called, ref_of, with_texts
from muster.adapters.sim.wishes import CONTROLLER
from muster.lab.completing import class_for, completed
from muster.lab.door import Door, Refused

MERGE: Final = "application/merge-patch+json"
_ABSENT, _EXISTS = 404, 409
_CLASS_S = 10.0


class User:
    """`versions` are the served ones. Several threads may share one."""

    def __init__(self, door: Door, versions: Mapping[KindKey, str]) -> None:
        self._door = door
        self._turn = threading.Lock()
        self._versions = versions
        self._namespaces = {DEFAULT_NAMESPACE}

    def apply(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create the object, or merge the manifest into the one that exists."""
        ref, written = ref_of(manifest), with_texts(dict(manifest))
        if ref.namespace not in ("", *self._namespaces):
            self._namespaces.add(ref.namespace)
            self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ref.namespace}})
        if ref[:2] == POD and (its_class := class_for(written)) is not None:
            self.apply(its_class)
        try:
            return self._create(ref, written)
        except Refused as error:
            if error.status != _EXISTS:
                raise
            return self._patch(ref, {key: part for key, part in written.items() if key not in ("apiVersion", "kind")})

    def patch(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Manifest:
        ref, _ = self._called(kind, namespace, name)
        return self._patch(ref, patch)

    def delete(self, kind: str, namespace: str, name: str, *, for_good: bool = False) -> None:
        ref, found = self._called(kind, namespace, name)
        if for_good and CONTROLLER in (found["metadata"].get("annotations") or {}):
            self._patch(ref, {"metadata": {"annotations": {CONTROLLER: None}}})
        self._ask("DELETE", self._path(ref))

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return next((found for _, found in self._found(kind, namespace, name)), None)

    def listed(self, kind: str) -> list[Manifest]:
        return [one for known in kinds_called(kind) if known in self._versions for one in self._all(known)]

    def bind(self, namespace: str, name: str, *, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self._ask("POST", self._path(Ref(*POD, namespace, name), sub="binding"), body=body)

    def _ask(self, method: str, path: str, *, body: object | None = None, content_type: str = "application/json") -> Any:
        with self._turn:
            return self._door.ask(method, path, body=body, content_type=content_type)

    # -- how -------------------------------------------------------------------------------------------------------------------

    def _create(self, ref: Ref, manifest: Manifest) -> Manifest:
        """What stands in a status the server takes only afterwards. A pod that stands somewhere already is bound when it says so,
        lest its kubelet starts what runs."""
        whole = dict(completed(manifest, ref=ref, now=time.time()))
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
            except Refused as error:
                if "no PriorityClass" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.02)

    def _patch(self, ref: Ref, patch: Mapping[str, Any]) -> Manifest:
        answer: Manifest = {}
        rest = {key: part for key, part in with_texts({"metadata": {}, **patch}).items() if key != "status"}
        if any(rest.values()):
            answer = self._ask("PATCH", self._path(ref), body=rest, content_type=MERGE)
        if patch.get("status"):
            said = {"status": patch["status"]}
            answer = self._ask("PATCH", self._path(ref, sub="status"), body=said, content_type=MERGE)
        return answer

    def _called(self, kind: str, namespace: str, name: str) -> tuple[Ref, Manifest]:
        found = list(self._found(kind, namespace, name))
        if len(found) != 1:
            raise BadManifest(f"there are {len(found)} objects {kind} {namespace}/{name}")
        return found[0]

    def _found(self, kind: str, namespace: str, name: str) -> Iterator[tuple[Ref, Manifest]]:
        for known in kinds_called(kind):
            if known not in self._versions:
                continue
            ref = Ref(*known, (namespace or DEFAULT_NAMESPACE) if is_namespaced(known) else "", name)
            try:
                yield ref, self._ask("GET", self._path(ref))
            except Refused as error:
                if error.status != _ABSENT:
                    raise

    def _all(self, kind: KindKey) -> list[Manifest]:
        listed = self._ask("GET", resource_of(*kind).path(self._versions[kind]))
        titles = {"apiVersion": resource_of(*kind).api_version(self._versions[kind]), "kind": kind[1]}
        return [{**titles, **one} for one in listed["items"] or []]

    def _version(self, kind: KindKey) -> str:
        if kind not in self._versions:
            raise BadManifest(f"kind: the server has no {kind[1]} of {kind[0]!r}")
        return self._versions[kind]

    def _path(self, ref: Ref, *, named: bool = True, sub: str = "") -> str:
        version = self._version(ref[:2])
        return resource_of(*ref[:2]).path(version, namespace=ref.namespace, name=ref.name if named else "", sub=sub)
