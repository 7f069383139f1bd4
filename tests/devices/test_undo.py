"""A simulation leaves every slot where it was: taken away, put back, placed, evicted, all of it undone."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.devices.device_worlds import GIB, Case, MadeWorld, PlacedPod, cases, kind, make_world

from muster.engine.hooks import WHOLE_CLUSTER
from muster.engine.place import fits_on, place
from muster.model.device import Device, DeviceApi, DeviceRequest, DeviceSlot
from muster.model.node import Node
from muster.model.pod import Phase, Pod
from muster.model.resource_amounts import CPU, PODS, Resources
from muster.state.derived.device_usage import DeviceUsage, device_usage
from muster.state.trial import Trial
from muster.state.world import World


def device_state(world: World) -> tuple[object, ...]:
    """All that a simulation could disturb: who has which slots, and what is counted of that, kept up and counted anew."""
    fresh = DeviceUsage()
    fresh.follow(world)
    slots = {uid: (placement.phase, placement.node, placement.devices) for uid, placement in world.placements.by_uid.items()}
    return slots, device_usage(world).figures(), fresh.figures()


@settings(max_examples=100, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_after_any_rolled_back_simulation_every_slot_is_as_before(case: Case, chance: Random) -> None:
    here = make_world(case)
    before = device_state(here.world)
    with here.s.trial("simulated", cause="Simulated") as trial:
        for _ in range(12):
            act(here, trial, chance)
            kept, fresh = device_state(here.world)[1:]
            assert kept == fresh
    assert device_state(here.world) == before


def act(here: MadeWorld, trial: Trial, chance: Random) -> None:
    pod = chance.choice([*here.placed_pods, *here.wanted])
    now = here.world.placement(pod)
    if now.node is None:
        place(here.s, trial, [pod], domain=WHOLE_CLUSTER, phase=chance.choice([Phase.NOMINATED, Phase.RESERVED]))
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
class RequestFormat:
    """How one API asks for half a device and for a whole one."""

    api: DeviceApi
    half: DeviceRequest
    all: DeviceRequest


FLAVOURS = [
    RequestFormat(
        DeviceApi.VGPU,
        DeviceRequest(DeviceApi.VGPU, memory=4 * GIB),
        DeviceRequest(DeviceApi.VGPU, memory=8 * GIB),
    ),
    RequestFormat(
        DeviceApi.GPU_SHARE,
        DeviceRequest(DeviceApi.GPU_SHARE, memory=4 * GIB),
        DeviceRequest(DeviceApi.GPU_SHARE, ratio=100, cores=100),
    ),
    RequestFormat(
        DeviceApi.KOORDINATOR,
        DeviceRequest(DeviceApi.KOORDINATOR, ratio=50, cores=50),
        DeviceRequest(DeviceApi.KOORDINATOR, ratio=100, cores=100),
    ),
    RequestFormat(
        DeviceApi.WHOLE,
        DeviceRequest(DeviceApi.KOORDINATOR, ratio=50, cores=50),
        DeviceRequest(DeviceApi.WHOLE, ratio=100, cores=100),
    ),
]


def two_gpus(request_format: RequestFormat) -> tuple[MadeWorld, Pod, Pod, Pod]:
    devices = tuple(Device(index, memory=8 * GIB, api=request_format.api) for index in range(2))
    node = Node("n1", version=1, allocatable=Resources.of({CPU: 64_000, PODS: 110}), devices=devices)
    placed_pods = tuple(
        PlacedPod((request_format.half,), "n1", Phase.BOUND, (DeviceSlot(index, 4 * GIB, request_format.half.cores),))
        for index in range(2)
    )
    here = make_world(Case((node,), placed_pods, ((request_format.all,),), spread=False, phase=Phase.NOMINATED))
    a, b = here.placed_pods
    return here, a, b, here.wanted[0]


@pytest.mark.parametrize("request_format", FLAVOURS, ids=lambda request_format: request_format.api.value)
def test_a_pod_that_is_taken_off_and_restored_gets_its_own_gpu(request_format: RequestFormat) -> None:
    here, a, b, c = two_gpus(request_format)
    before = here.world.placement(a)
    assert [slot.index for slot in before.devices] == [0]
    with here.s.trial("simulated", cause="Simulated") as trial:
        assert not fits_on(here.s, c, "n1", after_releases=True)
        trial.evict(a)
        assert fits_on(here.s, c, "n1", after_releases=True)
        assert here.s.slots(c, ("n1",), after_releases=True) == [(DeviceSlot(0, 8 * GIB, request_format.all.cores),)]
        # Binpack would put A beside B, and C would still fit: then nobody would be found to evict.
        assert here.s.slots(a, ("n1",), after_releases=True) == [(DeviceSlot(1, 4 * GIB, request_format.half.cores),)]
        trial.restore(a, before)
        assert here.world.placement(a) == before
        assert not fits_on(here.s, c, "n1", after_releases=True)
    assert here.world.placement(a) == before
    assert [slot.index for slot in here.world.placement(b).devices] == [1]


def test_a_signature_distinguishes_devices_from_amounts() -> None:
    half = (DeviceRequest(DeviceApi.VGPU, memory=4 * GIB),)
    assert kind(half) == kind(half)
    assert hash(kind(half)) == hash(kind(half))
    assert kind(half) != kind((DeviceRequest(DeviceApi.VGPU, memory=8 * GIB),))
