"""PreferNoSchedule taints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.pod_constraints import TaintEffect
from muster.plugins._option_field import option
from muster.plugins._select_rows import select_rows
from muster.plugins._untolerated_taints import untolerated_taints
from muster.state.node_table import FloatColumn, NodeRows

_PREFERENCE_EFFECTS = (TaintEffect.PREFER_NO_SCHEDULE,)


@dataclass(frozen=True)
class TaintPreference:
    """Prefer nodes without PreferNoSchedule taints that the pod does not tolerate.

    The score of a node with n of them is 1 / (1 + n).
    """

    weight: float = option(1.0, "How much this score counts beside the others.", minimum=0)
    name: str = "taint-preference"

    def prefer(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        codes, sets = rows.table.taint_codes()
        scores = np.array(
            [1.0 / (1 + len(list(untolerated_taints(pod.signature, taints, _PREFERENCE_EFFECTS)))) for taints in sets],
            dtype=np.float64,
        )
        column: FloatColumn = scores[select_rows(rows, codes)] if sets else np.ones(len(rows), dtype=np.float64)
        return column
