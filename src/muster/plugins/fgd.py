"""Fragmentation gradient descent: the node on which the pod leaves the fewest GPUs that the workload cannot use.

After "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC 2023).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from muster.engine.option_field import option
from muster.engine.session import Session
from muster.model.device import WHOLE_CORES
from muster.model.pod import Pod, PodSignature
from muster.model.resource_amounts import CPU, GPU, MEMORY
from muster.model.topics import Topic
from muster.plugins._free_gpus import free_gpus, most_gpus
from muster.state.derived.device_usage import Figures, device_usage
from muster.state.derived_values import Derived
from muster.state.node_table import FloatColumn, IntColumn, NodeRows
from muster.state.resource_columns import Amounts

# The most frequent kinds of pods stand for all.
_MOST_KINDS = 64


@dataclass(frozen=True)
class Fgd:
    """The node on which the pod leaves the fewest GPUs that the workload cannot use.

    What is free of a GPU is a fragment for a kind of pod that requests more of it, more such GPUs than its node has left, or more
    CPU or memory. The score falls with the fragments that the pod adds, on average over all pods that run or wait. Nodes on which
    it adds the same are equal: a `best-fit` of small weight beside it decides among them.
    """

    weight: float = option(1.0, "How much this score counts beside the others.", minimum=0)
    name: str = "fgd"
    depends = (Topic.DEMAND,)

    def score(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        workload = _WORKLOAD.of(s.world, lambda: _workload(s))
        if not workload.pods:
            return np.full(len(rows), 0.5)
        free, request = rows.allocatable - rows.planned, s.world.request(pod)
        gpus = free_gpus(s, pod, rows)
        added = _fragments(workload, free - request, _without(s, pod, gpus)) - _fragments(workload, free, gpus)
        found: FloatColumn = 0.5 - 0.5 * added / (WHOLE_CORES * most_gpus(s) * workload.pods)
        return np.clip(found, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class _Workload:
    """Kinds of pods that ask for GPUs, and how many of each there are. `needs` are the different parts of a GPU that they ask for,
    and `need` which of these each kind asks for."""

    pods: int
    weight: IntColumn
    request: Amounts
    columns: list[int]
    count: IntColumn
    needs: IntColumn
    need: npt.NDArray[np.intp]


_WORKLOAD: Derived[_Workload] = Derived("kinds of pods that ask for GPUs", Topic.DEMAND, Topic.NODE_LAYOUT, Topic.NODE_DEVICES)


def _workload(s: Session) -> _Workload:
    counts = Counter(pod.signature for pod in s.world.facts.pods.values() if pod.ours)
    kinds: Counter[tuple[tuple[int, int], int, int]] = Counter()
    for signature, pods in counts.items():
        count, need = _gpus_asked(s, signature)
        if count:
            kinds[(signature.request[CPU], signature.request[MEMORY]), count, need] += pods
    chosen = sorted(kinds.items(), key=lambda each: (-each[1], each[0]))[:_MOST_KINDS]
    wanted: IntColumn = np.array([need for (_, _, need), _ in chosen], dtype=np.int64)
    needs = np.unique(wanted)
    position = s.world.columns.position
    return _Workload(
        pods=sum(pods for _, pods in chosen),
        weight=np.array([pods for _, pods in chosen], dtype=np.int64),
        request=np.array([amounts for (amounts, _, _), _ in chosen], dtype=np.int64).reshape(-1, 2),
        columns=[position[CPU], position[MEMORY]],
        count=np.array([count for (_, count, _), _ in chosen], dtype=np.int64),
        needs=needs,
        need=np.searchsorted(needs, wanted),
    )


def _gpus_asked(s: Session, signature: PodSignature) -> tuple[int, int]:
    """How many GPUs, and how much of each in hundredths."""
    if not signature.devices:
        return signature.request[GPU], WHOLE_CORES
    memory = int(device_usage(s.world).memory.max(initial=0))
    count = sum(each.count for each in signature.devices)
    return count, max(max(each.cores, each.ratio, WHOLE_CORES * each.memory // max(memory, 1)) for each in signature.devices)


def _without(s: Session, pod: Pod, gpus: Figures) -> Figures:
    """What is left with the pod on each row: on the fullest GPU that has enough, or on so many of them."""
    count, need = _gpus_asked(s, pod.signature)
    if not count:
        return gpus
    enough = gpus >= need
    left = gpus.copy()
    if count == 1:
        place = np.where(enough, gpus, WHOLE_CORES + 1).argmin(axis=1)
        left[np.arange(len(gpus)), place] -= need
        return np.maximum(left, 0)
    left[enough & (enough.cumsum(axis=1) <= count)] -= need
    return left


def _fragments(workload: _Workload, free: Amounts, gpus: Figures) -> IntColumn:
    """Hundredths of GPUs of each row that are free and of no use, added up over the pods of the workload.

    Whole numbers, so that a row gives the same whichever others it is looked at with.
    """
    enough = gpus[:, None, :] >= workload.needs[None, :, None]
    useful = (gpus[:, None, :] * enough).sum(axis=2)[:, workload.need]
    fits = enough.sum(axis=2)[:, workload.need] >= workload.count
    for at, column in enumerate(workload.columns):
        fits &= free[:, column, None] >= workload.request[:, at]
    found: IntColumn = gpus.sum(axis=1) * workload.pods - (useful * fits) @ workload.weight
    return found
