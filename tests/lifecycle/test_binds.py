"""A bind that fails takes back that pod alone, and to the nomination that it came from (A10, P5)."""

from __future__ import annotations

from dataclasses import replace

from muster.config import default_policy
from muster.engine.cycle import run_cycle
from muster.model.effects import Bind, Nominate, Release
from muster.model.events import BindFailed, Delete, Upsert
from muster.model.gang import PodGroup
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Membership, Phase, Pod, PodSignature, PodStatusPhase
from muster.model.resource_amounts import CPU, PODS, Resources
from muster.state.store import Store

ONE_CPU = PodSignature(request=Resources.of({CPU: 1000, PODS: 1}))
POLICY = default_policy()


def gang_nominated_to_two_nodes() -> Store:
    store = Store()
    for name in ("n1", "n2"):
        store.fold(Upsert(Node(name, version=1, allocatable=Resources.of({CPU: 1000, PODS: 9}))))
        store.fold(
            Upsert(
                Pod(
                    f"low-{name}",
                    "default",
                    f"low-{name}",
                    ONE_CPU,
                    version=1,
                    priority=1,
                    node=name,
                    status_phase=PodStatusPhase.RUNNING,
                )
            )
        )
    store.fold(Upsert(PodGroup(ApiFlavour.VOLCANO, "default", "g", version=1, min_member=2, priority=5)))
    for number in range(2):
        name, of_g = f"g-{number}", Membership(ApiFlavour.VOLCANO, "g")
        store.fold(Upsert(Pod(name, "default", name, ONE_CPU, version=1, priority=5, membership=of_g)))
    outcome = run_cycle(store.world(1000.0), POLICY)
    assert sum(isinstance(effect, Nominate) for effect in outcome.effects) == 2
    for name in ("n1", "n2"):
        store.fold(Delete("Pod", f"low-{name}"))
    return store


def test_a_failed_bind_returns_to_its_nomination_with_its_age_and_plan() -> None:
    store = gang_nominated_to_two_nodes()
    before = dict(store.world(1010.0).placements.by_uid)
    outcome = run_cycle(store.world(1010.0), POLICY)
    assert sum(isinstance(effect, Bind) for effect in outcome.effects) == 2
    store.fold(BindFailed("g-1", before["g-1"].node or "", "refused"))
    world = store.world(1011.0)
    assert world.placements.by_uid["g-1"] == before["g-1"]
    assert world.placements.by_uid["g-0"].phase is Phase.BINDING
    assert world.memory.plans[before["g-1"].plan].gang == "volcano:default/g"
    outcome = run_cycle(store.world(1011.0), POLICY)
    assert [(effect.pod, effect.node) for effect in outcome.effects if isinstance(effect, Bind)] == [
        ("default/g-1", before["g-1"].node)
    ]


def test_an_event_of_a_pod_on_its_way_does_not_lose_its_nomination() -> None:
    store = gang_nominated_to_two_nodes()
    before = dict(store.world(1010.0).placements.by_uid)
    run_cycle(store.world(1010.0), POLICY)
    store.fold(Upsert(replace(store.world(1010.0).facts.pods["g-1"], version=9, labels={"written": "meanwhile"})))
    store.fold(BindFailed("g-1", before["g-1"].node or "", "refused"))
    assert store.world(1011.0).placements.by_uid["g-1"] == before["g-1"]


def test_a_nomination_that_was_lost_meanwhile_ends_with_a_reason() -> None:
    store = gang_nominated_to_two_nodes()
    node = store.world(1010.0).placements.by_uid["g-1"].node or ""
    run_cycle(store.world(1010.0), POLICY)
    store.fold(BindFailed("g-1", node, "node is gone"))
    store.fold(Delete("Node", node))
    outcome = run_cycle(store.world(1011.0), POLICY)
    (release,) = (effect for effect in outcome.effects if isinstance(effect, Release))
    assert (release.pod, release.node, release.cause) == ("default/g-1", node, "ReservationLost")
    assert "g-1" not in store.world(1011.0).placements.by_uid


def test_a_failure_that_comes_late_changes_nothing() -> None:
    store = gang_nominated_to_two_nodes()
    node = store.world(1010.0).placements.by_uid["g-1"].node or ""
    run_cycle(store.world(1010.0), POLICY)
    bound = replace(store.world(1010.0).facts.pods["g-1"], version=9, node=node)
    store.fold(Upsert(bound))
    store.fold(BindFailed("g-1", node, "timed out, but it got through"))
    assert store.world(1011.0).placements.by_uid["g-1"].phase is Phase.BOUND
    assert not store.world(1011.0).memory.binding_reservations.get("g-1")


def test_a_pod_that_had_no_nomination_is_pending_again() -> None:
    store = Store()
    store.fold(Upsert(Node("n1", version=1, allocatable=Resources.of({CPU: 1000, PODS: 9}))))
    store.fold(Upsert(Pod("p", "default", "p", ONE_CPU, version=1)))
    run_cycle(store.world(0.0), POLICY)
    store.fold(BindFailed("p", "n1", "refused"))
    assert "p" not in store.world(1.0).placements.by_uid
