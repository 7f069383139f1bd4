"""Every example runs as it stands, and is as short as the manual promises."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from muster.config import load_policy
from muster.scenario import load, run

EXAMPLES = Path(__file__).parents[2] / "examples"
PLUGINS = {
    "quiet_hours": "QuietHours",
    "off_spot": "OffSpot",
    "one_zone": "OneZone",
    "by_workload": "ByWorkload",
    "on_call": "OnCall",
    "by_team": "ByTeam",
}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_example_runs_and_comes_out_as_it_says(path: Path) -> None:
    for scenario in load(path):
        report = run(scenario)
        assert report.ok, report.failures


@pytest.mark.parametrize("module", PLUGINS)
def test_an_example_is_loaded_by_module_and_class_from_the_python_path(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, module, raising=False)
    policy = load_policy({"plugins": ["fit", f"{module}:{PLUGINS[module]}"]})
    assert policy.plugins[1].name == module.replace("_", "-")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_a_plugin_of_ones_own_takes_less_than_forty_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 40


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "examples" / "policies").glob("*.yaml")), ids=lambda path: path.stem
)
def test_an_example_of_a_policy_is_one(path: Path) -> None:
    assert load_policy(path).scores
