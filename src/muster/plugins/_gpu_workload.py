"""What pods ask of GPUs, and which GPUs are of no use to them: what `fgd`, and `binpack` with `fragments`, score by.

The workload is that of all pods that run or wait, rounded: kinds of pods of about the same size are one, and how many there are
counts in steps of half a power of two. So scores change when the mix of requests does, and not with each pod that comes or goes.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

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
# So few rows are looked up one by one: equal nodes are found again.
_FEW_ROWS = 32
_MOST_REMEMBERED = 50_000


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """Pods that ask for `count` GPUs, of each `need` hundredths, with so much CPU and memory."""

    count: int
    need: int
    cpu_m: int
    memory: int


class GpuWorkload:
    """Kinds of pods and how much each counts. One mix is one object as long as it is in use: it serves as a key."""

    def __init__(self, mix: tuple[tuple[Kind, int], ...], widest: int, *, is_listed: bool = False) -> None:
        self.widest, self.is_listed = widest, is_listed
        """How many GPUs the largest node has; whether nodes list them, so that parts of them can be given."""
        self.weight: IntColumn = np.array([weight for _, weight in mix], dtype=np.int64)
        self.pods = int(self.weight.sum())
        self.count: IntColumn = np.array([kind.count for kind, _ in mix], dtype=np.int64)
        self.amounts: IntColumn = np.array([(kind.cpu_m, kind.memory) for kind, _ in mix], dtype=np.int64).reshape(-1, 2)
        wanted: IntColumn = np.array([kind.need for kind, _ in mix], dtype=np.int64)
        self.needs = np.unique(wanted)
        self.need = np.searchsorted(self.needs, wanted)
        self._counts = np.where(wanted <= WHOLE_CORES, self.count, widest + 1)
        fits = np.arange(widest + 1)[:, None] >= self._counts
        self._useless: IntColumn = self.pods - fits @ self.weight
        self._enough: IntColumn = np.stack([(fits * column).max(axis=1, initial=0) for column in self.amounts.T], axis=1)
        self._found: dict[tuple[int, int, int], int] = {}
        self._rows: list[tuple[int, int, int, int]] = list(
            zip(self._counts.tolist(), *self.amounts.T.tolist(), self.weight.tolist(), strict=True)
        )

    def of_whole(self, gpus: IntColumn, cpu: IntColumn, memory: IntColumn) -> IntColumn:
        """Hundredths of GPUs of each row that are free and of no use, added up over the pods; none of them is shared."""
        if len(gpus) <= _FEW_ROWS:
            each = zip(gpus.tolist(), cpu.tolist(), memory.tolist(), strict=True)
            return np.array([self._of_row(*row) for row in each], dtype=np.int64)
        useless = self._useless[gpus]
        enough = self._enough[gpus]
        # Whoever has enough of both for every kind that has enough GPUs there need not be compared with each.
        tight = np.flatnonzero((cpu < enough[:, 0]) | (memory < enough[:, 1]))
        if len(tight):
            fits = gpus[tight, None] >= self._counts
            fits &= cpu[tight, None] >= self.amounts[:, 0]
            fits &= memory[tight, None] >= self.amounts[:, 1]
            useless[tight] = self.pods - fits @ self.weight
        found: IntColumn = WHOLE_CORES * gpus * useless
        return found

    def _of_row(self, gpus: int, cpu: int, memory: int) -> int:
        key = (gpus, cpu, memory)
        found = self._found.get(key)
        if found is None:
            useful = sum(
                weight
                for gpus_asked, cpu_asked, memory_asked, weight in self._rows
                if gpus_asked <= gpus and cpu_asked <= cpu and memory_asked <= memory
            )
            if len(self._found) >= _MOST_REMEMBERED:
                self._found.clear()
            found = self._found[key] = WHOLE_CORES * gpus * (self.pods - useful)
        return found

    def of_shared(self, gpus: Figures, cpu: IntColumn, memory: IntColumn) -> IntColumn:
        """The same where GPUs are shared: a row for each node, a place for each GPU.

        Whole numbers, so that a row gives the same whichever others it is looked at with.
        """
        enough = gpus[:, None, :] >= self.needs[None, :, None]
        useful = (gpus[:, None, :] * enough).sum(axis=2)[:, self.need]
        fits = enough.sum(axis=2)[:, self.need] >= self.count
        fits &= cpu[:, None] >= self.amounts[:, 0]
        fits &= memory[:, None] >= self.amounts[:, 1]
        found: IntColumn = gpus.sum(axis=1) * self.pods - (useful * fits) @ self.weight
        return found


@dataclass(frozen=True, slots=True)
class AddedFragments:
    """What a pod would add on each row: `score` from 0 to 1, the higher the fewer; `gpus_left` would stay free."""

    score: FloatColumn
    gpus_left: FloatColumn
    left: Amounts = field(repr=False)
    """Amounts that it would leave, by column of the table."""


def added_fragments(s: Session, pod: Pod, rows: NodeRows, workload: GpuWorkload) -> AddedFragments:
    position = s.world.columns.position
    free = rows.allocatable - rows.planned
    left = free - s.world.request(pod)
    cpu, memory, counted = position[CPU], position[MEMORY], position.get(GPU)
    widest = workload.widest
    if workload.is_listed or counted is None:
        gpus = free_gpus(s, pod, rows)
        without = _without(s, pod, gpus)
        added = workload.of_shared(without, left[:, cpu], left[:, memory])
        added -= workload.of_shared(gpus, free[:, cpu], free[:, memory])
        gpus_left: FloatColumn = without.sum(axis=1) / WHOLE_CORES
    else:
        before, after = np.maximum(free[:, counted], 0), np.maximum(left[:, counted], 0)
        added = workload.of_whole(after, left[:, cpu], left[:, memory])
        added -= workload.of_whole(before, free[:, cpu], free[:, memory])
        gpus_left = after.astype(np.float64)
    score = added * (-0.5 / (WHOLE_CORES * widest * workload.pods))
    score += 0.5
    np.maximum(score, 0.0, out=score)
    return AddedFragments(np.minimum(score, 1.0, out=score), gpus_left, left)


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


# -- the workload ----------------------------------------------------------------------------------------------------------------

_WORKLOAD: Derived[GpuWorkload] = Derived(
    "what pods ask of GPUs", Topic.DEMAND, Topic.NODE_LAYOUT, Topic.NODE_DEVICES, Topic.ALLOCATABLE
)


def gpu_workload(s: Session) -> GpuWorkload:
    """Of all pods that run or wait."""
    return _WORKLOAD.of(s.world, lambda: _workload(_rounded(_kinds(s)), most_gpus(s), device_usage(s.world).width > 0))


@lru_cache(maxsize=64)
def _workload(mix: tuple[tuple[Kind, int], ...], widest: int, is_listed: bool) -> GpuWorkload:
    return GpuWorkload(mix, widest, is_listed=is_listed)


def _kinds(s: Session) -> Counter[Kind]:
    found: Counter[Kind] = Counter()
    for signature, pods in s.world.facts.gpu_pods.items():
        count, need = _gpus_asked(s, signature)
        if count:
            found[Kind(count, need, signature.request[CPU], signature.request[MEMORY])] += pods
    return found


def _rounded(kinds: Counter[Kind]) -> tuple[tuple[Kind, int], ...]:
    """Of kinds whose CPU and memory are about the same, the most frequent stands for all."""
    alike: dict[tuple[int, ...], list[Kind]] = {}
    for kind in kinds:
        size = (kind.count, kind.need, kind.cpu_m.bit_length(), kind.memory.bit_length())
        alike.setdefault(size, []).append(kind)
    mix = [(min(same, key=lambda kind: (-kinds[kind], kind)), sum(kinds[kind] for kind in same)) for same in alike.values()]
    mix.sort(key=lambda each: (-each[1], each[0]))
    return tuple(sorted((kind, _in_steps(pods)) for kind, pods in mix[:_MOST_KINDS]))


def _in_steps(pods: int) -> int:
    """In tenths of a pod: steps are not whole."""
    return round(10 * 2 ** (round(2 * math.log2(pods)) / 2))


def _gpus_asked(s: Session, signature: PodSignature) -> tuple[int, int]:
    """How many GPUs, and how much of each in hundredths."""
    if not signature.devices:
        return signature.request[GPU], WHOLE_CORES
    memory = int(device_usage(s.world).memory.max(initial=0))
    count = sum(each.count for each in signature.devices)
    return count, max(max(each.cores, each.ratio, WHOLE_CORES * each.memory // max(memory, 1)) for each in signature.devices)
