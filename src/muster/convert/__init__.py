"""From Volcano's scheduler configuration to a policy, with a note for everything that is different.

The policy is always one that can be loaded. What has no counterpart is left out and reported; nothing is invented in its place.
May be changed here: what a plugin, an action or an argument becomes. Must not: a different decision without
a note. Tests: tests/convert, which has every plugin and argument of Volcano.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from muster.config import load_policy
from muster.convert.policy_draft import ConversionNote, NoteRank, PolicyDraft
from muster.convert.volcano_actions import convert_actions
from muster.convert.volcano_conf import read_conf
from muster.convert.volcano_plugins import convert_plugins
from muster.yaml_positions import InputFaults, YamlValue, yaml_value
from muster.yaml_reader import read_yaml, read_yaml_documents

__all__ = ["Conversion", "ConversionNote", "NoteRank", "convert"]

_CONF_SUFFIX = ".conf"
_CONF_KEYS = {"actions", "tiers", "tier"}
_TIERS = re.compile(r"^\s*tiers:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Conversion:
    """A policy file, and the notes about it."""

    text: str
    notes: tuple[ConversionNote, ...]


def convert(text: str, *, file: str = "volcano-scheduler.conf") -> Conversion:
    """From the text of the file, or of what holds it: a ConfigMap, a List, Helm values. Others are an InputError with its line."""
    documents = read_yaml_documents(text, file=file) or [YamlValue(None)]
    root, source = documents[0], file.rsplit("/", 1)[-1]
    if not root.keys.keys() & _CONF_KEYS:
        found = next((each for document in documents for each in _embedded(document, "")), None)
        if found is not None:
            root, source = _read_embedded(text, *found, file=file), f"{source} ({found[0]})"
    return _convert(root, InputFaults(file), heading=f"Made from {source}.")


def _embedded(at: YamlValue, path: str) -> Iterator[tuple[str, YamlValue]]:
    """Texts that are configurations, by name or by content, with their paths: in a ConfigMap, a List, Helm values."""
    for key, value in at.mapping.items():
        where = f"{path}.{key}" if path else key
        if isinstance(value.value, str) and (key.endswith(_CONF_SUFFIX) or _TIERS.search(value.text)):
            if "\n" in value.value:
                yield where, value
        yield from _embedded(value, where)
    for number, item in enumerate(at.items):
        yield from _embedded(item, f"{path}[{number}]")


def _read_embedded(manifest: str, key: str, value: YamlValue, *, file: str) -> YamlValue:
    """A configuration in a text of another file, with the lines and columns of that file."""
    lines = manifest.splitlines()
    if lines[value.line - 1][value.column - 1 :].startswith("|"):
        block = lines[value.line : value.line + len(value.text.splitlines())]
        return read_yaml("\n".join(("\n" * (value.line - 1), *block)), file=file)
    # In quotes, or folded, the text has other lines than the manifest: all of it is where the text begins.
    return yaml_value(read_yaml(value.text, file=f"{file} ({key})").plain(), line=value.line, column=value.column)


def _convert(root: YamlValue, faults: InputFaults, *, heading: str) -> Conversion:
    conf = read_conf(root, faults)
    faults.raise_any()
    draft = PolicyDraft(scheduler_names=("volcano", "muster"))
    text = "schedulerNames includes volcano, the schedulerName of your pods: stop Volcano's scheduler before Muster starts"
    draft.add_note(text, rank=NoteRank.SAME)
    convert_plugins(conf, draft)
    convert_actions(conf, draft)
    if conf.metrics.value is not None:
        draft.add_note("metrics was left out: the real usage of nodes is not read", conf.metrics)
    faults.raise_any()
    text = draft.text(heading=heading)
    load_policy(text, file="<converted policy>")
    return Conversion(text, tuple(draft.ranked_notes()))
