"""Devices with indices: a pod goes only where slots for it can be had, and gets them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.devices import DeviceAsk, DeviceDialect, Slot
from muster.model.pod import Pod
from muster.model.resources import MEMORY, show_amount
from muster.model.topics import Topic
from muster.plugins._options import option
from muster.state.derived import Derived
from muster.state.devices import Left, Occupancy, occupancy
from muster.state.slot_choice import Choices, seats_by_device
from muster.state.table import BoolColumn, Rows
from muster.state.world import World


@dataclass(frozen=True)
class Devices:
    """A pod goes only where the devices that it asks for have enough left, and gets the slots of them that it will keep.

    It counts what is left of each device, not of all together: two halves are no whole. Several devices come from one island
    (NVLink, PCIe) where that can be had. Pods that ask for whole GPUs by `nvidia.com/gpu` are only counted on nodes that do not say
    which devices they have.
    """

    strategy: Literal["binpack", "spread"] = option(
        "binpack", "Which devices of a node go first: the fullest that have enough left (`binpack`), or the emptiest (`spread`)."
    )
    name: str = "devices"

    def match(self, s: Session, pod: Pod, rows: Rows) -> BoolColumn:
        """Could the node ever give the pod what it asks for?"""
        asks = pod.kind.devices
        if not asks:
            return np.ones(len(rows), dtype=np.bool_)
        if len({ask.dialect for ask in asks}) > 1:
            return np.zeros(len(rows), dtype=np.bool_)
        book = occupancy(s.world)
        return _serves(book, asks, rows, book.bounds(rows.index)) | _only_counts(book, asks, rows)

    def minds(self, s: Session, pod: Pod) -> bool:
        asks = pod.kind.devices
        return bool(asks) and (asks[0].dialect is not DeviceDialect.WHOLE or bool(occupancy(s.world).width))

    def fit(self, s: Session, pod: Pod, rows: Rows) -> BoolColumn:
        asks = pod.kind.devices
        if not asks:
            return np.ones(len(rows), dtype=np.bool_)
        book = occupancy(s.world)
        if not book.width:
            return _only_counts(book, asks, rows)
        left = book.left(rows.index, soon=rows.soon)
        if len(asks) == 1 and asks[0].count == 1:
            column = seats_by_device(book, asks[0], rows.index, left).sum(axis=1) > (0 if rows.extra is None else rows.extra)
        else:
            column = _serves(book, asks, rows, left)
            self._look_closer(s.world, book, asks, rows, column)
        return np.asarray(column | _only_counts(book, asks, rows), dtype=np.bool_)

    def _look_closer(self, world: World, book: Occupancy, asks: tuple[DeviceAsk, ...], rows: Rows, column: BoolColumn) -> None:
        """Rows on which the choice of slots decides how many pods fit: asked one by one."""
        if len(asks) == 1 and rows.extra is None:
            return
        choices = _choices(world)
        for at in np.flatnonzero(column).tolist():
            number = 0 if rows.extra is None else int(rows.extra[at])
            if number or len(asks) > 1:
                row = at if rows.index is None else int(rows.index[at])
                column[at] = choices.run(book, row, asks, spread=self._spreads, soon=rows.soon).at(number) is not None

    def slots(self, s: Session, pod: Pod, places: Sequence[str], *, soon: bool) -> list[tuple[Slot, ...]] | None:
        """The slots of equal pods that are put onto these nodes one after the other; none on a node where they are only counted."""
        asks, book = pod.kind.devices, occupancy(s.world)
        if not asks or not book.width:
            return None
        choices, put = _choices(s.world), dict[str, int]()
        found: list[tuple[Slot, ...]] = []
        for node in places:
            number = put[node] = put.get(node, -1) + 1
            run = choices.run(book, s.world.table.row[node], asks, spread=self._spreads, soon=soon)
            found.append(run.at(number) or ())
        return found

    @property
    def _spreads(self) -> bool:
        return self.strategy == "spread"

    def blame(self, s: Session, pod: Pod, rows: Rows) -> str:
        asks = pod.kind.devices
        dialects = sorted({ask.dialect.value for ask in asks})
        if len(dialects) > 1:
            return f"{nodes(len(rows))} refused because it asks for devices in the words of {' and '.join(dialects)} at once"
        never = ~self.match(s, pod, rows)
        words = " and ".join(dict.fromkeys(_words(ask) for ask in asks))
        said = [(int(never.sum()), f"without {words}"), (int((~never).sum()), f"with too little left of each device for {words}")]
        return ", ".join(f"{nodes(count)} {text}" for count, text in said if count)


def _serves(book: Occupancy, asks: tuple[DeviceAsk, ...], rows: Rows, left: Left) -> BoolColumn:
    """Where each ask alone could be served."""
    column = np.ones(len(rows), dtype=np.bool_)
    for ask in asks:
        column &= (seats_by_device(book, ask, rows.index, left) > 0).sum(axis=1) >= ask.count
    return column


def _only_counts(book: Occupancy, asks: tuple[DeviceAsk, ...], rows: Rows) -> BoolColumn:
    """Nodes that do not say which devices they have: whole ones are counted there like any other resource."""
    if asks[0].dialect is not DeviceDialect.WHOLE:
        return np.zeros(len(rows), dtype=np.bool_)
    return ~book.has_devices(rows.index) if book.width else np.ones(len(rows), dtype=np.bool_)


_CHOICES: Derived[Choices] = Derived("choices of device slots", Topic.NODE_LAYOUT, Topic.NODE_DEVICES)


def _choices(world: World) -> Choices:
    return _CHOICES.of(world, Choices)


def _words(ask: DeviceAsk) -> str:
    """`2 GPUs with 8Gi each`."""
    count = f"{ask.count} {ask.kind.upper()}{'s' if ask.count > 1 else ''}"
    return f"{count} with {', '.join(_parts(ask))}{' each' if ask.count > 1 else ''}"


def _parts(ask: DeviceAsk) -> Iterator[str]:
    if ask.ratio == 100:
        yield "all its memory"
    elif ask.ratio:
        yield f"{ask.ratio} % of its memory"
    elif ask.memory:
        yield show_amount(MEMORY, ask.memory)
    if ask.cores:
        yield f"{ask.cores} % of its cores"
