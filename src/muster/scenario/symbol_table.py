"""The names that a scenario introduces, collected before it is parsed.

A name in a step or an expectation must be one of these; a fault suggests the nearest.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.scenario.field_reader import require_known_name
from muster.scenario.literals import BadLiteral, expand_names
from muster.scenario.syntax_tree import NamedObject, PodTarget
from muster.sim.api_kinds import BadManifest, is_namespaced, kinds_named
from muster.yaml_positions import InputFaults, YamlValue

DEFAULT_NAMESPACE = "default"
BUILT_IN_QUEUES = ("default", "root")


class SymbolTable:
    def __init__(self, document: YamlValue) -> None:
        self.nodes: dict[str, None] = {}
        self.queues: dict[str, None] = dict.fromkeys(BUILT_IN_QUEUES)
        self.classes: dict[str, None] = {}
        self.gangs: dict[str, dict[str, None]] = {}
        """Namespaces by the gang's name."""
        self.roles: dict[str, dict[str, None]] = {}
        """Role names by the gang's title."""
        self.pods: dict[str, dict[str, None]] = {}
        """Namespaces by the name of a pod that was written as a manifest."""
        self._collect_names(document)

    # -- collecting -----------------------------------------------------------------------------------------------------------

    def _collect_names(self, document: YamlValue) -> None:
        top = document.mapping
        self._add_names(self.nodes, top.get("nodes"))
        self._add_names(self.queues, top.get("queues"))
        self._add_names(self.classes, top.get("priorityClasses"))
        for item in (*_as_items(top.get("gangs")), *_as_items(top.get("objects"))):
            self._add_submitted(item)
        for step in _as_items(top.get("steps")):
            submitted = step.mapping.get("submit")
            for item in _as_items(submitted):
                self._add_submitted(item)
            self._add_names(self.nodes, _child(step.mapping.get("node"), "add"))

    def _add_names(self, names: dict[str, None], found: YamlValue | None) -> None:
        for item in _as_items(found):
            names.update(dict.fromkeys(_expanded_names(item)))

    def _add_submitted(self, item: YamlValue) -> None:
        if is_manifest(item):
            self._add_manifest(item)
            return
        namespace = _text(item.mapping.get("namespace")) or DEFAULT_NAMESPACE
        for name in _expanded_names(item):
            self.gangs.setdefault(name, {})[namespace] = None
            roles = self.roles.setdefault(f"{namespace}/{name}", {})
            roles.update(dict.fromkeys(role for each in _as_items(item.mapping.get("roles")) for role in _expanded_names(each)))

    def _add_manifest(self, item: YamlValue) -> None:
        metadata = item.mapping.get("metadata")
        name = _text(_child(metadata, "name"))
        namespace = _text(_child(metadata, "namespace")) or DEFAULT_NAMESPACE
        match _text(item.mapping.get("kind")):
            case "Node":
                self.nodes[name] = None
            case "Queue":
                self.queues[name] = None
            case "PriorityClass":
                self.classes[name] = None
            case "PodGroup":
                self._add_pod_group(item, namespace, name)
            case "Pod":
                self.pods.setdefault(name, {})[namespace] = None
                for key in ("gang.scheduling.koordinator.sh/name", "scheduling.k8s.io/group-name"):
                    gang = _text(_child(_child(metadata, "annotations"), key))
                    if gang:
                        self.gangs.setdefault(gang, {})[namespace] = None

    def _add_pod_group(self, item: YamlValue, namespace: str, name: str) -> None:
        self.gangs.setdefault(name, {})[namespace] = None
        roles = _child(_child(item, "spec"), "minTaskMember")
        self.roles.setdefault(f"{namespace}/{name}", {}).update(dict.fromkeys(roles.mapping if roles is not None else ()))

    # -- looking up ------------------------------------------------------------------------------------------------------------

    def has_node(self, name: str, at: YamlValue, *, field: str, faults: InputFaults) -> bool:
        return require_known_name(at, name, "node", self.nodes, field=field, faults=faults)

    def target(self, text: str, at: YamlValue, *, field: str, faults: InputFaults) -> PodTarget | None:
        """`low`, `ns/low`, `low/0`, `job/worker`, `job/worker/3`, `ns/low/0`, or a pod's name: whoever is meant."""
        parts = text.split("/")
        number = parts.pop() if len(parts) > 1 and parts[-1].isdigit() else ""
        found = self._resolve_gang(parts)
        if found is None and not number:
            pod = self._resolve_pod(parts)
            if pod is not None:
                return PodTarget(text, pod[0], "", pod=pod[1])
        if found is None:
            known = [*self.gangs, *self.pods, *(f"{space}/{name}" for name, spaces in self.gangs.items() for space in spaces)]
            require_known_name(at, "/".join(parts), "gang", known, field=field, faults=faults)
            return None
        namespace, gang, role = found
        if not namespace:
            spaces = " or ".join(f"{space}/{gang}" for space in self.gangs[gang])
            faults.add(at, f"{field}: {gang!r} is in several namespaces: write {spaces}", field=field)
            return None
        if not number:
            return PodTarget(text, namespace, gang, role)
        if role is None and self.roles.get(f"{namespace}/{gang}"):
            example = next(iter(self.roles[f"{namespace}/{gang}"]))
            faults.add(at, f"{field}: {gang!r} has roles", field=field, suggestion=f"{gang}/{example}/{number}")
            return None
        pod_name = f"{gang}-{role}-{int(number)}" if role else f"{gang}-{int(number)}"
        return PodTarget(text, namespace, gang, role, pod=pod_name)

    def _resolve_gang(self, parts: list[str]) -> tuple[str, str, str | None] | None:
        """Namespace (empty if it is not clear), gang and role that the parts of a name mean."""
        match parts:
            case [gang]:
                return None if gang not in self.gangs else (self._only_namespace(gang), gang, None)
            case [first, second] if first in self.gangs.get(second, {}):
                return first, second, None
            case [gang, role] if gang in self.gangs and role in self.roles.get(f"{self._only_namespace(gang)}/{gang}", {}):
                return self._only_namespace(gang), gang, role
            case [space, gang, role] if space in self.gangs.get(gang, {}) and role in self.roles.get(f"{space}/{gang}", {}):
                return space, gang, role
        return None

    def _only_namespace(self, gang: str) -> str:
        spaces = self.gangs[gang]
        return next(iter(spaces)) if len(spaces) == 1 else ""

    def _resolve_pod(self, parts: list[str]) -> tuple[str, str] | None:
        match parts:
            case [name] if len(self.pods.get(name, {})) == 1:
                return next(iter(self.pods[name])), name
            case [space, name] if space in self.pods.get(name, {}):
                return space, name
        return None

    def named_object(self, text: str, at: YamlValue, *, field: str, faults: InputFaults) -> NamedObject | None:
        """`Queue/q`, `PodGroup/default/low`, `PodGroup.scheduling.sigs.k8s.io/default/low`."""
        kind, _, rest = text.partition("/")
        try:
            spaced = is_namespaced(kinds_named(kind)[0])
        except BadManifest as bad:
            faults.add(at, f"{field}: {bad}", field=field)
            return None
        namespace, slash, name = rest.rpartition("/")
        if not name or (slash and not spaced) or "/" in namespace:
            example = f"{kind}/default/a" if spaced else f"{kind}/a"
            faults.add(at, f"{field}: {text!r} names no object (write for example {example})", field=field)
            return None
        return NamedObject(kind, (namespace or DEFAULT_NAMESPACE) if spaced else "", name)


def is_manifest(item: YamlValue) -> bool:
    """Whoever writes `kind` or `apiVersion` means a Kubernetes object; no short form has these keys."""
    return "kind" in item.mapping or "apiVersion" in item.mapping


def is_object_name(text: str) -> bool:
    """Kinds begin with a capital letter, and names of gangs never do."""
    return text[:1].isupper() and "/" in text


def _as_items(found: YamlValue | None) -> tuple[YamlValue, ...]:
    if found is None:
        return ()
    return found.items if found.is_list else (found,)


def _expanded_names(item: YamlValue) -> Iterator[str]:
    text = _text(item.mapping.get("name"))
    try:
        yield from expand_names(text) if text else ()
    except BadLiteral:
        # Told where the name is read.
        return


def _child(found: YamlValue | None, key: str) -> YamlValue | None:
    return None if found is None else found.mapping.get(key)


def _text(found: YamlValue | None) -> str:
    return found.text if found is not None and found.is_scalar else ""
