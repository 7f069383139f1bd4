"""Taints: a pod is not placed on nodes whose NoSchedule or NoExecute taints it does not tolerate."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.pod_constraints import Taint
from muster.plugins._untolerated_taints import column_by_taints, untolerated_taints
from muster.state.node_table import BoolColumn, NodeRows

# So many taints are named in a message; the others are counted.
_MAX_NAMED = 3


@dataclass(frozen=True)
class Taints:
    """A pod is not placed on nodes whose NoSchedule or NoExecute taints it does not tolerate."""

    name: str = "taints"

    def match(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        return column_by_taints(rows, lambda taints: not untolerated_taints(pod.signature, taints), np.bool_)

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        codes, sets = rows.table.taint_codes()
        counts: Counter[str] = Counter()
        for taints, count in zip(sets, np.bincount(rows.pick(codes), minlength=len(sets)).tolist(), strict=True):
            for taint in untolerated_taints(pod.signature, taints)[: 1 if count else 0]:
                counts[show_taint(taint)] += count
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        reasons = [f"{nodes(count)} tainted ({taint})" for taint, count in ordered[:_MAX_NAMED]]
        others = sum(count for _, count in ordered[_MAX_NAMED:])
        return ", ".join([*reasons, f"{nodes(others)} tainted otherwise"] if others else reasons)


def show_taint(taint: Taint) -> str:
    """As kubectl writes it."""
    return f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect.value}"
