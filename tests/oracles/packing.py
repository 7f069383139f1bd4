"""Exact packing: can these pods be placed on these nodes? Every choice is tried; equal pods and equal nodes are tried once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tests.oracles.plain_amounts import Amounts, fits, minus, request_of
from tests.oracles.snapshot import ON_NODE, Snapshot

from muster.model.device import Device, DeviceApi, DeviceRequest, DeviceSlot
from muster.model.node import Node
from muster.model.pod import Pod
from muster.model.pod_constraints import Taint, TaintEffect

MOST_STEPS = 20_000
_CORDONED = Taint("node.kubernetes.io/unschedulable", TaintEffect.NO_SCHEDULE)
_OTHER_FILTERS = frozenset({"volumes", "ports", "pod-affinity", "spread-constraints"})
_KNOWN_PLUGINS = _OTHER_FILTERS | {
    *("priority", "creation", "drf", "proportion", "capacity", "elastic-quota", "overcommit"),
    *("topology", "unschedulable", "selectors", "taints", "fit", "devices"),
    *("binpack", "spread", "node-affinity-preference", "taint-preference", "pod-affinity-preference", "nominated"),
    *("pdb", "min-runtime", "lost-work", "conformance"),
}


class TooHardToPack(Exception):
    """The search took more steps than anybody should wait for: nothing is known."""


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """What a node has free after all releases, and who is on its devices."""

    node: str
    free: Amounts
    devices: Mapping[int, tuple[DeviceSlot, ...]]

    @property
    def alike(self) -> object:
        return tuple(sorted(self.free.items())), tuple(sorted((index, slots) for index, slots in self.devices.items()))


def free_capacities(s: Snapshot, nodes: Iterable[str]) -> list[FreeCapacity]:
    on_node: dict[str, list[str]] = {}
    for uid, placement in s.placements.items():
        if placement.phase in ON_NODE and uid in s.pods:
            on_node.setdefault(placement.node or "", []).append(uid)
    return [_free_capacity(s, name, on_node.get(name, [])) for name in sorted(nodes) if name in s.nodes]


def _free_capacity(s: Snapshot, name: str, uids: Sequence[str]) -> FreeCapacity:
    node = s.nodes[name]
    free = dict(node.allocatable.items)
    devices: dict[int, tuple[DeviceSlot, ...]] = {device.index: () for device in node.devices}
    for uid in uids:
        free = minus(free, request_of(s.pods[uid]))
        for slot in s.placements[uid].devices:
            if slot.index in devices:
                devices[slot.index] = (*devices[slot.index], slot)
    return FreeCapacity(name, free, devices)


def may_use(s: Snapshot, pod: Pod, node: Node) -> bool:
    """What eviction cannot change: cordons, taints, devices that a node lacks, selectors and required node affinity, as far as the
    policy looks at them."""
    plugins, signature = s.rules.plugins, pod.signature
    if "devices" in plugins and not _has_devices(node, signature.devices):
        return False
    if "unschedulable" in plugins and node.unschedulable and not any(t.tolerates(_CORDONED) for t in signature.tolerations):
        return False
    if "taints" in plugins and not _tolerates_all(pod, node):
        return False
    if "selectors" not in plugins:
        return True
    if any(node.labels.get(key) != value for key, value in signature.node_selector):
        return False
    required = signature.node_affinity.required
    return required is None or any(term.matches(node.labels, name=node.name) for term in required)


def _has_devices(node: Node, asks: Sequence[DeviceRequest]) -> bool:
    """Could the empty node serve each of these requests?"""
    nobody: dict[int, tuple[DeviceSlot, ...]] = {device.index: () for device in node.devices}
    is_one_api = len({ask.api for ask in asks}) <= 1
    return is_one_api and all(any(True for _ in _device_choices(node, nobody, [ask])) for ask in asks)


def _tolerates_all(pod: Pod, node: Node) -> bool:
    hard = [taint for taint in node.taints if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE]
    return all(any(toleration.tolerates(taint) for toleration in pod.signature.tolerations) for taint in hard)


def is_packable_world(s: Snapshot, pods: Iterable[Pod]) -> bool:
    """Whether free capacity follows from amounts and devices alone: no ports, volumes, inter-pod terms, nor plugins of others."""
    if not s.rules.plugins <= _KNOWN_PLUGINS:
        return False
    for pod in pods:
        signature = pod.signature
        if signature.ports or signature.volume_claims or signature.spread or signature.affinity.required:
            return False
        if signature.anti_affinity.required:
            return False
    return not any(s.pods[uid].signature.anti_affinity.required for uid in s.placements if uid in s.pods)


def pack(s: Snapshot, pods: Sequence[Pod], nodes: Iterable[str], *, only: str = "") -> dict[str, str] | None:
    """A node for each pod, or None where there is none. `only`: in this one dimension. Raises TooHardToPack."""
    capacities = free_capacities(s, nodes)
    asks = sorted(
        (_Ask.of(s, pod, capacities, only=only) for pod in pods), key=lambda ask: (len(ask.allowed), ask.weight, ask.order)
    )
    search = _Packing(s, capacities, asks)
    return search.found if search.place(0) else None


@dataclass(frozen=True, slots=True)
class _Ask:
    uid: str
    need: Amounts
    devices: tuple[DeviceRequest, ...]
    allowed: tuple[int, ...]
    weight: float

    @property
    def order(self) -> tuple[object, ...]:
        return tuple(sorted(self.need.items())), self.allowed, repr(self.devices), self.uid

    @property
    def alike(self) -> tuple[object, ...]:
        return tuple(sorted(self.need.items())), self.allowed, self.devices

    @staticmethod
    def of(s: Snapshot, pod: Pod, capacities: Sequence[FreeCapacity], *, only: str) -> _Ask:
        need = {name: value for name, value in request_of(pod).items() if not only or name == only}
        devices = () if only or "devices" not in s.rules.plugins else pod.signature.devices
        usable = tuple(
            at for at, capacity in enumerate(capacities) if may_use(s, pod, s.nodes[capacity.node]) and fits(need, capacity.free)
        )
        most = [max((capacity.free.get(name, 0) for capacity in capacities), default=0) or 1 for name in need]
        weight = -max((value / top for value, top in zip(need.values(), most, strict=True)), default=0.0)
        return _Ask(pod.uid, need, devices, usable, weight)


class _Packing:
    def __init__(self, s: Snapshot, capacities: list[FreeCapacity], asks: list[_Ask]) -> None:
        self._s, self._capacities, self._asks = s, capacities, asks
        self._steps = 0
        self.found: dict[str, str] = {}

    def place(self, at: int) -> bool:
        if at == len(self._asks):
            return True
        ask = self._asks[at]
        # An equal pod before this one went to some node: this one goes there or to a later one.
        first = -1
        if at and self._asks[at - 1].alike == ask.alike:
            before = self.found[self._asks[at - 1].uid]
            first = next(number for number, capacity in enumerate(self._capacities) if capacity.node == before)
        if not self._enough_left(at, first):
            return False
        tried: set[object] = set()
        for number in ask.allowed:
            if number < first or not fits(ask.need, self._capacities[number].free):
                continue
            if not self._try(at, number, tried):
                continue
            return True
        return False

    def _enough_left(self, at: int, first: int) -> bool:
        """Whether the nodes that are left could take all pods that are equal to this one."""
        ask = self._asks[at]
        count = 0
        while at + count < len(self._asks) and self._asks[at + count].alike == ask.alike:
            count += 1
        most = 0
        for number in ask.allowed:
            if number >= first:
                free = self._capacities[number].free
                most += min((free.get(name, 0) // value for name, value in ask.need.items() if value), default=count)
        return most >= count

    def _try(self, at: int, number: int, tried: set[object]) -> bool:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise TooHardToPack
        ask, capacity = self._asks[at], self._capacities[number]
        # Another node with the same free amounts was tried already, and it is no different to those that come after.
        key = (capacity.alike, self._later_view(at, number))
        if key in tried:
            return False
        tried.add(key)
        for devices in _device_choices(self._s.nodes[capacity.node], capacity.devices, ask.devices):
            self._capacities[number] = FreeCapacity(capacity.node, minus(capacity.free, ask.need), devices)
            self.found[ask.uid] = capacity.node
            if self.place(at + 1):
                return True
        self._capacities[number] = capacity
        self.found.pop(ask.uid, None)
        return False

    def _later_view(self, at: int, number: int) -> object:
        """Which of the pods from here on may use the node; equal pods keep to the order of nodes, so it counts where they stand."""
        return tuple(number in ask.allowed for ask in self._asks[at:])


def _device_choices(
    node: Node, taken: Mapping[int, tuple[DeviceSlot, ...]], asks: Sequence[DeviceRequest]
) -> Iterator[Mapping[int, tuple[DeviceSlot, ...]]]:
    """Every way to serve the requests with the node's devices."""
    if not asks:
        yield taken
        return
    if not node.devices:
        # Whole devices of a node that does not say which it has are only counted.
        if all(ask.api is DeviceApi.WHOLE for ask in asks):
            yield taken
        return
    ask = asks[0]
    by_index = {device.index: device for device in node.devices if device.kind == ask.kind}
    able = [index for index, device in sorted(by_index.items()) if _takes(device, taken[index], _slot(device, ask))]
    seen: set[object] = set()
    for chosen in combinations(able, ask.count):
        key = tuple((by_index[index].memory, tuple((slot.memory, slot.cores) for slot in taken[index])) for index in chosen)
        if key in seen:
            continue
        seen.add(key)
        more = {index: (*taken[index], _slot(by_index[index], ask)) for index in chosen}
        yield from _device_choices(node, {**taken, **more}, asks[1:])


def _slot(device: Device, ask: DeviceRequest) -> DeviceSlot:
    return DeviceSlot(device.index, ask.memory_of(device.memory), ask.cores)


def _takes(device: Device, slots: Sequence[DeviceSlot], slot: DeviceSlot) -> bool:
    memory = device.memory - sum(each.memory for each in slots)
    cores = device.cores - sum(each.cores for each in slots)
    if not device.healthy or memory < slot.memory or cores < slot.cores:
        return False
    if device.shares and len(slots) >= device.shares:
        return False
    # Whoever has all cores of a device is alone on it.
    return not slots or (slot.cores < device.cores and cores > 0)
