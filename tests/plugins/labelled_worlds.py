"""Small random worlds: a few nodes with labels and taints, pods that stand on them in every phase, and members that want a node."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st
from tests.plugins.twins import Weights

from muster.engine.hooks import Plugin, Policy
from muster.engine.session import Session
from muster.model.events import Upsert
from muster.model.gang import PodGroup
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Membership, Phase, Pod, PodSignature, PodStatusPhase
from muster.model.pod_constraints import (
    NodeAffinity,
    NodeTerm,
    Operator,
    Requirement,
    Taint,
    TaintEffect,
    Toleration,
    WeightedNodeTerm,
)
from muster.model.queue import Queue
from muster.model.resource_amounts import CPU, GPU, MEMORY, PODS, Resources
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
class PlacedPod:
    """A pod that is already somewhere."""

    kind: PodSignature
    node: str
    phase: Phase


@dataclass(frozen=True)
class Case:
    """A world to be, and the members that want a node in it: for each its kind and the node it is nominated to by its status."""

    nodes: tuple[Node, ...]
    placed_pods: tuple[PlacedPod, ...]
    wanted: tuple[tuple[PodSignature, str | None], ...]
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
plain_signatures = st.builds(PodSignature, request=requests)
node_selectors = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), min_size=1, max_size=2).map(
    lambda d: tuple(sorted(d.items()))
)
some_tolerations = st.lists(tolerations, min_size=1, max_size=2).map(tuple)
signatures = st.one_of(
    st.builds(PodSignature, request=requests, node_selector=node_selectors),
    st.builds(PodSignature, request=requests, node_affinity=affinities),
    st.builds(PodSignature, request=requests, tolerations=some_tolerations),
    st.builds(PodSignature, request=requests, node_selector=node_selectors, node_affinity=affinities, tolerations=some_tolerations),
)
capacities = st.builds(
    lambda cpu, memory, pods, gpu: Resources.of({CPU: cpu * 500, MEMORY: memory * GIB, PODS: pods} | ({GPU: gpu} if gpu else {})),
    st.integers(0, 8),
    st.integers(0, 6),
    st.integers(0, 8),
    st.sampled_from([0, 4, 8]),
)


def nodes(name: str, *, plain: bool) -> st.SearchStrategy[Node]:
    if plain:
        return st.builds(Node, name=st.just(name), version=st.just(1), allocatable=capacities)
    return st.builds(
        Node,
        name=st.just(name),
        version=st.just(1),
        allocatable=capacities,
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
    """`plain` leaves labels and taints out, so that most members find a node and capacity decides."""
    names = NODE_NAMES[: draw(st.integers(0, len(NODE_NAMES)))]
    found = tuple(draw(nodes(name, plain=plain)) for name in names)
    # Mostly pods of few kinds, as gangs are; a run of equal ones is placed together.
    palette = draw(st.lists(plain_signatures if plain else signatures, min_size=1, max_size=3))
    kind_of = st.sampled_from(palette)
    phases = st.sampled_from([Phase.BOUND, Phase.RESERVED, Phase.NOMINATED, Phase.TERMINATING, Phase.OVERDUE])
    placed_pods = st.lists(st.builds(PlacedPod, kind=plain_signatures, node=st.sampled_from(names), phase=phases), max_size=8)
    runs = draw(st.lists(st.tuples(kind_of, st.integers(1, 14)), max_size=3))
    nominees = st.sampled_from([None, None, None, None, *names, "gone"])
    wanted = [(kind, draw(nominees) if draw(st.booleans()) else None) for kind, count in runs for _ in range(count)]
    return Case(found, tuple(draw(placed_pods)) if names else (), tuple(wanted), draw(weights))


@st.composite
def labelled_cases(draw: st.DrawFn) -> Case:
    """Nodes with labels and taints, and one pod of each kind: nobody is placed, so only what matches counts."""
    names = NODE_NAMES[: draw(st.integers(1, 6))]
    found = tuple(draw(nodes(name, plain=False)) for name in names)
    return Case(found, (), tuple((kind, None) for kind in draw(st.lists(signatures, min_size=1, max_size=3))), Weights())


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
class MadeWorld:
    """A case come to life."""

    world: World
    s: Session
    wanted: list[Pod]
    placed_pods: list[Pod]


def make_world(case: Case) -> MadeWorld:
    store = Store()
    for key, parent in (("queue/a", ""), ("queue/b", "queue/a")):
        store.fold(Upsert(Queue(key, version=1, parent=parent)))
    for node in case.nodes:
        store.fold(Upsert(node))
    placed_pods = [_make_placed_pod(i, placed_pod) for i, placed_pod in enumerate(case.placed_pods)]
    wanted = [
        Pod(
            f"w{i}",
            "d",
            f"w{i}",
            kind,
            created=100.0,
            version=1,
            membership=Membership(ApiFlavour.VOLCANO, "g"),
            nominated_node=nominee,
        )
        for i, (kind, nominee) in enumerate(case.wanted)
    ]
    if wanted:
        store.fold(Upsert(PodGroup(ApiFlavour.VOLCANO, "d", "g", version=1, min_member=len(wanted), queue="queue/b")))
    for pod in (*placed_pods, *wanted):
        store.fold(Upsert(pod))
    world = store.world(1000.0)
    _place_all(world, case, placed_pods)
    world.placements.journal.clear()
    return MadeWorld(world, Session(world, policy_of(case.weights)), wanted, placed_pods)


def _make_placed_pod(i: int, placed_pod: PlacedPod) -> Pod:
    pod = Pod(f"s{i}", "d", f"s{i}", placed_pod.kind, version=1, queue="queue/a")
    if placed_pod.phase in (Phase.RESERVED, Phase.NOMINATED):
        return pod
    there = replace(pod, node=placed_pod.node, status_phase=PodStatusPhase.RUNNING, started=0.0)
    return there if placed_pod.phase is Phase.BOUND else replace(there, deleted_at=990.0)


def _place_all(world: World, case: Case, pods: list[Pod]) -> None:
    with Trial(world, why="given", cause="Given") as trial:
        for pod, placed_pod in zip(pods, case.placed_pods, strict=True):
            if placed_pod.phase in (Phase.RESERVED, Phase.NOMINATED):
                trial.place(pod, placed_pod.node, phase=placed_pod.phase)
            elif placed_pod.phase is Phase.OVERDUE:
                trial.change_phase(pod, phase=Phase.OVERDUE)
        trial.commit()
