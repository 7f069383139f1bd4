"""Taints that a pod does not tolerate, judged once for each set of taints that nodes have."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from muster.model.pod import PodSignature
from muster.model.pod_constraints import Taint, TaintEffect


def untolerated_taints(signature: PodSignature, taints: tuple[Taint, ...], effects: Collection[TaintEffect]) -> Iterator[Taint]:
    """Those of the taints with one of the effects that no toleration of the pod covers, as they are written."""
    for taint in taints:
        if taint.effect in effects and not any(toleration.tolerates(taint) for toleration in signature.tolerations):
            yield taint
