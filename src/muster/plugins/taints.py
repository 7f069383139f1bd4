"""Taints: a pod is not placed on nodes whose NoSchedule or NoExecute taints it does not tolerate."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice

import numpy as np

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.pod_constraints import Taint, TaintEffect
from muster.plugins._select_rows import select_rows
from muster.plugins._untolerated_taints import untolerated_taints
from muster.state.node_table import BoolColumn, NodeRows

_FORBIDDING_EFFECTS = (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)
# So many taints are named in a message; the others are counted.
_MAX_NAMED = 3


@dataclass(frozen=True)
class Taints:
    """A pod is not placed on nodes whose NoSchedule or NoExecute taints it does not tolerate."""

    name: str = "taints"

    def match(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        codes, sets = rows.table.taint_codes()
        tolerated = np.array(
            [not any(untolerated_taints(pod.signature, taints, _FORBIDDING_EFFECTS)) for taints in sets], dtype=np.bool_
        )
        column: BoolColumn = tolerated[select_rows(rows, codes)] if sets else np.ones(len(rows), dtype=np.bool_)
        return column

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        codes, sets = rows.table.taint_codes()
        counts: Counter[str] = Counter()
        for taints, count in zip(sets, np.bincount(select_rows(rows, codes), minlength=len(sets)).tolist(), strict=True):
            counts.update(
                {
                    show_taint(taint): count
                    for taint in islice(untolerated_taints(pod.signature, taints, _FORBIDDING_EFFECTS), 1 if count else 0)
                }
            )
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        reasons = [f"{nodes(count)} tainted ({taint})" for taint, count in ordered[:_MAX_NAMED]]
        others = sum(count for _, count in ordered[_MAX_NAMED:])
        return ", ".join([*reasons, f"{nodes(others)} tainted otherwise"] if others else reasons)


def show_taint(taint: Taint) -> str:
    """As kubectl writes it."""
    return f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect.value}"
