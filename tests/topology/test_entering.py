"""Making room: which domains are entered first, and that whoever is promised a node still lies together."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.topology.town import Town, hypernode, node, nodes_of, policy
from tests.topology.worlds import Case, cases, scattered, submit, town_of

from muster.engine.hooks import Ask, Purpose
from muster.model.topology import TopologyAsk
from muster.plugins.topology import Topology

RACK = TopologyAsk(hard=True, highest_tier=1)
EVICTING = ("expire", "enqueue", "allocate", "gang-preempt")


@dataclass(frozen=True)
class Full:
    """Racks of nodes of 8 GPUs, who stands on each node (GPUs, priority), and a gang that wants in."""

    racks: tuple[tuple[tuple[tuple[int, int], ...], ...], ...]
    members: int
    gpu: int
    most: int


standing = st.lists(st.tuples(st.sampled_from([2, 4]), st.integers(0, 7)), max_size=2).map(tuple)
full_racks = st.lists(st.lists(standing, min_size=1, max_size=3).map(tuple), min_size=1, max_size=4).map(tuple)
fulls = st.builds(Full, full_racks, st.integers(1, 4), st.sampled_from([2, 4, 8]), st.integers(1, 3))

ASKER = 5


def town_full(full: Full) -> Town:
    town = Town(policy(Topology(evict_domains=full.most), actions=EVICTING))
    for r, rack in enumerate(full.racks):
        names = [f"r{r}n{n}" for n in range(len(rack))]
        town.see(*(node(name) for name in names), hypernode(f"r{r}", nodes_of(names)))
        for name, pods in zip(names, rack, strict=True):
            for i, (gpu, priority) in enumerate(pods):
                town.submit(f"{name}-{i}", 1, gpu=gpu, priority=priority, at=[name])
    town.submit("hi", full.members, gpu=full.gpu, priority=ASKER, wish=RACK)
    return town


def order_by_hand(full: Full) -> list[str]:
    """Racks that could be entered: fewest seats lacking, then the lowest priorities that must go, then the name."""
    levels = sorted({priority for rack in full.racks for pods in rack for _, priority in pods if priority < ASKER})
    found: list[tuple[int, int, str]] = []
    for r, rack in enumerate(full.racks):
        seats = [seats_with(rack, full.gpu, gone=level) for level in (-1, *levels)]
        enough = [at for at, count in enumerate(seats) if count >= full.members]
        if enough:
            found.append((full.members - min(seats[0], full.members), enough[0], f"r{r}"))
    return [name for _, _, name in sorted(found)][: full.most]


def seats_with(rack: tuple[tuple[tuple[int, int], ...], ...], gpu: int, *, gone: int) -> int:
    return sum((8 - sum(taken for taken, priority in pods if priority > gone)) // gpu for pods in rack)


@settings(max_examples=150, deadline=None)
@given(full=fulls)
def test_the_racks_that_are_cheapest_to_enter_come_first(full: Full) -> None:
    town = town_full(full)
    gang = town.gang("hi")
    where = town.session().where(Ask(gang, gang.pods(), Purpose.EVICT, "gang-preempt"))
    assert [domain.name for domain in where.domains] == order_by_hand(full)
    assert where.domains or "even" in where.verdict.why


@settings(max_examples=60, deadline=None)
@given(full=fulls)
def test_a_gang_that_could_be_served_by_eviction_is_served(full: Full) -> None:
    """Everybody who stands there is alone: whatever must go may go, so the first rack that could be entered is entered."""
    town = town_full(full)
    wanted = order_by_hand(full)
    town.cycle()
    assert scattered_racks(town) <= 1
    assert bool(town.where("hi")) == bool(wanted)


def scattered_racks(town: Town) -> int:
    return len({name[:2] for name in town.where("hi")})


@settings(max_examples=80, deadline=None)
@given(case=cases(most_jobs=3), late=cases(most_jobs=3))
def test_hard_wishes_hold_for_whoever_is_promised_a_node_too(case: Case, late: Case) -> None:
    town = town_of(case, actions=EVICTING)
    town.cycle()
    for number, job in enumerate(late.jobs):
        submit(town, f"late{number}", job)
        town.cycle(5.0)
        assert scattered(town.world) == []


def test_where_nobody_may_be_evicted_in_other_queues_their_pods_count_as_staying() -> None:
    town = Town(policy(Topology(), actions=EVICTING))
    town.see(node("a"), node("b"), hypernode("r", nodes_of(["a", "b"])))
    town.submit("other", 2, priority=0, at=["a", "b"], queue="queue/theirs")
    town.submit("hi", 2, priority=9, wish=RACK)
    gang = town.gang("hi")
    s = town.session()
    assert not s.where(Ask(gang, gang.pods(), Purpose.EVICT, "gang-preempt")).domains
    assert [d.name for d in s.where(Ask(gang, gang.pods(), Purpose.EVICT, "gang-reclaim")).domains] == ["r"]
