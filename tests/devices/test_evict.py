"""Capacity on devices is made where it can be made, and nobody goes in vain."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.devices.device_worlds import GIB, device_lists, kind, pod_asks

from muster.config import load_policy
from muster.engine.cycle import run_cycle
from muster.engine.hooks import WHOLE_CLUSTER, Policy
from muster.engine.place import place
from muster.engine.session import Session
from muster.model.device import Device, DeviceApi, DeviceRequest
from muster.model.effects import Evict, Nominate
from muster.model.events import Upsert
from muster.model.gang import PodGroup
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Membership, Phase, Pod, PodStatusPhase
from muster.model.resource_amounts import CPU, PODS, Resources
from muster.state.store import Store
from muster.state.world import World

CAPACITY = Resources.of({CPU: 64_000, PODS: 110})


def policy(action: str) -> Policy:
    return load_policy(f"{{plugins: [priority, fit, devices, binpack, nominated], actions: [expire, allocate, {action}]}}")


@dataclass(frozen=True)
class Case:
    nodes: tuple[Node, ...]
    running: tuple[tuple[str, tuple[DeviceRequest, ...]], ...]
    wanted: tuple[DeviceRequest, ...]
    size: int


@st.composite
def cases(draw: st.DrawFn, *, size: int) -> Case:
    names = [f"n{i}" for i in range(draw(st.integers(1, 3)))]
    nodes = tuple(Node(name, version=1, allocatable=CAPACITY, devices=draw(device_lists)) for name in names)
    running = draw(st.lists(st.tuples(st.sampled_from(names), pod_asks().filter(bool)), max_size=8))
    return Case(nodes, tuple(running), draw(pod_asks().filter(bool)), draw(st.integers(1, size)))


def make_world(case: Case) -> tuple[World, list[Pod], list[Pod]]:
    """Who runs got its slots as Muster gives them, as far as there were any."""
    store = Store()
    for node in case.nodes:
        store.fold(Upsert(node))
    pods = [Pod(f"low{i}", "d", f"low{i}", kind(some), version=1, priority=1) for i, (_, some) in enumerate(case.running)]
    world, s = store.world(0.0), Session(store.world(0.0), policy("preempt"))
    placed: list[Pod] = []
    for pod, (name, _) in zip(pods, case.running, strict=True):
        slots = s.slots(pod, (name,), after_releases=False)
        if slots is not None and slots[0]:
            there = replace(pod, node=name, status_phase=PodStatusPhase.RUNNING, started=0.0)
            store.fold(Upsert(there))
            world = store.world(0.0)
            with s.trial("given", cause="Given") as trial:
                trial.restore(there, replace(world.placement(there), devices=slots[0]))
                trial.commit()
            placed.append(there)
    store.fold(Upsert(PodGroup(ApiFlavour.VOLCANO, "d", "g", version=1, created=50.0, min_member=case.size)))
    member = Membership(ApiFlavour.VOLCANO, "g") if case.size > 1 else None
    wanted = [
        Pod(f"hi{i}", "d", f"hi{i}", kind(case.wanted), created=50.0, version=1, priority=9, membership=member)
        for i in range(case.size)
    ]
    for pod in wanted:
        store.fold(Upsert(pod))
    world = store.world(100.0)
    world.placements.journal.clear()
    return world, placed, wanted


def fits_after_evicting(world: World, s: Session, gone: list[Pod], wanted: list[Pod]) -> bool:
    with s.trial("look", cause="Test") as trial:
        for pod in wanted:
            if world.placement(pod).node is not None:
                trial.release(pod)
        for pod in gone:
            if world.phase(pod) is Phase.BOUND:
                trial.evict(pod)
        return place(s, trial, wanted, domain=WHOLE_CLUSTER, phase=Phase.NOMINATED).count == len(wanted)


def assert_plan_is_right(case: Case, action: str) -> None:
    world, running, wanted = make_world(case)
    rules = policy(action)
    could = fits_after_evicting(world, Session(world, rules), running, wanted)
    outcome = run_cycle(world, rules)
    s = Session(world, rules)
    victims = [world.facts.pods[effect.uid] for effect in outcome.effects if isinstance(effect, Evict)]
    promised = [effect for effect in outcome.effects if isinstance(effect, Nominate)]
    if not victims:
        assert could == all(world.phase(pod) is Phase.BINDING for pod in wanted)
        return
    assert len(promised) == len(wanted)
    for pod in victims:
        with s.trial("look", cause="Test") as trial:
            trial.change_phase(pod, phase=Phase.BOUND)
            assert not fits_after_evicting(world, s, [], wanted), f"{pod.name} goes in vain"


@settings(max_examples=120, deadline=None)
@given(cases(size=1))
def test_one_pod_gets_its_slots_if_evictable_pods_block_it_and_no_eviction_is_wasted(case: Case) -> None:
    assert_plan_is_right(case, "preempt")


@settings(max_examples=120, deadline=None)
@given(cases(size=4))
def test_a_gang_gets_its_slots_if_evictable_pods_block_it_and_no_eviction_is_wasted(case: Case) -> None:
    assert_plan_is_right(case, "gang-preempt")


@pytest.mark.parametrize("action", ["preempt", "gang-preempt"])
def test_a_pod_that_requests_two_gpus_of_which_three_are_half_used_takes_two(action: str) -> None:
    node = Node("n0", version=1, allocatable=CAPACITY, devices=tuple(Device(index, memory=8 * GIB) for index in range(3)))
    half = (DeviceRequest(DeviceApi.VGPU, memory=5 * GIB),)
    case = Case((node,), (("n0", half),) * 3, (DeviceRequest(DeviceApi.VGPU, count=2, memory=8 * GIB),), 1)
    world, running, wanted = make_world(case)
    assert [world.placement(pod).devices[0].index for pod in running] == [0, 1, 2]
    outcome = run_cycle(world, policy(action))
    assert sum(isinstance(effect, Evict) for effect in outcome.effects) == 2
    stays = next(pod for pod in running if world.phase(pod) is Phase.BOUND)
    left = {0, 1, 2} - {slot.index for slot in world.placement(stays).devices}
    assert {slot.index for slot in world.placement(wanted[0]).devices} == left
