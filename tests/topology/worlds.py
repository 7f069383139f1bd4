"""Random small clusters with racks and blocks, gangs with wishes of every sort, and what happens to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from tests.topology.town import ACTIONS, Town, hypernode, nodes_of, parts, policy

from muster.engine.hooks import Plugin
from muster.model.gang import Cell, Gang, SubGroup
from muster.model.node import Node
from muster.model.pod import PROMISED
from muster.model.resources import GPU, PODS, Resources
from muster.model.topology import DomainSpec, TopologyAsk
from muster.plugins.topology import Topology
from muster.state.world import World


@dataclass(frozen=True)
class Job:
    """A gang to be: its roles with members and GPUs each, how many must start together, and what it wishes."""

    roles: tuple[tuple[int, int], ...]
    least: int
    wish: TopologyAsk | None
    role_wish: TopologyAsk | None
    priority: int


@dataclass(frozen=True)
class Case:
    """Nodes in racks in blocks (counts of nodes by rack by block), nodes outside, what is taken, and gangs in the order given."""

    blocks: tuple[tuple[int, ...], ...]
    loose: int
    taken: tuple[int, ...]
    jobs: tuple[Job, ...]


wishes = st.builds(TopologyAsk, hard=st.booleans(), highest_tier=st.sampled_from([None, 0, 1, 1, 2, 3]))
hard_wishes = st.builds(TopologyAsk, hard=st.just(True), highest_tier=st.sampled_from([1, 1, 2]))
plain_roles = st.tuples(st.integers(1, 6), st.sampled_from([2, 4, 8])).map(lambda role: (role,))
mixed_roles = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 3, 4, 8])), min_size=2, max_size=3).map(tuple)


@st.composite
def jobs(draw: st.DrawFn, *, cells: bool = True) -> Job:
    roles = draw(st.one_of(plain_roles, mixed_roles))
    total = sum(count for count, _ in roles)
    role_wish = draw(st.none() | hard_wishes) if cells else None
    least = draw(st.sampled_from([total, total, max(1, total // 2)]))
    return Job(roles, least, draw(st.none() | wishes), role_wish, draw(st.integers(0, 2)))


def cases(*, cells: bool = True, most_jobs: int = 4) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        blocks=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple),
        loose=st.integers(0, 2),
        taken=st.lists(st.integers(0, 8), max_size=12).map(tuple),
        jobs=st.lists(jobs(cells=cells), min_size=1, max_size=most_jobs).map(tuple),
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


def town_of(case: Case, topology: Plugin | None = None, *, backwards: bool = False, actions: Sequence[str] = ACTIONS) -> Town:
    town = Town(policy(topology or Topology(), actions=actions))
    things = [*nodes_of_case(case), *specs_of_case(case)]
    town.see(*(reversed(things) if backwards else things))
    for number, job in enumerate(case.jobs):
        submit(town, f"g{number}", job)
    return town


def submit(town: Town, name: str, job: Job) -> None:
    roles = {chr(ord("a") + i): role for i, role in enumerate(job.roles)}
    wish = job.role_wish
    sub_groups = tuple(SubGroup(role, role=role, topology=wish) for role in roles) if wish is not None else ()
    town.submit(name, 0, roles=roles, least=job.least, wish=job.wish, priority=job.priority, sub_groups=sub_groups)


# -- what must hold ----------------------------------------------------------------------------------------------------------------


def scattered(world: World) -> list[str]:
    """Gangs and cells with a hard wish that do not lie in one domain at or below their tier. Told from names alone."""
    found = []
    for gang in world.facts.gangs.values():
        if not _lies_together(_seats(world, [pod.uid for pod in gang.pods()]), gang):
            found.append(gang.title)
        apart = [cell.title for cell in gang.cells if not _lies_together(_seats(world, cell.members), cell)]
        found.extend(f"{gang.title} {cell}" for cell in apart)
    return found


def _seats(world: World, uids: Iterable[str]) -> set[str]:
    placed = [world.placements.by_uid[uid] for uid in uids if uid in world.placements.by_uid]
    return {placement.node or "" for placement in placed if placement.phase in PROMISED}


def _lies_together(seats: set[str], who: Gang | Cell) -> bool:
    wish = who.topology
    if wish is None or not wish.hard or len(seats) < 2:
        return True
    highest = 2 if wish.highest_tier is None else wish.highest_tier
    if highest > 2:
        return True
    if highest == 0 or any(seat.startswith("loose") for seat in seats):
        return False
    # "b1r2n3": the block is in the first two letters, the rack in the first four.
    return len({seat[: 4 if highest == 1 else 2] for seat in seats}) == 1


def grown(job: Job, by: int) -> Job:
    """The same gang with further members of its first role; nobody more is needed."""
    (count, gpu), *rest = job.roles
    return replace(job, roles=((count + by, gpu), *rest))
