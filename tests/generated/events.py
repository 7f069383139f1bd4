"""What happens to a generated cluster: everything that users, nodes, devices and other controllers do."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

from tests.generated.objects import APPS, POD_GROUP_KINDS, ZONES, Document, Objects, api_name

from muster.kube.read import names
from muster.model.pod import PREEMPTABLE
from muster.model.queue import PREEMPTIBLE_LABEL
from muster.scenario.device_registration import NodeDevice, with_registered_devices

_GIB = 2**30


class Events:
    """Draws one event after the other; knows which objects there may be."""

    def __init__(self, chance: Random, objects: Objects) -> None:
        self._chance, self._objects = chance, objects
        self._failed: list[str] = []
        self._foreign: list[str] = []
        self._foreign_made = 0
        self._groupless: list[Document] = []
        """Gangs whose PodGroup was deleted."""

    def draw(self) -> list[Document]:
        choices: list[tuple[float, Callable[[], Document]]] = [
            *self._comings_and_goings(),
            *self._changes_of_gangs(),
            *self._changes_of_queues(),
            *self._changes_of_nodes(),
            (1, lambda: {"restart": {}}),
            (1, lambda: {"crash": self._chance.randrange(6)}),
            (4, lambda: {"advance": f"{self._chance.randrange(1, 180)}s"}),
        ]
        draw = self._chance.choices([each for _, each in choices], [weight for weight, _ in choices])[0]
        return [draw(), *self._time()]

    def _time(self) -> list[Document]:
        """Sometimes several things happen at one moment, and sometimes nothing does for a while."""
        drawn = self._chance.random()
        if drawn < 0.35:
            return []
        if drawn < 0.75:
            return [{"cycle": 1}]
        return [{"run": {"for": f"{self._chance.randrange(5, 60)}s", "every": "30s"}}]

    def _gang(self) -> Document:
        return self._chance.choice(self._objects.gangs)

    def _comings_and_goings(self) -> list[tuple[float, Callable[[], Document]]]:
        live = len(self._objects.gangs)
        return [
            (20 if live < 14 else 3, lambda: {"submit": self._objects.gang()}),
            (3, self._submit_group),
            (5 if live > 8 else 0, self._delete_gang),
            (5 if live else 0, self._scale),
            (4 if live else 0, lambda: {"delete": f"Pod/default/{self._member()}"}),
            (3 if live else 0, lambda: {"fail": {self._chance.choice(("bind", "evict")): self._gang()["name"]}}),
            (3, self._submit_foreign),
            (2 if self._foreign else 0, lambda: {"delete": f"Pod/default/{self._foreign.pop()}"}),
        ]

    def _changes_of_gangs(self) -> list[tuple[float, Callable[[], Document]]]:
        if not self._objects.gangs:
            return []
        return [
            (3, self._change_minimum),
            (3, self._change_group),
            (2, self._change_gang_annotations),
            (2, self._delete_pod_group),
            (4 if self._groupless else 0, self._recreate_pod_group),
            (5, self._change_pod),
        ]

    def _changes_of_queues(self) -> list[tuple[float, Callable[[], Document]]]:
        o = self._objects
        return [
            (4 if o.queues else 0, self._change_queue),
            (1 if o.queues else 0, lambda: {"delete": f"Queue/{self._chance.choice(o.queues)}"}),
            (2 if o.queues else 0, self._recreate_queue),
            (3 if o.quotas else 0, self._change_quota),
            (1 if o.quotas else 0, lambda: {"delete": f"ElasticQuota/default/{self._chance.choice(o.quotas)}"}),
            (1 if o.quotas else 0, lambda: {"submit": o.quota(self._chance.choice(o.quotas))}),
            (2, lambda: {"submit": o.budget(f"budget{self._chance.randrange(3)}")}),
            (1 if o.budgets else 0, lambda: {"delete": f"PodDisruptionBudget/default/{self._chance.choice(o.budgets)}"}),
        ]

    def _changes_of_nodes(self) -> list[tuple[float, Callable[[], Document]]]:
        o = self._objects
        return [
            (2 if len(o.nodes) - len(self._failed) > 2 else 0, self._fail_node),
            (5 if self._failed else 0, self._recover_node),
            (4, self._change_node),
            (1 if len(o.nodes) < 2 * o.nodes_wanted else 0, lambda: {"node": {"add": o.node()}}),
            (3 if o.devices else 0, self._break_devices),
        ]

    # -- gangs and pods --------------------------------------------------------------------------------------------------------

    def _submit_group(self) -> Document:
        pair = [self._objects.gang(flavour="koordinator") for _ in range(2)]
        for gang in pair:
            gang["gangGroup"] = [each["name"] for each in pair]
            gang.pop("schedulerName", None)
        return {"submit": pair}

    def _delete_gang(self) -> Document:
        gangs = self._objects.gangs
        return {"delete": gangs.pop(self._chance.randrange(len(gangs)))["name"]}

    def _scale(self) -> Document:
        gang = self._gang()
        name = f"{gang['name']}/{self._chance.choice(gang['roles'])['name']}" if "roles" in gang else gang["name"]
        return {"scale": {name: self._chance.randrange(7)}}

    def _member(self) -> str:
        gang = self._gang()
        role = f"{self._chance.choice(gang['roles'])['name']}-" if "roles" in gang else ""
        return f"{gang['name']}-{role}{self._chance.randrange(4)}"

    def _submit_foreign(self) -> Document:
        """A pod of another scheduler that is bound already, or a static one of our own."""
        self._foreign_made += 1
        name = f"foreign{self._foreign_made}"
        self._foreign.append(name)
        amounts = {api_name(key): str(value) for key, value in self._objects.requests().items()}
        spec: Document = {"containers": [{"name": "main", "resources": {"requests": amounts}}]}
        spec["schedulerName"] = self._chance.choice(("default-scheduler", "default-scheduler", "muster"))
        spec["nodeName"] = self._chance.choice(self._objects.nodes)
        return {"submit": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}}

    def _patch_group(self, gang: Document, merge: Document) -> Document:
        kind = POD_GROUP_KINDS.get(gang["apiFlavour"])
        if kind is None:
            return _patch(
                f"Pod/default/{gang['name']}-0", merge if "metadata" in merge else {"metadata": {"labels": {"app": "web"}}}
            )
        return _patch(f"{kind}/default/{gang['name']}", merge)

    def _change_minimum(self) -> Document:
        gang, least = self._gang(), self._chance.randrange(1, 6)
        if gang["apiFlavour"] == "annotation":
            return self._patch_group(gang, {"metadata": {"annotations": {names.GANG_MIN_AVAILABLE: str(least)}}})
        if gang["apiFlavour"] == "native":
            return self._patch_group(gang, {"spec": {"schedulingPolicy": {"gang": {"minCount": least}}}})
        roles = {role["name"]: self._chance.randrange(4) for role in gang.get("roles", ())}
        return self._patch_group(gang, {"spec": {"minMember": least, **({"minTaskMember": roles} if roles else {})}})

    def _change_group(self) -> Document:
        """Its queue, its priority, or its topology."""
        gang, chance = self._gang(), self._chance
        queue = chance.choice([*self._objects.queues, "default", "gone"])
        if gang["apiFlavour"] != "volcano":
            return self._patch_group(gang, {"metadata": {"annotations": {names.VOLCANO_QUEUE_NAME: queue}}})
        changes: tuple[Document, ...] = (
            {"queue": queue},
            {"priorityClassName": f"priority-{gang['priority']}"},
            {"networkTopology": chance.choice((None, {"mode": "hard", "highestTierAllowed": chance.choice((1, 2))}))},
            {"minResources": chance.choice((None, {names.NVIDIA_GPU: str(chance.randrange(1, 9))}))},
        )
        return self._patch_group(gang, {"spec": chance.choice(changes)})

    def _change_gang_annotations(self) -> Document:
        gang, chance = self._gang(), self._chance
        others = [f"default/{each['name']}" for each in (gang, self._gang())]
        changes: tuple[Document, ...] = (
            {names.GANG_MODE: chance.choice(("Strict", "NonStrict"))},
            {names.GANG_GROUPS: chance.choice((None, json.dumps(others)))},
            {names.GANG_MATCH_POLICY: chance.choice(("once-satisfied", "waiting-and-running", "only-waiting"))},
            {names.GANG_WAITING_TIME: chance.choice(("30s", "10m", "soon"))},
            {names.GANG_TOTAL_NUMBER: str(chance.randrange(1, 8))},
        )
        return self._patch_group(gang, {"metadata": {"annotations": chance.choice(changes)}})

    def _delete_pod_group(self) -> Document:
        gang = self._gang()
        if gang["apiFlavour"] not in POD_GROUP_KINDS:
            return {"delete": f"Pod/default/{self._member()}"}
        self._groupless.append(gang)
        return {"delete": f"{POD_GROUP_KINDS[gang['apiFlavour']]}/default/{gang['name']}"}

    def _recreate_pod_group(self) -> Document:
        """Its pods exist already: only the PodGroup is created."""
        gang = self._groupless.pop()
        versions = {"volcano": "v1beta1", "native": "v1alpha2"}
        flavour = gang["apiFlavour"]
        least = self._chance.randrange(1, 5)
        spec: Document = {"schedulingPolicy": {"gang": {"minCount": least}}} if flavour == "native" else {"minMember": least}
        if flavour == "volcano" and "queue" in gang:
            spec["queue"] = gang["queue"]
        version = f"{POD_GROUP_KINDS[flavour].partition('.')[2]}/{versions.get(flavour, 'v1alpha1')}"
        metadata = {"name": gang["name"], "namespace": "default"}
        return {"submit": {"apiVersion": version, "kind": "PodGroup", "metadata": metadata, "spec": spec}}

    def _change_pod(self) -> Document:
        chance = self._chance
        other = self._gang()["name"]
        labels: tuple[Document, ...] = (
            {"app": chance.choice(APPS)},
            {PREEMPTIBLE_LABEL: chance.choice((None, "false", "true"))},
            {names.SIGS_POD_GROUP: other},
            *({names.QUOTA_NAME: quota} for quota in self._objects.quotas[:1]),
            {names.SOFT_EVICTION: chance.choice((None, "true"))},
        )
        annotations: tuple[Document, ...] = (
            {PREEMPTABLE: chance.choice((None, "false"))},
            {names.GANG_TIMEOUT: chance.choice((None, None, "true"))},
            {names.VOLCANO_GROUP_NAME: other},
            {names.VOLCANO_TASK: chance.choice(("boss", "worker"))},
            {names.RESTART_SECONDS: "600"},
            {names.PIPELINED_STATUS: chance.choice((None, "true")), names.PIPELINED_NODE: "n0"},
            {"sim.muster.dev/cleanup-after-seconds": "20"},
        )
        kind, values = chance.choice((("labels", labels), ("annotations", annotations)))
        return _patch(f"Pod/default/{self._member()}", {"metadata": {kind: chance.choice(values)}})

    # -- queues and quotas -----------------------------------------------------------------------------------------------------

    def _change_queue(self) -> Document:
        o, chance = self._objects, self._chance
        shares = {api_name(name): str(value) for name, value in o.amounts(most=0.8).items()}
        changes: tuple[Document, ...] = (
            {"capability": chance.choice((None, shares))},
            {"deserved": chance.choice((None, shares, shares))},
            {"guarantee": chance.choice((None, {"resource": shares}))},
            {"weight": chance.randrange(1, 5)},
            {"reclaimable": chance.choice((True, True, False))},
            {"parent": chance.choice([None, *o.queues])},
            {"priority": chance.randrange(5)},
        )
        merge: Document = (
            {"spec": chance.choice(changes)} if chance.random() < 0.9 else {"status": {"state": chance.choice(("Open", "Closed"))}}
        )
        return _patch(f"Queue/{chance.choice(o.queues)}", merge)

    def _recreate_queue(self) -> Document:
        name = self._chance.choice(self._objects.queues)
        spec = {"weight": 1, "deserved": {names.NVIDIA_GPU: str(self._chance.randrange(0, 24))}}
        return {
            "submit": {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        }

    def _change_quota(self) -> Document:
        o, chance = self._objects, self._chance
        labels: tuple[Document, ...] = (
            {names.QUOTA_PARENT: chance.choice([None, *o.quotas])},
            {names.QUOTA_IS_PARENT: chance.choice((None, "true"))},
        )
        merge = {"spec": o.quota_spec()} if chance.random() < 0.7 else {"metadata": {"labels": chance.choice(labels)}}
        return _patch(f"ElasticQuota/default/{chance.choice(o.quotas)}", merge)

    # -- nodes -----------------------------------------------------------------------------------------------------------------

    def _fail_node(self) -> Document:
        name = self._chance.choice([name for name in self._objects.nodes if name not in self._failed])
        self._failed.append(name)
        return {"node": {self._chance.choice(("fail", "fail", "remove")): name}}

    def _recover_node(self) -> Document:
        return {"node": {"recover": self._failed.pop(self._chance.randrange(len(self._failed)))}}

    def _change_node(self) -> Document:
        chance = self._chance
        name = chance.choice(self._objects.nodes)
        taint = {"key": "dedicated", "value": "gpu", "effect": chance.choice(("NoSchedule", "PreferNoSchedule"))}
        changes: tuple[Document, ...] = (
            {"spec": {"unschedulable": True}},
            {"spec": {"unschedulable": None}},
            {"spec": {"unschedulable": None, "taints": None}},
            {"spec": {"taints": [taint]}},
            {"metadata": {"labels": {"zone": chance.choice(ZONES)}}},
            {"metadata": {"labels": {"rack": chance.choice((None, "r0", "r1"))}}},
            {"status": {"allocatable": {"cpu": str(chance.choice((4, 16, 64))), "memory": "16Gi"}}},
            {"status": {"allocatable": {names.NVIDIA_GPU: str(chance.choice((0, 2, 8)))}}},
        )
        return _patch(f"Node/{name}", chance.choice(changes))

    def _break_devices(self) -> Document:
        """Each of its devices is healthy or not, as its device plugin reports."""
        o, chance = self._objects, self._chance
        name = chance.choice(o.nodes)
        devices = [NodeDevice(o.devices, 8 * _GIB, 10, "", healthy=chance.random() < 0.7) for _ in range(4)]
        plain = {"metadata": {"name": name}, "status": {"allocatable": {}, "capacity": {}}}
        node, *others = with_registered_devices(plain, devices)
        if others:
            return _patch(f"Device/{name}", {"spec": others[0]["spec"]})
        return _patch(f"Node/{name}", {"metadata": {"annotations": node["metadata"]["annotations"]}})


def _patch(name: str, merge: Document) -> Document:
    return {"patch": {"object": name, "merge": merge}}
