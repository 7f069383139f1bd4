"""Whoever submits thousands of hopeless pods in one namespace is served in turn: nobody else waits for her."""

from __future__ import annotations

import pytest
from tests.harness.scheduling_turn import step
from tests.trust.hostile_pods import KINDS, NAMESPACE, waiting_pod

from muster.config import default_policy
from muster.engine.attempt_budget import namespace_of
from muster.engine.policy_settings import DEFAULT_SETTINGS
from muster.model.effects import Outcome
from muster.scheduler import Scheduler
from muster.sim.cluster import SimCluster

NODES, HOSTILE, TURNS = 10, 100, 10


class Crowd:
    """A scheduler of a cluster in which others' pods come and go at every step, beside hundreds that fit nowhere."""

    def __init__(self, kind: str) -> None:
        self.cluster = SimCluster()
        for number in range(NODES):
            labels = {"kubernetes.io/hostname": f"n{number}"}
            metadata = {"name": f"n{number}", "labels": labels}
            room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
            self.cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": room}})
            self.cluster.apply(waiting_pod(f"r{number}", cpu="4", namespace="team-a", nodeName=f"n{number}"))
        self.scheduler = Scheduler(default_policy())
        self.scheduler.feed(self.cluster.relist())
        for number in range(HOSTILE):
            self.cluster.apply(KINDS[kind](number))
        self._turn, self._ending = 0, ""

    def turn(self) -> Outcome:
        """Somebody's pod ends, so that those who wait may fit now; somebody else's comes."""
        if self._turn:
            self.cluster.delete("Pod", "team-a", self._ending, permanently=True)
            self.cluster.advance(31.0)
        self.cluster.apply(waiting_pod(f"o{self._turn}", cpu="1", namespace="team-a"))
        self._ending = f"o{self._turn}"
        self._turn += 1
        return step(self.scheduler, self.cluster, self.cluster.now)

    def node_of(self, name: str) -> str | None:
        pod = self.cluster.get("Pod", "team-a", name)
        return pod["spec"].get("nodeName") if pod else None

    def attempts(self) -> list[int]:
        world = self.scheduler.world
        hers = [gang for gang in world.facts.gangs.values() if namespace_of(gang) == NAMESPACE]
        return [world.memory.attempts[gang.key].count for gang in hers]


@pytest.mark.parametrize("kind", KINDS)
def test_a_cycle_has_so_many_refused_attempts_of_a_namespace_and_no_more(kind: str) -> None:
    crowd = Crowd(kind)
    for turn in range(TURNS):
        outcome = crowd.turn()
        assert crowd.node_of(f"o{turn}"), f"in turn {turn}"
        # In the first one all are new; those that are alike are not counted.
        if turn:
            assert dict(outcome.stats)["attempts"] <= DEFAULT_SETTINGS.max_refused_attempts // 4 + 1
        # Nobody is new in the cycle that follows.
        outcome = step(crowd.scheduler, crowd.cluster, crowd.cluster.now)
        assert dict(outcome.stats).get("attempts", 0) <= DEFAULT_SETTINGS.max_refused_attempts
    assert len(crowd.attempts()) == HOSTILE
    assert min(crowd.attempts()) >= 1, "somebody was forgotten"
