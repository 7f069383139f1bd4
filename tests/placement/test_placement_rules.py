"""What the placement checks say and do, one rule at a time."""

from __future__ import annotations

import pytest
from tests.placement.derived_values import assert_no_trace
from tests.placement.placement_worlds import HOST, NOW, ZONE, Case, MadeWorld, make_world, node, pod, selector_of
from tests.placement.volume_worlds import DRIVER, in_zones, on_nodes

from muster.engine import explain
from muster.engine.hooks import WHOLE_CLUSTER
from muster.engine.place import fits_on, place
from muster.model.effects import Bind, Verdict
from muster.model.events import Delete, Namespace, Upsert
from muster.model.pod import Phase, Pod, PodStatusPhase
from muster.model.pod_constraints import HostPort, LabelSelector, PodAffinity, PodTerm, SpreadConstraint
from muster.model.topics import Topic
from muster.model.volume import CsiNode, PersistentVolume, StorageClass, VolumeChoice, VolumeClaim
from muster.plugins.spread_constraints import SpreadConstraints
from muster.plugins.volumes import Volumes
from muster.state import changes
from muster.state.derived import topology_counts
from muster.state.derived.volume_choice import choices
from muster.state.node_table import NodeRows

ANTI_AFFINITY = PodAffinity((PodTerm(HOST, selector_of(app="x")),))
AFFINITY = PodAffinity((PodTerm(ZONE, selector_of(app="x")),))


def verdict(here: MadeWorld, who: Pod) -> Verdict:
    gang = here.world.gang_of(who)
    assert gang is not None
    return explain.no_node_fits(here.s, gang, who, WHOLE_CLUSTER, after_releases=False)


def placed(here: MadeWorld, *pods: Pod, phase: Phase = Phase.BINDING) -> list[str | None]:
    with here.s.trial("test", cause="Test") as trial:
        place(here.s, trial, pods, domain=WHOLE_CLUSTER, phase=phase)
        trial.commit()
    return [here.world.placement(each).node for each in pods]


# -- messages ----------------------------------------------------------------------------------------------------------------------


def test_a_refusal_counts_nodes_by_reason_and_names_what_could_change_it() -> None:
    there = pod("there", labels={"app": "x"})
    new = pod("new", gang="g", anti_affinity=ANTI_AFFINITY, affinity=PodAffinity((PodTerm("rack", selector_of(app="y")),)))
    here = make_world(
        Case(
            nodes=(node("n1", labels={"rack": "r"}), node("n2", labels={"rack": "r"}), node("n3")),
            placed=((there, "n1", Phase.BOUND),),
            pending_pods=(new,),
        )
    )
    found = verdict(here, new)
    assert "1 node without the label rack, the topologyKey of its affinity" in found.why
    assert "1 node with a pod in their kubernetes.io/hostname that its anti-affinity excludes (app=x)" in found.why
    assert "1 node without a pod that its affinity requires (app=y in their rack)" in found.why
    assert found.curable
    assert Topic.POD_PLACED.any in found.topics


def test_a_selector_that_selects_nobody_never_matches() -> None:
    new = pod("new", gang="g", affinity=PodAffinity((PodTerm(HOST, None),)))
    here = make_world(Case(nodes=(node("n1"),), pending_pods=(new,)))
    assert (
        "without a pod that its affinity requires (a selector that selects nobody in their kubernetes.io/hostname)"
        in verdict(here, new).why
    )


def test_refusals_that_no_eviction_can_cure_are_distinguished() -> None:
    far = PersistentVolume("far", node_terms=in_zones("b"))
    new = pod("new", gang="g", volume_claims=("data",))
    claim = VolumeClaim("default", "data", volume="far")
    here = make_world(Case(nodes=(node("n1", labels={ZONE: "a"}),), pending_pods=(new,), things=(far, claim)))
    assert verdict(here, new) == Verdict(
        ok=False,
        why="0/1 members placed, new fits nowhere: 1 node out of reach of volume far of PersistentVolumeClaim default/data",
        code=explain.NO_NODE,
        topics=verdict(here, new).topics,
    )


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (None, "PersistentVolumeClaim default/data does not exist"),
        (VolumeClaim("default", "data", deleted=True), "PersistentVolumeClaim default/data is being deleted"),
        (
            VolumeClaim("default", "data", volume="v"),
            "PersistentVolumeClaim default/data is bound to volume v, which does not exist",
        ),
        (
            VolumeClaim("default", "data", storage_class="odd"),
            "PersistentVolumeClaim default/data requests storage class odd, which does not exist",
        ),
        (VolumeClaim("default", "data"), "it waits for PersistentVolumeClaim default/data to be bound"),
        (VolumeClaim("default", "data", storage_class="now"), "it waits for PersistentVolumeClaim default/data to be bound"),
        (
            VolumeClaim("default", "data", storage_class="local"),
            "1 node where PersistentVolumeClaim default/data can get no volume of class local",
        ),
        (
            VolumeClaim("default", "data", storage_class="made", selected_node="n2"),
            "the volume of PersistentVolumeClaim default/data is being provisioned for node n2",
        ),
    ],
)
def test_every_state_of_a_volume_claim_has_its_own_message(claim: VolumeClaim | None, why: str) -> None:
    classes = (
        StorageClass("now", provisioner=DRIVER),
        StorageClass("local", waits=True),
        StorageClass("made", provisioner=DRIVER, waits=True),
    )
    new = pod("new", gang="g", volume_claims=("data",))
    here = make_world(Case(nodes=(node("n1"),), pending_pods=(new,), things=(*classes, *([claim] if claim is not None else []))))
    assert why in verdict(here, new).why


def test_ports_in_use_are_named() -> None:
    there = pod("there", ports=(HostPort(80), HostPort(443)))
    new = pod("new", gang="g", ports=(HostPort(80), HostPort(443), HostPort(8080)))
    here = make_world(Case(nodes=(node("n1"),), placed=((there, "n1", Phase.BOUND),), pending_pods=(new,)))
    assert "1 node with host port 80/TCP, 443/TCP in use" in verdict(here, new).why


# -- claims that wait for their first pod ------------------------------------------------------------------------------------------


def local(name: str, *, size: int = 1, nodes: tuple[str, ...] = ()) -> PersistentVolume:
    terms = on_nodes(*nodes) if nodes else None
    return PersistentVolume(name, capacity=size, storage_class="local", access_modes=("ReadWriteOnce",), node_terms=terms)


def waits(name: str, *, size: int = 1, storage_class: str = "local") -> VolumeClaim:
    return VolumeClaim("default", name, storage_class=storage_class, request=size, access_modes=("ReadWriteOnce",))


LOCAL = StorageClass("local", waits=True)
PROVISIONED = StorageClass("made", provisioner=DRIVER, waits=True)


def test_a_bind_says_which_volume_each_volume_claim_gets() -> None:
    new = pod("new", gang="g", volume_claims=("a", "b", "c"))
    bound = VolumeClaim("default", "c", volume="v3")
    things = (
        LOCAL,
        PROVISIONED,
        local("v1", size=5),
        local("v2", size=2),
        PersistentVolume("v3"),
        waits("a", size=2),
        waits("b", storage_class="made"),
        bound,
    )
    here = make_world(Case(nodes=(node("n1"),), pending_pods=(new,), things=things))
    assert placed(here, new) == ["n1"]
    assert choices(here.world, new) == (VolumeChoice("default/a", "v2"), VolumeChoice("default/b", ""))
    assert Bind("u", "p", "n", "g", "why").volumes == ()


def test_volume_claims_of_one_cycle_swap_so_that_none_is_left_without() -> None:
    """The first takes the smaller volume; the second can only have that one, and the first moves over."""
    first, second = pod("a", gang="g", volume_claims=("any",)), pod("b", gang="g", volume_claims=("small",))
    only = VolumeClaim("default", "small", storage_class="local", selector=selector_of(kind="ssd"), access_modes=("ReadWriteOnce",))
    ssd = PersistentVolume("v1", capacity=1, storage_class="local", access_modes=("ReadWriteOnce",), labels={"kind": "ssd"})
    here = make_world(
        Case(nodes=(node("n1"),), pending_pods=(first, second), things=(LOCAL, ssd, local("v2", size=9), waits("any"), only))
    )
    assert placed(here, first) == ["n1"]
    assert choices(here.world, first) == (VolumeChoice("default/any", "v1"),)
    assert placed(here, second) == ["n1"]
    assert choices(here.world, first) == (VolumeChoice("default/any", "v2"),)
    assert choices(here.world, second) == (VolumeChoice("default/small", "v1"),)


def test_the_volume_of_a_claim_from_an_earlier_cycle_stays_its_own() -> None:
    first, second = pod("a", gang="g", volume_claims=("any",)), pod("b", gang="g", volume_claims=("small",))
    only = VolumeClaim("default", "small", storage_class="local", selector=selector_of(kind="ssd"), access_modes=("ReadWriteOnce",))
    ssd = PersistentVolume("v1", capacity=1, storage_class="local", access_modes=("ReadWriteOnce",), labels={"kind": "ssd"})
    here = make_world(
        Case(nodes=(node("n1"),), pending_pods=(first, second), things=(LOCAL, ssd, local("v2", size=9), waits("any"), only))
    )
    assert placed(here, first) == ["n1"]
    here.world.now = NOW + 1.0
    assert placed(here, second) == [None]
    assert choices(here.world, first) == (VolumeChoice("default/any", "v1"),)


def test_a_terminating_pod_releases_its_volume_choice() -> None:
    old, new = pod("old", volume_claims=("a",)), pod("new", gang="g", volume_claims=("b",))
    here = make_world(
        Case(
            nodes=(node("n1"),),
            placed=((old, "n1", Phase.BOUND),),
            pending_pods=(new,),
            things=(LOCAL, local("v1"), waits("a"), waits("b")),
        )
    )
    assert not fits_on(here.s, new, "n1", after_releases=True)
    with here.s.trial("test", cause="Test") as trial:
        trial.evict(old)
        assert fits_on(here.s, new, "n1", after_releases=True)
    assert not fits_on(here.s, new, "n1", after_releases=True)
    assert_no_trace(here.world)


def test_members_share_a_volume_claim_for_many_nodes_before_it_is_bound() -> None:
    pods = tuple(
        pod(f"p{i}", gang="g", volume_claims=("data",), anti_affinity=ANTI_AFFINITY, labels={"app": "x"}) for i in range(3)
    )
    many = VolumeClaim("default", "data", storage_class="made", access_modes=("ReadWriteMany",))
    here = make_world(Case(nodes=tuple(node(f"n{i}") for i in range(3)), pending_pods=pods, things=(PROVISIONED, many)))
    assert placed(here, *pods) == ["n0", "n1", "n2"]


def test_a_volume_claim_for_one_node_keeps_its_pods_on_that_node() -> None:
    pods = tuple(
        pod(f"p{i}", gang="g", volume_claims=("data",), anti_affinity=ANTI_AFFINITY, labels={"app": "x"}) for i in range(2)
    )
    here = make_world(
        Case(
            nodes=tuple(node(f"n{i}") for i in range(3)),
            pending_pods=pods,
            things=(PROVISIONED, waits("data", storage_class="made")),
        )
    )
    assert placed(here, *pods) == ["n0", None]


def test_pods_that_share_a_bound_volume_claim_without_limits_have_no_inter_pod_constraints() -> None:
    """A data set that a thousand members mount must not make them go one by one."""
    new = pod("new", gang="g", volume_claims=("data",))
    volume = PersistentVolume("v", driver=DRIVER, handle="h")
    case = Case(nodes=(node("n1"),), pending_pods=(new,), things=(volume, VolumeClaim("default", "data", volume="v")))
    here = make_world(case)
    assert not Volumes().has_inter_pod_constraints(here.s, new)
    here.store.fold(Upsert(CsiNode("n1", limits=((DRIVER, 3),))))
    assert Volumes().has_inter_pod_constraints(here.s, new)


# -- spread ------------------------------------------------------------------------------------------------------------------------


def test_a_pod_more_weighs_more_where_there_are_more_domains() -> None:
    """Two hosts in zone a with one pod on n1: n2 shares its crowded zone only, n3 neither zone nor host."""
    spread = tuple(SpreadConstraint(1, key, False, selector_of(app="x")) for key in (ZONE, HOST))
    new = pod("new", gang="g", labels={"app": "x"}, spread=spread)
    nodes = (node("n1", labels={ZONE: "a"}), node("n2", labels={ZONE: "a"}), node("n3", labels={ZONE: "b"}))
    here = make_world(Case(nodes=nodes, placed=((pod("old", labels={"app": "x"}), "n1", Phase.BOUND),), pending_pods=(new,)))
    scores = SpreadConstraints().score_inter_pod(here.s, new, NodeRows(here.world.table)).tolist()
    # Zones weigh log(2 + 2), hosts log(3 + 2); the crowds are their sum, the first alone, and nothing.
    assert scores == pytest.approx([0.0, 1.609438 / (1.386294 + 1.609438), 1.0], abs=1e-6)


# -- facts that change -------------------------------------------------------------------------------------------------------------


def test_other_labels_on_a_running_pod_count_from_then_on() -> None:
    there = pod("there", labels={"app": "x"})
    new = pod("new", gang="g", anti_affinity=ANTI_AFFINITY)
    here = make_world(Case(nodes=(node("n1"),), pending_pods=(new,)))
    here.store.fold(Upsert(_running(there, version=1)))
    here.store.world(NOW)
    assert not fits_on(here.s, new, "n1", after_releases=False)
    here.store.fold(Upsert(_running(there, version=2, labels={"app": "y"})))
    here.store.world(NOW)
    assert fits_on(here.s, new, "n1", after_releases=False)
    assert_no_trace(here.world)


def _running(there: Pod, *, version: int, labels: dict[str, str] | None = None) -> Pod:
    return Pod(
        there.uid,
        there.namespace,
        there.name,
        there.signature,
        version=version,
        node="n1",
        status_phase=PodStatusPhase.RUNNING,
        labels=labels or there.labels,
    )


def test_other_labels_on_a_node_make_other_domains() -> None:
    there, new = pod("there", labels={"app": "x"}), pod("new", gang="g", affinity=AFFINITY)
    nodes = (node("n1", labels={ZONE: "a"}), node("n2", labels={ZONE: "b"}))
    here = make_world(Case(nodes=nodes, placed=((there, "n1", Phase.BOUND),), pending_pods=(new,)))
    assert not fits_on(here.s, new, "n2", after_releases=False)
    here.store.fold(Upsert(node("n2", labels={ZONE: "a"}, version=2)))
    here.store.world(NOW)
    assert fits_on(here.s, new, "n2", after_releases=False)
    assert_no_trace(here.world)


def test_other_labels_on_a_namespace_make_other_terms() -> None:
    there = pod("there", namespace="blue", labels={"app": "x"})
    team = LabelSelector(selector_of(team="a").requirements)
    new = pod("new", gang="g", anti_affinity=PodAffinity((PodTerm(HOST, selector_of(app="x"), namespace_selector=team),)))
    here = make_world(Case(nodes=(node("n1"),), placed=((there, "n1", Phase.BOUND),), pending_pods=(new,)))
    assert fits_on(here.s, new, "n1", after_releases=False)
    here.store.fold(Upsert(Namespace("blue", 1, {"team": "a"})))
    assert not fits_on(here.s, new, "n1", after_releases=False)
    here.store.fold(Delete("Namespace", "blue", 2))
    assert fits_on(here.s, new, "n1", after_releases=False)


def test_a_deleted_pod_is_counted_no_more() -> None:
    there, new = pod("there", labels={"app": "x"}, anti_affinity=ANTI_AFFINITY), pod("new", gang="g", labels={"app": "x"})
    here = make_world(Case(nodes=(node("n1"),), placed=((there, "n1", Phase.BOUND),), pending_pods=(new,)))
    assert not fits_on(here.s, new, "n1", after_releases=False)
    here.store.fold(Delete("Pod", "there"))
    assert fits_on(here.s, new, "n1", after_releases=False)
    assert_no_trace(here.world)


def test_derived_values_are_recomputed_where_the_log_was_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    there, new = pod("there", labels={"app": "x"}), pod("new", gang="g", anti_affinity=ANTI_AFFINITY)
    here = make_world(Case(nodes=(node("n1"), node("n2")), placed=((there, "n1", Phase.BOUND),), pending_pods=(new,)))
    assert not fits_on(here.s, new, "n1", after_releases=False)
    monkeypatch.setattr(changes, "_LONGEST_LOG", 0)
    here.world.changes.trim()
    assert not fits_on(here.s, new, "n1", after_releases=False)
    assert fits_on(here.s, new, "n2", after_releases=False)
    assert_no_trace(here.world)


def test_topology_counts_that_were_dropped_are_recomputed_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_counts, "_MAX_COUNTS", 1)
    pods = tuple(pod(f"p{i}", gang="g", labels={"app": "x"}, anti_affinity=ANTI_AFFINITY, affinity=AFFINITY) for i in range(3))
    here = make_world(Case(nodes=tuple(node(f"n{i}", labels={ZONE: "a"}) for i in range(3)), pending_pods=pods))
    assert [placed(here, each) for each in pods] == [["n0"], ["n1"], ["n2"]]
    assert_no_trace(here.world)
