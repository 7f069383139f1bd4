"""How good expected starts are: on a generated trace, beside when the gangs started in the simulator.

Owners submit gangs of their own size again and again, to two queues, a little more than the nodes can take. At every tenth
submission but the first ones everybody who waits is told when it starts; nobody knows of what comes later. Judged are waits of over
ten minutes: how many of the starts lie within 20 % of the wait. Run times are declared, or only known from earlier gangs of their
owner.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache, partial

from muster.bench.workload import Measurement, Workload
from muster.forecast.start_time import RunTimes, Start, run_times_of, starts_of
from muster.model.effects import Bind
from muster.model.events import Upsert
from muster.model.pod import Pod, PodStatusPhase
from muster.scenario.loader import from_document
from muster.scenario.scenario_runner import ScenarioRunner
from muster.scenario.syntax_tree import SubmitStep

GROUP = "start"
SEEDS = range(2)
GANGS, NODES, OWNERS, ASKED_EVERY, KNOWN_AFTER = 120, 12, 8, 10, 30
LEAST_WAIT_S, NEAR = 600.0, 0.20
RUNS_S, SPREAD, LOAD = 3600.0, 0.25, 1.1


def trace(seed: int, *, declared: bool) -> tuple[dict[str, object], dict[str, float]]:
    """A scenario, and how long each gang runs. How long gangs of one owner run differs by `SPREAD`, that of owners by more."""
    draw = random.Random(seed)
    owners = [(draw.choice((1, 1, 2, 3, 4, 6)), RUNS_S * draw.lognormvariate(0.0, 0.8)) for _ in range(OWNERS)]
    pause_s = sum(pods * runs_s for pods, runs_s in owners) / OWNERS / NODES / LOAD
    steps: list[object] = []
    all_runs: dict[str, float] = {}
    for number in range(GANGS):
        owner = draw.randrange(OWNERS)
        pods, runs_s = owners[owner]
        each = runs_s * draw.lognormvariate(0.0, SPREAD)
        name = f"owner-{'abcdefgh'[owner]}-{number}"
        all_runs[name] = each
        gang = {"name": name, "queue": f"q{owner % 2}", "pods": pods, "requests": {"gpu": 8}}
        gang |= {"namespace": f"team-{'abcdefgh'[owner]}", "runDuration": f"{each:.0f}s"}
        if declared:
            gang["annotations"] = {"muster.dev/run-seconds": f"{each:.0f}"}
        steps += [{"submit": gang}, {"run": {"for": f"{1 + draw.expovariate(1 / pause_s):.0f}s", "every": "60s"}}]
    steps.append({"run": {"for": "24h", "every": "5m"}})
    queues = [{"name": f"q{number}", "weight": 1} for number in range(2)]
    nodes = [{"name": f"n[1-{NODES}]", "gpu": 8}]
    return {"name": f"trace {seed}", "nodes": nodes, "queues": queues, "steps": steps}, all_runs


@cache
def judged(seed: int, *, declared: bool) -> tuple[float, ...]:
    """By how much of the wait each start was missed; infinite where none was expected."""
    scenario, runs_s = trace(seed, declared=declared)
    runner = ScenarioRunner(from_document(scenario))
    runner.set_up()
    told: list[tuple[str, float, Start]] = []
    submitted = 0
    for step in runner.scenario.steps:
        runner.run_step(step)
        submitted += isinstance(step, SubmitStep)
        if isinstance(step, SubmitStep) and submitted % ASKED_EVERY == 0 and submitted >= KNOWN_AFTER:
            told += [(gang, runner.at_s, start) for gang, start in _answers(runner, None if declared else runs_s)]
    started: dict[str, float] = {}
    for decided in runner.decided_effects:
        if isinstance(decided.effect, Bind):
            started.setdefault(decided.effect.gang, decided.at_s)
    waits = [(started[gang] - at, start.expected_s) for gang, at, start in told if gang in started]
    return tuple(
        float("inf") if expected_s is None else abs(expected_s - waited) / waited
        for waited, expected_s in waits
        if waited >= LEAST_WAIT_S
    )


def _answers(runner: ScenarioRunner, runs_s: Mapping[str, float] | None) -> Iterator[tuple[str, Start]]:
    objects = [event.obj for event in runner.cluster.list_events() if isinstance(event, Upsert)]
    waiting = [gang for gang in runner.world.facts.gangs.values() if not any(pod.node or pod.finished for pod in gang.pods())]
    run_times = RunTimes() if runs_s is None else run_times_of(_ended(runner, runs_s))
    starts = starts_of(runner.policy, objects, waiting, run_times, now=runner.cluster.now, may_go_on=lambda: True)
    yield from ((gang.full_name, starts[gang.key]) for gang in waiting if gang.key in starts)


def _ended(runner: ScenarioRunner, runs_s: Mapping[str, float]) -> Iterator[tuple[Pod, float]]:
    """What a decision log would say of the gangs that are done: their pods, and for how long each ran."""
    for event in runner.cluster.list_events():
        if isinstance(event, Upsert) and isinstance(event.obj, Pod) and event.obj.status_phase is PodStatusPhase.SUCCEEDED:
            yield event.obj, runs_s[event.obj.annotations["scheduling.k8s.io/group-name"]]


def _near(*, declared: bool) -> Measurement:
    missed = sorted(each for seed in SEEDS for each in judged(seed, declared=declared))
    near = sum(each <= NEAR for each in missed)
    details = (("starts", float(len(missed))), ("median off by %", 100 * missed[len(missed) // 2]))
    return Measurement(100 * near / len(missed), details)


WORKLOADS = (
    Workload(GROUP, "starts within 20 % of the wait, run times declared", "%", partial(_near, declared=True), 50.0),
    Workload(GROUP, "starts within 20 % of the wait, of earlier gangs", "%", partial(_near, declared=False), 50.0),
)
