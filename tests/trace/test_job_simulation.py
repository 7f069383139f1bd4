"""A history is played from event to event, with all invariants after every cycle; what came of it is counted by hand here."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from muster.config import default_policy, load_policy
from muster.decision_log import DecisionLogWriter
from muster.engine import equal_gangs
from muster.engine.evict import evict_actions
from muster.engine.session import Session
from muster.model.effects import Outcome
from muster.model.queue import Queue
from muster.model.resource_amounts import GPU, Resources
from muster.replay import replay
from muster.scenario.invariants import InvariantChecker
from muster.state.world import World
from muster.trace.comparison import compare
from muster.trace.job_simulation import TERMINATION_S, JobRun, JobSimulation, SimulatedTrace, fill
from muster.trace.job_trace import JobTrace, TraceJob, node_of, signature_of, with_shared_gpus
from muster.trace.made_trace import make_trace, parse_made_trace
from muster.trace.outcome import figures, result_of
from muster.yaml_positions import InputError

HOUR = 3600.0


def job(name: str, at_h: float, run_h: float, gpus: int = 8, **more: object) -> TraceJob:
    signature = signature_of(cpu_m=1000, memory=0, gpus=gpus)
    return replace(TraceJob(name, at_h * HOUR, run_h * HOUR, signature=signature), **more)  # type: ignore[arg-type]


def trace(*jobs: TraceJob, nodes: int = 1, queues: tuple[str, ...] = ()) -> JobTrace:
    share = Resources.of({GPU: nodes * 8 // max(len(queues), 1)})
    made = tuple(Queue(f"queue/{name}", uid=name, version=1, deserved=share) for name in queues)
    return JobTrace(jobs, tuple(node_of(f"n{i}", cpu_m=64_000, memory=2**40, gpus=8) for i in range(nodes)), made)


def play(history: JobTrace) -> SimulatedTrace:
    policy = default_policy()
    checker = InvariantChecker(policy)

    def on_cycle(world: World, outcome: Outcome) -> None:
        assert checker.check_cycle(world, outcome) == []
        checker.on_external_change()

    return JobSimulation(history, policy).run(on_cycle=on_cycle)


def runs(done: SimulatedTrace) -> dict[str, JobRun]:
    return {run.job.name: run for run in done.runs}


def value(done: SimulatedTrace, name: str) -> float:
    return {figure.name: figure.value for figure in figures(done)}[name]


def test_a_job_waits_for_the_one_before_it() -> None:
    done = play(trace(job("a", 0, 4), job("b", 1, 2), job("c", 8, 1)))
    found = runs(done)
    assert [(run.first_start_s, run.end_s) for run in found.values()] == [(0, 4 * HOUR), (4 * HOUR, 6 * HOUR), (8 * HOUR, 9 * HOUR)]
    assert value(done, "wait, mean") == pytest.approx(1)
    assert value(done, "completion, mean") == pytest.approx((4 + 5 + 1) / 3)
    assert value(done, "slowdown, mean") == pytest.approx((1 + 2.5 + 1) / 3)
    assert value(done, "GPU-hours in use") == pytest.approx(100 * 6 / 8)
    assert done.cycles <= 6, "nothing is looked at while nothing happens"


def test_the_members_of_a_gang_start_together() -> None:
    done = play(trace(job("a", 0, 2), job("gang", 1, 1, members=2), job("later", 4, 1), nodes=2))
    assert runs(done)["gang"].first_start_s == 2 * HOUR
    # From 1 to 2 a node is idle, but the gang asks for two.
    assert value(done, "GPUs idle that a waiting job asks for") == 0


def test_gpus_that_a_waiting_job_could_have_by_their_number_are_stranded() -> None:
    small = [job(f"s{i}", 0, 2, gpus=5) for i in range(2)]
    done = play(trace(*small, job("six", 1, 1, gpus=6), job("later", 4, 1), nodes=2))
    assert runs(done)["six"].first_start_s == 2 * HOUR
    assert value(done, "GPUs idle that a waiting job asks for") == pytest.approx(100 * 6 * 1 / (16 * 4))


@pytest.mark.parametrize(("checkpoint_h", "lost_h"), [(0, 5), (2, 1)])
def test_a_job_that_is_evicted_goes_on_from_its_checkpoint(checkpoint_h: float, lost_h: float) -> None:
    borrowed = [job(f"b{i}", 0, 10, queue="b", checkpoint_s=checkpoint_h * HOUR) for i in range(2)]
    done = play(trace(*borrowed, job("a", 5, 3, queue="a"), job("z", 40, 1, queue="a"), nodes=2, queues=("a", "b")))
    victim = next(run for run in runs(done).values() if run.evictions)
    assert victim.job.queue == "b"
    assert [(note.cause, note.seconds) for note in victim.lost] == [("gang-reclaim", lost_h * HOUR)]
    a = runs(done)["a"]
    assert a.first_start_s == 5 * HOUR + TERMINATION_S
    assert a.end_s == 8 * HOUR + TERMINATION_S
    assert victim.end_s == pytest.approx(8 * HOUR + TERMINATION_S + (5 + lost_h) * HOUR)
    assert value(done, "GPU-hours lost") == pytest.approx(100 * lost_h * 8 / (16 * 40))
    assert value(done, "worst gang evicted") == 1


def test_queues_that_have_the_same_part_of_their_share_are_treated_fairly() -> None:
    fair = play(trace(job("a", 0, 4, queue="a"), job("b", 0, 4, queue="b"), job("z", 4, 1, queue="a"), nodes=2, queues=("a", "b")))
    assert value(fair, "fairness (Jain, use / deserved)") == pytest.approx(1)
    alone = play(trace(job("a", 0, 4, queue="a"), job("z", 4, 1, queue="a"), nodes=2, queues=("a", "b")))
    assert value(alone, "fairness (Jain, use / deserved)") == pytest.approx(0.5)


def test_what_a_parent_deserves_is_that_of_its_queues() -> None:
    history = trace(
        job("a", 0, 10, 4, queue="x"), job("b", 0, 10, 4, queue="y"), job("c", 5, 1, 0, queue="x"), queues=("p", "x", "y")
    )
    parent, *children = history.queues
    tree = replace(history, queues=(parent, *(replace(each, parent=parent.key) for each in children)))
    assert value(play(tree), "fairness (Jain, use / deserved)") == pytest.approx(1)


def test_a_job_that_never_fits_does_not_end_and_the_others_do() -> None:
    done = play(trace(job("huge", 0, 1, gpus=9), job("a", 1, 1)))
    assert runs(done)["huge"].end_s is None
    assert value(done, "jobs that ended") == 1


def test_a_made_history_is_played_without_a_violation_and_its_log_replays() -> None:
    history = make_trace(parse_made_trace("gangs=40,days=1,nodes=4,load=130,checkpoint=3600,seed=3"))
    assert sum(each.run_s * each.gpus for each in history.jobs) == pytest.approx(1.3 * 32 * 86_400)
    done = play(history)
    assert value(done, "jobs that ended") == 40
    log = io.BytesIO()
    again = JobSimulation(history, default_policy(), log=DecisionLogWriter(log)).run()
    assert [run.end_s for run in again.runs] == [run.end_s for run in done.runs]
    result = replay(log.getvalue().splitlines(keepends=True))
    assert result.difference is None
    assert result.cycles == done.cycles


def test_equal_gangs_that_are_refused_together_get_what_each_would_get_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    history = make_trace(parse_made_trace("gangs=120,days=1,nodes=6,load=140"))

    def log() -> bytes:
        written = io.BytesIO()
        JobSimulation(history, default_policy(), log=DecisionLogWriter(written)).run()
        return written.getvalue()

    together = log()
    for module in (equal_gangs, evict_actions):
        monkeypatch.setattr(module, "equality_key", lambda s, gang: None)  # noqa: ARG005
    assert together == log()


def test_a_gang_that_has_nominations_is_like_no_other() -> None:
    """What it waits for would else be said of equal ones, which are not attempted then."""
    history, policy = make_trace(parse_made_trace("gangs=60,days=1,nodes=4,load=140")), default_policy()
    nominated: set[str] = set()

    def on_cycle(world: World, _: Outcome) -> None:
        for uid in world.placements.reservations:
            gang = world.facts.gangs[world.facts.members[uid].gang]
            assert equal_gangs.equality_key(Session(world, policy), gang) is None
            nominated.add(gang.key)

    JobSimulation(history, policy).run(on_cycle=on_cycle)
    assert nominated


@pytest.mark.parametrize("seed", range(4))
def test_in_a_made_history_only_the_lowest_queue_asks_for_much_more_than_it_deserves(seed: int) -> None:
    """Else the highest would wait for its own jobs, whatever the policy does."""
    history = make_trace(parse_made_trace(f"seed={seed}"))
    asked = dict.fromkeys(("prod", "research", "batch"), 0.0)
    for each in history.jobs:
        asked[each.queue] += each.run_s * each.gpus / (512 * 14 * 86_400)
    deserved = {queue.name: queue.deserved[GPU] / 512 for queue in history.queues}
    assert deserved == {"prod": 0.5, "research": 0.375, "batch": 0.125}
    assert sum(asked.values()) == pytest.approx(1.1)
    assert asked["prod"] < 0.9 * deserved["prod"]
    assert asked["batch"] > 2 * deserved["batch"]


@pytest.mark.parametrize("text", ["gang=3", "gangs=many", "gangs=0"])
def test_a_made_history_is_asked_for_in_whole_numbers(text: str) -> None:
    with pytest.raises(InputError):
        parse_made_trace(text)


def test_a_cluster_is_filled_with_jobs_that_do_not_end() -> None:
    part = signature_of(cpu_m=1000, memory=0, gpus=0, share=60)
    history = with_shared_gpus(trace(*(replace(job(f"j{i}", i, 1), signature=part) for i in range(3))))
    parts = replace(history, nodes=history.nodes[:1])
    jobs = tuple(replace(each, name=f"{each.name}-{n}") for n in range(5) for each in parts.jobs)
    # Of fifteen parts of 60 % one fits onto each of the eight GPUs.
    assert fill(parts, jobs, default_policy()) == pytest.approx(60)


def test_policies_are_compared_seed_by_seed() -> None:
    policies = load_policy("base: default\n"), load_policy("base: default\nplugins: [{binpack: false}, spread]\n")
    history = trace(*(job(f"s{i}", 0, 2, gpus=2) for i in range(4)), job("whole", 1, 1), job("z", 9, 1), nodes=2)
    played = {(at, seed): result_of(JobSimulation(history, each).run()) for at, each in enumerate(policies) for seed in range(2)}
    found = compare(played)
    row = next(row for row in found.rows if row.figure.name == "wait, mean")
    assert row.means == pytest.approx((0, 1 / 6))
    assert row.difference == pytest.approx(1 / 6)
    assert row.margin == 0
    assert row.verdict == "worse"
    (pair,) = found.jobs
    assert (pair.first.name, pair.seconds) == ("whole", HOUR)
    assert pair.worse.why.startswith("waited 1.0 h: 0/1 members placed, whole-0 fits nowhere: 2 nodes full (gpu)")


def test_curves_are_means_of_equal_parts_of_the_time() -> None:
    done = play(trace(job("a", 0, 1), job("b", 0, 1), job("z", 4, 1)))
    curves = result_of(done).curves
    # One of eight GPUs is asked for at a time: two hours of four are used, and one job waits for one hour.
    used, waiting = curves["GPUs in use"].values, curves["waiting jobs"].values
    assert len(used) == 200
    assert used[:100] == pytest.approx([100.0] * 100)
    assert used[100:] == pytest.approx([0.0] * 100)
    assert sum(waiting) / 200 == pytest.approx(1 / 4)
    assert set(curves["GPU-hours lost so far"].values) == {0.0}
