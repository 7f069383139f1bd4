"""Consolidate: where as much as a gang asks for is free, but in pieces, others are moved together for it. Nobody ends.

The gang is nominated to the nodes that are cleared, and each moved pod has capacity kept on another node. All of it stands in the
gang's Plan before the first pod is evicted. What a plan evicts is exactly whom it moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from muster.engine import explain
from muster.engine.attempt_budget import charge_search
from muster.engine.consolidate.movable_pods import CONSOLIDATE, MovablePods, gang_prices, movable_pods, move_ask
from muster.engine.consolidate.move_packing import MemberKind
from muster.engine.consolidate.move_search import MoveProblem, Moves, cheapest_moves
from muster.engine.domain_placement import place_gang
from muster.engine.evict.contested import total_need, usable_domains
from muster.engine.evict.evict_actions import mark_unsent, preemptor_pods
from muster.engine.evict.eviction_history import history_key, paused_until
from muster.engine.evict.eviction_plan import NoPlan, Plan
from muster.engine.evict.job_preempt import why_may_not_preempt
from muster.engine.evict.victims import VictimTable, victim_table_of
from muster.engine.fit_counts import equal_members
from muster.engine.hooks import Ask, Domain
from muster.engine.nominations import plan_name
from muster.engine.place import fits_on
from muster.engine.quota import QUEUE_CODES
from muster.engine.session import EvictionAttempt, Refusals, Session, UnsentPlan
from muster.model.effects import Verdict
from muster.model.gang import Gang
from muster.model.pod import PLACED_OR_NOMINATED, Phase, Placement, Pod
from muster.model.resource_amounts import short_name, show_amount
from muster.model.topics import Topic
from muster.state.gangs.gang_stage import reaches_min
from muster.state.memory import ActivePlan
from muster.state.node_table import BoolColumn, NodeRows
from muster.state.reserve_pods import Move, kept_on, reserve_pod_for
from muster.state.trial import Trial

_MAX_CHECKED = 64
"""So many ways to move pods are tried with all checks for one domain."""


def consolidate(s: Session, refusals: Refusals) -> None:
    """Plans for the gangs that were refused in this cycle for lack of capacity, in their order, one each at most."""
    for key, refusal in list(refusals.items()):
        gang = s.world.facts.gangs[key]
        if not refusal.curable or refusal.code in QUEUE_CODES or not (pods := preemptor_pods(s, gang)):
            continue
        found = _find_plan(s, gang, pods)
        if isinstance(found, Plan):
            del refusals[key]
            _commit(s, gang, found, refusal)
        else:
            _report(s, gang, refusal, found)


def _find_plan(s: Session, gang: Gang, pods: tuple[Pod, ...]) -> Plan | NoPlan:
    if barred := why_may_not_preempt(s, gang):
        return NoPlan(barred)
    paused = paused_until(s, gang)
    if paused > s.now:
        return NoPlan(f"it was evicted itself and may have others moved again in {paused - s.now:.0f} s", paused)
    ask = move_ask(gang, pods)
    verdict = s.admit(ask)
    if not verdict.ok:
        return NoPlan(verdict.why)
    if lacking := _why_not_free(s, pods):
        return NoPlan(lacking)
    movable = movable_pods(s, ask)
    if not len(movable.at):
        placed = explain.plural(movable.others, "pod", "pods")
        return NoPlan(f"none of {placed} may be moved{_who_else(movable)}" if placed else "nobody is placed", _at(movable))
    s.left_out = _kept_for_others(s, gang)
    found = _best_plan(s, ask, movable)
    s.left_out = None
    return found


def _why_not_free(s: Session, pods: Sequence[Pod]) -> str:
    """Moving pods frees nothing: as much as the gang lacks has to be free."""
    need, names = total_need(s, pods), s.world.columns.names
    free = np.maximum(NodeRows(s.world.table, after_releases=True).free, 0).sum(axis=0)
    short = np.flatnonzero(need > free).tolist()
    return ", ".join(_more_than_free(names[at], int(need[at]), int(free[at])) for at in short)


def _more_than_free(name: str, need: int, free: int) -> str:
    return f"{short_name(name)} {show_amount(name, need)} requested > {show_amount(name, free)} free"


def _who_else(movable: MovablePods) -> str:
    return f": {', '.join(movable.barred)}" if movable.barred else ""


def _at(movable: MovablePods) -> float | None:
    return movable.movable_at if np.isfinite(movable.movable_at) else None


def _kept_for_others(s: Session, gang: Gang) -> BoolColumn | None:
    """Nodes that are kept for gangs that have waited for long."""
    kept = [one.nodes for key, one in s.world.memory.backfill_reservations.items() if key != gang.key]
    return s.world.table.mask(node for nodes in kept for node in nodes) if kept else None


# -- the best plan -----------------------------------------------------------------------------------------------------------------


def _best_plan(s: Session, ask: Ask, movable: MovablePods) -> Plan | NoPlan:
    """The cheapest plan of the domains that the gang may use, those first in which least is missing."""
    search = _MoveSearch(s, ask, movable)
    plans: list[Plan] = []
    for _, domain in sorted(enumerate(usable_domains(s, ask)), key=lambda each: (search.missing_in(each[1]), each[0])):
        decides = len(plans) < s.policy.settings.max_evict_domains
        if not decides and ask.gang.key not in s.shows_all_domains:
            break
        found = search.plan_in(domain)
        s.eviction_attempts.append(EvictionAttempt(ask.gang.key, CONSOLIDATE, domain.name, found, decides))
        if isinstance(found, Plan) and decides:
            plans.append(found)
    if plans:
        return min(plans, key=lambda plan: plan.key)
    charge_search(s, ask.gang, placements=search.checked)
    return NoPlan(search.why_none(), _at(movable))


@dataclass(slots=True)
class _MoveSearch:
    s: Session
    ask: Ask
    movable: MovablePods
    checked: int = 0
    """How many plans were tried with all checks."""

    def missing_in(self, domain: Domain) -> int:
        """How many members lack a place there, by the amounts of each kind alone."""
        missing = 0
        for kind in self._members(domain):
            asked = kind.request > 0
            slots = (self._free()[:, asked] // kind.request[asked]).min(axis=1)
            missing += max(0, kind.count - int(np.maximum(slots, 0)[kind.rows].sum()))
        return missing

    def why_none(self) -> str:
        count = explain.plural(len(self.movable.at), "pod may", "pods may")
        if self.checked:
            return f"{count} be moved, and no way to move them passed every check ({self.checked} tried){_who_else(self.movable)}"
        return f"{count} be moved, and no way to move them was found that makes it fit{_who_else(self.movable)}"

    def plan_in(self, domain: Domain) -> Plan | NoPlan:
        table = victim_table_of(self.s.world)
        problem = self._problem(table, domain)
        for number, moves in enumerate(cheapest_moves(problem)):
            if number >= _MAX_CHECKED:
                break
            self.checked += 1
            if (plan := self._tried(table, domain, moves)) is not None:
                return plan
        return NoPlan(self.why_none())

    def _problem(self, table: VictimTable, domain: Domain) -> MoveProblem:
        at = self.movable.at
        gang = table.gang[at]
        return MoveProblem(
            free=self._free(),
            members=self._members(domain),
            row=table.row[at],
            request=table.request[at],
            price=self.movable.price,
            gang=gang,
            gangs=gang_prices(self.s, np.unique(gang).tolist()),
            allowed=self._allowed(table),
        )

    def _free(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        return NodeRows(self.s.world.table, after_releases=True).free

    def _members(self, domain: Domain) -> list[MemberKind]:
        inside = self._usable() & domain.mask(len(self.s.world.table))
        request, match = self.s.world.request, self.s.match
        return [
            MemberKind(request(lot.pod), lot.count, match(lot.pod) & inside) for lot in equal_members(self.s.world, self.ask.pods)
        ]

    def _usable(self) -> BoolColumn:
        left_out = self.s.left_out
        return np.ones(len(self.s.world.table), dtype=np.bool_) if left_out is None else ~left_out

    def _allowed(self, table: VictimTable) -> list[BoolColumn]:
        """The rows that each may be moved to: those that match, in the domain in which its gang is."""
        known: dict[object, BoolColumn] = {}
        found = []
        for at in self.movable.at.tolist():
            pod, gang = table.pods[at], table.gangs[table.gang[at]]
            key = (pod.signature, gang.key if gang.topology is not None else "")
            if key not in known:
                known[key] = self.s.match(pod) & self._usable() & self._domain_of(gang)
            found.append(known[key])
        return found

    def _domain_of(self, gang: Gang) -> BoolColumn:
        rows = np.zeros(len(self.s.world.table), dtype=np.bool_)
        for domain in usable_domains(self.s, move_ask(gang, ())):
            rows |= domain.mask(len(rows))
        return rows

    # -- with every check ----------------------------------------------------------------------------------------------------------

    def _tried(self, table: VictimTable, domain: Domain, moves: Moves) -> Plan | None:
        s, gang = self.s, self.ask.gang
        targets = [(table.pods[self.movable.at[pod]], s.world.table.names[row]) for pod, row in moves.targets]
        victims = tuple(pod for pod, _ in targets)
        if not _is_allowed(s, self.ask, table, victims):
            return None
        with s.trial("simulated", cause=CONSOLIDATE) as trial:
            for pod in victims:
                trial.evict(pod)
            if not _keep(s, trial, targets, plan="", for_gang=gang.key):
                return None
            placed = place_gang(s, trial, self.ask.pods, domain=domain, phase=Phase.NOMINATED)
            if placed.first_refused is not None or not reaches_min(s.world, gang, PLACED_OR_NOMINATED):
                return None
            placements = tuple((pod, s.world.placement(pod)) for pod in self.ask.pods)
        node_of = {pod.uid: node for pod, node in targets}
        price, gangs, pods, _ = moves.key
        return Plan(
            domain=domain.name,
            victims=victims,
            released=(),
            placements=placements,
            cost=price,
            key=(price, float(gangs), float(pods)),
            why_evicted=lambda pod: _why_moved(s, pod, gang, node_of[pod.uid]),
            moves=tuple(targets),
        )


def _is_allowed(s: Session, ask: Ask, table: VictimTable, victims: Sequence[Pod]) -> bool:
    """Do budgets allow all of these together, soft ones included, and every plugin with a limit?"""
    at = np.array([table.index[pod.uid] for pod in victims], dtype=np.intp)
    for budgets in s.policy.checks_budgets:
        used, left = budgets.budget_use(s, table, at, np.zeros(len(at), dtype=np.intp), 1)
        if (used.sum(axis=0) > np.maximum(left, 0) * (used.sum(axis=0) > 0)).any():
            return False
    return all(plugin.allows_eviction(s, ask, victims).ok for plugin in s.policy.limits_evictions)


def _keep(s: Session, trial: Trial, targets: Sequence[tuple[Pod, str]], *, plan: str, for_gang: str) -> bool:
    """Keep capacity for pods that were just evicted; False where one does not fit on its node."""
    for pod, node in targets:
        if not fits_on(s, pod, node, after_releases=True):
            return False
        gang = s.world.gang_of(pod)
        assert gang is not None
        owner = history_key(s, gang)
        reserve = reserve_pod_for(pod, s.world.facts.members[pod.uid], owner=owner, priority=gang.priority)
        slots = s.slots(pod, (node,), after_releases=True)
        placement = kept_on(node, since=s.now, devices=slots[0] if slots is not None else ())
        trial.restore(reserve, placement)
        s.world.memory.moves.set(reserve.uid, Move(reserve, placement, plan, for_gang))
    return True


def _why_moved(s: Session, pod: Pod, gang: Gang, node: str) -> str:
    own = s.world.gang_of(pod)
    assert own is not None
    return f"capacity is kept for it on {node}; priority {own.priority} against {gang.priority}"


# -- what is decided ---------------------------------------------------------------------------------------------------------------


def _commit(s: Session, gang: Gang, plan: Plan, refusal: Verdict) -> None:
    """Nominations, what is kept, and evictions: decided as one."""
    s.why_without_eviction[gang.key] = refusal.why
    whys = [f"moved for {gang.full_name}: {plan.why_evicted(pod)}" for pod in plan.victims]
    name = plan_name(s, gang)
    uids = tuple(pod.uid for pod in plan.victims)
    s.world.memory.plans.set(name, ActivePlan(gang.key, uids, s.now, CONSOLIDATE))
    s.unsent_plans[gang.key] = UnsentPlan(name, CONSOLIDATE, tuple((pod, s.world.placement(pod)) for pod in plan.victims), ())
    why = f"{moves_text(s, plan)} for it; without that, {refusal.why}"
    with s.trial(why, cause=CONSOLIDATE, for_gang=gang.full_name) as trial:
        for pod, placement in plan.placements:
            trial.restore(pod, Placement(Phase.NOMINATED, placement.node, s.now, placement.devices, name))
        trial.commit()
    for pod, moved_because in zip(plan.victims, whys, strict=True):
        with s.trial(moved_because, cause=CONSOLIDATE, for_gang=gang.full_name) as trial:
            trial.evict(pod)
            trial.commit()
    with s.trial(f"kept for a pod that is moved for {gang.full_name}", cause=CONSOLIDATE, for_gang=gang.full_name) as trial:
        kept = _keep(s, trial, plan.moves, plan=name, for_gang=gang.key)
        assert kept, "a plan that was simulated keeps what it kept then"
        trial.commit()
    mark_unsent(s, [gang.key], unsent=True)
    s.record_verdict(gang, explain.waiting_for_preemption(s.world, gang))
    s.count(CONSOLIDATE)


def moves_text(s: Session, plan: Plan) -> str:
    gangs = len({s.world.facts.members[pod.uid].gang for pod in plan.victims})
    pods = explain.plural(len(plan.victims), "pod", "pods")
    return f"{pods} of {explain.plural(gangs, 'gang', 'gangs')} {'is' if len(plan.victims) == 1 else 'are'} moved, and nobody ends,"


def _report(s: Session, gang: Gang, refusal: Verdict, found: NoPlan) -> None:
    """Add to what is known of the refusal why nobody is moved either, and what may change that."""
    known = s.world.memory.attempts[gang.key].verdict or refusal
    topics = (*known.topics, Topic.EVICTABLE.any, Topic.QUEUE_USAGE.any, *((Topic.BUDGETS.any,) if s.policy.checks_budgets else ()))
    times = [at for at in (known.at, found.at) if at is not None]
    verdict = replace(
        known,
        why=f"{known.why}; no pod is moved for it: {found.why}",
        topics=tuple(dict.fromkeys(topics)),
        at=min(times, default=None),
    )
    s.record_verdict(gang, verdict)
