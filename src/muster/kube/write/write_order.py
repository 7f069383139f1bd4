"""What is written in which order: a pure function of the effects of a cycle, for the simulator and the live writer alike.

Whoever carries a batch out begins a stage when the one before has ended, and a write when the plan that it names is saved; other
than that, writes of one stage may overlap. The writes of one effect are in `effect_writes`. A process that dies at any write leaves
behind what the next one can continue from: that is what this order is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from muster.kube.write.effect_writes import WrittenEffect
from muster.kube.write.status_updates import GangPods, StatusWrite, status_writes
from muster.model.effects import (
    Bind,
    CancelEviction,
    Condition,
    DeletePlan,
    Effect,
    Evict,
    Nominate,
    PodGroupStatus,
    QueueStatus,
    Release,
    Reserve,
    SaveHistory,
    SavePlan,
)

E = TypeVar("E")


class EffectWrite(NamedTuple):
    """One effect. `plans`: gangs whose plans have to be saved before it begins."""

    effect: WrittenEffect
    plans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """All that one cycle decided, in the order in which it is written; status updates and Kubernetes events come last."""

    stages: tuple[tuple[EffectWrite, ...], ...]
    status_writes: tuple[StatusWrite, ...]

    @property
    def size(self) -> int:
        """The number of effects."""
        return sum(len(stage) for stage in self.stages)


def order_writes(effects: Sequence[Effect], *, gang_pods: GangPods) -> WriteBatch:
    """Plans, then Histories; then cancelled evictions; then releases; then reservations, binds and evictions, and Plans that
    have ended; then status updates.

    A Plan is saved before anything else that it speaks of is written, and a History before the evictions that it counts, but
    after their Plan: a restart counts what a Plan has and a History lacks.
    A reservation is released before another pod is bound to its capacity.
    """
    plans = _only(SavePlan, effects)
    plan_of = {member.uid: (one.plan.gang,) for one in plans for member in one.plan.members}
    for one in plans:
        for uid in (uid for entry in one.plan.evictions for uid in entry.victims):
            plan_of[uid] = (*plan_of.get(uid, ()), one.plan.gang)
    reserving = [one for one in effects if isinstance(one, Reserve | Nominate)]
    evicting = [EffectWrite(one, plan_of.get(one.uid, ())) for one in _only(Evict, effects)]
    stages: tuple[tuple[EffectWrite, ...], ...] = (
        tuple(map(EffectWrite, plans)),
        tuple(map(EffectWrite, _only(SaveHistory, effects))),
        tuple(map(EffectWrite, _only(CancelEviction, effects))),
        tuple(map(EffectWrite, _only(Release, effects))),
        (
            *(EffectWrite(one, plan_of.get(one.uid, ())) for one in reserving),
            *map(EffectWrite, _only(Bind, effects)),
            *sorted(evicting, key=lambda write: bool(write.plans)),
            *map(EffectWrite, _only(DeletePlan, effects)),
        ),
    )
    updates = (one for one in effects if isinstance(one, Condition | PodGroupStatus | QueueStatus))
    return WriteBatch(
        stages=tuple(filter(None, stages)),
        status_writes=tuple(one for update in updates for one in status_writes(update, gang_pods=gang_pods)),
    )


def _only(kind: type[E], effects: Iterable[object]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]
