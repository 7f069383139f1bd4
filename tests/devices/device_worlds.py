"""Small random worlds with devices: a few nodes, pods with slots in every phase, and members that want some."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from muster.engine.hooks import Plugin, Policy
from muster.engine.session import Session
from muster.model.device import MIB, Device, DeviceApi, DeviceRequest, DeviceSlot
from muster.model.events import Upsert
from muster.model.gang import PodGroup
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Membership, Phase, Placement, Pod, PodSignature, PodStatusPhase
from muster.model.resource_amounts import CPU, PODS, Resources
from muster.plugins.best_fit import BestFit
from muster.plugins.binpack import Binpack
from muster.plugins.devices import Devices
from muster.plugins.fgd import Fgd
from muster.plugins.fit import Fit
from muster.plugins.priority import Priority
from muster.plugins.spread import Spread
from muster.state.store import Store
from muster.state.trial import Trial
from muster.state.world import World

GIB = 2**30
PHASES = (Phase.BOUND, Phase.RESERVED, Phase.NOMINATED, Phase.TERMINATING, Phase.OVERDUE)

memories = st.sampled_from([4 * GIB, 8 * GIB, 8 * GIB + 5])
devices = st.builds(
    Device,
    index=st.just(0),
    memory=memories,
    device_group=st.sampled_from(["", "a", "b", "c"]),
    shares=st.sampled_from([0, 0, 1, 3]),
    healthy=st.sampled_from([True, True, True, False]),
)
device_lists = st.lists(devices, max_size=5).map(
    lambda some: tuple(replace(one, index=i, uuid=f"u{i}") for i, one in enumerate(some))
)
amounts = st.sampled_from([GIB, 2 * GIB, 3 * GIB + MIB, 4 * GIB, 8 * GIB])
asks = st.one_of(
    st.builds(DeviceRequest, st.just(DeviceApi.VGPU), memory=amounts, cores=st.sampled_from([0, 0, 30, 50, 100])),
    st.builds(DeviceRequest, st.just(DeviceApi.VGPU), ratio=st.sampled_from([25, 33, 50, 100])),
)
whole = st.builds(DeviceRequest, st.just(DeviceApi.WHOLE), count=st.integers(1, 3), ratio=st.just(100), cores=st.just(100))


@st.composite
def pod_asks(draw: st.DrawFn) -> tuple[DeviceRequest, ...]:
    """Mostly one ask, sometimes one for each of several containers, sometimes whole devices or none."""
    shape = draw(st.sampled_from(["one", "one", "one", "two", "three", "whole", "none"]))
    if shape == "whole":
        return (draw(whole),)
    count = {"one": 1, "two": 2, "three": 3, "none": 0}[shape]
    most = 3 if count == 1 else 2
    return tuple(replace(draw(asks), container=number, count=draw(st.integers(1, most))) for number in range(count))


@dataclass(frozen=True)
class PlacedPod:
    asks: tuple[DeviceRequest, ...]
    node: str
    phase: Phase
    slots: tuple[DeviceSlot, ...]


@dataclass(frozen=True)
class Case:
    nodes: tuple[Node, ...]
    placed_pods: tuple[PlacedPod, ...]
    wanted: tuple[tuple[DeviceRequest, ...], ...]
    spread: bool
    phase: Phase


def kind(some: tuple[DeviceRequest, ...], *, cpu_m: int = 100) -> PodSignature:
    return PodSignature(request=Resources.of({CPU: cpu_m, PODS: 1}), devices=some)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    names = [f"n{i}" for i in range(draw(st.integers(1, 4)))]
    allocatable = Resources.of({CPU: draw(st.sampled_from([500, 2000])), PODS: 20})
    nodes = tuple(Node(name, version=1, allocatable=allocatable, devices=draw(device_lists)) for name in names)
    placed_pods = draw(st.lists(st.sampled_from(nodes).flatmap(_placed_pods), max_size=6))
    runs = draw(st.lists(st.tuples(pod_asks(), st.integers(1, 6)), min_size=1, max_size=3))
    return Case(
        nodes,
        tuple(placed_pods),
        tuple(some for some, count in runs for _ in range(count)),
        draw(st.booleans()),
        draw(st.sampled_from([Phase.BINDING, Phase.NOMINATED])),
    )


def _placed_pods(node: Node) -> st.SearchStrategy[PlacedPod]:
    """Somebody on the node with any slots, sensible or not: others put them there."""
    indices = st.sampled_from([*(device.index for device in node.devices), 7])
    slot = st.builds(DeviceSlot, index=indices, memory=amounts, cores=st.sampled_from([0, 30, 100]))
    slots = st.lists(slot, min_size=1, max_size=2, unique_by=lambda one: one.index).map(tuple)
    return st.builds(PlacedPod, asks=pod_asks(), node=st.just(node.name), phase=st.sampled_from(PHASES), slots=slots)


@dataclass
class MadeWorld:
    world: World
    s: Session
    wanted: list[Pod]
    placed_pods: list[Pod]


def make_world(case: Case, *, score: str = "") -> MadeWorld:
    store = Store()
    for node in case.nodes:
        store.fold(Upsert(node))
    placed_pods = [_pod(f"s{i}", placed_pod.asks, placed_pod) for i, placed_pod in enumerate(case.placed_pods)]
    wanted = [_pod(f"w{i}", some) for i, some in enumerate(case.wanted)]
    store.fold(Upsert(PodGroup(ApiFlavour.VOLCANO, "d", "g", version=1, min_member=max(1, len(wanted)))))
    for pod in (*placed_pods, *wanted):
        store.fold(Upsert(pod))
    world = store.world(1000.0)
    with Trial(world, why="given", cause="Given") as trial:
        for pod, placed_pod in zip(placed_pods, case.placed_pods, strict=True):
            trial.restore(pod, Placement(placed_pod.phase, placed_pod.node, 0.0, placed_pod.slots))
        trial.commit()
    world.placements.journal.clear()
    plugins: list[Plugin] = [Priority(), Fit(), Devices(strategy="spread" if case.spread else "binpack")]
    if score:
        scores: dict[str, Plugin] = {
            "binpack": Binpack(),
            "fragments": Binpack(fragments=True),
            "best-fit": BestFit(),
            "fgd": Fgd(),
            "spread": Spread(),
        }
        plugins.append(scores[score])
    return MadeWorld(world, Session(world, Policy(plugins, ["allocate"])), wanted, placed_pods)


def _pod(name: str, some: tuple[DeviceRequest, ...], placed_pod: PlacedPod | None = None) -> Pod:
    if placed_pod is None:
        return Pod(name, "d", name, kind(some), created=100.0, version=1, membership=Membership(ApiFlavour.VOLCANO, "g"))
    pod = Pod(name, "d", name, kind(some), version=1)
    if placed_pod.phase in (Phase.RESERVED, Phase.NOMINATED):
        return pod
    there = replace(pod, node=placed_pod.node, status_phase=PodStatusPhase.RUNNING, started=0.0)
    return there if placed_pod.phase is Phase.BOUND else replace(there, deleted_at=990.0)
