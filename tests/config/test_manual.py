"""The manual says what the code does: the parts that follow from it are written from it."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path

import pytest
from tools.manual import FILES, SECTIONS, render_page

from muster.config import load_policy
from muster.config.plugin_check import all_hooks
from muster.config.plugin_options import options_of
from muster.config.policy_file import KEYS, SETTINGS
from muster.engine.cycle import ACTIONS
from muster.engine.evict.eviction_units import EvictionUnits
from muster.engine.evict.victims import VictimTable
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.device import DeviceRequest, DeviceSlot
from muster.model.resource_amounts import Resources
from muster.plugins import PLUGINS
from muster.state.facts import Facts
from muster.state.memory import Memory
from muster.state.node_table import NodeRows, NodeTable
from muster.state.placements import Placements
from muster.state.world import World

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("file", FILES)
def test_the_manual_is_up_to_date(file: str) -> None:
    path = DOCS / file
    assert path.read_text() == render_page(path), "run `python -m tools.manual docs`"


def test_the_manual_has_every_part() -> None:
    text = "".join((DOCS / file).read_text() for file in FILES)
    for name in (*SECTIONS, "quiet_hours.py", "quiet_hours.yaml", "off_spot.py", "off_spot.yaml"):
        assert f"<!-- {name}: written by tools.manual -->" in text


def test_the_manual_names_every_key_action_setting_plugin_and_option() -> None:
    text = (DOCS / "policy.md").read_text()
    for word in (*KEYS, *ACTIONS, *(option.key for option in SETTINGS)):
        assert f"| `{word}` | " in text
    for name, make in PLUGINS.items():
        _, _, section = text.partition(f"### `{name}`\n")
        assert (inspect.getdoc(make) or "no text") in section
        assert all(f"| `{option.key}` | {option.type_text} | " in section.split("### ")[0] for option in options_of(make))


def test_the_table_of_hooks_names_every_hook() -> None:
    table = "\n".join(SECTIONS["hooks"]())
    assert [name for name in all_hooks() if f"`{name}`" not in table] == []


@pytest.mark.parametrize(
    "classes",
    [
        (Session,),
        (World,),
        (Facts,),
        (Placements,),
        (Memory,),
        (NodeRows,),
        (NodeTable,),
        (Ask,),
        (VictimTable,),
        (EvictionUnits,),
        (Resources, DeviceRequest, DeviceSlot),
    ],
    ids=lambda classes: classes[0].__name__,
)
def test_the_manual_lists_what_a_hook_can_read_of_each_class_and_nothing_else(classes: tuple[type, ...]) -> None:
    heading = ", ".join(f"`{each.__name__}`" for each in classes)
    _, _, section = (DOCS / "plugins.md").read_text().partition(f"### {heading}\n")
    rows = [line.split("|")[1] for line in section.split("\n#")[0].splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    values = {name for each in classes for name in values_of(each)}
    assert values - listed == set(), "not in the manual"
    assert {name for name in listed - values if not any(hasattr(each, name) for each in classes)} == set(), "only in the manual"


def values_of(cls: type) -> set[str]:
    """The public fields, attributes and properties of a class."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    found = {name for name, value in vars(cls).items() if isinstance(value, property)}
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            stored = (each for each in ast.walk(node) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store))
            found.update(each.attr for each in stored if isinstance(each.value, ast.Name) and each.value.id == "self")
    return {name for name in found if not name.startswith("_")}


def test_every_policy_in_the_manual_is_one() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / "policy.md").read_text(), re.DOTALL)
    policies = [load_policy(block, file="policy.md") for block in blocks if "mypackage" not in block]
    assert policies
    assert all(policy.plugins for policy in policies)
