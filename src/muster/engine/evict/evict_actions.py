"""The evicting actions: which one serves an ask, and how a plan becomes nominations and evictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from muster.engine import explain
from muster.engine.evict.domain_search import plan_in_domain
from muster.engine.evict.eviction_plan import NoPlan, Plan
from muster.engine.evict.eviction_policy import GANG_PREEMPT, PREEMPT, EvictionPolicy
from muster.engine.evict.job_preempt import JOB_PREEMPT, why_may_not_preempt
from muster.engine.evict.reclaim import GANG_RECLAIM
from muster.engine.evict.single_node import plan_on_one_node
from muster.engine.evict.victim_search import ActionCache
from muster.engine.hooks import Ask, Domain, Purpose
from muster.engine.nominations import members_needed, plan_name
from muster.engine.place import passes_filters
from muster.engine.session import EvictionAttempt, Refusals, Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang, MatchPolicy
from muster.model.pod import PLACED_OR_NOMINATED, Phase, Placement, Pod
from muster.model.topics import Topic
from muster.state.gangs.gang_stage import is_satisfied, reaches_min
from muster.state.memory import ActivePlan


def evict_for_refused(s: Session, refusals: Refusals, *, policy: EvictionPolicy) -> None:
    """Plans for the gangs that were refused in this cycle for lack of capacity, in their order, one each at most."""
    cache = ActionCache()
    for key, refusal in list(refusals.items()):
        gang = s.world.facts.gangs[key]
        if action_for(s, gang) == policy.name or policy is GANG_RECLAIM:
            if (plan := _plan_for(s, gang, policy, cache, refusal)) is not None:
                del refusals[key]
                commit_plan(s, gang, plan, policy, refusal)


def action_for(s: Session, gang: Gang) -> str:
    """The action that serves this gang: the first that fits it, of those that the policy has."""
    wanted = GANG_PREEMPT
    if gang.queue.startswith("quota/"):
        wanted = JOB_PREEMPT
    elif (gang.min == 1 and gang.size == 1 and gang.is_single_pod) or _is_scheduled_per_pod(s, gang):
        wanted = PREEMPT
    return wanted.name if wanted.name in s.policy.actions else GANG_PREEMPT.name


def _plan_for(s: Session, gang: Gang, policy: EvictionPolicy, cache: ActionCache, refusal: Verdict) -> Plan | None:
    """A plan for a gang that was refused; None, and the refusal says why not, where there is none."""
    never = "its preemption policy is Never" if gang.never_preempts else ""
    barred = why_may_not_preempt(s, gang) if gang.queue.startswith("quota/") else never
    if barred:
        _report_refusal(s, gang, refusal, barred)
        return None
    pods = preemptor_pods(s, gang)
    if not pods or not refusal.curable:
        return None
    ask = Ask(gang, pods, Purpose.EVICT, policy.name)
    verdict = s.admit(ask)
    if not verdict.ok:
        _report_refusal(s, gang, refusal, verdict.why, verdict)
        return None
    found = _search_domains(s, ask, policy, cache)
    if isinstance(found, Plan):
        return found
    topics = (Topic.BUDGETS.any,) if s.policy.checks_budgets else ()
    _report_refusal(s, gang, refusal, found.why, Verdict(ok=False, topics=topics, at=found.at))
    return None


def _search_domains(s: Session, ask: Ask, policy: EvictionPolicy, cache: ActionCache) -> Plan | NoPlan:
    """The plan of the first domain that has one, or why none has."""
    where = s.where(ask)
    whys = [] if where.domains else [where.verdict.why]
    times: list[float] = []
    best: Plan | None = None
    for domain in where.domains:
        found = _find_plan(s, ask, policy, domain, cache)
        s.eviction_attempts.append(EvictionAttempt(ask.gang.key, policy.name, domain.name, found))
        if isinstance(found, Plan):
            best = best or found
            if not s.tries_all_domains:
                break
            continue
        whys.append(found.why if domain.rows is None else f"{domain.name}: {found.why}")
        times.extend([] if found.at is None else [found.at])
    return best or NoPlan("; ".join(dict.fromkeys(whys)) or "no domain of the cluster is allowed", min(times, default=None))


def _find_plan(s: Session, ask: Ask, policy: EvictionPolicy, domain: Domain, cache: ActionCache) -> Plan | NoPlan:
    """One pod after the other where pods are served singly, the whole ask otherwise."""
    if policy is not PREEMPT:
        return plan_in_domain(s, ask, policy, domain, cache)
    found: Plan | NoPlan = NoPlan("no member needs a node")
    for pod in ask.pods:
        found = plan_on_one_node(s, replace(ask, pods=(pod,)), policy, domain, cache)
        if isinstance(found, Plan):
            break
    return found


def preemptor_pods(s: Session, gang: Gang) -> tuple[Pod, ...]:
    """The members that pods are evicted for: what the minimums lack; all pending ones where the gang is scheduled pod by pod."""
    if _is_scheduled_per_pod(s, gang):
        return tuple(pod for pod in gang.pods() if pod.uid not in s.world.placements.by_uid)
    return () if reaches_min(s.world, gang, PLACED_OR_NOMINATED) else members_needed(s.world, gang)


def _is_scheduled_per_pod(s: Session, gang: Gang) -> bool:
    return gang.match_policy is MatchPolicy.ONCE_SATISFIED and is_satisfied(s.world, gang)


def _report_refusal(s: Session, gang: Gang, refusal: Verdict, why: str, verdict: Verdict | None = None) -> None:
    """Add to a refusal why no pod can be evicted either."""
    at = verdict.at if verdict is not None else None
    own = [Topic.QUEUE_CAPACITY.of(key) for role in gang.roles for key in s.world.ledger.path(role.queue)[:-1]]
    # Others may grow over their share, or this one fall below its own: then there may be evictable pods after all.
    usage = (*own, Topic.QUEUE_USAGE.any, Topic.QUEUES.any)
    topics = tuple(dict.fromkeys((*refusal.topics, *(verdict.topics if verdict is not None else ()), *usage)))
    both = replace(refusal, why=f"{refusal.why}; no pod is evicted for it: {why}", topics=topics, at=at or refusal.at)
    s.record_verdict(gang, both)


def commit_plan(s: Session, gang: Gang, plan: Plan, policy: EvictionPolicy, refusal: Verdict) -> None:
    """Nominations first, then evictions: decided as one. Where no pod has to be evicted any more, the gang is bound at once."""
    s.why_without_eviction[gang.key] = refusal.why
    _release_reservations(s, gang, plan, policy)
    if not plan.victims and _bind_now(s, gang, plan):
        s.record_verdict(gang, _surplus_verdict(s, gang))
        return
    name = plan_name(s, gang)
    victims = tuple(pod.uid for pod in plan.victims)
    soft = s.policy.manner(policy.name) == "soft"
    s.world.memory.plans.set(name, ActivePlan(gang.key, len(plan.placements), victims, s.now, soft=soft))
    evicted = explain.plural(len(victims), "pod is evicted", "pods are evicted")
    why = f"{evicted} for it; without that, {refusal.why}" if victims else "the capacity that it needs is being released"
    with s.trial(why, cause=policy.name, for_gang=gang.full_name) as trial:
        for pod, placement in plan.placements:
            trial.restore(pod, Placement(Phase.NOMINATED, placement.node, s.now, placement.devices, name))
        trial.commit()
    for pod in plan.victims:
        with s.trial(_eviction_message(s, gang, pod, policy), cause=policy.name, for_gang=gang.full_name) as trial:
            trial.evict(pod)
            trial.commit()
    s.record_verdict(gang, explain.waiting_for_preemption(s.world, gang))
    s.count(policy.name)


def _bind_now(s: Session, gang: Gang, plan: Plan) -> bool:
    """What others had only reserved may be enough, if no other pod has to terminate first."""
    table = s.world.table
    with s.trial("others released what they had only reserved", cause="Fits", for_gang=gang.full_name) as trial:
        for pod, placement in plan.placements:
            # Its queue may still be charged for terminating pods, even where its node is not.
            if not s.quota_fit(pod, count=1, phase=Phase.BINDING).fit_count:
                return False
            trial.restore(pod, Placement(Phase.BINDING, placement.node, s.now, placement.devices))
        rows = [table.row[placement.node or ""] for _, placement in plan.placements]
        if (table.used[rows] > table.allocatable[rows]).any() or not reaches_min(s.world, gang):
            return False
        if not all(passes_filters(s, pod) for pod, _ in plan.placements):
            return False
        trial.commit()
    return True


def _surplus_verdict(s: Session, gang: Gang) -> Verdict:
    """Pods are evicted for the minimum only: members above it need free capacity, in the next attempt."""
    waiting = s.world.placements.unplaced_members.get(gang.key, 0)
    if not waiting:
        return YES
    why = f"its minimum has nodes; {explain.plural(waiting, 'member above it waits', 'members above it wait')} for the next attempt"
    return Verdict(ok=False, why=why, code=explain.NEXT_CYCLE, at=s.now)


def _release_reservations(s: Session, gang: Gang, plan: Plan, policy: EvictionPolicy) -> None:
    """Pods that only lose a reservation, or what this very cycle gave them, are pending again, with the reason."""
    why = f"released for {gang.full_name}"
    for pod in plan.released:
        with s.trial(why, cause=policy.name, for_gang=gang.full_name) as trial:
            trial.release(pod)
            trial.commit()
        loser = s.world.gang_of(pod)
        if loser is not None:
            s.record_verdict(loser, Verdict(ok=False, why=why, code="Preempted", at=s.now))


def _eviction_message(s: Session, gang: Gang, victim: Pod, policy: EvictionPolicy) -> str:
    loser = s.world.gang_of(victim)
    priority = loser.priority if loser is not None else victim.priority
    verb = "reclaimed" if policy is GANG_RECLAIM else "preempted"
    return f"{verb} for {gang.full_name}: priority {priority} against {gang.priority}"


EVICT_ACTIONS: dict[str, Callable[[Session, Refusals], None]] = {
    policy.name: partial(evict_for_refused, policy=policy) for policy in (PREEMPT, GANG_PREEMPT, JOB_PREEMPT, GANG_RECLAIM)
}
