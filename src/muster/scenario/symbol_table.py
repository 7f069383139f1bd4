"""The names that a scenario introduces, collected before it is parsed.

A name in a step or an expectation must be one of these; a fault suggests the nearest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from muster.literals import BadLiteral, expand_names
from muster.scenario.field_reader import Field
from muster.scenario.syntax_tree import NamedObject, PodTarget, pod_name
from muster.sim.api_kinds import BadManifest, is_namespaced, kinds_named
from muster.yaml_positions import YamlValue

DEFAULT_NAMESPACE = "default"
BUILT_IN_QUEUES = ("default", "root")


class SymbolTable:
    def __init__(self, document: YamlValue) -> None:
        self.nodes: dict[str, None] = {}
        self.queues: dict[str, None] = dict.fromkeys(BUILT_IN_QUEUES)
        self.classes: dict[str, None] = {}
        self._roles: dict[tuple[str, str], dict[str, None]] = {}
        """Role names of each gang by its namespace and name."""
        self._pods: dict[tuple[str, str], None] = {}
        """Namespaces and names of pods that were written as manifests."""
        self._collect_names(document)
        self._targets: dict[str, list[PodTarget]] = {}
        """Gangs, roles and pods by each text that may mean them."""
        self._add_targets()

    # -- collecting -----------------------------------------------------------------------------------------------------------

    def _collect_names(self, document: YamlValue) -> None:
        top = document.mapping
        self._add_names(self.nodes, top.get("nodes"))
        self._add_names(self.queues, top.get("queues"))
        self._add_names(self.classes, top.get("priorityClasses"))
        steps = _as_items(top.get("steps"))
        submitted = [item for step in steps for item in _as_items(step.mapping.get("submit"))]
        for item in (*_as_items(top.get("gangs")), *_as_items(top.get("objects")), *submitted):
            self._add_submitted(item)
        for step in steps:
            self._add_names(self.nodes, _child(step, "node", "add"))

    def _add_names(self, names: dict[str, None], found: YamlValue | None) -> None:
        for item in _as_items(found):
            names.update(dict.fromkeys(_expanded_names(item)))

    def _add_submitted(self, item: YamlValue) -> None:
        if is_manifest(item):
            self._add_manifest(item)
            return
        namespace = _text(item, "namespace") or DEFAULT_NAMESPACE
        for name in _expanded_names(item):
            roles = self._roles.setdefault((namespace, name), {})
            self._add_names(roles, item.mapping.get("roles"))

    def _add_manifest(self, item: YamlValue) -> None:
        name, namespace = _text(item, "metadata", "name"), _text(item, "metadata", "namespace") or DEFAULT_NAMESPACE
        match _text(item, "kind"):
            case "Node":
                self.nodes[name] = None
            case "Queue":
                self.queues[name] = None
            case "PriorityClass":
                self.classes[name] = None
            case "PodGroup":
                roles = _child(item, "spec", "minTaskMember")
                self._roles.setdefault((namespace, name), {}).update(dict.fromkeys(roles.mapping if roles is not None else ()))
            case "Pod":
                self._pods[namespace, name] = None
                for key in ("gang.scheduling.koordinator.sh/name", "scheduling.k8s.io/group-name"):
                    if gang := _text(item, "metadata", "annotations", key):
                        self._roles.setdefault((namespace, gang), {})

    def _add_targets(self) -> None:
        """`low`, `ns/low`, `job/worker`, `ns/job/worker`, or a pod's name. A text with its namespace means nothing else."""
        targets = [
            PodTarget("/".join(filter(None, (gang, role))), namespace, gang, role)
            for (namespace, gang), roles in self._roles.items()
            for role in (None, *roles)
        ]
        pods = [PodTarget(name, namespace, "", pod=name) for namespace, name in self._pods]
        for some in (targets, pods):
            taken = set(self._targets)
            for target in some:
                if target.text not in taken:
                    self._targets.setdefault(target.text, []).append(target)
        for target in (*pods, *targets):
            self._targets[f"{target.namespace}/{target.text}"] = [target]

    # -- looking up ------------------------------------------------------------------------------------------------------------

    def has_node(self, name: str, at: Field) -> bool:
        return at.require_known(name, "node", self.nodes)

    def target(self, text: str, at: Field) -> PodTarget | None:
        """Whoever is meant: a gang, a role or a pod, or with a number (`low/0`, `job/worker/3`) one member."""
        name, _, number = text.rpartition("/")
        if not name or not number.isdigit():
            name, number = text, ""
        found = [target for target in self._targets.get(name, ()) if not (target.pod and number)]
        if not found:
            at.require_known(name, "gang", (known for known in self._targets if known != name))
            return None
        target = found[0]
        if len(found) > 1:
            at.report(f"{name!r} is in several namespaces: write {' or '.join(f'{each.namespace}/{name}' for each in found)}")
            return None
        if not number:
            return replace(target, text=text)
        roles = self._roles[target.namespace, target.gang]
        if target.role is None and roles:
            at.report(f"{target.gang!r} has roles", suggestion=f"{target.gang}/{next(iter(roles))}/{number}")
            return None
        return replace(target, text=text, pod=pod_name(target.gang, target.role, int(number)))

    def named_object(self, text: str, at: Field) -> NamedObject | None:
        """`Queue/q`, `PodGroup/default/low`, `PodGroup.scheduling.sigs.k8s.io/default/low`."""
        kind, _, rest = text.partition("/")
        try:
            spaced = is_namespaced(kinds_named(kind)[0])
        except BadManifest as bad:
            at.report(str(bad))
            return None
        namespace, slash, name = rest.rpartition("/")
        if not name or (slash and not spaced) or "/" in namespace:
            example = f"{kind}/default/a" if spaced else f"{kind}/a"
            at.report(f"{text!r} names no object (write for example {example})")
            return None
        return NamedObject(kind, (namespace or DEFAULT_NAMESPACE) if spaced else "", name)

    def target_or_object(self, text: str, at: Field) -> PodTarget | NamedObject | None:
        """Kinds begin with a capital letter, and names of gangs never do."""
        return self.named_object(text, at) if text[:1].isupper() and "/" in text else self.target(text, at)


def is_manifest(item: YamlValue) -> bool:
    """Whoever writes `kind` or `apiVersion` means a Kubernetes object; no short form has these keys."""
    return "kind" in item.mapping or "apiVersion" in item.mapping


def _as_items(found: YamlValue | None) -> tuple[YamlValue, ...]:
    if found is None:
        return ()
    return found.items if found.is_list else (found,)


def _expanded_names(item: YamlValue) -> Iterator[str]:
    text = _text(item, "name")
    try:
        yield from expand_names(text) if text else ()
    except BadLiteral:
        # Reported where the name is read.
        return


def _child(found: YamlValue | None, *path: str) -> YamlValue | None:
    for key in path:
        found = None if found is None else found.mapping.get(key)
    return found


def _text(item: YamlValue, *path: str) -> str:
    found = _child(item, *path)
    return found.text if found is not None and found.is_scalar else ""
