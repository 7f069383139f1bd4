"""What holds for every plan, on random clusters: the search leaves no trace, every victim is needed, and the plan does not depend
on the order of events. And for reclaim: guarantees hold, and evictions come to an end."""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.checks.rollback_check import fingerprint
from tests.evict.eviction_asks import eviction_ask
from tests.evict.judged_clusters import NOW, POLICY, _asking_gang, _gangs
from tests.harness.row_index import rows_of

from muster.config import load_policy
from muster.engine.evict.domain_search import DomainSearch, plan_in_domain
from muster.engine.evict.eviction_plan import NoPlan, Plan
from muster.engine.evict.eviction_policy import GANG_PREEMPT, PREEMPT
from muster.engine.evict.eviction_units import EvictionUnits
from muster.engine.evict.single_node import plan_on_one_node
from muster.engine.evict.unit_membership import WHOLE
from muster.engine.evict.victim_search import EvictionAsk
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.effects import Evict
from muster.model.events import Event, Upsert
from muster.model.node import Node
from muster.model.resource_amounts import CPU, GPU, PODS, Resources
from muster.scenario.loader import from_document
from muster.scenario.scenario_runner import ScenarioRunner
from muster.state.derived.topology_domains import WHOLE_CLUSTER, Domain
from muster.state.store import Store
from muster.state.world import World

SEEDS = st.integers(min_value=0, max_value=10_000)


def cluster_events(seed: int) -> list[Event]:
    """A full cluster of at most 40 nodes and a gang that asks, in the order in which they were made."""
    chance = random.Random(seed)
    count = chance.choice([4, 8, 16, 24, 40])
    free: dict[str, int] = {}
    events: list[Event] = []
    for number in range(count):
        name, gpus = f"n{number:03d}", chance.choice([4, 8, 8])
        free[name] = gpus
        allocatable = Resources.of({CPU: 64_000, GPU: gpus, PODS: 110})
        events.append(Upsert(Node(name, version=1, allocatable=allocatable, labels={"rack": f"r{number // 8}"})))
    return [*events, *_gangs(chance, free), *_asking_gang(chance, count)]


def session(events: list[Event]) -> Session:
    store = Store()
    for event in events:
        store.fold(event)
    s = Session(store.world(NOW), load_policy(POLICY))
    s.prepare()
    return s


def asked_by(s: Session) -> EvictionAsk:
    return eviction_ask(s, "d/hi", GANG_PREEMPT)


def domain_of(seed: int, s: Session) -> Domain:
    names = s.world.table.names
    return WHOLE_CLUSTER if seed % 2 else Domain("half", rows_of(s.world.table, names[: max(2, len(names) // 2)]))


def describe(plan: Plan | NoPlan) -> tuple[object, ...]:
    """A plan as a person would tell it."""
    if isinstance(plan, NoPlan):
        return ("none",)
    placements = sorted((pod.full_name, placement.node) for pod, placement in plan.placements)
    return (plan.domain, sorted(pod.full_name for pod in plan.victims), placements, round(plan.cost, 6))


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_search_leaves_no_trace(seed: int) -> None:
    s = session(cluster_events(seed))
    asked, before = asked_by(s), fingerprint(s.world)
    plan_in_domain(asked, domain_of(seed, s))
    plan_on_one_node(eviction_ask(s, "d/hi", PREEMPT, pods=asked.ask.pods[:1]), WHOLE_CLUSTER)
    assert list(before.differences(fingerprint(s.world))) == []


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_every_victim_of_a_plan_is_needed(seed: int) -> None:
    s = session(cluster_events(seed))
    ask, domain = asked_by(s).ask, domain_of(seed, s)
    units = DomainSearch(asked_by(s), domain).search.units
    plan = plan_in_domain(asked_by(s), domain)
    if isinstance(plan, NoPlan):
        return
    assert fits(s, ask, domain, units, plan.units), "the plan itself must work"
    ends = {units.gang[unit] for unit in plan.units if units.kind[unit] == WHOLE}
    for unit in plan.units:
        assert units.kind[unit] == WHOLE or units.gang[unit] not in ends, "what is evicted with its gang is no unit beside it"
        rest = [other for other in plan.units if other != unit]
        assert not fits(s, ask, domain, units, rest), f"unit {unit} of {plan.units} could stay"


def fits(s: Session, ask: Ask, domain: Domain, units: EvictionUnits, evicted: list[int] | tuple[int, ...]) -> bool:
    """Does the ask fit with these units evicted? There are large members and small ones of one GPU: whatever GPUs the large
    ones leave over serve the small ones, so sums decide, and this knows nothing of how Muster places."""
    table, b, gpu = s.world.table, units, s.world.columns.position[GPU]
    free = (table.allocatable - table.planned)[:, gpu].copy()
    for victim in np.flatnonzero(b.in_domain & np.isin(b.unit, list(evicted))).tolist():
        free[b.row[victim]] += b.request[victim, gpu]
    free = free[domain.mask(len(table))]
    sizes = [pod.signature.request[GPU] for pod in ask.pods]
    large = max(sizes)
    many, few = sizes.count(large), sum(size for size in sizes if size != large)
    return bool((free // large).sum() >= many and free.sum() - large * many >= few)


@given(SEEDS, st.integers(min_value=0, max_value=1000))
@settings(max_examples=60, deadline=None)
def test_the_order_of_events_does_not_change_the_plan(seed: int, shuffle: int) -> None:
    events = cluster_events(seed)
    s = session(events)
    expected = describe(plan_in_domain(asked_by(s), domain_of(seed, s)))
    random.Random(shuffle).shuffle(events)
    again = session(events)
    assert describe(plan_in_domain(asked_by(again), domain_of(seed, again))) == expected


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_no_queue_falls_below_its_guarantee_by_reclaim(seed: int) -> None:
    for before, after, cycle, losers in _reclaim_history(seed)[0]:
        for queue, guarantee in _guarantees(seed).items():
            floor = min(guarantee, before[queue]) if queue in losers else 0
            assert after[queue] >= floor, f"cycle {cycle}: {queue} has {after[queue]} of its guarantee of {guarantee}"


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_reclaim_between_queues_comes_to_an_end(seed: int) -> None:
    counts = _reclaim_history(seed)[1]
    assert sum(counts[-15:]) == 0, f"evictions by cycle: {counts}"


ReclaimHistory = tuple[list[tuple[dict[str, int], dict[str, int], int, set[str]]], list[int]]


@cache
def _reclaim_history(seed: int) -> ReclaimHistory:
    """Usage before and after each cycle that evicted, with the queues from which others reclaimed then, and evictions by cycle.
    Controllers re-create every victim at once.

    Preemption within a queue is not limited by its guarantee.
    """
    scenario = from_document(_queues(seed))
    play = ScenarioRunner(scenario)
    play.set_up()
    queues = _guarantees(seed)
    usages: list[dict[str, int]] = []
    evictions: list[int] = []
    losers: list[set[str]] = []
    for number in range(60):
        if number == 1:
            for step in scenario.steps:
                play.run_step(step)
        usages.append(_usage(play.world, queues))
        outcome = play.cycle()
        victims = [effect for effect in outcome.effects if isinstance(effect, Evict)]
        evictions.append(len(victims))
        losers.append({play.world.facts.members[victim.uid].queue for victim in victims if victim.cause == "gang-reclaim"})
        usages.append(_usage(play.world, queues))
        play.cluster.advance(20.0)
    assert play.violations == []
    pairs = [pair for number, pair in enumerate(pairwise(usages)) if number % 2 == 0]
    return [(*pair, cycle, losers[cycle]) for cycle, pair in enumerate(pairs) if evictions[cycle]], evictions


def _usage(world: World, queues: dict[str, int]) -> dict[str, int]:
    gpu = world.columns.position.get(GPU)
    known = world.ledger.names if gpu is not None else ()
    return {queue: int(world.ledger.planned(queue)[gpu]) if queue in known else 0 for queue in queues}


def _guarantees(seed: int) -> dict[str, int]:
    document = _queues(seed)
    queues = document["queues"]
    assert isinstance(queues, list)
    return {f"queue/{queue['name']}": queue.get("guarantee", {}).get("gpu", 0) for queue in queues}


def _queues(seed: int) -> dict[str, object]:
    """Three queues, some with guarantees, and gangs that ask for more than there is."""
    chance = random.Random(seed)
    nodes = chance.choice([4, 6, 8])
    names = ["a", "b", "c"]
    queues: list[dict[str, object]] = []
    for name in names:
        deserved = chance.choice([8, 16, 24])
        queue: dict[str, object] = {"name": name, "deserved": {"gpu": deserved}}
        if chance.random() < 0.5:
            queue["guarantee"] = {"gpu": min(deserved, chance.choice([4, 8, 12]))}
        queues.append(queue)
    gangs = []
    for number in range(chance.randint(8, 16)):
        pods = chance.choice([1, 1, 2, 3, 4])
        gangs.append(
            {
                "name": f"g{number}",
                "queue": chance.choice(names),
                "pods": pods,
                "min": chance.randint(1, pods),
                "requests": {"gpu": chance.choice([1, 2, 4, 8])},
                "priority": chance.choice([1, 1, 5]),
                "age": f"{chance.randint(1, 50)}m",
                "controller": "recreate",
            }
        )
    first, late = gangs[: len(gangs) // 2], gangs[len(gangs) // 2 :]
    # One queue has more than its share before the others come.
    for gang in first:
        gang["queue"] = "a"
    return {
        "name": f"reclaim {seed}",
        "policy": {
            "plugins": ["priority", "fit", "binpack", "nominated", "lost-work", "capacity"],
            "actions": ["expire", "enqueue", "allocate", "gang-preempt", "gang-reclaim"],
        },
        "nodes": [{"name": f"n[1-{nodes}]", "gpu": 8}],
        "queues": queues,
        "gangs": first,
        "steps": [{"submit": {key: value for key, value in gang.items() if key != "age"}} for gang in late],
    }
