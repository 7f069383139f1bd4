"""Small random worlds: a few nodes with labels and taints, pods that stand on them in every phase, and members that want a node."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st
from tests.plugins.twins import Weights

from muster.engine.hooks import Plugin, Policy
from muster.engine.session import Session
from muster.model.events import Seen
from muster.model.gang import Group
from muster.model.node import Node
from muster.model.pod import Dialect, Kind, Membership, Phase, Pod, Running
from muster.model.queue import Queue
from muster.model.resources import CPU, GPU, MEMORY, PODS, Resources
from muster.model.selectors import (
    NodeAffinity,
    NodeTerm,
    Operator,
    Requirement,
    Taint,
    TaintEffect,
    Toleration,
    WeightedNodeTerm,
)
from muster.plugins.binpack import Binpack
from muster.plugins.fit import Fit
from muster.plugins.node_affinity_preference import NodeAffinityPreference
from muster.plugins.nominated import Nominated
from muster.plugins.selectors import Selectors
from muster.plugins.spread import Spread
from muster.plugins.taint_preference import TaintPreference
from muster.plugins.taints import Taints
from muster.plugins.unschedulable import Unschedulable
from muster.state.store import Store
from muster.state.trial import Trial
from muster.state.world import World

GIB = 2**30
NODE_NAMES = [f"n{i}" for i in range(9)]
KEYS = ["zone", "size", "disk"]
VALUES = ["a", "b", "1", "5", "10", "-3", "+7", "x5", "", "9223372036854775807", "9223372036854775808"]
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


@dataclass(frozen=True)
class Stands:
    """A pod that is already somewhere."""

    kind: Kind
    node: str
    phase: Phase


@dataclass(frozen=True)
class Case:
    """A world to be, and the members that want a node in it: for each its kind and the node it is nominated to by its status."""

    nodes: tuple[Node, ...]
    stands: tuple[Stands, ...]
    wanted: tuple[tuple[Kind, str | None], ...]
    weights: Weights


# -- strategies --------------------------------------------------------------------------------------------------------------------

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=3)

requirements = st.builds(
    Requirement,
    key=st.sampled_from(KEYS),
    operator=st.sampled_from(Operator),
    values=st.lists(st.sampled_from(VALUES), min_size=1, max_size=2).map(tuple),
)
fields = st.builds(
    Requirement,
    key=st.just("metadata.name"),
    operator=st.sampled_from([Operator.IN, Operator.NOT_IN]),
    values=st.lists(st.sampled_from(NODE_NAMES), min_size=1, max_size=2).map(tuple),
)
terms = st.builds(
    NodeTerm, expressions=st.lists(requirements, max_size=2).map(tuple), fields=st.lists(fields, max_size=1).map(tuple)
)
affinities = st.builds(
    NodeAffinity,
    required=st.none() | st.lists(terms, max_size=2).map(tuple),
    preferred=st.lists(st.builds(WeightedNodeTerm, weight=st.integers(1, 100), term=terms), max_size=3).map(tuple),
)
taint_keys = st.sampled_from(["dedicated", "gpu", UNSCHEDULABLE])
taint_values = st.sampled_from(["", "infra", "10", "20"])
taints = st.builds(Taint, key=taint_keys, effect=st.sampled_from(TaintEffect), value=taint_values)
tolerations = st.builds(
    Toleration,
    key=st.sampled_from(["", "dedicated", "gpu", UNSCHEDULABLE]),
    operator=st.sampled_from(["Equal", "Exists", "Gt", "Lt"]),
    value=taint_values,
    effect=st.none() | st.sampled_from(TaintEffect),
).filter(lambda toleration: toleration.key or toleration.operator == "Exists")

requests = st.builds(
    lambda cpu, memory, gpu: Resources.of({CPU: cpu * 500, MEMORY: memory * GIB, PODS: 1} | ({GPU: gpu} if gpu else {})),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from([0, 0, 1, 2]),
)
plain_kinds = st.builds(Kind, request=requests)
node_selectors = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), min_size=1, max_size=2).map(
    lambda d: tuple(sorted(d.items()))
)
some_tolerations = st.lists(tolerations, min_size=1, max_size=2).map(tuple)
kinds = st.one_of(
    st.builds(Kind, request=requests, node_selector=node_selectors),
    st.builds(Kind, request=requests, node_affinity=affinities),
    st.builds(Kind, request=requests, tolerations=some_tolerations),
    st.builds(Kind, request=requests, node_selector=node_selectors, node_affinity=affinities, tolerations=some_tolerations),
)
rooms = st.builds(
    lambda cpu, memory, pods, gpu: Resources.of({CPU: cpu * 500, MEMORY: memory * GIB, PODS: pods} | ({GPU: gpu} if gpu else {})),
    st.integers(0, 8),
    st.integers(0, 6),
    st.integers(0, 8),
    st.sampled_from([0, 4, 8]),
)


def nodes(name: str, *, plain: bool) -> st.SearchStrategy[Node]:
    if plain:
        return st.builds(Node, name=st.just(name), version=st.just(1), allocatable=rooms)
    return st.builds(
        Node,
        name=st.just(name),
        version=st.just(1),
        allocatable=rooms,
        labels=labels,
        taints=st.lists(taints, max_size=2).map(tuple),
        unschedulable=st.booleans(),
    )


packings = st.lists(
    st.tuples(
        st.sampled_from(["binpack", "spread"]),
        st.sampled_from([0.0, 0.3, 1.0, 2.0]),
        st.dictionaries(
            st.sampled_from([CPU, MEMORY, GPU, "example.com/x"]), st.sampled_from([0.0, 0.1, 1.0, 10.0]), min_size=1
        ).map(lambda d: tuple(d.items())),
    ),
    max_size=2,
    unique_by=lambda packing: packing[0],
).map(tuple)
weights = st.builds(
    Weights,
    packing=packings,
    affinity=st.sampled_from([0.5, 1.0, 3.0]),
    taint=st.sampled_from([0.5, 1.0]),
    nominated=st.just(100.0),
)


@st.composite
def cases(draw: st.DrawFn, *, plain: bool = False) -> Case:
    """`plain` leaves labels and taints out, so that most members find a node and room decides."""
    names = NODE_NAMES[: draw(st.integers(0, len(NODE_NAMES)))]
    found = tuple(draw(nodes(name, plain=plain)) for name in names)
    # Mostly pods of few kinds, as gangs are; a run of equal ones is placed together.
    palette = draw(st.lists(plain_kinds if plain else kinds, min_size=1, max_size=3))
    kind_of = st.sampled_from(palette)
    phases = st.sampled_from([Phase.BOUND, Phase.HELD, Phase.NOMINATED, Phase.LEAVING, Phase.OVERDUE])
    stands = st.lists(st.builds(Stands, kind=plain_kinds, node=st.sampled_from(names), phase=phases), max_size=8)
    runs = draw(st.lists(st.tuples(kind_of, st.integers(1, 14)), max_size=3))
    nominees = st.sampled_from([None, None, None, None, *names, "gone"])
    wanted = [(kind, draw(nominees) if draw(st.booleans()) else None) for kind, count in runs for _ in range(count)]
    return Case(found, tuple(draw(stands)) if names else (), tuple(wanted), draw(weights))


@st.composite
def labelled_cases(draw: st.DrawFn) -> Case:
    """Nodes with labels and taints, and one pod of each kind: nobody is placed, so only what matches counts."""
    names = NODE_NAMES[: draw(st.integers(1, 6))]
    found = tuple(draw(nodes(name, plain=False)) for name in names)
    return Case(found, (), tuple((kind, None) for kind in draw(st.lists(kinds, min_size=1, max_size=3))), Weights())


# -- from a case to a world --------------------------------------------------------------------------------------------------------


def policy_of(weights: Weights) -> Policy:
    plugins: list[Plugin] = [
        Unschedulable(),
        Selectors(),
        Taints(),
        Fit(),
        NodeAffinityPreference(weight=weights.affinity),
        TaintPreference(weight=weights.taint),
    ]
    for strategy, weight, resources in weights.packing:
        make = Binpack if strategy == "binpack" else Spread
        plugins.append(make(weight=weight, resources=dict(resources)))
    plugins.append(Nominated(weight=weights.nominated))
    return Policy(plugins, ["allocate"])


@dataclass
class Given:
    """A case come to life."""

    world: World
    s: Session
    wanted: list[Pod]
    stands: list[Pod]


def given_world(case: Case) -> Given:
    store = Store()
    for key, parent in (("queue/a", ""), ("queue/b", "queue/a")):
        store.fold(Seen(Queue(key, version=1, parent=parent)))
    for node in case.nodes:
        store.fold(Seen(node))
    stands = [_standing_pod(i, stand) for i, stand in enumerate(case.stands)]
    wanted = [
        Pod(
            f"w{i}",
            "d",
            f"w{i}",
            kind,
            created=100.0,
            version=1,
            membership=Membership(Dialect.VOLCANO, "g"),
            nominated_node=nominee,
        )
        for i, (kind, nominee) in enumerate(case.wanted)
    ]
    if wanted:
        store.fold(Seen(Group(Dialect.VOLCANO, "d", "g", version=1, min_member=len(wanted), queue="queue/b")))
    for pod in (*stands, *wanted):
        store.fold(Seen(pod))
    world = store.world(1000.0)
    _put(world, case, stands)
    world.placements.journal.clear()
    return Given(world, Session(world, policy_of(case.weights)), wanted, stands)


def _standing_pod(i: int, stand: Stands) -> Pod:
    pod = Pod(f"s{i}", "d", f"s{i}", stand.kind, version=1, queue="queue/a")
    if stand.phase in (Phase.HELD, Phase.NOMINATED):
        return pod
    there = replace(pod, node=stand.node, running=Running.RUNNING, started=0.0)
    return there if stand.phase is Phase.BOUND else replace(there, deleted_at=990.0)


def _put(world: World, case: Case, pods: list[Pod]) -> None:
    with Trial(world, why="given", cause="Given") as trial:
        for pod, stand in zip(pods, case.stands, strict=True):
            if stand.phase in (Phase.HELD, Phase.NOMINATED):
                trial.place(pod, stand.node, phase=stand.phase)
            elif stand.phase is Phase.OVERDUE:
                trial.turn(pod, phase=Phase.OVERDUE)
        trial.commit()
