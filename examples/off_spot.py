"""A plugin of your own, by nodes: large pods are not placed on spot nodes, and small ones prefer them.

Use it in a policy as `./off_spot.py:OffSpot`, or as `off_spot:OffSpot` if its folder is on the Python path.
"""

from dataclasses import dataclass

import numpy as np

from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.resource_amounts import GPU
from muster.state.node_table import BoolColumn, FloatColumn, NodeRows


@dataclass(frozen=True)
class OffSpot:
    """Pods of at least `gpus` GPUs are not placed on nodes with the label `label`; smaller ones prefer them."""

    gpus: int = 8
    label: str = "example.com/spot"
    weight: float = 1.0
    name: str = "off-spot"

    def match(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        return ~self._spot(rows) | (pod.signature.request[GPU] < self.gpus)

    def prefer(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        return self._spot(rows).astype(np.float64)

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        return f"{len(rows)} on spot, not for pods of {self.gpus} GPUs or more"

    def _spot(self, rows: NodeRows) -> BoolColumn:
        codes, _ = rows.table.label_codes(self.label)  # One small number per value; -1 on nodes without the label.
        return (codes if rows.index is None else codes[rows.index]) >= 0
