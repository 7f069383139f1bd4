"""Use converges to fair shares when everybody asks for more than there is, and then nobody is evicted any more."""

from __future__ import annotations

from random import Random

import pytest

from muster.engine.fair_shares import fair_shares
from muster.engine.session import Session
from muster.model.effects import Evict
from muster.model.resource_amounts import GPU
from muster.scenario.loader import from_document
from muster.scenario.scenario_runner import ScenarioRunner

NODES, GPUS = 4, 4


def crowded_cluster(chance: Random) -> dict[str, object]:
    """The first queue has everything; the others come and ask for as much. Victims are made anew."""
    total = NODES * GPUS
    queues: list[dict[str, object]] = []
    for i in range(chance.randint(2, 4)):
        queue: dict[str, object] = {"name": f"q{i}", "weight": chance.randint(1, 4)}
        if chance.random() < 0.5:
            queue["deserved"] = {"gpu": chance.randint(1, 3)}
        queues.append(queue)
    # In a tree the queues below share what their parent gets.
    queues += [{"name": f"q0-{i}", "parent": "q0", "weight": chance.randint(1, 3)} for i in range(chance.choice((0, 2)))]
    leaves = [queue["name"] for queue in queues if not any(other.get("parent") == queue["name"] for other in queues)]
    each = {"requests": {"gpu": 1}, "controller": "recreate"}
    first = {**each, "queue": leaves[0], "age": "2h"}
    running = [{**first, "name": f"{leaves[0]}-{i}", "runningOn": f"n{1 + i // GPUS}"} for i in range(total)]
    coming = [{"submit": {**each, "name": f"{leaf}-[1-{total}]", "queue": leaf}} for leaf in leaves[1:]]
    return {
        "name": "everybody asks for everything",
        "policy": {"base": "default", "settings": {"reclaimFor": "fairShare"}},
        "nodes": [{"name": f"n[1-{NODES}]", "gpu": GPUS}],
        "queues": queues,
        "gangs": running,
        "steps": [*coming, {"run": {"for": "20m", "every": "30s"}}],
    }


@pytest.mark.parametrize("seed", range(4))
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
    late = [each for each in runner.decided_effects if isinstance(each.effect, Evict) and each.at_s > 600]
    assert late == []
