"""A claim that could not be written is no claim: it ends, with a reason, and nobody counts on it."""

from __future__ import annotations

from tests.lifecycle.test_binds import EACH, POLICY

from muster.engine.cycle import run_cycle
from muster.model.effects import Evict, Nominate, Release
from muster.model.events import ClaimFailed, EvictFailed, Seen
from muster.model.gang import Group
from muster.model.node import Node
from muster.model.pod import Dialect, Membership, Phase, Pod, Running
from muster.model.resources import CPU, PODS, Resources
from muster.state.store import Store


def a_gang_that_was_promised_a_node() -> tuple[Store, Nominate]:
    store = Store()
    store.fold(Seen(Node("n1", version=1, allocatable=Resources.of({CPU: 1000, PODS: 9}))))
    store.fold(Seen(Pod("low", "default", "low", EACH, version=1, priority=1, node="n1", running=Running.RUNNING)))
    store.fold(Seen(Group(Dialect.VOLCANO, "default", "g", version=1, min_member=1, priority=5)))
    store.fold(Seen(Pod("g-0", "default", "g-0", EACH, version=1, priority=5, membership=Membership(Dialect.VOLCANO, "g"))))
    outcome = run_cycle(store.world(1000.0), POLICY)
    (claim,) = (effect for effect in outcome.effects if isinstance(effect, Nominate))
    assert [effect.uid for effect in outcome.effects if isinstance(effect, Evict)] == ["low"]
    return store, claim


def test_a_claim_that_could_not_be_written_ends_and_its_victim_is_left_alone_for_a_while() -> None:
    store, claim = a_gang_that_was_promised_a_node()
    store.fold(ClaimFailed("g-0", "n1", claim.since, "403 Forbidden"))
    store.fold(EvictFailed("low", "its claim could not be written"))
    outcome = run_cycle(store.world(1001.0), POLICY)
    (release,) = (effect for effect in outcome.effects if isinstance(effect, Release))
    assert (release.pod, release.cause) == ("default/g-0", "ClaimLost")
    assert release.why == "it could not be written: 403 Forbidden"
    world = store.world(1001.0)
    assert "g-0" not in world.placements.by_uid
    assert not world.placements.claims
    assert world.placements.by_uid["low"].phase is Phase.BOUND
    # No budget is named that could change: time alone can, and not at once.
    for now in range(1002, 1300, 10):
        assert not run_cycle(store.world(float(now)), POLICY).effects
    later = run_cycle(store.world(1310.0), POLICY)
    assert [effect.uid for effect in later.effects if isinstance(effect, Evict)] == ["low"]


def test_a_failure_of_an_older_claim_does_not_end_a_newer_one() -> None:
    store, claim = a_gang_that_was_promised_a_node()
    store.fold(ClaimFailed("g-0", "n1", claim.since - 5.0, "timed out"))
    assert not run_cycle(store.world(1001.0), POLICY).effects
    assert store.world(1001.0).placements.by_uid["g-0"].phase is Phase.NOMINATED
