"""How full a node would be with one more pod on it: what `binpack` and `spread` score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.resource_amounts import CPU, GPU, MEMORY
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.node_table import FloatColumn, NodeRows

# Devices are what is scarce on the nodes that have them.
DEFAULT_WEIGHTS: dict[str, float] = {CPU: 1.0, MEMORY: 1.0, GPU: 10.0}


@dataclass(frozen=True, slots=True)
class _WeightedRequest:
    """What counts for one request: for each resource its column, how much of it is requested, and its weight."""

    weighted_columns: tuple[tuple[int, int, float], ...]
    total: float


def mean_allocation(s: Session, pod: Pod, rows: NodeRows, weights: Mapping[str, float]) -> FloatColumn | None:
    """The weighted mean, over the resources that the pod requests, of (planned + requested) / allocatable, each at most 1.

    None when the pod requests nothing that has a weight.
    """
    request = _weighted_request(s, pod, weights)
    if not request.weighted_columns:
        return None
    planned, allocatable = rows.planned, rows.allocatable
    mean: FloatColumn = np.zeros(len(rows), dtype=np.float64)
    for column, requested, weight in request.weighted_columns:
        share: FloatColumn = (planned[:, column] + requested) / np.maximum(allocatable[:, column], 1)
        np.minimum(share, 1.0, out=share)
        share *= weight
        mean += share
    mean /= request.total
    return mean


_WEIGHED: Derived[_WeightedRequest] = Derived("what of a request is weighed", Topic.NODE_LAYOUT)


def _weighted_request(s: Session, pod: Pod, weights: Mapping[str, float]) -> _WeightedRequest:
    key = (tuple(weights.items()), pod.signature.request)
    return _WEIGHED.of(s.world, lambda: _make_weighted_request(s, pod, weights), key=key)


def _make_weighted_request(s: Session, pod: Pod, weights: Mapping[str, float]) -> _WeightedRequest:
    need, position = s.world.request(pod), s.world.columns.position
    weighted = [(position[name], weight) for name, weight in weights.items() if weight > 0 and pod.signature.request[name] > 0]
    weighted_columns = tuple((column, int(need[column]), weight) for column, weight in weighted)
    return _WeightedRequest(weighted_columns, sum(weight for _, weight in weighted))
