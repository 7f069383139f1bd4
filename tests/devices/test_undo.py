"""A simulation leaves every slot where it was: taken away, put back, placed, evicted, all of it undone."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.devices.worlds import GIB, Case, Given, Stands, cases, given_world, kind

from muster.engine.hooks import WHOLE_CLUSTER
from muster.engine.place import fits_on, place
from muster.model.devices import Device, DeviceAsk, DeviceDialect, Slot
from muster.model.node import Node
from muster.model.pod import Phase, Pod
from muster.model.resources import CPU, PODS, Resources
from muster.state.devices import Occupancy, occupancy
from muster.state.trial import Trial
from muster.state.world import World


def picture(world: World) -> tuple[object, ...]:
    """All that a simulation could disturb: who has which slots, and what is counted of that, kept up and counted anew."""
    fresh = Occupancy()
    fresh.follow(world)
    slots = {uid: (placement.phase, placement.node, placement.devices) for uid, placement in world.placements.by_uid.items()}
    return slots, occupancy(world).figures(), fresh.figures()


@settings(max_examples=100, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_after_any_rolled_back_simulation_every_slot_is_as_before(case: Case, chance: Random) -> None:
    here = given_world(case)
    before = picture(here.world)
    with here.s.trial("simulated", cause="Simulated") as trial:
        for _ in range(12):
            act(here, trial, chance)
            kept, fresh = picture(here.world)[1:]
            assert kept == fresh
    assert picture(here.world) == before


def act(here: Given, trial: Trial, chance: Random) -> None:
    pod = chance.choice([*here.stands, *here.wanted])
    now = here.world.placement(pod)
    if now.node is None:
        place(here.s, trial, [pod], domain=WHOLE_CLUSTER, phase=chance.choice([Phase.NOMINATED, Phase.HELD]))
        return
    match chance.randrange(4):
        case 0:
            trial.evict(pod)
        case 1:
            trial.release(pod)
        case 2:
            trial.release(pod)
            trial.restore(pod, now)
            assert here.world.placement(pod) == now
        case 3:
            mark = trial.mark()
            trial.release(pod)
            place(here.s, trial, [pod], domain=WHOLE_CLUSTER, phase=Phase.BINDING)
            trial.undo_to(mark)
            assert here.world.placement(pod) == now


# -- two GPUs of 8 GiB; A and B have 4 GiB each, C needs 8 -------------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    """How one dialect asks for half a device and for a whole one."""

    dialect: DeviceDialect
    half: DeviceAsk
    all: DeviceAsk


DIALECTS = [
    Words(
        DeviceDialect.VGPU,
        DeviceAsk(DeviceDialect.VGPU, memory=4 * GIB),
        DeviceAsk(DeviceDialect.VGPU, memory=8 * GIB),
    ),
    Words(
        DeviceDialect.GPU_SHARE,
        DeviceAsk(DeviceDialect.GPU_SHARE, memory=4 * GIB),
        DeviceAsk(DeviceDialect.GPU_SHARE, ratio=100, cores=100),
    ),
    Words(
        DeviceDialect.KOORDINATOR,
        DeviceAsk(DeviceDialect.KOORDINATOR, ratio=50, cores=50),
        DeviceAsk(DeviceDialect.KOORDINATOR, ratio=100, cores=100),
    ),
    Words(
        DeviceDialect.WHOLE,
        DeviceAsk(DeviceDialect.KOORDINATOR, ratio=50, cores=50),
        DeviceAsk(DeviceDialect.WHOLE, ratio=100, cores=100),
    ),
]


def two_gpus(words: Words) -> tuple[Given, Pod, Pod, Pod]:
    devices = tuple(Device(index, memory=8 * GIB, dialect=words.dialect) for index in range(2))
    node = Node("n1", version=1, allocatable=Resources.of({CPU: 64_000, PODS: 110}), devices=devices)
    stands = tuple(Stands((words.half,), "n1", Phase.BOUND, (Slot(index, 4 * GIB, words.half.cores),)) for index in range(2))
    here = given_world(Case((node,), stands, ((words.all,),), spread=False, phase=Phase.NOMINATED))
    a, b = here.stands
    return here, a, b, here.wanted[0]


@pytest.mark.parametrize("words", DIALECTS, ids=lambda words: words.dialect.value)
def test_a_goes_and_comes_back_to_its_own_gpu(words: Words) -> None:
    here, a, b, c = two_gpus(words)
    before = here.world.placement(a)
    assert [slot.index for slot in before.devices] == [0]
    with here.s.trial("simulated", cause="Simulated") as trial:
        assert not fits_on(here.s, c, "n1", soon=True)
        trial.evict(a)
        assert fits_on(here.s, c, "n1", soon=True)
        assert here.s.slots(c, ("n1",), soon=True) == [(Slot(0, 8 * GIB, words.all.cores),)]
        # Binpack would put A beside B, and C would still fit: then nobody would be found to evict.
        assert here.s.slots(a, ("n1",), soon=True) == [(Slot(1, 4 * GIB, words.half.cores),)]
        trial.restore(a, before)
        assert here.world.placement(a) == before
        assert not fits_on(here.s, c, "n1", soon=True)
    assert here.world.placement(a) == before
    assert [slot.index for slot in here.world.placement(b).devices] == [1]


def test_a_kind_tells_devices_apart_from_amounts() -> None:
    half = (DeviceAsk(DeviceDialect.VGPU, memory=4 * GIB),)
    assert kind(half) == kind(half)
    assert hash(kind(half)) == hash(kind(half))
    assert kind(half) != kind((DeviceAsk(DeviceDialect.VGPU, memory=8 * GIB),))
