"""The kinds of random clusters in which plans are judged."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from benchmarks.quality_mixed_rows import (
    QUOTA_LABEL,
    deep_tree,
    group_of_queues,
    mixed_devices,
    one_by_one,
    quota_tree,
    racks_of_queues,
    share_device,
    soft_budgets,
)
from benchmarks.quality_worlds import CONSOLIDATE, MOST_UNITS, PREEMPT, RECLAIM, Document, RandomWorld, written


def whole_cluster(w: RandomWorld) -> None:
    """One queue, no limit: the nodes are full."""
    w.add_nodes(w.chance.randint(3, 4))
    w.fill(w.gang)
    w.ask()


def full_queue(w: RandomWorld) -> None:
    """The asker's queue is at its limit, whether or not the nodes are full."""
    w.add_nodes(w.chance.randint(3, 5))
    w.queues = [{"name": "a"}, {"name": "b"}]
    w.fill(lambda number: w.gang(number, queue=w.chance.choice("aaab")))
    used = {"cpu": 0, "memory": 0, "gpu": 0}
    for gang in w.gangs:
        for name, value in gang["requests"].items() if gang["queue"] == "a" else ():
            used[name] += gang["pods"] * int(str(value).removesuffix("Gi"))
    w.queues[0]["limit"] = written(
        {name: value + w.chance.randint(0, 1) for name, value in used.items() if w.chance.random() < 0.7}
    )
    w.ask(queue="a", priority=w.chance.choice((2, 3, 6)))


def one_giver(w: RandomWorld) -> None:
    """Two queues with shares; the other one uses more than its own."""
    w.add_nodes(w.chance.randint(3, 4))
    total = w.total
    w.queues = [{"name": "a", "deserved": w.part(total, 0.4, 0.7)}, {"name": "b", "deserved": w.part(total, 0.1, 0.3)}]
    _sometimes_protected(w, w.queues[1], total)
    w.fill(lambda number: w.gang(number, queue=w.chance.choice("abbbb")))
    w.ask(queue="a")


def several_givers(w: RandomWorld) -> None:
    """Four queues, of which some have a share, a priority or a weight of their own."""
    w.add_nodes(w.chance.randint(3, 4))
    total, nobody = w.total, w.chance.random() < 0.15
    w.queues = [{"name": name} for name in "abcd"]
    for queue in w.queues:
        if not nobody and (queue["name"] == "a" or w.chance.random() < 0.7):
            queue["deserved"] = w.part(total, 0.35, 0.6) if queue["name"] == "a" else w.part(total, 0.0, 0.13)
        if w.chance.random() < 0.3:
            queue["priority"] = w.chance.choice((1, 2))
        if nobody:
            queue["weight"] = w.chance.choice((1, 1, 2))
    _sometimes_protected(w, w.queues[1], total)
    w.fill(lambda number: w.gang(number, queue=w.chance.choice("abbccdd")))
    w.ask(queue="a")


def tree(w: RandomWorld) -> None:
    """Queues below queues: a need may be met by the own queue, by a sibling, and by another branch."""
    w.add_nodes(w.chance.randint(3, 4))
    total = w.total
    w.queues = [
        {"name": "left", "deserved": w.part(total, 0.4, 0.6)},
        {"name": "right", "deserved": w.part(total, 0.1, 0.3)},
        {"name": "a", "parent": "left", "deserved": w.part(total, 0.3, 0.5)},
        {"name": "sibling", "parent": "left", "deserved": w.part(total, 0.0, 0.1)},
        {"name": "b", "parent": "right", "deserved": w.part(total, 0.0, 0.15)},
        {"name": "c", "parent": "right"},
    ]
    if w.chance.random() < 0.2:
        del w.queues[w.chance.choice((0, 1))]["deserved"]
    _sometimes_protected(w, w.queues[w.chance.choice((1, 3, 4))], total)
    w.fill(lambda number: w.gang(number, queue=w.chance.choice(("a", "sibling", "sibling", "b", "b", "c"))))
    w.ask(queue="a")


def racks(w: RandomWorld) -> None:
    """The asker must lie in one rack; gangs that run may span several."""
    for rack in ("r1", "r2", "r3")[: w.chance.choice((2, 2, 3))]:
        w.add_nodes(w.chance.choice((1, 2, 2)), labels={"rack": rack})
    w.fill(w.gang)
    w.ask(pods=w.chance.choice((1, 2, 2, 3)), networkTopology={"mode": "hard", "highestTierAllowed": 1}, apiFlavour="volcano")


def elastic(w: RandomWorld) -> None:
    """Gangs with more members than their minimum."""
    w.add_nodes(w.chance.randint(3, 4))

    def gang(number: int) -> Document:
        pods = w.chance.choice((1, 2, 3, 3, 4))
        return w.gang(number, pods=pods, min=w.chance.randint(1, pods))

    w.fill(gang)
    w.ask()


def roles(w: RandomWorld) -> None:
    """Gangs whose roles request different amounts, the asker too."""
    w.add_nodes(w.chance.randint(3, 4))

    def with_roles(found: Document) -> Document:
        if w.chance.random() < 0.5:
            return found
        names = ("boss", "worker")
        parts = [{"name": name, "pods": w.chance.choice((1, 1, 2)), "requests": written(w.request())} for name in names]
        for key in ("pods", "requests", "apiFlavour"):
            found.pop(key, None)
        return {**found, "roles": [{**part, "min": part["pods"]} for part in parts]}

    w.fill(lambda number: with_roles(w.gang(number)))
    w.ask()
    w.gangs[-1] = with_roles(w.gangs[-1])


def shared_gpus(w: RandomWorld) -> None:
    """Pods share GPUs by memory and cores: a free sum is not a free device."""
    devices = {f"n{number}": [[8, 100] for _ in range(w.chance.choice((1, 2)))] for number in range(1, w.chance.randint(3, 5))}
    for name, found in devices.items():
        w.nodes.append({"name": name, "cpu": 16, "memory": "64Gi", "devices": [{"count": len(found), "memory": "8Gi"}]})

    def request() -> tuple[int, int, Document]:
        memory, cores = w.chance.choice((2, 3, 4, 6, 8)), w.chance.choice((0, 20, 50, 100))
        amounts = {"cpu": w.chance.randint(1, 3), "volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 1024 * memory}
        return memory, cores, {**amounts, **({"volcano.sh/vgpu-cores": cores} if cores else {})}

    # The oldest first: a pod whose devices nobody wrote down counts on the first that has room, the oldest before the others.
    for age in range(9, 0, -1):
        memory, cores, amounts = request()
        gang = w.gang(len(w.gangs), requests=amounts, pods=w.chance.choice((1, 1, 2)), age=f"{age}h")
        gang["runningOn"] = []
        for _ in range(gang["pods"]):
            node = next(
                (name for name in w.chance.sample(sorted(devices), len(devices)) if share_device(devices[name], memory, cores)),
                None,
            )
            gang["runningOn"] += [node] if node is not None else []
        if gang["runningOn"]:
            w.gangs.append({**gang, "pods": len(gang["runningOn"])})
    w.ask(requests=request()[2])


def quotas(w: RandomWorld) -> None:
    """Jobs in ElasticQuotas: others give above their minimum, and only to a higher priority."""
    w.add_nodes(w.chance.randint(3, 4))
    total = w.total
    for name, low, high in (("a", 0.2, 0.6), ("b", 0.0, 0.2), ("c", 0.0, 0.2)):
        least = w.part(total, low, high)
        spec = {"min": least, "max": w.part(total, 0.7, 1.0, all_of=True)}
        metadata = {"name": name, "namespace": "default"}
        w.objects.append(
            {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": metadata, "spec": spec}
        )

    def job(quota: str) -> Document:
        policy = "once-satisfied" if w.chance.random() < 0.2 else "waiting-and-running"
        return {"apiFlavour": "koordinator", "matchPolicy": policy, "labels": {QUOTA_LABEL: quota}}

    w.fill(lambda number: w.gang(number, **job(w.chance.choice("abbcc"))))
    w.ask(**job("a"), priority=w.chance.choice((1, 3, 6)))


def pieces(w: RandomWorld) -> None:
    """Nodes that are partly free, of which most pods may be moved. As much as the asker requests is often free, but in pieces."""
    w.add_nodes(w.chance.randint(3, 5))
    for number in range(w.chance.randint(5, 9)):
        gang = w.gang(number, pods=w.chance.choice((1, 1, 1, 2, 3)), min=1)
        gang["min"] = w.chance.randint(1, gang["pods"])
        if w.chance.random() < 0.85:
            gang |= {"controller": "recreate", "annotations": {**gang.get("annotations", {}), "muster.dev/movable": "true"}}
        if w.units + gang["pods"] <= MOST_UNITS and w.place(gang):
            w.units += gang["pods"]
            w.gangs.append(gang)
    if w.chance.random() < 0.3:
        w.budget()
    most = {name: max(amounts[name] for amounts in w.free.values()) for name in ("cpu", "memory", "gpu")}
    largest = {name: max(int(str(node[name]).removesuffix("Gi")) for node in w.nodes) for name in most}
    scarce = w.chance.choice([name for name in most if most[name] < largest[name]] or ["gpu"])
    asked = {"cpu": w.chance.randint(1, 3), "memory": w.chance.randint(2, 8), scarce: most[scarce] + 1}
    pods = w.chance.choice((1, 1, 1, 2))
    w.ask(requests=written(asked), pods=pods, apiFlavour="volcano", priority=w.chance.choice((1, 6, 6)))


def _sometimes_protected(w: RandomWorld, queue: Document, total: dict[str, int]) -> None:
    if w.chance.random() < 0.2:
        queue["guarantee"] = w.part(total, 0.0, 0.15)
    if w.chance.random() < 0.05:
        queue["reclaimable"] = False
    if w.chance.random() < 0.1:
        w.settings["strictDeserved"] = True


ROWS: dict[str, tuple[list[str], Callable[[RandomWorld], None]]] = {
    "whole cluster": (PREEMPT, whole_cluster),
    "full queue": (PREEMPT, full_queue),
    "one giving queue": (RECLAIM, one_giver),
    "several giving queues": (RECLAIM, several_givers),
    "tree of queues": (RECLAIM, tree),
    "racks": (PREEMPT, racks),
    "elastic gangs": (PREEMPT, elastic),
    "roles": (PREEMPT, roles),
    "shared GPUs": (PREEMPT, shared_gpus),
    "quotas": (PREEMPT, quotas),
    "consolidation": (CONSOLIDATE, pieces),
    "shared GPUs of several sizes": (RECLAIM, mixed_devices),
    "deep tree": (RECLAIM, deep_tree),
    "quota tree": (RECLAIM, quota_tree),
    "racks of queues": (RECLAIM, racks_of_queues),
    "soft budgets": (PREEMPT, soft_budgets),
    "one by one": (RECLAIM, one_by_one),
    "groups of several queues": (RECLAIM, group_of_queues),
}


def make_world(row: str, seed: int) -> Document:
    """The cluster of a row and a seed, as a scenario."""
    actions, make = ROWS[row]
    w = RandomWorld(Random(f"{row}:{seed}"), actions)
    make(w)
    w.budget()
    return w.document(f"{row}, seed {seed}")
