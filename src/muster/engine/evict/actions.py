"""The evicting actions: who asks, which action serves it, and how a plan becomes claims and evictions."""

from __future__ import annotations

from dataclasses import replace

from muster.engine import explain
from muster.engine.claims import needed, plan_name
from muster.engine.evict.job import JOB_PREEMPT, may_trigger
from muster.engine.evict.onenode import plan_on_one_node
from muster.engine.evict.policy import GANG_PREEMPT, PREEMPT, EvictionPolicy
from muster.engine.evict.reclaim import GANG_RECLAIM
from muster.engine.evict.search import NoPlan, Plan, plan_in
from muster.engine.hooks import Ask, Domain, Purpose
from muster.engine.place import is_clear
from muster.engine.session import Session, Tried
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang, MatchPolicy
from muster.model.pod import PROMISED, Phase, Placement, Pod
from muster.model.topics import Topic
from muster.state.lifecycle import is_satisfied, reaches_min
from muster.state.memory import PlanNote

ONE, GANG, RECLAIM, JOB = "preempt", "gang-preempt", "gang-reclaim", "job-preempt"


def gang_preempt(s: Session) -> None:
    serve(s, GANG_PREEMPT)


def job_preempt(s: Session) -> None:
    serve(s, JOB_PREEMPT)


def gang_reclaim(s: Session) -> None:
    serve(s, GANG_RECLAIM)


def preempt(s: Session) -> None:
    serve(s, PREEMPT)


def serve(s: Session, policy: EvictionPolicy) -> None:
    """Plans for the gangs that were refused in this cycle for lack of room, in their order, one each at most."""
    for key in list(s.refused):
        gang = s.world.facts.gangs[key]
        if action_for(s, gang) == policy.name or policy.name == RECLAIM:
            _serve_one(s, gang, policy)


def action_for(s: Session, gang: Gang) -> str:
    """Which action serves this ask: the first that fits it, of those that the policy has."""
    wanted = GANG
    if gang.queue.startswith("quota/"):
        wanted = JOB
    elif (gang.min == 1 and gang.size == 1 and gang.is_lone) or (
        gang.match is MatchPolicy.ONCE_SATISFIED and is_satisfied(s.world, gang)
    ):
        wanted = ONE
    return wanted if wanted in s.policy.actions else GANG


def _serve_one(s: Session, gang: Gang, policy: EvictionPolicy) -> None:
    refusal = s.refused[gang.key]
    barred = may_trigger(s, gang) if gang.queue.startswith("quota/") else "its preemption policy is Never" * gang.never_preempts
    if barred:
        _say(s, gang, refusal, barred)
        return
    pods = demand(s, gang)
    if not pods or not refusal.curable:
        return
    ask = Ask(gang, pods, Purpose.EVICT, policy.name)
    verdict = s.admit(ask)
    if not verdict.ok:
        _say(s, gang, refusal, verdict.why, verdict)
        return
    whys: list[str] = []
    times: list[float] = []
    where = s.where(ask)
    whys.extend([] if where.domains else [where.verdict.why])
    best: Plan | None = None
    for domain in where.domains:
        found = _plan(s, ask, policy, domain)
        s.tries.append(Tried(gang.key, policy.name, domain.name, found))
        if isinstance(found, Plan):
            best = best or found
            if not s.curious:
                break
            continue
        whys.append(found.why if domain.rows is None else f"{domain.name}: {found.why}")
        times.extend([] if found.at is None else [found.at])
    if best is not None:
        carry_out(s, gang, best, policy)
        return
    why = "; ".join(dict.fromkeys(whys)) or "no domain of the cluster is allowed"
    topics = (Topic.BUDGETS.any,) if s.policy.budgets else ()
    _say(s, gang, refusal, why, Verdict(ok=False, topics=topics, at=min(times, default=None)))


def _plan(s: Session, ask: Ask, policy: EvictionPolicy, domain: Domain) -> Plan | NoPlan:
    """One pod after the other where pods are served singly, the whole ask otherwise."""
    if policy.name != ONE:
        return plan_in(s, ask, policy, domain)
    found: Plan | NoPlan = NoPlan("nobody asks")
    for pod in ask.pods:
        found = plan_on_one_node(s, replace(ask, pods=(pod,)), policy, domain)
        if isinstance(found, Plan):
            break
    return found


def demand(s: Session, gang: Gang) -> tuple[Pod, ...]:
    """Whom room is made for: what the minimums lack; and, once it goes pod by pod, whoever waits."""
    if _one_by_one(s, gang):
        return tuple(pod for pod in gang.pods() if pod.uid not in s.world.placements.by_uid)
    return () if reaches_min(s.world, gang, PROMISED) else needed(s.world, gang)


def _one_by_one(s: Session, gang: Gang) -> bool:
    return gang.match is MatchPolicy.ONCE_SATISFIED and is_satisfied(s.world, gang)


def _say(s: Session, gang: Gang, refusal: Verdict, why: str, verdict: Verdict | None = None) -> None:
    """Add to a refusal why nobody can be evicted either."""
    at = verdict.at if verdict is not None else None
    own = [Topic.QUEUE_CAPACITY.of(key) for role in gang.roles for key in s.world.ledger.path(role.queue)[:-1]]
    # Others may grow over their share, or this one fall below its own: then somebody may be evicted after all.
    usage = (*own, Topic.QUEUE_USAGE.any, Topic.QUEUES.any)
    topics = tuple(dict.fromkeys((*refusal.topics, *(verdict.topics if verdict is not None else ()), *usage)))
    both = replace(refusal, why=f"{refusal.why}; nobody is evicted for it: {why}", topics=topics, at=at or refusal.at)
    s.judge(gang, both)


def carry_out(s: Session, gang: Gang, plan: Plan, policy: EvictionPolicy) -> None:
    """Claims first, then evictions: decided as one. Where nobody has to leave any more, the gang is bound at once."""
    refusal = s.refused.pop(gang.key)
    s.without[gang.key] = refusal.why
    _release(s, gang, plan, policy)
    if not plan.victims and _bind_now(s, gang, plan):
        s.judge(gang, _rest_waits(s, gang))
        return
    name = plan_name(s, gang)
    victims = tuple(pod.uid for pod in plan.victims)
    soft = s.policy.manner(policy.name) == "soft"
    s.world.memory.plans.set(name, PlanNote(gang.key, len(plan.seats), victims, s.now, soft=soft))
    leave = explain.counted(len(victims), "pod leaves", "pods leave")
    why = f"{leave} for it; as things are, {refusal.why}" if victims else "the room that it needs is being left"
    with s.trial(why, cause=policy.name, for_gang=gang.title) as trial:
        for pod, placement in plan.seats:
            trial.restore(pod, Placement(Phase.NOMINATED, placement.node, s.now, placement.devices, name))
        trial.commit()
    for pod in plan.victims:
        with s.trial(_why(s, gang, pod, policy), cause=policy.name, for_gang=gang.title) as trial:
            trial.evict(pod)
            trial.commit()
    s.judge(gang, explain.clearing(s.world, gang))
    s.count(policy.name)


def _bind_now(s: Session, gang: Gang, plan: Plan) -> bool:
    """What others only claimed may be enough, if nobody else has to leave first."""
    table = s.world.table
    with s.trial("others gave up what they only claimed", cause="Fits", for_gang=gang.title) as trial:
        for pod, placement in plan.seats:
            # Its queue may still carry those who leave, even where its node does not.
            if not s.room(pod, count=1, phase=Phase.BINDING).seats:
                return False
            trial.restore(pod, Placement(Phase.BINDING, placement.node, s.now, placement.devices))
        rows = [table.row[placement.node or ""] for _, placement in plan.seats]
        if (table.used[rows] > table.allocatable[rows]).any() or not reaches_min(s.world, gang):
            return False
        if not all(is_clear(s, pod) for pod, _ in plan.seats):
            return False
        trial.commit()
    return True


def _rest_waits(s: Session, gang: Gang) -> Verdict:
    """Room is made for the minimum only: members above it take their chance on free room, in the next attempt."""
    waiting = s.world.placements.unseated.get(gang.key, 0)
    if not waiting:
        return YES
    why = (
        f"its minimum has nodes; {explain.counted(waiting, 'member above it waits', 'members above it wait')} for the next attempt"
    )
    return Verdict(ok=False, why=why, code=explain.LATER, at=s.now)


def _release(s: Session, gang: Gang, plan: Plan, policy: EvictionPolicy) -> None:
    """Those who only lose a claim, or what this very cycle gave them, wait again and are told for whom."""
    why = f"gives way to {gang.title}"
    for pod in plan.released:
        with s.trial(why, cause=policy.name, for_gang=gang.title) as trial:
            trial.release(pod)
            trial.commit()
        loser = s.world.gang_of(pod)
        if loser is not None:
            s.judge(loser, Verdict(ok=False, why=why, code="GaveWay", at=s.now))


def _why(s: Session, gang: Gang, victim: Pod, policy: EvictionPolicy) -> str:
    loser = s.world.gang_of(victim)
    priority = loser.priority if loser is not None else victim.priority
    verb = "reclaimed" if policy.name == RECLAIM else "preempted"
    return f"{verb} for {gang.title}: priority {priority} against {gang.priority}"
