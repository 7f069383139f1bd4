"""The evicting actions: which one serves an ask, and how a plan becomes nominations and evictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from muster.engine import explain
from muster.engine.attempt_budget import charge_search
from muster.engine.equal_gangs import equality_key
from muster.engine.evict.contested import contested, usable_domains
from muster.engine.evict.domain_order import BoundedDomain, domains_in_order, why_unreachable
from muster.engine.evict.domain_search import NO_BETTER_PLAN, plan_in_domain
from muster.engine.evict.eviction_history import paused_until
from muster.engine.evict.eviction_plan import NoPlan, Plan
from muster.engine.evict.eviction_policy import (
    GANG_PREEMPT,
    NO_LOWER_PRIORITY,
    PREEMPT,
    EvictionPolicy,
    EvictionRules,
    lower_priority_in_same_queue,
)
from muster.engine.evict.job_preempt import JOB_PREEMPT, why_may_not_preempt
from muster.engine.evict.plan_order import PlanKey
from muster.engine.evict.queue_shortfall import breaks_limit
from muster.engine.evict.reclaim import GANG_RECLAIM
from muster.engine.evict.role_shares import why_kept
from muster.engine.evict.single_node import plan_on_one_node
from muster.engine.evict.stale_gangs import STALE_GANGS, stale_gangs_for
from muster.engine.evict.unit_membership import has_unsent_plan
from muster.engine.evict.victim_search import ActionCache, EvictionAsk, nobody_eligible
from muster.engine.evict.victims import victim_table_of
from muster.engine.hooks import WHOLE_CLUSTER, AllowedDomains, Ask, Purpose
from muster.engine.nominations import members_needed, plan_name
from muster.engine.place import passes_filters, without_rows
from muster.engine.session import EvictionAttempt, Refusals, Session, UnsentPlan
from muster.engine.subgroup_search import allowed_domains
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang, MatchPolicy
from muster.model.pod import PLACED_OR_NOMINATED, Phase, Placement, Pod
from muster.model.topics import Topic
from muster.state.gangs.gang_stage import count, has_minimum, is_running, phases_that_count, reaches_min
from muster.state.gangs.subgroups import has_subgroups, in_phases
from muster.state.memory import ActivePlan
from muster.state.trial import Trial

PREEMPTED = "Preempted"
BEYOND_ITS_QUOTA = "a job must be within the bounds of its quota before pods are evicted for it"


def evict_for_refused(s: Session, refusals: Refusals, *, policy: EvictionPolicy) -> None:
    """Plans for the gangs that were refused in this cycle for lack of capacity, in their order, one each at most."""
    cache = ActionCache()
    for key, refusal in list(refusals.items()):
        gang = s.world.facts.gangs[key]
        if s.may_search is not None and not s.may_search(key):
            continue
        if action_for(s, gang) == policy.name or policy is GANG_RECLAIM:
            if (plan := _plan_for(s, gang, policy, cache, refusal)) is not None:
                del refusals[key]
                cache.forget_refusals()
                commit_plan(s, gang, plan, policy, refusal)
    if policy.name == [name for name in s.policy.actions if name in EVICTION_POLICIES][-1]:
        _evict_stale_gangs(s, refusals)


def could_have_evicted(s: Session, gang: Gang, holder: Gang, nominations: Sequence[tuple[Pod, str]]) -> bool:
    """Could the gang have another one evicted, were it bound on these nodes? By whom and whose shares it may take from alone."""
    if why_may_not_preempt(s, gang):
        return False
    queues = {role.queue for role in gang.roles}
    if queues == {role.queue for role in holder.roles} and len(queues) == 1:
        return gang.priority > holder.priority and action_for(s, gang) in s.policy.actions
    policies = [_OF_ACTIONS[name] for name in (action_for(s, gang), GANG_RECLAIM.name) if name in s.policy.actions]
    if any(s.world.facts.members[pod.uid].queue not in queues for pod, _ in nominations):
        policies = [policy for policy in policies if not policy.is_preempting]
    return any(_may_take_all(s, gang, holder, nominations, policy) for policy in policies)


def _may_take_all(s: Session, gang: Gang, holder: Gang, nominations: Sequence[tuple[Pod, str]], policy: EvictionPolicy) -> bool:
    ask = Ask(gang, preemptor_pods(s, gang), Purpose.EVICT, policy.name)
    if not ask.pods:
        return False
    pods = [pod for pod, _ in nominations]
    with s.trial("simulated", cause="Simulated") as trial:
        _nominate_all(trial, nominations)
        rules = policy.rules(s, ask, victim_table_of(s.world), contested(s, ask, usable_domains(s, ask)))
        if not rules.allows_eviction(pods, priority=holder.priority).ok:
            return False
    with s.trial("simulated", cause="Simulated") as trial:
        _nominate_all(trial, [(pod, nominations[0][1]) for pod in ask.pods])
        return rules.allows_plan([pods]).ok


def _nominate_all(trial: Trial, nominations: Sequence[tuple[Pod, str]]) -> None:
    members = trial.world.facts.members
    for _, equal in groupby(nominations, key=lambda each: (each[0].signature, members[each[0].uid])):
        some = list(equal)
        trial.place_many([pod for pod, _ in some], [node for _, node in some], phase=Phase.NOMINATED)


def _evict_stale_gangs(s: Session, refusals: Refusals) -> None:
    """Gangs that cannot complete make way for those of their priority that no action had a plan for."""
    for key, refusal in list(refusals.items()) if s.world.memory.below_min_since else ():
        gang = s.world.facts.gangs[key]
        if not refusal.curable or why_may_not_preempt(s, gang) or paused_until(s, gang) > s.now or not stale_gangs_for(s, gang):
            continue
        ask = Ask(gang, preemptor_pods(s, gang), Purpose.EVICT, STALE_GANGS.name)
        if not ask.pods or not s.admit(ask).ok:
            continue
        plan = _find_plan(s, ask, STALE_GANGS, ActionCache())
        if isinstance(plan, Plan):
            del refusals[key]
            commit_plan(s, gang, plan, STALE_GANGS, refusal)


def action_for(s: Session, gang: Gang) -> str:
    """The action that serves this gang: the first that fits it, of those that the policy has."""
    wanted = GANG_PREEMPT
    if any(role.queue.startswith("quota/") for role in gang.roles):
        wanted = JOB_PREEMPT
    elif gang.is_single_pod or _is_scheduled_per_pod(s, gang):
        wanted = PREEMPT
    return wanted.name if wanted.name in s.policy.actions else GANG_PREEMPT.name


def _plan_for(s: Session, gang: Gang, policy: EvictionPolicy, cache: ActionCache, refusal: Verdict) -> Plan | None:
    """A plan for a gang that was refused; None, and the refusal says why not, where there is none."""
    pods = preemptor_pods(s, gang)
    if not pods or not refusal.curable:
        return None
    if barred := why_may_not_preempt(s, gang):
        _report_refusal(s, gang, refusal, barred)
        return None
    paused = paused_until(s, gang)
    if paused > s.now:
        why = f"it was evicted itself and may have others evicted again in {paused - s.now:.0f} s"
        _report_refusal(s, gang, refusal, why, Verdict(ok=False, at=paused))
        return None
    ask = Ask(gang, pods, Purpose.EVICT, policy.name)
    verdict = s.admit(ask)
    if not verdict.ok:
        # The refusal has the figures already.
        why = BEYOND_ITS_QUOTA if verdict.why.partition(" > ")[0] in refusal.why else verdict.why
        _report_refusal(s, gang, refusal, why, verdict)
        return None
    found = _find_plan(s, ask, policy, cache)
    if isinstance(found, Plan):
        return found
    topics = (Topic.BUDGETS.any,) if s.policy.checks_budgets else ()
    _report_refusal(s, gang, refusal, found.why, Verdict(ok=False, topics=topics, at=found.at))
    return None


def _find_plan(s: Session, ask: Ask, policy: EvictionPolicy, cache: ActionCache) -> Plan | NoPlan:
    """The best plan for the ask, on nodes that are kept for nobody before it."""
    s.left_out = s.kept.left_out(s.kept.closed_to(ask.gang)) if s.kept is not None else None
    # What asks share is not known of one that may use other nodes.
    found = _find_plan_anywhere(s, ask, policy, cache.without_nodes(s.left_out))
    s.left_out = None
    return found


def _find_plan_anywhere(s: Session, ask: Ask, policy: EvictionPolicy, cache: ActionCache) -> Plan | NoPlan:
    """Where there was no plan for an equal ask, and nobody moved since, there is none for this one."""
    key = equality_key(s, ask.gang)
    if key in cache.without_plan:
        return cache.without_plan[key]
    found, rules = _best_plan(s, ask, policy, cache)
    if s.unsent_plans and rules is not None:
        found = _plan_instead_of_others(s, ask, policy, rules, found) or found
    if key is not None and isinstance(found, NoPlan):
        cache.without_plan[key] = found
    return found


def _best_plan(s: Session, ask: Ask, policy: EvictionPolicy, cache: ActionCache) -> tuple[Plan | NoPlan, EvictionRules | None]:
    """The best plan for the ask, and the rules of whom it may evict, if there is anybody at all. A gang that is scheduled pod by
    pod is served so: the first member for which there is a plan."""
    queues = {role.queue for role in ask.gang.roles}
    if policy.is_preempting and not lower_priority_in_same_queue(s, ask, victim_table_of(s.world), queues).any():
        return NoPlan(NO_LOWER_PRIORITY), None
    asks = [replace(ask, pods=(pod,)) for pod in ask.pods] if policy is PREEMPT else [ask]
    found: Plan | NoPlan = NoPlan("no member needs a node")
    rules: EvictionRules | None = None
    for each in asks:
        eviction_ask = EvictionAsk(
            s, each, policy, contested(s, each, usable_domains(s, each)), cache, s.policy.settings.max_placements
        )
        found, rules = _search_domains(eviction_ask), eviction_ask.rules
        if isinstance(found, Plan):
            break
        found = NoPlan(why_kept(s, each, rules, eviction_ask.contested) or found.why, found.at)
        charge_search(s, ask.gang, placements=s.policy.settings.max_placements - eviction_ask.placements_left)
    return found, rules


def _plan_instead_of_others(
    s: Session, ask: Ask, policy: EvictionPolicy, rules: EvictionRules, beside: Plan | NoPlan
) -> Plan | None:
    """A better plan in place of plans of this very cycle whose gangs it could evict: it starts from a world in which nobody was
    evicted for them. `beside`: what was found with these plans standing."""
    losers = _could_end(s, rules)
    if not losers:
        return None
    released = f"released for {ask.gang.full_name}"
    whys = {key: f"{released}: {rules.why_evicted(s.world.facts.gangs[key].pods()[0])}" for key in losers}
    ended = [pod for key in losers for pod in _nominated(s, key)]
    with s.trial(released, cause=policy.name, for_gang=ask.gang.full_name) as trial:
        for key in losers:
            _undo_plan(s, trial, key)
        mark_unsent(s, losers, unsent=False)
        found = _plan_without(s, ask, policy, ended)
        # The last key is the order of units, which are not the same ones.
        if found is None or (isinstance(beside, Plan) and beside.key[:-1] <= found.key[:-1]):
            mark_unsent(s, losers, unsent=True)
            return None
        trial.commit()
    for key in losers:
        del s.unsent_plans[key]
        s.record_verdict(s.world.facts.gangs[key], Verdict(ok=False, why=whys[key], code=PREEMPTED, at=s.now))
    return found


def mark_unsent(s: Session, keys: Sequence[str], *, unsent: bool) -> None:
    """Note which of these gangs have a plan that was not sent yet."""
    victim_table = victim_table_of(s.world)
    has_unsent_plan(s, victim_table)[[victim_table.gang_number[key] for key in keys]] = unsent


def _could_end(s: Session, rules: EvictionRules) -> list[str]:
    """Gangs that got a plan in this cycle and that the ask could evict, were they bound."""
    victim_table, eligible = victim_table_of(s.world), rules.eligible
    if not (eligible & has_unsent_plan(s, victim_table)[: len(eligible)]).any():
        return []
    numbers = victim_table.gang_number
    known = [key for key in s.unsent_plans if numbers.get(key, len(eligible)) < len(eligible) and eligible[numbers[key]]]
    gangs = s.world.facts.gangs
    return [key for key in known if rules.allows_eviction(_nominated(s, key), priority=gangs[key].priority).ok]


def _plan_without(s: Session, ask: Ask, policy: EvictionPolicy, ended: Sequence[Pod]) -> Plan | None:
    """The best plan where these nominations have ended. Of the gang's own members some may have been evicted for them: it needs
    fewer now."""
    pods = preemptor_pods(s, ask.gang)
    found, rules = _best_plan(s, replace(ask, pods=pods), policy, ActionCache()) if pods else (NoPlan(""), None)
    return found if isinstance(found, Plan) and rules is not None and _may_end(s, rules, found, ended) else None


def _nominated(s: Session, key: str) -> list[Pod]:
    return [pod for pod in s.world.facts.gangs[key].pods() if s.world.phase(pod) is Phase.NOMINATED]


def _may_end(s: Session, rules: EvictionRules, plan: Plan, ended: Sequence[Pod]) -> bool:
    """Is the asking gang entitled to the finished plan, counting the nominations that end for it like victims?"""
    with s.trial("simulated", cause="Simulated") as trial:
        for pod in plan.victims:
            trial.evict(pod)
        for pod in plan.released:
            trial.release(pod)
        for pod, placement in plan.placements:
            trial.restore(pod, placement)
        units: dict[str, list[Pod]] = {}
        for pod in (*plan.victims, *plan.released, *ended):
            units.setdefault(s.world.facts.members[pod.uid].gang, []).append(pod)
        return rules.allows_plan(list(units.values())).ok


def _undo_plan(s: Session, trial: Trial, key: str) -> None:
    for pod in _nominated(s, key):
        trial.release(pod)
    for pod, placement in s.unsent_plans[key].victims:
        trial.restore(pod, placement)
    for name in [name for name, plan in s.world.memory.plans.items() if plan.gang == key and plan.since == s.now]:
        s.world.memory.plans.drop(name)
    for uid, move in s.world.memory.moves.items():
        if move.plan == s.unsent_plans[key].name:
            trial.release(move.reserve)
            s.world.memory.moves.drop(uid)


def _search_domains(eviction_ask: EvictionAsk) -> Plan | NoPlan:
    """The best plan of the domains that the ask may use, or why there is none."""
    s, ask = eviction_ask.s, eviction_ask.ask
    where = allowed_domains(s, ask)
    domains = without_rows(where.domains, s.left_out)
    if not domains:
        return _no_domain(where)
    order = domains_in_order(eviction_ask, domains)
    if not order:
        return why_unreachable(eviction_ask, domains)
    whys: list[str] = []
    times: list[float] = []
    plans: list[Plan] = []
    most, shown = _most_domains(s, ask.gang)
    searched, decides = 0, True
    for each in order:
        best = min((plan.key for plan in plans), default=None)
        decides = decides and not _is_found(best, each, searched=searched, most=most)
        if not decides and searched >= shown:
            break
        found = _plan_in(eviction_ask, each, best=None if shown else best)
        searched += isinstance(found, Plan) or found is NO_BETTER_PLAN
        s.eviction_attempts.append(EvictionAttempt(ask.gang.key, eviction_ask.policy.name, each.domain.name, found, decides))
        if isinstance(found, Plan):
            plans.extend([found] * decides)
            continue
        whys.append(found.why if each.domain.name == WHOLE_CLUSTER.name else f"{each.domain.name}: {found.why}")
        times.extend([] if found.at is None else [found.at])
    if plans:
        return min(plans, key=lambda plan: plan.key)
    return NoPlan("; ".join(dict.fromkeys(whys)), min(times, default=None))


def _most_domains(s: Session, gang: Gang) -> tuple[int, int]:
    """In how many a plan is made at most, and in how many for a person who asks."""
    most = 1 if s.policy.settings.evict_domains == "first" else s.policy.settings.max_evict_domains
    return most, most + _SHOWN if gang.key in s.shows_all_domains else 0


def _is_found(best: PlanKey | None, each: BoundedDomain, *, searched: int, most: int) -> bool:
    """Whether the plan is chosen: enough domains were searched, or none that is left can have a better one."""
    return best is not None and (searched >= most or best[: len(each.bound)] < each.bound)


def _no_domain(where: AllowedDomains) -> NoPlan:
    return NoPlan(where.verdict.why or explain.ALL_KEPT)


def _plan_in(eviction_ask: EvictionAsk, where: BoundedDomain, *, best: PlanKey | None) -> Plan | NoPlan:
    """For one pod every node is a domain of its own; where its queue is full, pods of the queue on other nodes count, too."""
    if not eviction_ask.rules.eligible.any():
        return nobody_eligible(eviction_ask, where.domain)
    if len(eviction_ask.ask.pods) > 1 or eviction_ask.s.policy.selects_victims:
        return plan_in_domain(eviction_ask, where.domain, bound=where.bound, best=best)
    found = plan_on_one_node(eviction_ask, where.domain)
    if not breaks_limit(eviction_ask) and not eviction_ask.rules.needs_other_nodes():
        return found
    anywhere = plan_in_domain(eviction_ask, where.domain)
    if isinstance(found, NoPlan) or (isinstance(anywhere, Plan) and anywhere.key < found.key):
        return anywhere
    return found


def preemptor_pods(s: Session, gang: Gang) -> tuple[Pod, ...]:
    """The members that pods are evicted for: what the minimums lack. Those above them wait for free capacity. Bound members count,
    whatever the match policy says of those that come after them."""
    if has_minimum(s.world, gang, PLACED_OR_NOMINATED):
        return ()
    pods = members_needed(s.world, gang)
    return pods if _is_scheduled_per_pod(s, gang) or _complete(s, gang, pods) else ()


def _complete(s: Session, gang: Gang, pods: Sequence[Pod]) -> bool:
    """Would every minimum be met with these members? Where others that are needed do not exist, nodes are of no use."""
    phases = phases_that_count(s.world, gang, PLACED_OR_NOMINATED)
    counts = {role.name: count(s.world, role, phases) + role.succeeded for role in gang.roles}
    for pod in pods:
        counts[s.world.facts.members[pod.uid].role] += 1
    if sum(counts.values()) < gang.min or any(counts[role.name] < role.min for role in gang.roles):
        return False
    placed, added = in_phases(s.world, phases), {pod.uid for pod in pods}
    return has_subgroups(gang, lambda uid: uid in added or placed(uid))


def _is_scheduled_per_pod(s: Session, gang: Gang) -> bool:
    return gang.match_policy is MatchPolicy.ONCE_SATISFIED and is_running(s.world, gang)


def _report_refusal(s: Session, gang: Gang, refusal: Verdict, why: str, verdict: Verdict | None = None) -> None:
    """Add to a refusal why no pod can be evicted either."""
    at = verdict.at if verdict is not None else None
    own = [Topic.QUEUE_CAPACITY.of(key) for role in gang.roles for key in s.world.ledger.path(role.queue)[:-1]]
    # Others may grow over their share, or this one fall below its own: then there may be evictable pods after all.
    usage = (*own, Topic.QUEUE_USAGE.any, Topic.QUEUES.any, Topic.EVICTABLE.any)
    if s.policy.settings.reclaim_for == "fairShare":
        usage = (*usage, Topic.DEMAND.any)
    topics = tuple(dict.fromkeys((*refusal.topics, *(verdict.topics if verdict is not None else ()), *usage)))
    both = replace(refusal, why=f"{refusal.why}; no pod is evicted for it: {why}", topics=topics, at=at or refusal.at)
    s.record_verdict(gang, both)


def commit_plan(s: Session, gang: Gang, plan: Plan, policy: EvictionPolicy, refusal: Verdict) -> None:
    """Nominations first, then evictions: decided as one. Where no pod has to be evicted any more, the gang is bound at once."""
    s.why_without_eviction[gang.key] = refusal.why
    evicted_for = "reclaimed for" if policy is GANG_RECLAIM else "preempted for"
    whys = [f"{evicted_for} {gang.full_name}: {plan.why_evicted(pod)}" for pod in plan.victims]
    _release_reservations(s, gang, plan, policy)
    if not plan.victims and _bind_now(s, gang, plan):
        s.record_verdict(gang, _surplus_verdict(s, gang))
        return
    name = plan_name(s, gang)
    victims = tuple(pod.uid for pod in plan.victims)
    soft = s.policy.manner(policy.name) == "soft"
    s.world.memory.plans.set(name, ActivePlan(gang.key, victims, s.now, policy.name, soft=soft))
    evicted = explain.plural(len(victims), "pod is evicted", "pods are evicted")
    why = f"{evicted} for it; without that, {refusal.why}" if victims else "the capacity that it needs is being released"
    went = tuple((pod, s.world.placement(pod)) for pod in plan.victims)
    s.unsent_plans[gang.key] = UnsentPlan(name, policy.name, went, plan.crossing)
    with s.trial(why, cause=policy.name, for_gang=gang.full_name) as trial:
        for pod, placement in plan.placements:
            trial.restore(pod, Placement(Phase.NOMINATED, placement.node, s.now, placement.devices, name))
        trial.commit()
    for pod, evicted_because in zip(plan.victims, whys, strict=True):
        with s.trial(evicted_because, cause=policy.name, for_gang=gang.full_name) as trial:
            trial.evict(pod)
            trial.commit()
    mark_unsent(s, [gang.key], unsent=True)
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
    for pod, why in [(pod, f"released for {gang.full_name}: {plan.why_evicted(pod)}") for pod in plan.released]:
        with s.trial(why, cause=policy.name, for_gang=gang.full_name) as trial:
            trial.release(pod)
            trial.commit()
        loser = s.world.gang_of(pod)
        if loser is not None:
            s.record_verdict(loser, Verdict(ok=False, why=why, code=PREEMPTED, at=s.now))


_SHOWN = 12
"""So many more plans than the decision needs are made to be shown to a person who asks."""
_OF_ACTIONS = {policy.name: policy for policy in (PREEMPT, GANG_PREEMPT, JOB_PREEMPT, GANG_RECLAIM)}
EVICTION_POLICIES = {**_OF_ACTIONS, STALE_GANGS.name: STALE_GANGS}
EVICT_ACTIONS: dict[str, Callable[[Session, Refusals], None]] = {
    name: partial(evict_for_refused, policy=policy) for name, policy in _OF_ACTIONS.items()
}
