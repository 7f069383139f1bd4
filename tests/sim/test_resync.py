"""However badly events travel: after a resync a scheduler knows exactly what one that starts anew would read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.sim.sim_manifests import Manifest, bind, evict, node, pod, pod_group
from tests.sim.store_dumps import differences, fresh_store, store_contents

from muster.model.events import Delete, Event, Upsert
from muster.model.gang import PodGroup
from muster.model.pod import Pod
from muster.sim.cluster import SimCluster
from muster.sim.fault_injection import MAX_DELAY_S, FaultRates
from muster.sim.virtual_clock import VIRTUAL_START
from muster.state.store import Store

PODS = [f"{gang}-{i}" for gang in ("v", "k", "x", "single") for i in range(2)]
NODES = ["n1", "n2", "n3"]
SHARES = st.sampled_from([0.0, 0.2, 0.7])
GROUPS = st.sampled_from([None, '["default/x", "default/k"]', '["default/k", "default/x", "default/y"]'])
MEMBERS: dict[str, dict[str, Any]] = {
    "v": {"gang": "v"},
    "k": {"labels": {"pod-group.scheduling.sigs.k8s.io": "k"}},
    "x": {"annotations": {"gang.scheduling.koordinator.sh/name": "x", "gang.scheduling.koordinator.sh/min-available": "2"}},
    "single": {},
}


def member(name: str, **said: Any) -> Manifest:
    return pod(name, **MEMBERS[name.split("-")[0]], **said)


def queue(name: str, *, parent: str = "") -> Manifest:
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    return {**kind, "metadata": {"name": name}, "spec": {"parent": parent} if parent else {}}


class Readers(RuleBasedStateMachine):
    """One cluster, and a store that has followed its events from the beginning."""

    @initialize(seed=st.integers(0, 999), delayed=SHARES, dropped=SHARES, duplicated=SHARES, reordered=SHARES)
    def begin(self, seed: int, delayed: float, dropped: float, duplicated: float, reordered: float) -> None:
        self.cluster = SimCluster(
            faults=FaultRates(seed, delayed=delayed, dropped=dropped, duplicated=duplicated, reordered=reordered)
        )
        self.store = Store()
        for name in NODES[:2]:
            self.cluster.apply(node(name))

    @rule(name=st.sampled_from(PODS), cpu=st.sampled_from([1, 3]), run=st.sampled_from(["", "5"]), again=st.booleans())
    def submit(self, name: str, cpu: int, run: str, again: bool) -> None:
        behaviour = {**({"run_seconds": run} if run else {}), **({"controller": "recreate"} if again else {})}
        if self.cluster.get("Pod", "default", name) is None:
            self.cluster.apply(member(name, cpu=cpu, **behaviour))

    @rule(name=st.sampled_from(PODS), to=st.sampled_from(NODES))
    def bind(self, name: str, to: str) -> None:
        if self.cluster.get("Pod", "default", name) is not None:
            self.cluster.execute([bind(self.cluster, name, to=to)])

    @rule(name=st.sampled_from(PODS))
    def evict(self, name: str) -> None:
        if self.cluster.get("Pod", "default", name) is not None:
            self.cluster.execute([evict(self.cluster, name)])

    @rule(name=st.sampled_from(PODS), cpu=st.sampled_from(["1", "2"]))
    def resize(self, name: str, cpu: str) -> None:
        if self.cluster.get("Pod", "default", name) is not None:
            containers = [{"name": "c", "resources": {"requests": {"cpu": cpu, "example.com/x": cpu}}}]
            self.cluster.patch("Pod", "default", name, {"spec": {"containers": containers}})

    @rule(name=st.sampled_from(PODS), gang=st.sampled_from(["v", "w", None]))
    def move_to_another_gang(self, name: str, gang: str | None) -> None:
        if self.cluster.get("Pod", "default", name) is not None:
            patch = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": gang}}}
            self.cluster.patch("Pod", "default", name, patch)

    @rule(
        name=st.sampled_from(["v", "k", "w"]),
        least=st.integers(1, 3),
        queue=st.sampled_from(["", "q", "r"]),
        rank=st.sampled_from(["", "high"]),
    )
    def declare(self, name: str, least: int, queue: str, rank: str) -> None:
        group = pod_group(name, flavour="koordinator" if name == "k" else "volcano", min_member=least)
        self.cluster.apply({**group, "spec": {**group["spec"], "queue": queue, "priorityClassName": rank}})

    @rule(kind=st.sampled_from(["PodGroup", "Pod"]), name=st.sampled_from(["k", "x-0", "x-1"]), groups=GROUPS)
    def join(self, kind: str, name: str, groups: str | None) -> None:
        """A gang declares the group of gangs that it starts with, or no longer does."""
        if self.cluster.get(kind, "default", name) is not None:
            patch = {"metadata": {"annotations": {"gang.scheduling.koordinator.sh/groups": groups}}}
            self.cluster.patch(kind, "default", name, patch)

    @rule(value=st.sampled_from([None, 5, 9]))
    def rank(self, value: int | None) -> None:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
        if value is not None:
            self.cluster.apply({**kind, "value": value})
        elif self.cluster.get("PriorityClass", "", "high") is not None:
            self.cluster.delete("PriorityClass", "", "high")

    @rule(name=st.sampled_from(PODS), quota=st.sampled_from([None, "e", "f"]), safe=st.sampled_from([None, "false"]))
    def assign(self, name: str, quota: str | None, safe: str | None) -> None:
        if self.cluster.get("Pod", "default", name) is not None:
            prefix = "quota.scheduling.koordinator.sh"
            self.cluster.patch(
                "Pod", "default", name, {"metadata": {"labels": {f"{prefix}/name": quota, f"{prefix}/preemptible": safe}}}
            )

    @rule(namespace=st.sampled_from(["default", "other"]), parent=st.sampled_from([None, "f"]))
    def open_quota(self, namespace: str, parent: str | None) -> None:
        self.cluster.apply(
            {
                "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
                "kind": "ElasticQuota",
                "metadata": {
                    "name": "e" if parent else "f",
                    "namespace": namespace,
                    "labels": {"quota.scheduling.koordinator.sh/parent": parent} if parent else {},
                },
                "spec": {"max": {"cpu": "4"}},
            }
        )

    @rule(name=st.sampled_from(["e", "f"]), namespace=st.sampled_from(["default", "other"]))
    def close_quota(self, name: str, namespace: str) -> None:
        if self.cluster.get("ElasticQuota", namespace, name) is not None:
            self.cluster.delete("ElasticQuota", namespace, name)

    @rule(name=st.sampled_from(["v", "k", "w"]))
    def undeclare(self, name: str) -> None:
        if self.cluster.get("PodGroup", "default", name) is not None:
            self.cluster.delete("PodGroup", "default", name)

    @rule(name=st.sampled_from(["q", "r"]), parent=st.sampled_from(["", "q"]))
    def open_queue(self, name: str, parent: str) -> None:
        self.cluster.apply(queue(name, parent=parent if name == "r" else ""))

    @rule(name=st.sampled_from(["q", "r"]))
    def close_queue(self, name: str) -> None:
        if self.cluster.get("Queue", "", name) is not None:
            self.cluster.delete("Queue", "", name)

    @rule(name=st.sampled_from(NODES), gone=st.booleans())
    def fail_or_return(self, name: str, gone: bool) -> None:
        failed = self.cluster.get("Node", "", name)
        if failed is None:
            self.cluster.apply(node(name, cpu=4))
        elif failed["spec"].get("taints"):
            self.cluster.recover_node(name)
        else:
            self.cluster.fail_node(name, gone=gone)

    @rule(seconds=st.sampled_from([0.4, 3.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.cluster.advance(seconds)

    @rule()
    def read(self) -> None:
        for event in self.cluster.events():
            self.store.fold(event)

    @rule()
    def read_world(self) -> None:
        """A cycle looks at the world with whatever has arrived: that must not spoil what arrives later."""
        self.store.world(self.cluster.now)

    @rule()
    def resync(self) -> None:
        self.cluster.resync()
        self.read()
        reader = fresh_store(self.cluster.list_events())
        now = self.cluster.now
        assert differences(store_contents(self.store, now=now), store_contents(reader, now=now)) == {}

    @rule()
    def restart(self) -> None:
        self.store = fresh_store(self.cluster.relist())

    @invariant()
    def every_object_can_be_read(self) -> None:
        assert self.cluster.rejected == []

    def teardown(self) -> None:
        """What is still late arrives after the resync that overtook it, and brings nothing back."""
        if hasattr(self, "cluster"):
            self.resync()
            self.cluster.advance(MAX_DELAY_S)
            self.resync()


Readers.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestReaders = Readers.TestCase


def gangs_and_queues(groups: str | None = None) -> list[Event]:
    """Gangs of every kind, two of them in one GangGroup where `groups` says so, queues and a class."""
    cluster = SimCluster()
    patch = {"metadata": {"annotations": {"gang.scheduling.koordinator.sh/groups": groups}}}
    for name in NODES:
        cluster.apply(node(name))
    for i, name in enumerate(PODS):
        cluster.apply(member(name, at=NODES[0] if i % 3 == 0 else ""))
    for name in ("x-0", "x-1"):
        cluster.patch("Pod", "default", name, patch)
    for manifest in (pod_group("v"), pod_group("k", flavour="koordinator"), queue("q"), queue("r", parent="q")):
        cluster.apply(manifest)
    cluster.patch("PodGroup", "default", "k", patch)
    cluster.patch("PodGroup", "default", "v", {"spec": {"queue": "r", "priorityClassName": "high"}})
    cluster.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9})
    return cluster.list_events()


GANGS_AND_QUEUES = gangs_and_queues()
INDEX_SETS = st.sets(st.integers(0, len(GANGS_AND_QUEUES) - 1))


@settings(max_examples=150, deadline=None)
@given(order=st.permutations(range(len(GANGS_AND_QUEUES))), looks=INDEX_SETS)
def test_the_order_in_which_objects_arrive_does_not_matter(order: list[int], looks: set[int]) -> None:
    store = Store()
    for i in order:
        store.fold(GANGS_AND_QUEUES[i])
        if i in looks:
            store.world(0.0)
    assert differences(store_contents(store, now=0.0), store_contents(fresh_store(GANGS_AND_QUEUES), now=0.0)) == {}


def with_pod_groups(kept: set[int]) -> set[int]:
    """Pods whose PodGroup is deleted stay in the queue that it named: a PodGroup is there as long as its pods are."""
    groups = {
        event.obj.name: i
        for i, event in enumerate(GANGS_AND_QUEUES)
        if isinstance(event, Upsert) and isinstance(event.obj, PodGroup)
    }
    pods = {
        i: event.obj.name for i, event in enumerate(GANGS_AND_QUEUES) if isinstance(event, Upsert) and isinstance(event.obj, Pod)
    }
    gangs = {pods[i].partition("-")[0] for i in kept & pods.keys()}
    return kept | {groups[gang] for gang in gangs & groups.keys()}


@settings(max_examples=150, deadline=None)
@given(order=st.permutations(range(len(GANGS_AND_QUEUES))), kept=INDEX_SETS, looks=INDEX_SETS)
def test_deleted_objects_leave_no_trace(order: list[int], kept: set[int], looks: set[int]) -> None:
    kept = with_pod_groups(kept)
    store = fresh_store(GANGS_AND_QUEUES)
    store.world(0.0)
    for i in order:
        if i not in kept:
            store.fold(gone(GANGS_AND_QUEUES[i]))
        if i in looks:
            store.world(0.0)
    left = fresh_store(GANGS_AND_QUEUES[i] for i in sorted(kept))
    assert differences(store_contents(store, now=0.0), store_contents(left, now=0.0)) == {}


@pytest.mark.parametrize("first", ["PodGroup of k last", "k gone last"])
def test_a_gang_group_is_the_same_whoever_comes_or_goes_first(first: str) -> None:
    things = gangs_and_queues('["default/k", "default/x"]')
    group = next(event for event in things if isinstance(event, Upsert) and event.obj.name == "k")
    members = {e.obj.name: e for e in things if isinstance(e, Upsert) and isinstance(e.obj, Pod) and e.obj.name[0] in "kx"}
    if first == "k gone last":
        left = [members["x-0"]]
        batches: list[list[Event]] = [[group, *members.values()], [gone(group), gone(members["x-1"])], [gone(members["k-0"])]]
        batches.append([gone(members["k-1"])])
    else:
        left = [group, *members.values()]
        batches = [list(members.values()), [group]]
    store = Store()
    for cycle in batches:
        for event in cycle:
            store.fold(event)
        store.world(0.0)
    assert store.world(0.0).facts.gangs == fresh_store(left).world(0.0).facts.gangs


def gone(event: Event) -> Delete:
    assert isinstance(event, Upsert)
    thing = event.obj
    key = thing.uid if isinstance(thing, Pod) else getattr(thing, "key", "") or thing.name
    return Delete(type(thing).__name__, key, thing.version + 1000)


def test_a_deleted_pod_stays_deleted_when_a_late_event_arrives() -> None:
    cluster, store = SimCluster(faults=FaultRates(delayed=0.5)), Store()
    for name in PODS:
        cluster.apply(member(name))
    for name in PODS:
        cluster.delete("Pod", "default", name)
    cluster.resync()
    for _ in range(2):
        for event in cluster.events():
            store.fold(event)
        assert store.world(cluster.now).facts.pods == {}
        cluster.advance(MAX_DELAY_S)


def test_a_pod_has_been_on_its_node_since_it_started() -> None:
    cluster, store = SimCluster(), Store()
    cluster.apply(node())
    cluster.apply(pod())
    cluster.advance(10)
    cluster.execute([bind(cluster, "a")])
    for _ in range(2):
        for event in cluster.events():
            store.fold(event)
        cluster.advance(5)
    (placement,) = store.world(cluster.now).placements.by_uid.values()
    assert placement.since == VIRTUAL_START + 11


FAULTS = {
    "none": FaultRates(),
    "late": FaultRates(delayed=0.6),
    "lost": FaultRates(dropped=0.6),
    "doubled": FaultRates(duplicated=0.6),
    "reordered": FaultRates(reordered=0.6),
    "all": FaultRates(delayed=0.3, dropped=0.3, duplicated=0.3, reordered=0.5, bind_failures=0.3),
}


def started_anew(store: Store, events: list[Event]) -> Store:
    """A store that reads what there is now, and the History that the other one would have written of members that succeeded."""
    anew = Store()
    for _, saved in store.world(0.0).facts.succeeded.saved():
        anew.world(0.0).facts.succeeded.recover(saved)
    for event in events:
        anew.fold(event)
    return anew


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS.keys())
def test_a_busy_day_is_known_in_full_after_a_resync(faults: FaultRates, seed: int) -> None:
    cluster, store = SimCluster(faults=replace(faults, seed=seed)), Store()
    for name in NODES:
        cluster.apply(node(name))
    for name in PODS:
        cluster.apply(member(name, run_seconds=25, controller="recreate"))
    for cycle in range(12):
        for event in cluster.events():
            store.fold(event)
        store.world(cluster.now)
        waiting = [found["metadata"]["name"] for found in cluster.listed("Pod") if "nodeName" not in found["spec"]]
        cluster.execute([bind(cluster, name, to=NODES[(cycle + i) % 3]) for i, name in enumerate(waiting)])
        if cycle == 4:
            cluster.fail_node("n2", gone=True)
        if cycle == 7:
            cluster.recover_node("n2")
            cluster.execute([evict(cluster, "v-1"), evict(cluster, "single-0")])
        cluster.advance(6)
    cluster.resync()
    for event in cluster.events():
        store.fold(event)
    now = cluster.now
    assert differences(store_contents(store, now=now), store_contents(started_anew(store, cluster.relist()), now=now)) == {}


def test_a_minimum_that_is_only_remembered_is_forgotten_with_the_last_pod_of_its_gang() -> None:
    things = {event.obj.name: event for event in GANGS_AND_QUEUES if isinstance(event, Upsert)}
    store = fresh_store(GANGS_AND_QUEUES)
    memory = store.world(0.0).memory
    store.fold(gone(things["v"]))
    store.fold(gone(things["v-1"]))
    (gang,) = (gang for gang in store.world(0.0).facts.gangs.values() if gang.full_name == "default/v")
    assert (gang.min, memory.with_last_minimums(gang).min) == (1, 2)
    store.fold(gone(things["v-0"]))
    assert store.world(0.0).memory.last_minimums.items() == []
    pod_before = things["v-0"].obj
    assert isinstance(pod_before, Pod)
    store.fold(Upsert(replace(pod_before, uid="another", version=5000)))
    (gang,) = (gang for gang in store.world(0.0).facts.gangs.values() if gang.full_name == "default/v")
    assert memory.with_last_minimums(gang).min == 1
