"""Laws of room: nodes and devices, and the columns that count them."""

from __future__ import annotations

from collections.abc import Iterator

from muster.model.effects import Nominate
from muster.model.pod import Phase
from muster.scenario.laws.case import FILLS_NODE, WILL_FILL_NODE, Case, Sums, add, unequal
from muster.state.world import World


def no_node_over_capacity(case: Case) -> Iterator[str]:
    """Where this cycle placed somebody, what stands there fits, in every resource that the newcomers ask for.

    Others may fill a node beyond its size, and a node may shrink: that is not because of us.
    """
    world = case.world
    for node, resources in _touched_resources(case).items():
        room = dict(world.nodes[node].allocatable.items) if node in world.nodes else None
        if room is None:
            yield f"{node} was given pods, and does not exist"
            continue
        for phases, what in ((FILLS_NODE, "stands there"), (WILL_FILL_NODE, "will stand there")):
            sums = _sum_on_node(world, node, phases)
            for name in sorted(resources):
                # A nomination counts on those who leave: what stands there now may be more than the node has.
                if phases is FILLS_NODE and not resources[name]:
                    continue
                if sums.get(name, 0) > room.get(name, 0):
                    yield f"{node} has {room.get(name, 0)} of {name}, and {sums[name]} {what}"


def _touched_resources(case: Case) -> dict[str, dict[str, bool]]:
    """By node: the resources that this cycle's newcomers ask for, and whether one of them stands there now."""
    touched: dict[str, dict[str, bool]] = {}
    for effect in case.placed():
        pod = case.world.pods.get(effect.uid)
        now = not isinstance(effect, Nominate)
        for name, amount in pod.kind.request.items if pod is not None else ():
            if amount:
                here = touched.setdefault(effect.node, {})
                here[name] = here.get(name, False) or now
    return touched


def _sum_on_node(world: World, node: str, phases: frozenset[Phase]) -> Sums:
    sums: Sums = {}
    for uid, pod in world.on_node.get(node, {}).items():
        if world.placements[uid].phase in phases:
            add(sums, pod)
    return sums


def no_device_over_capacity(case: Case) -> Iterator[str]:
    """Slots that this cycle gave out lie on devices that exist and have that much memory and that many cores left."""
    world = case.world
    for node in sorted({effect.node for effect in case.placed() if effect.devices}):
        devices = {device.index: device for device in world.nodes[node].devices} if node in world.nodes else {}
        taken: dict[int, tuple[int, int]] = {}
        for uid in world.on_node.get(node, {}):
            placement = world.placements[uid]
            for slot in placement.devices if placement.phase in WILL_FILL_NODE else ():
                memory, cores = taken.get(slot.index, (0, 0))
                taken[slot.index] = (memory + slot.memory, cores + slot.cores)
        for index, (memory, cores) in sorted(taken.items()):
            device = devices.get(index)
            if device is None:
                yield f"{node} has no device {index}"
            elif memory > device.memory or cores > device.cores:
                yield f"device {index} of {node}: {memory} of {device.memory} memory and {cores} of {device.cores} cores taken"


def columns_are_sums(case: Case) -> Iterator[str]:
    """What the node table says is used and taken is what the placements add up to, row by row and resource by resource."""
    world = case.world
    used: dict[str, Sums] = {}
    taken: dict[str, Sums] = {}
    for uid, placement in world.placements.items():
        pod = world.pods.get(uid)
        if placement.node is None or pod is None:
            continue
        if placement.phase in FILLS_NODE:
            add(used.setdefault(placement.node, {}), pod)
        if placement.phase in WILL_FILL_NODE:
            add(taken.setdefault(placement.node, {}), pod)
    names = world.columns.names
    for figure, column, sums in (("used", world.table.used.tolist(), used), ("taken", world.table.taken.tolist(), taken)):
        for name, amounts in zip(world.table.names, column, strict=True):
            yield from unequal(f"{name}: {figure}", names, amounts, sums.get(name, {}))
