"""Taking (B6): a queue is judged by the finished plan, with the ask and without exactly what the plan evicts."""

from __future__ import annotations

from tests.evict.eviction_asks import eviction_ask
from tests.scenario.running_scenarios import run_steps

from muster.engine.evict.reclaim import GANG_RECLAIM
from muster.engine.session import Session
from muster.model.effects import Verdict
from muster.model.pod import Phase

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


def verdict_on_plan(requested: int, *victims: str) -> Verdict:
    """Queue b uses 4 GPUs of its 4 and asks for `requested` more: what the rules say of a plan that evicts these pods."""
    found = run_steps(TWO_QUEUES.replace("REQUESTED", str(requested)))
    s = Session(found.world, found.policy)
    s.prepare()
    asked = eviction_ask(s, "default/hi", GANG_RECLAIM)
    evicted = [pod for pod in found.world.facts.pods.values() if pod.name in victims]
    assert len(evicted) == len(victims)
    with s.trial("a plan", cause="Plan") as trial:
        for pod in evicted:
            trial.evict(pod)
        for pod in asked.ask.pods:
            trial.place(pod, "n1", phase=Phase.NOMINATED)
        return asked.rules.allows_plan([[pod] for pod in evicted])


def test_a_queue_that_stays_within_its_deserved_share_takes_from_another() -> None:
    assert verdict_on_plan(2, "low-0", "low-1", "borrows-0").ok


def test_what_the_plan_does_not_evict_counts_in_the_asking_queue_whoever_could_be_evicted_there() -> None:
    verdict = verdict_on_plan(2, "borrows-0", "borrows-1")
    assert (verdict.ok, verdict.why) == (
        False,
        "queue b would be over its deserved share: gpu 2 requested + 4 used > 4 deserved",
    )
    assert verdict_on_plan(2, "low-0", "borrows-0").why.endswith("gpu 2 requested + 3 used > 4 deserved")


def test_what_the_plan_evicts_is_not_counted_twice() -> None:
    """Three more than the two that stay are over the share, though two were evicted."""
    assert verdict_on_plan(3, "low-0", "low-1", "borrows-0").why.endswith("gpu 3 requested + 2 used > 4 deserved")


def test_a_plan_that_evicts_in_the_own_queue_alone_is_no_reclaim() -> None:
    assert verdict_on_plan(3, "low-0", "low-1").ok
