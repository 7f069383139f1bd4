"""A scenario from a seed: a small cluster that is always short of something, and everything that can happen to it."""

from __future__ import annotations

from random import Random

from tests.generated.events import Events
from tests.generated.objects import Document, Objects
from tests.generated.policies import draw_policy
from tests.generated.tolerant_cluster import TolerantCluster

from muster.scenario import Report, Scenario, run
from muster.scenario.loader import from_document
from muster.scenario.run_check import RunCheck

FAULTS = ("delayed", "dropped", "duplicated", "reordered", "bindFailures")


def everything(seed: int, *, events: int) -> Scenario:
    return from_document(everything_document(seed, events=events), file=f"<generated, seed {seed}>")


def everything_document(seed: int, *, events: int) -> Document:
    chance = Random(f"everything {seed}")
    nodes = chance.randint(2, 6)
    objects = Objects(chance, nodes, chance.choice(("", "", "", "vgpu", "koordinator")), Random(f"declared {seed}"))
    made: Document = {"name": f"generated: {events} events, seed {seed}", "seed": seed}
    if (policy := draw_policy(chance, Random(f"fairness {seed}"))) is not None:
        made["policy"] = policy
    if chance.random() < 0.5:
        made["faults"] = {kind: round(chance.uniform(0.0, 0.2), 2) for kind in FAULTS if chance.random() < 0.5}
    made["nodes"] = [objects.node() for _ in range(objects.nodes_wanted)]
    made["queues"] = objects.queue_tree() if chance.random() < 0.9 else []
    made["objects"] = objects.quota_tree() if chance.random() < 0.4 else []
    made["gangs"] = [{**objects.gang(), "age": "1h"} for _ in range(objects.nodes_wanted + 3)]
    drawn = Events(chance, objects)
    steps = [{"cycle": 1}, *(step for _ in range(events) for step in drawn.draw())]
    made["steps"] = [*steps, {"run": {"for": "5m", "every": "30s"}}]
    return made


def run_everything(seed: int, *, events: int, checks: tuple[RunCheck, ...]) -> Report:
    scenario = everything(seed, events=events)
    cluster = TolerantCluster(faults=scenario.faults, starts_at=scenario.starts_at)
    return run(scenario, checks=checks, cluster=cluster)
