"""Disruption budgets. `hard`: nobody is chosen whose budget has nothing left. `soft`: they are chosen last, and deleted.

A pod may be under several budgets; each must allow it. Victims chosen earlier use their budgets up, long before the budget's own
status shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from muster.engine.evict.seats import SeatTable
from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.budget import Budget
from muster.model.effects import YES, Verdict
from muster.model.pod import Phase, Pod
from muster.plugins._options import option
from muster.state.store import BUDGETS
from muster.state.table import BoolColumn, RowIndex
from muster.state.world import World


@dataclass(frozen=True)
class Pdb:
    """Disruption budgets are kept while victims are chosen. A pod may be under several; each must allow it."""

    mode: Literal["hard", "soft"] = option(
        "hard", "`hard`: nobody is chosen whose budget has nothing left. `soft`: they are chosen last, and deleted."
    )
    name: str = "pdb"

    @property
    def is_hard(self) -> bool:
        return self.mode == "hard"

    def evictable(self, s: Session, ask: Ask, seats: SeatTable, seat: RowIndex) -> BoolColumn:
        if self.mode != "hard" or not s.world.budgets:
            return np.ones(len(seat), dtype=np.bool_)
        left = allowance(s.world)
        barred = {key for key, count in left.items() if count <= 0}
        if not barred:
            return np.ones(len(seat), dtype=np.bool_)
        bound = (seats.phase[seat] == Phase.BOUND).tolist()
        pods = [seats.pods[at] for at in seat.tolist()]
        protected = [runs and not barred.isdisjoint(budgets_of(s.world, pod)) for pod, runs in zip(pods, bound, strict=True)]
        return ~np.array(protected, dtype=np.bool_)

    def may_take(self, s: Session, ask: Ask, pods: Sequence[Pod]) -> Verdict:
        if self.mode != "hard" or not s.world.budgets:
            return YES
        left = allowance(s.world)
        for pod in pods:
            for key in budgets_of(s.world, pod) if s.world.phase(pod) is Phase.BOUND else ():
                left[key] -= 1
                if left[key] < 0:
                    why = f"the disruption budget {key} allows {s.world.budgets[key].allowed} at a time"
                    return Verdict(ok=False, why=why, code="Budget", wakes=(BUDGETS,))
        return YES

    def guards(self, s: Session, seats: SeatTable, seat: RowIndex, unit: RowIndex, units: int) -> BoolColumn:
        """Units with a pod that is under any budget at all."""
        column = np.zeros(units, dtype=np.bool_)
        if s.world.budgets:
            for at, number in zip(seat.tolist(), unit.tolist(), strict=True):
                column[number] |= bool(budgets_of(s.world, seats.pods[at]))
        return column

    def violates(self, s: Session, seats: SeatTable, seat: RowIndex, unit: RowIndex, units: int) -> BoolColumn:
        """Units with a pod whose budget has nothing left, or with more pods under one budget than it has left."""
        column = np.zeros(units, dtype=np.bool_)
        if not s.world.budgets:
            return column
        left = allowance(s.world)
        spent: dict[tuple[int, str], int] = {}
        for at, number in zip(seat.tolist(), unit.tolist(), strict=True):
            for key in budgets_of(s.world, seats.pods[at]) if seats.phase[at] == Phase.BOUND else ():
                spent[number, key] = spent.get((number, key), 0) + 1
                column[number] |= spent[number, key] > left[key]
        return column


def allowance(world: World) -> dict[str, int]:
    """What each budget still allows: its own figure, less those who were told to go and whom it has not counted yet."""
    left = {key: budget.allowed for key, budget in world.budgets.items()}
    for uid in world.going:
        pod = world.pods[uid]
        if pod.deleted_at is None:
            for key in budgets_of(world, pod):
                left[key] -= 1
    return left


def budgets_of(world: World, pod: Pod) -> tuple[str, ...]:
    """The budgets that a pod is under. Remembered for as long as neither they nor the pod change."""
    memo = world.memo.get("budgets")
    version = world.version(BUDGETS)
    if not isinstance(memo, _Memo) or memo.version != version:
        memo = world.memo["budgets"] = _Memo(version, {}, world.budgets)
    return memo.of(pod)


@dataclass(slots=True)
class _Memo:
    version: int
    found: dict[str, tuple[Pod, tuple[str, ...]]]
    budgets: dict[str, Budget]

    def of(self, pod: Pod) -> tuple[str, ...]:
        known = self.found.get(pod.uid)
        if known is not None and known[0] is pod:
            return known[1]
        mine = tuple(
            key
            for key, budget in sorted(self.budgets.items())
            if budget.namespace == pod.namespace and budget.selector is not None and budget.selector.selects(pod.labels)
        )
        self.found[pod.uid] = (pod, mine)
        return mine
