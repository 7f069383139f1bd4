"""From a file to scenarios, one for each YAML document. All faults of a file are reported at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from muster.config import default_policy, load_policy
from muster.engine.hooks import Policy
from muster.scenario.field_reader import FieldReader
from muster.scenario.object_parser import ParseScope, parse_gang, parse_node, parse_priority_class, parse_queue
from muster.scenario.step_parser import parse_manifest, parse_step
from muster.scenario.symbol_table import SymbolTable
from muster.scenario.syntax_tree import FaultSpec, GangSpec, Scenario, SourceManifest, SubmitStep
from muster.yaml_positions import InputError, InputFaults, YamlValue, read_yaml_documents, yaml_value

T = TypeVar("T")


def load(path: str | Path) -> list[Scenario]:
    """The scenarios of a file. Raises InputError, with all faults of the file."""
    file = os.fspath(path)
    return parse(Path(path).read_text(encoding="utf-8"), file=file)


def parse(text: str, *, file: str) -> list[Scenario]:
    faults = InputFaults(file)
    documents = read_yaml_documents(text, file=file)
    if not documents:
        faults.add(YamlValue(None), "there is no scenario in this file")
    found = [_parse_scenario(document, file=file, faults=faults) for document in documents]
    _check_duplicates(((one.name, YamlValue(one.name, one.line, text=one.name)) for one in found), "scenarios", faults)
    faults.raise_any()
    return found


def from_document(document: Mapping[str, object], *, file: str = "<made>") -> Scenario:
    """A scenario out of plain data, as YAML would have given it."""
    faults = InputFaults(file)
    found = _parse_scenario(yaml_value(document), file=file, faults=faults)
    faults.raise_any()
    return found


def _parse_scenario(at: YamlValue, *, file: str, faults: InputFaults) -> Scenario:
    scope = ParseScope(SymbolTable(at), faults)
    fields = FieldReader(at, table="scenario", path="", faults=faults)
    if "name" not in fields:
        fields.report_missing("name")
    scenario = Scenario(
        name=fields.text("name", "unnamed"),
        file=file,
        line=at.line,
        policy=_parse_policy(fields, file),
        nodes=_parse_list(fields, "nodes", parse_node, scope),
        queues=_parse_list(fields, "queues", parse_queue, scope),
        classes=_parse_list(fields, "priorityClasses", parse_priority_class, scope),
        gangs=_parse_list(fields, "gangs", parse_gang, scope),
        objects=tuple(_parse_objects(fields, scope)),
        seed=fields.number("seed", 0),
        faults=_parse_faults(fields),
        steps=tuple(step for path, item in fields.items("steps") if (step := parse_step(item, path=path, scope=scope)) is not None),
    )
    _check_names(scenario, at, faults)
    return scenario


def _parse_list(fields: FieldReader, key: str, read: Callable[..., Iterable[T]], scope: ParseScope) -> tuple[T, ...]:
    return tuple(made for path, item in fields.items(key) for made in read(item, path=path, scope=scope))


def _parse_objects(fields: FieldReader, scope: ParseScope) -> Iterator[SourceManifest]:
    for path, item in fields.items("objects"):
        yield from parse_manifest(item, path=path, faults=scope.faults)


def _parse_faults(fields: FieldReader) -> FaultSpec:
    found = fields.get("faults")
    if found is None:
        return FaultSpec()
    inner = FieldReader(found, table="faults", path="faults", faults=fields.faults)
    return FaultSpec(
        delayed=inner.fraction("delayed"),
        dropped=inner.fraction("dropped"),
        duplicated=inner.fraction("duplicated"),
        reordered=inner.fraction("reordered"),
        bind_failures=inner.fraction("bindFailures"),
    )


def _parse_policy(fields: FieldReader, file: str) -> YamlValue | Path | None:
    """The policy, or the path of its file. It is parsed once here, so that its faults are reported with the others."""
    found = fields.get("policy")
    if found is None:
        return None
    if not found.is_mapping:
        path = Path(file).parent / fields.text("policy")
        load_policy(path)
        return path
    try:
        load_policy(found, file=file)
    except InputError as error:
        for fault in error.faults:
            at = YamlValue(fault.value, fault.line, fault.column, fault.width, fault.value)
            fields.faults.add(at, fault.message, field=f"policy.{fault.field}", suggestion=fault.suggestion)
    return found


def policy_of(scenario: Scenario) -> Policy:
    """The scenario's policy, made anew: no two calls share anything."""
    if scenario.policy is None:
        return default_policy()
    return load_policy(scenario.policy, file=scenario.file)


# -- duplicate names --------------------------------------------------------------------------------------------------------------


def _check_names(scenario: Scenario, at: YamlValue, faults: InputFaults) -> None:
    for key, made in (("nodes", scenario.nodes), ("queues", scenario.queues), ("priorityClasses", scenario.classes)):
        named = [manifest["metadata"]["name"] for manifest in made if manifest["kind"] != "Device"]
        _check_duplicates(((name, at.mapping[key]) for name in named), key, faults)
    _check_gangs(scenario, faults)


def _check_gangs(scenario: Scenario, faults: InputFaults) -> None:
    """At the start no two gangs have one name; later a name may be used again after its gang was deleted."""
    _check_duplicates(((gang.title, _gang_mark(gang)) for gang in scenario.gangs), "gangs", faults)
    for step in scenario.steps:
        if isinstance(step, SubmitStep):
            _check_duplicates(((gang.title, _gang_mark(gang)) for gang in step.gangs), "gangs", faults)


def _gang_mark(gang: GangSpec) -> YamlValue:
    return YamlValue(gang.title, gang.line, text=gang.title)


def _check_duplicates(named: Iterable[tuple[str, YamlValue]], what: str, faults: InputFaults) -> None:
    seen: set[str] = set()
    for name, at in named:
        if name in seen:
            faults.add(at, f"{what}: duplicate name {name!r}", field=what)
        seen.add(name)
