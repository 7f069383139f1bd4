"""The walk of ARCHITECTURE.md is the way that a pod takes: each file that it names takes part, and each class is defined."""

from __future__ import annotations

import ast
import io
import re
import sys
from pathlib import Path
from types import FrameType

from muster.decision_log import DecisionLogWriter
from muster.model.effects import Bind
from muster.scenario import run
from muster.scenario.loader import from_document

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "muster"
LIVE = (
    "kube/watch/",
    "kube/live_cluster.py",
    "service/",
    "write_cache.py",
    "effect_writer.py",
    "pod_writes.py",
    "status_writer.py",
)
"""A real cluster has these, and the simulator others in their place: tests/kube."""
GANG = {"name": "train", "namespace": "team-a", "pods": 4, "requests": {"cpu": 1}}


def walk() -> str:
    return (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split("## One pod, ", 1)[1].split("\n## ", 1)[0]


def named() -> list[str]:
    return re.findall(r"`([^`\n]+)`", walk())


def files_that_run() -> set[str]:
    """When a gang of four is seen, placed and bound."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:  # noqa: ARG001
        found.add(frame.f_code.co_filename)

    scenario = from_document({"name": "one pod", "nodes": [{"name": "n[1-4]"}], "gangs": [GANG], "steps": [{"cycle": 2}]})
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        report = run(scenario, log=DecisionLogWriter(io.BytesIO()))
    finally:
        sys.setprofile(before)
    assert sum(isinstance(each.effect, Bind) for each in report.decided_effects) == GANG["pods"]
    return {Path(file).relative_to(SOURCE).as_posix() for file in found if Path(file).is_relative_to(SOURCE)}


def test_each_file_that_the_walk_names_takes_part() -> None:
    files = [name for name in named() if name.endswith(".py")]
    assert len(files) > 20
    assert [name for name in files if not (SOURCE / name).is_file()] == []
    simulated = [name for name in files if not any(part in name for part in LIVE)]
    assert set(simulated) - files_that_run() == set()


def test_each_class_and_method_that_the_walk_names_is_defined() -> None:
    definitions: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                definitions.setdefault(node.name, set()).update(re.findall(r"\b\w+\b", ast.unparse(node)))
    for name in named():
        found = re.match(r"([A-Z][a-z]\w*)(?:\.(\w+))?", name)
        if found is not None:
            assert found[1] in definitions, name
            assert found[2] is None or found[2] in definitions[found[1]], name
