"""Parses steps: what happens in a scenario, in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

from muster.kube.read.object_references import Manifest
from muster.scenario.expectation_parser import parse_expect
from muster.scenario.field_reader import DEFAULT_CYCLE_INTERVAL_S, Field, FieldReader, parse_run_span
from muster.scenario.key_tables import KEY_TABLES
from muster.scenario.object_parser import parse_gang, parse_node, parse_taints
from muster.scenario.symbol_table import SymbolTable, is_manifest
from muster.scenario.syntax_tree import (
    AdvanceStep,
    CrashStep,
    CycleStep,
    DeleteStep,
    FailStep,
    GangSpec,
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
from muster.yaml_positions import YamlValue

STEPS_WITHOUT_VALUE = ("cycle", "restart")
"""Steps that may be written without a value."""


def parse_step(step: Field, symbols: SymbolTable) -> ScenarioStep | None:
    at = step.at
    if at.is_scalar and at.text in STEPS_WITHOUT_VALUE:
        at = YamlValue({at.text: YamlValue(None, at.line, at.column)}, at.line, at.column, keys={at.text: at})
    if not at.is_mapping or len(at.mapping) != 1:
        what = f"{len(at.mapping)} keys" if at.is_mapping else at.type_text
        step.report(f"a step has one key, such as cycle or expect, not {what}")
        return None
    (key,) = at.mapping
    if key not in _PARSERS:
        replace(step, at=at.keys[key]).report_unknown_key("step", what="step")
        return None
    return _PARSERS[key](step.child(at.mapping[key], key), symbols, at.keys[key].line)


def _parse_submit(at: Field, symbols: SymbolTable, line: int) -> SubmitStep:
    gangs: list[GangSpec] = []
    objects: list[SourceManifest] = []
    for item in at.items():
        if is_manifest(item.at):
            objects.extend(parse_manifest(item))
        else:
            gangs.extend(parse_gang(item, symbols))
    return SubmitStep(line, tuple(gangs), tuple(objects))


def parse_manifest(at: Field) -> Iterator[SourceManifest]:
    """A manifest, with annotations as texts. A fault is only what no API server would accept."""
    plain = at.at.plain()
    if not isinstance(plain, dict):
        at.report(f"takes a Kubernetes manifest, not {at.at.type_text}")
        return
    try:
        ref_of(plain)
    except BadManifest as bad:
        at.report(str(bad))
        return
    metadata = at.at.mapping["metadata"]
    annotations = metadata.mapping.get("annotations")
    if annotations is not None and annotations.is_mapping:
        plain["metadata"]["annotations"] = {key: _text(value) for key, value in annotations.mapping.items()}
    yield SourceManifest(plain, at.at.line)


def _text(value: YamlValue) -> str:
    if isinstance(value.value, str):
        return value.value
    if isinstance(value.value, int | float) and not isinstance(value.value, bool):
        return value.text
    return json.dumps(value.plain())


def _parse_delete(at: Field, symbols: SymbolTable, line: int) -> DeleteStep:
    found = [symbols.target_or_object(word, name) for word, name in at.names()]
    return DeleteStep(line, tuple(target for target in found if target is not None))


def _parse_scale(at: Field, symbols: SymbolTable, line: int) -> ScaleStep:
    if not at.at.is_mapping:
        at.report(f"takes gang: count, not {at.at.type_text}")
    to: list[tuple[PodTarget, int]] = []
    for key, value in at.entries() if at.at.is_mapping else ():
        target, count = symbols.target(key.at.text, key), value.count()
        if target is not None and target.pod:
            key.report(f"{key.at.text!r} is one pod, not a gang")
        elif target is not None:
            to.append((target, count))
    return ScaleStep(line, tuple(to))


def _parse_cycle(at: Field, symbols: SymbolTable, line: int) -> CycleStep:  # noqa: ARG001
    return CycleStep(line, 1 if at.at.value is None else at.count(1, least=1))


def _parse_advance(at: Field, symbols: SymbolTable, line: int) -> AdvanceStep:  # noqa: ARG001
    return AdvanceStep(line, at.duration(0.0))


def _parse_run(at: Field, symbols: SymbolTable, line: int) -> RunStep:  # noqa: ARG001
    if at.at.is_scalar:
        return RunStep(line, at.duration(0.0), DEFAULT_CYCLE_INTERVAL_S)
    return RunStep(line, *parse_run_span(at))


def _parse_node(at: Field, symbols: SymbolTable, line: int) -> NodeStep | None:
    fields = FieldReader(at, table="node step")
    verbs = [verb for verb in KEY_TABLES["node step"] if verb in fields]
    if len(verbs) != 1:
        at.report(f"takes one of {', '.join(KEY_TABLES['node step'])}")
        return None
    verb = verbs[0]
    if verb == "add":
        return NodeStep(line, verb, nodes=tuple(node for item in fields["add"].items() for node in parse_node(item)))
    if verb in ("taint", "label", "resize"):
        return NodeStep(line, verb, changes=tuple(_parse_node_changes(fields[verb], verb, symbols)))
    names = tuple(word for word, name in fields[verb].names() if symbols.has_node(word, name))
    if verb in ("cordon", "uncordon"):
        change: Manifest = {"spec": {"unschedulable": True if verb == "cordon" else None}}
        return NodeStep(line, verb, changes=tuple((name, change) for name in names))
    return NodeStep(line, verb, names=names)


def _parse_node_changes(at: Field, verb: str, symbols: SymbolTable) -> Iterator[tuple[str, Manifest]]:
    for key, value in at.entries():
        change = _parse_node_patch(verb, value)
        for word, name in replace(key, path=value.path).names():
            if symbols.has_node(word, name):
                yield word, change


def _parse_node_patch(verb: str, value: Field) -> Manifest:
    """A merge patch of the Node."""
    if verb == "taint":
        return {"spec": {"taints": [] if value.at.value is None else parse_taints(value)}}
    if verb == "resize":
        capacity = dict(value.amounts())
        return {"status": {"allocatable": capacity, "capacity": capacity}}
    if not value.at.is_mapping:
        value.report(f"takes a mapping of labels, not {value.at.type_text}")
    labels = {key: None if label.value is None else label.text for key, label in value.at.mapping.items()}
    return {"metadata": {"labels": labels}}


def _parse_fail(at: Field, symbols: SymbolTable, line: int) -> FailStep:
    fields = FieldReader(at, table="fail step")
    if "bind" not in fields and "evict" not in fields:
        at.report("takes bind or evict, with gangs or members")
    found = {key: [symbols.target(word, name) for word, name in fields[key].names()] for key in ("bind", "evict")}
    bind, evict = (tuple(target for target in found[key] if target is not None) for key in ("bind", "evict"))
    return FailStep(line, bind, evict, fields["times"].count(1, least=1))


def _parse_restart(at: Field, symbols: SymbolTable, line: int) -> RestartStep:  # noqa: ARG001
    if at.at.value is not None and not (at.at.is_mapping and not at.at.mapping):
        at.report("takes nothing")
    return RestartStep(line)


def _parse_crash(at: Field, symbols: SymbolTable, line: int) -> CrashStep:  # noqa: ARG001
    return CrashStep(line, at.count())


def _parse_patch(at: Field, symbols: SymbolTable, line: int) -> PatchStep | None:
    fields = FieldReader(at, table="patch")
    fields.require("object", "merge")
    found = symbols.named_object(fields["object"].at.text, fields["object"]) if "object" in fields else None
    return None if found is None else PatchStep(line, found, fields["merge"].mapping())


_PARSERS: dict[str, Callable[[Field, SymbolTable, int], ScenarioStep | None]] = {
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
