"""What refusals and evictions say is so: on small random clusters, each sentence is read back and compared with plain sums."""

from __future__ import annotations

import json
from random import Random

import pytest
from benchmarks.plan_quality import policy_of
from benchmarks.quality_rows import ROWS, make_world
from benchmarks.quality_worlds import ASKER, Document
from tests.checks.eviction_rules import EvictionJudge
from tests.oracles.judged_worlds import world
from tests.oracles.sentence_claims import untrue_claims, untrue_eviction
from tests.oracles.snapshot import Snapshot

from muster.model.effects import Evict, Outcome
from muster.scenario.loader import from_document
from muster.scenario.scenario_runner import ScenarioRunner
from muster.scheduler import Scheduler

SEEDS = range(50)


@pytest.mark.parametrize("row", ROWS)
def test_what_is_said_is_so(row: str) -> None:
    refused = evicted = 0
    untrue: list[str] = []
    for seed in SEEDS:
        s, outcome = decided(with_more_protection(make_world(row, seed), Random(f"{row}:{seed}")))
        gang = next(gang for gang in s.gangs.values() if any(pod.name.startswith(f"{ASKER}-") for pod in gang.pods()))
        evictions = [effect for effect in outcome.effects if isinstance(effect, Evict)]
        for effect in evictions:
            untrue += [f"{row}, seed {seed}: {why}" for why in untrue_eviction(s, gang, s.pods[effect.uid], effect.why)]
        for _, verdict in outcome.verdicts if not evictions else ():
            if not verdict.ok and verdict.code != "Preempting":
                refused += 1
                untrue += [f"{row}, seed {seed}: {why}" for why in untrue_claims(s, gang, verdict.why)]
        evicted += bool(evictions)
    assert untrue == []
    assert min(refused, evicted) > len(SEEDS) // 6, "where nothing is said nothing is proved"


def with_more_protection(document: Document, chance: Random) -> Document:
    """Most clusters of a row have a plan: here more pods are protected, young, or under the budget, and more is asked for."""
    for gang in document["gangs"][:-1]:
        if chance.random() < 0.35:
            gang["annotations"] = {"volcano.sh/preemptable": "false"}
        if chance.random() < 0.35:
            gang["age"] = "20s"
        if chance.random() < 0.35:
            gang.setdefault("labels", {})["app"] = "web"
    asker = document["gangs"][-1]
    if "pods" in asker and "apiFlavour" not in asker and chance.random() < 0.4:
        asker["pods"] += chance.randint(1, 3)
    return document


def decided(document: Document) -> tuple[Snapshot, Outcome]:
    """The cluster as the actions of its first cycle found it, and what they decided."""
    policy = policy_of(json.dumps(document["policy"]))
    rules = EvictionJudge()
    rules.start(policy, ())
    scheduler = Scheduler(policy, on_step=lambda name: rules.on_step(name, scheduler.world))
    runner = ScenarioRunner(from_document({key: value for key, value in document.items() if key != "policy"}))
    runner.set_up()
    scheduler.feed(runner.cluster.relist())
    outcome = scheduler.tick(runner.cluster.now)
    return rules.before_cycle(scheduler.world), outcome


CLUSTER = """
nodes: [{name: "n[1-2]", gpu: 4}]
queues: [{name: a, deserved: {gpu: 4}}, {name: b, deserved: {gpu: 4}}]
gangs:
- {name: ours, queue: a, requests: {gpu: 4}, runningOn: n1, priority: 1, annotations: {volcano.sh/preemptable: "false"}}
- {name: theirs, queue: b, requests: {gpu: 4}, runningOn: n2, priority: 1}
- {name: ask, queue: a, requests: {gpu: 4}, priority: 5}
"""


@pytest.mark.parametrize(
    ("said", "is_so"),
    [
        ("0/1 members placed, ask-0 fits nowhere: 2 nodes full (gpu)", True),
        ("0/1 members placed, ask-0 fits nowhere: 1 node full (gpu)", False),
        ("0/1 members placed, ask-0 fits nowhere: 2 nodes full (cpu)", False),
        ("0/2 members placed, ask-0 fits nowhere: 2 nodes full (gpu)", False),
        ("no pod that it could evict is evictable now (1 pod is protected from eviction)", True),
        ("no pod that it could evict is evictable now (2 pods are protected from eviction)", False),
        ("no pod that it could evict is evictable now (1 pod is within the minimum run time of their gang)", False),
        ("no pod of lower priority in its queue is placed", False),
        ("queue b is within its deserved share: gpu 4 of 4 (1 pod)", True),
        ("queue b is within its deserved share: gpu 3 of 4 (1 pod)", False),
        ("queue b is within its deserved share: gpu 4 of 4 (2 pods)", False),
        ("queue a would be over its deserved share: gpu 4 requested + 4 used > 4 deserved (1 pod)", True),
        ("queue a would be over its deserved share: gpu 4 requested + 0 used > 4 deserved (1 pod)", False),
        ("queue a can never reclaim that much: gpu 4 requested > 4 deserved (1 pod)", False),
        ("queue b is not reclaimable (1 pod)", False),
        ("queue a: gpu 4 used + 4 requested > 8 limit", False),
        ("gpu 4 requested > 0 free", True),
        ("gpu 4 requested > 1 free", False),
        ("gpu 4 requested > 0 free, cpu 1 requested > 0 free", False),
        ("none of 2 pods may be moved: 2 pods not declared as movable", True),
        ("none of 2 pods may be moved: 1 pod not declared as movable", False),
        ("none of 2 pods may be moved: 1 pod not declared as movable, 1 pod of a higher priority", False),
        ("2 pods may be moved, and no way to move them was found that makes it fit", False),
        ("1 pod is protected from eviction", True),
        ("2 pods are protected from eviction", False),
        ("no pod may be evicted for its members in queue a, and they do not fit on free capacity", True),
        ("no pod may be evicted for its members in queue b, and they do not fit on free capacity", False),
        ("with 1 pod evicted, those of them that may be evicted for its members in queue b are too few for these", False),
        ("its members in different queues cannot share them out: those that lack one may not have it", False),
        ("the moon is full", False),
        (
            "queue b is within its deserved share: gpu 4 of 4 (1 pod); queue b is within its deserved share: gpu 4 of 4 (1 pod)",
            False,
        ),
    ],
)
def test_a_sentence_that_is_not_so_is_noticed(said: str, is_so: bool) -> None:
    s = world(CLUSTER)
    gang = next(gang for gang in s.gangs.values() if gang.full_name == f"default/{ASKER}")
    assert (untrue_claims(s, gang, said) == []) is is_so


@pytest.mark.parametrize(
    ("said", "is_so"),
    [
        ("preempted for default/ask: priority 1 against 5", True),
        ("preempted for default/ask: priority 2 against 5", False),
        ("preempted for default/other: priority 1 against 5", False),
        ("moved for default/ask: capacity is kept for it on n1; priority 1 against 5", True),
        ("moved for default/ask: capacity is kept for it on n2; priority 1 against 5", False),
        ("moved for default/ask: priority 1 against 5", False),
        ("reclaimed for default/ask: queue b uses gpu 4 of 4 deserved, queue a uses gpu 4 of 4 deserved", True),
        ("reclaimed for default/ask: queue b uses gpu 8 of 4 deserved, queue a uses gpu 4 of 4 deserved", False),
        ("reclaimed for default/ask: queue a uses gpu 4 of 4 deserved, queue b uses gpu 4 of 4 deserved", False),
        ("reclaimed for default/ask: queue b uses gpu 4 and deserves none, queue a uses gpu 4 of 4 deserved", False),
    ],
)
def test_a_reason_of_an_eviction_that_is_not_so_is_noticed(said: str, is_so: bool) -> None:
    s = world(CLUSTER)
    gang = next(gang for gang in s.gangs.values() if gang.full_name == f"default/{ASKER}")
    victim = next(pod for pod in s.pods.values() if pod.name == "theirs-0")
    assert (untrue_eviction(s, gang, victim, said) == []) is is_so
