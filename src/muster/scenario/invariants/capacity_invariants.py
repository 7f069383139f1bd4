"""Invariants of capacity: nodes and devices, and the columns that count their usage."""

from __future__ import annotations

from collections.abc import Iterator

from muster.model.device import Device
from muster.model.effects import Nominate
from muster.model.pod import Phase
from muster.scenario.invariants.checked_cycle import (
    PLANNED_ON_NODE,
    USED_ON_NODE,
    CheckedCycle,
    ResourceSums,
    add_requests,
    reserve_pods,
    sum_of,
    touched_resources,
    unequal_amounts,
)
from muster.state.world import World


def no_node_over_capacity(case: CheckedCycle) -> Iterator[str]:
    """Where this cycle placed a pod, the node's pods fit, in every resource that the newly placed pods request.

    Other schedulers may overcommit a node, and a node may shrink: that is no violation.
    """
    world = case.world
    for node, resources in touched_resources(case, lambda effect: (effect.node,)).items():
        if node not in world.facts.nodes:
            yield f"{node} has pods placed on it, and does not exist"
            continue
        allocatable, pods = world.facts.nodes[node].allocatable, world.placements.on_node.get(node, {})
        for phases, what in ((USED_ON_NODE, "is used there"), (PLANNED_ON_NODE, "is planned there")):
            sums = sum_of(pod.signature.request.items for uid, pod in pods.items() if case.phase(uid) in phases)
            for name, is_used in sorted(resources.items()):
                if (is_used or phases is PLANNED_ON_NODE) and sums.get(name, 0) > allocatable[name]:
                    yield f"{node} has {allocatable[name]} of {name}, and {sums[name]} {what}"


def no_device_over_capacity(case: CheckedCycle) -> Iterator[str]:
    """Slots assigned in this cycle are on devices that exist and have enough memory, cores and shares; and a pod that requests
    devices of a node that has some got as many as it requests. Other schedulers may overcommit a device."""
    world = case.world
    for effect in case.placed():
        pod = world.facts.pods.get(effect.uid)
        node = world.facts.nodes.get(effect.node)
        if pod is None or node is None:
            continue
        requested = sum(ask.count for ask in pod.signature.devices) if node.devices else 0
        if case.policy.chooses_slots and len(effect.devices) != requested:
            yield f"{effect.pod} requests {requested} devices of {effect.node} and got {len(effect.devices)}"
        phases = (PLANNED_ON_NODE,) if isinstance(effect, Nominate) else (USED_ON_NODE, PLANNED_ON_NODE)
        for slot in effect.devices:
            device = next((device for device in node.devices if device.index == slot.index), None)
            if device is None:
                yield f"{effect.node} has no device {slot.index}"
                continue
            for some in phases:
                yield from _over_capacity(world, effect.node, device, some)


def _over_capacity(world: World, node: str, device: Device, phases: frozenset[Phase]) -> Iterator[str]:
    placements = [world.placements.by_uid[uid] for uid in world.placements.on_node.get(node, {})]
    slots = [slot for one in placements if one.phase in phases for slot in one.devices if slot.index == device.index]
    memory, cores = sum(slot.memory for slot in slots), sum(slot.cores for slot in slots)
    if memory > device.memory or cores > device.cores or (device.shares and len(slots) > device.shares):
        usage = f"{memory} of {device.memory} memory, {cores} of {device.cores} cores and {len(slots)} of {device.shares} shares"
        yield f"device {device.index} of {node}: {usage} are assigned"


def node_columns_are_sums(case: CheckedCycle) -> Iterator[str]:
    """The node table's used and planned amounts are the sums over the placements, row by row and resource by resource."""
    world = case.world
    used: dict[str, ResourceSums] = {}
    planned: dict[str, ResourceSums] = {}
    kept = reserve_pods(world)
    for uid, placement in world.placements.by_uid.items():
        pod = world.facts.pods.get(uid) or kept.get(uid)
        if placement.node is None or pod is None:
            continue
        if placement.phase in USED_ON_NODE:
            add_requests(used.setdefault(placement.node, {}), pod)
        if placement.phase in PLANNED_ON_NODE:
            add_requests(planned.setdefault(placement.node, {}), pod)
    names = world.columns.names
    for column_name, column, sums in (
        ("used", world.table.used.tolist(), used),
        ("planned", world.table.planned.tolist(), planned),
    ):
        for name, amounts in zip(world.table.names, column, strict=True):
            yield from unequal_amounts(f"{name}: {column_name}", names, amounts, sums.get(name, {}))
