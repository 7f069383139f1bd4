"""What is left of each GPU of some nodes, in hundredths, whichever API they are requested by: what `best-fit` and `fgd` look at."""

from __future__ import annotations

import numpy as np

from muster.engine.session import Session
from muster.model.device import GPU_KIND, WHOLE_CORES
from muster.model.pod import Pod, PodSignature
from muster.model.resource_amounts import GPU
from muster.model.topics import Topic
from muster.state.derived.device_usage import Figures, device_usage
from muster.state.derived_values import Derived
from muster.state.node_table import NodeRows

_MOST_GPUS: Derived[int] = Derived("GPUs of the largest node", Topic.NODE_LAYOUT, Topic.NODE_DEVICES, Topic.ALLOCATABLE)


def most_gpus(s: Session) -> int:
    """How many GPUs the node with most of them has, at least 1."""
    return _MOST_GPUS.of(s.world, lambda: _find_most_gpus(s))


def _find_most_gpus(s: Session) -> int:
    column = s.world.columns.position.get(GPU)
    counted = 0 if column is None else int(s.world.table.allocatable[:, column].max(initial=0))
    return max(counted, device_usage(s.world).width, 1)


def gpus_asked(signature: PodSignature) -> float:
    """By one pod, whichever API it requests them by; a part of one where it shares it."""
    return sum(each.count * (each.ratio or each.cores) for each in signature.devices) / WHOLE_CORES or float(signature.request[GPU])


def free_gpus(s: Session, pod: Pod, rows: NodeRows) -> Figures:
    """A row for each node, a place for each GPU. Nodes that do not list their GPUs have whole ones."""
    column = s.world.columns.position.get(GPU)
    counted = np.zeros(len(rows), dtype=np.int64) if column is None else rows.allocatable[:, column] - rows.planned[:, column]
    free: Figures = np.where(np.arange(most_gpus(s)) < counted[:, None], WHOLE_CORES, 0)
    usage = device_usage(s.world)
    if not usage.width:
        return free
    left, there = usage.free(rows.index, after_releases=True), usage.bounds(rows.index)
    cores, memory = left.cores.copy(), left.memory.copy()
    if rows.extra is not None and pod.signature.devices:
        _take_extra(s, pod, rows, cores, memory)
    parts = WHOLE_CORES * cores // np.maximum(there.cores, 1)
    of_memory = np.where(there.memory > 0, WHOLE_CORES * memory // np.maximum(there.memory, 1), WHOLE_CORES)
    parts = np.where(usage.of_type(GPU_KIND, rows.index), np.maximum(np.minimum(parts, of_memory), 0), 0)
    listed = usage.has_devices(rows.index)
    free[listed] = 0
    free[listed, : usage.width] = parts[listed]
    return free


def _take_extra(s: Session, pod: Pod, rows: NodeRows, cores: Figures, memory: Figures) -> None:
    """Take the slots of the further pods that these rows are asked about."""
    usage, extra = device_usage(s.world), rows.extra
    assert extra is not None
    for at, row in enumerate(rows.numbers.tolist()):
        places = {device.index: place for place, device in enumerate(usage.devices_by_row[row])}
        for slots in s.slots(pod, [s.world.table.names[row]] * int(extra[at]), after_releases=rows.after_releases) or ():
            for slot in slots:
                cores[at, places[slot.index]] -= slot.cores
                memory[at, places[slot.index]] -= slot.memory
