"""Small worlds for the placement checks: drawn by hypothesis, and made into real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st
from tests.harness.row_index import rows_of

from muster.engine.hooks import WHOLE_CLUSTER, Domain, Plugin, Policy
from muster.engine.session import Session
from muster.model.events import ClusterObject, Namespace, Upsert
from muster.model.gang import PodGroup
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Membership, Phase, Placement, Pod, PodSignature
from muster.model.pod_constraints import (
    HostPort,
    LabelSelector,
    NodeAffinity,
    NodeTerm,
    Operator,
    PodAffinity,
    PodTerm,
    Requirement,
    SpreadConstraint,
    Taint,
    TaintEffect,
    Toleration,
    WeightedPodTerm,
)
from muster.model.resource_amounts import Resources
from muster.plugins.binpack import Binpack
from muster.plugins.fit import Fit
from muster.plugins.pod_affinity import InterPodAffinity as PodAffinityCheck
from muster.plugins.pod_affinity_preference import PodAffinityPreference
from muster.plugins.ports import Ports
from muster.plugins.selectors import Selectors
from muster.plugins.spread_constraints import SpreadConstraints
from muster.plugins.taints import Taints
from muster.plugins.unschedulable import Unschedulable
from muster.plugins.volumes import Volumes
from muster.state.store import Store
from muster.state.world import World

T = TypeVar("T")

HOST, ZONE = "kubernetes.io/hostname", "zone"
NOW = 100.0
PLACED_PHASES = (Phase.BOUND, Phase.RESERVED, Phase.NOMINATED, Phase.TERMINATING, Phase.OVERDUE)


@dataclass(frozen=True)
class Case:
    """Nodes, namespaces, pods that stand somewhere, and pods that want a node, in order."""

    nodes: tuple[Node, ...]
    namespaces: tuple[Namespace, ...] = ()
    placed: tuple[tuple[Pod, str, Phase], ...] = ()
    pending_pods: tuple[Pod, ...] = ()
    things: tuple[ClusterObject, ...] = ()
    phase: Phase = Phase.BINDING
    only: tuple[str, ...] | None = None
    """The nodes to choose from; None: all."""


@dataclass
class MadeWorld:
    world: World
    s: Session
    domain: Domain
    store: Store = field(repr=False)


def all_plugins() -> list[Plugin]:
    return [
        Unschedulable(),
        Selectors(),
        Taints(),
        Fit(),
        Ports(),
        Volumes(),
        PodAffinityCheck(),
        SpreadConstraints(weight=2.0),
        PodAffinityPreference(weight=3.0),
        Binpack(),
    ]


ALL = Policy(all_plugins(), ["allocate"])


def make_world(case: Case, plugins: Sequence[Plugin] | None = None) -> MadeWorld:
    """The case as a world in the middle of a cycle."""
    store = Store()
    for thing in (*case.nodes, *case.namespaces, *case.things):
        store.fold(Upsert(thing))
    groups = {pod.membership.name: pod.namespace for pod in case.pending_pods if pod.membership is not None}
    for name, namespace in groups.items():
        store.fold(Upsert(PodGroup(ApiFlavour.VOLCANO, namespace, name)))
    for pod in (*(pod for pod, _, _ in case.placed), *case.pending_pods):
        store.fold(Upsert(pod))
    world = store.world(NOW)
    s = Session(world, ALL if plugins is None else Policy(plugins, ["allocate"]))
    with s.trial("given", cause="Given") as trial:
        for pod, node, phase in case.placed:
            trial.restore(pod, Placement(phase, node, NOW - 50.0))
        trial.commit()
    domain = WHOLE_CLUSTER if case.only is None else Domain("some", rows_of(world.table, case.only))
    return MadeWorld(world, s, domain, store)


# -- by hand -------------------------------------------------------------------------------------------------------------------


def node(name: str, *, cpu: int = 4000, labels: Mapping[str, str] | None = None, **more: Any) -> Node:
    amounts = Resources.of({"cpu": cpu, "pods": 110})
    return Node(name, allocatable=amounts, labels={HOST: name, **(labels or {})}, **more)


def pod(name: str, *, namespace: str = "default", labels: Mapping[str, str] | None = None, gang: str = "", **kind: Any) -> Pod:
    kind.setdefault("request", Resources.of({"cpu": 1000}))
    membership = Membership(ApiFlavour.VOLCANO, gang) if gang else None
    return Pod(name, namespace, name, PodSignature(namespace=namespace, **kind), labels=labels or {}, membership=membership)


def selector_of(**labels: str) -> LabelSelector:
    return LabelSelector(tuple(Requirement(key, Operator.IN, (value,)) for key, value in labels.items()))


# -- drawn ---------------------------------------------------------------------------------------------------------------------
#
# Terms, kinds and nodes are drawn from pools that are made once: a draw is cheap then, and shrinks to the plain ones at the front.

_CHECKS = ("affinity", "preference", "spread", "ports")
_NAMESPACES = ("blue", "red")
_LABEL_SETS = [{"app": "x"}, {"app": "x", "rev": "1"}, {"app": "x", "rev": "2"}, {"app": "y"}, {"app": "y", "rev": "1"}, {}]
_POOL = 400


def _selector(chance: Random) -> LabelSelector | None:
    choice = chance.random()
    if choice < 0.05:
        return None
    return LabelSelector(tuple(_requirement(chance) for _ in range(0 if choice < 0.15 else 1 if choice < 0.9 else 2)))


def _requirement(chance: Random) -> Requirement:
    key = chance.choice(["app", "app", "rev"])
    values = ["x", "y"] if key == "app" else ["1", "2"]
    operator = chance.choice([Operator.IN, Operator.IN, Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST])
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        return Requirement(key, operator)
    return Requirement(key, operator, tuple(chance.sample(values, chance.choice([1, 1, 2]))))


def _term(chance: Random) -> PodTerm:
    spaces = [LabelSelector(), selector_of(team="a"), selector_of(**{"kubernetes.io/metadata.name": "red"})]
    where = chance.random()
    return PodTerm(
        topology_key=chance.choice([HOST, HOST, ZONE, ZONE, "rack"]),
        selector=_selector(chance),
        namespaces=tuple(chance.sample(_NAMESPACES, chance.choice([1, 2]))) if where > 0.8 else (),
        namespace_selector=chance.choice(spaces) if 0.7 < where < 0.9 else None,
        match_label_keys=("rev",) if chance.random() < 0.15 else (),
        mismatch_label_keys=("app",) if chance.random() < 0.1 else (),
    )


def _affinity(chance: Random, *, required: float, preferred: float) -> PodAffinity:
    hard = tuple(_term(chance) for _ in range(chance.choice([1, 1, 2]) if chance.random() < required else 0))
    soft = tuple(WeightedPodTerm(chance.choice([1, 5, 100]), _term(chance)) for _ in range(chance.random() < preferred))
    return PodAffinity(hard, soft)


def _spread(chance: Random) -> SpreadConstraint:
    return SpreadConstraint(
        max_skew=chance.choice([1, 1, 2]),
        topology_key=chance.choice([HOST, ZONE, ZONE, "rack"]),
        hard=chance.random() < 0.6,
        selector=_selector(chance),
        min_domains=chance.choice([None, None, None, 1, 3]),
        honor_affinity=chance.random() < 0.6,
        honor_taints=chance.random() < 0.4,
        match_label_keys=("rev",) if chance.random() < 0.2 else (),
    )


def _port(chance: Random) -> HostPort:
    address = chance.choice(["0.0.0.0", "0.0.0.0", "::", "10.0.0.1", "10.0.0.2"])
    return HostPort(chance.choice([80, 443]), chance.choice(["TCP", "TCP", "UDP"]), address)


def _kind(chance: Random, namespace: str, what: str) -> PodSignature:
    zones = NodeAffinity(required=(NodeTerm((Requirement(ZONE, Operator.IN, ("a", "b")),)),))
    about = what if chance.random() < 0.8 else "none"
    preferred = 0.7 if about == "preference" else 0.0
    hard = {"affinity": 0.6, "preference": 0.35}.get(about, 0.0)
    return PodSignature(
        request=Resources.of({"cpu": chance.choice([500, 1000])}),
        node_selector=((ZONE, "a"),) if what == "spread" and chance.random() < 0.15 else (),
        node_affinity=zones if what == "spread" and chance.random() < 0.25 else NodeAffinity(),
        tolerations=(Toleration("dedicated", "Exists"),) if chance.random() < 0.5 else (),
        ports=tuple({_port(chance): None for _ in range(2)}) if about == "ports" else (),
        affinity=_affinity(chance, required=hard, preferred=preferred),
        anti_affinity=_affinity(chance, required=hard, preferred=preferred),
        spread=tuple(_spread(chance) for _ in range(chance.choice([1, 1, 2, 3]))) if about == "spread" else (),
        namespace=namespace,
    )


def _node(chance: Random, *, closed: float) -> Node:
    labels = {}
    if chance.random() < 0.9:
        labels[ZONE] = chance.choice(["a", "b", "c"])
    if chance.random() < 0.7:
        labels["rack"] = chance.choice(["r1", "r2"])
    taint = Taint("dedicated", TaintEffect.NO_SCHEDULE, "x")
    return Node(
        "",
        allocatable=Resources.of({"cpu": chance.choice([2000, 8000, 8000]), "pods": 110}),
        labels=labels,
        taints=(taint,) if chance.random() < closed else (),
        unschedulable=chance.random() < closed / 2,
    )


def _pool(make: Callable[[Random], T]) -> st.SearchStrategy[T]:
    chance = Random(7)
    return st.sampled_from([make(chance) for _ in range(_POOL)])


_KINDS = {
    (what, namespace): _pool(lambda chance, what=what, namespace=namespace: _kind(chance, namespace, what))  # type: ignore[misc]
    for what in _CHECKS
    for namespace in _NAMESPACES
}
_NODES = {what: _pool(lambda chance, what=what: _node(chance, closed=0.4 if what == "spread" else 0.1)) for what in _CHECKS}  # type: ignore[misc]
_LABELS = st.sampled_from(_LABEL_SETS)
_SPACES = st.sampled_from([(), (("blue", {"team": "a"}),), (("blue", {"team": "a"}), ("red", {})), (("red", {"team": "a"}),)])
_PHASES = st.sampled_from([Phase.BINDING, Phase.BINDING, Phase.RESERVED, Phase.NOMINATED])
_PLACED_PHASES = st.sampled_from(PLACED_PHASES)
_TEMPLATE = st.integers(0, 2)
_VARIATION = st.integers(0, 7)


@st.composite
def cases(draw: st.DrawFn, *, what: str) -> Case:
    number = draw(st.integers(1, 6))
    plain = [draw(_NODES[what]) for _ in range(number)]
    nodes = tuple(replace(each, name=f"n{i}", labels={**each.labels, HOST: f"n{i}"}) for i, each in enumerate(plain))
    names = [each.name for each in nodes]
    templates = [(draw(_KINDS[what, namespace]), namespace, draw(_LABELS)) for namespace in ("blue", "blue", "red")]
    anywhere = st.sampled_from([*names, *names, "nowhere"])

    def pod(name: str, gang: bool) -> Pod:
        kind, namespace, labels = templates[draw(_TEMPLATE)]
        # Mostly the template's labels, now and then with one that no term asks about, or others altogether.
        twist = draw(_VARIATION)
        worn = draw(_LABELS) if twist == 7 else {**labels, "index": str(twist)} if twist > 4 else labels
        membership = Membership(ApiFlavour.VOLCANO, f"gang-{namespace}") if gang else None
        return Pod(name, namespace, name, kind, labels=worn, membership=membership)

    placed = tuple((pod(f"old-{i}", False), draw(anywhere), draw(_PLACED_PHASES)) for i in range(draw(st.integers(0, 7))))
    pending_pods = [pod(f"new-{i}", True) for i in range(draw(st.integers(1, 7)))]
    return Case(
        nodes=nodes,
        namespaces=tuple(Namespace(name, labels=labels) for name, labels in draw(_SPACES)),
        placed=placed,
        pending_pods=tuple(sorted(pending_pods, key=lambda each: each.namespace)),
        phase=draw(_PHASES),
        only=tuple(names[::2]) if draw(_VARIATION) == 7 else None,
    )
