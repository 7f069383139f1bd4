"""A reservation that could not be written is none: it ends, with a reason, and nobody counts on it."""

from __future__ import annotations

from tests.lifecycle.test_binds import ONE_CPU, POLICY

from muster.engine.cycle import run_cycle
from muster.model.effects import Evict, Nominate, Release, SaveHistory
from muster.model.events import EvictFailed, ReservationFailed, Upsert
from muster.model.gang import PodGroup
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Membership, Phase, Pod, PodStatusPhase
from muster.model.resource_amounts import CPU, PODS, Resources
from muster.state.store import Store


def gang_nominated_to_a_node() -> tuple[Store, Nominate]:
    store = Store()
    store.fold(Upsert(Node("n1", version=1, allocatable=Resources.of({CPU: 1000, PODS: 9}))))
    store.fold(Upsert(Pod("low", "default", "low", ONE_CPU, version=1, priority=1, node="n1", status_phase=PodStatusPhase.RUNNING)))
    store.fold(Upsert(PodGroup(ApiFlavour.VOLCANO, "default", "g", version=1, min_member=1, priority=5)))
    store.fold(Upsert(Pod("g-0", "default", "g-0", ONE_CPU, version=1, priority=5, membership=Membership(ApiFlavour.VOLCANO, "g"))))
    outcome = run_cycle(store.world(1000.0), POLICY)
    (nomination,) = (effect for effect in outcome.effects if isinstance(effect, Nominate))
    assert [effect.uid for effect in outcome.effects if isinstance(effect, Evict)] == ["low"]
    return store, nomination


def test_a_nomination_that_could_not_be_written_ends_and_its_victim_is_not_evicted_for_a_while() -> None:
    store, nomination = gang_nominated_to_a_node()
    store.fold(ReservationFailed("g-0", "n1", nomination.since, "403 Forbidden"))
    store.fold(EvictFailed("low", "its nomination could not be written"))
    outcome = run_cycle(store.world(1001.0), POLICY)
    (release,) = (effect for effect in outcome.effects if isinstance(effect, Release))
    assert (release.pod, release.cause) == ("default/g-0", "ReservationLost")
    assert release.why == "it could not be written: 403 Forbidden"
    world = store.world(1001.0)
    assert "g-0" not in world.placements.by_uid
    assert not world.placements.reservations
    assert world.placements.by_uid["low"].phase is Phase.BOUND
    # No budget is named that could change: time alone can, and not at once.
    for now in range(1002, 1300, 10):
        effects = run_cycle(store.world(float(now)), POLICY).effects
        # The history says, a minute later, that nothing was lost.
        assert all(isinstance(effect, SaveHistory) and now >= 1060 for effect in effects)
    later = run_cycle(store.world(1310.0), POLICY)
    assert [effect.uid for effect in later.effects if isinstance(effect, Evict)] == ["low"]


def test_a_failure_of_an_older_nomination_does_not_end_a_newer_one() -> None:
    store, nomination = gang_nominated_to_a_node()
    store.fold(ReservationFailed("g-0", "n1", nomination.since - 5.0, "timed out"))
    assert not run_cycle(store.world(1001.0), POLICY).effects
    assert store.world(1001.0).placements.by_uid["g-0"].phase is Phase.NOMINATED
