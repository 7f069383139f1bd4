"""Small random clusters for judging plans: so few eviction units that every set of them can be tried. Scenarios as plain data.

Pods request processors, memory and GPUs in differing mixes; gangs differ in size, priority and age; some pods are protected, some
are under a disruption budget. One gang, `ask`, has no node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

Document = dict[str, Any]
Request = dict[str, int]
"""Cores, gibibytes and devices."""

ASKER = "ask"
MOST_UNITS = 12
"""Eviction units in one cluster: with so many a plan must be found whenever there is one."""
PRIORITIES = (-10, -1, 0, 1, 2, 5)
AGES = ("5m", "20m", "1h", "3h", "10h")
PLUGINS: list[object] = [
    *("priority", "capacity", "elastic-quota", {"topology": {"tiers": {"rack": "rack"}}}, "unschedulable", "selectors", "taints"),
    *("fit", "devices", "binpack", "nominated", "pdb", {"min-runtime": {"actions": ["gang-reclaim"]}}, "lost-work"),
]
PREEMPT = ["expire", "enqueue", "allocate", "preempt", "gang-preempt", "job-preempt"]
RECLAIM = [*PREEMPT, "gang-reclaim"]
CONSOLIDATE = ["expire", "enqueue", "allocate", "consolidate"]


@dataclass(slots=True)
class RandomWorld:
    """A scenario in the making."""

    chance: Random
    actions: list[str]
    plugins: list[object] = field(default_factory=lambda: PLUGINS)
    settings: Document = field(default_factory=dict)
    nodes: list[Document] = field(default_factory=list)
    queues: list[Document] = field(default_factory=list)
    objects: list[Document] = field(default_factory=list)
    gangs: list[Document] = field(default_factory=list)
    free: dict[str, Request] = field(default_factory=dict)
    units: int = 0

    def document(self, name: str) -> Document:
        policy = {"plugins": self.plugins, "actions": self.actions, "settings": self.settings}
        found: Document = {"name": name, "policy": policy, "nodes": self.nodes}
        found |= {"queues": self.queues} if self.queues else {}
        return {**found, "objects": self.objects, "gangs": self.gangs, "steps": ["cycle"]}

    # -- nodes -----------------------------------------------------------------------------------------------------------------

    def add_nodes(self, count: int, **more: object) -> None:
        for _ in range(count):
            name = f"n{len(self.nodes) + 1}"
            has = {
                "cpu": self.chance.choice((8, 12, 16)),
                "memory": self.chance.choice((32, 48, 64)),
                "gpu": self.chance.choice((2, 4)),
            }
            self.free[name] = dict(has)
            self.nodes.append({"name": name, **written(has), **more})

    @property
    def total(self) -> Request:
        return {name: sum(_of(node[name]) for node in self.nodes) for name in ("cpu", "memory", "gpu")}

    # -- gangs -----------------------------------------------------------------------------------------------------------------

    def request(self) -> Request:
        """Mostly GPUs, mostly processors, or mostly memory."""
        pick = self.chance.randint
        match self.chance.randrange(5):
            case 0:
                return {"cpu": pick(3, 7), "memory": pick(2, 12)}
            case 1:
                return {"cpu": pick(1, 2), "memory": pick(12, 28)}
            case _:
                return {"cpu": pick(1, 4), "memory": pick(4, 16), "gpu": pick(1, 2)}

    def fill(self, make: Callable[[int], Document]) -> None:
        """Running gangs, as long as there is room for them and not too many units."""
        misses = 0
        while misses < 12:
            gang = make(len(self.gangs))
            units = _units(gang)
            if self.units + units > MOST_UNITS or not self.place(gang):
                misses += 1
                continue
            self.units += units
            self.gangs.append(gang)

    def place(self, gang: Document) -> bool:
        """Put every member somewhere, and take its room away."""
        left = {name: dict(amounts) for name, amounts in self.free.items()}
        for role in gang.get("roles", [gang]):
            role["runningOn"] = []
            need = _read(role["requests"])
            for _ in range(role["pods"]):
                able = [name for name in left if all(left[name].get(what, 0) >= value for what, value in need.items())]
                if not able:
                    return False
                node = self.chance.choice(able)
                for what, value in need.items():
                    left[node][what] -= value
                role["runningOn"].append(node)
        self.free = left
        return True

    def gang(self, number: int, **more: object) -> Document:
        """A gang that runs."""
        found: Document = {
            "name": f"g{number}",
            "pods": self.chance.choice((1, 1, 2, 2, 3)),
            "requests": written(self.request()),
            "priority": self.chance.choice(PRIORITIES),
            "age": self.chance.choice(AGES),
        }
        if self.chance.random() < 0.06:
            found["annotations"] = {"volcano.sh/preemptable": "false"}
        if self.chance.random() < 0.15:
            found["labels"] = {"app": "web"}
        return {**found, **more}

    def ask(self, **more: object) -> None:
        size = self.chance.choice((1, 1, 2, 2, 3))
        found: Document = {
            "name": ASKER,
            "pods": size,
            "requests": written(self.request()),
            "priority": self.chance.choice((1, 2, 3, 6)),
        }
        if size == 1 and self.chance.random() < 0.5:
            found["apiFlavour"] = "single-pod"
        self.gangs.append({**found, **more})

    def budget(self) -> None:
        """Sometimes a disruption budget for those that have its label."""
        if self.chance.random() < 0.5:
            spec = {"maxUnavailable": self.chance.choice((0, 1, 2)), "selector": {"matchLabels": {"app": "web"}}}
            metadata = {"name": "web", "namespace": "default"}
            self.objects.append({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec})

    def part(self, of: Mapping[str, int], low: float, high: float, *, all_of: bool = False) -> Document:
        """Some of these amounts, in some of the dimensions."""
        names = [name for name in of if all_of or self.chance.random() < 0.6] or ["gpu"]
        return written({name: round(of[name] * self.chance.uniform(low, high)) for name in names})


def written(amounts: Mapping[str, int]) -> Document:
    return {name: f"{value}Gi" if name == "memory" else value for name, value in amounts.items()}


def _of(value: object) -> int:
    return int(str(value).removesuffix("Gi"))


def _read(amounts: Mapping[str, object]) -> Request:
    return {name: _of(value) for name, value in amounts.items()}


def _units(gang: Document) -> int:
    """In how many units the gang can be taken: as a whole, and the members that may go alone."""
    if gang.get("matchPolicy") == "once-satisfied":
        return int(gang["pods"])
    pods = gang.get("pods", 0)
    return 1 + (pods if gang.get("min", pods) < pods else 0)
