"""In which order the domains of an ask are searched for victims, and from when on none can be better than what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.engine.evict.eviction_plan import NoPlan
from muster.engine.evict.eviction_units import EvictionUnits
from muster.engine.evict.node_amounts import NodeAmounts
from muster.engine.evict.plan_order import PlanKey, violates_budget
from muster.engine.evict.victim_search import EvictionAsk, VictimSearch
from muster.engine.fit_counts import CapacityAfterEvictions, CapacityView, CurrentCapacity, domain_bounds
from muster.engine.hooks import WHOLE_CLUSTER, Domain
from muster.state.node_table import BoolColumn
from muster.state.resource_columns import Amounts

# So many classes of victims are told apart when domains are ordered.
_MAX_LEVELS = 16


@dataclass(frozen=True, slots=True)
class BoundedDomain:
    """A domain, and the first keys of any plan in it at best."""

    domain: Domain
    bound: PlanKey


def domains_in_order(eviction_ask: EvictionAsk, domains: Sequence[Domain]) -> list[BoundedDomain]:
    """The domains in which the ask could fit after evictions, the lowest class of victims first, then what lacks least."""
    if len(domains) == 1:
        return [BoundedDomain(domains[0], ())]
    s, search = eviction_ask.s, VictimSearch(eviction_ask, WHOLE_CLUSTER)
    units = search.units
    now = domain_bounds(s, eviction_ask.ask, domains, CurrentCapacity(s, CapacityView.AFTER_RELEASES))
    lacking = len(eviction_ask.ask.pods) - now.most
    level = np.where(now.feasible, -1, len(units) + 1)
    classes = np.unique(units.unit_class)
    if len(classes) > _MAX_LEVELS:
        classes = classes[np.linspace(0, len(classes) - 1, _MAX_LEVELS).round().astype(np.intp)]
    amounts = NodeAmounts(s.world, ())
    lowest = 0
    for step in classes.tolist():
        free = amounts.free()
        _add_freed(free, units, units.unit_class[units.unit] <= step)
        found = domain_bounds(s, eviction_ask.ask, domains, CapacityAfterEvictions(s, free))
        level[found.feasible & (level > len(units))] = lowest
        lowest = int(step) + 1
    reachable = np.flatnonzero(level <= len(units))
    order = reachable[np.lexsort((reachable, lacking[reachable], level[reachable]))]
    return [BoundedDomain(domains[at], _bound(search, int(level[at]))) for at in order.tolist()]


def why_unreachable(eviction_ask: EvictionAsk, domains: Sequence[Domain]) -> NoPlan:
    """Why none of these domains is worth a search."""
    search = VictimSearch(eviction_ask, WHOLE_CLUSTER)
    if not search.units.any_left:
        return search.no_victims()
    return search.no_plan(f"it would fit into none of {len(domains)} domains even if every evictable pod were evicted")


def _add_freed(free: Amounts, units: EvictionUnits, which: BoolColumn) -> None:
    """What these pods use; a pod that is in two units counts once."""
    entries = np.flatnonzero(which & units.in_domain)
    _, first = np.unique(units.victim[entries], return_index=True)
    np.add.at(free, units.row[entries[first]], units.request[entries[first]])


def _bound(search: VictimSearch, lowest_class: int) -> PlanKey:
    """The first keys of a plan that evicts a unit of this class or a higher one."""
    units, order = search.units, search.order
    if lowest_class < 0:
        return ()
    unit = int(np.searchsorted(units.unit_class, lowest_class))
    first = (units.rank if order.queues_first else units.priority)[unit]
    leading = (first, units.kind[unit]) if order.priority_first else (units.kind[unit], first)
    violates = violates_budget(units.budgets, np.array([unit], dtype=np.intp))[0]
    return (float(violates), *(float(each) for each in leading))
