"""Every code with which a gang is refused has a scenario that expects it together with its sentence."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SOURCES = [path for package in ("engine", "plugins", "state") for path in sorted((ROOT / "src/muster" / package).rglob("*.py"))]
REFUSALS = frozenset({"Verdict", "QueueBounds", "Fault"})
WITHOUT_FIGURES = frozenset(
    {
        "CyclicParents",
        "Invalid",
        "NotALeaf",
        "QueueClosed",
        "QueueForbidden",
        "TimedOut",
        "UnknownParent",
        "UnknownQueue",
        "UnknownTier",
        "Unsupported",
    }
)
"""What is wrong there is a name or a state."""


@cache
def codes_in_source() -> set[str]:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES]
    constants = {
        target.id: node.value.value
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = {code for tree in trees for given in _given_codes(tree) for code in _values(given, constants)}
    return {code for code in found if code}


def _given_codes(tree: ast.AST) -> Iterator[ast.expr]:
    """What is passed as the code of a refusal, or is the default of one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REFUSALS:
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "code")
            if node.func.id == "Fault":
                yield node.args[0]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "code" and node.value:
            yield node.value


def _values(given: ast.expr, constants: dict[str, str]) -> Iterator[str]:
    for node in ast.walk(given):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name.isupper():
                yield constants[name]


@cache
def expected_sentences() -> dict[str, list[str]]:
    """By code: what the sentences of gangs with that code are expected to contain."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "scenarios").rglob("*.yaml")):
        for document in yaml.load_all(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader):
            for step in document["steps"]:
                expected = step.get("expect", {}) if isinstance(step, dict) else {}
                for gang, code in expected.get("code", {}).items():
                    said = expected.get("why", {}).get(gang, [])
                    found.setdefault(code, []).extend([said] if isinstance(said, str) else said)
    return found


@pytest.mark.parametrize("code", sorted(codes_in_source()))
def test_a_refusal_has_a_scenario_with_its_sentence_and_figures(code: str) -> None:
    said = expected_sentences().get(code, [])
    assert said, "no scenario expects this code and, of the same gang, why"
    assert code in WITHOUT_FIGURES or any(re.search(r"\d", text) for text in said), said


def test_there_are_codes() -> None:
    found = codes_in_source()
    assert {"QueueLimit", "UnknownQueue", "InsufficientCapacity", "QuotaMin"} <= found
    assert found >= WITHOUT_FIGURES
