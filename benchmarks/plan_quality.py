"""One cycle of the scheduler on a small cluster, and its plan beside the best one there is."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cache

from tests.checks.eviction_rules import EvictionJudge
from tests.oracles.best_moves import MOST_MOVES, best_moves, move_findings, price_of
from tests.oracles.best_plan import BestPlan, best_plan, missing_members
from tests.oracles.legality import claimants_of, judge
from tests.oracles.needless import needless_findings
from tests.oracles.plan_order import PlanOrder
from tests.oracles.snapshot import GANG_RECLAIM, JOB_PREEMPT, Finding, JudgedPlan, Snapshot

from benchmarks.quality_rows import make_world
from benchmarks.quality_worlds import ASKER, CONSOLIDATE, Document
from muster.config import load_policy
from muster.engine.hooks import Policy
from muster.model.gang import Gang
from muster.model.pod import Phase
from muster.scenario.loader import from_document
from muster.scenario.scenario_runner import ScenarioRunner
from muster.scheduler import Scheduler
from muster.state.world import World


class Fault(Enum):
    """What can be wrong with an answer."""

    NOT_FOUND = "none found"
    HIGHER_PRIORITY = "higher priority"
    WORSE_ORDER = "worse order"
    """A whole gang for a surplus pod, another queue's turn, a later action: any other key before the cost."""
    TORN = "torn"
    FORBIDDEN = "forbidden"
    NEEDLESS = "needless"


@dataclass(frozen=True, slots=True)
class WorldQuality:
    """How good the answer for one cluster is. `ratio` is the cost of our victims over that of the best plan's, where both plans are
    alike in all that counts before the cost."""

    exists: bool
    found: bool
    faults: frozenset[Fault] = frozenset()
    ratio: float | None = None
    ours: str = ""
    best: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True)
class RowQuality:
    """Many clusters of one kind."""

    worlds: int = 0
    exist: int = 0
    found: int = 0
    faults: dict[Fault, list[int]] = field(default_factory=lambda: {fault: [] for fault in Fault})
    """The seeds with each fault."""
    ratios: list[float] = field(default_factory=list)

    def add(self, seed: int, quality: WorldQuality) -> None:
        self.worlds += 1
        self.exist += quality.exists
        self.found += quality.found
        for fault in quality.faults:
            self.faults[fault].append(seed)
        if quality.ratio is not None:
            self.ratios.append(quality.ratio)

    @staticmethod
    def joined(parts: Iterable[RowQuality]) -> RowQuality:
        whole = RowQuality()
        for part in parts:
            whole.worlds += part.worlds
            whole.exist += part.exist
            whole.found += part.found
            whole.ratios += part.ratios
            for fault, seeds in part.faults.items():
                whole.faults[fault] = sorted([*whole.faults[fault], *seeds])
        return whole

    @property
    def wrong(self) -> int:
        """Clusters with a wrong answer."""
        return len({seed for seeds in self.faults.values() for seed in seeds})

    @property
    def mean(self) -> float:
        return sum(self.ratios) / len(self.ratios) if self.ratios else 1.0

    @property
    def worst(self) -> float:
        return max(self.ratios, default=1.0)


def row_quality(row: str, seeds: Iterable[int]) -> RowQuality:
    found = RowQuality()
    for seed in seeds:
        found.add(seed, world_quality(make_world(row, seed)))
    return found


def world_quality(document: Document) -> WorldQuality:
    """Run one cycle, and compare. A policy is read once for all clusters that have it: that takes longer than the cycle."""
    policy = policy_of(json.dumps(document["policy"]))
    scenario = from_document({key: value for key, value in document.items() if key != "policy"})
    rules = EvictionJudge()
    rules.start(policy, ())
    scheduler = Scheduler(policy, on_step=lambda name: rules.on_step(name, scheduler.world))
    runner = ScenarioRunner(scenario)
    runner.set_up()
    cluster = runner.cluster
    scheduler.feed(cluster.relist())
    outcome = scheduler.tick(cluster.now)
    s = rules.before_cycle(scheduler.world)
    gang = next(gang for gang in s.gangs.values() if any(pod.name.startswith(f"{ASKER}-") for pod in gang.pods()))
    if CONSOLIDATE[-1] in document["policy"]["actions"]:
        return _compare_moves(s, gang, scheduler.world)
    plan = next((plan for plan, _ in rules.plans(scheduler.world, outcome) if plan.asker == gang.key), None)
    action, best = _best(s, gang, document["policy"]["actions"])
    return _compare(s, gang, plan, action, best)


@cache
def policy_of(text: str) -> Policy:
    return load_policy(text)


def _best(s: Snapshot, gang: Gang, actions: list[str]) -> tuple[str, BestPlan | None]:
    """The best plan of the first action that has one."""
    in_quota = any(role.queue.startswith("quota/") for role in gang.roles)
    first = JOB_PREEMPT if in_quota else "preempt" if gang.is_single_pod else "gang-preempt"
    for action in [first, *([GANG_RECLAIM] if GANG_RECLAIM in actions else [])]:
        found = best_plan(s, gang.key, action)
        if found is not None:
            return action, found
    return "", None


def _compare(s: Snapshot, gang: Gang, plan: JudgedPlan | None, action: str, best: BestPlan | None) -> WorldQuality:
    exists = best is not None and bool(best.units)
    if plan is None:
        return WorldQuality(exists, False, frozenset({Fault.NOT_FOUND} if exists else ()), best=_shown(s, best))
    judgement = judge(s, plan)
    findings = (*judgement.findings, *needless_findings(s, plan, judgement.units))
    faults = {_fault_of(finding) for finding in findings}
    ratio = None
    if best is None or not exists:
        # Whoever fits as it is needs nobody to go; where no plan is legal, ours is not.
        faults.add(Fault.NEEDLESS if best is not None else Fault.FORBIDDEN)
    elif plan.action != action:
        faults.add(Fault.WORSE_ORDER)
    elif not faults:
        members = missing_members(s, gang)
        order = PlanOrder.of(s, gang, members, action, claimants_of(s, gang, members))
        ours, least = order.key(judgement.units), order.key(best.units)
        if ours == least:
            ratio = _ratio(order.cost(judgement.units), order.cost(best.units))
        elif ours < least:
            raise AssertionError(f"a legal plan is better than the best: {judgement.units}")
        else:
            higher = ours.has_whole == least.has_whole and ours.highest_priority > least.highest_priority
            faults.add(Fault.HIGHER_PRIORITY if higher else Fault.WORSE_ORDER)
    names = ", ".join(s.pods[uid].name for uid in plan.victims)
    return WorldQuality(exists, True, frozenset(faults), ratio, f"{plan.action}: {names}", f"{action}: {_shown(s, best)}", findings)


def _compare_moves(s: Snapshot, gang: Gang, world: World) -> WorldQuality:
    """The moves that were decided, beside the best ones of at most four pods. More than four are compared with nothing."""
    best = best_moves(s, gang.key)
    targets = {move.reserve.victim: move.placement.node or "" for move in world.memory.moves.values()}
    nominated = {pod.uid: world.placement(pod).node or "" for pod in gang.pods() if world.phase(pod) is Phase.NOMINATED}
    exists = best is not None and bool(best.pods)
    shown = ", ".join(s.pods[uid].name for uid in best.pods) if best is not None else "none of at most four"
    if not targets:
        return WorldQuality(exists, False, frozenset({Fault.NOT_FOUND} if exists else ()), best=shown)
    findings = tuple(move_findings(s, gang.key, targets, nominated))
    ours = price_of(s, tuple(targets))
    ratio = _ratio(ours, best.price) if best is not None and exists and len(targets) <= MOST_MOVES else None
    if best is not None and exists and len(targets) > MOST_MOVES:
        ratio = ours / best.price
    faults = frozenset({Fault.FORBIDDEN} if findings else ())
    names = ", ".join(s.pods[uid].name for uid in targets)
    return WorldQuality(exists, True, faults, ratio, f"moves {names}", f"moves {shown}", findings)


def _ratio(ours: float, best: float) -> float:
    if ours < best - 1e-9:
        raise AssertionError(f"a legal plan costs {ours}, less than the best with {best}")
    return 1.0 if ours <= best + 1e-12 else ours / best if best else 1.0 + ours


def _fault_of(finding: Finding) -> Fault:
    if finding.rule == "D3 torn":
        return Fault.TORN
    return Fault.NEEDLESS if finding.rule in ("D8 needless", "D3 surplus", "D2 demand") else Fault.FORBIDDEN


def _shown(s: Snapshot, best: BestPlan | None) -> str:
    if best is None:
        return "none"
    return ", ".join(s.pods[uid].name for unit in best.units for uid in unit.pods) or "nobody"
