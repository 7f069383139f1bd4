"""The documents name commands and options that exist, and every option is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main
from tests.cli.commands import ROOT, muster

from muster.cli.app import app

DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")),
)
RUNS_AFTER_EVICTIONS = 2
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # The app has several commands, so it is a group.


def lines_with_commands(file: str) -> list[str]:
    """Lines of code blocks that a person would type, and whole commands in backquotes, but for those that are not there yet."""
    text = (ROOT / file).read_text(encoding="utf-8")
    blocks = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    typed = [line for block in blocks for line in block.splitlines() if line.startswith("muster ")]
    for line in re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines():
        if "in the works" not in line:
            typed.extend(re.findall(r"`(muster [^`]+)`", line))
    return typed


@pytest.mark.parametrize("file", DOCUMENTS)
def test_every_command_and_option_that_is_named_exists(file: str) -> None:
    for line in lines_with_commands(file):
        for command in re.split(r" && |\s{3,}", line):
            words = command.split()
            if words[:1] != ["muster"] or words[1].startswith(("-", "COMMAND")):
                continue
            assert words[1] in COMMANDS, line
            named = COMMANDS[words[1]]
            if hasattr(named, "commands"):
                assert words[2] in named.commands, line
                named = named.commands[words[2]]
            known = {name for parameter in named.params for name in parameter.opts + parameter.secondary_opts}
            assert {word for word in words[2:] if word.startswith("--")} <= known | {"--help"}, line


@pytest.mark.parametrize("command", ["sim", "replay", "check", "bench", "run", "crds", "snapshot"])
def test_every_option_is_documented(command: str) -> None:
    page = "running.md" if command == "run" else "cli.md"
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for parameter in COMMANDS[command].params:
        for name in parameter.opts:
            if name.startswith("--") and name != "--help":
                assert name in text, f"{command} {name}"


def test_files_that_the_readme_names_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = [*re.findall(r"\]\(([^)#]+)\)", text), *re.findall(r"(?:scenarios|examples)/[\w./-]+", text)]
    assert named
    for name in named:
        assert Path(ROOT, name).exists(), name


def test_the_commands_of_the_readme_that_need_no_cluster_work() -> None:
    shown = [
        line for line in lines_with_commands("README.md") if line.split()[1:2] in (["plan"], ["convert"]) and len(line.split()) > 2
    ]
    assert len(shown) > 1
    for line in shown:
        result = muster(*line.split()[1:])
        assert result.out, line
        assert result.code in (0, RUNS_AFTER_EVICTIONS), line


SHOWN_RULES = re.findall(r"`(muster sim scenarios/evict/[^`]+)`", (ROOT / "docs/eviction.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", SHOWN_RULES)
def test_every_rule_of_eviction_has_an_example_that_runs(line: str) -> None:
    assert muster(*line.split()[1:], "--no-timeline").code == 0


def test_every_rule_of_eviction_is_at_most_five_lines_and_an_example() -> None:
    rules = (ROOT / "docs/eviction.md").read_text(encoding="utf-8").split("## The rules\n", 1)[1].split("\n### The keys of", 1)[0]
    for rule in rules.split("\n### ")[1:]:
        title, _, text = rule.partition("\n")
        assert "`muster sim scenarios/evict/" in text, title
        said, _, _ = text.strip().partition("`muster sim")
        assert len(said.strip().splitlines()) <= 5, title


def test_the_readme_shows_what_the_demo_prints() -> None:
    (shown,) = re.findall(r"```\n( two hours.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    printed = muster("sim", "scenarios/demo.yaml", "--no-timeline", COLUMNS="110").out
    assert [without_real_time(line) for line in shown.rstrip().splitlines()] == [
        without_real_time(line) for line in printed.rstrip().splitlines()
    ]


def without_real_time(line: str) -> str:
    return re.sub(r"virtual in [\d.]+ s", "virtual", line.rstrip())
