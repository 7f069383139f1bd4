"""What nodes would have left, in parts of the largest node: what `best-fit` and, with `fragments`, `binpack` score by."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from muster.engine.session import Session
from muster.model.resource_amounts import GPU
from muster.model.topics import Topic
from muster.plugins._free_gpus import most_gpus
from muster.state.derived_values import Derived
from muster.state.node_table import FloatColumn
from muster.state.resource_columns import Amounts


def little_left(s: Session, left: Amounts, gpus_left: FloatColumn, weights: Mapping[str, float]) -> FloatColumn:
    """One minus the weighted mean of what nodes would have left, in parts of the largest node."""
    found = np.zeros(len(left), dtype=np.float64)
    total = 0.0
    for name, weight in weights.items():
        largest = _largest(s, name)
        if weight and largest:
            # What is left is never more than the largest has; less than nothing is left where the pod does not fit.
            amounts = gpus_left if name == GPU else left[:, s.world.columns.position[name]]
            found += np.maximum(amounts * (weight / largest), 0.0)
            total += weight
    if total:
        found *= -1.0 / total
        found += 1.0
        np.maximum(found, 0.0, out=found)
    return found


_LARGEST: Derived[int] = Derived("the most of a resource that a node has", Topic.NODE_LAYOUT, Topic.ALLOCATABLE)


def _largest(s: Session, resource: str) -> int:
    if resource == GPU:
        return most_gpus(s)
    column = s.world.columns.position.get(resource)
    return _LARGEST.of(
        s.world, lambda: 0 if column is None else int(s.world.table.allocatable[:, column].max(initial=0)), key=resource
    )
