"""Parses the short forms: nodes, queues, priority classes and gangs, checked against the symbol table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from muster.kube.read import names
from muster.kube.read.object_references import Manifest
from muster.literals import is_range, is_resource
from muster.model.gang import MatchPolicy, Mode
from muster.model.pod_constraints import TaintEffect
from muster.model.queue import QueueState
from muster.scenario import manifest_builder
from muster.scenario.device_registration import parse_devices, with_registered_devices
from muster.scenario.field_reader import Field, FieldReader
from muster.scenario.key_tables import POD_KEYS
from muster.scenario.symbol_table import DEFAULT_NAMESPACE, SymbolTable
from muster.scenario.syntax_tree import GangSpec, PodTemplate, RoleSpec
from muster.yaml_positions import YamlValue, nearest

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_TAINT = re.compile(r"([^=:\s]+)(?:=([^=:\s]*))?(?::(\w+))?")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_TAINT_EFFECTS = tuple(effect.value for effect in TaintEffect)
_INHERITED_BY_ROLES = frozenset(POD_KEYS) - {"pods", "initialPods", "min"}
"""Keys of a gang that hold for each of its roles, unless the role sets them."""


# -- nodes, queues, classes --------------------------------------------------------------------------------------------------------


def parse_node(at: Field) -> Iterator[Manifest]:
    fields = FieldReader(at, table="node", is_extra_key=is_resource)
    amounts = YamlValue({key: value for key, value in at.at.mapping.items() if is_resource(key)}, at.at.line, at.at.column)
    allocatable = replace(at, at=amounts).amounts()
    labels, taints = fields["labels"].string_map(), parse_taints(fields["taints"])
    unschedulable, devices = fields["unschedulable"].boolean(default=False), parse_devices(fields["devices"])
    for name in parse_name(fields):
        yield from with_registered_devices(
            manifest_builder.node(name, allocatable=allocatable, labels=labels, taints=taints, unschedulable=unschedulable), devices
        )


def parse_queue(at: Field, symbols: SymbolTable) -> Iterator[Manifest]:
    fields = FieldReader(at, table="queue")
    spec: Manifest = {"weight": fields["weight"].count(1, least=1), "reclaimable": fields["reclaimable"].boolean(default=True)}
    if parent := fields["parent"].known_text("queue", symbols.queues):
        spec["parent"] = parent
    if "priority" in fields:
        spec["priority"] = fields["priority"].number()
    for key, name in (("limit", "capability"), ("deserved", "deserved")):
        if key in fields:
            spec[name] = dict(fields[key].amounts())
    if "guarantee" in fields:
        spec["guarantee"] = {"resource": dict(fields["guarantee"].amounts())}
    state = fields["state"].choice([state.value for state in QueueState], "Open")
    for name in parse_name(fields):
        yield manifest_builder.queue(name, spec=spec, state=state, annotations=fields["annotations"].mapping())


def parse_priority_class(at: Field) -> Iterator[Manifest]:
    fields = FieldReader(at, table="priority class")
    fields.require("value")
    value, is_default = fields["value"].number(), fields["globalDefault"].boolean(default=False)
    preempts = fields["preemptionPolicy"].choice(PREEMPTION_POLICIES, "PreemptLowerPriority") != "Never"
    annotations = fields["annotations"].mapping()
    for name in parse_name(fields):
        yield manifest_builder.priority_class(name, value=value, is_default=is_default, preempts=preempts, annotations=annotations)


def parse_name(fields: FieldReader) -> list[str]:
    """The name of a short form; a range is several."""
    fields.require("name")
    named = fields["name"].names()
    for word, at in named:
        if not _NAME.fullmatch(word):
            near = re.sub(r"[^-a-z0-9.]+", "-", word.lower()).strip("-.") or "a"
            at.report(f"{word!r} is no name", suggestion=near)
    return [word for word, _ in named if _NAME.fullmatch(word)]


def parse_taints(at: Field) -> list[Manifest]:
    return [made for item in at.items() for made in _parse_taint(item, what="taint")]


def _parse_taint(item: Field, *, what: str) -> Iterator[Manifest]:
    """A taint or a toleration. A toleration may be without an effect and a value."""
    plain = item.at.plain()
    if isinstance(plain, dict):
        yield plain
        return
    found = _TAINT.fullmatch(item.at.text) if item.at.is_scalar else None
    if found is None or (what == "taint" and found[3] is None):
        item.report(f"{item.at.type_text} is no {what} (write for example dedicated=gpu:NoSchedule)")
        return
    key, value, effect = found[1], found[2], found[3]
    is_effect = effect is None or effect in _TAINT_EFFECTS
    if not is_effect:
        item.report(f"{effect!r} is no effect of a taint", suggestion=nearest(effect, _TAINT_EFFECTS))
    if what == "toleration":
        operator = {"operator": "Exists"} if value is None else {"operator": "Equal", "value": value}
        yield {"key": key, **operator, **({"effect": effect} if effect and is_effect else {})}
    elif is_effect:
        yield {"key": key, "value": value or "", "effect": effect}


# -- gangs -------------------------------------------------------------------------------------------------------------------------


def parse_gang(at: Field, symbols: SymbolTable) -> Iterator[GangSpec]:
    """One gang, or as many as its name has."""
    fields = FieldReader(at, table="gang")
    roles = tuple(_parse_roles(fields, symbols))
    least = sum(role.min for role in roles)
    members = sum(role.pods for role in roles)
    minimum = fields["min"].count(least, least=1) if "roles" in fields else least
    if "roles" in fields and minimum > members:
        fields["min"].report(f"{minimum} is more than the {members} members that can exist", suggestion=str(members))
    common = _gang_fields(fields, symbols)
    for name in parse_name(fields):
        yield GangSpec(name=name, roles=roles, min=minimum, line=at.at.line, **common)


def _gang_fields(fields: FieldReader, symbols: SymbolTable) -> Manifest:
    """The keys of a gang, except its name and members."""
    priority = fields["priority"].number() if "priority" in fields else None
    class_name = fields["priorityClassName"].known_text("priority class", symbols.classes)
    made_class = manifest_builder.priority_class_for(priority) if priority is not None and not class_name else None
    controller = fields["controller"].choice(("recreate",))
    recreations: dict[str, float | str | None] = {
        "controller": controller or None,
        "recreate-after-seconds": fields["recreateAfter"].duration(None),
        "recreate-limit": fields["recreateLimit"].count() if "recreateLimit" in fields else None,
    }
    return {
        "namespace": fields["namespace"].text(DEFAULT_NAMESPACE),
        "flavour": _parse_flavour(fields),
        "queue": fields["queue"].known_text("queue", symbols.queues),
        "priority": priority,
        "priority_class_name": class_name if made_class is None else made_class["metadata"]["name"],
        "priority_class": made_class,
        "age_s": fields["age"].duration(0.0, signed=True),
        "recreate": bool(controller),
        "scheduler_name": fields["schedulerName"].text("muster"),
        "annotations": _parse_gang_annotations(fields, symbols),
        "pod_annotations": manifest_builder.behaviour_annotations(recreations),
        "topology": _parse_topology(fields["networkTopology"]),
        "pod_group_spec": _parse_mapping(fields["podGroupSpec"]),
    }


def _parse_gang_annotations(fields: FieldReader, symbols: SymbolTable) -> Manifest:
    """As Koordinator has them. A waiting time is checked here, and passed on."""
    waiting_s = fields["waitingTime"].duration(None)
    group = [symbols.target(text, name) for text, name in fields["gangGroup"].names()]
    annotations = {
        names.GANG_MODE: fields["mode"].choice([mode.value for mode in Mode]),
        names.GANG_WAITING_TIME: "" if waiting_s is None else f"{waiting_s:g}s",
        names.GANG_MATCH_POLICY: fields["matchPolicy"].choice([policy.value for policy in MatchPolicy]),
        names.GANG_TOTAL_NUMBER: str(fields["totalNumber"].count(1, least=1)) if "totalNumber" in fields else "",
        names.GANG_GROUPS: json.dumps([f"{each.namespace}/{each.gang}" for each in group if each is not None]) if group else "",
    }
    return {name: value for name, value in annotations.items() if value}


def _parse_flavour(fields: FieldReader) -> str:
    flavour = fields["apiFlavour"].choice(manifest_builder.GANG_FLAVOURS, "volcano")
    if flavour != "volcano" and "roles" in fields:
        fields["roles"].report(f"only a gang of the API flavour volcano has roles, not {flavour}")
    if flavour != "volcano" and "networkTopology" in fields:
        fields["networkTopology"].report(f"only a gang of the API flavour volcano has it, not {flavour}")
    return flavour


def _parse_mapping(at: Field) -> Manifest:
    made = {} if at.is_absent else at.at.plain()
    if isinstance(made, dict):
        return made
    at.report("is no mapping; write for example {subGroupPolicy: [{name: part, subGroupSize: 2}]}")
    return {}


def _parse_topology(at: Field) -> Manifest | None:
    if at.is_absent:
        return None
    fields = FieldReader(at, table="network topology")
    return {"mode": fields["mode"].choice(("hard", "soft"), "hard"), "highestTierAllowed": fields["highestTierAllowed"].count(1)}


def _parse_roles(fields: FieldReader, symbols: SymbolTable) -> Iterator[RoleSpec]:
    if "roles" not in fields:
        yield _parse_role(fields, "", symbols)
        return
    for key in ("pods", "initialPods"):
        if key in fields:
            fields[key].report("is a key of each role where a gang has roles")
    inherited = {key: value for key, value in fields.field.at.mapping.items() if key in _INHERITED_BY_ROLES}
    seen: set[str] = set()
    for item in fields["roles"].items():
        inner = FieldReader(_with_inherited(item, inherited), table="role")
        for name in parse_name(inner):
            if name in seen:
                inner["name"].report(f"there are two roles {name!r}")
            seen.add(name)
            yield _parse_role(inner, name, symbols)


def _with_inherited(item: Field, inherited: dict[str, YamlValue]) -> Field:
    if not item.at.is_mapping:
        return item
    merged = {**inherited, **item.at.mapping}
    keys = {key: item.at.keys.get(key, value) for key, value in merged.items()}
    return replace(item, at=replace(item.at, value=merged, keys=keys))


def _parse_role(fields: FieldReader, name: str, symbols: SymbolTable) -> RoleSpec:
    count = fields["pods"].count(1, least=1)
    existing = fields["initialPods"].count(count)
    least = fields["min"].count(count, least=0 if name else 1)
    for key, value in (("initialPods", existing), ("min", least)):
        if value > count:
            fields[key].report(f"{value} is more than the {count} members that can exist", suggestion=str(count))
    nodes = _parse_running_on(fields["runningOn"], count, symbols)
    return RoleSpec(name, count, min(existing, count), min(least, count), _parse_template(fields), nodes)


def _parse_template(fields: FieldReader) -> PodTemplate:
    termination = fields["terminationDuration"]
    behaviour: dict[str, float | str | None] = {
        "run-seconds": fields["runDuration"].duration(None),
        "exit": "failed" if fields["exitPhase"].choice(("Succeeded", "Failed")) == "Failed" else None,
        "startup-seconds": fields["startupDuration"].duration(None),
        "termination-seconds": "never" if termination.at.text == "never" else termination.duration(None),
    }
    spec: Manifest = {
        "containers": [{"name": "main", "resources": {"requests": dict(fields["requests"].amounts())}}],
        "nodeSelector": fields["nodeSelector"].string_map(),
        "tolerations": [made for item in fields["tolerations"].items() for made in _parse_taint(item, what="toleration")],
        "affinity": fields["affinity"].mapping(),
    }
    return PodTemplate(
        labels=fields["labels"].string_map(),
        annotations={**manifest_builder.behaviour_annotations(behaviour), **fields["annotations"].mapping()},
        spec={**{key: value for key, value in spec.items() if value}, **fields["spec"].mapping()},
    )


def _parse_running_on(at: Field, count: int, symbols: SymbolTable) -> tuple[str, ...]:
    """One node for all members; a list or a range has one node per member, and further members are pending."""
    nodes = [word for word, name in at.names() if symbols.has_node(word, name)]
    if at.at.is_scalar and not is_range(at.at.text):
        return tuple(nodes * count)
    if len(nodes) > count:
        at.report(f"{len(nodes)} nodes for {count} members")
    return tuple(nodes)
