"""Devices with indices: a pod is placed only where slots for it are free, and gets them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from muster.engine.explain import nodes
from muster.engine.option_field import option
from muster.engine.session import Session
from muster.model.device import DeviceApi, DeviceRequest, DeviceSlot
from muster.model.pod import Pod
from muster.model.resource_amounts import MEMORY, show_amount
from muster.model.topics import Topic
from muster.state.derived.device_usage import DeviceCapacity, DeviceUsage, device_usage
from muster.state.derived_values import Derived
from muster.state.device_slot_choice import Choices, fits_by_device
from muster.state.node_table import BoolColumn, NodeRows
from muster.state.world import World


@dataclass(frozen=True)
class Devices:
    """A pod is placed only where the devices that it requests have enough free, and is assigned slots of them.

    What is free counts per device: two halves are no whole. Several devices come from one device group (NVLink, PCIe) where
    possible. Pods that request whole GPUs by `nvidia.com/gpu` are only counted on nodes that do not list their devices.
    """

    strategy: Literal["binpack", "spread"] = option(
        "binpack",
        "Which devices of a node are used first: the fullest that have enough free (`binpack`), or the emptiest (`spread`).",
    )
    name: str = "devices"

    def match(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        """Could the node, when empty, have what the pod requests?"""
        requests = pod.signature.devices
        if not requests:
            return np.ones(len(rows), dtype=np.bool_)
        if len({request.api for request in requests}) > 1:
            return np.zeros(len(rows), dtype=np.bool_)
        usage = device_usage(s.world)
        return _can_serve(usage, requests, rows, usage.bounds(rows.index)) | _without_device_list(usage, requests, rows)

    def applies_to(self, s: Session, pod: Pod) -> bool:
        requests = pod.signature.devices
        return bool(requests) and (requests[0].api is not DeviceApi.WHOLE or bool(device_usage(s.world).width))

    def fit(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        requests = pod.signature.devices
        if not requests:
            return np.ones(len(rows), dtype=np.bool_)
        usage = device_usage(s.world)
        if not usage.width:
            return _without_device_list(usage, requests, rows)
        left = usage.free(rows.index, after_releases=rows.after_releases)
        if len(requests) == 1 and requests[0].count == 1:
            column = fits_by_device(usage, requests[0], rows.index, left).sum(axis=1) > (0 if rows.extra is None else rows.extra)
        else:
            column = _can_serve(usage, requests, rows, left)
            self._check_slot_choice(s.world, usage, requests, rows, column)
        return np.asarray(column | _without_device_list(usage, requests, rows), dtype=np.bool_)

    def _check_slot_choice(
        self, world: World, usage: DeviceUsage, requests: tuple[DeviceRequest, ...], rows: NodeRows, column: BoolColumn
    ) -> None:
        """Rows on which the choice of slots decides how many pods fit: checked one by one."""
        if len(requests) == 1 and rows.extra is None:
            return
        choices = self._slot_choices(world, requests)
        for at in np.flatnonzero(column).tolist():
            number = 0 if rows.extra is None else int(rows.extra[at])
            if number or len(requests) > 1:
                row = at if rows.index is None else int(rows.index[at])
                column[at] = choices.run(usage, row, after_releases=rows.after_releases).at(number) is not None

    def slots(self, s: Session, pod: Pod, places: Sequence[str], *, after_releases: bool) -> list[tuple[DeviceSlot, ...]] | None:
        """The slots of equal pods that are put onto these nodes one after the other; none on a node where they are only counted."""
        requests, usage = pod.signature.devices, device_usage(s.world)
        if not requests or not usage.width:
            return None
        choices, put = self._slot_choices(s.world, requests), dict[str, int]()
        found: list[tuple[DeviceSlot, ...]] = []
        for node in places:
            number = put[node] = put.get(node, -1) + 1
            found.append(choices.run(usage, s.world.table.row[node], after_releases=after_releases).at(number) or ())
        return found

    def _slot_choices(self, world: World, requests: tuple[DeviceRequest, ...]) -> Choices:
        spread = self.strategy == "spread"
        return _CHOICES.of(world, lambda: Choices(requests, spread=spread), key=(requests, spread))

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        requests = pod.signature.devices
        apis = sorted({request.api.value for request in requests})
        if len(apis) > 1:
            return f"{nodes(len(rows))} refused because it requests devices through the APIs of {' and '.join(apis)} at once"
        impossible, table = ~self.match(s, pod, rows), s.world.table
        unhealthy = [sum(not device.healthy for device in table.nodes[row].devices) for row in rows.numbers[impossible].tolist()]
        requested = " and ".join(dict.fromkeys(_request_text(request) for request in requests))
        reasons = [
            (unhealthy.count(0), f"without {requested}"),
            (len(unhealthy) - unhealthy.count(0), f"without {requested} among those that are healthy ({sum(unhealthy)} are not)"),
            (int((~impossible).sum()), f"with too little left of each device for {requested}"),
        ]
        return ", ".join(f"{nodes(count)} {text}" for count, text in reasons if count)


def _can_serve(usage: DeviceUsage, requests: tuple[DeviceRequest, ...], rows: NodeRows, left: DeviceCapacity) -> BoolColumn:
    """Where each request alone could be served."""
    column = np.ones(len(rows), dtype=np.bool_)
    for request in requests:
        column &= (fits_by_device(usage, request, rows.index, left) > 0).sum(axis=1) >= request.count
    return column


def _without_device_list(usage: DeviceUsage, requests: tuple[DeviceRequest, ...], rows: NodeRows) -> BoolColumn:
    """Nodes that do not say which devices they have: whole ones are counted there like any other resource."""
    if requests[0].api is not DeviceApi.WHOLE:
        return np.zeros(len(rows), dtype=np.bool_)
    return ~usage.has_devices(rows.index) if usage.width else np.ones(len(rows), dtype=np.bool_)


_CHOICES: Derived[Choices] = Derived("choices of device slots", Topic.NODE_LAYOUT, Topic.NODE_DEVICES)


def _request_text(request: DeviceRequest) -> str:
    """`2 GPUs with 8Gi each`."""
    count = f"{request.count} {request.kind.upper()}{'s' if request.count > 1 else ''}"
    return f"{count} with {', '.join(_request_parts(request))}{' each' if request.count > 1 else ''}"


def _request_parts(request: DeviceRequest) -> Iterator[str]:
    if request.ratio == 100:
        yield "all its memory"
    elif request.ratio:
        yield f"{request.ratio} % of its memory"
    elif request.memory:
        yield show_amount(MEMORY, request.memory)
    if request.cores:
        yield f"{request.cores} % of its cores"
