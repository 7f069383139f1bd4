"""Random small clusters with racks and blocks, gangs with constraints of every sort, and what happens to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from tests.topology.rack_cluster import ACTIONS, FixtureCluster, hypernode, nodes_of, parts, policy

from muster.engine.hooks import Plugin
from muster.model.gang import Gang, Subgroup, SubgroupPolicy
from muster.model.node import Node
from muster.model.pod import PLACED_OR_NOMINATED
from muster.model.resource_amounts import GPU, PODS, Resources
from muster.model.topology_spec import DomainSpec, TopologyConstraint
from muster.plugins.topology import Topology
from muster.state.gangs.subgroups import all_subgroups
from muster.state.world import World


@dataclass(frozen=True)
class Job:
    """A gang to be: its roles with members and GPUs each, how many must start together, and its topology constraint."""

    roles: tuple[tuple[int, int], ...]
    least: int
    constraint: TopologyConstraint | None
    role_constraint: TopologyConstraint | None
    priority: int


@dataclass(frozen=True)
class Case:
    """Nodes in racks in blocks (counts of nodes by rack by block), nodes outside, what is taken, and gangs in the order given."""

    blocks: tuple[tuple[int, ...], ...]
    loose: int
    taken: tuple[int, ...]
    jobs: tuple[Job, ...]


constraints = st.builds(TopologyConstraint, hard=st.booleans(), highest_tier=st.sampled_from([None, 0, 1, 1, 2, 3]))
hard_constraints = st.builds(TopologyConstraint, hard=st.just(True), highest_tier=st.sampled_from([1, 1, 2]))
plain_roles = st.tuples(st.integers(1, 6), st.sampled_from([2, 4, 8])).map(lambda role: (role,))
mixed_roles = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 3, 4, 8])), min_size=2, max_size=3).map(tuple)


@st.composite
def jobs(draw: st.DrawFn, *, subgroups: bool = True) -> Job:
    roles = draw(st.one_of(plain_roles, mixed_roles))
    total = sum(count for count, _ in roles)
    role_constraint = draw(st.none() | hard_constraints) if subgroups else None
    least = draw(st.sampled_from([total, total, max(1, total // 2)]))
    return Job(roles, least, draw(st.none() | constraints), role_constraint, draw(st.integers(0, 2)))


def cases(*, subgroups: bool = True, most_jobs: int = 4) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        blocks=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple),
        loose=st.integers(0, 2),
        taken=st.lists(st.integers(0, 8), max_size=12).map(tuple),
        jobs=st.lists(jobs(subgroups=subgroups), min_size=1, max_size=most_jobs).map(tuple),
    )


def nodes_of_case(case: Case) -> list[Node]:
    """The nodes; what others took of them is simply not there."""
    names = [f"b{b}r{r}n{n}" for b, block in enumerate(case.blocks) for r, count in enumerate(block) for n in range(count)]
    names += [f"loose{i}" for i in range(case.loose)]
    free = [8 - taken for taken in (*case.taken, *[0] * len(names))][: len(names)]
    return [Node(name, allocatable=Resources.of({GPU: gpu, PODS: 20})) for name, gpu in zip(names, free, strict=True)]


def specs_of_case(case: Case) -> Iterator[DomainSpec]:
    for b, block in enumerate(case.blocks):
        for r, count in enumerate(block):
            yield hypernode(f"b{b}r{r}", nodes_of(f"b{b}r{r}n{n}" for n in range(count)), tier_name="rack")
        yield hypernode(f"b{b}", parts(*(f"b{b}r{r}" for r in range(len(block)))), tier=2, tier_name="block")


def cluster_of(
    case: Case, topology: Plugin | None = None, *, backwards: bool = False, actions: Sequence[str] = ACTIONS
) -> FixtureCluster:
    cluster = FixtureCluster(policy(topology or Topology(), actions=actions))
    things = [*nodes_of_case(case), *specs_of_case(case)]
    cluster.upsert(*(reversed(things) if backwards else things))
    for number, job in enumerate(case.jobs):
        submit(cluster, f"g{number}", job)
    return cluster


def submit(cluster: FixtureCluster, name: str, job: Job) -> None:
    roles = {chr(ord("a") + i): role for i, role in enumerate(job.roles)}
    constraint = job.role_constraint
    sub_groups = tuple(SubgroupPolicy(role, role=role, topology=constraint) for role in roles) if constraint is not None else ()
    cluster.submit(name, 0, roles=roles, least=job.least, constraint=job.constraint, priority=job.priority, sub_groups=sub_groups)


# -- what must hold ----------------------------------------------------------------------------------------------------------------


def violating_gangs(world: World) -> list[str]:
    """Gangs and subgroups with a hard constraint that do not lie in one domain at or below their tier. Told from names alone."""
    found = []
    for gang in world.facts.gangs.values():
        if not _is_in_one_domain(_placed_nodes(world, [pod.uid for pod in gang.pods()]), gang):
            found.append(gang.full_name)
        apart = [each.title for each in all_subgroups(gang) if not _is_in_one_domain(_placed_nodes(world, each.members), each)]
        found.extend(f"{gang.full_name} {title}" for title in apart)
    return found


def _placed_nodes(world: World, uids: Iterable[str]) -> set[str]:
    placed = [world.placements.by_uid[uid] for uid in uids if uid in world.placements.by_uid]
    return {placement.node or "" for placement in placed if placement.phase in PLACED_OR_NOMINATED}


def _is_in_one_domain(placed: set[str], who: Gang | Subgroup) -> bool:
    constraint = who.topology
    if constraint is None or not constraint.hard or len(placed) < 2:
        return True
    highest = 2 if constraint.highest_tier is None else constraint.highest_tier
    if highest > 2:
        return True
    if highest == 0 or any(name.startswith("loose") for name in placed):
        return False
    # "b1r2n3": the block is in the first two letters, the rack in the first four.
    return len({name[: 4 if highest == 1 else 2] for name in placed}) == 1


def with_more_members(job: Job, by: int) -> Job:
    """The same gang with further members of its first role; nobody more is needed."""
    (count, gpu), *rest = job.roles
    return replace(job, roles=((count + by, gpu), *rest))
