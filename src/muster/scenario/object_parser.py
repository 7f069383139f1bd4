"""Parses the short forms: nodes, queues, priority classes and gangs, checked against the symbol table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from muster.kube.read.object_references import Manifest
from muster.model.gang import MatchPolicy, Mode
from muster.model.pod_constraints import TaintEffect
from muster.model.queue import QueueState
from muster.scenario import manifest_builder
from muster.scenario.device_registration import parse_devices, with_registered_devices
from muster.scenario.field_reader import FieldReader, parse_amounts, require_known_name
from muster.scenario.literals import is_range, is_resource
from muster.scenario.symbol_table import DEFAULT_NAMESPACE, SymbolTable
from muster.scenario.syntax_tree import GangSpec, PodTemplate, RoleSpec
from muster.yaml_positions import InputFaults, YamlValue, nearest

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_TAINT = re.compile(r"([^=:\s]+)(?:=([^=:\s]*))?(?::(\w+))?")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_TAINT_EFFECTS = tuple(effect.value for effect in TaintEffect)
_INHERITED_BY_ROLES = frozenset(
    {
        "requests",
        "runDuration",
        "exitPhase",
        "startupDuration",
        "terminationDuration",
        "nodeSelector",
        "tolerations",
        "affinity",
        "labels",
        "annotations",
        "spec",
        "runningOn",
    }
)
"""Keys of a gang that hold for each of its roles, unless the role sets them."""


@dataclass(frozen=True, slots=True)
class ParseScope:
    """What every parser needs: the names that exist, and the list of faults."""

    symbols: SymbolTable
    faults: InputFaults


# -- nodes, queues, classes --------------------------------------------------------------------------------------------------------


def parse_node(at: YamlValue, *, path: str, scope: ParseScope) -> Iterator[Manifest]:
    fields = FieldReader(at, table="node", path=path, faults=scope.faults, is_extra_key=is_resource)
    amounts = YamlValue({key: value for key, value in at.mapping.items() if is_resource(key)}, at.line, at.column)
    allocatable = parse_amounts(amounts, field=path, faults=scope.faults)
    labels, taints = fields.string_map("labels"), parse_taints(fields, "taints")
    unschedulable, devices = fields.boolean("unschedulable", default=False), parse_devices(fields)
    for name in parse_name(fields):
        yield from with_registered_devices(
            manifest_builder.node(name, allocatable=allocatable, labels=labels, taints=taints, unschedulable=unschedulable), devices
        )


def parse_queue(at: YamlValue, *, path: str, scope: ParseScope) -> Iterator[Manifest]:
    fields = FieldReader(at, table="queue", path=path, faults=scope.faults)
    spec: Manifest = {"weight": fields.count("weight", 1, least=1), "reclaimable": fields.boolean("reclaimable", default=True)}
    if parent := _known_name(fields, "parent", scope.symbols.queues, scope, what="queue"):
        spec["parent"] = parent
    if "priority" in fields:
        spec["priority"] = fields.number("priority", 0)
    for key, name in (("limit", "capability"), ("deserved", "deserved")):
        if key in fields:
            spec[name] = dict(fields.amounts(key))
    if "guarantee" in fields:
        spec["guarantee"] = {"resource": dict(fields.amounts("guarantee"))}
    state = fields.choice("state", [state.value for state in QueueState], "Open")
    for name in parse_name(fields):
        yield manifest_builder.queue(name, spec=spec, state=state)


def parse_priority_class(at: YamlValue, *, path: str, scope: ParseScope) -> Iterator[Manifest]:
    fields = FieldReader(at, table="priority class", path=path, faults=scope.faults)
    if "value" not in fields:
        fields.report_missing("value")
    value, is_default = fields.number("value", 0), fields.boolean("globalDefault", default=False)
    preempts = fields.choice("preemptionPolicy", PREEMPTION_POLICIES, "PreemptLowerPriority") != "Never"
    for name in parse_name(fields):
        yield manifest_builder.priority_class(name, value=value, is_default=is_default, preempts=preempts)


def parse_name(fields: FieldReader) -> list[str]:
    """The name of a short form; a range is several."""
    if "name" not in fields:
        fields.report_missing("name")
        return []
    expanded_names = fields.expanded_names("name")
    for word, at in expanded_names:
        if not _NAME.fullmatch(word):
            near = re.sub(r"[^-a-z0-9.]+", "-", word.lower()).strip("-.") or "a"
            fields.faults.add(at, f"{fields.field('name')}: {word!r} is no name", field=fields.field("name"), suggestion=near)
    return [word for word, _ in expanded_names if _NAME.fullmatch(word)]


def parse_taints(fields: FieldReader, key: str) -> list[Manifest]:
    return [taint for path, item in fields.items(key) for taint in parse_taint(item, field=path, faults=fields.faults)]


def parse_taint(item: YamlValue, *, field: str, faults: InputFaults) -> Iterator[Manifest]:
    plain = item.plain()
    if isinstance(plain, dict):
        yield plain
        return
    found = _TAINT.fullmatch(item.text) if item.is_scalar else None
    if found is None or found[3] is None:
        faults.add(item, f"{field}: {item.type_text} is no taint (write for example dedicated=gpu:NoSchedule)", field=field)
    elif _is_taint_effect(found[3], item, field=field, faults=faults):
        yield {"key": found[1], "value": found[2] or "", "effect": found[3]}


def _parse_toleration(item: YamlValue, *, field: str, faults: InputFaults) -> Iterator[Manifest]:
    plain = item.plain()
    if isinstance(plain, dict):
        yield plain
        return
    found = _TAINT.fullmatch(item.text) if item.is_scalar else None
    if found is None:
        faults.add(item, f"{field}: {item.type_text} is no toleration (write for example dedicated=gpu:NoSchedule)", field=field)
        return
    made: Manifest = {"key": found[1], "operator": "Exists"}
    if found[2] is not None:
        made |= {"operator": "Equal", "value": found[2]}
    if found[3] is not None and _is_taint_effect(found[3], item, field=field, faults=faults):
        made["effect"] = found[3]
    yield made


def _is_taint_effect(word: str, item: YamlValue, *, field: str, faults: InputFaults) -> bool:
    if word not in _TAINT_EFFECTS:
        faults.add(item, f"{field}: {word!r} is no effect of a taint", field=field, suggestion=nearest(word, _TAINT_EFFECTS))
    return word in _TAINT_EFFECTS


# -- gangs -------------------------------------------------------------------------------------------------------------------------


def parse_gang(at: YamlValue, *, path: str, scope: ParseScope) -> Iterator[GangSpec]:
    """One gang, or as many as its name has."""
    fields = FieldReader(at, table="gang", path=path, faults=scope.faults)
    roles = tuple(_parse_roles(fields, scope))
    least = sum(role.min for role in roles)
    members = sum(role.pods for role in roles)
    minimum = fields.count("min", least, least=1) if "roles" in fields else least
    if "roles" in fields and minimum > members:
        fields.report_invalid("min", f"{minimum} is more than the {members} members that can exist", suggestion=str(members))
    common = _gang_fields(fields, scope)
    for name in parse_name(fields):
        yield GangSpec(name=name, roles=roles, min=minimum, line=at.line, **common)


def _gang_fields(fields: FieldReader, scope: ParseScope) -> Manifest:
    """The keys of a gang, except its name and members."""
    scheduler_name = fields.text("schedulerName", "muster")
    return {
        "namespace": fields.text("namespace", DEFAULT_NAMESPACE),
        "flavour": _parse_flavour(fields),
        "queue": _known_name(fields, "queue", scope.symbols.queues, scope),
        "priority": fields.number("priority", 0) if "priority" in fields else None,
        "priority_class_name": _known_name(fields, "priorityClassName", scope.symbols.classes, scope, what="priority class"),
        "age_s": fields.duration("age", 0.0, signed=True),
        "recreate": fields.choice("controller", ("recreate",)) == "recreate",
        "recreate_after_s": fields.duration("recreateAfter"),
        "recreate_limit": fields.count("recreateLimit", 0) if "recreateLimit" in fields else None,
        "scheduler_name": scheduler_name,
        "mode": fields.choice("mode", [mode.value for mode in Mode]),
        "waiting_time": _parse_waiting_time(fields),
        "match": fields.choice("matchPolicy", [policy.value for policy in MatchPolicy]),
        "total_members": fields.count("totalNumber", 1, least=1) if "totalNumber" in fields else None,
        "group": tuple(_parse_gang_group(fields, scope)),
        "topology": _parse_topology(fields),
    }


def _parse_flavour(fields: FieldReader) -> str:
    flavour = fields.choice("apiFlavour", manifest_builder.GANG_FLAVOURS, "volcano")
    if flavour != "volcano" and "roles" in fields:
        fields.report_invalid("roles", f"only a gang of the API flavour volcano has roles, not {flavour}")
    if flavour != "volcano" and "networkTopology" in fields:
        fields.report_invalid("networkTopology", f"only a gang of the API flavour volcano has it, not {flavour}")
    return flavour


def _known_name(fields: FieldReader, key: str, choices: dict[str, None], scope: ParseScope, *, what: str = "") -> str:
    found = fields.text(key)
    mark = fields.at.mapping.get(key, fields.at)
    if found and not require_known_name(mark, found, what or key, choices, field=fields.field(key), faults=scope.faults):
        return ""
    return found


def _parse_waiting_time(fields: FieldReader) -> str:
    """As Koordinator writes it. Checked here, and passed on as written."""
    found = fields.duration("waitingTime")
    return "" if found is None else f"{found:g}s"


def _parse_gang_group(fields: FieldReader, scope: ParseScope) -> Iterator[str]:
    for text, at in fields.expanded_names("gangGroup"):
        target = scope.symbols.target(text, at, field=fields.field("gangGroup"), faults=scope.faults)
        if target is not None:
            yield f"{target.namespace}/{target.gang}"


def _parse_topology(fields: FieldReader) -> Manifest | None:
    found = fields.get("networkTopology")
    if found is None:
        return None
    inner = FieldReader(found, table="network topology", path=fields.field("networkTopology"), faults=fields.faults)
    return {"mode": inner.choice("mode", ("hard", "soft"), "hard"), "highestTierAllowed": inner.count("highestTierAllowed", 1)}


def _parse_roles(fields: FieldReader, scope: ParseScope) -> Iterator[RoleSpec]:
    if "roles" not in fields:
        yield _parse_role(fields, "", scope)
        return
    if "pods" in fields or "initialPods" in fields:
        fields.report_invalid("pods" if "pods" in fields else "initialPods", "is a key of each role where a gang has roles")
    inherited = {key: value for key, value in fields.at.mapping.items() if key in _INHERITED_BY_ROLES}
    seen: set[str] = set()
    for path, item in fields.items("roles"):
        merged = {**inherited, **item.mapping}
        keys = {key: item.keys.get(key, value) for key, value in merged.items()}
        at = YamlValue(merged, item.line, item.column, item.width, keys=keys) if item.is_mapping else item
        inner = FieldReader(at, table="role", path=path, faults=scope.faults)
        for name in parse_name(inner):
            if name in seen:
                inner.report_invalid("name", f"there are two roles {name!r}")
            seen.add(name)
            yield _parse_role(inner, name, scope)


def _parse_role(fields: FieldReader, name: str, scope: ParseScope) -> RoleSpec:
    count = fields.count("pods", 1, least=1)
    existing = fields.count("initialPods", count)
    least = fields.count("min", count, least=0 if name else 1)
    if existing > count:
        fields.report_invalid("initialPods", f"{existing} is more than the {count} members that can exist", suggestion=str(count))
    if least > count:
        fields.report_invalid("min", f"{least} is more than the {count} members that can exist", suggestion=str(count))
    return RoleSpec(
        name, count, min(existing, count), min(least, count), _parse_template(fields), _parse_running_on(fields, count, scope)
    )


def _parse_template(fields: FieldReader) -> PodTemplate:
    termination = fields.get("terminationDuration")
    return PodTemplate(
        requests=fields.amounts("requests"),
        run_s=fields.duration("runDuration"),
        exit_phase=fields.choice("exitPhase", ("Succeeded", "Failed"), "Succeeded"),
        startup_s=fields.duration("startupDuration"),
        termination_s=inf if termination is not None and termination.text == "never" else fields.duration("terminationDuration"),
        node_selector=fields.string_map("nodeSelector"),
        tolerations=tuple(
            made for path, item in fields.items("tolerations") for made in _parse_toleration(item, field=path, faults=fields.faults)
        ),
        affinity=fields.mapping("affinity"),
        labels=fields.string_map("labels"),
        annotations=fields.mapping("annotations"),
        spec=fields.mapping("spec"),
    )


def _parse_running_on(fields: FieldReader, count: int, scope: ParseScope) -> tuple[str, ...]:
    """One node for all members; a list or a range has one node per member, and further members are pending."""
    found = fields.get("runningOn")
    if found is None:
        return ()
    expanded_names = fields.expanded_names("runningOn")
    nodes = [
        word
        for word, at in expanded_names
        if scope.symbols.has_node(word, at, field=fields.field("runningOn"), faults=scope.faults)
    ]
    if found.is_scalar and not is_range(found.text):
        return tuple(nodes * count)
    if len(nodes) > count:
        fields.report_invalid("runningOn", f"{len(nodes)} nodes for {count} members")
    return tuple(nodes)
