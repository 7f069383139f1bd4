"""What a gang lost by evictions: so that evictions do not breed evictions, and the same gang is not the victim again and again.

Kept by the controller of the gang's PodGroup or of its oldest pod, so that what is re-created under another name has the same
history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from muster.engine.evict.victims import VictimTable
from muster.engine.session import Session, UnsentPlan
from muster.model.gang import Gang, MatchPolicy
from muster.model.pod import Placement, Pod
from muster.model.saved_state import Losses
from muster.model.topics import Topic
from muster.state.derived.gangs_by import GangsBy, gangs_by
from muster.state.derived_values import Derived
from muster.state.memory import PlanLosses

MAX_CROSSINGS = 3
"""In so many plans for the same gang another one may lose pods that bring a queue below its share, or that it has borrowed as the
other does."""

KEPT_PLANS = 4
"""So many names of plans are kept, so that none is counted twice after a crash."""

RECLAIMING = frozenset({"gang-reclaim", "stale-gangs", "consolidate"})
"""Actions whose plans make the minimum run time of their victims longer."""


def history_key(s: Session, gang: Gang) -> str:
    """By the controller of its PodGroup or of its oldest pod, or else by its name. Anybody may name the controller of others as the
    owner of what she makes, so it counts within its namespace alone."""
    for role in gang.roles:
        group = s.world.facts.groups.get(role.group)
        if group is not None and group.controller:
            return f"{_namespace(role.group.partition(':')[2])}/{group.controller}"
    oldest = min(gang.pods(), key=lambda pod: (pod.created, pod.full_name), default=None)
    if oldest is not None and oldest.controller:
        return f"{oldest.namespace}/{oldest.controller}"
    return f"{gang.flavour.family}:{gang.full_name}"


def _namespace(full_name: str) -> str:
    return full_name.partition("/")[0]


def losses_of(s: Session, gang: Gang) -> Losses:
    known = s.world.memory.losses.get(history_key(s, gang))
    return known if known is not None else Losses(_namespace(gang.full_name))


def gang_losses(s: Session, victim_table: VictimTable) -> list[tuple[int, Losses]]:
    """The gangs of the victim table that lost anything, by number. Most clusters have few of them."""
    if not len(s.world.memory.losses):
        return []
    found = _LOSSES_BY_GANG.of(s.world, lambda: _losses_by_gang(s))
    return [(victim_table.gang_number[key], losses) for key, losses in found if key in victim_table.gang_number]


_LOSSES_BY_GANG: Derived[list[tuple[str, Losses]]] = Derived("losses by gang", Topic.CYCLE)
"""What was lost is recorded when a cycle ends, so this holds for the whole cycle."""


def _losses_by_gang(s: Session) -> list[tuple[str, Losses]]:
    gangs = gangs_by_history(s)
    known = [(key, losses) for key, losses in s.world.memory.losses.items() if key in gangs]
    return [(gang, losses) for key, losses in known for gang in sorted(gangs[key])]


def crossed_often(s: Session, asker: Gang, victim_table: VictimTable) -> set[int]:
    """Gangs, by number, that lost pods in this way in so many plans for the asking one that they do no more."""
    by = history_key(s, asker)
    return {number for number, losses in gang_losses(s, victim_table) if dict(losses.crossings).get(by, 0) >= MAX_CROSSINGS}


def crossing_history(s: Session, gang: Gang) -> str:
    """The history of a gang for which queues were taken below their shares; empty where none was."""
    askers = _CROSSING_ASKERS.of(s.world, lambda: {by for losses in s.world.memory.losses.values() for by, _ in losses.crossings})
    return found if askers and (found := history_key(s, gang)) in askers else ""


_CROSSING_ASKERS: Derived[set[str]] = Derived("histories of gangs for which queues crossed their shares", Topic.CYCLE)


_BY_HISTORY: Derived[GangsBy] = Derived("gangs by history", follows=Topic.GANGS)


def gangs_by_history(s: Session) -> dict[str, set[str]]:
    """The gangs that share a history, by its key."""
    return gangs_by(_BY_HISTORY, s.world, lambda gang: history_key(s, gang))


def record_evictions(s: Session) -> None:
    """Remember who was evicted in this cycle, once for each plan."""
    record_plans(s, s.unsent_plans.items())


def record_plans(s: Session, plans: Iterable[tuple[str, UnsentPlan]]) -> None:
    """Remember who was evicted for these plans, by the gangs that they are for. What is counted already is not counted again."""
    plans = [(asker, plan) for asker, plan in plans if plan.victims]
    if not plans:
        return
    live = Counter((pod.namespace, pod.controller) for pod in s.world.facts.pods.values() if pod.controller)
    for asker, plan in plans:
        by_gang: dict[str, list[tuple[Pod, Placement]]] = {}
        for pod, placement in plan.victims:
            member = s.world.facts.members.get(pod.uid)
            if member is not None and member.gang in s.world.facts.gangs:
                by_gang.setdefault(member.gang, []).append((pod, placement))
        for key, lost in by_gang.items():
            gang = s.world.facts.gangs[key]
            # Single pods of one controller share its history: each of them counts for its part only.
            live_pods = live[lost[0][0].namespace, lost[0][0].controller] if gang.is_single_pod else 1
            crosses_for = history_key(s, s.world.facts.gangs[asker]) if key in plan.crossing else ""
            _record(s, gang, lost, plan, part=1.0 / max(1, live_pods), crosses_for=crosses_for)


def _record(s: Session, gang: Gang, lost: list[tuple[Pod, Placement]], plan: UnsentPlan, *, part: float, crosses_for: str) -> None:
    key, before = history_key(s, gang), losses_of(s, gang)
    if plan.name in before.plans:
        return
    s.world.memory.losses.set(key, replace(before, plans=(*before.plans, plan.name)[-KEPT_PLANS:]))
    hours = tuple((pod.uid, pod.hours_lost(since=was.since, now=s.now) / max(1, gang.size) * part) for pod, was in lost)
    per_pod = gang.size if gang.match_policy is MatchPolicy.ONCE_SATISFIED else 0
    s.world.memory.count_losses(
        PlanLosses(
            key=key,
            hours=hours,
            min=gang.min,
            per_pod=per_pod,
            part=part,
            reclaims=plan.action in RECLAIMING,
            moves=plan.action == "consolidate",
            at=s.now,
            before=before,
            crosses_for=crosses_for,
        )
    )


def paused_until(s: Session, gang: Gang) -> float:
    """From when on a gang that was evicted may have others evicted: the pause doubles with each of its evictions."""
    losses, settings = losses_of(s, gang), s.policy.settings
    if _is_evicted_now(s, gang):
        losses = replace(losses, evictions=losses.evictions + 1.0, evicted_at=s.now)
    if losses.evictions <= 0:
        return s.now
    doubled = settings.eviction_pause_s * 2.0 ** max(0.0, min(losses.evictions, 64.0) - 1.0)
    return float(losses.evicted_at + min(doubled, settings.max_eviction_pause_s))


def _is_evicted_now(s: Session, gang: Gang) -> bool:
    """Does a plan of this very cycle, which is recorded when the cycle ends, evict the gang?"""
    if not any(pod.uid in s.world.placements.releasing for pod in gang.pods()):
        return False
    lost = (sum(s.world.gang_of(pod) is gang for pod, _ in plan.victims) for plan in s.unsent_plans.values())
    return any(count >= max(1, gang.min) for count in lost)
