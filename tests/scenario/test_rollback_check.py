"""A rehearsal leaves no trace, notices whoever does, and gives every pod back the very slots that it had."""

from __future__ import annotations

import pytest
from tests.checks.rollback_check import check_rollback, fingerprint
from tests.scenario.running_scenarios import run_steps

from muster.engine.node_scores import NodeScores
from muster.model.device import DeviceSlot
from muster.model.pod import Phase, Placement
from muster.state.trial import Trial


def test_a_hundred_rehearsals_leave_no_trace() -> None:
    found = run_steps()
    found.cycle()
    before = fingerprint(found.world)
    for seed in range(100):
        assert check_rollback(found.world, found.policy, seed=str(seed)) == []
    assert not list(before.differences(fingerprint(found.world)))


def test_a_pod_that_is_evicted_and_restored_has_the_same_slots() -> None:
    """Two devices of 8: A and B have 4 of one each, C needs all of one. Whoever goes back goes back to its own."""
    found = run_steps()
    found.cycle()
    world = found.world
    first, second, third = (world.facts.pods[uid] for uid in list(world.facts.members)[:3])
    with Trial(world, why="given", cause="Given") as given:
        for pod, slots in ((first, (DeviceSlot(0, memory=4),)), (second, (DeviceSlot(1, memory=4),))):
            given.restore(pod, Placement(Phase.BOUND, "n1", 1.0, slots))
        given.commit()
    before = fingerprint(world)
    with Trial(world, why="simulated", cause="Simulated") as trial:
        trial.evict(first)
        trial.evict(second)
        trial.release(second)
        trial.release(third)
        trial.place(third, "n1", phase=Phase.NOMINATED, devices=(DeviceSlot(1, memory=8),))
        trial.restore(first, Placement(Phase.BOUND, "n1", 1.0, (DeviceSlot(0, memory=4),)))
        assert world.placement(third).devices == (DeviceSlot(1, memory=8),)
    assert world.placement(first).devices == (DeviceSlot(0, memory=4),)
    assert world.placement(second).devices == (DeviceSlot(1, memory=4),)
    assert not list(before.differences(fingerprint(world)))


def test_columns_that_are_not_brought_up_to_date_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_steps()
    found.cycle()
    stale = [text for seed in range(20) for text in check_rollback(found.world, found.policy, seed=str(seed)) if "stale" in text]
    assert not stale
    monkeypatch.setattr(NodeScores, "update", lambda *_: None)
    world = found.world
    with Trial(world, why="a move", cause="Move") as trial:
        for pod in [pod for pod in world.facts.pods.values() if world.phase(pod) is Phase.BOUND]:
            trial.release(pod)
        trial.commit()
    assert [text for seed in range(20) for text in check_rollback(world, found.policy, seed=str(seed)) if "stale" in text]
