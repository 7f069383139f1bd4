from __future__ import annotations

import json

import pytest
from tests.cli.commands import muster

from muster.bench import registry
from muster.bench.workload import Measured, Workload
from muster.cli import measure, run


def workload(name: str, value: float, *, bar: float | None = None, at_least: bool = True) -> Workload:
    return Workload("toy", name, "pods/s", lambda: Measured(value, (("beside", 3.0),)), bar=bar, at_least=at_least)


def wrong() -> Measured:
    raise AssertionError("3 of 4 pods were bound")


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> list[Workload]:
    """Workloads that take no time; a list that a test fills."""
    found: list[Workload] = []
    monkeypatch.setattr(measure, "groups", lambda: {"toy": tuple(found)})
    return found


def test_the_list_has_every_group_with_its_bars() -> None:
    ran = muster("bench", "--list")
    assert ran.code == 0
    assert "core" in ran.out
    assert "queues" in ran.out
    assert ">= 5,000" in ran.out


def test_groups_are_found_by_themselves() -> None:
    groups = registry.groups()
    assert next(iter(groups)) == "core"
    assert all(workload.group == group for group, workloads in groups.items() for workload in workloads)


def test_an_unknown_group_is_told_the_nearest() -> None:
    ran = muster("bench", "cor")
    assert ran.code == 2
    assert "there is no group 'cor' of workloads. Did you mean 'core'?" in ran.err


def test_bars_are_judged_in_words(toys: list[Workload], capsys: pytest.CaptureFixture[str]) -> None:
    toys += [workload("fast", 9000, bar=5000), workload("short", 4500, bar=5000), workload("slow", 1000, bar=5000)]
    toys += [workload("late", 30, bar=20, at_least=False), workload("free", 7.25)]
    assert run(["bench"]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[1]: line for line in out.splitlines() if line.startswith(" toy")}
    assert "9,000" in rows["fast"]
    assert ">= 5,000  met" in rows["fast"]
    assert "missed by 10 %" in rows["short"]
    assert "missed by 80 %" in rows["slow"]
    assert "<= 20  missed by 50 %" in rows["late"]
    assert "no bar" in rows["free"]
    assert "beside 3" in rows["free"]
    assert "million rows/s in NumPy" in out
    assert "5 workloads: 3 bars missed, 2 by more than 20 %." in out
    assert "live was left out: `muster bench live` measures it." in out


def test_check_fails_only_past_the_tolerance(toys: list[Workload]) -> None:
    toys.append(workload("short", 4500, bar=5000))
    assert run(["bench", "--check"]) == 0
    toys.append(workload("slow", 1000, bar=5000))
    assert run(["bench", "--check"]) == 1
    assert run(["bench"]) == 0


def test_a_workload_that_comes_out_wrong_fails_in_any_case(toys: list[Workload], capsys: pytest.CaptureFixture[str]) -> None:
    toys.append(Workload("toy", "wrong", "ms", wrong))
    assert run(["bench"]) == 1
    out = capsys.readouterr().out
    assert "failed" in out
    assert "3 of 4 pods were bound" in out


def test_json_has_the_figures_and_the_machine(toys: list[Workload], capsys: pytest.CaptureFixture[str]) -> None:
    toys += [workload("fast", 9000, bar=5000), Workload("toy", "wrong", "ms", wrong)]
    assert run(["bench", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["machine"]["python_loops"] > 0
    first, second = document["results"]
    assert (first["value"], first["met"], first["figures"]) == (9000, True, {"beside": 3})
    assert (second["value"], second["error"]) == (None, "3 of 4 pods were bound")
