"""A gang that has just started is not evicted, and one that was reclaimed from not again soon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from muster.engine.consolidate.movable_pods import CONSOLIDATE
from muster.engine.evict.eviction_history import gang_losses
from muster.engine.evict.victims import VictimTable
from muster.engine.hooks import Ask
from muster.engine.option_field import option
from muster.engine.session import Session
from muster.model.pod import Phase, Pod
from muster.state.node_table import BoolColumn, FloatColumn, RowIndex

EvictingAction = Literal["preempt", "gang-preempt", "gang-reclaim", "job-preempt"]
EVICTING_ACTIONS: tuple[EvictingAction, ...] = get_args(EvictingAction)


@dataclass(frozen=True)
class MinRuntime:
    """A gang that has just started is not evicted. The time doubles with each time that it was reclaimed from, or moved."""

    seconds: float = option(
        60.0, "For how long a gang is protected from its start on, or from when it was last reclaimed from or moved.", minimum=0
    )
    actions: tuple[EvictingAction, ...] = option(
        EVICTING_ACTIONS, "The actions to which this applies; to consolidate it always does."
    )
    name: str = "min-runtime"

    def evictable(self, s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> BoolColumn:
        return self.evictable_at(s, ask, victim_table, victim) <= s.now

    def evictable_at(self, s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> FloatColumn:
        """From when on each is evictable. A reserved or nominated pod has not started."""
        if ask.action not in (*self.actions, CONSOLIDATE):
            return np.full(len(victim), -np.inf)
        runs = victim_table.phase[victim] == Phase.BOUND
        gang = victim_table.gang[victim]
        seconds, begins = self._by_gang(s, victim_table)
        return np.where(runs, np.maximum(_started(victim_table)[gang], begins[gang]) + seconds[gang], -np.inf)

    def why_protected(self, s: Session, pods: Sequence[Pod]) -> str:
        return "within the minimum run time of their gang"

    def _by_gang(self, s: Session, victim_table: VictimTable) -> tuple[FloatColumn, FloatColumn]:
        """For how long each gang is protected, and from when on: longer with each time that it was reclaimed from."""
        seconds = np.full(len(victim_table.gangs), self.seconds)
        begins = np.full(len(victim_table.gangs), -np.inf)
        for number, losses in gang_losses(s, victim_table):
            if losses.reclaims > 0:
                seconds[number] = self.seconds * 2.0 ** min(losses.reclaims, 1000.0)
                begins[number] = losses.reclaimed_at
        return seconds, begins


def _started(victim_table: VictimTable) -> FloatColumn:
    """When each gang started: a member that fails and comes again does not start its time anew. Where the node of none of its
    members has said so yet, since when they are placed counts."""
    used = len(victim_table.pods)
    bound = victim_table.alive[:used] & (victim_table.phase[:used] == Phase.BOUND)
    gang = victim_table.gang[:used][bound]
    started, placed = (np.full(len(victim_table.gangs), np.inf) for _ in range(2))
    np.minimum.at(started, gang, victim_table.started[:used][bound])
    np.minimum.at(placed, gang, victim_table.since[:used][bound])
    return np.where(np.isfinite(started), started, placed)
