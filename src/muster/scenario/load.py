"""From a file to scenarios: one for each YAML document. All that is wrong with a file is told at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from muster.config import default_policy, load_policy
from muster.engine.hooks import Policy
from muster.scenario.cast import Cast
from muster.scenario.fields import Fields
from muster.scenario.gangs import Reading, read_class, read_gang, read_node, read_queue
from muster.scenario.steps import read_object, read_step
from muster.scenario.story import FaultShares, GangSpec, Scenario, Submit, Written
from muster.yaml_marks import Faults, InputError, Marked, marked, read_all

T = TypeVar("T")


def load(path: str | Path) -> list[Scenario]:
    """The scenarios of a file. Raises InputError, with all faults of the file."""
    file = os.fspath(path)
    return parse(Path(path).read_text(encoding="utf-8"), file=file)


def parse(text: str, *, file: str) -> list[Scenario]:
    faults = Faults(file)
    documents = read_all(text, file=file)
    if not documents:
        faults.add(Marked(None), "there is no scenario in this file")
    found = [_scenario(document, file=file, faults=faults) for document in documents]
    _check_twice(((one.name, Marked(one.name, one.line, text=one.name)) for one in found), "scenarios", faults)
    faults.raise_any()
    return found


def from_plain(document: Mapping[str, object], *, file: str = "<made>") -> Scenario:
    """A scenario out of plain data, as YAML would have given it."""
    faults = Faults(file)
    found = _scenario(marked(document), file=file, faults=faults)
    faults.raise_any()
    return found


def _scenario(at: Marked, *, file: str, faults: Faults) -> Scenario:
    reading = Reading(Cast(at), faults)
    fields = Fields(at, table="scenario", path="", faults=faults)
    if "name" not in fields:
        fields.lacks("name")
    scenario = Scenario(
        name=fields.text("name", "unnamed"),
        file=file,
        line=at.line,
        policy=_policy(fields, file),
        nodes=_all(fields, "nodes", read_node, reading),
        queues=_all(fields, "queues", read_queue, reading),
        classes=_all(fields, "classes", read_class, reading),
        gangs=_all(fields, "gangs", read_gang, reading),
        objects=tuple(_objects(fields, reading)),
        seed=fields.number("seed", 0),
        faults=_faults(fields),
        steps=tuple(
            step for path, item in fields.items("steps") if (step := read_step(item, path=path, reading=reading)) is not None
        ),
    )
    _check_names(scenario, at, faults)
    return scenario


def _all(fields: Fields, key: str, read: Callable[..., Iterable[T]], reading: Reading) -> tuple[T, ...]:
    return tuple(made for path, item in fields.items(key) for made in read(item, path=path, reading=reading))


def _objects(fields: Fields, reading: Reading) -> Iterator[Written]:
    for path, item in fields.items("objects"):
        yield from read_object(item, path=path, faults=reading.faults)


def _faults(fields: Fields) -> FaultShares:
    found = fields.get("faults")
    if found is None:
        return FaultShares()
    inner = Fields(found, table="faults", path="faults", faults=fields.faults)
    return FaultShares(
        late=inner.share("late"),
        lost=inner.share("lost"),
        doubled=inner.share("doubled"),
        reordered=inner.share("reordered"),
        bind_fails=inner.share("bind_fails"),
    )


def _policy(fields: Fields, file: str) -> Marked | Path | None:
    """What the policy says, or the path of its file. It is read once here, so that its faults are told with all the others."""
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
            at = Marked(fault.value, fault.line, fault.column, fault.width, fault.value)
            fields.faults.add(at, fault.message, field=f"policy.{fault.field}", suggestion=fault.suggestion)
    return found


def policy_of(scenario: Scenario) -> Policy:
    """The scenario's policy, made anew: no two calls share anything."""
    if scenario.policy is None:
        return default_policy()
    return load_policy(scenario.policy, file=scenario.file)


# -- names that stand twice --------------------------------------------------------------------------------------------------------


def _check_names(scenario: Scenario, at: Marked, faults: Faults) -> None:
    for key, made in (("nodes", scenario.nodes), ("queues", scenario.queues), ("classes", scenario.classes)):
        named = [manifest["metadata"]["name"] for manifest in made if manifest["kind"] != "Device"]
        _check_twice(((name, at.mapping[key]) for name in named), key, faults)
    _check_gangs(scenario, faults)


def _check_gangs(scenario: Scenario, faults: Faults) -> None:
    """At the start no two gangs have one name; later one may come again when it is gone."""
    _check_twice(((gang.title, _place(gang)) for gang in scenario.gangs), "gangs", faults)
    for step in scenario.steps:
        if isinstance(step, Submit):
            _check_twice(((gang.title, _place(gang)) for gang in step.gangs), "gangs", faults)


def _place(gang: GangSpec) -> Marked:
    return Marked(gang.title, gang.line, text=gang.title)


def _check_twice(named: Iterable[tuple[str, Marked]], what: str, faults: Faults) -> None:
    seen: set[str] = set()
    for name, at in named:
        if name in seen:
            faults.add(at, f"{what}: {name!r} stands twice", field=what)
        seen.add(name)
