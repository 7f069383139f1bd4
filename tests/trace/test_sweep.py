"""Many runs come to the same wherever they are made: here, in processes that die, on a Dask cluster that loses a worker."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from muster.config import default_policy
from muster.trace import sweep
from muster.trace.run_result import RunResult
from muster.trace.sweep import HistorySource, NamedFile, PolicyRun, PolicyText, result_of_run, results_of
from muster.yaml_positions import InputError

JOBS = b"name,arrival_s,run_s,gpus\na,0,7200,2\nb,0,7200,2\nwhole,3600,3600,8\nlast,36000,60,1\n"
DEFAULT = PolicyText("default", default_policy().source, "<default policy>")
GENERATED = HistorySource(generate="gangs=30,days=1,nodes=4")


def runs(count: int, source: HistorySource = GENERATED) -> list[PolicyRun]:
    return [PolicyRun(source, DEFAULT, seed) for seed in range(count)]


def test_a_run_carries_the_files_that_it_reads() -> None:
    nodes = NamedFile("nodes.csv", b"name,gpus\nn1,8\nn2,8\n")
    (result,) = results_of(runs(1, HistorySource(NamedFile("jobs.csv", JOBS), nodes=nodes)))
    assert [job.name for job in result.jobs] == ["a", "b", "whole", "last"]
    assert result == result_of_run(runs(1, HistorySource(NamedFile("jobs.csv", JOBS), nodes="2x8"))[0])


def test_processes_come_to_the_same() -> None:
    assert results_of(runs(2), processes=2) == results_of(runs(2))


def test_what_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    first = results_of(runs(2), folder=tmp_path)
    made: list[int] = []

    def noted(run: PolicyRun) -> RunResult:
        made.append(run.seed)
        return result_of_run(run)

    monkeypatch.setattr(sweep, "result_of_run", noted)
    again = results_of(runs(3), folder=tmp_path, on_done=lambda done, of: told.append((done, of)))
    assert again[:2] == first
    assert made == [2]
    assert told == [(2, 3), (3, 3)]
    # Half a file is no result.
    (tmp_path / f"{runs(1)[0].digest()}.json").write_text('{"figures": [')
    assert results_of(runs(2), folder=tmp_path) == first
    assert made == [2, 0]


def test_runs_that_differ_have_results_of_their_own() -> None:
    one = runs(1)[0]
    others = [
        PolicyRun(GENERATED, DEFAULT, 1),
        PolicyRun(GENERATED, PolicyText("default", "base: default\n", ""), 0),
        PolicyRun(GENERATED, DEFAULT, 0, 90),
    ]
    assert len({run.digest() for run in (one, *others)}) == 4
    assert one.digest() == runs(1)[0].digest()


def test_a_scheduler_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(InputError, match="no Dask scheduler answers at not-an-address"):
        results_of(runs(1), dask="not-an-address://x")


@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_that_loses_a_worker_loses_no_result(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    expected = results_of(runs(6))
    options = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    with distributed.LocalCluster(**options, local_directory=str(tmp_path), silence_logs=50) as cluster:
        victim = cluster.workers[0].pid
        killed: list[float] = []

        def on_done(done: int, _of: int) -> None:
            # Once the first result is there, others are under way on both workers.
            if done and not killed:
                killed.append(time.monotonic())
                os.kill(victim, signal.SIGKILL)

        found = results_of(runs(6), dask=cluster.scheduler_address, folder=tmp_path / "results", on_done=on_done)
    assert killed
    assert found == expected
    assert len(list((tmp_path / "results").glob("*.json"))) == 6
