"""Nodes, queues, quotas, budgets and gangs by chance, in the scenario language. There is less of everything than is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from muster.kube.read import names
from muster.model.pod import PREEMPTABLE
from muster.model.queue import PREEMPTIBLE_LABEL

Document = dict[str, Any]

ZONES = ("a", "b", "c")
TAINT = "dedicated=gpu:NoSchedule"
APPS = ("web", "batch", "apart")
PRIORITIES = (0, 0, 1, 1, 2, 5, 9)
GPUS_PER_NODE = 8
POD_GROUP_KINDS = {
    "volcano": "PodGroup.scheduling.volcano.sh",
    "koordinator": "PodGroup.scheduling.sigs.k8s.io",
    "sigs": "PodGroup.scheduling.x-k8s.io",
    "native": "PodGroup.scheduling.k8s.io",
}
FLAVOURS = (
    "volcano",
    "volcano",
    "volcano",
    "koordinator",
    "koordinator",
    "sigs",
    "native",
    "annotation",
    "single-pod",
    "single-pod",
)
CAN_PREEMPT = "quota.scheduling.koordinator.sh/can-preempt"
_APART: Document = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}
        ]
    }
}


@dataclass(slots=True)
class Objects:
    """Draws objects, and remembers the names of those that it drew."""

    chance: Random
    nodes_wanted: int
    devices: str
    """The API flavour of the nodes' devices; empty: GPUs are only counted."""
    declared: Random | None = None
    """For what pods declare of themselves; None: they declare nothing."""
    nodes: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    quotas: list[str] = field(default_factory=list)
    budgets: list[str] = field(default_factory=list)
    gangs: list[Document] = field(default_factory=list)
    gangs_made: int = 0

    def happens(self, probability: float) -> bool:
        return self.chance.random() < probability

    # -- nodes -----------------------------------------------------------------------------------------------------------------

    def node(self) -> Document:
        chance, name = self.chance, f"n{len(self.nodes) + 1}"
        self.nodes.append(name)
        made: Document = {"name": name, "cpu": chance.choice((8, 16, 32)), "memory": f"{chance.choice((16, 32, 64))}Gi"}
        has_gpus = self.happens(0.8)
        if has_gpus and self.devices:
            made["devices"] = [{"count": 4, "memory": "8Gi", "apiFlavour": self.devices}]
        elif has_gpus:
            made["gpu"] = chance.choice((4, GPUS_PER_NODE, GPUS_PER_NODE))
        made["labels"] = {"zone": chance.choice(ZONES), "rack": f"r{chance.randrange(4)}"}
        if self.happens(0.1):
            made["taints"] = TAINT
        if self.happens(0.1):
            made["pods"] = chance.choice((3, 6))
        return made

    # -- queues and quotas -----------------------------------------------------------------------------------------------------

    def queue_tree(self) -> list[Document]:
        """Up to three levels, some of them with limits, shares and guarantees."""
        made: list[Document] = []
        for top in range(self.chance.randint(1, 3)):
            made += self._queue_branch(f"q{top}", parent="", depth=0)
        return made

    def _queue_branch(self, name: str, *, parent: str, depth: int) -> list[Document]:
        self.queues.append(name)
        made: Document = {"name": name, **({"parent": parent} if parent else {}), **self.queue_fields()}
        children = self.chance.choice((0, 0, 2, 3)) if depth < 2 else 0
        below = [self._queue_branch(f"{name}-{number}", parent=name, depth=depth + 1) for number in range(children)]
        return [made, *(each for branch in below for each in branch)]

    def queue_fields(self) -> Document:
        """As the scenario language has them."""
        made: Document = {"weight": self.chance.choice((1, 1, 2, 3))}
        for key, probability in (("limit", 0.2), ("deserved", 0.5), ("guarantee", 0.15)):
            if self.happens(probability):
                made[key] = self.amounts(most=0.3 if key == "guarantee" else 0.8)
        if self.happens(0.1):
            made["reclaimable"] = False
        if self.happens(0.2):
            made["priority"] = self.chance.choice((1, 5))
        return made

    def amounts(self, *, most: float) -> Document:
        """A part of what the cluster has, of some resources."""
        there = {"gpu": GPUS_PER_NODE, "cpu": 16, "memory": 32}
        chosen = [name for name in there if self.happens(0.9 if name == "gpu" else 0.3)] or ["gpu"]
        drawn = {name: int(self.chance.uniform(0, most) * there[name] * self.nodes_wanted) for name in chosen}
        return {name: f"{value}Gi" if name == "memory" else value for name, value in drawn.items()}

    def quota_tree(self) -> list[Document]:
        made: list[Document] = []
        for number in range(self.chance.randint(1, 3)):
            name = f"quota{number}"
            children = self.chance.choice((0, 0, 2))
            made.append(self.quota(name, is_parent=bool(children)))
            made += [self.quota(f"{name}-{child}", parent=name) for child in range(children)]
        return made

    def quota(self, name: str, *, parent: str = "", is_parent: bool = False) -> Document:
        if name not in self.quotas:
            self.quotas.append(name)
        labels = {names.QUOTA_PARENT: parent} if parent else {}
        labels |= {names.QUOTA_IS_PARENT: "true"} if is_parent else {}
        metadata = {"name": name, "namespace": "default", "labels": labels}
        return {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": metadata,
            "spec": self.quota_spec(),
        }

    def quota_spec(self) -> Document:
        least = {api_name(name): value for name, value in self.amounts(most=0.5).items()}
        return {"min": least, "max": {name: _times(value, self.chance.choice((1, 2, 4))) for name, value in least.items()}}

    def budget(self, name: str) -> Document:
        if name not in self.budgets:
            self.budgets.append(name)
        spec = {"selector": {"matchLabels": {"app": self.chance.choice(APPS)}}, **self.budget_fields()}
        metadata = {"name": name, "namespace": "default"}
        return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}

    def budget_fields(self) -> Document:
        return {"minAvailable": self.chance.randrange(4)} if self.happens(0.5) else {"maxUnavailable": self.chance.randrange(3)}

    # -- gangs -----------------------------------------------------------------------------------------------------------------

    def gang(self, *, flavour: str = "") -> Document:
        chance = self.chance
        self.gangs_made += 1
        made: Document = {"name": f"g{self.gangs_made}", "priority": chance.choice(PRIORITIES)}
        made["apiFlavour"] = flavour or chance.choice(FLAVOURS)
        in_quota = self.quotas and made["apiFlavour"] in ("koordinator", "single-pod") and self.happens(0.7)
        if not in_quota and self.queues and self.happens(0.9):
            made["queue"] = chance.choice(self.queues)
        labels = {names.QUOTA_NAME: chance.choice(self.quotas)} if in_quota else {}
        if in_quota and self.happens(0.3):
            labels |= {chance.choice((PREEMPTIBLE_LABEL, CAN_PREEMPT)): chance.choice(("true", "false"))}
        if made["apiFlavour"] == "volcano" and self.happens(0.35):
            made["roles"] = [{"name": role, **self.members(labels)} for role in ("boss", "worker")]
            if self.happens(0.3):
                made["min"] = max(1, sum(role["min"] for role in made["roles"]) - 1)
            made |= _subgroups(made)
        else:
            made |= self.members(labels, single=made["apiFlavour"] == "single-pod")
        made |= self._lifecycle(made["apiFlavour"])
        self.gangs.append(made)
        return made

    def members(self, labels: Document, *, single: bool = False) -> Document:
        chance = self.chance
        pods = 1 if single else chance.choice((1, 1, 2, 2, 3, 4, 6))
        made: Document = {"pods": pods, "min": chance.choice((pods, pods, max(1, pods - 1), 1))}
        made["requests"] = self.requests()
        made["labels"] = {"app": chance.choice(APPS[:2]), **labels}
        if self.happens(0.05):
            made["nodeSelector"] = {"kubernetes.io/hostname": chance.choice(self.nodes)}
        elif self.happens(0.1):
            made["nodeSelector"] = {"zone": chance.choice(ZONES)}
        if self.happens(0.5):
            made["tolerations"] = ["dedicated"]
        if self.happens(0.05):
            made |= {"labels": {**labels, "app": "apart"}, "affinity": _APART}
        annotations = {PREEMPTABLE: "false"} if self.happens(0.05) else {}
        if annotations := {**annotations, **self._declarations()}:
            made["annotations"] = annotations
        if self.happens(0.05):
            made["spec"] = {
                "hostNetwork": True,
                "containers": [_container_with_port(made.pop("requests"), chance.choice((80, 443)))],
            }
        return made

    def _declarations(self) -> Document:
        """That they may be moved, and for how long they run, whether or not they do."""
        chance = self.declared
        if chance is None:
            return {}
        found: Document = {}
        if chance.random() < 0.6:
            found[names.MOVABLE] = chance.choice(("true", "true", "true", "false"))
        if chance.random() < 0.4:
            found[names.RUN_SECONDS] = str(chance.randrange(10, 900))
        return found

    def requests(self) -> Document:
        chance = self.chance
        made: Document = {"cpu": chance.choice(("500m", 1, 2, 4)), "memory": f"{chance.choice((1, 2, 4, 8))}Gi"}
        if self.happens(0.75):
            made |= self._devices()
        return made

    def _devices(self) -> Document:
        chance = self.chance
        if self.devices == "vgpu":
            part = {names.VGPU_MEMORY: chance.choice((2048, 4096, 8192)), names.VGPU_CORES: chance.choice((0, 25, 100))}
            return {names.VGPU_NUMBER: chance.choice((1, 1, 2)), **(part if self.happens(0.7) else {})}
        if self.devices == "koordinator" and self.happens(0.6):
            return {names.KOORDINATOR_GPU: chance.choice((25, 50, 50, 100))}
        return {"gpu": chance.choice((1, 1, 2, 4, 8))}

    def _lifecycle(self, flavour: str) -> Document:
        """How long its members run, and whether they come again."""
        chance = self.chance
        made: Document = {}
        if self.happens(0.4):
            made["runDuration"] = f"{chance.randrange(30, 1200)}s"
            made |= {"exitPhase": "Failed"} if self.happens(0.2) else {}
        if self.happens(0.5):
            made |= {"controller": "recreate", "recreateLimit": chance.randint(1, 6)}
        if self.happens(0.3):
            made["terminationDuration"] = chance.choice(("0s", "5s", "90s"))
        if flavour in ("koordinator", "annotation") and self.happens(0.4):
            made |= {"mode": "NonStrict", "waitingTime": chance.choice(("30s", "5m"))}
        if flavour == "volcano" and self.happens(0.1):
            made["networkTopology"] = {"mode": chance.choice(("hard", "soft")), "highestTierAllowed": 1}
        if self.happens(0.2):
            made["matchPolicy"] = chance.choice(("once-satisfied", "waiting-and-running", "only-waiting"))
        if self.happens(0.05):
            made["schedulerName"] = "another"
        return made


def _subgroups(gang: Document) -> Document:
    """Two levels of subgroups for one in two gangs with roles: parts of a role, by a label that several roles may share."""
    chance = Random(f"{gang['name']} {gang['priority']} {gang['roles']}")
    if chance.random() < 0.5:
        return {}
    for number, role in enumerate(gang["roles"]):
        role["labels"] = {**role["labels"], "part": chance.choice(("a", "b", str(number)))}
    policy: Document = {
        "name": "part",
        "matchLabelKeys": ["part"],
        "subGroupSize": chance.choice((1, 2, 2, 3)),
        "minSubGroups": chance.choice((0, 1, 1, 2)),
    }
    if chance.random() < 0.5:
        policy["networkTopology"] = {"mode": chance.choice(("hard", "soft")), "highestTierAllowed": 1}
    return {"podGroupSpec": {"subGroupPolicy": [policy]}}


def api_name(name: str) -> str:
    return names.NVIDIA_GPU if name == "gpu" else name


def _times(value: object, factor: int) -> object:
    text = str(value)
    return f"{int(text[:-2]) * factor}Gi" if text.endswith("Gi") else int(text) * factor


def _container_with_port(requests: Document, port: int) -> Document:
    amounts = {api_name(name): str(value) for name, value in requests.items()}
    return {"name": "main", "resources": {"requests": amounts}, "ports": [{"containerPort": port, "hostPort": port}]}
