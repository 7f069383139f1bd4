"""Oracle 1: who may be taken by whom. Every rule that a plan breaks, with a sentence each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from tests.oracles.allowed_domains import allowed_domains
from tests.oracles.contested import contested_dimensions, finds_capacity, short_dimensions
from tests.oracles.giving import Giving, Taker, freed_by_queue, order_of_giving
from tests.oracles.packing import TooHardToPack, is_packable_world, pack
from tests.oracles.plain_amounts import shared_request_of, total
from tests.oracles.plan_units import (
    Unit,
    UnitKind,
    complete_subgroups,
    is_satisfied_once,
    needed_members,
    released_units,
    units_of_plan,
)
from tests.oracles.protection import protection_findings
from tests.oracles.queue_amounts import Ledger, ShareTable, below_common_ancestor, charge, ledger_of, share_tables
from tests.oracles.role_shares import RoleShares
from tests.oracles.snapshot import GANG_PREEMPT, GANG_RECLAIM, JOB_PREEMPT, MOST_CROSSINGS, Finding, JudgedPlan, Snapshot
from tests.oracles.taking import limit_findings, quota_findings, taking_findings, trigger_findings
from tests.oracles.within_parent import is_taken_within_parent

from muster.model.gang import Gang
from muster.model.pod import Pod


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is wrong with a plan. `crossing` are the gangs, by full name, that lose units by crossing their queue's line."""

    findings: tuple[Finding, ...]
    units: tuple[Unit, ...]
    crossing: frozenset[str] = frozenset()


def judge(s: Snapshot, plan: JudgedPlan) -> Judgement:
    """All rules but that no unit is needless: see `needless`."""
    units, torn = units_of_plan(s, plan)
    found = [*trigger_findings(s, plan.asker), *_demand_findings(s, plan), *torn, *protection_findings(s, plan)]
    released, apart = released_units(s, plan)
    # What is left of a gang was judged with the whole of it, when its first members were evicted.
    chosen_now = [unit for unit in units if unit.gang not in plan.begun]
    crossing = _crossing_gangs(s, plan, chosen_now)
    found += [*apart, *rights_findings(s, plan, [*released, *chosen_now]), *_crossing_findings(s, plan, crossing)]
    return Judgement(tuple(found), tuple(units), crossing)


def undone_findings(s: Snapshot, plan: JudgedPlan) -> Iterator[Finding]:
    """Plans of this very cycle are undone only for who could evict their gangs, were they bound."""
    if plan.undone:
        standing = replace(s, placements={**s.placements, **plan.while_planned})
        ended = replace(plan, victims=(), released=tuple(plan.undone), undone={}, while_planned={})
        units, apart = released_units(standing, ended)
        yield from apart
        yield from (finding for finding in rights_findings(standing, ended, units) if finding.rule in _RIGHTS)


_RIGHTS = ("D1 priority", "D1 queue", "B6 giving")


def _demand_findings(s: Snapshot, plan: JudgedPlan) -> Iterator[Finding]:
    gang = s.gangs[plan.asker]
    needed = needed_members(s, gang, plan.placed)
    if len(plan.placed) > needed and not gang.subgroups:
        members = f"{len(plan.placed)} members of {gang.full_name}, which needs {needed}"
        yield Finding("D2 demand", f"{len(plan.victims)} pods are evicted for {members}")
    if plan.victims and len(plan.placed) < needed and not is_satisfied_once(s, gang):
        yield Finding("D9 minimum", f"{gang.full_name} gets {len(plan.placed)} nodes, and needs {needed}")
    complete = complete_subgroups(s, gang, added=plan.placed)
    if plan.victims and complete < gang.min_subgroups and not is_satisfied_once(s, gang):
        yield Finding("D9 minimum", f"{gang.full_name} gets {complete} complete subgroups, and needs {gang.min_subgroups}")


# -- priorities and shares ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claimants:
    """What is the same for all plans for one ask: the shares of queues, and who asks for what of which is contested."""

    tables: Sequence[ShareTable]
    takers: Sequence[Taker]


def claimants_of(s: Snapshot, gang: Gang, members: Sequence[Pod]) -> Claimants:
    return Claimants(share_tables(s), takers_of(s, gang, members))


def rights_findings(s: Snapshot, plan: JudgedPlan, units: Sequence[Unit], claimants: Claimants | None = None) -> Iterator[Finding]:
    """Whether each unit may be taken for this asker, and the asker may have what the plan gives it; what is quickly known first."""
    gang, members = s.gangs[plan.asker], [s.pods[uid] for uid in plan.placed]
    after, finished = _finished(s, plan)
    yield from limit_findings(s, finished, members)
    yield from _priority_findings(s, plan, units)
    yield from quota_findings(s, after, finished, members)
    if plan.action in (GANG_PREEMPT, GANG_RECLAIM) and len({s.queue_of(pod.uid) for pod in members}) > 1:
        yield from _role_findings(s, plan, units, claimants or claimants_of(s, gang, members), finished)
        return
    foreign = _foreign(s, plan, units)
    if not foreign:
        return
    if plan.action not in (GANG_RECLAIM, JOB_PREEMPT):
        for unit in foreign:
            yield Finding("D1 queue", f"{shown(s, unit)} is in another queue, and {plan.action} takes none")
        return
    claimants = claimants or claimants_of(s, gang, members)
    lacking = _queues_that_lack(s, plan)
    claimants = replace(claimants, takers=[taker for taker in claimants.takers if taker.queue in lacking])
    if plan.action == GANG_RECLAIM and is_taken_within_parent(_giving(s, plan, claimants, finished), foreign):
        return
    own = [unit for unit in units if unit not in foreign]
    borrowing = {
        taker.queue: found
        for taker in claimants.takers
        if (plan.action == GANG_RECLAIM or not taker.queue.startswith("quota/"))
        and not (len(claimants.takers) > 1 and _is_met_at_home(s, taker, own))
        and (found := list(taking_findings(s, claimants.tables, finished, taker, foreign)))
    }
    if _are_met_by_free_capacity(s, gang, members, set(borrowing)):
        takers = [taker for taker in claimants.takers if taker.queue not in borrowing]
        claimants = replace(claimants, takers=takers)
    else:
        yield from (finding for found in borrowing.values() for finding in found)
    _, refused = order_of_giving(_giving(s, plan, claimants, finished), foreign)
    for unit, why in refused.items():
        yield Finding("B6 giving", f"{shown(s, unit)} is taken, and {why}")


def _role_findings(
    s: Snapshot, plan: JudgedPlan, units: Sequence[Unit], claimants: Claimants, finished: Ledger
) -> Iterator[Finding]:
    """Whether each unit may be taken for one of the roles, and all of them can be shared out."""
    giving = _giving(s, plan, claimants, finished)
    chosen = [unit for unit in units if not _is_stale(s, s.gangs[plan.asker], unit)]
    # Stale gangs end for whoever asks; what was left of gangs that the scheduler before this one began to evict was judged then.
    roles = RoleShares(s, plan, giving, finished, plan.gone - {uid for unit in chosen for uid in unit.pods})
    if not chosen:
        return
    try:
        if all(roles.is_for_some(unit, claimants.takers) for unit in chosen):
            members = [s.pods[uid] for uid in plan.placed]
            is_judged = len(chosen) <= MOST_SHARED_OUT and is_packable_world(s, members) and not s.kept_nodes
            if not is_judged or roles.can_be_shared_out(chosen):
                return
            yield Finding("B6 roles", f"no role that lacks one of these may have it: {', '.join(shown(s, u) for u in chosen)}")
    except TooHardToPack:
        return
    for unit in chosen:
        if not roles.is_for_some(unit, [taker for taker in claimants.takers if taker.lacks]):
            rule = "B6 giving" if plan.action == GANG_RECLAIM else "D1 queue"
            yield Finding(rule, f"{shown(s, unit)} is taken, and no role that lacks it may have it: {giving.why_not(unit, ())}")


MOST_SHARED_OUT = 8


def _finished(s: Snapshot, plan: JudgedPlan) -> tuple[Snapshot, Ledger]:
    """The world without all that the plan evicts, and the ledger of that with the ask."""
    after = s.without({*plan.gone, *plan.placed})
    return after, charge(s, ledger_of(after), plan.placed)


def _foreign(s: Snapshot, plan: JudgedPlan, units: Sequence[Unit]) -> list[Unit]:
    gang, own = s.gangs[plan.asker], _queues_that_lack(s, plan)
    return [unit for unit in units if not _is_own(s, gang, unit, own) and not _is_stale(s, gang, unit)]


def _is_met_at_home(s: Snapshot, taker: Taker, own: Sequence[Unit]) -> bool:
    """Whether a role has all that it lacks from its own queue: then it takes nothing from others."""
    freed = total(freed_by_queue(s, unit).get(taker.queue, {}) for unit in own)
    return all(freed.get(name, 0) >= taker.ask.get(name, 0) for name in taker.contested)


def _are_met_by_free_capacity(s: Snapshot, gang: Gang, members: Sequence[Pod], queues: Collection[str]) -> bool:
    """Whether the members in these queues, which may not take, lack nothing: free capacity goes to them before those in others."""
    ours = [pod for pod in members if s.queue_of(pod.uid) in queues]
    if not 0 < len(ours) < len(members):
        return False
    unplaced = s.without(pod.uid for pod in members)
    try:
        return any(pack(unplaced, ours, domain) is not None for domain in allowed_domains(unplaced, gang, members))
    except TooHardToPack:
        return True


def _giving(s: Snapshot, plan: JudgedPlan, claimants: Claimants, finished: Ledger) -> Giving:
    by_priority = plan.action == JOB_PREEMPT
    may_cross = not s.rules.strict_deserved and not by_priority
    return Giving(s, claimants.takers, claimants.tables, finished, may_cross, by_priority, s.gangs[plan.asker].priority)


def _priority_findings(s: Snapshot, plan: JudgedPlan, units: Sequence[Unit]) -> Iterator[Finding]:
    """In its own queue, and as a job of a quota everywhere, an asker takes what has a strictly lower priority."""
    gang, own = s.gangs[plan.asker], _queues_that_lack(s, plan)
    for unit in units:
        judged = plan.action == JOB_PREEMPT or _is_own(s, gang, unit, own)
        if judged and unit.priority >= gang.priority and not _is_stale(s, gang, unit):
            yield Finding("D1 priority", f"{shown(s, unit)} of priority {unit.priority} for {gang.priority}")


def takers_of(s: Snapshot, gang: Gang, members: Sequence[Pod]) -> list[Taker]:
    """What is asked, by the queue that it is charged to, each with what is contested for it."""
    unplaced = s.without(pod.uid for pod in members)
    found: list[Taker] = []
    for queue in dict.fromkeys(s.queue_of(pod.uid) for pod in members):
        ours = [pod for pod in members if s.queue_of(pod.uid) == queue]
        ask = total(shared_request_of(pod) for pod in ours)
        lacks = not finds_capacity(unplaced, gang, ours)
        found.append(Taker(queue, ask, contested_dimensions(unplaced, gang, ours), lacks))
    return found if any(taker.lacks for taker in found) else [replace(taker, lacks=True) for taker in found]


def _queues_that_lack(s: Snapshot, plan: JudgedPlan) -> frozenset[str]:
    """The queues of the asker's roles that lack something: of these a unit may be "of the same queue"."""
    members = [s.pods[uid] for uid in plan.placed]
    return _lacking_queues(s.without(plan.placed), s.gangs[plan.asker], members)


def _lacking_queues(unplaced: Snapshot, gang: Gang, members: Sequence[Pod]) -> frozenset[str]:
    """A role of a group surely lacks nothing where all that is missing of the group has capacity in all that the role asks for."""
    queues = {unplaced.queue_of(pod.uid) for pod in members}
    if len(queues) < 2:
        return frozenset(queues)
    short = short_dimensions(unplaced, gang, members)
    lacking = {
        queue
        for queue in queues
        if any(short & set(shared_request_of(pod)) for pod in members if unplaced.queue_of(pod.uid) == queue)
    }
    return frozenset(lacking or queues)


def _is_own(s: Snapshot, gang: Gang, unit: Unit, queues: frozenset[str]) -> bool:
    """Whether the asker takes it by priority, as one of these queues of its own. For the roles of other queues shares count,
    whatever its priority."""
    if len({role.queue for role in gang.roles}) > 1 and unit.priority >= gang.priority:
        return False
    return set(freed_by_queue(s, unit)) <= queues


def _is_stale(s: Snapshot, gang: Gang, unit: Unit) -> bool:
    """A gang that has been below its minimum for long is evicted whole for one of the same priority, whatever its queue."""
    if unit.gang not in s.history.stale:
        return False
    return unit.priority <= gang.priority


def _crossing_gangs(s: Snapshot, plan: JudgedPlan, units: Sequence[Unit]) -> frozenset[str]:
    """The gangs that lose units by crossing their queue's line, by full name."""
    gang = s.gangs[plan.asker]
    foreign = _foreign(s, plan, units)
    if not foreign or plan.action != GANG_RECLAIM:
        return frozenset()
    giving = _giving(s, plan, claimants_of(s, gang, [s.pods[uid] for uid in plan.placed]), _finished(s, plan)[1])
    order, _ = order_of_giving(giving, foreign)
    found: set[str] = set()
    for at, unit in enumerate(order):
        before = charge(s, giving.start, [uid for other in order[:at] for uid in other.pods], sign=-1)
        after = charge(s, before, unit.pods, sign=-1)
        levels = {level for uid in unit.pods for taker in giving.takers for level in _giving_levels(s, uid, taker)}
        if unit.gang and any(giving.crossed(level, after) and not giving.crossed(level, before) for level in levels):
            found.add(s.gangs[unit.gang].full_name)
    return frozenset(found)


def _giving_levels(s: Snapshot, uid: str, taker: Taker) -> list[str]:
    """Above the common ancestor nobody gives anything: the ask is charged there, too."""
    return below_common_ancestor(s, s.queue_of(uid), taker.queue)[0]


def _crossing_findings(s: Snapshot, plan: JudgedPlan, crossing: frozenset[str]) -> Iterator[Finding]:
    asker = s.gangs[plan.asker].full_name
    for name in sorted(crossing):
        if s.history.crossings.get((name, asker), 0) >= MOST_CROSSINGS:
            yield Finding("B6 crossing", f"{name} loses units by crossing for {asker} once more than {MOST_CROSSINGS} times")


def shown(s: Snapshot, unit: Unit) -> str:
    """A unit as a person names it."""
    names = [s.pods[uid].full_name for uid in unit.pods]
    queues = ", ".join(sorted(freed_by_queue(s, unit)))
    if unit.kind is UnitKind.WHOLE and unit.gang:
        return f"the gang {s.gangs[unit.gang].full_name} ({len(names)} pods, {queues})"
    return f"{names[0]} ({queues})"


__all__ = ["Claimants", "Judgement", "claimants_of", "judge", "rights_findings", "shown", "takers_of", "undone_findings"]
