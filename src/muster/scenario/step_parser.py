"""Parses steps: what happens in a scenario, in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from muster.kube.read.object_references import Manifest
from muster.scenario.expectation_parser import parse_expect
from muster.scenario.field_reader import (
    DEFAULT_CYCLE_INTERVAL_S,
    FieldReader,
    parse_amounts,
    parse_count,
    parse_duration,
    parse_names,
    parse_run_span,
    report_unknown_key,
)
from muster.scenario.key_tables import key_names
from muster.scenario.object_parser import ParseScope, parse_gang, parse_node, parse_taint
from muster.scenario.symbol_table import is_manifest, is_object_name
from muster.scenario.syntax_tree import (
    AdvanceStep,
    CrashStep,
    CycleStep,
    DeleteStep,
    FailStep,
    GangSpec,
    NamedObject,
    NodeStep,
    PatchStep,
    PodTarget,
    RestartStep,
    RunStep,
    ScaleStep,
    ScenarioStep,
    SourceManifest,
    SubmitStep,
)
from muster.sim.api_kinds import BadManifest, ref_of
from muster.yaml_positions import InputFaults, YamlValue

STEPS_WITHOUT_VALUE = ("cycle", "restart")
"""Steps that may be written without a value."""


def parse_step(at: YamlValue, *, path: str, scope: ParseScope) -> ScenarioStep | None:
    if at.is_scalar and at.text in STEPS_WITHOUT_VALUE:
        at = YamlValue({at.text: YamlValue(None, at.line, at.column)}, at.line, at.column, keys={at.text: at})
    if not at.is_mapping or len(at.mapping) != 1:
        what = f"{len(at.mapping)} keys" if at.is_mapping else at.type_text
        scope.faults.add(at, f"{path}: a step has one key, such as cycle or expect, not {what}", field=path)
        return None
    (key,) = at.mapping
    if key not in key_names("step"):
        report_unknown_key(at.keys[key], table="step", field=path, faults=scope.faults, what="step")
        return None
    return _PARSERS[key](at.mapping[key], f"{path}.{key}", scope, at.keys[key].line)


def _parse_submit(at: YamlValue, path: str, scope: ParseScope, line: int) -> SubmitStep:
    gangs: list[GangSpec] = []
    objects: list[SourceManifest] = []
    for i, item in enumerate(at.items if at.is_list else (at,)):
        place = f"{path}[{i}]" if at.is_list else path
        if is_manifest(item):
            objects.extend(parse_manifest(item, path=place, faults=scope.faults))
        else:
            gangs.extend(parse_gang(item, path=place, scope=scope))
    return SubmitStep(line, tuple(gangs), tuple(objects))


def parse_manifest(at: YamlValue, *, path: str, faults: InputFaults) -> Iterator[SourceManifest]:
    """A manifest, with annotations as texts. A fault is only what no API server would accept."""
    plain = at.plain()
    if not isinstance(plain, dict):
        faults.add(at, f"{path}: takes a Kubernetes manifest, not {at.type_text}", field=path)
        return
    try:
        ref_of(plain)
    except BadManifest as bad:
        faults.add(at, f"{path}: {bad}", field=path)
        return
    metadata = at.mapping["metadata"]
    annotations = metadata.mapping.get("annotations")
    if annotations is not None and annotations.is_mapping:
        plain["metadata"]["annotations"] = {key: _text(value) for key, value in annotations.mapping.items()}
    yield SourceManifest(plain, at.line)


def _text(value: YamlValue) -> str:
    if isinstance(value.value, str):
        return value.value
    if isinstance(value.value, int | float) and not isinstance(value.value, bool):
        return value.text
    return json.dumps(value.plain())


def _parse_delete(at: YamlValue, path: str, scope: ParseScope, line: int) -> DeleteStep:
    targets: list[PodTarget | NamedObject] = []
    for item in at.items if at.is_list else (at,):
        for word, mark in parse_names(item, field=path, faults=scope.faults):
            found = parse_target(word, mark, path, scope)
            if found is not None:
                targets.append(found)
    return DeleteStep(line, tuple(targets))


def parse_target(word: str, at: YamlValue, path: str, scope: ParseScope) -> PodTarget | NamedObject | None:
    look_up = scope.symbols.named_object if is_object_name(word) else scope.symbols.target
    return look_up(word, at, field=path, faults=scope.faults)


def _parse_scale(at: YamlValue, path: str, scope: ParseScope, line: int) -> ScaleStep:
    if not at.is_mapping:
        scope.faults.add(at, f"{path}: takes gang: count, not {at.type_text}", field=path)
    to: list[tuple[PodTarget, int]] = []
    for text, value in at.mapping.items():
        target = scope.symbols.target(text, at.keys[text], field=path, faults=scope.faults)
        count = parse_count(value, field=f"{path}.{text}", faults=scope.faults)
        if target is not None and target.pod:
            scope.faults.add(at.keys[text], f"{path}: {text!r} is one pod, not a gang", field=path)
        elif target is not None:
            to.append((target, count))
    return ScaleStep(line, tuple(to))


def _parse_cycle(at: YamlValue, path: str, scope: ParseScope, line: int) -> CycleStep:
    return CycleStep(line, 1 if at.value is None else parse_count(at, field=path, faults=scope.faults, least=1, default=1))


def _parse_advance(at: YamlValue, path: str, scope: ParseScope, line: int) -> AdvanceStep:
    return AdvanceStep(line, parse_duration(at, field=path, faults=scope.faults, default=0.0))


def _parse_run(at: YamlValue, path: str, scope: ParseScope, line: int) -> RunStep:
    if at.is_scalar:
        return RunStep(line, parse_duration(at, field=path, faults=scope.faults, default=0.0), DEFAULT_CYCLE_INTERVAL_S)
    return RunStep(line, *parse_run_span(at, path=path, faults=scope.faults))


def _parse_node(at: YamlValue, path: str, scope: ParseScope, line: int) -> NodeStep | None:
    fields = FieldReader(at, table="node step", path=path, faults=scope.faults)
    verbs = [verb for verb in key_names("node step") if verb in fields]
    if len(verbs) != 1:
        scope.faults.add(at, f"{path}: takes one of {', '.join(key_names('node step'))}", field=path)
        return None
    verb = verbs[0]
    if verb == "add":
        added = (parse_node(item, path=place, scope=scope) for place, item in fields.items("add"))
        return NodeStep(line, verb, nodes=tuple(node for nodes in added for node in nodes))
    if verb in ("taint", "label", "resize"):
        return NodeStep(line, verb, changes=tuple(_parse_node_changes(fields, verb, scope)))
    known = [word for word, mark in fields.expanded_names(verb) if _is_known_node(word, mark, fields.field(verb), scope)]
    return NodeStep(line, verb, names=tuple(known))


def _parse_node_changes(fields: FieldReader, verb: str, scope: ParseScope) -> Iterator[tuple[str, Manifest]]:
    for key, value in fields.entries(verb):
        place = f"{fields.field(verb)}.{key.text}"
        change = _parse_node_patch(verb, value, place, scope)
        for word, mark in parse_names(key, field=place, faults=scope.faults):
            if _is_known_node(word, mark, place, scope):
                yield word, change


def _parse_node_patch(verb: str, value: YamlValue, place: str, scope: ParseScope) -> Manifest:
    """A merge patch of the Node."""
    if verb == "taint":
        items = value.items if value.is_list else () if value.value is None else (value,)
        return {"spec": {"taints": [taint for item in items for taint in parse_taint(item, field=place, faults=scope.faults)]}}
    if verb == "resize":
        capacity = dict(parse_amounts(value, field=place, faults=scope.faults))
        return {"status": {"allocatable": capacity, "capacity": capacity}}
    if not value.is_mapping:
        scope.faults.add(value, f"{place}: takes a mapping of labels, not {value.type_text}", field=place)
    labels = {key: None if label.value is None else label.text for key, label in value.mapping.items()}
    return {"metadata": {"labels": labels}}


def _is_known_node(word: str, mark: YamlValue, field: str, scope: ParseScope) -> bool:
    return scope.symbols.has_node(word, mark, field=field, faults=scope.faults)


def _parse_fail(at: YamlValue, path: str, scope: ParseScope, line: int) -> FailStep:
    fields = FieldReader(at, table="fail step", path=path, faults=scope.faults)
    if "bind" not in fields and "evict" not in fields:
        scope.faults.add(at, f"{path}: takes bind or evict, with gangs or members", field=path)
    found = {
        key: [_parse_pod_target(word, mark, fields.field(key), scope) for word, mark in fields.expanded_names(key)]
        for key in ("bind", "evict")
    }
    bind, evict = (tuple(target for target in found[key] if target is not None) for key in ("bind", "evict"))
    return FailStep(line, bind, evict, fields.count("times", 1, least=1))


def _parse_pod_target(word: str, mark: YamlValue, path: str, scope: ParseScope) -> PodTarget | None:
    return scope.symbols.target(word, mark, field=path, faults=scope.faults)


def _parse_restart(at: YamlValue, path: str, scope: ParseScope, line: int) -> RestartStep:
    if at.value is not None and not (at.is_mapping and not at.mapping):
        scope.faults.add(at, f"{path}: takes nothing", field=path)
    return RestartStep(line)


def _parse_crash(at: YamlValue, path: str, scope: ParseScope, line: int) -> CrashStep:
    return CrashStep(line, parse_count(at, field=path, faults=scope.faults))


def _parse_patch(at: YamlValue, path: str, scope: ParseScope, line: int) -> PatchStep | None:
    fields = FieldReader(at, table="patch", path=path, faults=scope.faults)
    for key in ("object", "merge"):
        if key not in fields:
            fields.report_missing(key)
    mark = fields.get("object")
    found = None if mark is None else scope.symbols.named_object(mark.text, mark, field=fields.field("object"), faults=scope.faults)
    return None if found is None else PatchStep(line, found, fields.mapping("merge"))


_PARSERS: dict[str, Callable[[YamlValue, str, ParseScope, int], ScenarioStep | None]] = {
    "submit": _parse_submit,
    "delete": _parse_delete,
    "scale": _parse_scale,
    "cycle": _parse_cycle,
    "advance": _parse_advance,
    "run": _parse_run,
    "node": _parse_node,
    "fail": _parse_fail,
    "restart": _parse_restart,
    "crash": _parse_crash,
    "patch": _parse_patch,
    "expect": parse_expect,
}
