"""What another scheduler does beside what Muster would have done: no look leaves a trace, and figures say what happened."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.checks.rollback_check import fingerprint

from muster.config import default_policy, load_policy
from muster.decision_log import DecisionLogWriter, LogHeader, read_decision_log
from muster.forecast.shadow_comparison import LATER, SOONER, WOULD_EVICT, WOULD_START, ShadowComparison, ShadowReport
from muster.model.effects import Outcome
from muster.model.events import ClusterObject, Delete, Event, Upsert
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Declared, Membership, Pod, PodSignature, PodStatusPhase
from muster.model.resource_amounts import GPU, Resources
from muster.model.saved_state import SavedHistory, SavedPlan
from muster.scenario.loader import load
from muster.scenario.scenario_runner import run
from muster.scheduler import Scheduler
from muster.state.world import World

HOUR = 3600.0
START = 1_800_000_000.0
SCENARIOS = Path(__file__).parents[2] / "scenarios"
OBSERVED = (
    "the placements",
    "used of the nodes",
    "planned of the nodes",
    "the ledger",
    "pods by node",
    "the count of unplaced members",
)


class Observed:
    """A cluster that another scheduler serves, and who looks at it."""

    def __init__(self, nodes: int = 1) -> None:
        self.scheduler = Scheduler(default_policy())
        self.comparison = ShadowComparison()
        self.pods: dict[str, Pod] = {}
        self._versions = 0
        self._feed(*(Node(f"n{number}", allocatable=Resources.of({GPU: 8})) for number in range(nodes)))

    def gang(self, name: str, *gpus: int, at: float, min_: int = 0, nodes: tuple[str, ...] = (), priority: int = 0) -> None:
        declared = Declared(min=min_ or len(gpus))
        for number, gpu in enumerate(gpus):
            pod = f"{name}-{number}"
            self.pods[pod] = Pod(
                pod,
                "a",
                pod,
                PodSignature(request=Resources.of({GPU: gpu})),
                created=START + at * HOUR,
                priority=priority,
                controller=name,
                membership=Membership(ApiFlavour.ANNOTATION, name, needs_group=False, declared=declared),
            )
            self._change(pod)
        for number, node in enumerate(nodes):
            self.starts(f"{name}-{number}", node=node, at=at)

    def starts(self, pod: str, *, node: str, at: float) -> None:
        self._change(pod, node=node, started=START + at * HOUR, status_phase=PodStatusPhase.RUNNING)

    def ends(self, pod: str) -> None:
        self._change(pod, status_phase=PodStatusPhase.SUCCEEDED)

    def is_deleted(self, pod: str, *, at: float) -> None:
        self._change(pod, deleted_at=START + at * HOUR + 30)

    def look(self, at: float) -> Outcome:
        return self.comparison.look(self.scheduler.observe(START + at * HOUR), self.scheduler.policy)

    def report(self, at: float) -> ShadowReport:
        return self.comparison.report(self.scheduler.observe(START + at * HOUR))

    def _change(self, pod: str, **fields: object) -> None:
        self._versions += 1
        self.pods[pod] = replace(self.pods[pod], version=self._versions, **fields)  # type: ignore[arg-type]
        self._feed(self.pods[pod])

    def _feed(self, *objects: ClusterObject) -> None:
        self.scheduler.feed([Upsert(obj) for obj in objects])


def differences(report: ShadowReport) -> list[tuple[str, str, float]]:
    return [(each.gang, each.what, round(each.hours, 3)) for each in report.differences]


# --- What the figures say ------------------------------------------------------------------------------------------------------


def test_a_gang_that_is_started_late_waited_for_nothing() -> None:
    seen = Observed()
    seen.look(0)
    seen.gang("llm", 4, 4, at=0)
    seen.look(0)
    seen.look(0.5)
    seen.starts("llm-0", node="n0", at=1)
    seen.starts("llm-1", node="n0", at=1)
    seen.look(1)
    report = seen.report(1)
    assert (report.started, report.sooner, report.same, report.later) == (1, 1, 0, 0)
    assert (report.gang_hours_waited, report.gang_hours_saved, report.gpu_hours_idle) == pytest.approx((1, 1, 8))
    assert differences(report) == [("a/llm", SOONER, 1.0)]


def test_two_schedulers_that_do_the_same_at_the_same_moment_do_not_differ() -> None:
    """The other one was quicker to see that a pod had ended: that is no difference."""
    seen = Observed()
    seen.gang("first", 8, at=0, nodes=("n0",))
    seen.gang("next", 8, at=0)
    seen.look(0)
    seen.look(1)
    seen.ends("first-0")
    seen.starts("next-0", node="n0", at=1)
    seen.look(1)
    report = seen.report(1)
    assert (report.started, report.same, report.waiting, report.gpu_hours_idle) == (1, 1, 0, 0)
    assert report.differences == ()
    assert report.gang_hours_waited == pytest.approx(1)
    assert report.gang_hours_saved == 0


def test_a_gang_that_muster_would_not_have_started_yet_counts_until_it_would_have() -> None:
    seen = Observed()
    seen.look(0)
    seen.gang("urgent", 8, at=0, priority=10)
    seen.gang("other", 8, at=0)
    seen.starts("other-0", node="n0", at=0)
    seen.look(0)
    seen.look(1)
    first = seen.report(1)
    assert (first.started, first.later, first.would_start) == (1, 1, 1)
    assert differences(first) == [("a/other", LATER, 1.0), ("a/urgent", WOULD_START, 1.0)]
    assert "full" in first.differences[0].why
    assert (first.gang_hours_later, first.gang_hours_saved, first.gpu_hours_idle) == pytest.approx((1, 1, 0))
    seen.ends("other-0")
    seen.look(2)
    seen.look(3)
    second = seen.report(3)
    assert second.gang_hours_later == pytest.approx(1)
    assert second.gpu_hours_idle == pytest.approx(8)


def test_gpus_of_gangs_that_cannot_run_are_counted_as_held() -> None:
    seen = Observed(nodes=2)
    seen.look(0)
    seen.gang("one", 8, 8, at=0)
    seen.gang("two", 8, 8, at=0)
    seen.starts("one-0", node="n0", at=0)
    seen.starts("two-0", node="n1", at=0)
    seen.look(0)
    report = (seen.look(2), seen.report(2))[1]
    assert report.gpu_hours_below_minimum == pytest.approx(32)
    assert report.started == 0
    assert ("a/one", WOULD_START, 2.0) in differences(report)


def test_each_pod_that_would_be_evicted_counts_once_with_what_it_loses() -> None:
    seen = Observed()
    seen.gang("batch", 4, 4, at=0, min_=1, nodes=("n0", "n0"))
    seen.look(0)
    seen.gang("urgent", 4, at=2, priority=10)
    for at in (2, 2.5, 3):
        seen.look(at)
    report = seen.report(3)
    assert (report.evictions, report.lost_gpu_hours) == pytest.approx((1, 8))
    assert (report.would_evict, report.gang_hours_saved_by_evicting, report.gang_hours_saved) == pytest.approx((1, 1, 0))
    assert differences(report) == [("a/urgent", WOULD_EVICT, 1.0)]
    assert seen.report(4).evictions == 0


def test_pods_that_are_deleted_while_they_run_are_counted_with_what_they_lose() -> None:
    seen = Observed()
    seen.gang("batch", 4, at=0, nodes=("n0",))
    seen.gang("short", 4, at=0, nodes=("n0",))
    seen.look(0)
    seen.ends("short-0")
    seen.is_deleted("batch-0", at=3)
    seen.is_deleted("short-0", at=3)
    seen.look(3)
    seen.look(3.1)
    report = seen.report(3.1)
    assert (report.deleted, report.deleted_lost_gpu_hours) == pytest.approx((1, 12))


def test_what_ran_before_the_first_look_was_not_started_by_anybody() -> None:
    seen = Observed()
    seen.gang("batch", 8, at=0, nodes=("n0",))
    seen.look(1)
    assert seen.report(1).started == 0


def test_a_period_begins_where_the_one_before_it_ended() -> None:
    seen = Observed()
    seen.gang("huge", 9, at=0)
    seen.look(0)
    first, second = (seen.look(1), seen.report(1))[1], (seen.look(3), seen.report(3))[1]
    assert (first.begin, first.end, second.begin, second.end) == (START, START + HOUR, START + HOUR, START + 3 * HOUR)
    assert (first.gang_hours_waited, second.gang_hours_waited) == pytest.approx((1, 2))
    assert second.gang_hours_saved == 0


# --- Nothing is left of a look --------------------------------------------------------------------------------------------------

LOOKED_AT = sorted([SCENARIOS / "demo.yaml", *(SCENARIOS / "stories").glob("*.yaml"), *(SCENARIOS / "devices").glob("*.yaml")])


def logged(file: Path) -> Iterator[tuple[str, list[LogHeader | Event | Outcome]]]:
    for scenario in load(file):
        log = io.BytesIO()
        run(scenario, log=DecisionLogWriter(log))
        yield scenario.name, [entry for _, entry, _ in read_decision_log(io.BytesIO(log.getvalue()))]


@pytest.mark.parametrize("file", LOOKED_AT, ids=lambda file: file.stem)
def test_a_look_leaves_the_cluster_as_it_was_and_muster_differs_from_nothing_that_it_did(file: Path) -> None:
    """Beside a scheduler that looks at every cycle's time there is one that only observes: both know the same."""
    for name, entries in logged(file):
        looking = observing = Scheduler(default_policy())
        comparison = ShadowComparison()
        for entry in entries:
            if isinstance(entry, LogHeader):
                policy = load_policy(entry.policy, file=str(file))
                looking, observing, comparison = Scheduler(policy), Scheduler(policy), ShadowComparison()
            elif isinstance(entry, Outcome):
                comparison.look(looking.observe(entry.now), looking.policy)
                _assert_same(looking.world, observing.observe(entry.now), name)
                assert not comparison.later, name
            elif isinstance(entry, Upsert | Delete) and not _is_of_muster(entry):
                looking.feed([entry])
                observing.feed([entry])


def _is_of_muster(event: Upsert | Delete) -> bool:
    """Whoever looks on reads no Plans."""
    return isinstance(event.obj, SavedPlan | SavedHistory) if isinstance(event, Upsert) else event.kind.startswith("Saved")


def _assert_same(one: World, other: World, name: str) -> None:
    found, expected = fingerprint(one).parts, fingerprint(other).parts
    for part in OBSERVED:
        assert found[part] == expected[part], f"{name}: {part}"
