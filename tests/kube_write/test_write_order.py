"""The order of writes: what comes first, what waits for what, and that the simulator and the live writer keep the same order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pytest
from tests.kube_write.store_client import StoreClient
from tests.kube_write.watch_updates import watch_update
from tests.sim.sim_manifests import Manifest, node, pod, pod_group

from muster.kube.read.api_resources import resource_of
from muster.kube.read.decoder import Decoder
from muster.kube.read.object_references import POD, ApiObjectRef, pod_ref
from muster.kube.read.pod_index import PodIndex
from muster.kube.watch.object_tracker import UpdateType
from muster.kube.write import patch_bodies
from muster.kube.write.effect_writer import EffectWriter, WriteLimits
from muster.kube.write.effect_writes import EffectWrites, WrittenEffect
from muster.kube.write.status_updates import StatusWrite
from muster.kube.write.write_cache import WriteCache
from muster.kube.write.write_order import order_writes
from muster.model.effects import (
    Bind,
    CancelEviction,
    Condition,
    DeletePlan,
    Effect,
    Evict,
    Nominate,
    PodGroupStatus,
    QueueStatus,
    Release,
    Reserve,
    SaveHistory,
    SavePlan,
)
from muster.model.events import Event
from muster.model.pod import Phase, Pod
from muster.model.saved_state import Losses, SavedEvictions, SavedHistory, SavedMember, SavedPlan, saved_plan_name
from muster.model.volume import VolumeChoice
from muster.sim.disruption_budgets import DisruptionBudgets
from muster.sim.executor import EffectExecutor, Write
from muster.sim.fault_injection import NO_FAULTS, BindFaultInjector
from muster.sim.object_store import ChangeType, ObjectStore
from muster.sim.virtual_clock import VirtualClock

MEMBERS = {"default/g": ["default/a", "default/b"]}
LIMITS = WriteLimits(events_per_s=0, stall_timeout_s=0.5)
SEEDS = range(60)

WriteAll = Callable[["Cluster", list[Effect]], tuple[list[Write], list[Event]]]


def gang_pods(gang_key: str) -> Sequence[ApiObjectRef]:
    return [pod_ref(name) for name in MEMBERS.get(gang_key.partition(":")[2] or gang_key, [])]


def nominate(uid: str, *, plan: str = "p", gang: str = "default/g") -> Nominate:
    return Nominate(uid, f"default/{uid}", "n1", gang, "w", "preempt", 0.0, plan, evicts=True)


def save(gang: str, *, members: tuple[str, ...] = (), victims: tuple[str, ...] = ()) -> SavePlan:
    kept = tuple(SavedMember(uid, f"default/{uid}", "n1", Phase.NOMINATED, 0.0, "p") for uid in members)
    return SavePlan(SavedPlan(gang, kept, (SavedEvictions("p", "preempt", 0.0, victims),), name=saved_plan_name(gang)))


def evict(uid: str, *, for_gang: str = "default/g", method: str = "delete") -> Evict:
    return Evict(uid, f"default/{uid}", "n1", "default/v", for_gang, "w", "preempt", method)


BIND = Bind("a", "default/a", "n1", "default/a", "w")
RESERVE = Reserve("b", "default/b", "n1", "default/b", "w", "c")
RELEASE = Release("c", "default/c", "n1", "default/c", "w", "c")
CANCEL_EVICTION = CancelEviction("d", "default/d", "n1", "default/d", "w", "c")
STATUS = PodGroupStatus("volcano:default/g", "Running")
HISTORY = SaveHistory(SavedHistory("default", {"g": Losses("default", 1.0, 2.0)}))
ENDED = DeletePlan("volcano:default/e", saved_plan_name("volcano:default/e"))


# --- The order ----------------------------------------------------------------------------------------------------------------


def test_a_batch_is_plans_histories_cancelled_evictions_releases_reservations_binds_and_evictions_then_status_updates() -> None:
    nomination, plan = nominate("x"), save("volcano:default/g", members=("x",), victims=("v",))
    effects: list[Effect] = [STATUS, BIND, evict("v"), ENDED, RESERVE, RELEASE, nomination, plan, CANCEL_EVICTION, HISTORY]
    batch = order_writes(effects, gang_pods=gang_pods)
    assert [[one.effect for one in stage] for stage in batch.stages] == [
        [plan],
        [HISTORY],
        [CANCEL_EVICTION],
        [RELEASE],
        [RESERVE, nomination, BIND, evict("v"), ENDED],
    ]
    assert batch.status_writes == (StatusWrite(ApiObjectRef("scheduling.volcano.sh", "PodGroup", "default", "g"), STATUS),)
    assert batch.size == 9


def test_nominations_and_evictions_wait_for_the_plans_that_name_them() -> None:
    first = save("volcano:default/g", members=("x", "y"), victims=("v", "w"))
    second = save("volcano:default/h", members=("z",), victims=("w",))
    pods: list[Effect] = [evict("v"), evict("w"), evict("u"), nominate("x"), nominate("z", gang="default/h")]
    _, stage = order_writes([*pods, first, second], gang_pods=gang_pods).stages
    assert {one.effect.uid: one.plans for one in stage if isinstance(one.effect, Evict | Nominate)} == {
        "x": ("volcano:default/g",),
        "z": ("volcano:default/h",),
        "v": ("volcano:default/g",),
        "w": ("volcano:default/g", "volcano:default/h"),
        "u": (),
    }


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
            self.store.patch(ref, patch_bodies.reservation_patch(nominate(self.uid(name), plan="old")))
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
            effects += _placement(uid, name, random, volumes=volumes)
    if random.random() < 0.7:
        effects.append(Condition("gang", "default/g", ok=False, code="InsufficientCapacity", why="w"))
    if random.random() < 0.5:
        effects += [PodGroupStatus("volcano:default/g", "Running", running=2), QueueStatus("queue/q", (("allocated.cpu", "4"),))]
    effects += _saved(effects, victims=tuple(uid for uid, _ in victims), random=random)
    random.shuffle(effects)
    return effects


def _saved(effects: list[Effect], *, victims: tuple[str, ...], random: Random) -> list[Effect]:
    """Plans of what is kept, one of which may exist already; a History; and a Plan that has ended."""
    kept = [one for one in effects if isinstance(one, Nominate | Reserve)]
    members = tuple(SavedMember(one.uid, one.pod, one.node, Phase.NOMINATED, 1.0, "p") for one in kept)
    evictions = (SavedEvictions("p", "preempt", 1.0, victims),)
    found: list[Effect] = [
        SavePlan(SavedPlan(gang, members if at else members[:1], evictions, name=saved_plan_name(gang)))
        for at, gang in enumerate(("volcano:default/g", "volcano:default/h"))
        if random.random() < 0.7
    ]
    found += [HISTORY] if random.random() < 0.5 else []
    return [*found, ENDED] if random.random() < 0.5 else found


def _placement(uid: str, name: str, random: Random, *, volumes: bool) -> list[Effect]:
    full_name, node_name = f"default/{name}", random.choice(("n1", "n2", "n2", "absent"))
    kind = random.choice(("bind", "bind", "nominate", "reserve", "none"))
    if kind == "bind":
        volume = random.choice((f"volume-{name}", "")) if volumes else ""
        choices = (VolumeChoice(f"default/claim-{name}", volume),) if volumes and random.random() < 0.5 else ()
        return [Bind(uid, full_name, node_name, full_name, "w", volumes=choices)]
    if kind == "nominate":
        return [Nominate(uid, full_name, node_name, "default/g", "w", "preempt", 1.0, "p", evicts=random.random() < 0.5)]
    return [Reserve(uid, full_name, node_name, "default/g", "w", "c", 1.0)] if kind == "reserve" else []


def simulated(cluster: Cluster, effects: list[Effect]) -> tuple[list[Write], list[Event]]:
    executor = EffectExecutor(
        cluster.store, cluster.clock, cluster.index, DisruptionBudgets(cluster.store), BindFaultInjector(NO_FAULTS)
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
            cache.apply_watch(watch_update(ref[:2], dict(manifest), update_type))

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


@pytest.mark.parametrize("write_all", [simulated, live])
@pytest.mark.parametrize(
    ("method", "verbs"),
    [("delete", ["patch", "delete"]), ("evict", ["evict"]), ("soft", ["patch"])],
)
def test_a_victim_gets_its_disruption_condition_before_it_is_deleted(write_all: WriteAll, method: str, verbs: list[str]) -> None:
    cluster = Cluster(0)
    cluster.store.create({**pod("victim", at="n1"), "status": {"phase": "Running"}})
    effect = Evict(cluster.uid("victim"), "default/victim", "n1", "default/v", "default/h", "w", "preempt", method)
    writes, failed = write_all(cluster, [effect])
    assert ([one.verb for one in writes], failed) == (verbs, [])


@pytest.mark.parametrize("write_all", [simulated, live])
@pytest.mark.parametrize(("volume", "kind"), [("volume-late", "PersistentVolume"), ("", "PersistentVolumeClaim")])
def test_a_pod_gets_its_volume_then_its_node_and_then_loses_its_reservation(write_all: WriteAll, volume: str, kind: str) -> None:
    cluster = Cluster(0)
    for manifest in ({**pod("late"), "status": {"phase": "Pending"}}, _claim("late"), _volume("late")):
        cluster.store.create(manifest)
    uid, ref = cluster.uid("late"), pod_ref("default/late")
    cluster.store.patch(ref, patch_bodies.reservation_patch(nominate(uid, plan="old")))
    choice = VolumeChoice("default/claim-late", volume)
    writes, failed = write_all(cluster, [Bind(uid, "default/late", "n2", "default/late", "w", volumes=(choice,))])
    assert ([(one.verb, one.kind) for one in writes], failed) == ([("patch", kind), ("bind", "Pod"), ("patch", "Pod")], [])


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
def test_however_long_writes_take_the_live_writer_keeps_the_stages(seed: int) -> None:
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
    stages = [{_target(one.effect) for one in stage} for stage in batch.stages]
    times = Counter(target for stage in stages for target in stage)
    # An effect that finds nothing to do writes nothing, and the status of its object comes later.
    reported = {one.ref.full_name for one in batch.status_writes}
    place = {write.name: position for position, write in enumerate(writes) if times[write.name] == 1 and write.name not in reported}
    return [
        f"{later} before {earlier}"
        for number, stage in enumerate(stages)
        for earlier in stage & place.keys()
        for later in set().union(*stages[number + 1 :]) & place.keys()
        if place[later] < place[earlier]
    ]


def _target(effect: WrittenEffect) -> str:
    return EffectWrites(ObjectStore(VirtualClock()), now=lambda: 0.0, pending_status=lambda *_: None).target(effect).full_name
