"""Use converges to fair shares when everybody asks for more than there is, and then nobody is evicted any more.

MUSTER_SEEDS says how many trees of queues there are.
"""

from __future__ import annotations

import json
import os
from random import Random
from typing import Any

import pytest

from muster.engine.fair_shares import fair_shares
from muster.engine.session import Session
from muster.model.effects import Evict
from muster.model.resource_amounts import GPU
from muster.scenario.loader import from_document
from muster.scenario.scenario_runner import ScenarioRunner

NODES, GPUS = 4, 4
TOTAL = NODES * GPUS
SEEDS = int(os.environ.get("MUSTER_SEEDS", "8"))

Queue = dict[str, Any]


class RandomTree:
    """Up to four levels. What is deserved and guaranteed below a queue fits into what it may have itself; no limit forbids what the
    first leaf has at the beginning."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.queues: list[Queue] = []
        self._grow("", 0, [TOTAL - 2])

    @property
    def leaves(self) -> list[str]:
        parents = {queue.get("parent") for queue in self.queues}
        return [queue["name"] for queue in self.queues if queue["name"] not in parents]

    def _grow(self, parent: str, level: int, left: list[int]) -> None:
        """`left`: one number, what may still be deserved here."""
        chance = self._chance
        for number in range(chance.choice(((2, 3), (0, 0, 2, 3), (0, 0, 0, 2), (0,))[level])):
            queue: Queue = {"name": f"{parent}{number}" if parent else f"q{number}", "weight": chance.randint(1, 4)}
            if parent:
                queue["parent"] = parent
            self.queues.append(queue)
            self._grow(queue["name"], level + 1, self._with_amounts(queue, left))

    def _with_amounts(self, queue: Queue, left: list[int]) -> list[int]:
        """What may be deserved below this one."""
        chance, is_first = self._chance, not queue["name"].strip("q0")
        deserved = min(left[0], chance.randint(1, 4)) if chance.random() < 0.45 else 0
        guarantee = min(deserved or left[0], chance.randint(1, 2)) if chance.random() < 0.15 else 0
        limit = chance.randint(4, 9) if chance.random() < 0.2 and not is_first else 0
        for name, amount in (("deserved", deserved), ("guarantee", guarantee), ("limit", limit)):
            if amount:
                queue[name] = {"gpu": amount}
        annotations = {}
        if deserved and chance.random() < 0.2 and not is_first:
            annotations["muster.dev/borrowing-limit"] = json.dumps({GPU: chance.randint(0, 4)})
        if deserved and chance.random() < 0.2:
            annotations["muster.dev/lending-limit"] = json.dumps({GPU: chance.randint(0, 2)})
        if annotations:
            queue["annotations"] = annotations
        own = deserved or guarantee or (min(left[0], limit) if limit else 0)
        left[0] -= own
        return [own] if own else left


def crowded_cluster(chance: Random) -> dict[str, object]:
    """The first queue has everything; the others come and ask for as much. Victims are made anew."""
    tree = RandomTree(chance)
    first, *others = tree.leaves
    each = {"requests": {"gpu": 1}, "controller": "recreate"}
    running = [
        {**each, "queue": first, "age": "2h", "name": f"{first}-{number}", "runningOn": f"n{1 + number // GPUS}"}
        for number in range(TOTAL)
    ]
    coming = [{"submit": {**each, "name": f"{leaf}-[1-{TOTAL}]", "queue": leaf}} for leaf in others]
    return {
        "name": "everybody asks for everything",
        "policy": {"base": "default", "settings": {"reclaimFor": "fairShare", "reserveAfterSeconds": chance.choice((0, 600))}},
        "nodes": [{"name": f"n[1-{NODES}]", "gpu": GPUS}],
        "queues": tree.queues,
        "gangs": running,
        "steps": [*coming, {"run": {"for": "30m", "every": "30s"}}],
    }


@pytest.mark.parametrize("seed", range(SEEDS))
def test_use_converges_to_fair_shares_and_evictions_end(seed: int) -> None:
    scenario = from_document(crowded_cluster(Random(f"crowded {seed}")), file=f"<crowded, seed {seed}>")
    runner = ScenarioRunner(scenario)
    runner.set_up()
    for step in scenario.steps:
        runner.run_step(step)
    world = runner.world
    s = Session(world, runner.policy)
    s.prepare()
    column, fair = world.columns.position[GPU], fair_shares(s).rows
    used = {key: int(world.ledger.used(key)[column]) for key in world.facts.tree.nodes}
    assert used == {key: int(fair[world.ledger.row[key], column]) for key in used}
    late = [each for each in runner.decided_effects if isinstance(each.effect, Evict) and each.at_s > 900]
    assert late == []
