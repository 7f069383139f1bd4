"""`muster check`: validate policy files and summarise what they do."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text

from muster.cli import BAD_INPUT, OK
from muster.cli.errors import UserError, show_user_error
from muster.cli.json_output import errors_document, write_json
from muster.cli.screen import BOLD, DIM, GOOD, NOTE, Screen, TextPart, styled, to_stdout
from muster.cli.text_files import read_text
from muster.cli.text_table import lay_out
from muster.config import default_policy, load_policy
from muster.config.plugin_check import hooks_of
from muster.config.plugin_options import as_yaml, options_of
from muster.config.policy_file import ACTION_DOCS, SETTINGS
from muster.config.policy_warnings import policy_warnings
from muster.engine.hooks import Plugin, Policy
from muster.yaml_positions import InputError, InputFault

DEFAULT_POLICY_NAME = "the default policy"

_SCENARIO_KEYS = ("steps", "nodes", "gangs")

# What a plugin takes part in, by the hooks that it implements.
_HOOK_GROUPS = (
    ("order", ("queue_key", "gang_key", "pod_key")),
    ("share", ("deserved", "quota_fit")),
    ("admit", ("admit",)),
    ("where", ("domains", "match", "fit", "fit_inter_pod")),
    ("score", ("score", "prefer", "score_inter_pod", "score_domain", "fill_order")),
    ("evict", ("evictable", "allows_eviction", "budget_use", "lost_hours", "victims", "node_cost")),
)


def check(files: list[Path], *, json: bool) -> int:
    """Check every file, also where others are invalid."""
    faults: list[InputFault] = []
    policies: list[tuple[str, Policy]] = []
    errors: list[UserError | InputError] = []
    for file in files:
        try:
            read_text(file)
            policies.append((str(file), load_policy(file)))
        except InputError as invalid:
            faults.extend(_as_scenario_fault(invalid))
        except UserError as invalid:
            errors.append(invalid)
    if faults:
        errors.append(InputError(faults))
    if not files:
        policies.append((DEFAULT_POLICY_NAME, default_policy()))
    if json:
        _show_json(policies, errors)
    else:
        screen = to_stdout()
        for name, policy in policies:
            screen.print_lines(_lines(name, policy, screen))
        for error in errors:
            show_user_error(error)
    return BAD_INPUT if errors else OK


def _as_scenario_fault(error: InputError) -> tuple[InputFault, ...]:
    """For a scenario the only error is which command reads it, not every key that a policy does not have."""
    for fault in error.faults:
        if fault.field in _SCENARIO_KEYS:
            return (replace(fault, message=f"this is a scenario, not a policy: try `muster sim {fault.file}`", suggestion=""),)
    return error.faults


def _lines(name: str, policy: Policy, screen: Screen) -> Iterator[Text]:
    yield styled((name, BOLD), ": ", ("OK", GOOD))
    yield styled("")
    schedulers = ", ".join(policy.settings.scheduler_names)
    yield styled((" schedules  ", DIM), f"pods whose schedulerName is {schedulers}")
    yield styled("")
    steps = [(f"{number}.", (action, BOLD), ACTION_DOCS[action]) for number, action in enumerate(policy.actions, 1)]
    yield styled((" each cycle", DIM))
    yield from lay_out([">", "", ""], steps, width=screen.width, indent=3)
    yield styled("")
    columns = ["plugin", "takes part in", "summary"]
    yield from lay_out(columns, [row for plugin in policy.plugins for row in _rows(plugin)], width=screen.width)
    yield styled("")
    settings = [f"{option.key}: {as_yaml(getattr(policy.settings, option.field))}" for option in SETTINGS]
    yield styled((" settings  ", DIM), ", ".join(settings))
    yield styled("")
    if warnings := policy_warnings(policy):
        yield from (styled((" warning   ", NOTE), text) for text in warnings)
        yield styled("")


def _rows(plugin: Plugin) -> Iterator[list[TextPart]]:
    yield [(plugin.name, BOLD), _hook_groups(plugin), _first_paragraph(type(plugin))]
    options = ", ".join(f"{key}: {as_yaml(value)}" for key, value in _options(plugin).items())
    if options:
        yield ["", "", (options, DIM)]


def _first_paragraph(documented: object) -> str:
    return (inspect.getdoc(documented) or "").split("\n\n", 1)[0].replace("\n", " ")


def _hook_groups(plugin: Plugin) -> str:
    hooks = {hook.name for hook in hooks_of(plugin)}
    return ", ".join(group for group, names in _HOOK_GROUPS if hooks & set(names))


def _options(plugin: Plugin) -> dict[str, Any]:
    """The options in effect, by their keys in a policy file."""
    return {option.key: getattr(plugin, option.field, None) for option in options_of(type(plugin))}


def _show_json(policies: list[tuple[str, Policy]], errors: list[UserError | InputError]) -> None:
    messages = [message for error in errors for message in errors_document(error)]
    documents = [
        {
            "file": name,
            "schedulerNames": list(policy.settings.scheduler_names),
            "actions": list(policy.actions),
            "plugins": [{"name": plugin.name, "options": _options(plugin)} for plugin in policy.plugins],
            "settings": {option.key: getattr(policy.settings, option.field) for option in SETTINGS},
            "warnings": list(policy_warnings(policy)),
        }
        for name, policy in policies
    ]
    write_json("check", ok=not messages, errors=messages, policies=documents)
