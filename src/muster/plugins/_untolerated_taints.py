"""Taints that a pod does not tolerate, judged once for each set of taints that nodes have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from muster.model.pod import PodSignature
from muster.model.pod_constraints import Taint, TaintEffect
from muster.state.node_table import Entry, NodeRows

FORBIDDING_EFFECTS = (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)
UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", TaintEffect.NO_SCHEDULE)
"""What a pod must tolerate to be placed on a cordoned node."""


def untolerated_taints(
    signature: PodSignature, taints: tuple[Taint, ...], effects: tuple[TaintEffect, ...] = FORBIDDING_EFFECTS
) -> list[Taint]:
    """Those of the taints with one of the effects that no toleration of the pod covers, as they are written."""
    return [
        taint
        for taint in taints
        if taint.effect in effects and not any(toleration.tolerates(taint) for toleration in signature.tolerations)
    ]


def column_by_taints(rows: NodeRows, answer: Callable[[tuple[Taint, ...]], float], dtype: type[Entry]) -> npt.NDArray[Entry]:
    """The answer for the taints of each node."""
    codes, sets = rows.table.taint_codes()
    column: npt.NDArray[Entry] = np.array([answer(taints) for taints in sets], dtype=dtype)[rows.pick(codes)]
    return column
