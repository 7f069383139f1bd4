"""The order of writes: what comes first, what waits for what, and that the simulator and the live writer keep the same order."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from tests.kube_write.store_client import StoreClient
from tests.sim.sim_manifests import Manifest, node, pod, pod_group

from muster.kube.read.decoder import Decoder
from muster.kube.read.object_references import POD, ApiObjectRef, pod_ref
from muster.kube.read.pod_index import PodIndex
from muster.kube.watch.api_resources import resource_of
from muster.kube.watch.reflector import UpdateType
from muster.kube.write import patch_bodies
from muster.kube.write.effect_writer import EffectWriter, WriteLimits
from muster.kube.write.patch_builder import StatusWrite
from muster.kube.write.write_cache import WriteCache
from muster.kube.write.write_order import WriteStep, order_writes, steps_of
from muster.model.effects import (
    Bind,
    CancelEviction,
    Condition,
    Effect,
    Evict,
    Nominate,
    PodGroupStatus,
    QueueStatus,
    Release,
    Reserve,
)
from muster.model.events import Event
from muster.model.pod import Pod
from muster.model.volume import VolumeChoice
from muster.sim.disruption_budgets import DisruptionBudgets
from muster.sim.executor import EffectExecutor, Write
from muster.sim.fault_injection import NO_FAULTS, BindFaultInjector
from muster.sim.object_store import ChangeType, ObjectStore
from muster.sim.virtual_clock import VirtualClock

MEMBERS = {"default/g": ["default/a", "default/b"]}
LIMITS = WriteLimits(events_per_s=0, stall_timeout_s=0.5)
SEEDS = range(60)


def gang_pods(gang_key: str) -> Sequence[ApiObjectRef]:
    return [pod_ref(name) for name in MEMBERS.get(gang_key.partition(":")[2] or gang_key, [])]


def nominate(uid: str, *, plan: str, victims: tuple[str, ...], gang: str = "default/g") -> Nominate:
    return Nominate(uid, f"default/{uid}", "n1", gang, "w", "preempt", 0.0, plan, 2, victims)


def evict(uid: str, *, for_gang: str = "default/g", method: str = "delete") -> Evict:
    return Evict(uid, f"default/{uid}", "n1", "default/v", for_gang, "w", "preempt", method)


BIND = Bind("a", "default/a", "n1", "default/a", "w")
RESERVE = Reserve("b", "default/b", "n1", "default/b", "w", "c")
RELEASE = Release("c", "default/c", "n1", "default/c", "w", "c")
CANCEL_EVICTION = CancelEviction("d", "default/d", "n1", "default/d", "w", "c")
STATUS = PodGroupStatus("volcano:default/g", "Running")


# --- The order ----------------------------------------------------------------------------------------------------------------


def test_a_batch_is_cancelled_evictions_then_releases_then_reservations_binds_and_evictions_then_status_updates() -> None:
    plan = nominate("x", plan="p", victims=("v",))
    batch = order_writes([STATUS, BIND, evict("v"), RESERVE, RELEASE, plan, CANCEL_EVICTION], gang_pods=gang_pods)
    assert [[one.effect for one in stage] for stage in batch.stages] == [
        [CANCEL_EVICTION],
        [RELEASE],
        [RESERVE, plan, BIND, evict("v")],
    ]
    assert batch.status_writes == (StatusWrite(ApiObjectRef("scheduling.volcano.sh", "PodGroup", "default", "g"), STATUS),)
    assert batch.size == 6


def test_an_eviction_waits_for_all_nominations_of_the_plans_that_name_its_victim() -> None:
    nominations = [
        nominate("x", plan="p", victims=("v", "w")),
        nominate("y", plan="p", victims=("v", "w")),
        nominate("z", plan="q", victims=("w",), gang="default/h"),
    ]
    (stage,) = order_writes([evict("v"), evict("w"), *nominations], gang_pods=gang_pods).stages
    assert [one.after for one in stage if isinstance(one.effect, Evict)] == [("x", "y"), ("x", "y", "z")]


def test_an_eviction_that_no_nomination_names_waits_for_those_of_its_gang_if_there_are_any() -> None:
    nominations = [nominate("x", plan="p", victims=())]
    (stage,) = order_writes([evict("v"), evict("w", for_gang="default/h"), *nominations], gang_pods=gang_pods).stages
    assert [one.after for one in stage if isinstance(one.effect, Evict)] == [(), ("x",)]


def test_volumes_are_written_before_the_binding_and_the_disruption_condition_before_a_deletion() -> None:
    with_volume = Bind("a", "default/a", "n1", "default/a", "w", volumes=(VolumeChoice("default/c", "pv"),))
    assert steps_of(with_volume) == (WriteStep.VOLUMES, *steps_of(BIND))
    assert steps_of(BIND) == (WriteStep.BINDING, WriteStep.CLEAR_RESERVATION)
    assert steps_of(evict("v")) == (WriteStep.DISRUPTION_CONDITION, WriteStep.DELETION)
    assert steps_of(evict("v", method="evict")) == (WriteStep.EVICTION,)
    assert steps_of(evict("v", method="soft")) == steps_of(RESERVE) == steps_of(RELEASE) == (WriteStep.PATCH,)


# --- Random effects on two equal clusters -------------------------------------------------------------------------------------


class Cluster:
    """Objects from a seed: pending, bound, reserved, labelled and terminating pods, a PodGroup, a queue, volumes and claims."""

    def __init__(self, seed: int) -> None:
        random = Random(f"objects {seed}")
        self.clock = VirtualClock()
        self.store = ObjectStore(self.clock)
        for manifest in (node("n1"), node("n2"), pod_group("g"), _queue("q")):
            self.store.create(manifest)
        self.pods = [f"p{i}" for i in range(random.randint(3, 14))]
        for name in self.pods:
            self._add_pod(name, random)
        self.index = PodIndex()
        self.sync_index()

    def _add_pod(self, name: str, random: Random) -> None:
        state = random.choice(("pending", "pending", "reserved", "bound", "labelled", "terminating"))
        at = "n1" if state in ("bound", "labelled", "terminating") else ""
        ref, manifest = pod_ref(f"default/{name}"), pod(name, at=at, gang=random.choice(("g", "")))
        self.store.create({**manifest, "status": {"phase": "Running" if at else "Pending"}})
        self.store.create(_claim(name))
        self.store.create(_volume(name))
        if state == "reserved":
            self.store.patch(ref, patch_bodies.reservation_patch(nominate(self.uid(name), plan="old", victims=())))
        elif state == "labelled":
            self.store.patch(ref, patch_bodies.soft_eviction_patch(evict(name, method="soft"), now=self.clock.now))
        elif state == "terminating":
            self.store.delete(ref)

    def uid(self, name: str) -> str:
        uid: str = self.store.get(pod_ref(f"default/{name}"))["metadata"]["uid"]
        return uid

    def sync_index(self) -> None:
        decoder = Decoder(("muster",))
        for ref, manifest in self.store.scan(POD):
            decoded = decoder.decode(manifest)
            assert isinstance(decoded, Pod)
            self.index.put(ref, decoded)

    def objects(self) -> dict[ApiObjectRef, Manifest]:
        kinds = (POD, ("", "PersistentVolume"), ("", "PersistentVolumeClaim"), ("scheduling.volcano.sh", "PodGroup"), _QUEUE_KIND)
        found = {ref: self.store.get(ref) for kind in kinds for ref, _ in self.store.scan(kind)}
        for manifest in found.values():
            del manifest["metadata"]["resourceVersion"]
            for condition in manifest.get("status", {}).get("conditions", ()):
                condition.pop("lastTransitionTime", None)
        return found


_QUEUE_KIND = ("scheduling.volcano.sh", "Queue")


def _queue(name: str) -> Manifest:
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": {}}


def _claim(pod: str) -> Manifest:
    metadata = {"name": f"claim-{pod}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {}, "status": {"phase": "Pending"}}


def _volume(pod: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"volume-{pod}"}, "spec": {}, "status": {}}


def random_effects(cluster: Cluster, seed: int, *, volumes: bool) -> list[Effect]:
    """Any effects on any pods, some of them of pods that are deleted by now; each pod has one effect of each stage at most."""
    random = Random(f"effects {seed}")
    pods = [(cluster.uid(name) if random.random() < 0.9 else f"gone-{name}", name) for name in cluster.pods]
    victims = [one for one in pods if random.random() < 0.4]
    effects: list[Effect] = [
        Evict(uid, f"default/{name}", "n1", "default/v", random.choice(("default/g", "default/h")), "w", "preempt", method)
        for uid, name in victims
        for method in [random.choice(("delete", "evict", "soft"))]
    ]
    for uid, name in pods:
        if random.random() < 0.3:
            effects.append(Release(uid, f"default/{name}", "n1", f"default/{name}", "w", "c", random.random() < 0.5))
        if random.random() < 0.3:
            effects.append(CancelEviction(uid, f"default/{name}", "n1", f"default/{name}", "w", "c"))
        if (uid, name) not in victims:
            effects += _placement(uid, name, random, victims=tuple(uid for uid, _ in victims), volumes=volumes)
    if random.random() < 0.7:
        effects.append(Condition("gang", "default/g", ok=False, code="InsufficientCapacity", why="w"))
    if random.random() < 0.5:
        effects += [PodGroupStatus("volcano:default/g", "Running", running=2), QueueStatus("queue/q", (("allocated.cpu", "4"),))]
    random.shuffle(effects)
    return effects


def _placement(uid: str, name: str, random: Random, *, victims: tuple[str, ...], volumes: bool) -> list[Effect]:
    full_name, node_name = f"default/{name}", random.choice(("n1", "n2", "n2", "absent"))
    kind = random.choice(("bind", "bind", "nominate", "reserve", "none"))
    if kind == "bind":
        volume = random.choice((f"volume-{name}", "")) if volumes else ""
        choices = (VolumeChoice(f"default/claim-{name}", volume),) if volumes and random.random() < 0.5 else ()
        return [Bind(uid, full_name, node_name, full_name, "w", volumes=choices)]
    if kind == "nominate":
        named = tuple(victim for victim in victims if random.random() < 0.5)
        plan = random.choice(("p", "q"))
        return [Nominate(uid, full_name, node_name, "default/g", "w", "preempt", 1.0, plan, 2, named)]
    return [Reserve(uid, full_name, node_name, "default/g", "w", "c", 1.0)] if kind == "reserve" else []


def simulated(cluster: Cluster, effects: list[Effect]) -> tuple[list[Write], list[Event]]:
    executor = EffectExecutor(
        cluster.store, cluster.clock, cluster.index, DisruptionBudgets(cluster.store), BindFaultInjector(NO_FAULTS, seed=0)
    )
    failed = executor.execute(effects, max_writes=None)
    return executor.writes, failed


def live(cluster: Cluster, effects: list[Effect], *, delays: Random | None = None) -> tuple[list[Write], list[Event]]:
    return asyncio.run(_live(cluster, effects, delays=delays))


async def _live(cluster: Cluster, effects: list[Effect], *, delays: Random | None) -> tuple[list[Write], list[Event]]:
    cache, failed = WriteCache(), list[Event]()

    def watch() -> None:
        for what, ref, manifest in cluster.store.drain():
            update_type = UpdateType.DELETE if what is ChangeType.DELETED else UpdateType.UPSERT
            cache.apply_watch(ref[:2], update_type, json.dumps(manifest).encode())

    watch()
    client = StoreClient(cluster.store, on_write=watch, delays=delays)
    writer = EffectWriter(
        client,
        cache,
        on_failure=failed.append,
        may_write=lambda: True,
        gang_pods=cluster.index.gang_pods,
        version_of=lambda kind: resource_of(*kind).versions[0],
        now=lambda: cluster.clock.now,
        limits=LIMITS,
    )
    running = asyncio.create_task(writer.run())
    writer.submit(effects)
    await asyncio.sleep(0)
    assert await writer.drain(timeout_s=30)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await writer.close()
    await client.close()
    return client.writes, failed


@pytest.mark.parametrize("seed", SEEDS)
def test_the_simulator_and_the_live_writer_write_the_same_in_the_same_order(seed: int) -> None:
    in_sim, on_server = Cluster(seed), Cluster(seed)
    effects = random_effects(in_sim, seed, volumes=False)
    expected, expected_failures = simulated(in_sim, effects)
    found, failures = live(on_server, effects)
    assert found == expected
    assert Counter(map(repr, failures)) == Counter(map(repr, expected_failures))
    assert on_server.objects() == in_sim.objects()


@pytest.mark.parametrize("seed", SEEDS)
def test_however_long_writes_take_the_live_writer_keeps_the_stages_and_writes_nominations_before_evictions(seed: int) -> None:
    in_sim, on_server = Cluster(seed), Cluster(seed)
    effects = random_effects(in_sim, seed, volumes=True)
    expected, _ = simulated(in_sim, effects)
    found, _ = live(on_server, effects, delays=Random(seed))
    assert Counter(found) == Counter(expected)
    assert on_server.objects() == in_sim.objects()
    assert violations(effects, found, on_server) == []


def violations(effects: list[Effect], writes: list[Write], cluster: Cluster) -> list[str]:
    """Pairs of writes in the wrong order. A pod may have effects in two stages: only pods with one are compared."""
    batch = order_writes(effects, gang_pods=cluster.index.gang_pods)
    stages = [{one.effect.pod for one in stage} for stage in batch.stages]
    times = Counter(pod for stage in stages for pod in stage)
    place = {write.name: position for position, write in enumerate(writes) if write.kind == "Pod" and times[write.name] == 1}
    found = [
        f"{later} before {earlier}"
        for number, stage in enumerate(stages)
        for earlier in stage & place.keys()
        for later in set().union(*stages[number + 1 :]) & place.keys()
        if place[later] < place[earlier]
    ]
    name_of = {one.effect.uid: one.effect.pod for stage in batch.stages for one in stage}
    found += [
        f"{one.effect.pod} evicted before {name_of[uid]} is nominated"
        for stage in batch.stages
        for one in stage
        for uid in one.after
        if one.effect.pod in place and name_of[uid] in place and place[one.effect.pod] < place[name_of[uid]]
    ]
    return found
