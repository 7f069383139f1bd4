"""What each plugin does for a person, as small scenarios: a cluster, some pods, one cycle, and who went where or why not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from muster.engine.cycle import run_cycle
from muster.engine.hooks import Plugin, Policy
from muster.model.effects import Bind, Outcome
from muster.model.events import Upsert
from muster.model.node import Node
from muster.model.pod import Pod, PodSignature, PodStatusPhase
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
from muster.model.resource_amounts import Resources
from muster.plugins import PLUGINS
from muster.plugins.binpack import Binpack
from muster.plugins.creation import Creation
from muster.plugins.fit import Fit
from muster.plugins.nominated import Nominated
from muster.plugins.priority import Priority
from muster.plugins.spread import Spread
from muster.state.store import Store

BIG = Resources.of({"cpu": 8000, "memory": 8 * 2**30, "pods": 10, "nvidia.com/gpu": 8})
SMALL = Resources.of({"cpu": 1000, "memory": 2**30, "pods": 10})
ALL = [make() for name, make in PLUGINS.items() if name != "spread"]


def kind(**amounts: int) -> PodSignature:
    named = {("nvidia.com/gpu" if name == "gpu" else name): amount for name, amount in amounts.items()}
    return PodSignature(request=Resources.of({"pods": 1, **named}))


def with_kind(base: PodSignature, **changes: object) -> PodSignature:
    return PodSignature(**({"request": base.request} | changes))  # type: ignore[arg-type]


def node(name: str, allocatable: Resources = BIG, **changes: object) -> Node:
    return Node(name, version=1, allocatable=allocatable, **changes)  # type: ignore[arg-type]


def pod(name: str, kind: PodSignature, **changes: object) -> Pod:
    return Pod(name, "d", name, kind, version=1, **changes)  # type: ignore[arg-type]


def running(name: str, kind: PodSignature, on: str) -> Pod:
    return pod(name, kind, node=on, status_phase=PodStatusPhase.RUNNING)


def cycle(nodes: Sequence[Node], pods: Sequence[Pod], plugins: Sequence[Plugin] = tuple(ALL)) -> Outcome:
    store = Store()
    for each in nodes:
        store.fold(Upsert(each))
    for each_pod in pods:
        store.fold(Upsert(each_pod))
    return run_cycle(store.world(1.0), Policy(plugins, ["expire", "enqueue", "allocate"]))


def binds(outcome: Outcome) -> dict[str, str]:
    return {effect.uid: effect.node for effect in outcome.effects if isinstance(effect, Bind)}


def why(outcome: Outcome) -> str:
    [(_, verdict)] = outcome.verdicts
    return verdict.why


# -- order -------------------------------------------------------------------------------------------------------------------------


def test_the_more_important_pod_gets_the_last_capacity_although_it_came_later() -> None:
    early, late = pod("early", kind(gpu=8), created=1.0), pod("late", kind(gpu=8), created=2.0, priority=5)
    assert binds(cycle([node("n")], [early, late])) == {"late": "n"}


def test_first_come_first_served_when_creation_comes_before_priority() -> None:
    early, late = pod("early", kind(gpu=8), created=1.0), pod("late", kind(gpu=8), created=2.0, priority=5)
    assert binds(cycle([node("n")], [early, late], [Creation(), Priority(), Fit()])) == {"early": "n"}


# -- who may go where --------------------------------------------------------------------------------------------------------------


def test_full_nodes_and_small_ones_are_distinguished_and_named_by_what_they_lack() -> None:
    nodes = [node("full-1"), node("full-2"), node("full-3"), node("small", SMALL)]
    there = [running(f"r{i}", kind(gpu=8), f"full-{i}") for i in (1, 2)] + [running("r3", kind(gpu=8, cpu=8000), "full-3")]
    outcome = cycle(nodes, [*there, pod("new", kind(gpu=4, cpu=1000))])
    assert (
        why(outcome) == "0/1 members placed, new fits nowhere: 2 nodes full (gpu), 1 node full (cpu, gpu), 1 node too small (gpu)"
    )


def test_nodes_that_do_not_match_a_node_selector_are_counted_with_the_labels_wanted() -> None:
    nodes = [node("a", labels={"zone": "us"}), node("b"), node("c", labels={"zone": "eu", "disk": "ssd"})]
    wanted = with_kind(kind(cpu=1), node_selector=(("disk", "hdd"), ("zone", "eu")))
    assert why(cycle(nodes, [pod("p", wanted)])).endswith("3 nodes do not match the node selector (disk=hdd, zone=eu)")
    assert binds(cycle(nodes, [pod("p", with_kind(wanted, node_selector=(("zone", "eu"),)))])) == {"p": "c"}


def test_nodes_that_do_not_match_a_required_affinity_are_counted_with_its_terms() -> None:
    terms = (
        NodeTerm((Requirement("gpu", Operator.IN, ("a100", "h100")), Requirement("cores", Operator.GT, ("16",)))),
        NodeTerm(fields=(Requirement("metadata.name", Operator.IN, ("z",)),)),
    )
    wanted = with_kind(kind(cpu=1), node_affinity=NodeAffinity(required=terms))
    nodes = [node("a", labels={"gpu": "a100", "cores": "16"})]
    assert why(cycle(nodes, [pod("p", wanted)])).endswith(
        "1 node does not match the node affinity (gpu in [a100, h100] and cores > 16 or metadata.name=z)"
    )
    assert binds(cycle([*nodes, node("b", labels={"gpu": "a100", "cores": "17"})], [pod("p", wanted)])) == {"p": "b"}
    assert binds(cycle([*nodes, node("z")], [pod("p", wanted)])) == {"p": "z"}


@pytest.mark.parametrize("required", [(), (NodeTerm(),)], ids=["no terms", "an empty term"])
def test_an_affinity_that_requires_one_of_no_terms_matches_no_node(required: tuple[NodeTerm, ...]) -> None:
    assert binds(cycle([node("n")], [pod("p", with_kind(kind(cpu=1), node_affinity=NodeAffinity(required=required)))])) == {}


def test_tainted_nodes_are_counted_by_the_taint_that_is_not_tolerated() -> None:
    infra, gpu = Taint("dedicated", TaintEffect.NO_SCHEDULE, "infra"), Taint("gpu", TaintEffect.NO_EXECUTE)
    nodes = [node("a", taints=(infra,)), node("b", taints=(infra, gpu)), node("c", taints=(gpu,))]
    assert why(cycle(nodes, [pod("p", kind(cpu=1))])).endswith(
        "2 nodes tainted (dedicated=infra:NoSchedule), 1 node tainted (gpu:NoExecute)"
    )
    tolerant = with_kind(kind(cpu=1), tolerations=(Toleration("dedicated", value="infra", effect=TaintEffect.NO_SCHEDULE),))
    assert binds(cycle(nodes, [pod("p", tolerant)])) == {"p": "a"}


def test_many_different_taints_are_counted_and_only_the_first_are_named() -> None:
    nodes = [node(f"n{i}", taints=(Taint("rack", TaintEffect.NO_SCHEDULE, f"r{i}"),)) for i in range(9)]
    assert why(cycle(nodes, [pod("p", kind(cpu=1))])).endswith("1 node tainted (rack=r2:NoSchedule), 6 nodes tainted otherwise")


def test_cordoned_nodes_are_counted_apart_from_taints_and_used_by_pods_that_tolerate_it() -> None:
    cordon = Taint("node.kubernetes.io/unschedulable", TaintEffect.NO_SCHEDULE)
    nodes = [node("a", unschedulable=True, taints=(cordon,)), node("b", taints=(Taint("x", TaintEffect.NO_SCHEDULE),))]
    assert why(cycle(nodes, [pod("p", kind(cpu=1))])).endswith("1 node unschedulable; 1 node tainted (x:NoSchedule)")
    brave = with_kind(kind(cpu=1), tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))
    assert binds(cycle(nodes, [pod("p", brave)])) == {"p": "a"}


# -- which of them is best ---------------------------------------------------------------------------------------------------------


def test_binpack_fills_the_fuller_node_and_spread_opens_the_emptier() -> None:
    nodes, there = [node("a"), node("b")], running("r", kind(gpu=2, cpu=100), "b")
    new = pod("p", kind(gpu=2, cpu=100))
    assert binds(cycle(nodes, [there, new], [Fit(), Binpack()])) == {"p": "b"}
    assert binds(cycle(nodes, [there, new], [Fit(), Spread()])) == {"p": "a"}


def test_devices_may_be_packed_while_processors_are_spread() -> None:
    nodes = [node("a"), node("b")]
    there = [running("r", kind(gpu=1, cpu=4000), "a"), running("q", kind(gpu=2, cpu=1000), "b")]
    plugins: list[Plugin] = [Fit(), Binpack(resources={"nvidia.com/gpu": 1.0}), Spread(resources={"cpu": 1.0})]
    assert binds(cycle(nodes, [*there, pod("p", kind(gpu=1, cpu=1000))], plugins)) == {"p": "b"}
    assert binds(cycle(nodes, [*there, pod("p", kind(cpu=1000))], plugins)) == {"p": "b"}


def test_a_preference_for_a_label_decides_between_nodes_that_are_otherwise_equal() -> None:
    ssd = NodeTerm((Requirement("disk", Operator.IN, ("ssd",)),))
    preferred = NodeAffinity(preferred=(WeightedNodeTerm(100, NodeTerm()), WeightedNodeTerm(1, ssd)))
    nodes = [node("a"), node("b", labels={"disk": "ssd"})]
    assert binds(cycle(nodes, [pod("p", with_kind(kind(cpu=1), node_affinity=preferred))])) == {"p": "b"}


def test_a_node_with_a_prefer_no_schedule_taint_is_chosen_last() -> None:
    nodes = [node("a", taints=(Taint("old", TaintEffect.PREFER_NO_SCHEDULE),)), node("b")]
    pods = [pod("p", kind(gpu=8), created=1.0), pod("q", kind(gpu=8), created=2.0)]
    assert binds(cycle(nodes, pods)) == {"p": "b", "q": "a"}


def test_a_nominated_pod_goes_to_its_node_although_another_is_fuller() -> None:
    nodes, there = [node("a"), node("b")], running("r", kind(gpu=2), "b")
    assert binds(cycle(nodes, [there, pod("p", kind(gpu=2), nominated_node="a")])) == {"p": "a"}


@pytest.mark.parametrize("nominated", ["full", "gone"])
def test_a_nomination_that_cannot_be_had_does_not_keep_a_pod_from_another_node(nominated: str) -> None:
    nodes, there = [node("full"), node("other")], running("r", kind(gpu=8), "full")
    assert binds(cycle(nodes, [there, pod("p", kind(gpu=2), nominated_node=nominated)])) == {"p": "other"}


def test_a_nomination_of_weight_nothing_is_nothing() -> None:
    nodes, there = [node("a"), node("b")], running("r", kind(gpu=2), "b")
    plugins: list[Plugin] = [Fit(), Binpack(), Nominated(weight=0.0)]
    assert binds(cycle(nodes, [there, pod("p", kind(gpu=2), nominated_node="a")], plugins)) == {"p": "b"}
