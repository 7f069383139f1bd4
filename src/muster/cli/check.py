"""`muster check`: validate policy files and summarise what they do."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.cli import BAD_INPUT, OK
from muster.cli.errors import InvalidFiles, UserError, show_user_error
from muster.cli.json_output import faults_document, write_json
from muster.cli.scenario_files import read_text
from muster.cli.screen import BOLD, DIM, GOOD, Screen, TextLine, to_stdout
from muster.cli.text_table import Column, TableCell, lay_out
from muster.config import default_policy, load_policy
from muster.config.plugin_check import hooks_of
from muster.config.plugin_options import options_of
from muster.config.policy_file import SETTINGS
from muster.engine.hooks import Plugin, Policy
from muster.yaml_positions import InputError, InputFault

DEFAULT_POLICY_NAME = "the default policy"

_ACTION_SUMMARIES = {
    "expire": "end reservations and nominations that timed out, or whose node is gone",
    "enqueue": "decide which gangs are attempted at all",
    "allocate": "place gangs on free capacity, in queue order",
    "preempt": "preempt for a single pod: evict pods of lower priority in its queue",
    "gang-preempt": "preempt for a whole gang: evict gangs of lower priority in its queue",
    "gang-reclaim": "reclaim capacity for a whole gang from queues that use more than they deserve",
    "job-preempt": "preempt for a whole job within its quota",
}
_SCENARIO_KEYS = ("steps", "nodes", "gangs")

# What a plugin takes part in, by the hooks that it implements.
_HOOK_GROUPS = (
    ("order", ("queue_key", "gang_key", "pod_key")),
    ("share", ("deserved", "quota_fit")),
    ("admit", ("admit",)),
    ("where", ("domains", "match", "fit", "fit_inter_pod")),
    ("score", ("score", "prefer", "score_inter_pod", "score_domain", "fill_order")),
    ("evict", ("evictable", "allows_eviction", "may_exceed_budget", "lost_hours", "victims", "node_cost")),
)


def check(files: list[Path], *, json: bool) -> int:
    """Check every file, also where others are invalid."""
    faults: list[InputFault] = []
    policies: list[tuple[str, Policy]] = []
    errors: list[UserError] = []
    for file in files:
        try:
            read_text(file)
            policies.append((str(file), load_policy(file)))
        except InputError as error:
            faults.extend(_as_scenario_fault(error))
        except UserError as invalid:
            errors.append(invalid)
    if not files:
        policies.append((DEFAULT_POLICY_NAME, default_policy()))
    if json:
        _show_json(policies, faults, errors)
    else:
        screen = to_stdout()
        for name, policy in policies:
            screen.print_lines(list(_lines(name, policy, screen)))
        for shown in [*errors, *([InvalidFiles(faults)] if faults else [])]:
            show_user_error(shown)
    return BAD_INPUT if faults or errors else OK


def _as_scenario_fault(error: InputError) -> tuple[InputFault, ...]:
    """For a scenario the only error is which command reads it, not every key that a policy does not have."""
    for fault in error.faults:
        if fault.field in _SCENARIO_KEYS:
            return (replace(fault, message=f"this is a scenario, not a policy: try `muster sim {fault.file}`", suggestion=""),)
    return error.faults


def _lines(name: str, policy: Policy, screen: Screen) -> Iterator[TextLine]:
    yield TextLine.of((name, BOLD), ": ", ("OK", GOOD))
    yield TextLine.of("")
    schedulers = ", ".join(policy.settings.scheduler_names)
    yield TextLine.of((" schedules  ", DIM), f"pods whose schedulerName is {schedulers}")
    yield TextLine.of("")
    steps = [
        (f"{number}.", TableCell(action, BOLD), _ACTION_SUMMARIES.get(action, ""))
        for number, action in enumerate(policy.actions, 1)
    ]
    yield TextLine.of((" each cycle", DIM))
    yield from lay_out([Column("", align_right=True), Column(""), Column("")], steps, width=screen.width, indent=3)
    yield TextLine.of("")
    columns = [Column("plugin"), Column("takes part in"), Column("summary")]
    yield from lay_out(columns, [row for plugin in policy.plugins for row in _rows(plugin)], width=screen.width)
    yield TextLine.of("")
    settings = [f"{option.key}: {_yaml_text(getattr(policy.settings, option.field))}" for option in SETTINGS]
    yield TextLine.of((" settings  ", DIM), ", ".join(settings))
    yield TextLine.of("")


def _rows(plugin: Plugin) -> Iterator[tuple[TableCell, str, TableCell]]:
    yield TableCell(plugin.name, BOLD), _hook_groups(plugin), TableCell(_first_paragraph(type(plugin)))
    options = ", ".join(f"{key}: {_yaml_text(value)}" for key, value in _options(plugin).items())
    if options:
        yield TableCell(""), "", TableCell(options, DIM)


def _first_paragraph(documented: object) -> str:
    return (inspect.getdoc(documented) or "").split("\n\n", 1)[0].replace("\n", " ")


def _hook_groups(plugin: Plugin) -> str:
    hooks = {hook.name for hook in hooks_of(plugin)}
    return ", ".join(group for group, names in _HOOK_GROUPS if hooks & set(names))


def _options(plugin: Plugin) -> dict[str, Any]:
    """The options in effect, by their keys in a policy file."""
    return {option.key: getattr(plugin, option.field, None) for option in options_of(type(plugin))}


def _yaml_text(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower().replace("none", "null")
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_yaml_text(each) for each in value) + "]"
    return str(getattr(value, "value", value))


def _show_json(policies: list[tuple[str, Policy]], faults: list[InputFault], errors: list[UserError]) -> None:
    messages = [*faults_document(faults), *({"message": str(error)} for error in errors)]
    documents = [
        {
            "file": name,
            "schedulerNames": list(policy.settings.scheduler_names),
            "actions": list(policy.actions),
            "plugins": [{"name": plugin.name, "options": _builtins(_options(plugin))} for plugin in policy.plugins],
            "settings": {option.key: _builtins(getattr(policy.settings, option.field)) for option in SETTINGS},
        }
        for name, policy in policies
    ]
    write_json("check", ok=not messages, errors=messages, policies=documents)


def _builtins(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _builtins(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_builtins(each) for each in value]
    return getattr(value, "value", value)
