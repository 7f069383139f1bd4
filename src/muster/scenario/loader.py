"""From a file to scenarios, one for each YAML document. All faults of a file are reported at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from muster.config import default_policy, load_policy
from muster.engine.hooks import Policy
from muster.scenario.field_reader import Field, FieldReader
from muster.scenario.object_parser import parse_gang, parse_node, parse_priority_class, parse_queue
from muster.scenario.step_parser import parse_manifest, parse_step
from muster.scenario.symbol_table import SymbolTable
from muster.scenario.syntax_tree import Scenario, SubmitStep
from muster.sim.fault_injection import FaultRates
from muster.yaml_positions import InputError, InputFaults, YamlValue, yaml_value
from muster.yaml_reader import read_yaml_documents


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
    symbols = SymbolTable(at)
    fields = FieldReader(Field(at, "", faults), table="scenario")
    fields.require("name")
    scenario = Scenario(
        name=fields["name"].text("unnamed"),
        file=file,
        line=at.line,
        policy=_parse_policy(fields["policy"], file),
        nodes=tuple(made for item in fields["nodes"].items() for made in parse_node(item)),
        queues=tuple(made for item in fields["queues"].items() for made in parse_queue(item, symbols)),
        classes=tuple(made for item in fields["priorityClasses"].items() for made in parse_priority_class(item)),
        gangs=tuple(made for item in fields["gangs"].items() for made in parse_gang(item, symbols)),
        objects=tuple(made for item in fields["objects"].items() for made in parse_manifest(item)),
        faults=_parse_faults(fields),
        steps=tuple(step for item in fields["steps"].items() if (step := parse_step(item, symbols)) is not None),
    )
    _check_names(scenario, at, faults)
    return scenario


def _parse_faults(fields: FieldReader) -> FaultRates:
    at = fields["faults"]
    inner = FieldReader(replace(at, at=yaml_value({})) if at.is_absent else at, table="faults")
    return FaultRates(
        seed=fields["seed"].number(),
        delayed=inner["delayed"].fraction(),
        dropped=inner["dropped"].fraction(),
        duplicated=inner["duplicated"].fraction(),
        reordered=inner["reordered"].fraction(),
        bind_failures=inner["bindFailures"].fraction(),
    )


def _parse_policy(at: Field, file: str) -> YamlValue | Path | None:
    """The policy, or the path of its file. It is parsed once here, so that its faults are reported with the others."""
    if at.is_absent:
        return None
    if not at.at.is_mapping:
        path = Path(file).parent / at.text()
        load_policy(path)
        return path
    try:
        load_policy(at.at, file=file)
    except InputError as error:
        for fault in error.faults:
            mark = YamlValue(fault.value, fault.line, fault.column, fault.width, fault.value)
            at.faults.add(mark, fault.message, field=f"policy.{fault.field}", suggestion=fault.suggestion)
    return at.at


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
    # At the start no two gangs have one name; later a name may be used again after its gang was deleted.
    for gangs in (scenario.gangs, *(step.gangs for step in scenario.steps if isinstance(step, SubmitStep))):
        _check_duplicates(((gang.title, YamlValue(gang.title, gang.line, text=gang.title)) for gang in gangs), "gangs", faults)


def _check_duplicates(named: Iterable[tuple[str, YamlValue]], what: str, faults: InputFaults) -> None:
    seen: set[str] = set()
    for name, at in named:
        if name in seen:
            faults.add(at, f"{what}: duplicate name {name!r}", field=what)
        seen.add(name)
