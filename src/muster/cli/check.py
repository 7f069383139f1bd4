"""`muster check`: is this policy file right, and what does it do?"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from muster.cli import BAD_INPUT, OK
from muster.cli.errors import BadFiles, UserError, show_user_error
from muster.cli.files import read_text
from muster.cli.machine import faults_document, show_json
from muster.cli.screen import BOLD, DIM, GOOD, Line, Screen, to_stdout
from muster.cli.table import Cell, Column, lay_out
from muster.config import default_policy, load_policy
from muster.config.options import options_of
from muster.config.policy import SETTINGS
from muster.config.shape import hooks_of
from muster.engine.cycle import ACTIONS
from muster.engine.hooks import Plugin, Policy
from muster.yaml_marks import Fault, InputError

DEFAULT = "the default policy"

# What a plugin has a say in, by the hooks that it has.
_SAYS = (
    ("order", ("queue_key", "gang_key", "pod_key")),
    ("share", ("deserved", "quota_room")),
    ("admit", ("admit",)),
    ("where", ("domains", "match", "fit", "fit_among")),
    ("score", ("score", "prefer", "score_among", "score_domain", "fill_order")),
    ("evict", ("evictable", "may_take", "guards", "lost_hours", "victims", "node_cost")),
)


def check(files: list[Path], *, json: bool) -> int:
    """Every file is looked at, whatever is wrong with the others."""
    faults: list[Fault] = []
    policies: list[tuple[str, Policy]] = []
    wrong: list[UserError] = []
    for file in files:
        try:
            read_text(file)
            policies.append((str(file), load_policy(file)))
        except InputError as error:
            faults.extend([*error.faults, *_hints(error)])
        except UserError as error:
            wrong.append(error)
    if not files:
        policies.append((DEFAULT, default_policy()))
    if json:
        _show_machine(policies, faults, wrong)
    else:
        screen = to_stdout()
        for name, policy in policies:
            screen.say_all(list(_lines(name, policy, screen)))
        for each in [*wrong, *([BadFiles(faults)] if faults else [])]:
            show_user_error(each)
    return BAD_INPUT if faults or wrong else OK


def _hints(error: InputError) -> list[Fault]:
    """Whoever gives us a scenario is told which command is for it."""
    fields = {fault.field for fault in error.faults}
    if {"steps", "nodes"} & fields:
        return [Fault("this looks like a scenario, not a policy: run it with `muster sim`", file=error.file)]
    return []


def _lines(name: str, policy: Policy, screen: Screen) -> Iterator[Line]:
    yield Line.of((name, BOLD), ": ", ("OK", GOOD))
    yield Line.of("")
    schedulers = ", ".join(policy.settings.scheduler_names)
    yield Line.of((" schedules  ", DIM), f"pods whose schedulerName is {schedulers}")
    yield Line.of("")
    steps = [(f"{number}.", Cell(action, BOLD), _first_line(ACTIONS[action])) for number, action in enumerate(policy.actions, 1)]
    yield Line.of((" each cycle", DIM))
    yield from lay_out([Column("", right=True), Column(""), Column("")], steps, width=screen.width, indent=3)
    yield Line.of("")
    plugins = [
        (Cell(plugin.name, BOLD), _says(plugin), _options_text(plugin), _first_line(type(plugin))) for plugin in policy.plugins
    ]
    columns = [Column("plugin"), Column("has a say in"), Column("options"), Column("what it does")]
    yield from lay_out(columns, plugins, width=screen.width)
    yield Line.of("")
    settings = [f"{option.key}: {_written(getattr(policy.settings, option.field))}" for option in SETTINGS]
    yield Line.of((" settings  ", DIM), ", ".join(settings))
    yield Line.of("")


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n", 1)[0].replace("\n", " ")


def _says(plugin: Plugin) -> str:
    hooks = {hook.name for hook in hooks_of(plugin)}
    return ", ".join(word for word, names in _SAYS if hooks & set(names))


def _options(plugin: Plugin) -> dict[str, Any]:
    """The options in use, as a policy file writes them."""
    return {option.key: getattr(plugin, option.field, None) for option in options_of(type(plugin))}


def _options_text(plugin: Plugin) -> str:
    return ", ".join(f"{key}: {_written(value)}" for key, value in _options(plugin).items())


def _written(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower().replace("none", "null")
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_written(each) for each in value) + "]"
    return str(getattr(value, "value", value))


def _show_machine(policies: list[tuple[str, Policy]], faults: list[Fault], wrong: list[UserError]) -> None:
    errors = [*faults_document(faults), *({"message": str(error)} for error in wrong)]
    told = [
        {
            "file": name,
            "schedulerNames": list(policy.settings.scheduler_names),
            "actions": list(policy.actions),
            "plugins": [{"name": plugin.name, "options": _plain(_options(plugin))} for plugin in policy.plugins],
            "settings": {option.key: _plain(getattr(policy.settings, option.field)) for option in SETTINGS},
        }
        for name, policy in policies
    ]
    show_json("check", ok=not errors, errors=errors, policies=told)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return getattr(value, "value", value)
