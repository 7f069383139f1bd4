"""Fill nodes up before opening new ones, so that large pods still find empty nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.resources import CPU, GPU, MEMORY
from muster.state.table import FloatColumn, Rows


@dataclass(frozen=True)
class Binpack:
    """`resources` weighs them against each other; a resource that the pod does not ask for does not count."""

    weight: float = 1.0
    resources: Mapping[str, float] = field(default_factory=lambda: {CPU: 1.0, MEMORY: 1.0, GPU: 10.0})
    name: str = "binpack"

    def score(self, s: Session, pod: Pod, rows: Rows) -> FloatColumn:
        """How full the node would be, over what the pod asks for."""
        position, need = s.world.columns.position, s.world.request(pod)
        weighed = [(position[r], w) for r, w in self.resources.items() if r in position and w > 0 and need[position[r]] > 0]
        total = np.zeros(len(rows), dtype=np.float64)
        if not weighed:
            return total
        taken, allocatable = rows.taken, rows.allocatable
        for column, weight in weighed:
            share = (taken[:, column] + need[column]) / np.maximum(allocatable[:, column], 1)
            total += weight * np.minimum(share, 1.0)
        return total / sum(weight for _, weight in weighed)
