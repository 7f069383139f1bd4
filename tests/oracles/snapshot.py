"""The cluster just before a plan, and the plan: plain values that the oracles judge.

`Snapshot` holds model objects by name and the placement of each pod; `PolicyRules` is what the policy says, read from the values of
its plugins and settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from muster.model.budget import Budget
from muster.model.gang import Gang, Role
from muster.model.node import Node
from muster.model.pod import Phase, Placement, Pod
from muster.model.queue import Queue
from muster.model.topology_spec import DomainSpec
from muster.state.facts import Facts, Member
from muster.state.reserve_pods import ReservePod

SEATED = frozenset({Phase.RESERVED, Phase.BINDING, Phase.BOUND})
SEATED_OR_NOMINATED = SEATED | {Phase.NOMINATED}
CHARGED = SEATED_OR_NOMINATED | {Phase.MOVING}
"""Phases that count in a queue after all releases."""
ON_NODE = SEATED_OR_NOMINATED | {Phase.OVERDUE, Phase.MOVING}
"""Phases that fill a node after all releases."""

GANG_PREEMPT, JOB_PREEMPT, GANG_RECLAIM, STALE_GANGS = "gang-preempt", "job-preempt", "gang-reclaim", "stale-gangs"
BROKEN_AFTER_S = 60.0
MOST_CROSSINGS = 3


@dataclass(frozen=True, slots=True)
class PolicyRules:
    plugins: frozenset[str] = frozenset()
    budgets: str = "off"
    """`hard`, `soft`, or `off` where no plugin looks at them."""
    min_runtime_s: float = 0.0
    min_runtime_actions: tuple[str, ...] = ()
    strict_deserved: bool = False
    whole_gang: str = "cluster"
    victim_schedulers: tuple[str, ...] = ()
    preemptible_by_default: bool = True
    requires_can_preempt: bool = False
    checks_parent_quota: bool = False
    tiers: tuple[tuple[str, str], ...] = ()
    fair_shares: bool = False
    within_parent: bool = False
    """Queues that say nothing of it take by priority what siblings borrow."""
    priority_first: bool = False
    stale_after_s: float = 600.0

    @property
    def lost_work(self) -> bool:
        return "lost-work" in self.plugins


def rules_of(policy: Any) -> PolicyRules:
    """What a policy says, by the values of its plugins and settings."""
    plugins = {plugin.name: plugin for plugin in policy.plugins}
    settings = policy.settings
    pdb, runtime, quota = plugins.get("pdb"), plugins.get("min-runtime"), plugins.get("elastic-quota")
    topology = plugins.get("topology")
    return PolicyRules(
        plugins=frozenset(plugins),
        budgets="off" if pdb is None else pdb.mode,
        min_runtime_s=0.0 if runtime is None else runtime.seconds,
        min_runtime_actions=() if runtime is None else tuple(runtime.actions),
        strict_deserved=settings.strict_deserved,
        whole_gang=settings.whole_gang,
        victim_schedulers=tuple(settings.victim_schedulers),
        preemptible_by_default=quota is None or not (quota.disable_default_preemptiable or quota.disable_default_preemptible),
        requires_can_preempt=quota is not None and quota.disable_default_trigger_preemption,
        checks_parent_quota=quota is not None and quota.enable_check_parent_quota,
        tiers=() if topology is None else tuple(topology.tiers.items()),
        fair_shares=getattr(settings, "reclaim_for", "deserved") != "deserved",
        within_parent=settings.preempt_within_parent == "LowerPriority",
        priority_first=getattr(settings, "order", "") == "priority",
        stale_after_s=settings.stale_s,
    )


@dataclass(frozen=True, slots=True)
class History:
    """What is known of the cycles before: gangs that are broken or stale, and how often one lost units by a crossing."""

    broken: frozenset[str] = frozenset()
    stale: frozenset[str] = frozenset()
    last_mins: Mapping[str, tuple[int, Mapping[str, int]]] = field(default_factory=dict)
    """By gang the minimum and those of its roles, as they were when they were last known."""
    crossings: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Plans in which the first gang lost units by crossing its queue's line, for the second: by full names."""


NO_HISTORY = History()


@dataclass(frozen=True, slots=True)
class Snapshot:
    now: float
    nodes: Mapping[str, Node]
    pods: Mapping[str, Pod]
    gangs: Mapping[str, Gang]
    members: Mapping[str, Member]
    queues: Mapping[str, Queue]
    parents: Mapping[str, str]
    budgets: Mapping[str, Budget]
    domains: Mapping[str, DomainSpec]
    placements: Mapping[str, Placement]
    rules: PolicyRules
    history: History = NO_HISTORY
    began_with: Mapping[str, Placement] | None = None
    """The placements when the cycle began, where that is not now."""
    kept_nodes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By gang that has waited for long: nodes that are kept for it, where others may be placed only in some cases."""

    def phase(self, uid: str) -> Phase:
        placement = self.placements.get(uid)
        return Phase.PENDING if placement is None else placement.phase

    def node_of(self, uid: str) -> str:
        placement = self.placements.get(uid)
        return "" if placement is None else placement.node or ""

    def gang_of(self, uid: str) -> Gang | None:
        member = self.members.get(uid)
        return None if member is None else self.gangs.get(member.gang)

    def queue_of(self, uid: str) -> str:
        member = self.members.get(uid)
        return "" if member is None else member.queue

    def role_of(self, uid: str) -> Role | None:
        gang, member = self.gang_of(uid), self.members.get(uid)
        if gang is None or member is None:
            return None
        return next((role for role in gang.roles if role.name == member.role), None)

    def path(self, queue: str) -> list[str]:
        """The queue, its parent, and so on; the root is left out."""
        found: list[str] = []
        while queue and queue not in found:
            found.append(queue)
            queue = self.parents.get(queue, "")
        return found

    def placed_members(self, gang: Gang) -> list[Pod]:
        """Its members that have a node or are nominated to one, none of them being released."""
        return [pod for pod in gang.pods() if self.phase(pod.uid) in SEATED_OR_NOMINATED]

    def without(self, uids: Iterable[str]) -> Snapshot:
        """The same after these pods have left."""
        gone = set(uids)
        return replace(self, placements={uid: placement for uid, placement in self.placements.items() if uid not in gone})


def snapshot_of(
    facts: Facts,
    placements: Mapping[str, Placement],
    *,
    now: float,
    rules: PolicyRules,
    reserve_pods: Mapping[str, ReservePod] | None = None,
) -> Snapshot:
    """The facts as they stand, with these placements. What is kept for moved pods counts like pods that are nominated there."""
    kept = reserve_pods or {}
    return Snapshot(
        now=now,
        nodes=facts.nodes,
        pods={**facts.pods, **kept} if kept else facts.pods,
        gangs=facts.gangs,
        members={**facts.members, **{uid: pod.member for uid, pod in kept.items()}} if kept else facts.members,
        queues=facts.tree.nodes,
        parents=facts.tree.parents,
        budgets=facts.budgets,
        domains=facts.domains,
        placements=placements,
        rules=rules,
    )


@dataclass(frozen=True, slots=True)
class JudgedPlan:
    """Who is evicted for whom. `placed` are the missing members with the node that each is nominated to, `released` those that lose
    what they only had reserved or nominated."""

    asker: str
    """Key of the gang."""
    action: str
    placed: Mapping[str, str]
    victims: tuple[str, ...]
    released: tuple[str, ...] = ()
    undone: Mapping[str, Placement] = field(default_factory=dict)
    """Nominations of plans of this very cycle that were undone for this one, with their evictions, before it was made."""
    while_planned: Mapping[str, Placement] = field(default_factory=dict)
    """The placements that were changed by that, as they were while these plans stood."""
    begun: frozenset[str] = frozenset()
    """Keys of gangs of which the scheduler before this one evicted some members for this plan: what is left of them goes, too."""

    @property
    def gone(self) -> frozenset[str]:
        return frozenset(self.victims) | frozenset(self.released)


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule, by its name, and a sentence."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"
