"""Evictions that lose more work than they are worth: a limit for each GPU that is asked for, and patience with who ends soon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.engine.evict.victims import VictimTable
from muster.engine.hooks import Ask
from muster.engine.option_field import option
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.pod import Phase, Placement, Pod
from muster.plugins._free_gpus import gpus_asked
from muster.state.node_table import BoolColumn, FloatColumn, RowIndex


@dataclass(frozen=True)
class Worth:
    """No plan loses more GPU-hours of work for each GPU that it is made for, and nobody is evicted who is known to end soon.

    Work is lost since the last checkpoint, or the start where none is declared, and for the time of a restart. Who asks for no
    GPUs, or loses none, is not limited. When a pod ends is known where it declares for how long it runs.
    """

    gpu_hours_per_gpu: float = option(4.0, "So many GPU-hours of work a plan may lose for each GPU that is asked for.", minimum=0)
    patience_seconds: float = option(0.0, "A pod that is known to end within so many seconds is not evicted.", minimum=0)
    name: str = "worth"

    def allows_eviction(self, s: Session, ask: Ask, pods: Sequence[Pod]) -> Verdict:
        asked = sum(gpus_asked(pod.signature) for pod in ask.pods)
        if not asked:
            return YES
        lost = sum(_lost_gpu_hours(s, pod, s.world.placement(pod)) for pod in pods)
        lost += sum(_lost_gpu_hours(s, pod, before) for pod, before in _evicted(s, ask))
        if lost <= self.gpu_hours_per_gpu * asked:
            return YES
        most = f"worth allows {self.gpu_hours_per_gpu:g} for each: {self.gpu_hours_per_gpu * asked:g}"
        return Verdict(ok=False, why=f"{lost:.1f} GPU-hours of work would be lost for {asked:g} GPUs, and {most}")

    def evictable(self, s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> BoolColumn:
        return self.evictable_at(s, ask, victim_table, victim) <= s.now

    def evictable_at(self, s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> FloatColumn:
        """One that ought to have ended by now is evictable again."""
        if not self.patience_seconds:
            return np.full(len(victim), -np.inf)
        ends = np.array([_known_end(victim_table.pods[at]) for at in victim.tolist()], dtype=np.float64)
        return np.where(ends <= s.now + self.patience_seconds, ends, -np.inf)

    def why_protected(self, s: Session, pods: Sequence[Pod]) -> str:
        return f"known to end within {self.patience_seconds:g} s"


def _evicted(s: Session, ask: Ask) -> list[tuple[Pod, Placement]]:
    """What the plan that is being made has evicted so far, and where it was. What was decided in this cycle is another's."""
    steps = s.world.placements.steps()
    decided = next((at for at in range(len(steps), 0, -1) if steps[at - 1].cause != "Simulated"), 0)
    first = {step.pod.uid: (step.pod, step.before) for step in reversed(steps[decided:]) if step.before.phase is Phase.BOUND}
    return [each for each in first.values() if s.world.phase(each[0]) is Phase.TERMINATING]


def _lost_gpu_hours(s: Session, pod: Pod, placement: Placement) -> float:
    if placement.phase is not Phase.BOUND:
        return 0.0
    return gpus_asked(pod.signature) * pod.hours_lost(since=placement.since, now=s.now)


def _known_end(pod: Pod) -> float:
    return np.inf if pod.run_s is None or pod.started is None else pod.started + pod.run_s
