"""Every eviction of every cycle is judged by the oracle: who may be taken by whom, and that nobody is evicted needlessly.

The world before each plan is put together from the placements at the start of the cycle and the moves that came before the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tests.oracles.legality import judge, undone_findings
from tests.oracles.needless import needless_findings
from tests.oracles.plan_units import keeps_minimums
from tests.oracles.snapshot import (
    BROKEN_AFTER_S,
    SEATED,
    SEATED_OR_NOMINATED,
    STALE_GANGS,
    Finding,
    History,
    JudgedPlan,
    PolicyRules,
    Snapshot,
    rules_of,
    snapshot_of,
)

from muster.engine.hooks import Policy
from muster.model.effects import Evict, Outcome
from muster.model.events import Event
from muster.model.gang import Gang
from muster.model.pod import UNPLACED, Phase, Placement
from muster.scenario.invariants import Violation
from muster.scenario.run_check import FinishedCycle
from muster.state.placements import Step
from muster.state.world import World

EVICTION_RULES = "evictions follow the rules"
JUDGED_ACTIONS = ("preempt", "gang-preempt", "job-preempt", "gang-reclaim", STALE_GANGS)


class EvictionJudge:
    """A `RunCheck`. What it knows of earlier cycles (broken gangs, crossings) outlives a restart of the scheduler."""

    def __init__(self) -> None:
        self._rules = PolicyRules()
        self._before: dict[str, Placement] | None = None
        self._moves: list[tuple[Step, Placement]] = []
        self._below_since: dict[str, float] = {}
        self._last_mins: dict[str, tuple[int, Mapping[str, int]]] = {}
        self._crossed: list[tuple[tuple[str, str], tuple[str, ...]]] = []
        """Gangs that brought a queue below its share and for whom, with the victims of that plan."""
        self._first = True
        self._kept_nodes: dict[str, frozenset[str]] = {}

    def start(self, policy: Policy, events: Sequence[Event]) -> None:  # noqa: ARG002
        self._rules = rules_of(policy)

    def on_step(self, name: str, world: World) -> None:
        if name == "recover":
            self._before = None
        elif self._before is None:
            self._before = dict(world.placements.by_uid)
            self._kept_nodes = {gang: frozenset(kept.nodes) for gang, kept in world.memory.backfill_reservations.items()}
            self._observe(world)
        if name == "commit":
            self._moves = _with_results(world.placements.steps(), world.placements.by_uid)

    def check_cycle(self, finished: FinishedCycle) -> Iterator[Violation]:
        outcome = finished.outcome
        for plan, before in self.plans(finished.world, outcome):
            for finding in (*self._judge(plan, before), *undone_findings(before, plan)):
                yield Violation(EVICTION_RULES, outcome.cycle, outcome.now, str(finding))

    def before_cycle(self, world: World) -> Snapshot:
        """The world as the actions of the last cycle found it."""
        found = snapshot_of(
            world.facts, self._before or {}, now=world.now, rules=self._rules, reserve_pods=world.placements.reserve_pods
        )
        return replace(found, history=self._history(found), began_with=dict(self._before or {}))

    # -- plans ---------------------------------------------------------------------------------------------------------------------

    def plans(self, world: World, outcome: Outcome) -> Iterator[tuple[JudgedPlan, Snapshot]]:
        """The plans of the last cycle, each with the world just before it."""
        evictions = [effect for effect in outcome.effects if isinstance(effect, Evict) and effect.cause in JUDGED_ACTIONS]
        grouped: dict[tuple[str, str], list[str]] = {}
        for effect in evictions:
            grouped.setdefault((effect.for_gang, effect.cause), []).append(effect.uid)
        for (for_gang, action), victims in grouped.items():
            # Gangs of several API flavours, and a pod and the one that was created anew, may have one name.
            named = [gang for gang in world.facts.gangs.values() if for_gang in (gang.key, gang.full_name)]
            nominated = [gang for gang in named if any(world.phase(pod) is Phase.NOMINATED for pod in gang.pods())]
            for gang in (*nominated, *named)[:1]:
                yield self._plan(world, gang, action, tuple(victims))

    def _plan(self, world: World, gang: Gang, action: str, victims: tuple[str, ...]) -> tuple[JudgedPlan, Snapshot]:
        """The plan for a gang, and the world just before its first move."""
        ours = {pod.uid for pod in gang.pods()}
        placed: dict[str, str] = {}
        released: list[str] = []
        restored: dict[str, Placement] = {}
        first = len(self._moves)
        for at, (step, result) in enumerate(self._moves):
            if step.cause != action or step.for_gang not in (gang.full_name, gang.key):
                continue
            if step.pod.uid in ours and result.phase is Phase.NOMINATED:
                placed[step.pod.uid] = result.node or ""
            elif result.phase is Phase.PENDING:
                released.append(step.pod.uid)
            elif step.before.phase is Phase.TERMINATING:
                # A plan of this cycle that this one replaces is undone with its evictions: this one starts where nobody left.
                restored[step.pod.uid] = result
            elif step.pod.uid not in victims:
                continue
            first = min(first, at)
        before = dict(self._before or {})
        for step, result in self._moves[:first]:
            _put(before, step.pod.uid, result)
        undone = {uid: before.get(uid, UNPLACED) for uid in released if self._was_planned(world, uid, first)}
        for uid in undone:
            _put(before, uid, UNPLACED)
        evicted = {uid: before[uid] for uid in restored}
        before |= restored
        before |= self._nodes_before_the_start(victims, before)
        begun: frozenset[str] = frozenset()
        if not placed:
            # The plan was decided before the scheduler started, and what was left of it is carried out now.
            leaving = _leaving_since_before_the_start(world, gang, action, before)
            begun = frozenset(world.facts.members[uid].gang for uid in leaving)
            # It is judged as one plan, with those in place that have begun to leave.
            before |= {uid: replace(before[uid], phase=Phase.BOUND) for uid in leaving}
            victims = (*leaving, *victims)
            placed = {uid: before[uid].node or "" for uid in ours if uid in before and before[uid].phase is Phase.NOMINATED}
            # Whose reservation did not fit any more may have been nominated anew.
            now = {uid: world.placements.by_uid.get(uid, UNPLACED) for uid in ours}
            placed = placed or {uid: place.node or "" for uid, place in now.items() if place.phase is Phase.NOMINATED}
        found = snapshot_of(world.facts, before, now=world.now, rules=self._rules, reserve_pods=world.placements.reserve_pods)
        left = tuple(uid for uid in released if uid not in victims and uid not in undone)
        plan = JudgedPlan(gang.key, action, placed, victims, left, undone, {**evicted, **undone}, begun)
        return plan, replace(found, history=self._history(found), kept_nodes=self._kept_nodes)

    def _nodes_before_the_start(self, victims: Sequence[str], before: Mapping[str, Placement]) -> dict[str, Placement]:
        """Where those victims were whose eviction was continued when the scheduler started, before the cycle's first action."""
        return {
            step.pod.uid: step.before
            for step, _ in self._moves
            if step.pod.uid in victims
            and step.before.phase in SEATED
            and before.get(step.pod.uid, UNPLACED).phase is Phase.TERMINATING
        }

    def _was_planned(self, world: World, uid: str, before: int) -> bool:
        """Whether the gang of the pod got a plan earlier in this cycle: that is undone whole, with its evictions."""
        member = world.facts.members.get(uid)
        gang = world.facts.gangs.get(member.gang) if member is not None else None
        ours = {pod.uid for pod in gang.pods()} if gang is not None else set()
        planned = [
            step for step, result in self._moves[:before] if result.phase is Phase.NOMINATED and step.cause in JUDGED_ACTIONS
        ]
        return any(step.pod.uid in ours for step in planned)

    def _judge(self, plan: JudgedPlan, s: Snapshot) -> Iterator[Finding]:
        judgement = judge(s, plan)
        yield from judgement.findings
        if any(s.phase(uid) is not Phase.NOMINATED for uid in plan.placed):
            yield from needless_findings(s, plan, judgement.units)
        victims = set(plan.victims)
        # An eviction that never left the scheduler before it crashed may be decided again.
        self._crossed = [(key, pods) for key, pods in self._crossed if not victims.issuperset(pods)]
        for name in judgement.crossing:
            self._crossed.append(((name, s.gangs[plan.asker].full_name), plan.victims))

    # -- what earlier cycles showed ------------------------------------------------------------------------------------------------

    def _observe(self, world: World) -> None:
        """Since when each gang has had fewer members than a minimum; at first sight, since its youngest member was created."""
        below: dict[str, float] = {}
        for gang in world.facts.gangs.values():
            if gang.waiting_for or gang.invalid_because:
                continue
            self._last_mins[gang.key] = (gang.min, {role.name: role.min for role in gang.roles})
            exist = gang.size >= gang.min and all(len(role.pods) >= role.min for role in gang.roles)
            is_complete = exist and not world.placements.unplaced_members.get(gang.key)
            if is_complete or not _is_below(world, gang):
                continue
            since = max((pod.created for pod in gang.pods()), default=world.now) if self._first else world.now
            below[gang.key] = self._below_since.get(gang.key, since)
        self._below_since, self._first = below, False

    def _stale_after_s(self, s: Snapshot, key: str) -> float:
        """As the PodGroup says, else as the policy does."""
        gang = s.gangs.get(key)
        return self._rules.stale_after_s if gang is None or gang.stale_s is None else gang.stale_s

    def _history(self, s: Snapshot) -> History:
        broken = {key for key, since in self._below_since.items() if s.now - since >= BROKEN_AFTER_S}
        stale = {key for key, since in self._below_since.items() if s.now - since >= self._stale_after_s(s, key)}
        for uid, placement in (self._before or {}).items():
            # Torn by an earlier plan of this very cycle.
            gang = s.gang_of(uid)
            if placement.phase in SEATED and s.phase(uid) is Phase.TERMINATING and gang is not None:
                if not keeps_minimums(s, gang, ()):
                    broken.add(gang.key)
        # Whoever has its node again lost nothing: the eviction was cancelled or refused.
        crossings = Counter(key for key, victims in self._crossed if any(s.phase(uid) not in SEATED for uid in victims))
        return History(frozenset(broken), frozenset(stale), dict(self._last_mins), crossings)


def _is_below(world: World, gang: Gang) -> bool:
    """Some members are placed, and fewer than a minimum are placed or nominated."""
    phases = {role.name: [world.phase(pod) for pod in role.pods] for role in gang.roles}
    if not any(phase in SEATED for found in phases.values() for phase in found):
        return False
    counts = {role.name: sum(p in SEATED_OR_NOMINATED for p in phases[role.name]) + role.succeeded for role in gang.roles}
    return sum(counts.values()) < gang.min or any(counts[role.name] < role.min for role in gang.roles)


def _leaving_since_before_the_start(world: World, asker: Gang, action: str, before: Mapping[str, Placement]) -> tuple[str, ...]:
    """The members that the Plan that was found at the start names and that are terminating already."""
    saved = [plan for plan in world.facts.saved_plans.values() if plan.gang == asker.key]
    victims = [uid for plan in saved for entry in plan.evictions if entry.action == action for uid in entry.victims]
    members = world.facts.members
    return tuple(uid for uid in victims if uid in members and before.get(uid, UNPLACED).phase is Phase.TERMINATING)


def _with_results(steps: Sequence[Step], now: Mapping[str, Placement]) -> list[tuple[Step, Placement]]:
    """Each move with the placement that it led to: what the pod had before its next move, or has now."""
    later: dict[str, Placement] = {}
    found: list[tuple[Step, Placement]] = []
    for step in reversed(steps):
        found.append((step, later.get(step.pod.uid, now.get(step.pod.uid, UNPLACED))))
        later[step.pod.uid] = step.before
    return found[::-1]


def _put(placements: dict[str, Placement], uid: str, placement: Placement) -> None:
    if placement.node is None:
        placements.pop(uid, None)
    else:
        placements[uid] = placement
