"""PreferNoSchedule taints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.option_field import option
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.pod_constraints import Taint, TaintEffect
from muster.plugins._untolerated_taints import column_by_taints, untolerated_taints
from muster.state.node_table import FloatColumn, NodeRows


@dataclass(frozen=True)
class TaintPreference:
    """Prefer nodes without PreferNoSchedule taints that the pod does not tolerate.

    The score of a node with n of them is 1 / (1 + n).
    """

    weight: float = option(1.0, "How much this score counts beside the others.", minimum=0)
    name: str = "taint-preference"

    def prefer(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        def score(taints: tuple[Taint, ...]) -> float:
            return 1.0 / (1 + len(untolerated_taints(pod.signature, taints, (TaintEffect.PREFER_NO_SCHEDULE,))))

        return column_by_taints(rows, score, np.float64)
