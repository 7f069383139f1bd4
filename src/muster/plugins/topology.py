"""Gangs stay together: which domains a gang or one of its subgroups may be placed in, and which of them is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from muster.engine.fit_counts import CAPACITY_FOR, CurrentCapacity, DomainSums, domain_bounds, equal_members
from muster.engine.hooks import Ask, Domain, Purpose
from muster.engine.option_field import option
from muster.engine.reporting import condition_news
from muster.engine.session import Session
from muster.model.effects import Condition, Verdict
from muster.plugins._domain_search import ConstrainedDomains, placed_rows
from muster.plugins._node_allocation import DEFAULT_WEIGHTS, weighted_sum
from muster.plugins._tier_constraint import TierConstraint, resolve_constraint
from muster.state.derived.topology_domains import DomainTree, domain_tree
from muster.state.node_table import FloatColumn, IntColumn

INVALID_DOMAIN = "InvalidDomain"


@dataclass(frozen=True)
class Topology:
    """Keep the members of a gang close to each other, by HyperNodes or by labels of nodes.

    A hard topology constraint puts the whole gang (or role, or subgroup) into one domain at or below the highest tier allowed; a
    soft one prefers the narrowest domain in which all fit. Of equal domains the fuller is better.
    """

    weight: float = option(1.0, "How much this score of domains counts beside the others.", minimum=0)
    tiers: Mapping[str, str] = option(
        dict[str, str], "Tiers made of node labels, for nodes in no HyperNode: the name of each and its label, the lowest first."
    )
    resources: Mapping[str, float] = option(
        lambda: dict(DEFAULT_WEIGHTS), "How much each resource counts in how full a domain is.", minimum=0, resources=True
    )
    name: str = "topology"

    # -- problems of HyperNodes -----------------------------------------------------------------------------------------

    def prepare(self, s: Session) -> None:
        """Report the problems of HyperNodes, and that they are solved, where that changed."""
        domains = s.world.facts.domains
        problems = self._tree(s).problems if domains else {}
        # Solved problems are reported first.
        for name in sorted(domains, key=lambda name: (name in problems, name)):
            why = "; ".join(f"{problem.field}: {problem.text}" for problem in problems.get(name, ()))
            now = Condition("domain", name, False, INVALID_DOMAIN, why) if name in problems else None
            all_well = Condition("domain", name, True, "Usable", "all of it is used")
            s.extra_effects.extend(condition_news(s.world, domains[name].uid or name, now, all_well))

    # -- where -----------------------------------------------------------------------------------------------------------------

    def domains(self, s: Session, ask: Ask) -> Sequence[Domain] | Verdict | None:
        constraint = self._constraint(s, ask)
        if constraint is None or isinstance(constraint, Verdict):
            return constraint
        search = ConstrainedDomains(s, ask, constraint)
        if not search.allowed:
            return search.no_allowed_domain()
        if not ask.pods:
            return search.allowed
        return search.reachable_by_evictions() if ask.purpose is Purpose.EVICT else search.feasible()

    def fill_order(self, s: Session, ask: Ask, domain: Domain) -> Sequence[Domain]:
        """Parts with members of the gang first; then as few parts as can be: the largest, until one takes all that are left."""
        constraint = self._constraint(s, ask)
        if (
            not isinstance(constraint, TierConstraint)
            or constraint.tree.lowest is None
            or (domain.tier or constraint.tree.top_tier) <= constraint.tree.lowest
        ):
            return ()
        parts = [part for part in constraint.tree.parts_of(domain) if part.tier]
        if len(parts) < 2:
            return ()
        most = domain_bounds(s, ask, parts, CurrentCapacity(s, CAPACITY_FOR[ask.purpose])).most
        here = np.zeros(len(s.world.table), dtype=np.int64)
        np.add.at(here, np.array(placed_rows(s, ask), dtype=np.intp), 1)
        return [parts[at] for at in fewest_domains(len(ask.pods), most, DomainSums(parts).sums(here))]

    def _tree(self, s: Session) -> DomainTree:
        return domain_tree(s.world, tuple(self.tiers.items()))

    def _constraint(self, s: Session, ask: Ask) -> TierConstraint | Verdict | None:
        written = ask.gang.topology if ask.subgroup is None else ask.subgroup.topology
        return None if written is None else resolve_constraint(s.world, self._tree(s), written)

    # -- which is best ---------------------------------------------------------------------------------------------------------

    def score_domain(self, s: Session, ask: Ask, domain: Domain) -> float:
        return float(self._scores(s, ask, (domain,), placed=True)[0])

    def score_domains(self, s: Session, ask: Ask, domains: Sequence[Domain]) -> FloatColumn:
        return self._scores(s, ask, domains, placed=False)

    def _scores(self, s: Session, ask: Ask, domains: Sequence[Domain], *, placed: bool) -> FloatColumn:
        """A lower tier is always better; in one tier the fuller domain. `placed`: the ask is counted in the amounts already."""
        constraint = self._constraint(s, ask)
        tree = constraint.tree if isinstance(constraint, TierConstraint) else self._tree(s)
        rank = {tier: at for at, tier in enumerate((0, *(tier for tier in tree.tiers if tier), tree.top_tier))}
        tier = np.array([rank.get(tree.top_tier if d.tier is None else d.tier, len(rank) - 1) for d in domains], dtype=np.float64)
        return (len(rank) - 1 - tier + self._mean_allocation(s, ask, domains, placed=placed)) / len(rank)

    def _mean_allocation(self, s: Session, ask: Ask, domains: Sequence[Domain], *, placed: bool) -> FloatColumn:
        """The weighted mean, over what the ask requests, of how full each domain is with the ask in it."""
        table, position = s.world.table, s.world.columns.position
        need = np.zeros(len(position), dtype=np.int64)
        for lot in equal_members(s.world, ask.pods):
            need += s.world.request(lot.pod) * lot.count
        named = [(position[name], weight) for name, weight in self.resources.items() if weight and name in position]
        columns = [column for column, _ in named if need[column]]
        if not columns:
            return np.zeros(len(domains), dtype=np.float64)
        weighted = tuple((at, 0 if placed else int(need[column]), dict(named)[column]) for at, column in enumerate(columns))
        spans = DomainSums(domains)
        planned, allocatable = spans.sums(table.planned[:, columns]), spans.sums(table.allocatable[:, columns])
        return weighted_sum(planned, allocatable, weighted) / sum(weight for *_, weight in weighted)


def fewest_domains(wanted: int, most: IntColumn, members: IntColumn) -> list[int]:
    """The order in which parts are filled, by how many more each could take and how many members are there already."""
    order = np.lexsort((np.arange(len(most)), -most, -members)).tolist()
    left = wanted
    chosen: list[int] = []
    while order and left > 0:
        at = order[0]
        if not members[at]:
            enough = [part for part in order if most[part] >= left]
            at = min(enough, key=lambda part: (most[part], part)) if enough else at
        order.remove(at)
        chosen.append(at)
        left -= int(most[at])
    return [at for at in (*chosen, *order) if most[at] > 0]
