"""What is written in which order: pure functions of the effects of a cycle, for the simulator and the live writer alike.

`order_writes` gives the stages of a batch, `steps_of` the writes of one effect. Whoever carries a batch out begins a stage when the
one before has ended, and a write when the reservations that it names are written; other than that, writes of one stage may overlap.
A process that dies at any write leaves behind what the next one can continue from: that is what this order is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from muster.kube.write.patch_builder import GangPods, StatusWrite, status_writes
from muster.model.effects import (
    Bind,
    CancelEviction,
    Condition,
    Effect,
    Evict,
    Nominate,
    PodEffect,
    PodGroupStatus,
    QueueStatus,
    Release,
    Reserve,
)


class PodWrite(NamedTuple):
    """One effect on a pod. `after`: UIDs of the pods whose reservations have to be written before it begins."""

    effect: PodEffect
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """All that one cycle decided, in the order in which it is written; status updates and Kubernetes events come last."""

    stages: tuple[tuple[PodWrite, ...], ...]
    status_writes: tuple[StatusWrite, ...]

    @property
    def size(self) -> int:
        """The number of effects on pods."""
        return sum(len(stage) for stage in self.stages)


def order_writes(effects: Iterable[Effect], *, gang_pods: GangPods) -> WriteBatch:
    """Cancelled evictions; then releases; then reservations, binds and evictions; then status updates.

    An eviction is cancelled before the reservation is released that names its victim. A reservation is released before another pod
    is bound to its capacity: one that outlives that would block it after a crash.
    """
    effects = tuple(effects)
    reservations = tuple(effect for effect in effects if isinstance(effect, Reserve | Nominate))
    evictions = tuple(effect for effect in effects if isinstance(effect, Evict))
    binds = (PodWrite(effect) for effect in effects if isinstance(effect, Bind))
    stages = (
        tuple(PodWrite(effect) for effect in effects if isinstance(effect, CancelEviction)),
        tuple(PodWrite(effect) for effect in effects if isinstance(effect, Release)),
        (*map(PodWrite, reservations), *binds, *_eviction_writes(evictions, reservations)),
    )
    status_effects = (effect for effect in effects if isinstance(effect, Condition | PodGroupStatus | QueueStatus))
    return WriteBatch(
        stages=tuple(stage for stage in stages if stage),
        status_writes=tuple(one for effect in status_effects for one in status_writes(effect, gang_pods=gang_pods)),
    )


def _eviction_writes(evictions: Sequence[Evict], reservations: Sequence[Reserve | Nominate]) -> list[PodWrite]:
    """Each after the nominations of the plans that name its victim, or else of the gang that it is for: no pod is evicted for a
    plan that a crash leaves incomplete. Those that wait for none come first."""
    by_victim: dict[str, list[str]] = {}
    by_gang: dict[str, list[str]] = {}
    by_plan: dict[str, list[str]] = {}
    nominations = [one for one in reservations if isinstance(one, Nominate)]
    for nomination in nominations:
        by_plan.setdefault(nomination.plan, []).append(nomination.uid)
        by_gang.setdefault(nomination.gang, []).append(nomination.uid)
    for nomination in {one.plan: one for one in nominations}.values():
        for victim in nomination.victims:
            by_victim.setdefault(victim, []).extend(by_plan[nomination.plan])
    writes = [PodWrite(one, tuple(by_victim.get(one.uid) or by_gang.get(one.for_gang, []))) for one in evictions]
    return sorted(writes, key=lambda write: bool(write.after))


class WriteStep(Enum):
    """One kind of write to the API server. Each is skipped where the object shows already what it would write."""

    VOLUMES = auto()
    """Which volume each claim of the pod gets. Before the bind: after a crash a bound pod must not find its volume taken."""
    BINDING = auto()
    CLEAR_RESERVATION = auto()
    """Also where the pod is found to be bound to another node: a bound pod needs no reservation."""
    PATCH = auto()
    """Annotations, labels and the nominated node of the pod, in one patch with the status updates of the pod."""
    DISRUPTION_CONDITION = auto()
    """The Eviction API writes this condition itself; before a deletion the scheduler does."""
    EVICTION = auto()
    DELETION = auto()


def steps_of(effect: PodEffect) -> tuple[WriteStep, ...]:
    """The writes of one effect, in order."""
    match effect:
        case Bind():
            return _BIND_WITH_VOLUMES if effect.volumes else _BIND
        case Evict(method="evict"):
            return _EVICT
        case Evict(method="delete"):
            return _DELETE
        case _:
            return _PATCH


_BIND = (WriteStep.BINDING, WriteStep.CLEAR_RESERVATION)
_BIND_WITH_VOLUMES = (WriteStep.VOLUMES, *_BIND)
_EVICT = (WriteStep.EVICTION,)
_DELETE = (WriteStep.DISRUPTION_CONDITION, WriteStep.DELETION)
_PATCH = (WriteStep.PATCH,)
