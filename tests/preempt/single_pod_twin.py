"""Preemption for one pod, slow and obvious: on each node every set of units, with plain numbers. It shares no code with the engine.

It knows single pods, Volcano gangs (surplus members, and the rest as a whole), Koordinator gangs that are running (pod by pod),
nominations, host ports, affinity and anti-affinity, disruption budgets, lost work and a queue's limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

LOWEST_PRIORITY = -(2**31)

Key = tuple[float, ...]


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
    """`sort`: a reservation, a surplus member, or a whole (a gang, a single pod, a member of a gang of single pods)."""

    pods: tuple[TwinPod, ...]
    gang: TwinGang
    sort: int


RESERVATION, SURPLUS, WHOLE = 0, 1, 2


@dataclass(frozen=True)
class Chosen:
    node: str
    victims: frozenset[str]
    released: frozenset[str]


def decide(cluster: TwinCluster) -> list[Chosen]:
    """The plans of which none is better than another; none where there is no plan."""
    found = [(key(cluster, taken), chosen(node, taken)) for node in sorted(cluster.nodes) for taken in plans_on(cluster, node)]
    best = min((each for each, _ in found), default=None)
    return [plan for each, plan in found if each == best]


def chosen(node: str, taken: Sequence[EvictionUnit]) -> Chosen:
    pods = [pod for unit in taken for pod in unit.pods]
    victims, released = (frozenset(pod.name for pod in pods if pod.reserved is reserved) for reserved in (False, True))
    return Chosen(node, victims, released)


# -- units -------------------------------------------------------------------------------------------------------------------------


def choices_of(cluster: TwinCluster, gang: TwinGang, node: str) -> list[tuple[EvictionUnit, ...]]:
    """What may be evicted of a gang for a pod on this node: nothing, some members one by one, or all of it."""
    if gang.queue != "q" or gang.priority >= cluster.asking_pod.priority:
        return [()]
    reservations = tuple(pod for pod in gang.members if pod.reserved)
    if reservations:
        return [(), (EvictionUnit(reservations, gang, RESERVATION),)] if reservations[0].node == node else [()]
    here = [pod for pod in gang.members if pod.node == node]
    most = len(gang.members) if gang.kind == "per pod" else len(gang.members) - gang.least
    sort = WHOLE if gang.kind == "per pod" else SURPLUS
    singly = [pods for count in range(min(most, len(here)) + 1) for pods in combinations(here, count)]
    found = [tuple(EvictionUnit((pod,), gang, sort) for pod in pods) for pods in singly]
    if gang.kind != "per pod" and here:
        found.append((EvictionUnit(gang.members, gang, WHOLE),))
    return found


def units_evicted(cluster: TwinCluster, evicted: Collection[str]) -> list[EvictionUnit]:
    """The units that these pods were evicted in: of a gang all that it has, or members one by one."""
    units: list[EvictionUnit] = []
    for gang in cluster.gangs:
        pods = tuple(pod for pod in gang.members if pod.name in evicted)
        if pods and gang.kind != "per pod" and len(pods) == len(gang.members):
            units.append(EvictionUnit(pods, gang, RESERVATION if pods[0].reserved else WHOLE))
        else:
            units += [EvictionUnit((pod,), gang, WHOLE if gang.kind == "per pod" else SURPLUS) for pod in pods]
    return units


def broken_budgets(cluster: TwinCluster, taken: Sequence[EvictionUnit]) -> int:
    evicted = Counter(pod.app for unit in taken for pod in unit.pods if not pod.reserved)
    return sum(count > cluster.budgets[app] for app, count in evicted.items() if app in cluster.budgets)


# -- one node ----------------------------------------------------------------------------------------------------------------------


def plans_on(cluster: TwinCluster, node: str) -> Iterator[list[EvictionUnit]]:
    """All sets of units with which the pod passes on this node, and with none of them put back; empty where it passes as it is."""
    for parts in product(*(choices_of(cluster, gang, node) for gang in cluster.gangs)):
        taken = [unit for part in parts for unit in part]
        if works(cluster, node, taken):
            if not any(works(cluster, node, [other for other in taken if other is not unit]) for unit in taken):
                yield taken


def works(cluster: TwinCluster, node: str, taken: Sequence[EvictionUnit]) -> bool:
    """With hard budgets none may be violated."""
    return not (cluster.hard and broken_budgets(cluster, taken)) and passes(cluster, node, taken)


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


def key(cluster: TwinCluster, taken: Sequence[EvictionUnit]) -> Key:
    """The one order of plans, up to the age of the gangs: the lower is better. Reservations cost nothing."""
    evicting = [unit for unit in taken if unit.sort != RESERVATION]
    victims = [pod for unit in evicting for pod in unit.pods]
    return (
        broken_budgets(cluster, taken),
        max((unit.sort for unit in evicting), default=RESERVATION),
        max((pod.priority for pod in victims), default=LOWEST_PRIORITY),
        sum(pod.priority - LOWEST_PRIORITY for pod in victims),
        sum(left_below_minimum(gang, victims) for gang in cluster.gangs),
        round(sum(cost(cluster, unit) for unit in evicting), 6),
        len(victims),
        -min((unit.gang.created for unit in evicting), default=0),
    )


def left_below_minimum(gang: TwinGang, victims: Sequence[TwinPod]) -> bool:
    left = sum(pod not in victims for pod in gang.members)
    return 0 < left < gang.least and left < len(gang.members)


def cost(cluster: TwinCluster, unit: EvictionUnit) -> float:
    """Parts of what is requested, with the hours of work that are lost; of surplus members only the latter count."""
    base = 0 if unit.sort == SURPLUS else 1
    return sum(pod.gpus / cluster.asking_pod.gpus * (base + cluster.now - pod.started) for pod in unit.pods)
