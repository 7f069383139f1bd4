from __future__ import annotations

import json

import pytest
from tests.cli.commands import muster

from muster.bench import workload_registry
from muster.bench.workload import Measurement, SeededRow, Workload
from muster.cli import bench_command, run


def workload(name: str, value: float, *, target: float | None = None, at_least: bool = True) -> Workload:
    return Workload("toy", name, "pods/s", lambda: Measurement(value, (("beside", 3.0),)), target=target, at_least=at_least)


def raise_wrong_result() -> Measurement:
    raise AssertionError("3 of 4 pods were bound")


@pytest.fixture
def fake_workloads(monkeypatch: pytest.MonkeyPatch) -> list[Workload]:
    """Workloads that take no time; a list that a test fills."""
    found: list[Workload] = []
    monkeypatch.setattr(bench_command, "groups", lambda: {"toy": tuple(found)})
    return found


def test_the_list_has_every_group_with_its_targets() -> None:
    result = muster("bench", "--list")
    assert result.code == 0
    assert "core" in result.out
    assert "queues" in result.out
    assert ">= 5,000" in result.out


def test_groups_are_discovered() -> None:
    groups = workload_registry.groups()
    assert next(iter(groups)) == "core"
    assert all(workload.group == group for group, workloads in groups.items() for workload in workloads)


def test_an_unknown_group_is_answered_with_the_nearest() -> None:
    result = muster("bench", "cor")
    assert result.code == 2
    assert "unknown group of workloads 'cor'. Did you mean 'core'?" in result.err


def test_targets_are_judged_in_a_sentence(fake_workloads: list[Workload], capsys: pytest.CaptureFixture[str]) -> None:
    fake_workloads += [
        workload("fast", 9000, target=5000),
        workload("short", 4500, target=5000),
        workload("slow", 1000, target=5000),
    ]
    fake_workloads += [workload("late", 30, target=20, at_least=False), workload("free", 7.25)]
    assert run(["bench"]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[1]: line for line in out.splitlines() if line.startswith(" toy")}
    assert "9,000" in rows["fast"]
    assert ">= 5,000  met" in rows["fast"]
    assert "missed by 10 %" in rows["short"]
    assert "missed by 80 %" in rows["slow"]
    assert "<= 20  missed by 50 %" in rows["late"]
    assert "no target" in rows["free"]
    assert "beside 3" in rows["free"]
    assert "million rows/s in NumPy" in out
    assert "5 workloads: 3 targets missed, 2 by more than 20 %." in out
    assert "not run: live; `muster bench live` measures it." in out


def test_check_fails_only_past_the_tolerance(fake_workloads: list[Workload]) -> None:
    fake_workloads.append(workload("short", 4500, target=5000))
    assert run(["bench", "--check"]) == 0
    fake_workloads.append(workload("slow", 1000, target=5000))
    assert run(["bench", "--check"]) == 1
    assert run(["bench"]) == 0


def test_a_workload_that_comes_out_wrong_fails_in_any_case(
    fake_workloads: list[Workload], capsys: pytest.CaptureFixture[str]
) -> None:
    fake_workloads.append(Workload("toy", "wrong", "ms", raise_wrong_result))
    assert run(["bench"]) == 1
    out = capsys.readouterr().out
    assert "failed" in out
    assert "3 of 4 pods were bound" in out


def test_json_has_the_measurements_and_the_machine(fake_workloads: list[Workload], capsys: pytest.CaptureFixture[str]) -> None:
    fake_workloads += [workload("fast", 9000, target=5000), Workload("toy", "wrong", "ms", raise_wrong_result)]
    assert run(["bench", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["machine"]["pythonLoops"] > 0
    first, second = document["results"]
    assert (first["value"], first["met"], first["details"]) == (9000, True, {"beside": 3})
    assert (second["value"], second["error"]) == (None, "3 of 4 pods were bound")


def random_clusters(value: float = 0.0) -> Workload:
    row = SeededRow("racks", lambda seeds: Measurement(len(seeds)), lambda seed: f"cluster {seed}")
    return Workload("toy", "racks: wrong", "clusters", lambda: Measurement(value), target=0, at_least=False, row=row)


def test_a_row_of_random_clusters_runs_on_chosen_seeds(fake_workloads: list[Workload], capsys: pytest.CaptureFixture[str]) -> None:
    fake_workloads += [workload("fast", 9000, target=5000), random_clusters()]
    assert run(["bench", "--row", "racks", "--seeds", "10-14"]) == 0
    out = capsys.readouterr().out
    assert "racks: wrong" in out
    assert "<= 0  missed " in out
    assert "fast" not in out
    assert run(["bench", "--row", "racks"]) == 0
    assert "<= 0  met" in capsys.readouterr().out


def test_a_random_cluster_is_shown(fake_workloads: list[Workload], capsys: pytest.CaptureFixture[str]) -> None:
    fake_workloads.append(random_clusters())
    assert run(["bench", "--show", "racks:17"]) == 0
    assert capsys.readouterr().out == "cluster 17\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--row", "rack"), "unknown row 'rack'. Did you mean 'racks'?"),
        (("--show", "racks"), "'racks' names no cluster: write ROW:SEED, such as racks:17"),
        (("--show", "racks:few"), "'few' is no seed"),
        (("--seeds", "few"), "'few' is no seed"),
    ],
)
def test_an_unknown_row_or_seed_is_answered(
    fake_workloads: list[Workload], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    fake_workloads.append(random_clusters())
    assert run(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err
