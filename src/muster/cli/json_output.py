"""Everything for machines: the JSON that `--json` prints. Its shape is described in docs/cli.md; SCHEMA grows when it changes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import msgspec

from muster import __version__
from muster.cli.errors import InvalidFiles, UserError
from muster.scenario.run_report import Report
from muster.yaml_positions import InputFault

SCHEMA_VERSION = 1

JsonDocument = dict[str, Any]

# Pairs of a name and a figure that a machine would rather look up by name.
_AMOUNT_FIELDS = {
    "queues": ("used", "promised", "deserved", "guarantee", "limit", "asked"),
    "shares": ("shares",),
    "evictions": ("request",),
}


def write_json(command: str, *, ok: bool, **parts: object) -> None:
    """One document on standard output, keys in a fixed order."""
    document = {"schema": SCHEMA_VERSION, "muster": __version__, "command": command, "ok": ok, **parts}
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")


def errors_document(error: UserError) -> list[JsonDocument]:
    """What a person would read on the error stream: places and suggestions where the error has any, else a sentence."""
    return faults_document(error.faults) if isinstance(error, InvalidFiles) else [{"message": str(error)}]


def faults_document(faults: Iterable[InputFault]) -> list[JsonDocument]:
    return [asdict(fault) for fault in faults]


def report_document(report: Report) -> JsonDocument:
    """A report with all its tables. `real_s` alone differs from run to run."""
    plain: JsonDocument = msgspec.to_builtins(report)
    for rows, keys in _AMOUNT_FIELDS.items():
        for row in plain[rows]:
            row |= {key: dict(row[key]) for key in keys}
    plain["deeds"] = [
        {"cycle": deed.cycle, "at_s": deed.at_s, "effect": type(deed.effect).__name__, "of": msgspec.to_builtins(deed.effect)}
        for deed in report.decided_effects
    ]
    stages: dict[str, int] = {}
    for row in report.gangs:
        stages[row.stage] = stages.get(row.stage, 0) + 1
    return {
        "name": plain.pop("name"),
        "file": plain.pop("file"),
        "line": plain.pop("line"),
        "ok": report.ok,
        "totals": {
            "gangs": len(report.gangs),
            "stages": dict(sorted(stages.items())),
            "evictions": len(report.evictions),
            "failures": len(report.failures),
            "breaches": len(report.violations),
        },
        **plain,
    }
