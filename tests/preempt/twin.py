"""Preemption for one pod, slow and obvious: node by node, unit by unit, with plain numbers. It shares no code with the engine.

It knows single pods, Volcano gangs (surplus members, and the rest as a whole), Koordinator gangs that are running (pod by pod),
nominations, host ports, affinity and anti-affinity, disruption budgets, lost work and a queue's limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Key = tuple[object, ...]


@dataclass(frozen=True)
class TwinPod:
    """A pod: where it is and what constrains it. `avoids` and `needs` are (label value, topology)."""

    name: str
    gang: str
    node: str | None
    gpus: int
    priority: int
    app: str
    started: int = 0
    port: int = 0
    avoids: tuple[str, str] | None = None
    needs: tuple[str, str] | None = None
    reserved: bool = False


@dataclass(frozen=True)
class TwinGang:
    """A gang: its members, how many it needs, and its kind: single pod, gang, or per pod (once-satisfied)."""

    name: str
    kind: str
    members: tuple[TwinPod, ...]
    least: int
    created: int
    queue: str = "q"

    @property
    def priority(self) -> int:
        return self.members[0].priority


@dataclass(frozen=True)
class TwinCluster:
    """Nodes are name: (GPUs, zone); budgets are label value: how many may be evicted."""

    nodes: dict[str, tuple[int, str]]
    gangs: tuple[TwinGang, ...]
    budgets: dict[str, int]
    hard: bool
    limit: int | None
    asking_pod: TwinPod
    now: int


@dataclass(frozen=True)
class EvictionUnit:
    pods: tuple[TwinPod, ...]
    gang: TwinGang
    surplus: bool
    free: bool


@dataclass(frozen=True)
class Chosen:
    node: str
    victims: frozenset[str]
    released: frozenset[str]


def decide(cluster: TwinCluster) -> Chosen | None:
    """The cheapest node, ties by name."""
    units = allowed(cluster, [unit for gang in cluster.gangs for unit in units_of(cluster, gang)])
    found: list[tuple[Key, str, Chosen]] = []
    for node in sorted(cluster.nodes):
        here = [unit for unit in units if any(pod.node == node for pod in unit.pods)]
        taken = on_node(cluster, node, here) if here else None
        if taken is not None:
            alone, taken = len(taken), with_followers(cluster, taken, units)
            before = len(taken) if len(taken) == alone else None
            while before != len(taken):
                before = len(taken)
                for unit in put_back_order(cluster, [unit for unit in taken if not is_follower(unit, taken)]):
                    rest = [other for other in taken if other is not unit]
                    taken = rest if passes(cluster, node, rest) else taken
        if taken is not None and passes(cluster, node, taken):
            victims = [pod for unit in taken for pod in unit.pods if not pod.reserved]
            released = frozenset(pod.name for unit in taken for pod in unit.pods if pod.reserved)
            found.append((cost(cluster, taken, victims), node, Chosen(node, frozenset(v.name for v in victims), released)))
    return min(found, key=lambda option: option[:2])[2] if found else None


# -- units -------------------------------------------------------------------------------------------------------------------------


def units_of(cluster: TwinCluster, gang: TwinGang) -> list[EvictionUnit]:
    if gang.queue != "q" or gang.priority >= cluster.asking_pod.priority:
        return []
    bound = [pod for pod in gang.members if pod.node is not None and not pod.reserved]
    nominated = tuple(pod for pod in gang.members if pod.reserved)
    units = [EvictionUnit(nominated, gang, surplus=True, free=True)] if nominated else []
    if gang.kind == "per pod":
        return units + [EvictionUnit((pod,), gang, surplus=False, free=False) for pod in bound]
    by_use = sorted(bound, key=lambda pod: (-min(pod.gpus, cluster.asking_pod.gpus), pod.priority, pod.gpus, pod.name))
    over = max(0, len(bound) - gang.least)
    units += [EvictionUnit((pod,), gang, surplus=True, free=False) for pod in by_use[:over]]
    if by_use[over:]:
        units.append(EvictionUnit(tuple(by_use[over:]), gang, surplus=False, free=False))
    return units


def allowed(cluster: TwinCluster, units: Sequence[EvictionUnit]) -> list[EvictionUnit]:
    """With hard budgets no pod is evicted whose budget has nothing left."""
    if not cluster.hard:
        return list(units)
    return [unit for unit in units if all(cluster.budgets.get(pod.app, 1) > 0 for pod in unit.pods if not pod.reserved)]


def violates(cluster: TwinCluster, unit: EvictionUnit, evicted_before: Sequence[TwinPod] = ()) -> bool:
    """Would its eviction violate a budget, with these evicted already?"""
    evicted = Counter(pod.app for pod in unit.pods if not pod.reserved)
    before = Counter(pod.app for pod in evicted_before if not pod.reserved)
    return any(app in cluster.budgets and count > cluster.budgets[app] - before[app] for app, count in evicted.items())


def order(cluster: TwinCluster, unit: EvictionUnit) -> Key:
    """Whose budget allows it first, then the lowest priority; of equals the surplus, and what gains most for what it costs, loses
    least, is youngest, by name."""
    hours = sum(worked_hours(cluster, pod) for pod in unit.pods)
    cost = round(sum(pod.gpus / cluster.asking_pod.gpus * (1.0 + worked_hours(cluster, pod)) for pod in unit.pods), 9)
    gain = min(sum(pod.gpus for pod in unit.pods), cluster.asking_pod.gpus) / cluster.asking_pod.gpus
    worth = 0.0 if unit.surplus or cost <= 0 else float(round(gain / cost / 0.05))
    kind = 0 if unit.free else 1 if unit.surplus else 2
    member = unit.gang.members.index(unit.pods[0])
    tail = (kind, -worth, hours, -unit.gang.created, unit.gang.name, member)
    return (violates(cluster, unit), unit.gang.priority, not unit.surplus, *tail)


def worked_hours(cluster: TwinCluster, pod: TwinPod) -> int:
    """What is only nominated has not started."""
    return 0 if pod.reserved else cluster.now - pod.started


# -- one node ----------------------------------------------------------------------------------------------------------------------


def on_node(cluster: TwinCluster, node: str, units: Sequence[EvictionUnit]) -> list[EvictionUnit] | None:
    """Evict in order until the pod passes, then put back from the highest priority on whatever leaves the pod passing; it may be
    just one of these that the pod needs beside it, so others may follow in another round. None: that does not help."""
    in_order = sorted(units, key=lambda unit: order(cluster, unit))
    taken: list[EvictionUnit] = []
    for unit in in_order:
        if passes(cluster, node, taken):
            break
        if not (cluster.hard and violates(cluster, unit, [pod for other in taken for pod in other.pods])):
            taken.append(unit)
    before = None
    while before != len(taken):
        before = len(taken)
        back = sorted(taken, key=lambda unit: in_order.index(unit), reverse=True)
        for unit in sorted(back, key=lambda unit: not violates(cluster, unit)):
            rest = [other for other in taken if other is not unit]
            if passes(cluster, node, rest):
                taken = rest
    return taken if passes(cluster, node, taken) else None


def put_back_order(cluster: TwinCluster, taken: Sequence[EvictionUnit]) -> list[EvictionUnit]:
    """Whose budget is violated first, then the highest priority."""
    back = sorted(taken, key=lambda unit: order(cluster, unit), reverse=True)
    return sorted(back, key=lambda unit: not violates(cluster, unit))


def is_follower(unit: EvictionUnit, taken: Sequence[EvictionUnit]) -> bool:
    """Whether it is evicted because its gang is."""
    return unit.surplus and unit.gang.kind != "per pod" and any(not o.surplus and o.gang is unit.gang for o in taken)


def with_followers(cluster: TwinCluster, taken: list[EvictionUnit], units: Sequence[EvictionUnit]) -> list[EvictionUnit]:
    """What is left of a gang that is evicted whole ends with it. What a budget protects stays; and all of it does where the gang
    then has as many as it needs."""
    for leader in [unit for unit in taken if not unit.surplus and unit.gang.kind != "per pod"]:
        others = sorted((u for u in units if u.gang is leader.gang and u not in taken), key=lambda unit: order(cluster, unit))
        evicted: list[EvictionUnit] = []
        for unit in others:
            if not (cluster.hard and violates(cluster, unit, [pod for other in (*taken, *evicted) for pod in other.pods])):
                evicted.append(unit)
        if len(evicted) == len(others) or not keeps_minimum(leader.gang, taken):
            taken = [*taken, *evicted]
    return taken


def keeps_minimum(gang: TwinGang, taken: Sequence[EvictionUnit]) -> bool:
    evicted = {pod.name for unit in taken for pod in unit.pods}
    return sum(pod.node is not None and not pod.reserved and pod.name not in evicted for pod in gang.members) >= gang.least


def passes(cluster: TwinCluster, node: str, taken: Sequence[EvictionUnit]) -> bool:
    evicted = {pod.name for unit in taken for pod in unit.pods}
    there = [pod for gang in cluster.gangs for pod in gang.members if pod.node is not None and pod.name not in evicted]
    if cluster.limit is not None:
        names = {pod.name for gang in cluster.gangs if gang.queue == "q" for pod in gang.members}
        if sum(pod.gpus for pod in there if pod.name in names) + cluster.asking_pod.gpus > cluster.limit:
            return False
    without = [pod for pod in there if not (pod.reserved and pod.node == node)]
    return _checks(cluster, node, there) and _checks(cluster, node, without)


def _checks(cluster: TwinCluster, node: str, there: Sequence[TwinPod]) -> bool:
    asking_pod = cluster.asking_pod
    here = [pod for pod in there if pod.node == node]
    if sum(pod.gpus for pod in here) + asking_pod.gpus > cluster.nodes[node][0]:
        return False
    if asking_pod.port and any(pod.port == asking_pod.port for pod in here):
        return False
    if asking_pod.avoids and any(pod.app == asking_pod.avoids[0] for pod in _near(cluster, node, there, asking_pod.avoids[1])):
        return False
    if asking_pod.needs and not any(pod.app == asking_pod.needs[0] for pod in _near(cluster, node, there, asking_pod.needs[1])):
        return False
    return not any(
        pod.avoids and pod.avoids[0] == asking_pod.app and pod in _near(cluster, node, there, pod.avoids[1]) for pod in there
    )


def _near(cluster: TwinCluster, node: str, there: Sequence[TwinPod], topology: str) -> list[TwinPod]:
    if topology == "host":
        return [pod for pod in there if pod.node == node]
    zone = cluster.nodes[node][1]
    return [pod for pod in there if pod.node is not None and cluster.nodes[pod.node][1] == zone]


def cost(cluster: TwinCluster, taken: Sequence[EvictionUnit], victims: Sequence[TwinPod]) -> Key:
    evicted = Counter(pod.app for pod in victims)
    beyond = sum(max(0, count - max(0, cluster.budgets[app])) for app, count in evicted.items() if app in cluster.budgets)
    return (
        beyond,
        sum(_is_gang(unit) and not keeps_minimum(unit.gang, taken) for unit in taken),
        max((pod.priority for pod in victims), default=-(2**31)),
        sum(pod.priority for pod in victims),
        len(victims),
        sum(cluster.now - pod.started for pod in victims),
        -max((pod.started for pod in victims), default=float("-inf")),
    )


def _is_gang(unit: EvictionUnit) -> bool:
    """A gang of several members, or the rest of one."""
    return not unit.surplus and unit.gang.kind != "per pod" and sum(pod.node is not None for pod in unit.gang.members) > 1
