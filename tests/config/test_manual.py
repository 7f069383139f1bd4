"""The manual says what the code does: the parts that follow from it are written from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from muster.config import catalogue, load_policy
from muster.config.manual import FILES, SECTIONS, render_page
from muster.config.plugin_check import all_hooks
from muster.config.policy_file import KEYS, SETTINGS
from muster.engine.cycle import ACTIONS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("file", FILES)
def test_the_manual_is_up_to_date(file: str) -> None:
    path = DOCS / file
    assert path.read_text() == render_page(path), "run `python -m muster.config.manual docs`"


def test_the_manual_has_every_part() -> None:
    text = "".join((DOCS / file).read_text() for file in FILES)
    for name in (*SECTIONS, "quiet_hours.py", "quiet_hours.yaml", "off_spot.py", "off_spot.yaml"):
        assert f"<!-- {name}: written by muster.config.manual -->" in text


def test_the_manual_names_every_key_action_setting_plugin_and_option() -> None:
    text = (DOCS / "policy.md").read_text()
    for word in (*KEYS, *ACTIONS, *(option.key for option in SETTINGS)):
        assert f"| `{word}` | " in text
    for entry in catalogue():
        if entry.origin == "built in":
            _, _, section = text.partition(f"### `{entry.name}`\n")
            assert entry.doc in section
            assert all(f"| `{option.key}` | {option.type_text} | " in section.split("### ")[0] for option in entry.options)


def test_the_table_of_hooks_names_every_hook() -> None:
    table = "\n".join(SECTIONS["hooks"]())
    assert [name for name in all_hooks() if f"`{name}`" not in table] == []


def test_every_policy_in_the_manual_is_one() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / "policy.md").read_text(), re.DOTALL)
    policies = [load_policy(block, file="policy.md") for block in blocks if "mypackage" not in block]
    assert policies
    assert all(policy.plugins for policy in policies)
