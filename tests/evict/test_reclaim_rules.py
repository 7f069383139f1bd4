"""What the asking gang's queue uses without its own victims is fixed when a plan begins: evicting them changes no verdict."""

from __future__ import annotations

from tests.scenario.running_scenarios import run_steps

from muster.engine.evict.reclaim import ReclaimRules
from muster.engine.evict.victims import victim_table_of
from muster.engine.hooks import Ask, Purpose
from muster.engine.session import Session

TWO_QUEUES = """
policy: {plugins: [fit, priority, capacity], actions: [expire, allocate]}
nodes: [{name: n1, gpu: 9}]
queues: [{name: a, deserved: {gpu: 4}}, {name: b, deserved: {gpu: 4}}]
gangs:
- {name: borrows, queue: a, pods: 4, min: 1, requests: {gpu: 1}, runningOn: n1}
- {name: firm, queue: b, pods: 2, min: 1, requests: {gpu: 1}, priority: 5, runningOn: n1}
- {name: low, queue: b, pods: 2, min: 1, requests: {gpu: 1}, priority: 0, runningOn: n1}
- {name: more, queue: a, pods: 1, requests: {gpu: 1}, runningOn: n1}
- {name: hi, queue: b, pods: REQUESTED, requests: {gpu: 1}, priority: 5}
steps: [cycle]
"""


def verdicts_while_own_victims_are_evicted(requested: int) -> list[tuple[bool, str]]:
    found = run_steps(TWO_QUEUES.replace("REQUESTED", str(requested)))
    world = found.world
    s = Session(world, found.policy)
    s.prepare()
    gang = next(gang for gang in world.facts.gangs.values() if gang.full_name == "default/hi")
    rules = ReclaimRules(s, Ask(gang, gang.pods(), Purpose.EVICT, "gang-reclaim"), victim_table_of(world))
    verdicts = [rules.may_reclaim_from("queue/a")]
    with s.trial("a plan", cause="Plan") as trial:
        for pod in [pod for pod in world.facts.pods.values() if pod.name.startswith("low")]:
            trial.evict(pod)
            verdicts.append(rules.may_reclaim_from("queue/a"))
    return [(verdict.ok, verdict.why) for verdict in verdicts]


def test_a_plan_within_the_deserved_share_stays_within_it() -> None:
    assert [ok for ok, _ in verdicts_while_own_victims_are_evicted(2)] == [True, True, True]


def test_a_plan_over_the_deserved_share_stays_over_it() -> None:
    first, *later = verdicts_while_own_victims_are_evicted(3)
    assert first == (False, "queue b would not be within its deserved share of what it requests")
    assert later == [first, first]
