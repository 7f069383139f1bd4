"""Disruption budgets. `hard`: pods whose budget allows no disruption are no victims. `soft`: they are chosen last, and deleted.

A pod may be under several budgets; each must allow it. Victims chosen earlier use their budgets up, long before the budget's own
status shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from muster.engine.evict.victims import VictimTable
from muster.engine.hooks import Ask
from muster.engine.option_field import option
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.pod import Phase, Pod
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.node_table import BoolColumn, IntColumn, RowIndex
from muster.state.world import World


@dataclass(frozen=True)
class Pdb:
    """Disruption budgets are kept while victims are chosen. A pod may be under several; each must allow it."""

    mode: Literal["hard", "soft"] = option(
        "hard", "`hard`: pods whose budget allows no disruption are no victims. `soft`: they are chosen last, and deleted."
    )
    name: str = "pdb"

    @property
    def is_hard(self) -> bool:
        return self.mode == "hard"

    def evictable(self, s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> BoolColumn:
        if self.mode != "hard" or not s.world.facts.budgets:
            return np.ones(len(victim), dtype=np.bool_)
        left = disruptions_left(s.world)
        barred = {key for key, count in left.items() if count <= 0}
        if not barred:
            return np.ones(len(victim), dtype=np.bool_)
        bound = (victim_table.phase[victim] == Phase.BOUND).tolist()
        pods = [victim_table.pods[at] for at in victim.tolist()]
        protected = [runs and not barred.isdisjoint(budgets_covering(s.world, pod)) for pod, runs in zip(pods, bound, strict=True)]
        return ~np.array(protected, dtype=np.bool_)

    def why_protected(self, s: Session, pods: Sequence[Pod]) -> str:
        left = disruptions_left(s.world)
        barred = sorted({key for pod in pods for key in budgets_covering(s.world, pod) if left[key] <= 0})
        return f"under a disruption budget that allows no eviction now: {', '.join(barred)}"

    def allows_eviction(self, s: Session, ask: Ask, pods: Sequence[Pod]) -> Verdict:
        if self.mode != "hard" or not s.world.facts.budgets:
            return YES
        left = disruptions_left(s.world)
        for pod in pods:
            for key in budgets_covering(s.world, pod) if s.world.phase(pod) is Phase.BOUND else ():
                left[key] -= 1
                if left[key] < 0:
                    why = f"the disruption budget {key} allows {s.world.facts.budgets[key].allowed} at a time"
                    return Verdict(ok=False, why=why, topics=(Topic.BUDGETS.any,))
        return YES

    def budget_use(
        self, s: Session, victim_table: VictimTable, victim: RowIndex, unit: RowIndex, units: int
    ) -> tuple[IntColumn, IntColumn]:
        if not s.world.facts.budgets:
            return np.zeros((units, 0), dtype=np.int64), np.zeros(0, dtype=np.int64)
        keys = sorted(s.world.facts.budgets)
        covered, budget = _budgets_by_row(s, victim_table, victim, keys)
        evicted = np.zeros((units, len(keys)), dtype=np.int64)
        np.add.at(evicted, (unit[covered], budget), 1)
        allowed = disruptions_left(s.world)
        return evicted, np.array([allowed[key] for key in keys], dtype=np.int64)


def _budgets_by_row(s: Session, victim_table: VictimTable, victim: RowIndex, keys: list[str]) -> tuple[RowIndex, RowIndex]:
    """Which of these placed pods are under which budgets."""
    number = {key: at for at, key in enumerate(keys)}
    bound = np.flatnonzero(victim_table.phase[victim] == Phase.BOUND)
    found = [
        (at, number[key])
        for at, row in zip(bound.tolist(), victim[bound].tolist(), strict=True)
        for key in budgets_covering(s.world, victim_table.pods[row])
    ]
    covered = np.array(found, dtype=np.intp).reshape(-1, 2)
    return covered[:, 0], covered[:, 1]


def disruptions_left(world: World) -> dict[str, int]:
    """What each budget still allows: its status, less the evicted pods that it has not counted yet."""
    left = {key: budget.allowed for key, budget in world.facts.budgets.items()}
    for uid in world.placements.releasing:
        pod = world.facts.pods[uid]
        if pod.deleted_at is None:
            for key in budgets_covering(world, pod):
                left[key] -= 1
    return left


_BUDGETS_OF: Derived[dict[str, tuple[str, ...]]] = Derived("budgets of pods", Topic.BUDGETS, follows=Topic.PLACEMENTS)


def _forget(known: dict[str, tuple[str, ...]], changed: list[str]) -> None:
    for uid in changed:
        known.pop(uid, None)


def budgets_covering(world: World, pod: Pod) -> tuple[str, ...]:
    """The budgets that a pod is under. Kept for as long as neither they nor the pod change."""
    known = _BUDGETS_OF.of(world, dict, update=_forget)
    found = known.get(pod.uid)
    if found is None:
        found = known[pod.uid] = tuple(
            key
            for key, budget in sorted(world.facts.budgets.items())
            if budget.namespace == pod.namespace and budget.selector is not None and budget.selector.selects(pod.labels)
        )
    return found
