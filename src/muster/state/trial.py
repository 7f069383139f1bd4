"""A trial: do, look, and undo exactly. The only way in which the engine places, evicts or releases anybody.

Trials nest: each is a stretch of the one journal. What is not committed is undone at the end of the `with` block, newest first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from muster.model.device import DeviceSlot
from muster.model.pod import UNPLACED, Phase, Placement, Pod
from muster.model.topics import Topic
from muster.state.journaled_dict import MemoryStep
from muster.state.placements import NetChange, Step
from muster.state.world import World

_SETTLED = (Topic.FREE_CAPACITY, Topic.RELEASING, Topic.RESERVATIONS, Topic.POD_PLACED, Topic.QUEUE_USAGE)
"""What a cycle may have changed that verdicts name."""


class Trial:
    def __init__(self, world: World, *, why: str, cause: str, for_gang: str = "") -> None:
        self.world = world
        self.why = why
        self.cause = cause
        self.for_gang = for_gang
        self._start = len(world.placements.journal)
        self._kept = False

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._kept:
            self.undo_to(self._start)

    def place(self, pod: Pod, node: str, *, phase: Phase, devices: tuple[DeviceSlot, ...] = (), plan: str = "") -> None:
        self._move(pod, Placement(phase, node, self.world.now, devices, plan))

    def place_many(
        self, pods: Sequence[Pod], nodes: Sequence[str], *, phase: Phase, devices: Sequence[tuple[DeviceSlot, ...]] | None = None
    ) -> None:
        """Equal pods of one role, none of them placed, a node each, and the slots of its devices where they need any."""
        self.world.placements.move_many(pods, nodes, phase=phase, since=self.world.now, devices=devices)
        step = (self.why, self.cause, self.for_gang)
        self.world.placements.journal.extend([Step(pod, UNPLACED, *step) for pod in pods])

    def change_phase(self, pod: Pod, *, phase: Phase) -> None:
        """The same node and device slots, another phase: a nominated pod is bound, a bound one is evicted."""
        now = self.world.placement(pod)
        self._move(pod, Placement(phase, now.node, self.world.now, now.devices, now.plan))

    def evict(self, pod: Pod) -> None:
        self.change_phase(pod, phase=Phase.TERMINATING)

    def release(self, pod: Pod) -> None:
        self._move(pod, UNPLACED)

    def restore(self, pod: Pod, placement: Placement) -> None:
        """Put a pod back exactly where it was, slots included."""
        self._move(pod, placement)

    def mark(self) -> int:
        return len(self.world.placements.journal)

    def undo_to(self, mark: int) -> None:
        journal = self.world.placements.journal
        while len(journal) > mark:
            _undo(self.world, journal.pop())

    def commit(self) -> None:
        self._kept = True

    def _move(self, pod: Pod, placement: Placement) -> None:
        before = self.world.placements.move(pod, placement)
        self.world.placements.journal.append(Step(pod, before, self.why, self.cause, self.for_gang))


def take_back(world: World, changes: Sequence[NetChange], *, keeping: Collection[object]) -> None:
    """Undo a cycle that was decided, and with it what it remembered, but for what stands in the tables that are kept."""
    journal = world.placements.journal
    while journal:
        step = journal.pop()
        if isinstance(step, Step) or step.table not in keeping:
            _undo(world, step)
    for change in changes:
        # It counted as settled: so does that it is not.
        world.placements.capacity_freed(change.step.pod.uid, *_SETTLED)


@contextmanager
def taken_off(world: World, pods: Sequence[Pod]) -> Iterator[None]:
    """These pods have no node meanwhile."""
    before = [(pod, world.placements.move(pod, UNPLACED)) for pod in pods]
    for pod in pods:
        world.placements.capacity_freed(pod.uid, *_SETTLED)
    yield
    for pod, placement in before:
        world.placements.move(pod, placement)
        world.placements.capacity_freed(pod.uid, *_SETTLED)


def _undo(world: World, step: Step | MemoryStep[Any, Any]) -> None:
    if isinstance(step, Step):
        world.placements.move(step.pod, step.before)
    else:
        step.undo()
