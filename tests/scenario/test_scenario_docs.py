"""The manual of the language has every key that there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from muster.scenario import parse
from muster.scenario.key_tables import KEY_TABLES

MANUAL = Path(__file__).parents[2] / "docs" / "scenarios.md"


def test_the_manual_has_every_key_in_one_table_with_its_value_and_its_meaning() -> None:
    written = re.findall(r"^\| ([a-z ]+) \| `(\w+)` \| \S.* \| \S.* \|$", MANUAL.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert written == [(table, key) for table, keys in KEY_TABLES.items() for key in keys]


def test_every_example_of_the_manual_is_a_scenario() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", MANUAL.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert examples
    for number, example in enumerate(examples, start=1):
        parse(example, file=f"docs/scenarios.md, example {number}")


def test_no_key_is_one_that_yaml_reads_as_a_boolean() -> None:
    taken = {"on", "off", "yes", "no", "y", "n", "true", "false"}
    assert not {key for keys in KEY_TABLES.values() for key in keys} & taken
