"""A scheduler at work on the embedded cluster, on good days and bad ones: all work gets done, and no kubelet refuses a pod."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.harness.scheduling_turn import step
from tests.sim.sim_manifests import found, node, pod, pod_group

from muster.engine.hooks import Policy
from muster.plugins.fit import Fit
from muster.scheduler import Scheduler
from muster.sim.cluster import SimCluster
from muster.sim.fault_injection import FaultRates

NODES = [f"n{i}" for i in range(4)]
FAULTS = {
    "none": FaultRates(),
    "late": FaultRates(delayed=0.4),
    "lost": FaultRates(dropped=0.4),
    "doubled": FaultRates(duplicated=0.4),
    "reordered": FaultRates(reordered=0.5),
    "bind_fails": FaultRates(bind_failures=0.4),
    "all": FaultRates(delayed=0.2, dropped=0.2, duplicated=0.2, reordered=0.4, bind_failures=0.3),
}


class Day:
    """Gangs come, nodes fail and return, the scheduler is restarted now and then."""

    def __init__(self, faults: FaultRates, *, seed: int) -> None:
        self.cluster = SimCluster(faults=replace(faults, seed=seed))
        self.chance = Random(seed)
        self.gangs = 0
        self.refused: set[str] = set()
        for name in NODES:
            self.cluster.apply(node(name))
        self.restart()

    def restart(self) -> None:
        self.scheduler = Scheduler(Policy([Fit()], ["expire", "enqueue", "allocate"]))
        self.scheduler.feed(self.cluster.relist())

    def submit(self) -> None:
        name, size = f"g{self.gangs}", self.chance.choice([1, 2, 4, 6])
        self.gangs += 1
        self.cluster.apply(pod_group(name, min_member=size))
        for i in range(size):
            behaviour: dict[str, Any] = {"run_seconds": self.chance.choice([10, 30, 100]), "controller": "recreate"}
            self.cluster.apply(pod(f"{name}-{i}", gang=name, cpu=self.chance.choice([1, 2, 4]), **behaviour))

    def is_up(self, name: str) -> bool:
        manifest = self.cluster.get("Node", "", name)
        return manifest is not None and not manifest["spec"].get("taints")

    def cycle(self, *, seconds: float) -> None:
        step(self.scheduler, self.cluster, self.cluster.now)
        self.cluster.advance(seconds)
        reasons = ((p["metadata"]["uid"], p["status"].get("reason", "")) for p in self.cluster.listed("Pod"))
        self.refused |= {uid for uid, reason in reasons if reason.startswith("OutOf")}

    def run(self) -> None:
        for hour in range(40):
            if hour < 25 and self.chance.random() < 0.5:
                self.submit()
            if self.chance.random() < 0.1 and self.is_up(name := self.chance.choice(NODES)):
                self.cluster.fail_node(name, gone=self.chance.random() < 0.5)
            if self.chance.random() < 0.1:
                self.return_nodes()
            if self.chance.random() < 0.1:
                self.restart()
            self.cycle(seconds=self.chance.choice([1, 5, 10]))
        self.return_nodes()
        for _ in range(60):
            self.cycle(seconds=20)

    def return_nodes(self) -> None:
        for name in NODES:
            if not self.is_up(name):
                self.cluster.recover_node(name)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS.keys())
def test_all_work_gets_done(faults: FaultRates, seed: int) -> None:
    day = Day(faults, seed=seed)
    day.run()
    assert day.gangs > 5
    assert {manifest["status"]["phase"] for manifest in day.cluster.listed("Pod")} == {"Succeeded"}
    assert day.refused == set()


def test_a_scheduler_that_dies_in_the_middle_of_a_gang_binds_the_rest_after_its_restart() -> None:
    cluster = SimCluster()
    cluster.apply(node())
    cluster.apply(pod_group("g", min_member=4))
    for i in range(4):
        cluster.apply(pod(f"g-{i}", gang="g"))
    policy = Policy([Fit()], ["expire", "enqueue", "allocate"])
    first = Scheduler(policy)
    first.feed(cluster.events())
    cluster.execute(first.tick(cluster.now).effects, max_writes=2)
    second = Scheduler(policy)
    second.feed(cluster.relist())
    step(second, cluster, cluster.now)
    assert all(found(cluster, "Pod", f"g-{i}")["spec"]["nodeName"] == "n1" for i in range(4))
    assert [write.name for write in cluster.writes if write.verb == "bind"] == [f"default/g-{i}" for i in range(4)]
