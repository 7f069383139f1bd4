"""Random clusters for judging plans, and the best plan there is, from a solver that knows nothing of how Muster searches.

All that run have one priority and no budget, so of the one order of plans (D5) two keys are left: surplus members before whole
gangs, then the cost.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix
from tests.evict.eviction_asks import eviction_ask
from tests.harness.row_index import rows_of

from muster.config import load_policy
from muster.engine.evict import unit_choice
from muster.engine.evict.domain_search import DomainSearch, plan_in_domain
from muster.engine.evict.eviction_plan import Plan
from muster.engine.evict.eviction_policy import GANG_PREEMPT
from muster.engine.evict.eviction_units import EvictionUnits
from muster.engine.evict.single_node import plan_on_one_node
from muster.engine.evict.unit_membership import SURPLUS, WHOLE
from muster.engine.evict.victims import victim_table_of
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.events import Event, Upsert
from muster.model.gang import PodGroup, RoleMin
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Membership, Phase, Pod, PodSignature, PodStatusPhase
from muster.model.resource_amounts import CPU, GPU, PODS, Resources
from muster.state.derived.topology_domains import WHOLE_CLUSTER, Domain
from muster.state.node_table import BoolColumn, FloatColumn
from muster.state.store import Store

POLICY = """
actions: [expire, enqueue, allocate, gang-preempt]
plugins: [priority, fit, binpack, lost-work]
"""
NOW = 1_000_000.0


@dataclass(frozen=True, slots=True)
class PlanCost:
    """What our plan costs, the least that any plan costs, and what the first greedy choice alone would have cost. `kind` and
    `best_kind`: the worst sort of unit in our plan and in the best one."""

    ours: float
    best: float
    greedy: float
    kind: int
    best_kind: int
    units: int
    """How many there are to choose from."""

    @property
    def ratio(self) -> float:
        return 1.0 if self.best <= 1e-9 else self.ours / self.best


LARGE = (8, 16, 24, 40, 60, 100, 200)
SMALL = (2, 3, 4)


def cluster(seed: int, sizes: tuple[int, ...] = LARGE) -> tuple[Store, int]:
    """Nodes of two sizes, gangs of one to twelve members with one or two roles spread over them, some above their minimum, with
    some free capacity left in pieces, and a gang that asks. All that run have one priority."""
    chance = random.Random(seed)
    count = chance.choice(sizes)
    store = Store()
    free: dict[str, int] = {}
    for number in range(count):
        gpus = chance.choice([4, 8, 8])
        name = f"n{number:03d}"
        free[name] = gpus
        allocatable = Resources.of({CPU: 64_000, GPU: gpus, PODS: 110})
        store.fold(Upsert(Node(name, version=1, allocatable=allocatable, labels={"rack": f"r{number // 8}"})))
    for event in _gangs(chance, free):
        store.fold(event)
    for event in _asking_gang(chance, count):
        store.fold(event)
    return store, count


def _gangs(chance: random.Random, free: dict[str, int]) -> list[Event]:
    events: list[Event] = []
    number, misses = 0, 0
    while misses < 6:
        gpus = chance.choice([1, 1, 2, 2, 4, 8])
        size = chance.choice([1, 1, 2, 3, 4, 6, 8, 12])
        near = chance.random() < 0.5
        placed_on = _member_nodes(chance, free, gpus, size, near=near)
        if len(placed_on) < size:
            misses += 1
            continue
        for node in placed_on:
            free[node] -= gpus
        if chance.random() < 0.1:
            # A piece of free capacity that no gang uses.
            free[placed_on[0]] -= min(free[placed_on[0]], 1)
        events += _running(chance, f"g{number}", gpus, placed_on)
        number += 1
    return events


def _member_nodes(chance: random.Random, free: dict[str, int], gpus: int, size: int, *, near: bool) -> list[str]:
    left = dict(free)
    names = list(free)
    if near:
        start = chance.randrange(len(names))
        names = (names[start:] + names[:start])[:16]
    placed_on: list[str] = []
    for _ in range(size):
        open_ = [name for name in names if left[name] >= gpus]
        if not open_:
            break
        node = chance.choice(open_)
        left[node] -= gpus
        placed_on.append(node)
    return placed_on


def _running(chance: random.Random, name: str, gpus: int, placed_on: list[str]) -> list[Event]:
    size = len(placed_on)
    least = size if chance.random() < 0.75 else max(1, size - chance.randint(1, 3))
    roles = ["a", "b"] if size > 3 and chance.random() < 0.3 and least == size else [""]
    mins = (
        tuple(RoleMin(role, sum(i % len(roles) == at for i in range(size))) for at, role in enumerate(roles))
        if len(roles) > 1
        else ()
    )
    group = PodGroup(ApiFlavour.VOLCANO, "d", name, version=1, min_member=least, role_mins=mins, created=chance.uniform(0, NOW))
    kind = PodSignature(request=Resources.of({CPU: 1000, GPU: gpus, PODS: 1}))
    started = NOW - chance.choice([60, 600, 3600, 6 * 3600, 24 * 3600])
    events: list[Event] = [Upsert(group)]
    for index, node in enumerate(placed_on):
        membership = Membership(ApiFlavour.VOLCANO, name, role=roles[index % len(roles)])
        pod = Pod(
            uid=f"{name}-{index}",
            namespace="d",
            name=f"{name}-{index}",
            signature=kind,
            version=1,
            priority=1,
            created=started,
            membership=membership,
            node=node,
            status_phase=PodStatusPhase.RUNNING,
            started=started,
        )
        events.append(Upsert(pod))
    return events


def _asking_gang(chance: random.Random, nodes: int) -> list[Event]:
    gpus = chance.choice([1, 2, 4, 4, 8])
    size = chance.choice([1, 2, 4, 8, min(16, nodes // 2)])
    kind = PodSignature(request=Resources.of({CPU: 2000, GPU: gpus, PODS: 1}))
    small = PodSignature(request=Resources.of({CPU: 1000, GPU: 1, PODS: 1}))
    events: list[Event] = [Upsert(PodGroup(ApiFlavour.VOLCANO, "d", "hi", version=1, min_member=size, created=NOW))]
    for index in range(size):
        each = small if index and chance.random() < 0.2 else kind
        pod = Pod(
            f"hi-{index}",
            "d",
            f"hi-{index}",
            each,
            version=1,
            priority=9,
            created=NOW,
            membership=Membership(ApiFlavour.VOLCANO, "hi"),
        )
        events.append(Upsert(pod))
    return events


def compare_plans(seed: int, sizes: tuple[int, ...] = LARGE) -> PlanCost | None:
    """Our plan against the best one; None where the gang fits as it is, or nothing helps."""
    store, _ = cluster(seed, sizes)
    s = Session(store.world(NOW), load_policy(POLICY))
    s.prepare()
    domain = _domain(seed, s)
    search = DomainSearch(eviction_ask(s, "d/hi", GANG_PREEMPT), domain)
    units, ask = search.search.units, search.search.ask
    best_kind, best = best_plan(units, s, ask, domain)
    plan_in = plan_in_domain if len(ask.pods) > 1 else plan_on_one_node
    plan = plan_in(eviction_ask(s, "d/hi", GANG_PREEMPT), domain)
    if best is None:
        assert not isinstance(plan, Plan), f"seed {seed}: a plan where the solver says there is none"
        return None
    assert isinstance(plan, Plan), f"seed {seed}: no plan, though there is one of cost {best}"
    kind = int(units.kind[list(plan.units)].max(initial=0))
    first = search._attempt(unit_choice.by_node_cost)
    ours, greedy = (float("inf") if each is None else float(prices(units, ask)[list(each.units)].sum()) for each in (plan, first))
    return PlanCost(ours, best, greedy, kind, best_kind, len(units))


def prices(b: EvictionUnits, ask: Ask) -> FloatColumn:
    """What the plans of one sort are compared by. For one pod the sum of priorities comes before the cost (E4), which is the number
    of victims here."""
    return b.cost + 10_000.0 * b.pods if len(ask.pods) == 1 else b.cost


def _domain(seed: int, s: Session) -> Domain:
    """The whole cluster, or every other time its first half."""
    names = s.world.table.names
    return WHOLE_CLUSTER if seed % 2 else Domain("half", rows_of(s.world.table, names[: max(8, len(names) // 2)]))


def best_plan(b: EvictionUnits, s: Session, ask: Ask, domain: Domain) -> tuple[int, float | None]:
    """The sort of the worst unit in the best plan, and its cost. Surplus members alone are better than any whole gang."""
    surplus = cheapest(b, s, ask, domain, allowed=b.kind <= SURPLUS)
    if surplus is not None:
        return SURPLUS, surplus
    return WHOLE, cheapest(b, s, ask, domain, allowed=np.ones(len(b), dtype=np.bool_))


def cheapest(b: EvictionUnits, s: Session, ask: Ask, domain: Domain, *, allowed: BoolColumn) -> float | None:
    """The least cost of units without which the ask fits, or None. Units are whole; members are whole; nodes are nodes."""
    table = s.world.table
    rows = np.arange(len(table)) if domain.rows is None else domain.rows
    kinds: dict[PodSignature, int] = {}
    for pod in ask.pods:
        kinds[pod.signature] = kinds.get(pod.signature, 0) + 1
    wanted = list(kinds.items())
    columns = [s.world.columns.position[name] for name in (CPU, GPU, PODS)]
    units, per = len(b), len(rows)
    size = units + len(wanted) * per
    at = {int(row): i for i, row in enumerate(rows)}
    capacity = lil_matrix((per * len(columns), size))
    for victim in np.flatnonzero(b.in_domain).tolist():
        for c, column in enumerate(columns):
            capacity[at[int(b.row[victim])] * len(columns) + c, int(b.unit[victim])] -= float(b.request[victim, column])
    for k, (kind, _) in enumerate(wanted):
        need = s.world.columns.vector(kind.request)
        for i in range(per):
            for c, column in enumerate(columns):
                capacity[i * len(columns) + c, units + k * per + i] = float(need[column])
    free = (table.allocatable - table.planned)[rows][:, columns].astype(float).ravel()
    count = lil_matrix((len(wanted), size))
    for k in range(len(wanted)):
        count[k, units + k * per : units + (k + 1) * per] = 1
    exactly = np.array([n for _, n in wanted], dtype=float)
    price = np.concatenate([prices(b, ask), np.zeros(size - units)])
    found = milp(
        price,
        constraints=[
            LinearConstraint(capacity.tocsr(), -np.inf, free),
            LinearConstraint(count.tocsr(), exactly, exactly),
            *_surplus_constraints(b, s, size),
        ],
        integrality=np.ones(size),
        bounds=Bounds(0, np.concatenate([allowed.astype(float), np.full(size - units, 110.0)])),
        options={"time_limit": 20.0, "mip_rel_gap": 1e-6},
    )
    if found.status == 2:
        return None
    assert found.x is not None, found.message
    return float(found.fun)


def _surplus_constraints(b: EvictionUnits, s: Session, size: int) -> list[LinearConstraint]:
    """Any members of a gang can be its surplus, but no more than it can do without; and none of them beside the whole gang."""
    found: list[LinearConstraint] = []
    gangs = victim_table_of(s.world).gangs
    for gang in np.unique(b.gang[b.kind == SURPLUS]).tolist():
        placed = sum(s.world.phase(pod) is Phase.BOUND for pod in gangs[gang].pods())
        surplus = placed - gangs[gang].min
        row = np.zeros(size)
        row[: len(b)][(b.gang == gang) & (b.kind == SURPLUS)] = 1
        row[: len(b)][(b.gang == gang) & (b.kind == WHOLE)] = surplus
        found.append(LinearConstraint(row, -np.inf, surplus))
    return found
