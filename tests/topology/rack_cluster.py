"""A small cluster with racks and blocks for tests: facts go in as events, cycles run on the real store and engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from muster.engine.cycle import run_cycle
from muster.engine.hooks import Plugin, Policy
from muster.engine.session import Session
from muster.model.effects import Bind, Condition, Outcome
from muster.model.events import ClusterObject, Delete, Upsert
from muster.model.gang import Gang, PodGroup, RoleMin, SubgroupPolicy
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Membership, Pod, PodSignature, PodStatusPhase
from muster.model.pod_constraints import LabelSelector, Operator, Requirement
from muster.model.resource_amounts import GPU, PODS, Resources
from muster.model.topology_spec import DomainMember, DomainSpec, TopologyConstraint
from muster.plugins.binpack import Binpack
from muster.plugins.fit import Fit
from muster.plugins.priority import Priority
from muster.plugins.topology import Topology
from muster.state.derived.hypernode_members import NodeNames
from muster.state.derived.topology_domains import DomainTree, build_tree
from muster.state.node_table import NodeTable
from muster.state.store import Store
from muster.state.world import World

ACTIONS = ("expire", "enqueue", "allocate")


def policy(topology: Plugin | None = None, *, actions: Sequence[str] = ACTIONS, more: Iterable[Plugin] = ()) -> Policy:
    return Policy([Priority(), Fit(), Binpack(), topology or Topology(), *more], actions)


def node(name: str, *, gpu: int = 8, **labels: str) -> Node:
    return Node(name, allocatable=Resources.of({GPU: gpu, PODS: 20}), labels=labels)


def nodes_of(names: Iterable[str]) -> tuple[DomainMember, ...]:
    return tuple(DomainMember(is_node=True, exact=name) for name in names)


def parts(*names: str) -> tuple[DomainMember, ...]:
    return tuple(DomainMember(is_node=False, exact=name) for name in names)


def matching(pattern: str) -> tuple[DomainMember, ...]:
    return (DomainMember(is_node=True, regex=pattern),)


def labelled(key: str, value: str) -> tuple[DomainMember, ...]:
    return (DomainMember(is_node=True, labels=LabelSelector((Requirement(key, Operator.IN, (value,)),))),)


def hypernode(
    name: str, *members: tuple[DomainMember, ...], tier: int = 1, tier_name: str = "", created: float = 0.0
) -> DomainSpec:
    return DomainSpec(name, tier=tier, tier_name=tier_name, created=created, members=tuple(m for some in members for m in some))


def tree_of(nodes: Iterable[Node], specs: Iterable[DomainSpec] = (), tiers: Mapping[str, str] | None = None) -> DomainTree:
    world = World()
    world.table.lay_out({each.name: each for each in nodes})
    return build_tree({spec.name: spec for spec in specs}, world.table, tuple((tiers or {}).items()), NodeNames())


def names_in(tree: DomainTree, table: NodeTable) -> dict[str, set[str]]:
    """The nodes of every domain, by its name."""
    return {domain.name: {table.names[row] for row in rows_in(domain.rows, table)} for domain in tree.domains}


def rows_in(rows: object, table: NodeTable) -> list[int]:
    return list(range(len(table))) if rows is None else [int(row) for row in rows]  # type: ignore[attr-defined]


@dataclass
class FixtureCluster:
    """Facts and cycles. `made` counts what was submitted, so that names and ages differ."""

    policy: Policy
    store: Store = field(default_factory=Store)
    now: float = 0.0
    version: int = 0

    def upsert(self, *things: ClusterObject) -> None:
        for thing in things:
            self.store.fold(Upsert(thing))

    def delete_object(self, what: str, key: str) -> None:
        self.store.fold(Delete(what, key))

    def submit(
        self,
        name: str,
        pods: int,
        *,
        gpu: int = 8,
        least: int | None = None,
        constraint: TopologyConstraint | None = None,
        priority: int = 0,
        roles: Mapping[str, tuple[int, int]] | None = None,
        sub_groups: tuple[SubgroupPolicy, ...] = (),
        at: Sequence[str] = (),
        queue: str = "",
    ) -> None:
        """A gang of equal members; `roles` gives each role its members and what each of them asks for, all of them needed."""
        shape = roles if roles is not None else {"": (pods, gpu)}
        mins = tuple(RoleMin(role, count) for role, (count, _) in shape.items()) if roles is not None else ()
        total = sum(count for count, _ in shape.values())
        group = PodGroup(ApiFlavour.VOLCANO, "d", name, created=self.now, min_member=total if least is None else least)
        self.upsert(replace(group, role_mins=mins, topology=constraint, priority=priority, sub_groups=sub_groups, queue=queue))
        spots = list(at)
        for role, (count, each) in shape.items():
            for i in range(count):
                self.upsert(member(name, f"{role}{i}", gpu=each, role=role, created=self.now, at=spots.pop(0) if spots else None))

    def cycle(self, after: float = 1.0) -> Outcome:
        self.now += after
        return run_cycle(self.store.world(self.now), self.policy)

    def session(self) -> Session:
        s = Session(self.world, self.policy)
        s.prepare()
        return s

    @property
    def world(self) -> World:
        return self.store.world(self.now)

    def gang(self, name: str) -> Gang:
        return next(gang for gang in self.world.facts.gangs.values() if gang.full_name == f"d/{name}")

    def where(self, name: str) -> set[str]:
        """The nodes on which members of a gang stand."""
        placements = self.world.placements.by_uid
        return {placements[pod.uid].node or "" for pod in self.gang(name).pods() if pod.uid in placements}

    def why(self, name: str) -> str:
        verdict = self.world.memory.attempts[self.gang(name).key].verdict
        return "" if verdict is None else verdict.why


def member(gang: str, number: str, *, gpu: int, role: str = "", created: float = 0.0, at: str | None = None) -> Pod:
    return Pod(
        f"{gang}-{number}",
        "d",
        f"{gang}-{number}",
        PodSignature(request=Resources.of({GPU: gpu, PODS: 1})),
        created=created,
        membership=Membership(ApiFlavour.VOLCANO, gang, role=role),
        node=at,
        status_phase=PodStatusPhase.RUNNING if at else PodStatusPhase.PENDING,
    )


def binds(outcome: Outcome) -> dict[str, str]:
    return {effect.pod: effect.node for effect in outcome.effects if isinstance(effect, Bind)}


def reported_domains(outcome: Outcome) -> dict[str, str]:
    """What was said about HyperNodes."""
    return {effect.key: effect.why for effect in outcome.effects if isinstance(effect, Condition) and effect.subject == "domain"}
