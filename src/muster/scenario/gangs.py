"""Reading the short forms: nodes, queues, classes and gangs as a file writes them, checked against the cast."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from muster.model.gang import MatchPolicy, Mode
from muster.model.queue import QueueState
from muster.model.selectors import TaintEffect
from muster.scenario import manifests
from muster.scenario.cast import DEFAULT_NAMESPACE, Cast
from muster.scenario.devices import read_devices, with_devices
from muster.scenario.fields import Fields, amounts_of, known_word
from muster.scenario.story import GangSpec, Manifest, RoleSpec, Template
from muster.scenario.words import is_range, is_resource
from muster.yaml_marks import Faults, Marked, nearest

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_TAINT = re.compile(r"([^=:\s]+)(?:=([^=:\s]*))?(?::(\w+))?")
_EFFECTS = tuple(effect.value for effect in TaintEffect)
_OF_PODS = frozenset(
    {"each", "runs", "ends", "starts", "leaves", "selector", "tolerations", "affinity", "labels", "annotations", "spec", "at"}
)
"""Keys of a gang that hold for each of its roles, unless the role says otherwise."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What every reader needs: the names that exist, and where faults go."""

    cast: Cast
    faults: Faults


# -- nodes, queues, classes --------------------------------------------------------------------------------------------------------


def read_node(at: Marked, *, path: str, reading: Reading) -> Iterator[Manifest]:
    fields = Fields(at, table="node", path=path, faults=reading.faults, more=is_resource)
    amounts = Marked({key: value for key, value in at.mapping.items() if is_resource(key)}, at.line, at.column)
    room = amounts_of(amounts, field=path, faults=reading.faults)
    labels, taints = fields.texts("labels"), read_taints(fields, "taints")
    cordoned, devices = fields.switch("cordoned", default=False), read_devices(fields)
    for name in names_of(fields):
        yield from with_devices(manifests.node(name, room=room, labels=labels, taints=taints, cordoned=cordoned), devices)


def read_queue(at: Marked, *, path: str, reading: Reading) -> Iterator[Manifest]:
    fields = Fields(at, table="queue", path=path, faults=reading.faults)
    spec: Manifest = {"weight": fields.count("weight", 1, least=1), "reclaimable": fields.switch("reclaimable", default=True)}
    if parent := _known(fields, "parent", reading.cast.queues, reading, what="queue"):
        spec["parent"] = parent
    if "priority" in fields:
        spec["priority"] = fields.number("priority", 0)
    for key, name in (("limit", "capability"), ("deserved", "deserved")):
        if key in fields:
            spec[name] = dict(fields.amounts(key))
    if "guarantee" in fields:
        spec["guarantee"] = {"resource": dict(fields.amounts("guarantee"))}
    state = fields.choice("state", [state.value for state in QueueState], "Open")
    for name in names_of(fields):
        yield manifests.queue(name, spec=spec, state=state)


def read_class(at: Marked, *, path: str, reading: Reading) -> Iterator[Manifest]:
    fields = Fields(at, table="class", path=path, faults=reading.faults)
    if "value" not in fields:
        fields.lacks("value")
    value, is_default = fields.number("value", 0), fields.switch("default", default=False)
    preempts = fields.switch("preempts", default=True)
    for name in names_of(fields):
        yield manifests.priority_class(name, value=value, is_default=is_default, preempts=preempts)


def names_of(fields: Fields) -> list[str]:
    """The name of a short form; a range is several."""
    if "name" not in fields:
        fields.lacks("name")
        return []
    words = fields.words("name")
    for word, at in words:
        if not _NAME.fullmatch(word):
            near = re.sub(r"[^-a-z0-9.]+", "-", word.lower()).strip("-.") or "a"
            fields.faults.add(at, f"{fields.field('name')}: {word!r} is no name", field=fields.field("name"), suggestion=near)
    return [word for word, _ in words if _NAME.fullmatch(word)]


def read_taints(fields: Fields, key: str) -> list[Manifest]:
    return [taint for path, item in fields.items(key) for taint in taint_of(item, field=path, faults=fields.faults)]


def taint_of(item: Marked, *, field: str, faults: Faults) -> Iterator[Manifest]:
    plain = item.plain()
    if isinstance(plain, dict):
        yield plain
        return
    found = _TAINT.fullmatch(item.text) if item.is_scalar else None
    if found is None or found[3] is None:
        faults.add(item, f"{field}: {item.shape} is no taint (write for example dedicated=gpu:NoSchedule)", field=field)
    elif _is_effect(found[3], item, field=field, faults=faults):
        yield {"key": found[1], "value": found[2] or "", "effect": found[3]}


def _toleration_of(item: Marked, *, field: str, faults: Faults) -> Iterator[Manifest]:
    plain = item.plain()
    if isinstance(plain, dict):
        yield plain
        return
    found = _TAINT.fullmatch(item.text) if item.is_scalar else None
    if found is None:
        faults.add(item, f"{field}: {item.shape} is no toleration (write for example dedicated=gpu:NoSchedule)", field=field)
        return
    made: Manifest = {"key": found[1], "operator": "Exists"}
    if found[2] is not None:
        made |= {"operator": "Equal", "value": found[2]}
    if found[3] is not None and _is_effect(found[3], item, field=field, faults=faults):
        made["effect"] = found[3]
    yield made


def _is_effect(word: str, item: Marked, *, field: str, faults: Faults) -> bool:
    if word not in _EFFECTS:
        faults.add(item, f"{field}: {word!r} is no effect of a taint", field=field, suggestion=nearest(word, _EFFECTS))
    return word in _EFFECTS


# -- gangs -------------------------------------------------------------------------------------------------------------------------


def read_gang(at: Marked, *, path: str, reading: Reading) -> Iterator[GangSpec]:
    """One gang, or as many as its name has."""
    fields = Fields(at, table="gang", path=path, faults=reading.faults)
    roles = tuple(_roles(fields, reading))
    least = sum(role.min for role in roles)
    seats = sum(role.pods for role in roles)
    minimum = fields.count("min", least, least=1) if "roles" in fields else least
    if "roles" in fields and minimum > seats:
        fields.fault("min", f"{minimum} is more than the {seats} members that can exist", suggestion=str(seats))
    common = _common(fields, reading)
    for name in names_of(fields):
        yield GangSpec(name=name, roles=roles, min=minimum, line=at.line, **common)


def _common(fields: Fields, reading: Reading) -> Manifest:
    """What a gang says of itself, apart from its name and members."""
    scheduler = fields.text("scheduler", "muster")
    return {
        "namespace": fields.text("namespace", DEFAULT_NAMESPACE),
        "dialect": _dialect(fields),
        "queue": _known(fields, "queue", reading.cast.queues, reading),
        "priority": fields.number("priority", 0) if "priority" in fields else None,
        "class_name": _known(fields, "class", reading.cast.classes, reading),
        "created_s": fields.duration("created", 0.0, signed=True),
        "recreate": fields.choice("controller", ("recreate",)) == "recreate",
        "recreate_after_s": fields.duration("recreate-after"),
        "recreate_limit": fields.count("recreate-limit", 0) if "recreate-limit" in fields else None,
        "scheduler": scheduler,
        "mode": fields.choice("mode", [mode.value for mode in Mode]),
        "wait": _wait(fields),
        "match": fields.choice("match", [policy.value for policy in MatchPolicy]),
        "total": fields.count("total", 1, least=1) if "total" in fields else None,
        "group": tuple(_group(fields, reading)),
        "topology": _topology(fields),
    }


def _dialect(fields: Fields) -> str:
    dialect = fields.choice("dialect", manifests.DIALECTS, "volcano")
    if dialect != "volcano" and "roles" in fields:
        fields.fault("roles", f"only a gang of the dialect volcano has roles, not {dialect}")
    if dialect != "volcano" and "topology" in fields:
        fields.fault("topology", f"only a gang of the dialect volcano says this, not {dialect}")
    return dialect


def _known(fields: Fields, key: str, choices: dict[str, None], reading: Reading, *, what: str = "") -> str:
    found = fields.text(key)
    mark = fields.at.mapping.get(key, fields.at)
    if found and not known_word(mark, found, what or key, choices, field=fields.field(key), faults=reading.faults):
        return ""
    return found


def _wait(fields: Fields) -> str:
    """As Koordinator writes it. Checked here, and passed on as written."""
    found = fields.duration("wait")
    return "" if found is None else f"{found:g}s"


def _group(fields: Fields, reading: Reading) -> Iterator[str]:
    for text, at in fields.words("group"):
        who = reading.cast.who(text, at, field=fields.field("group"), faults=reading.faults)
        if who is not None:
            yield f"{who.namespace}/{who.gang}"


def _topology(fields: Fields) -> Manifest | None:
    found = fields.get("topology")
    if found is None:
        return None
    inner = Fields(found, table="topology", path=fields.field("topology"), faults=fields.faults)
    if ("hard" in inner) == ("soft" in inner):
        fields.fault("topology", "takes hard or soft, one of them")
    mode = "hard" if "hard" in inner else "soft"
    return {"mode": mode, "highestTierAllowed": inner.count(mode, 1)}


def _roles(fields: Fields, reading: Reading) -> Iterator[RoleSpec]:
    if "roles" not in fields:
        yield _role(fields, "", reading)
        return
    if "pods" in fields or "arrived" in fields:
        fields.fault("pods" if "pods" in fields else "arrived", "stands with each role where a gang has roles")
    inherited = {key: value for key, value in fields.at.mapping.items() if key in _OF_PODS}
    seen: set[str] = set()
    for path, item in fields.items("roles"):
        merged = {**inherited, **item.mapping}
        keys = {key: item.keys.get(key, value) for key, value in merged.items()}
        at = Marked(merged, item.line, item.column, item.width, keys=keys) if item.is_mapping else item
        inner = Fields(at, table="role", path=path, faults=reading.faults)
        for name in names_of(inner):
            if name in seen:
                inner.fault("name", f"there are two roles {name!r}")
            seen.add(name)
            yield _role(inner, name, reading)


def _role(fields: Fields, name: str, reading: Reading) -> RoleSpec:
    count = fields.count("pods", 1, least=1)
    arrived = fields.count("arrived", count)
    least = fields.count("min", count, least=0 if name else 1)
    if arrived > count:
        fields.fault("arrived", f"{arrived} is more than the {count} members that can exist", suggestion=str(count))
    if least > count:
        fields.fault("min", f"{least} is more than the {count} members that can exist", suggestion=str(count))
    return RoleSpec(name, count, min(arrived, count), min(least, count), _template(fields), _at(fields, count, reading))


def _template(fields: Fields) -> Template:
    leaves = fields.get("leaves")
    return Template(
        each=fields.amounts("each"),
        runs_s=fields.duration("runs"),
        ends=fields.choice("ends", ("Succeeded", "Failed"), "Succeeded"),
        starts_s=fields.duration("starts"),
        leaves_s=inf if leaves is not None and leaves.text == "never" else fields.duration("leaves"),
        selector=fields.texts("selector"),
        tolerations=tuple(
            made for path, item in fields.items("tolerations") for made in _toleration_of(item, field=path, faults=fields.faults)
        ),
        affinity=fields.mapping("affinity"),
        labels=fields.texts("labels"),
        annotations=fields.mapping("annotations"),
        spec=fields.mapping("spec"),
    )


def _at(fields: Fields, count: int, reading: Reading) -> tuple[str, ...]:
    """One node takes all members; a list or a range gives each a node, and the members beyond it wait."""
    found = fields.get("at")
    if found is None:
        return ()
    words = fields.words("at")
    nodes = [word for word, at in words if reading.cast.node(word, at, field=fields.field("at"), faults=reading.faults)]
    if found.is_scalar and not is_range(found.text):
        return tuple(nodes * count)
    if len(nodes) > count:
        fields.fault("at", f"{len(nodes)} nodes for {count} members")
    return tuple(nodes)
