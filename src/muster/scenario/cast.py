"""Who and what appears in a scenario: all names that a file introduces, gathered before anything is read closely.

A name that a step or an expectation uses must be one of these; the nearest is offered where it is not.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.adapters.sim.manifests import BadManifest, is_namespaced, kinds_called
from muster.scenario.fields import known_word
from muster.scenario.story import ObjectRef, Who
from muster.scenario.words import BadWord, expand
from muster.yaml_marks import Faults, Marked

DEFAULT_NAMESPACE = "default"
ALWAYS_QUEUES = ("default", "root")


class Cast:
    def __init__(self, document: Marked) -> None:
        self.nodes: dict[str, None] = {}
        self.queues: dict[str, None] = dict.fromkeys(ALWAYS_QUEUES)
        self.classes: dict[str, None] = {}
        self.gangs: dict[str, dict[str, None]] = {}
        """Namespaces by the gang's name."""
        self.roles: dict[str, dict[str, None]] = {}
        """Role names by the gang's title."""
        self.pods: dict[str, dict[str, None]] = {}
        """Namespaces by the name of a pod that was written as a manifest."""
        self._gather(document)

    # -- gathering -------------------------------------------------------------------------------------------------------------

    def _gather(self, document: Marked) -> None:
        top = document.mapping
        self._all(self.nodes, top.get("nodes"))
        self._all(self.queues, top.get("queues"))
        self._all(self.classes, top.get("classes"))
        for item in (*_listed(top.get("gangs")), *_listed(top.get("objects"))):
            self._appears(item)
        for step in _listed(top.get("steps")):
            submitted = step.mapping.get("submit")
            for item in _listed(submitted):
                self._appears(item)
            self._all(self.nodes, _get(step.mapping.get("node"), "add"))

    def _all(self, names: dict[str, None], found: Marked | None) -> None:
        for item in _listed(found):
            names.update(dict.fromkeys(_names(item)))

    def _appears(self, item: Marked) -> None:
        if is_manifest(item):
            self._manifest(item)
            return
        namespace = _text(item.mapping.get("namespace")) or DEFAULT_NAMESPACE
        for name in _names(item):
            self.gangs.setdefault(name, {})[namespace] = None
            roles = self.roles.setdefault(f"{namespace}/{name}", {})
            roles.update(dict.fromkeys(role for each in _listed(item.mapping.get("roles")) for role in _names(each)))

    def _manifest(self, item: Marked) -> None:
        metadata = item.mapping.get("metadata")
        name = _text(_get(metadata, "name"))
        namespace = _text(_get(metadata, "namespace")) or DEFAULT_NAMESPACE
        match _text(item.mapping.get("kind")):
            case "Node":
                self.nodes[name] = None
            case "Queue":
                self.queues[name] = None
            case "PriorityClass":
                self.classes[name] = None
            case "PodGroup":
                self._group(item, namespace, name)
            case "Pod":
                self.pods.setdefault(name, {})[namespace] = None
                for key in ("gang.scheduling.koordinator.sh/name", "scheduling.k8s.io/group-name"):
                    gang = _text(_get(_get(metadata, "annotations"), key))
                    if gang:
                        self.gangs.setdefault(gang, {})[namespace] = None

    def _group(self, item: Marked, namespace: str, name: str) -> None:
        self.gangs.setdefault(name, {})[namespace] = None
        roles = _get(_get(item, "spec"), "minTaskMember")
        self.roles.setdefault(f"{namespace}/{name}", {}).update(dict.fromkeys(roles.mapping if roles is not None else ()))

    # -- looking up ------------------------------------------------------------------------------------------------------------

    def node(self, name: str, at: Marked, *, field: str, faults: Faults) -> bool:
        return known_word(at, name, "node", self.nodes, field=field, faults=faults)

    def who(self, text: str, at: Marked, *, field: str, faults: Faults) -> Who | None:
        """`low`, `ns/low`, `low/0`, `job/worker`, `job/worker/3`, `ns/low/0`, or a pod's name: whoever is meant."""
        parts = text.split("/")
        number = parts.pop() if len(parts) > 1 and parts[-1].isdigit() else ""
        found = self._gang(parts)
        if found is None and not number:
            pod = self._pod(parts)
            if pod is not None:
                return Who(text, pod[0], "", pod=pod[1])
        if found is None:
            known = [*self.gangs, *self.pods, *(f"{space}/{name}" for name, spaces in self.gangs.items() for space in spaces)]
            known_word(at, "/".join(parts), "gang", known, field=field, faults=faults)
            return None
        namespace, gang, role = found
        if not namespace:
            spaces = " or ".join(f"{space}/{gang}" for space in self.gangs[gang])
            faults.add(at, f"{field}: {gang!r} is in several namespaces: write {spaces}", field=field)
            return None
        if not number:
            return Who(text, namespace, gang, role)
        if role is None and self.roles.get(f"{namespace}/{gang}"):
            example = next(iter(self.roles[f"{namespace}/{gang}"]))
            faults.add(at, f"{field}: {gang!r} has roles", field=field, suggestion=f"{gang}/{example}/{number}")
            return None
        pod_name = f"{gang}-{role}-{int(number)}" if role else f"{gang}-{int(number)}"
        return Who(text, namespace, gang, role, pod=pod_name)

    def _gang(self, parts: list[str]) -> tuple[str, str, str | None] | None:
        """Namespace (empty if it is not clear), gang and role that the parts of a name mean."""
        match parts:
            case [gang]:
                return None if gang not in self.gangs else (self._namespace(gang), gang, None)
            case [first, second] if first in self.gangs.get(second, {}):
                return first, second, None
            case [gang, role] if gang in self.gangs and role in self.roles.get(f"{self._namespace(gang)}/{gang}", {}):
                return self._namespace(gang), gang, role
            case [space, gang, role] if space in self.gangs.get(gang, {}) and role in self.roles.get(f"{space}/{gang}", {}):
                return space, gang, role
        return None

    def _namespace(self, gang: str) -> str:
        spaces = self.gangs[gang]
        return next(iter(spaces)) if len(spaces) == 1 else ""

    def _pod(self, parts: list[str]) -> tuple[str, str] | None:
        match parts:
            case [name] if len(self.pods.get(name, {})) == 1:
                return next(iter(self.pods[name])), name
            case [space, name] if space in self.pods.get(name, {}):
                return space, name
        return None

    def object(self, text: str, at: Marked, *, field: str, faults: Faults) -> ObjectRef | None:
        """`Queue/q`, `PodGroup/default/low`, `PodGroup.scheduling.sigs.k8s.io/default/low`."""
        kind, _, rest = text.partition("/")
        try:
            spaced = is_namespaced(kinds_called(kind)[0])
        except BadManifest as bad:
            faults.add(at, f"{field}: {bad}", field=field)
            return None
        namespace, slash, name = rest.rpartition("/")
        if not name or (slash and not spaced) or "/" in namespace:
            example = f"{kind}/default/a" if spaced else f"{kind}/a"
            faults.add(at, f"{field}: {text!r} names no object (write for example {example})", field=field)
            return None
        return ObjectRef(kind, (namespace or DEFAULT_NAMESPACE) if spaced else "", name)


def is_manifest(item: Marked) -> bool:
    """Whoever writes `kind` or `apiVersion` means a Kubernetes object; no short form has these keys."""
    return "kind" in item.mapping or "apiVersion" in item.mapping


def is_object_name(text: str) -> bool:
    """Kinds begin with a capital letter, and names of gangs never do."""
    return text[:1].isupper() and "/" in text


def _listed(found: Marked | None) -> tuple[Marked, ...]:
    if found is None:
        return ()
    return found.items if found.is_list else (found,)


def _names(item: Marked) -> Iterator[str]:
    text = _text(item.mapping.get("name"))
    try:
        yield from expand(text) if text else ()
    except BadWord:
        # Told where the name is read.
        return


def _get(found: Marked | None, key: str) -> Marked | None:
    return None if found is None else found.mapping.get(key)


def _text(found: Marked | None) -> str:
    return found.text if found is not None and found.is_scalar else ""
