"""`muster check`: is this policy file right, and what does it do?"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
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
from muster.engine.hooks import Plugin, Policy
from muster.yaml_marks import Fault, InputError

DEFAULT = "the default policy"

_ACTIONS = {
    "expire": "end claims and holds whose time is up, or whose node is gone",
    "enqueue": "decide which gangs may be attempted at all",
    "allocate": "place gangs on free room, in their order",
    "preempt": "make room for a single pod: less important pods of its queue go",
    "gang-preempt": "make room for a whole gang: less important gangs of its queue go",
    "gang-reclaim": "take back room for a whole gang from queues that have more than they deserve",
    "job-preempt": "make room for a whole job within its quota",
}
_OF_SCENARIOS = ("steps", "nodes", "gangs")

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
            faults.extend(_told(error))
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


def _told(error: InputError) -> tuple[Fault, ...]:
    """Whoever gives us a scenario is told which command is for it, and not what else a policy would lack."""
    for fault in error.faults:
        if fault.field in _OF_SCENARIOS:
            return (replace(fault, message=f"this is a scenario, not a policy: try `muster sim {fault.file}`", suggestion=""),)
    return error.faults


def _lines(name: str, policy: Policy, screen: Screen) -> Iterator[Line]:
    yield Line.of((name, BOLD), ": ", ("OK", GOOD))
    yield Line.of("")
    schedulers = ", ".join(policy.settings.scheduler_names)
    yield Line.of((" schedules  ", DIM), f"pods whose schedulerName is {schedulers}")
    yield Line.of("")
    steps = [(f"{number}.", Cell(action, BOLD), _ACTIONS.get(action, "")) for number, action in enumerate(policy.actions, 1)]
    yield Line.of((" each cycle", DIM))
    yield from lay_out([Column("", right=True), Column(""), Column("")], steps, width=screen.width, indent=3)
    yield Line.of("")
    columns = [Column("plugin"), Column("has a say in"), Column("what it does")]
    yield from lay_out(columns, [row for plugin in policy.plugins for row in _rows(plugin)], width=screen.width)
    yield Line.of("")
    settings = [f"{option.key}: {_written(getattr(policy.settings, option.field))}" for option in SETTINGS]
    yield Line.of((" settings  ", DIM), ", ".join(settings))
    yield Line.of("")


def _rows(plugin: Plugin) -> Iterator[tuple[Cell, str, Cell]]:
    yield Cell(plugin.name, BOLD), _says(plugin), Cell(_first_line(type(plugin)))
    options = ", ".join(f"{key}: {_written(value)}" for key, value in _options(plugin).items())
    if options:
        yield Cell(""), "", Cell(options, DIM)


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n", 1)[0].replace("\n", " ")


def _says(plugin: Plugin) -> str:
    hooks = {hook.name for hook in hooks_of(plugin)}
    return ", ".join(word for word, names in _SAYS if hooks & set(names))


def _options(plugin: Plugin) -> dict[str, Any]:
    """The options in use, as a policy file writes them."""
    return {option.key: getattr(plugin, option.field, None) for option in options_of(type(plugin))}


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
