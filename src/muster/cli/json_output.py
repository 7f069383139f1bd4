"""The JSON that `--json` prints: one document per command, keys in camelCase. docs/cli.md lists the keys.

Keys are the field names of the reports in camelCase, a trailing `_s` spelled `Seconds`. `SCHEMA_VERSION` grows when a key changes.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import msgspec
import yaml

from muster import __version__
from muster.cli.errors import UserError
from muster.json_values import to_json
from muster.model.printable_text import printable_json
from muster.scenario.run_report import Report
from muster.yaml_positions import InputError

SCHEMA_VERSION = 2

JsonDocument = dict[str, Any]


_yaml = False


def use_yaml(wanted: bool) -> None:
    """Write documents as YAML from now on."""
    global _yaml
    _yaml = wanted


def write_json(command: str, *, ok: bool, **parts: object) -> None:
    """One document on standard output, keys in a fixed order."""
    document = {"schema": SCHEMA_VERSION, "muster": __version__, "command": command, "ok": ok, **parts}
    if _yaml:
        sys.stdout.write(yaml.safe_dump(msgspec.json.decode(printable_json(msgspec.json.encode(document))), sort_keys=False))
        return
    sys.stdout.write(msgspec.json.format(printable_json(msgspec.json.encode(document)), indent=2).decode() + "\n")


def errors_document(error: UserError | InputError) -> list[JsonDocument]:
    """The errors of the error stream: with positions and suggestions where they have any, else a message each."""
    return [to_json(fault) for fault in error.faults] if isinstance(error, InputError) else [{"message": str(error)}]


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
