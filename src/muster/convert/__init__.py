"""From Volcano's scheduler configuration to a policy, with a note for everything that is different.

The policy is always one that can be loaded. What has no counterpart is left out and reported; nothing is invented in its place.
May be changed here: what a plugin, an action or an argument becomes. Must not: a different decision without
a note. Tests: tests/convert, which has every plugin and argument of Volcano.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.config import load_policy
from muster.convert.policy_draft import ConversionNote, PolicyDraft
from muster.convert.volcano_actions import convert_actions
from muster.convert.volcano_conf import read_conf
from muster.convert.volcano_plugins import convert_plugins
from muster.yaml_positions import InputFaults, YamlValue, read_yaml, yaml_value

__all__ = ["Conversion", "ConversionNote", "convert", "convert_data"]

_CONF_SUFFIX = ".conf"


@dataclass(frozen=True, slots=True)
class Conversion:
    """A policy file, and the notes about it."""

    text: str
    notes: tuple[ConversionNote, ...]


def convert(text: str, *, file: str = "volcano-scheduler.conf") -> Conversion:
    """From the text of the file, or of the ConfigMap that holds it. Any other file is an InputError with its line."""
    root = read_yaml(text, file=file)
    inner = _in_config_map(root)
    if inner is not None:
        file, root = f"{file} (data.{inner[0]})", read_yaml(inner[1], file=inner[0])
    heading = f"Made from {file.rsplit('/', 1)[-1]}. What could not be converted was reported at conversion."
    return _convert(root, InputFaults(file), flags_default=True, heading=heading)


def convert_data(conf: Mapping[str, object], *, flags_default: bool) -> Conversion:
    """From the same in data. `flags_default` is what a flag means that is not there."""
    return _convert(yaml_value(conf), InputFaults("<configuration>"), flags_default=flags_default, heading="")


def _in_config_map(root: YamlValue) -> tuple[str, str] | None:
    """Name and text of the configuration in a ConfigMap; None if the document is none."""
    if root.mapping.get("kind", YamlValue(None)).value != "ConfigMap":
        return None
    data = root.mapping.get("data", YamlValue(None)).mapping
    return next(((key, value.text) for key, value in data.items() if key.endswith(_CONF_SUFFIX)), None)


def _convert(root: YamlValue, faults: InputFaults, *, flags_default: bool, heading: str) -> Conversion:
    conf = read_conf(root, faults, flags_default=flags_default)
    faults.raise_any()
    draft = PolicyDraft(scheduler_names=("volcano", "muster"))
    draft.add_note("schedulerNames includes volcano, the schedulerName of your pods: stop Volcano's scheduler before Muster starts")
    convert_plugins(conf, draft)
    convert_actions(conf, draft)
    if conf.metrics.value is not None:
        draft.add_note("metrics was left out: the real usage of nodes is not read", conf.metrics)
    faults.raise_any()
    text = draft.text(heading=heading)
    load_policy(text, file="<converted policy>")
    return Conversion(text, tuple(draft.notes))
