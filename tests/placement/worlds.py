"""Small worlds for the placement checks: drawn by hypothesis, and made into real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from muster.engine.hooks import WHOLE_CLUSTER, Domain, Plugin, Policy
from muster.engine.session import Session
from muster.model.events import Namespace, Seen, Thing
from muster.model.gang import Group
from muster.model.node import Node
from muster.model.pod import Dialect, Kind, Membership, Phase, Placement, Pod
from muster.model.resources import Resources
from muster.model.selectors import (
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
from muster.plugins.binpack import Binpack
from muster.plugins.fit import Fit
from muster.plugins.pod_affinity import PodAffinity as PodAffinityCheck
from muster.plugins.pod_affinity_preference import PodAffinityPreference
from muster.plugins.ports import Ports
from muster.plugins.selectors import Selectors
from muster.plugins.spread_constraints import SpreadConstraints
from muster.plugins.taints import Taints
from muster.plugins.unschedulable import Unschedulable
from muster.plugins.volumes import Volumes
from muster.state.store import Store
from muster.state.table import rows_of
from muster.state.world import World

HOST, ZONE = "kubernetes.io/hostname", "zone"
NOW = 100.0
STANDING = (Phase.BOUND, Phase.HELD, Phase.NOMINATED, Phase.LEAVING, Phase.OVERDUE)


@dataclass(frozen=True)
class Case:
    """Nodes, namespaces, pods that stand somewhere, and pods that want a node, in order."""

    nodes: tuple[Node, ...]
    namespaces: tuple[Namespace, ...] = ()
    standing: tuple[tuple[Pod, str, Phase], ...] = ()
    wanting: tuple[Pod, ...] = ()
    things: tuple[Thing, ...] = ()
    phase: Phase = Phase.BINDING
    only: tuple[str, ...] | None = None
    """The nodes to choose from; None: all."""


@dataclass
class Made:
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


def made(case: Case, plugins: Sequence[Plugin] | None = None) -> Made:
    """The case as a world in the middle of a cycle."""
    store = Store()
    for thing in (*case.nodes, *case.namespaces, *case.things):
        store.fold(Seen(thing))
    groups = {pod.membership.name: pod.namespace for pod in case.wanting if pod.membership is not None}
    for name, namespace in groups.items():
        store.fold(Seen(Group(Dialect.VOLCANO, namespace, name)))
    for pod in (*(pod for pod, _, _ in case.standing), *case.wanting):
        store.fold(Seen(pod))
    world = store.world(NOW)
    s = Session(world, Policy(all_plugins() if plugins is None else plugins, ["allocate"]))
    with s.trial("given", cause="Given") as trial:
        for pod, node, phase in case.standing:
            trial.restore(pod, Placement(phase, node, NOW - 50.0))
        trial.commit()
    domain = WHOLE_CLUSTER if case.only is None else Domain("some", rows_of(world.table, case.only))
    return Made(world, s, domain, store)


# -- by hand -------------------------------------------------------------------------------------------------------------------


def node(name: str, *, cpu: int = 4000, labels: Mapping[str, str] | None = None, **more: object) -> Node:
    amounts = Resources.of({"cpu": cpu, "pods": 110})
    return Node(name, allocatable=amounts, labels={HOST: name, **(labels or {})}, **more)  # type: ignore[arg-type]


def pod(name: str, *, namespace: str = "default", labels: Mapping[str, str] | None = None, gang: str = "", **kind: object) -> Pod:
    kind.setdefault("request", Resources.of({"cpu": 1000}))
    membership = Membership(Dialect.VOLCANO, gang) if gang else None
    return Pod(name, namespace, name, Kind(namespace=namespace, **kind), labels=labels or {}, membership=membership)  # type: ignore[arg-type]


def selecting(**labels: str) -> LabelSelector:
    return LabelSelector(tuple(Requirement(key, Operator.IN, (value,)) for key, value in labels.items()))


# -- drawn ---------------------------------------------------------------------------------------------------------------------

_NAMESPACES = ("blue", "red")
_LABEL_VALUES = {"app": ("x", "y"), "rev": ("1", "2")}


def labels_() -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in _LABEL_VALUES.items()})


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    key = draw(st.sampled_from(sorted(_LABEL_VALUES)))
    operator = draw(st.sampled_from([Operator.IN, Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST]))
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        return Requirement(key, operator)
    values = draw(st.lists(st.sampled_from(_LABEL_VALUES[key]), min_size=1, max_size=2, unique=True))
    return Requirement(key, operator, tuple(values))


def selectors() -> st.SearchStrategy[LabelSelector | None]:
    some = st.lists(requirements(), max_size=2).map(lambda found: LabelSelector(tuple(found)))
    return st.one_of(some, some, some, st.none())


@st.composite
def pod_terms(draw: st.DrawFn) -> PodTerm:
    team = st.sampled_from([LabelSelector(), selecting(team="a"), selecting(**{"kubernetes.io/metadata.name": "red"})])
    keys = st.lists(st.sampled_from(["app", "rev", "none"]), max_size=1, unique=True)
    return PodTerm(
        topology_key=draw(st.sampled_from([HOST, ZONE, ZONE, "rack"])),
        selector=draw(selectors()),
        namespaces=tuple(draw(st.lists(st.sampled_from(_NAMESPACES), max_size=2, unique=True))),
        namespace_selector=draw(st.one_of(st.none(), st.none(), team)),
        match_label_keys=tuple(draw(keys)),
        mismatch_label_keys=tuple(draw(keys)),
    )


@st.composite
def affinities(draw: st.DrawFn, *, preferred: bool) -> PodAffinity:
    required = draw(st.lists(pod_terms(), max_size=2))
    weighted = st.builds(WeightedPodTerm, st.sampled_from([1, 5, 100]), pod_terms())
    return PodAffinity(tuple(required), tuple(draw(st.lists(weighted, max_size=1))) if preferred else ())


@st.composite
def spreads(draw: st.DrawFn) -> SpreadConstraint:
    return SpreadConstraint(
        max_skew=draw(st.sampled_from([1, 1, 2])),
        topology_key=draw(st.sampled_from([HOST, ZONE, ZONE, "rack"])),
        hard=draw(st.booleans()),
        selector=draw(selectors()),
        min_domains=draw(st.sampled_from([None, None, 1, 3])),
        honor_affinity=draw(st.booleans()),
        honor_taints=draw(st.booleans()),
        match_label_keys=tuple(draw(st.lists(st.sampled_from(["app", "rev"]), max_size=1))),
    )


def host_ports() -> st.SearchStrategy[HostPort]:
    return st.builds(
        HostPort,
        st.sampled_from([80, 443]),
        st.sampled_from(["TCP", "UDP"]),
        st.sampled_from(["0.0.0.0", "::", "10.0.0.1", "10.0.0.2"]),
    )


@st.composite
def kinds(draw: st.DrawFn, namespace: str, *, what: str) -> Kind:
    """Pods of all sorts; `what` is the check that most of them are to be about."""
    zones = NodeAffinity(required=(NodeTerm((Requirement(ZONE, Operator.IN, ("a", "b")),)),))
    tolerations = (Toleration("dedicated", "Exists"),)
    about = what if draw(st.integers(0, 3)) else "none"
    return Kind(
        request=Resources.of({"cpu": draw(st.sampled_from([500, 1000]))}),
        node_selector=draw(st.sampled_from([(), (), ((ZONE, "a"),)])) if what == "spread" else (),
        node_affinity=draw(st.sampled_from([NodeAffinity(), NodeAffinity(), zones])),
        tolerations=draw(st.sampled_from([(), tolerations])),
        ports=tuple(draw(st.lists(host_ports(), min_size=1, max_size=2, unique=True))) if about == "ports" else (),
        affinity=draw(affinities(preferred=what == "preference")) if about in ("affinity", "preference") else PodAffinity(),
        anti_affinity=draw(affinities(preferred=what == "preference")) if about in ("affinity", "preference") else PodAffinity(),
        spread=tuple(draw(st.lists(spreads(), min_size=1, max_size=3))) if about == "spread" else (),
        namespace=namespace,
    )


@st.composite
def nodes_(draw: st.DrawFn, number: int) -> Node:
    labels = draw(
        st.fixed_dictionaries(
            {},
            optional={
                ZONE: st.sampled_from(["a", "b", "c"]),
                "rack": st.sampled_from(["r1", "r2"]),
                HOST: st.just(f"n{number}"),
            },
        )
    )
    taint = Taint("dedicated", TaintEffect.NO_SCHEDULE, "x")
    return Node(
        f"n{number}",
        allocatable=Resources.of({"cpu": draw(st.sampled_from([1000, 3000, 8000])), "pods": 110}),
        labels=labels,
        taints=(taint,) if draw(st.integers(0, 4)) == 0 else (),
        unschedulable=draw(st.integers(0, 6)) == 0,
    )


@st.composite
def cases(draw: st.DrawFn, *, what: str) -> Case:
    nodes = tuple(draw(nodes_(number)) for number in range(draw(st.integers(1, 6))))
    spaces = draw(st.lists(st.sampled_from([("blue", {"team": "a"}), ("red", {})]), unique_by=lambda found: found[0]))
    templates = [
        (draw(kinds(namespace, what=what)), namespace, draw(labels_()))
        for namespace in draw(st.lists(st.sampled_from(_NAMESPACES), min_size=1, max_size=3))
    ]
    names = [each.name for each in nodes] + ["nowhere"]
    standing: list[tuple[Pod, str, Phase]] = []
    for number in range(draw(st.integers(0, 6))):
        kind, namespace, labels = draw(st.sampled_from(templates))
        there = Pod(f"old{number}", namespace, f"old-{number}", kind, labels=_sometimes(draw, labels))
        standing.append((there, draw(st.sampled_from(names)), draw(st.sampled_from(STANDING))))
    wanting: list[Pod] = []
    for number in range(draw(st.integers(1, 7))):
        kind, namespace, labels = draw(st.sampled_from(templates))
        gang = Membership(Dialect.VOLCANO, f"gang-{namespace}")
        wanting.append(
            Pod(f"new{number}", namespace, f"new-{number}", kind, labels=_sometimes(draw, labels), membership=gang)
        )
    wanting.sort(key=lambda each: each.namespace)
    return Case(
        nodes=nodes,
        namespaces=tuple(Namespace(name, labels=labels) for name, labels in spaces),
        standing=tuple(standing),
        wanting=tuple(wanting),
        phase=draw(st.sampled_from([Phase.BINDING, Phase.BINDING, Phase.HELD, Phase.NOMINATED])),
        only=draw(st.one_of(st.none(), st.none(), st.lists(st.sampled_from(names[:-1]), unique=True).map(tuple))),
    )


def _sometimes(draw: st.DrawFn, labels: dict[str, str]) -> dict[str, str]:
    """Mostly the template's labels, now and then with one that no term asks about, or others altogether."""
    choice = draw(st.integers(0, 5))
    if choice == 0:
        return draw(labels_())
    return {**labels, "index": str(choice)} if choice < 3 else labels
