"""Devices with indices: a pod goes only where slots for it can be had, and gets them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.device import DeviceApi, DeviceRequest, DeviceSlot
from muster.model.pod import Pod
from muster.model.resource_amounts import MEMORY, show_amount
from muster.model.topics import Topic
from muster.plugins._option_field import option
from muster.state.derived.device_usage import DeviceCapacity, DeviceUsage, device_usage
from muster.state.derived_values import Derived
from muster.state.device_slot_choice import Choices, fits_by_device
from muster.state.node_table import BoolColumn, NodeRows
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

    def match(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        """Could the node ever give the pod what it asks for?"""
        asks = pod.signature.devices
        if not asks:
            return np.ones(len(rows), dtype=np.bool_)
        if len({ask.api for ask in asks}) > 1:
            return np.zeros(len(rows), dtype=np.bool_)
        usage = device_usage(s.world)
        return _can_serve(usage, asks, rows, usage.bounds(rows.index)) | _without_device_list(usage, asks, rows)

    def applies_to(self, s: Session, pod: Pod) -> bool:
        asks = pod.signature.devices
        return bool(asks) and (asks[0].api is not DeviceApi.WHOLE or bool(device_usage(s.world).width))

    def fit(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        asks = pod.signature.devices
        if not asks:
            return np.ones(len(rows), dtype=np.bool_)
        usage = device_usage(s.world)
        if not usage.width:
            return _without_device_list(usage, asks, rows)
        left = usage.free(rows.index, after_releases=rows.after_releases)
        if len(asks) == 1 and asks[0].count == 1:
            column = fits_by_device(usage, asks[0], rows.index, left).sum(axis=1) > (0 if rows.extra is None else rows.extra)
        else:
            column = _can_serve(usage, asks, rows, left)
            self._check_slot_choice(s.world, usage, asks, rows, column)
        return np.asarray(column | _without_device_list(usage, asks, rows), dtype=np.bool_)

    def _check_slot_choice(
        self, world: World, usage: DeviceUsage, asks: tuple[DeviceRequest, ...], rows: NodeRows, column: BoolColumn
    ) -> None:
        """Rows on which the choice of slots decides how many pods fit: asked one by one."""
        if len(asks) == 1 and rows.extra is None:
            return
        choices = _slot_choices(world)
        for at in np.flatnonzero(column).tolist():
            number = 0 if rows.extra is None else int(rows.extra[at])
            if number or len(asks) > 1:
                row = at if rows.index is None else int(rows.index[at])
                column[at] = (
                    choices.run(usage, row, asks, spread=self._is_spread, after_releases=rows.after_releases).at(number) is not None
                )

    def slots(self, s: Session, pod: Pod, places: Sequence[str], *, after_releases: bool) -> list[tuple[DeviceSlot, ...]] | None:
        """The slots of equal pods that are put onto these nodes one after the other; none on a node where they are only counted."""
        asks, usage = pod.signature.devices, device_usage(s.world)
        if not asks or not usage.width:
            return None
        choices, put = _slot_choices(s.world), dict[str, int]()
        found: list[tuple[DeviceSlot, ...]] = []
        for node in places:
            number = put[node] = put.get(node, -1) + 1
            run = choices.run(usage, s.world.table.row[node], asks, spread=self._is_spread, after_releases=after_releases)
            found.append(run.at(number) or ())
        return found

    @property
    def _is_spread(self) -> bool:
        return self.strategy == "spread"

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        asks = pod.signature.devices
        dialects = sorted({ask.api.value for ask in asks})
        if len(dialects) > 1:
            return f"{nodes(len(rows))} refused because it asks for devices in the words of {' and '.join(dialects)} at once"
        never = ~self.match(s, pod, rows)
        words = " and ".join(dict.fromkeys(_request_text(ask) for ask in asks))
        said = [(int(never.sum()), f"without {words}"), (int((~never).sum()), f"with too little left of each device for {words}")]
        return ", ".join(f"{nodes(count)} {text}" for count, text in said if count)


def _can_serve(usage: DeviceUsage, asks: tuple[DeviceRequest, ...], rows: NodeRows, left: DeviceCapacity) -> BoolColumn:
    """Where each ask alone could be served."""
    column = np.ones(len(rows), dtype=np.bool_)
    for ask in asks:
        column &= (fits_by_device(usage, ask, rows.index, left) > 0).sum(axis=1) >= ask.count
    return column


def _without_device_list(usage: DeviceUsage, asks: tuple[DeviceRequest, ...], rows: NodeRows) -> BoolColumn:
    """Nodes that do not say which devices they have: whole ones are counted there like any other resource."""
    if asks[0].api is not DeviceApi.WHOLE:
        return np.zeros(len(rows), dtype=np.bool_)
    return ~usage.has_devices(rows.index) if usage.width else np.ones(len(rows), dtype=np.bool_)


_CHOICES: Derived[Choices] = Derived("choices of device slots", Topic.NODE_LAYOUT, Topic.NODE_DEVICES)


def _slot_choices(world: World) -> Choices:
    return _CHOICES.of(world, Choices)


def _request_text(ask: DeviceRequest) -> str:
    """`2 GPUs with 8Gi each`."""
    count = f"{ask.count} {ask.kind.upper()}{'s' if ask.count > 1 else ''}"
    return f"{count} with {', '.join(_request_parts(ask))}{' each' if ask.count > 1 else ''}"


def _request_parts(ask: DeviceRequest) -> Iterator[str]:
    if ask.ratio == 100:
        yield "all its memory"
    elif ask.ratio:
        yield f"{ask.ratio} % of its memory"
    elif ask.memory:
        yield show_amount(MEMORY, ask.memory)
    if ask.cores:
        yield f"{ask.cores} % of its cores"
