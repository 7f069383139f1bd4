"""A cluster after a cycle, as rows of JSON: made from a copy of the world, and never changed afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from muster.engine.hooks import Policy
from muster.forecast.gang_report import observed_gangs, observed_nodes
from muster.forecast.start_time import Start
from muster.json_values import to_json
from muster.model.gang import Gang, Stage
from muster.model.pod import RELEASING, Phase, PodSignature
from muster.model.resource_amounts import short_name
from muster.plugins.topology import Topology
from muster.queue_report import QueueRow, main_resource, queue_rows
from muster.state.derived.topology_domains import Domain, DomainTree, domain_tree
from muster.state.facts import Member
from muster.state.world import World
from muster.web.run_history import RunHistory

JsonRow = dict[str, Any]
PARTS: Final = ("summary", "queues", "gangs", "nodes", "domains", "evictions", "timeline")
READY: Final = "ready"
_NO_MEMBER = Member("", "", "")


@dataclass(frozen=True, slots=True)
class ClusterCopy:
    """What a view is made of, in any thread and at any time. Taking it costs some milliseconds."""

    world: World
    queues: tuple[QueueRow, ...]
    domains: DomainTree
    evictions: list[JsonRow]
    samples: list[JsonRow]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """`time` is that of the cycle, in seconds since 1970."""

    cycle: int
    time: float
    summary: JsonRow
    queues: list[JsonRow]
    gangs: list[JsonRow]
    nodes: list[JsonRow]
    domains: list[JsonRow]
    evictions: list[JsonRow]
    """The newest first."""
    timeline: JsonRow
    members: Callable[[str], list[JsonRow]]
    """Of a gang."""
    encoded: dict[str, bytes] = field(default_factory=dict, compare=False)
    """What was sent of it already: every reader gets the same bytes."""

    def parts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in PARTS}


def copy_cluster(world: World, policy: Policy, history: RunHistory) -> ClusterCopy:
    """Only between two cycles."""
    tiers = next((tuple(plugin.tiers.items()) for plugin in policy.plugins if isinstance(plugin, Topology)), ())
    return ClusterCopy(
        world.copied(), queue_rows(world, policy), domain_tree(world, tiers), list(history.evictions), list(history.samples)
    )


def view_of(copied: ClusterCopy, *, whys: Mapping[str, str] | None = None) -> ClusterView:
    """`whys`: the sentences of a dry run, by gang, where the world itself has not decided anything."""
    world = copied.world
    resource = main_resource(world)
    gangs = _gangs(copied, whys or {})
    nodes = _nodes(world, copied.domains, resource)
    return ClusterView(
        cycle=world.memory.cycle,
        time=world.now,
        summary=_summary(world, resource, gangs, nodes),
        queues=[to_json(row) for row in copied.queues],
        gangs=gangs,
        nodes=nodes,
        domains=_domains(copied.domains, nodes, resource),
        evictions=copied.evictions[::-1],
        timeline={"samples": copied.samples, "times": []},
        members=lambda gang: _members(world, gang),
    )


def start_rows(starts: Mapping[str, Start], gangs: Iterable[Gang], *, now: float) -> JsonRow:
    """`starts`: by key of the gang, in seconds from `now`."""
    rows: list[JsonRow] = [{"gang": gang.full_name, **to_json(starts[gang.key])} for gang in gangs if gang.key in starts]
    return {"time": now, "starts": sorted(rows, key=lambda row: str(row["gang"]))}


def _gangs(copied: ClusterCopy, whys: Mapping[str, str]) -> list[JsonRow]:
    """Each with why it waits, where it does."""
    world, found = copied.world, []
    for row, key in zip(observed_gangs(world), sorted(world.facts.gangs), strict=True):
        attempt = world.memory.attempts.get(key)
        verdict = attempt.verdict if attempt is not None and key in world.placements.unplaced_members else None
        refused = verdict is not None and not verdict.ok
        document: JsonRow = to_json(row)
        document["why"] = verdict.why if verdict is not None and refused else whys.get(row.gang, "")
        document["code"] = verdict.code if verdict is not None and refused else ""
        document["attempts"] = attempt.count if attempt is not None else 0
        rows = [world.table.row[node] for node in row.nodes if node in world.table.row]
        document["domain"] = copied.domains.lowest_common(rows).title if rows else ""
        found.append(document)
    return found


def _members(world: World, name: str) -> list[JsonRow]:
    found = [
        {"pod": pod.full_name, "role": role.name, "node": world.placement(pod).node or "", "phase": world.phase(pod).name.lower()}
        for gang in world.facts.gangs.values()
        if gang.full_name == name
        for role in gang.roles
        for pod in (*role.pods, *role.terminating)
    ]
    return sorted(found, key=lambda row: row["pod"])


def _nodes(world: World, tree: DomainTree, resource: str) -> list[JsonRow]:
    """Each with its gangs, and how much of the main resource each of them has, nominations included."""
    held, releasing = _held(world, resource)
    homes = _homes(tree, world.table.names)
    rows = []
    for row in observed_nodes(world):
        document: JsonRow = to_json(row)
        document["domain"] = homes.get(row.node, "")
        document["releasing"] = releasing[row.node]
        document["gangs"] = [
            {"gang": gang, "queue": queue, "state": state, "amount": amount}
            for (gang, queue, state), amount in sorted(held.get(row.node, {}).items())
        ]
        rows.append(document)
    return rows


def _held(world: World, resource: str) -> tuple[dict[str, dict[tuple[str, str, str], int]], Counter[str]]:
    """By node: what each gang has there by queue and state, and what is being released."""
    held: dict[str, dict[tuple[str, str, str], int]] = {}
    releasing: Counter[str] = Counter()
    facts, amounts = world.facts, dict[PodSignature, int]()
    names = {key: gang.full_name for key, gang in facts.gangs.items()}
    for uid, placement in world.placements.by_uid.items():
        pod, node = facts.pods.get(uid), placement.node
        if pod is None or node is None:
            continue
        member, state = facts.members.get(uid, _NO_MEMBER), _STATES[placement.phase]
        # Equal pods share a signature, and there are many of them.
        if (amount := amounts.get(pod.signature)) is None:
            amount = amounts[pod.signature] = pod.signature.request[resource]
        on_node = held.setdefault(node, {})
        key = (names.get(member.gang) or pod.full_name, member.queue, state)
        on_node[key] = on_node.get(key, 0) + amount
        if placement.phase in RELEASING:
            releasing[node] += amount
    return held, releasing


def _state(phase: Phase) -> str:
    if phase in RELEASING:
        return "releasing"
    return "nominated" if phase is Phase.NOMINATED else "reserved" if phase is Phase.RESERVED else "running"


_STATES: Final = {phase: _state(phase) for phase in Phase}


def _homes(tree: DomainTree, names: list[str]) -> dict[str, str]:
    """The lowest domain of each node that is more than the node."""
    found: dict[str, str] = {}
    for domain in tree.domains:
        if domain.tier and domain.rows is not None:
            for row in domain.rows.tolist():
                if row < len(names):
                    found.setdefault(names[row], _id(domain.tier, domain.name))
    return found


def _id(tier: int | None, name: str) -> str:
    return f"{tier}:{name}"


def _domains(tree: DomainTree, nodes: list[JsonRow], resource: str) -> list[JsonRow]:
    """The widest first; nodes are domains too, but not listed."""
    found = []
    for domain in sorted(tree.domains, key=lambda each: (-(each.tier or 0), each.name)):
        if not domain.tier or domain.rows is None or not len(domain.rows):
            continue
        inside = [nodes[row] for row in domain.rows.tolist() if row < len(nodes)]
        found.append(
            {
                "domain": _id(domain.tier, domain.name),
                "title": domain.title,
                "tier": domain.tier,
                "parent": _parent(tree, domain),
                "nodes": len(inside),
                "used": sum(node["used"].get(resource, 0) for node in inside),
                "allocatable": sum(node["allocatable"].get(resource, 0) for node in inside),
                "releasing": sum(node["releasing"] for node in inside),
            }
        )
    return found


def _parent(tree: DomainTree, domain: Domain) -> str:
    rows = [] if domain.rows is None else domain.rows.tolist()
    for each in tree.containing(rows):
        if each.rows is not None and (each.tier or 0) > (domain.tier or 0):
            return _id(each.tier, each.name)
    return ""


def _summary(world: World, resource: str, gangs: Iterable[JsonRow], nodes: list[JsonRow]) -> JsonRow:
    stages = Counter(row["stage"] for row in gangs)
    return {
        "resource": resource,
        "unit": short_name(resource),
        "used": sum(node["used"].get(resource, 0) for node in nodes),
        "allocatable": sum(node["allocatable"].get(resource, 0) for node in nodes),
        "releasing": sum(node["releasing"] for node in nodes),
        "nodes": len(nodes),
        "readyNodes": sum(node["state"] == READY for node in nodes),
        "pods": len(world.facts.pods),
        "pendingPods": sum(world.placements.unplaced_members.values()),
        "stages": {stage.value: stages[stage.value] for stage in Stage if stages[stage.value]},
    }
