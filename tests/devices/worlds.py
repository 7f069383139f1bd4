"""Small random worlds with devices: a few nodes, pods with slots in every phase, and members that want some."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from muster.engine.hooks import Plugin, Policy
from muster.engine.session import Session
from muster.model.devices import MIB, Device, DeviceAsk, DeviceDialect, Slot
from muster.model.events import Seen
from muster.model.gang import Group
from muster.model.node import Node
from muster.model.pod import Dialect, Kind, Membership, Phase, Placement, Pod, Running
from muster.model.resources import CPU, PODS, Resources
from muster.plugins.binpack import Binpack
from muster.plugins.devices import Devices
from muster.plugins.fit import Fit
from muster.plugins.priority import Priority
from muster.plugins.spread import Spread
from muster.state.store import Store
from muster.state.trial import Trial
from muster.state.world import World

GIB = 2**30
PHASES = (Phase.BOUND, Phase.HELD, Phase.NOMINATED, Phase.LEAVING, Phase.OVERDUE)

memories = st.sampled_from([4 * GIB, 8 * GIB, 8 * GIB + 5])
devices = st.builds(
    Device,
    index=st.just(0),
    memory=memories,
    island=st.sampled_from(["", "a", "b", "c"]),
    shares=st.sampled_from([0, 0, 1, 3]),
    healthy=st.sampled_from([True, True, True, False]),
)
shelves = st.lists(devices, max_size=5).map(lambda some: tuple(replace(one, index=i, uuid=f"u{i}") for i, one in enumerate(some)))
amounts = st.sampled_from([GIB, 2 * GIB, 3 * GIB + MIB, 4 * GIB, 8 * GIB])
asks = st.one_of(
    st.builds(DeviceAsk, st.just(DeviceDialect.VGPU), memory=amounts, cores=st.sampled_from([0, 0, 30, 50, 100])),
    st.builds(DeviceAsk, st.just(DeviceDialect.VGPU), ratio=st.sampled_from([25, 33, 50, 100])),
)
whole = st.builds(DeviceAsk, st.just(DeviceDialect.WHOLE), count=st.integers(1, 3), ratio=st.just(100), cores=st.just(100))


@st.composite
def pod_asks(draw: st.DrawFn) -> tuple[DeviceAsk, ...]:
    """Mostly one ask, sometimes one for each of several containers, sometimes whole devices or none."""
    shape = draw(st.sampled_from(["one", "one", "one", "two", "three", "whole", "none"]))
    if shape == "whole":
        return (draw(whole),)
    count = {"one": 1, "two": 2, "three": 3, "none": 0}[shape]
    most = 3 if count == 1 else 2
    return tuple(replace(draw(asks), container=number, count=draw(st.integers(1, most))) for number in range(count))


@dataclass(frozen=True)
class Stands:
    asks: tuple[DeviceAsk, ...]
    node: str
    phase: Phase
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Case:
    nodes: tuple[Node, ...]
    stands: tuple[Stands, ...]
    wanted: tuple[tuple[DeviceAsk, ...], ...]
    spread: bool
    phase: Phase


def kind(some: tuple[DeviceAsk, ...], *, cpu_m: int = 100) -> Kind:
    return Kind(request=Resources.of({CPU: cpu_m, PODS: 1}), devices=some)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    names = [f"n{i}" for i in range(draw(st.integers(1, 4)))]
    room = Resources.of({CPU: draw(st.sampled_from([500, 2000])), PODS: 20})
    nodes = tuple(Node(name, version=1, allocatable=room, devices=draw(shelves)) for name in names)
    stands = draw(st.lists(st.sampled_from(nodes).flatmap(_stands), max_size=6))
    runs = draw(st.lists(st.tuples(pod_asks(), st.integers(1, 6)), min_size=1, max_size=3))
    return Case(
        nodes,
        tuple(stands),
        tuple(some for some, count in runs for _ in range(count)),
        draw(st.booleans()),
        draw(st.sampled_from([Phase.BINDING, Phase.NOMINATED])),
    )


def _stands(node: Node) -> st.SearchStrategy[Stands]:
    """Somebody on the node with any slots, sensible or not: others put them there."""
    indices = st.sampled_from([*(device.index for device in node.devices), 7])
    slot = st.builds(Slot, index=indices, memory=amounts, cores=st.sampled_from([0, 30, 100]))
    slots = st.lists(slot, min_size=1, max_size=2, unique_by=lambda one: one.index).map(tuple)
    return st.builds(Stands, asks=pod_asks(), node=st.just(node.name), phase=st.sampled_from(PHASES), slots=slots)


@dataclass
class Given:
    world: World
    s: Session
    wanted: list[Pod]
    stands: list[Pod]


def given_world(case: Case, *, score: str = "") -> Given:
    store = Store()
    for node in case.nodes:
        store.fold(Seen(node))
    stands = [_pod(f"s{i}", stand.asks, stand) for i, stand in enumerate(case.stands)]
    wanted = [_pod(f"w{i}", some) for i, some in enumerate(case.wanted)]
    store.fold(Seen(Group(Dialect.VOLCANO, "d", "g", version=1, min_member=max(1, len(wanted)))))
    for pod in (*stands, *wanted):
        store.fold(Seen(pod))
    world = store.world(1000.0)
    with Trial(world, why="given", cause="Given") as trial:
        for pod, stand in zip(stands, case.stands, strict=True):
            trial.restore(pod, Placement(stand.phase, stand.node, 0.0, stand.slots))
        trial.commit()
    world.placements.journal.clear()
    plugins: list[Plugin] = [Priority(), Fit(), Devices(strategy="spread" if case.spread else "binpack")]
    if score:
        plugins.append(Binpack() if score == "binpack" else Spread())
    return Given(world, Session(world, Policy(plugins, ["allocate"])), wanted, stands)


def _pod(name: str, some: tuple[DeviceAsk, ...], stand: Stands | None = None) -> Pod:
    if stand is None:
        return Pod(name, "d", name, kind(some), created=100.0, version=1, membership=Membership(Dialect.VOLCANO, "g"))
    pod = Pod(name, "d", name, kind(some), version=1)
    if stand.phase in (Phase.HELD, Phase.NOMINATED):
        return pod
    there = replace(pod, node=stand.node, running=Running.RUNNING, started=0.0)
    return there if stand.phase is Phase.BOUND else replace(there, deleted_at=990.0)
