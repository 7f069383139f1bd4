"""Kinds of random clusters in which several things come together: sizes and devices, deep trees, quotas below quotas, groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.quality_worlds import ASKER, MOST_UNITS, PLUGINS, Document, RandomWorld, written

QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"
_PREFIX = "quota.scheduling.koordinator.sh"


def mixed_devices(w: RandomWorld) -> None:
    """Members of several sizes share GPUs, in gangs with a surplus, of queues with shares."""
    devices: dict[str, list[list[int]]] = {}
    for number in range(1, w.chance.choice((2, 3, 3, 4)) + 1):
        devices[f"n{number}"] = [[8, 100] for _ in range(w.chance.choice((1, 2, 2, 3)))]
    for name, found in devices.items():
        w.nodes.append({"name": name, "cpu": 16, "memory": "64Gi", "devices": [{"count": len(found), "memory": "8Gi"}]})
    has_queues = w.chance.random() < 0.5
    if has_queues:
        most = 1024 * 8 * sum(len(found) for found in devices.values())
        low, high = round(most * w.chance.uniform(0.0, 0.2)), round(most * w.chance.uniform(0.5, 0.9))
        w.queues = [
            {"name": "a", "deserved": {"volcano.sh/vgpu-memory": high}},
            {"name": "b", "deserved": {"volcano.sh/vgpu-memory": low}},
            {"name": "c"},
        ]
    for age in range(12, 0, -1):
        sizes = [_device_request(w) for _ in range(w.chance.choice((1, 1, 2)))]
        gang = w.gang(len(w.gangs), age=f"{age}h", **({"queue": w.chance.choice("abbbcc")} if has_queues else {}))
        gang["roles"] = []
        for name, (memory, cores, amounts) in zip(("boss", "worker"), sizes, strict=False):
            role: Document = {"name": name, "requests": amounts, "runningOn": []}
            for _ in range(w.chance.choice((1, 1, 2))):
                names = w.chance.sample(sorted(devices), len(devices))
                node = next((name for name in names if share_device(devices[name], memory, cores)), None)
                role["runningOn"] += [node] if node is not None else []
            if role["runningOn"]:
                pods = len(role["runningOn"])
                gang["roles"].append({**role, "pods": pods, "min": pods})
        _add(w, gang)
    sizes = [_device_request(w) for _ in range(w.chance.choice((1, 2, 2)))]
    ask_of_roles(w, [amounts for _, _, amounts in sizes], **({"queue": "a"} if has_queues else {}))


def _device_request(w: RandomWorld) -> tuple[int, int, Document]:
    memory, cores = w.chance.choice((2, 3, 4, 5, 6, 8)), w.chance.choice((0, 0, 20, 50, 100))
    amounts = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 1024 * memory}
    return memory, cores, {**amounts, **({"volcano.sh/vgpu-cores": cores} if cores else {})}


def share_device(devices: list[list[int]], memory: int, cores: int) -> bool:
    """Put a pod onto the first of these devices that has room for it."""
    for device in devices:
        alone = device == [8, 100]
        if device[0] >= memory and device[1] >= cores and (alone or (cores < 100 and device[1] > 0)):
            device[0] -= memory
            device[1] -= cores
            return True
    return False


def ask_of_roles(w: RandomWorld, requests: list[Document], **more: object) -> None:
    """An asker with one role for each of these."""
    w.ask(**more)
    found = w.gangs[-1]
    for key in ("pods", "requests", "apiFlavour"):
        found.pop(key, None)
    found["roles"] = []
    for name, request in zip(("boss", "worker"), requests, strict=False):
        pods = w.chance.choice((1, 1, 2))
        found["roles"].append({"name": name, "pods": pods, "min": pods, "requests": request})


def _add(w: RandomWorld, gang: Document) -> None:
    """A gang with these roles, which sometimes needs fewer members than it has."""
    if not gang["roles"]:
        return
    for key in ("pods", "requests"):
        gang.pop(key, None)
    pods = sum(role["pods"] for role in gang["roles"])
    elastic = pods > 1 and w.chance.random() < 0.4
    if elastic:
        gang["min"] = w.chance.randint(1, pods - 1)
    units = 1 + (pods if elastic else 0)
    if w.units + units <= MOST_UNITS:
        w.units += units
        w.gangs.append(gang)


def deep_tree(w: RandomWorld) -> None:
    """Three levels of queues, with limits in the middle, shares on some levels only, and gangs with roles and a surplus."""
    w.add_nodes(w.chance.randint(3, 4))
    total = w.total

    def queue(name: str, parent: str = "", share: tuple[float, float] | None = None, chance: float = 1.0, **more: Any) -> None:
        found: Document = {"name": name, **({"parent": parent} if parent else {}), **more}
        if share is not None and w.chance.random() < chance:
            found["deserved"] = w.part(total, *share)
        w.queues.append(found)

    queue("left", share=(0.4, 0.7), chance=0.8)
    queue("right", share=(0.05, 0.3), chance=0.8)
    queue("l1", "left", share=(0.3, 0.6), chance=0.6)
    queue("l2", "left", share=(0.0, 0.2), chance=0.6)
    queue("r1", "right", share=(0.0, 0.2), chance=0.5)
    queue("a", "l1", share=(0.2, 0.5), chance=0.5)
    queue("b", "l1", share=(0.0, 0.1), chance=0.4)
    queue("c", "l2", share=(0.0, 0.1), chance=0.4)
    queue("d", "r1", share=(0.0, 0.1), chance=0.4)
    queue("e", "right")
    leaves = "aabbccdde"
    w.fill(lambda number: elastic_roles(w, w.gang(number, queue=w.chance.choice(leaves))))
    for name in ("left", "l1", "right"):
        if w.chance.random() < 0.35:
            limit_near_use(w, name)
    for found in w.queues:
        if w.chance.random() < 0.08:
            found["guarantee"] = w.part(total, 0.0, 0.12)
        if w.chance.random() < 0.04 and found["name"] not in "a":
            found["reclaimable"] = False
        if w.chance.random() < 0.1:
            found["priority"] = w.chance.choice((1, 2))
    if w.chance.random() < 0.1:
        w.settings["strictDeserved"] = True
    if w.chance.random() < 0.15:
        w.settings["order"] = "priority"
    ask_of_roles(w, [written(w.request()) for _ in range(w.chance.choice((1, 1, 2)))], queue="a")


def limit_near_use(w: RandomWorld, name: str) -> None:
    """A limit at or a little above what the branch uses."""
    below = {name}
    for found in w.queues:
        if found.get("parent") in below:
            below.add(found["name"])
    used = {"cpu": 0, "memory": 0, "gpu": 0}
    for gang in w.gangs:
        for part in gang.get("roles", [gang]) if gang.get("queue") in below else ():
            for what, value in part["requests"].items():
                used[what] += part["pods"] * int(str(value).removesuffix("Gi"))
    queue = next(found for found in w.queues if found["name"] == name)
    amounts = {what: value + w.chance.randint(0, 2) for what, value in used.items() if w.chance.random() < 0.5}
    if amounts:
        queue["limit"] = written(amounts)


def elastic_roles(w: RandomWorld, found: Document) -> Document:
    """The gang as it is, with a surplus, or with two roles, with or without one."""
    match w.chance.randrange(4):
        case 0:
            return found
        case 1:
            pods = w.chance.choice((2, 3, 3))
            return {**found, "pods": pods, "min": w.chance.randint(1, pods)}
    names = ("boss", "worker")
    parts: list[Document] = []
    for name in names:
        pods = w.chance.choice((1, 1, 2))
        parts.append({"name": name, "pods": pods, "requests": written(w.request()), "min": w.chance.randint(1, pods)})
    for key in ("pods", "requests", "apiFlavour"):
        found.pop(key, None)
    found = {**found, "roles": parts}
    if w.chance.random() < 0.4:
        found["min"] = w.chance.randint(1, sum(part["pods"] for part in parts))
    return found


def quota_tree(w: RandomWorld) -> None:
    """Quotas below quotas, of which some jobs are not preemptible, beside queues, in all actions."""
    w.add_nodes(w.chance.randint(3, 4))
    total = w.total

    def quota(name: str, parent: str, share: tuple[float, float], *, is_parent: bool = False) -> None:
        labels = {f"{_PREFIX}/parent": parent} if parent else {}
        labels |= {f"{_PREFIX}/is-parent": "true"} if is_parent else {}
        spec = {"min": _named(w.part(total, *share)), "max": _named(w.part(total, 0.6, 1.0, all_of=True))}
        metadata = {"name": name, "namespace": "default", "labels": labels}
        w.objects.append(
            {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": metadata, "spec": spec}
        )

    quota("left", "", (0.4, 0.7), is_parent=True)
    quota("right", "", (0.1, 0.3), is_parent=True)
    quota("a", "left", (0.2, 0.6))
    quota("b", "left", (0.0, 0.2))
    quota("c", "right", (0.0, 0.2))
    w.queues = [{"name": "q", **({"deserved": w.part(total, 0.0, 0.2)} if w.chance.random() < 0.6 else {})}]

    def job(number: int) -> Document:
        where = w.chance.choice("aabbbcccq")
        if where == "q":
            return elastic_roles(w, w.gang(number, queue="q"))
        return elastic_roles(w, w.gang(number, **in_quota(w, where, 0.15)))

    w.fill(job)
    ask_of_roles(w, [written(w.request()) for _ in range(w.chance.choice((1, 1, 2)))], **in_quota(w, "a", 0.3))


def in_quota(w: RandomWorld, quota: str, fixed: float) -> Document:
    labels = {QUOTA_LABEL: quota}
    if w.chance.random() < fixed:
        labels[f"{_PREFIX}/preemptible"] = "false"
    return {"apiFlavour": "koordinator", "matchPolicy": "waiting-and-running", "labels": labels}


def _named(amounts: Mapping[str, object]) -> Document:
    return {"nvidia.com/gpu" if name == "gpu" else name: value for name, value in amounts.items()}


def racks_of_queues(w: RandomWorld) -> None:
    """The asker must lie in one rack, and queues with shares that may add up to more than there is give to it."""
    for rack in ("r1", "r2", "r3")[: w.chance.choice((2, 2, 3))]:
        w.add_nodes(w.chance.choice((1, 2, 2)), labels={"rack": rack})
    total = w.total
    w.queues = [
        {"name": "a", "deserved": w.part(total, 0.4, 0.9)},
        {"name": "b", **({"deserved": w.part(total, 0.0, 0.6)} if w.chance.random() < 0.7 else {})},
        {"name": "c", "weight": w.chance.choice((1, 2))},
    ]
    w.fill(lambda number: elastic_roles(w, w.gang(number, queue=w.chance.choice("abbbcc"))))
    if w.chance.random() < 0.25:
        w.settings["reclaimFor"] = "fairShare"
    requests = [written(w.request()) for _ in range(w.chance.choice((1, 2, 2)))]
    ask_of_roles(w, requests, queue="a", networkTopology={"mode": "hard", "highestTierAllowed": 1})


def soft_budgets(w: RandomWorld) -> None:
    """Half of the gangs are under a budget that may be broken, but by as few victims as there can be."""
    w.plugins = [{"pdb": {"mode": "soft"}} if plugin == "pdb" else plugin for plugin in PLUGINS]
    w.add_nodes(w.chance.randint(3, 4))
    w.fill(lambda number: elastic_roles(w, w.gang(number, **({"labels": {"app": "web"}} if w.chance.random() < 0.5 else {}))))
    ask_of_roles(w, [written(w.request()) for _ in range(w.chance.choice((1, 1, 2)))])


def one_by_one(w: RandomWorld) -> None:
    """One pod asks; many gangs are scheduled pod by pod, and evicted so."""
    w.add_nodes(w.chance.randint(3, 4))
    total = w.total
    w.queues = [
        {"name": "a", "deserved": w.part(total, 0.3, 0.8)},
        {"name": "b", "deserved": w.part(total, 0.0, 0.3)},
        {"name": "c"},
    ]

    def gang(number: int) -> Document:
        found = w.gang(number, queue=w.chance.choice("abc"))
        if w.chance.random() < 0.4:
            return {**found, "apiFlavour": "koordinator", "matchPolicy": "once-satisfied"}
        return elastic_roles(w, found)

    w.fill(gang)
    w.ask(queue="a", pods=1, apiFlavour=w.chance.choice(("single-pod", "volcano")))


def group_of_queues(w: RandomWorld) -> None:
    """A GangGroup whose gangs are in several queues, each with a share of its own or none; free capacity may do for one of them."""
    w.add_nodes(w.chance.randint(3, 4))
    total = w.total
    w.queues = [
        {"name": "a", **({"deserved": w.part(total, 0.2, 0.6)} if w.chance.random() < 0.85 else {})},
        {"name": "b", **({"deserved": w.part(total, 0.2, 0.6)} if w.chance.random() < 0.7 else {})},
        {"name": "c", "deserved": w.part(total, 0.0, 0.15)},
        {"name": "d"},
    ]
    w.fill(lambda number: elastic_roles(w, w.gang(number, queue=w.chance.choice("abccdd"))))
    priority = w.chance.choice((1, 2, 3, 6))
    names = [f"{ASKER}-{name}" for name in w.chance.choice(("ab", "ab", "ba"))]
    for name in names:
        w.ask(
            name=name,
            queue=name[-1],
            priority=priority,
            pods=w.chance.choice((1, 1, 2)),
            apiFlavour="koordinator",
            matchPolicy="waiting-and-running",
            gangGroup=names,
        )
