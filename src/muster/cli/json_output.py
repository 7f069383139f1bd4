"""The JSON that `--json` prints: one document per command, keys in camelCase. docs/cli.md lists the keys.

Keys are the field names of the reports in camelCase, a trailing `_s` spelled `Seconds`. `SCHEMA_VERSION` grows when a key changes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from muster import __version__
from muster.cli.errors import InvalidFiles, UserError
from muster.scenario.run_report import Report
from muster.yaml_positions import InputFault

SCHEMA_VERSION = 2

JsonDocument = dict[str, Any]


def write_json(command: str, *, ok: bool, **parts: object) -> None:
    """One document on standard output, keys in a fixed order."""
    document = {"schema": SCHEMA_VERSION, "muster": __version__, "command": command, "ok": ok, **parts}
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")


def errors_document(error: UserError) -> list[JsonDocument]:
    """The errors of the error stream: with positions and suggestions where they have any, else a message each."""
    return faults_document(error.faults) if isinstance(error, InvalidFiles) else [{"message": str(error)}]


def faults_document(faults: Iterable[InputFault]) -> list[JsonDocument]:
    return [to_json(fault) for fault in faults]


def report_document(report: Report) -> JsonDocument:
    """A report with all its tables. `wallSeconds` alone differs from run to run."""
    tables: JsonDocument = to_json(report)
    del tables["decidedEffects"]
    return {
        "name": tables.pop("name"),
        "file": tables.pop("file"),
        "line": tables.pop("line"),
        "ok": report.ok,
        "totals": {
            "gangs": len(report.gangs),
            "stages": dict(sorted(Counter(row.stage for row in report.gangs).items())),
            "evictions": len(report.evictions),
            "failures": len(report.failures),
            "violations": len(report.violations),
        },
        **tables,
        "effects": [
            {"cycle": each.cycle, "atSeconds": each.at_s, "effect": type(each.effect).__name__, "fields": to_json(each.effect)}
            for each in report.decided_effects
        ],
    }


def to_json(value: object) -> Any:
    """Dataclasses as objects with camelCase keys; pairs of a name and a number as one object."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            key: dict(getattr(value, name)) if is_amounts else to_json(getattr(value, name))
            for name, key, is_amounts in _json_fields(type(value))
        }
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return msgspec.to_builtins(value)


@cache
def _json_fields(kind: type) -> tuple[tuple[str, str, bool], ...]:
    """Name, JSON key, and whether it holds amounts by name, of each field of a dataclass."""
    hints = get_type_hints(kind)
    return tuple((field.name, camel_case(field.name), _is_amounts(hints[field.name])) for field in fields(kind))


def _is_amounts(hint: object) -> bool:
    pair = get_args(hint)[:1]
    return get_origin(hint) is tuple and bool(pair) and get_args(pair[0]) in ((str, int), (str, float))


def camel_case(name: str) -> str:
    first, *rest = (f"{name.removesuffix('_s')}_seconds" if name.endswith("_s") else name).split("_")
    return first + "".join(word.capitalize() for word in rest)
