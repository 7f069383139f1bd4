"""How full a node would be with one more pod on it: what `binpack` and `spread` score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from muster.engine.option_field import option
from muster.engine.session import Session
from muster.model.device import DeviceRequest
from muster.model.pod import Pod
from muster.model.resource_amounts import CPU, GPU, MEMORY
from muster.model.topics import Topic
from muster.state.derived.device_usage import device_usage, total_request
from muster.state.derived_values import Derived
from muster.state.node_table import FloatColumn, NodeRows
from muster.state.resource_columns import Amounts

# Devices are what is scarce on the nodes that have them.
DEFAULT_WEIGHTS: dict[str, float] = {CPU: 1.0, MEMORY: 1.0, GPU: 10.0}


@dataclass(frozen=True)
class NodeAllocationScore:
    """The options of a score of how full nodes are."""

    weight: float = option(1.0, "How much this score counts beside the others.", minimum=0)
    resources: Mapping[str, float] = option(
        lambda: dict(DEFAULT_WEIGHTS),
        f"How much each resource counts in the mean; `{GPU}` stands for shared GPUs too, whichever API they are requested by.",
        minimum=0,
        resources=True,
    )


WeightedColumns = tuple[tuple[int, int, float], ...]
"""What counts for one request: for each resource its column, how much of it is requested, and its weight."""


def mean_allocation(s: Session, pod: Pod, rows: NodeRows, weights: Mapping[str, float]) -> FloatColumn | None:
    """The weighted mean, over the resources that the pod requests, of (planned + requested) / allocatable, each at most 1.

    GPUs count by how full those of the node are, whichever API they, or parts of them, are requested by. None when the pod requests
    nothing that has a weight.
    """
    key = (tuple(weights.items()), pod.signature.request)
    weighted, total_weight = _WEIGHED.of(s.world, lambda: _weighted_columns(s, pod, weights), key=key)
    gpu_weight = weights.get(GPU, 0.0) if pod.signature.devices and device_usage(s.world).width else 0.0
    if gpu_weight:
        return _mean_with_devices(s, pod, rows, weighted, gpu_weight)
    if not weighted:
        return None
    mean = weighted_sum(rows.planned, rows.allocatable, weighted)
    mean /= total_weight
    return mean


def weighted_sum(planned: Amounts, allocatable: Amounts, weighted: WeightedColumns) -> FloatColumn:
    """How full each row would be, added up by weight."""
    total: FloatColumn = np.zeros(len(planned), dtype=np.float64)
    for column, requested, weight in weighted:
        share: FloatColumn = (planned[:, column] + requested) / np.maximum(allocatable[:, column], 1)
        np.minimum(share, 1.0, out=share)
        share *= weight
        total += share
    return total


_WEIGHED: Derived[tuple[WeightedColumns, float]] = Derived("what of a request is weighed", Topic.NODE_LAYOUT)


def _weighted_columns(s: Session, pod: Pod, weights: Mapping[str, float]) -> tuple[WeightedColumns, float]:
    """The columns that count, and the sum of their weights."""
    need, position = s.world.request(pod), s.world.columns.position
    weighted = [(position[name], weight) for name, weight in weights.items() if weight > 0 and pod.signature.request[name] > 0]
    return tuple((column, int(need[column]), weight) for column, weight in weighted), sum(weight for _, weight in weighted)


def _mean_with_devices(s: Session, pod: Pod, rows: NodeRows, weighted: WeightedColumns, gpu_weight: float) -> FloatColumn:
    """Whole GPUs are counted as a resource, too, for pods whose devices nobody wrote down: the fuller of both counts."""
    gpu = s.world.columns.position.get(GPU)
    planned, allocatable = rows.planned, rows.allocatable
    others = tuple(each for each in weighted if each[0] != gpu)
    counted = weighted_sum(
        planned, allocatable, tuple((column, requested, 1.0) for column, requested, _ in weighted if column == gpu)
    )
    total = weighted_sum(planned, allocatable, others)
    total += gpu_weight * np.maximum(counted, _device_allocation(s, pod.signature.devices, rows))
    return total / (sum(weight for *_, weight in others) + gpu_weight)


def _device_allocation(s: Session, requests: tuple[DeviceRequest, ...], rows: NodeRows) -> FloatColumn:
    """How full the devices of each node would be together: of their memory or of their cores, whichever is fuller."""
    planned, there = device_usage(s.world).node_totals(rows.index)
    pods = 1 if rows.extra is None else 1 + rows.extra[:, None]
    # A node without devices is not full of them.
    memory, hundredths, cores = ((planned + pods * total_request(requests)) * (there > 0) / np.maximum(there, 1)).T
    full: FloatColumn = np.minimum(np.maximum(memory + hundredths, cores), 1.0)
    return full
