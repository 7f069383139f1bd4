"""One cycle's view for the engine and its plugins: the world, the policy, and how the plugins' answers combine."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from muster.engine import quota
from muster.engine.hooks import WHOLE_CLUSTER, AllowedDomains, Ask, Comparable, Domain, Policy, QuotaFit, ScoresDomainsAhead
from muster.engine.node_scores import BASE, COLUMNS, MOUNTING_BASE, MOUNTING_COLUMNS, REFUSED, NodeScores, base_column
from muster.model.device import DeviceSlot
from muster.model.effects import YES, Effect, Verdict
from muster.model.gang import Gang
from muster.model.pod import Phase, Placement, Pod
from muster.model.resource_amounts import Resources
from muster.state.gangs.gang_stage import is_partially_bound
from muster.state.gangs.refused_binds import refused_member
from muster.state.memory import NOT_ATTEMPTED
from muster.state.node_table import BoolColumn, FloatColumn
from muster.state.resource_columns import Amounts
from muster.state.trial import Trial
from muster.state.world import World

NO_DOMAIN = "NoDomain"

if TYPE_CHECKING:
    from muster.engine.evict.eviction_plan import NoPlan, Plan
    from muster.engine.kept_capacity import KeptCapacity

# A refused gang is tried again this often, whatever happens.
RETRY_S = 300.0

FIRST, IN_ORDER, LAST = 0, 1, 2
"""Turns: gangs of one are ordered among themselves."""


Refusals = dict[str, Verdict]
"""Gangs that were attempted in this cycle and did not get what they need, in their order, by key. Allocate fills it; an evicting
action takes out whom it serves."""


@dataclass(frozen=True, slots=True)
class EvictionAttempt:
    """What an evicting action found for a gang in one domain: a plan, or why there is none."""

    gang: str
    action: str
    domain: str
    found: Plan | NoPlan
    decides: bool = True
    """False where the search was over: this was only looked into to be shown."""


@dataclass(frozen=True, slots=True)
class UnsentPlan:
    """A plan of this cycle: its name, by which action, its victims with where they were, and the gangs of them that bring a queue
    below its share."""

    name: str
    action: str
    victims: tuple[tuple[Pod, Placement], ...]
    crossing: tuple[str, ...]


class Session:
    def __init__(self, world: World, policy: Policy) -> None:
        self.world = world
        self.policy = policy
        self.now = world.now
        self.same_moment = world.memory.decided_at == world.now
        """True when no time has passed since the cycle before: what it decided is as young as what this one does."""
        self.is_first_cycle = world.memory.decided_at < 0
        """True in the first cycle of a scheduler."""
        self.verdicts: dict[str, Verdict] = {}
        self.stats: dict[str, int] = {}
        self.why_without_eviction: dict[str, str] = {}
        """Why gangs that got a plan in this cycle could not do without, by key."""
        self.shows_all_domains: frozenset[str] = frozenset()
        """Gangs, by key, of which a person wants to know every domain: those that the decision does not need, too."""
        self.may_search: Callable[[str], bool] | None = None
        """May victims be searched for this gang? Set in dry runs only, to bound what gangs cost that nobody asks about."""
        self.eviction_attempts: list[EvictionAttempt] = []
        """What evicting actions found in each domain."""
        self.unsent_plans: dict[str, UnsentPlan] = {}
        """Of the gangs that got a plan in this cycle, by key: nothing was sent yet."""
        self.unsent_column: BoolColumn = np.zeros(0, dtype=np.bool_)
        """The same as a column over the gangs of the victim table."""
        self.extra_effects: list[Effect] = []
        """Effects without a move behind them."""
        self.inqueue_resources: Amounts = np.zeros((len(world.ledger), len(world.columns.names)), dtype=np.int64)
        """Minimum resources, by row of the ledger, of the gangs that were enqueued before and have no node yet."""
        self.left_out: BoolColumn | None = None
        """Nodes that the gang that is placed now must leave out, because they are kept for others."""
        self.kept: KeptCapacity | None = None
        """What is kept for gangs that have waited long, as far as they had their turn."""
        self._has_refused_binds = len(world.memory.refused_binds) > 0
        self._minimum_by_queue: tuple[Ask, dict[str, Amounts]] | None = None

    def prepare(self) -> None:
        for plugin in self.policy.prepares:
            plugin.prepare(self)

    def trial(self, why: str, *, cause: str, for_gang: str = "") -> Trial:
        return Trial(self.world, why=why, cause=cause, for_gang=for_gang)

    def count(self, what: str, by: int = 1) -> None:
        self.stats[what] = self.stats.get(what, 0) + by

    # -- verdicts ----------------------------------------------------------------------------------------------------------

    def is_still_refused(self, gang: str) -> bool:
        """Was this gang refused for a reason that nothing since has touched? Then another attempt is a waste."""
        memory = self.world.memory.attempts.get(gang, NOT_ATTEMPTED)
        verdict = memory.verdict
        if verdict is None or verdict.ok:
            return False
        if self.now >= memory.tried_at + RETRY_S or (verdict.at is not None and self.now >= verdict.at):
            return False
        return self.world.memory.is_unchanged(memory)

    def record_verdict(self, gang: Gang, verdict: Verdict) -> None:
        """Remember the verdict on a gang and what could change it."""
        memory = self.world.memory
        if verdict != memory.attempts[gang.key].verdict:
            self.verdicts[gang.key] = verdict
        memory.set_verdict(gang.key, verdict, now=self.now)

    # -- combined answers ----------------------------------------------------------------------------------------------------

    def minimum_by_queue(self, ask: Ask) -> dict[str, Amounts]:
        """What the minimum of an ask needs in each queue."""
        if self._minimum_by_queue is None or self._minimum_by_queue[0] is not ask:
            self._minimum_by_queue = (ask, quota.minimum_by_queue(self, ask))
        return self._minimum_by_queue[1]

    def admit(self, ask: Ask) -> Verdict:
        verdict = quota.admit(self, ask, quota.limits(self.world))
        if not verdict.ok:
            return verdict
        for plugin in self.policy.admits:
            verdict = plugin.admit(self, ask)
            if not verdict.ok:
                return verdict
        return YES

    def quota_fit(self, pod: Pod, *, count: int, phase: Phase) -> QuotaFit:
        """How many of `count` pods like this one fit into its queues as usage is now."""
        least = quota.quota_fit(self, pod, quota.limits(self.world), count=count, phase=phase)
        for plugin in self.policy.bounds_queues:
            found = plugin.quota_fit(self, pod, count=count, phase=phase)
            if found.fit_count < least.fit_count:
                least = found
        return least

    @property
    def has_bounded_queues(self) -> bool:
        """Is the usage of any queue bounded?"""
        return bool(self.policy.bounds_queues) or quota.limits(self.world).is_limited

    def deserved_rows(self) -> Amounts:
        """What each queue deserves, as the first plugin says that knows: rows as in the ledger."""
        for plugin in self.policy.deserved_shares:
            return plugin.deserved(self)
        return np.zeros((len(self.world.ledger), len(self.world.columns.names)), dtype=np.int64)

    def deserved(self, queue: str) -> Resources:
        """What one queue deserves."""
        return self.amounts(self.deserved_rows(), queue)

    def amounts(self, rows: Amounts, queue: str) -> Resources:
        """What one queue has in such rows."""
        row = rows[self.world.ledger.row[queue]].tolist()
        return Resources.of({name: value for name, value in zip(self.world.columns.names, row, strict=True) if value > 0})

    def where(self, ask: Ask) -> AllowedDomains:
        """The first plugin with an opinion decides. None is no opinion; an empty list is one."""
        for plugin in self.policy.allows_domains:
            found = plugin.domains(self, ask)
            if isinstance(found, Verdict):
                return AllowedDomains((), found)
            if found is not None:
                why = f"{plugin.name} allows no domain of the cluster"
                return AllowedDomains(found, YES if found else Verdict(ok=False, why=why, code=NO_DOMAIN))
        return AllowedDomains((ask.within or WHOLE_CLUSTER,))

    def fill_order(self, ask: Ask, domain: Domain) -> Sequence[Domain]:
        """In which order the parts of a domain are filled; empty where no plugin has an opinion."""
        for plugin in self.policy.fills_domains:
            found = plugin.fill_order(self, ask, domain)
            if found:
                return found
        return ()

    def gang_key(self, gang: Gang) -> tuple[Comparable, ...]:
        """By turn; then the plugins' keys, creation and name."""
        keys = [plugin.gang_key(self, gang) for plugin in self.policy.orders_gangs]
        return (self.turn(gang), *keys, gang.created, gang.full_name, gang.key)

    def turn(self, gang: Gang) -> int:
        """A partially bound gang comes first, one whose binds are refused again and again last, whatever their queues."""
        if self._has_refused_binds and refused_member(self.world, gang) is not None:
            return LAST
        return FIRST if is_partially_bound(self.world, gang) else IN_ORDER

    def queue_key(self, queue: str) -> tuple[Comparable, ...]:
        return tuple([plugin.queue_key(self, queue) for plugin in self.policy.orders_queues])

    def score_domain(self, ask: Ask, domain: Domain) -> float:
        return sum(p.weight * p.score_domain(self, ask, domain) for p in self.policy.scores_domains)

    def score_domains(self, ask: Ask, domains: Sequence[Domain]) -> FloatColumn | None:
        """What `score_domain` will say of each once the whole ask is placed there; None where a plugin cannot tell ahead."""
        total = np.zeros(len(domains), dtype=np.float64)
        for plugin in self.policy.scores_domains:
            if not isinstance(plugin, ScoresDomainsAhead):
                return None
            total += plugin.weight * plugin.score_domains(self, ask, domains)
        return total

    def slots(self, pod: Pod, places: Sequence[str], *, after_releases: bool) -> list[tuple[DeviceSlot, ...]] | None:
        """The slots of devices that equal pods take on these nodes, one after the other; None where they need none anywhere."""
        for plugin in self.policy.chooses_slots if pod.signature.devices else ():
            found = plugin.slots(self, pod, places, after_releases=after_releases)
            if found is not None:
                return found
        return None

    def needs_capacity_only(self, pod: Pod) -> bool:
        """Does capacity alone decide where such a pod fits, among the nodes that match it?"""
        return sum(
            plugin is None or plugin.applies_to(self, pod) for plugin in self.policy.applies_to
        ) == 1 and not self.has_inter_pod_constraints(pod)

    def has_inter_pod_constraints(self, pod: Pod) -> bool:
        return any(plugin.has_inter_pod_constraints(self, pod) for plugin in self.policy.inter_pod_fits)

    @cached_property
    def score_key(self) -> tuple[Hashable, ...]:
        """What scores follow from besides the rows: nothing that changes in a cycle."""
        return tuple(plugin.score_key(self) for plugin in self.policy.keyed_scores)

    def node_scores(self, pod: Pod, *, after_releases: bool) -> NodeScores:
        """What the plugins say of every node for pods of this signature, up to date. What a pod says of other pods is no part of
        it, so that the gangs of one template have one set of columns between them."""
        derived = MOUNTING_COLUMNS if pod.signature.volume_claims else COLUMNS
        return derived.of(
            self.world,
            lambda: NodeScores(self, pod, self._base_scores(pod), after_releases=after_releases),
            key=(self.policy, pod.signature.without_inter_pod_terms(), after_releases, self.score_key),
            update=lambda columns, rows: columns.update(self, pod, rows),
            topics=self.policy.score_topics,
        )

    def match(self, pod: Pod) -> BoolColumn:
        """Which nodes match pods of this signature, whatever is free there."""
        return self._base_scores(pod) > REFUSED

    def _base_scores(self, pod: Pod) -> FloatColumn:
        derived = MOUNTING_BASE if pod.signature.volume_claims else BASE
        key = (self.policy, pod.signature.without_inter_pod_terms())
        return derived.of(self.world, lambda: base_column(self, pod), key=key, topics=self.policy.score_topics)
