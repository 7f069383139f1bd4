"""What happened before: waits, lost work, and bounds on what is kept."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.web.served import scenario

from muster.cli.cluster_state import read_cluster_state
from muster.config import default_policy
from muster.cycle_log import CycleLogEntry
from muster.engine.session import Session
from muster.forecast.dry_run import dry_run, world_of
from muster.model.effects import Bind, Evict, Outcome
from muster.model.node import Node
from muster.model.pod import Pod, PodSignature
from muster.model.resource_amounts import GPU, Resources
from muster.queue_report import queue_rows
from muster.service.prometheus_metrics import Metrics
from muster.state.world import World
from muster.web.run_history import MAX_ENTRIES, RunHistory, first_bound

HOUR = 3600.0


def pod(name: str, *, node: str | None = None, started: float | None = None, checkpoint: float | None = None) -> Pod:
    signature = PodSignature(request=Resources.of({GPU: 4}))
    return Pod(name, "a", name, signature, created=0.0, node=node, started=started, checkpoint=checkpoint)


def world(*pods: Pod) -> World:
    node = Node("n1", allocatable=Resources.of({GPU: 8}))
    return world_of(default_policy(), [node, *pods], now=2 * HOUR)


def test_lost_work_counts_from_the_last_checkpoint() -> None:
    seen = world(pod("old", node="n1", started=0.0), pod("saved", node="n1", started=0.0, checkpoint=1.5 * HOUR))
    history = RunHistory()
    evictions = tuple(Evict(name, f"a/{name}", "n1", f"a/{name}", "b/xl", "why", "preempt") for name in ("old", "saved"))
    lost = history.record_evictions(seen, Outcome(1, 2 * HOUR, evictions))
    assert [(each.gang, each.gpus, each.lost_gpu_hours) for each in lost] == [("a/old", 4, 8.0), ("a/saved", 4, 2.0)]
    assert [row["lostGpuHours"] for row in history.evictions] == [8.0, 2.0]
    assert history.record_evictions(seen, Outcome(2, 2 * HOUR)) == []


def test_a_gang_has_waited_when_it_is_bound_for_the_first_time() -> None:
    seen = world(pod("new"), pod("running", node="n1", started=0.0))
    binds = tuple(Bind(name, f"a/{name}", "n1", f"a/{name}", "it fits") for name in ("new", "running", "gone"))
    assert [gang.full_name for gang in first_bound(seen, Outcome(1, 2 * HOUR, binds))] == ["a/new"]


def test_a_history_is_bounded_and_an_eviction_is_in_both() -> None:
    history = RunHistory()
    evicted = CycleLogEntry("evict", {"gang": "a/g", "for_gang": "b/xl", "pods": 1, "why": "priority"})
    for number in range(MAX_ENTRIES + 5):
        history.record_entries(Outcome(number, float(number)), [evicted])
    assert len(history.of_gang("a/g")) == len(history.of_gang("b/xl")) == MAX_ENTRIES
    assert history.of_gang("a/g")[-1] == {"time": 24.0, "event": "evict", "for_gang": "b/xl", "pods": 1, "why": "priority"}
    assert history.of_gang("b/xl")[-1]["victim"] == "a/g"
    assert history.of_gang("c/other") == []


def test_series_of_queues_are_bounded() -> None:
    metrics = Metrics()
    for number in range(600):
        metrics.count_wait(f"queue/q{number}", 30.0)
        metrics.count_lost(f"queue/q{number}", "queue/q0", 0.5)
    page = metrics.page().decode()
    assert len(re.findall(r"^muster_gang_wait_seconds_count\{", page, re.MULTILINE)) == 501
    (lost,) = re.findall(r'^muster_lost_gpu_hours_total\{for_queue="queue/q0",queue="other"\} (.*)$', page, re.MULTILINE)
    assert float(lost) == pytest.approx(50.0)
    for number in range(5000):
        metrics.count_lost(f"queue/q{number % 70}", f"queue/q{number // 70}", 1.0)
    assert len(re.findall(r"^muster_lost_gpu_hours_total\{", metrics.page().decode(), re.MULTILINE)) == 2001
    assert "gang_wait" not in metrics.page(queues=False).decode()


def test_gauges_of_ten_thousand_queues_and_names_of_resources_are_bounded(tmp_path: Path) -> None:
    """One tenant makes queues, another asks for resources that no node has."""
    queues = "\n".join(f"- {{name: q{number}}}" for number in range(10_000))
    gang = "- {{name: g, namespace: ns{0}, queue: q{0}, pods: 1, requests: {{example.com/r{0}: 1}}}}"
    gangs = "\n".join(gang.format(number) for number in range(9_000, 9_600))
    text = f"name: many\nnodes: [{{name: n1, gpu: 8}}]\nqueues:\n{queues}\ngangs:\n{gangs}\nsteps: [cycle: 1]\n"
    state = read_cluster_state(scenario(tmp_path, text))
    metrics, policy = Metrics(), default_policy()

    def look(session: Session) -> None:
        metrics.update_gauges(session.world, queue_rows(session.world, policy))

    dry_run(policy, list(state.objects), now=state.now, look=look)
    page = metrics.page().decode()
    series = Counter(line.partition("{")[0] for line in page.splitlines() if not line.startswith("#"))
    assert series["muster_queue_share"] == 500
    assert max(series.values()) == 500
    assert "example.com" not in page
    (waiting,) = re.findall(r'^muster_queue_pending_gangs\{code="[^"]*",queue="other"\} (.*)$', page, re.MULTILINE)
    assert 0 < float(waiting) <= 600
