"""How full a node would be with one more pod on it: what `binpack` and `spread` both look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.resources import CPU, GPU, MEMORY
from muster.model.topics import Topic
from muster.state.derived import Derived
from muster.state.table import FloatColumn, Rows

# Devices are what is scarce on the nodes that have them.
DEFAULT_WEIGHTS: dict[str, float] = {CPU: 1.0, MEMORY: 1.0, GPU: 10.0}


@dataclass(frozen=True, slots=True)
class _Weighed:
    """What counts for one request: for each resource its column, how much of it is asked for, and its weight."""

    counted: tuple[tuple[int, int, float], ...]
    total: float


def filled(s: Session, pod: Pod, rows: Rows, weights: Mapping[str, float]) -> FloatColumn | None:
    """The weighted mean, over the resources that the pod asks for, of (taken + asked) / allocatable, each at most 1.

    None when the pod asks for nothing that has a weight.
    """
    weighed = _weighed(s, pod, weights)
    if not weighed.counted:
        return None
    taken, allocatable = rows.taken, rows.allocatable
    mean: FloatColumn = np.zeros(len(rows), dtype=np.float64)
    for column, asked, weight in weighed.counted:
        share: FloatColumn = (taken[:, column] + asked) / np.maximum(allocatable[:, column], 1)
        np.minimum(share, 1.0, out=share)
        share *= weight
        mean += share
    mean /= weighed.total
    return mean


_WEIGHED: Derived[_Weighed] = Derived("what of a request is weighed", Topic.NODE_LAYOUT)


def _weighed(s: Session, pod: Pod, weights: Mapping[str, float]) -> _Weighed:
    key = (tuple(weights.items()), pod.kind.request)
    return _WEIGHED.of(s.world, lambda: _weigh(s, pod, weights), key=key)


def _weigh(s: Session, pod: Pod, weights: Mapping[str, float]) -> _Weighed:
    need, position = s.world.request(pod), s.world.columns.position
    asked = [(position[name], weight) for name, weight in weights.items() if weight > 0 and pod.kind.request[name] > 0]
    counted = tuple((column, int(need[column]), weight) for column, weight in asked)
    return _Weighed(counted, sum(weight for _, weight in asked))
