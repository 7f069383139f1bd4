"""A live cluster against a real API server: what is seen of it, what is written to it, and how it answers there."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.harness.scheduling_turn import step

from muster.config import default_policy
from muster.kube.live_cluster import LiveCluster
from muster.kube.read.api_resources import resource_of
from muster.kube.read.decoder import Decoder
from muster.kube.read.object_references import GroupKind
from muster.kube.watch.access import read_access
from muster.kube.watch.client import ApiError, Client
from muster.kube.write.effect_writer import WriteLimits
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
from muster.model.events import BindFailed, Delete, Event, EvictFailed, Upsert
from muster.model.pod import Pod
from muster.model.volume import VolumeChoice
from muster.scheduler import Scheduler

Manifest = dict[str, Any]
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
PACE = WriteLimits(events_per_s=200, stall_timeout_s=0.2, volume_wait_s=3.0)


@dataclass
class LiveFixture:
    client: Client
    cluster: LiveCluster
    seen: list[Event] = field(default_factory=list)

    # -- what a user does ------------------------------------------------------------------------------------------------------

    async def make(self, path: str, manifest: Manifest) -> Manifest:
        made: Manifest = json.loads(await self.client.request("POST", path, body=manifest))
        return made

    async def node(self, name: str) -> None:
        await self.make("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})

    async def pod(self, name: str, *, at: str = "", grace_s: int = 30, **metadata: Any) -> str:
        spec: Manifest = {
            "schedulerName": "muster",
            "terminationGracePeriodSeconds": grace_s,
            "containers": [{"name": "c", "image": "none"}],
        }
        if at:
            spec["nodeName"] = at
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}
        made = await self.make("/api/v1/namespaces/default/pods", manifest)
        uid: str = made["metadata"]["uid"]
        return uid

    async def get(self, kind: GroupKind, name: str, *, namespace: str = "default") -> Manifest:
        resource = resource_of(*kind)
        path = resource.path(resource.versions[-1], namespace=namespace if resource.namespaced else "", name=name)
        found: Manifest = json.loads(await self.client.request("GET", path))
        return found

    async def get_pod(self, name: str) -> Manifest:
        return await self.get(("", "Pod"), name)

    async def patch(self, path: str, patch: Manifest, *, content_type: str = MERGE) -> None:
        await self.client.request("PATCH", path, body=patch, content_type=content_type)

    # -- what the scheduler sees and does --------------------------------------------------------------------------------------

    async def until(self, wanted: Callable[[Event], bool]) -> Event:
        """The first such event, when it has come."""
        deadline = time.monotonic() + 20
        while (found := next(filter(wanted, self.seen), None)) is None:
            assert time.monotonic() < deadline, f"not seen among {self.seen}"
            await asyncio.to_thread(self.cluster.wait, 0.2)
            self.seen += self.cluster.events()
        return found

    async def wait_for_pods(self, *pods: str, where: Callable[[Pod], bool] = lambda _: True) -> Pod:
        """The last of these pods, when all have been seen so."""

        def is_so(event: Event, name: str) -> bool:
            return isinstance(event, Upsert) and isinstance(event.obj, Pod) and event.obj.name == name and where(event.obj)

        found = [await self.until(partial(is_so, name=name)) for name in pods][-1]
        assert isinstance(found, Upsert)
        assert isinstance(found.obj, Pod)
        return found.obj

    async def execute(self, *effects: Effect) -> list[BindFailed | EvictFailed]:
        """What failed."""
        self.cluster.execute(effects)
        await asyncio.sleep(0)
        assert await self.cluster.drain(timeout_s=30)
        events = self.cluster.events()
        self.seen += events
        return [event for event in events if isinstance(event, BindFailed | EvictFailed)]


@asynccontextmanager
async def live_fixture(servers: Servers) -> AsyncIterator[LiveFixture]:
    client = Client(await read_access(servers.kubeconfig()))
    cluster = LiveCluster(client, may_write=lambda: True, limits=PACE)
    running = asyncio.create_task(cluster.run())
    try:
        while not cluster.synced:
            assert not running.done()
            await asyncio.sleep(0.02)
        here = LiveFixture(client, cluster)
        for name in ("n1", "n2"):
            await here.node(name)
        await here.until(lambda event: isinstance(event, Upsert) and getattr(event.obj, "name", "") == "n2")
        yield here
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()


def run_async(servers: Servers, steps: Callable[[LiveFixture], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(100), live_fixture(servers) as here:
            await steps(here)

    asyncio.run(bounded())


def bind(uid: str, name: str, node: str, **more: Any) -> Bind:
    return Bind(uid, f"default/{name}", node, f"default/{name}", "it fits", **more)


def nominate(uid: str, name: str, *, node: str = "n1") -> Nominate:
    return Nominate(uid, f"default/{name}", node, f"default/{name}", "capacity", "preempt", 12.5, "p", evicts=True)


def evict(uid: str, name: str, manner: str) -> Evict:
    return Evict(uid, f"default/{name}", "n1", f"default/{name}", "default/a", "a needs capacity", "preempt", manner)


def conditions(manifest: Manifest) -> dict[str, Manifest]:
    return {one["type"]: one for one in manifest.get("status", {}).get("conditions", [])}


# --- Pods ---------------------------------------------------------------------------------------------------------------------


def test_a_pod_is_seen_bound_and_seen_to_be_gone(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        uid = await here.pod("a")
        await here.wait_for_pods("a")
        assert await here.execute(bind(uid, "a", "n1")) == []
        bound = await here.get_pod("a")
        assert bound["spec"]["nodeName"] == "n1"
        assert conditions(bound)["PodScheduled"]["status"] == "True"
        await here.wait_for_pods("a", where=lambda pod: pod.node == "n1")
        await here.client.request("DELETE", "/api/v1/namespaces/default/pods/a", params={"gracePeriodSeconds": "0"})
        await here.until(lambda event: isinstance(event, Delete) and event.key == uid)

    run_async(servers, steps)


def test_an_object_on_which_decoding_fails_is_named_and_stops_nobody(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = Decoder.decode_as

    def decode_but_one(decoder: Decoder, kind: GroupKind, obj: Any) -> Any:
        if b'"name":"odd"' in bytes(obj):
            raise RecursionError
        return decode(decoder, kind, obj)

    monkeypatch.setattr(Decoder, "decode_as", decode_but_one)

    async def steps(here: LiveFixture) -> None:
        await here.pod("odd")
        await here.pod("a")
        await here.wait_for_pods("a")
        assert here.cluster.rejected == [("Pod", "default/odd", "cannot be decoded: RecursionError")]

    run_async(servers, steps)


def test_a_bind_that_is_asked_for_twice_is_done_once_and_another_node_is_refused(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        uid = await here.pod("a")
        await here.wait_for_pods("a")
        await here.execute(nominate(uid, "a"))
        # Somebody else binds it, and no watch has told us yet.
        target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n2"}}
        await here.make("/api/v1/namespaces/default/pods/a/binding", target)
        assert await here.execute(bind(uid, "a", "n2")) == []
        (failed,) = await here.execute(bind(uid, "a", "n1"))
        assert isinstance(failed, BindFailed)
        assert "is bound to n2 already" in failed.why
        assert "annotations" not in (await here.get_pod("a"))["metadata"]

    run_async(servers, steps)


def test_a_reservation_is_written_whole_in_one_patch_and_can_be_read_again(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        uid = await here.pod("a", annotations={"team": "x"})
        await here.wait_for_pods("a")
        before = int((await here.get_pod("a"))["metadata"]["resourceVersion"])
        assert await here.execute(nominate(uid, "a")) == []
        claimed = await here.get_pod("a")
        assert claimed["status"]["nominatedNodeName"] == "n1"
        assert claimed["metadata"]["annotations"]["volcano.sh/pipelined-node"] == "n1"
        assert claimed["metadata"]["annotations"]["team"] == "x"
        # One version further and no more: a crash finds all of it or nothing.
        assert len([one for one in claimed["metadata"]["managedFields"] if one.get("subresource") == "status"]) == 1
        assert int(claimed["metadata"]["resourceVersion"]) > before
        pod = await here.wait_for_pods("a", where=lambda pod: pod.nominated_node is not None)
        assert (pod.nominated_node, pod.pipelined_node) == ("n1", "n1")
        await here.execute(Reserve(uid, "default/a", "n2", "default/a", "the rest", "Waits", 13.0))
        assert (await here.get_pod("a"))["status"]["nominatedNodeName"] == "n2"
        await here.execute(Release(uid, "default/a", "n2", "default/a", "over", "TimedOut", timed_out=True))
        released = await here.get_pod("a")
        assert released["metadata"]["annotations"] == {"team": "x", "gang.scheduling.koordinator.sh/timeout": "true"}
        assert "nominatedNodeName" not in released["status"]

    run_async(servers, steps)


def test_a_reservation_survives_a_change_by_somebody_else_and_a_bind_ends_it(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        uid = await here.pod("a")
        await here.wait_for_pods("a")
        for i in range(3):
            await here.patch("/api/v1/namespaces/default/pods/a", {"metadata": {"labels": {"turn": str(i)}}})
            assert await here.execute(nominate(uid, "a", node=f"n{i}")) == []
        assert (await here.get_pod("a"))["metadata"]["annotations"]["volcano.sh/pipelined-node"] == "n2"
        assert await here.execute(bind(uid, "a", "n1")) == []
        bound = await here.get_pod("a")
        assert "annotations" not in bound["metadata"]
        assert "nominatedNodeName" not in bound["status"]

    run_async(servers, steps)


def test_a_pod_made_anew_under_the_same_name_is_another_one(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        old = await here.pod("a")
        await here.wait_for_pods("a")
        await here.client.request("DELETE", "/api/v1/namespaces/default/pods/a", params={"gracePeriodSeconds": "0"})
        new = await here.pod("a")
        # The mirror may still show the old one: the server itself must refuse.
        evictions = [evict(old, "a", manner) for manner in ("delete", "evict", "soft")]
        failed = [
            *await here.execute(nominate(old, "a")),
            *await here.execute(bind(old, "a", "n1")),
            *await here.execute(*evictions),
        ]
        assert [(type(one), one.uid) for one in failed] == [(BindFailed, old)]
        found = await here.get_pod("a")
        assert found["metadata"]["uid"] == new
        assert "nodeName" not in found["spec"]
        assert not {"annotations", "labels", "deletionTimestamp"} & found["metadata"].keys()

    run_async(servers, steps)


# --- Evictions ----------------------------------------------------------------------------------------------------------------


def test_a_budget_refuses_an_eviction_by_name(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        uid = await here.pod("v", at="n1", labels={"app": "db"})
        ready = {"type": "Ready", "status": "True"}
        await here.patch("/api/v1/namespaces/default/pods/v/status", {"status": {"phase": "Running", "conditions": [ready]}})
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "db"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
        }
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        await here.make(path, budget)
        status = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        await here.patch(f"{path}/db/status", {"status": status})
        await here.wait_for_pods("v", where=lambda pod: pod.status_phase.value == "Running")
        (failed,) = await here.execute(evict(uid, "v", "evict"))
        assert isinstance(failed, EvictFailed)
        assert failed.refused_by == "default/db"
        assert "needs 1 healthy pods and has 1" in failed.why
        await here.patch(f"{path}/db/status", {"status": {"disruptionsAllowed": 1}})
        assert await here.execute(evict(uid, "v", "evict")) == []
        assert (await here.get_pod("v"))["metadata"]["deletionTimestamp"]

    run_async(servers, steps)


def test_a_deleted_victim_knows_why_and_keeps_its_other_conditions(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        uid = await here.pod("v", at="n1")
        await here.wait_for_pods("v")
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        await here.patch("/api/v1/namespaces/default/pods/v/status", {"status": {"conditions": [ready]}}, content_type=STRATEGIC)
        assert await here.execute(evict(uid, "v", "delete")) == []
        found = await here.get_pod("v")
        assert found["metadata"]["deletionTimestamp"]
        said = conditions(found)
        assert said["Ready"]["status"] == "True"
        assert (said["DisruptionTarget"]["status"], said["DisruptionTarget"]["reason"]) == ("True", "PreemptionByScheduler")

    run_async(servers, steps)


@pytest.mark.parametrize("manner", ["evict", "delete"])
def test_a_victim_that_wants_a_year_to_terminate_gets_an_hour_even_if_it_was_deleted_before(servers: Servers, manner: str) -> None:
    year = 365 * 24 * 3600

    async def steps(here: LiveFixture) -> None:
        for name in ("a", "b"):
            uid = await here.pod(name, at="n1", grace_s=year)
            await here.wait_for_pods(name)
            if name == "b":
                await here.client.request("DELETE", f"/api/v1/namespaces/default/pods/{name}")
                await here.wait_for_pods(name, where=lambda pod: pod.version > 0 and pod.deleted_at is None)
            assert await here.execute(evict(uid, name, manner)) == []
            assert (await here.get_pod(name))["metadata"]["deletionGracePeriodSeconds"] == 3600
            await here.wait_for_pods(name, where=lambda pod: pod.deleted_at is not None)

    run_async(servers, steps)


def test_a_soft_eviction_is_written_and_cancelled(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        key = "scheduling.koordinator.sh/soft-eviction"
        uid = await here.pod("v", at="n1", labels={"app": "x"})
        await here.wait_for_pods("v")
        assert await here.execute(evict(uid, "v", "soft")) == []
        marked = (await here.get_pod("v"))["metadata"]
        assert marked["labels"] == {"app": "x", key: "true"}
        assert json.loads(marked["annotations"][key])["preemptJob"] == "default/a"
        await here.wait_for_pods("v", where=lambda pod: pod.eviction_marked_at is not None)
        await here.execute(CancelEviction(uid, "default/v", "n1", "default/v", "it may stay", "EvictionCancelled"))
        cancelled_evictions = (await here.get_pod("v"))["metadata"]
        assert cancelled_evictions["labels"] == {"app": "x"}
        assert "annotations" not in cancelled_evictions

    run_async(servers, steps)


# --- Volumes ------------------------------------------------------------------------------------------------------------------


async def make_volume(here: LiveFixture) -> None:
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "s",
            "hostPath": {"path": "/none"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "s", "resources": {"requests": {"storage": "1Gi"}}},
    }
    await here.make("/api/v1/persistentvolumes", volume)
    await here.make("/api/v1/namespaces/default/persistentvolumeclaims", claim)
    await here.until(lambda event: isinstance(event, Upsert) and type(event.obj).__name__ == "VolumeClaim")


async def play_controller(here: LiveFixture) -> None:
    """Binds the claim once its volume is kept for it."""
    while not (await here.get(("", "PersistentVolume"), "pv"))["spec"].get("claimRef"):
        await asyncio.sleep(0.02)
    path = "/api/v1/namespaces/default/persistentvolumeclaims/c"
    await here.patch(path, {"spec": {"volumeName": "pv"}})
    await here.patch(f"{path}/status", {"status": {"phase": "Bound"}})


def test_a_pod_is_bound_when_its_volumes_are(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        await make_volume(here)
        uid = await here.pod("a")
        await here.wait_for_pods("a")
        controller = asyncio.create_task(play_controller(here))
        assert await here.execute(bind(uid, "a", "n1", volumes=(VolumeChoice("default/c", "pv"),))) == []
        await controller
        assert (await here.get_pod("a"))["spec"]["nodeName"] == "n1"
        holder = (await here.get(("", "PersistentVolume"), "pv"))["spec"]["claimRef"]
        assert (holder["namespace"], holder["name"]) == ("default", "c")

    run_async(servers, steps)


def test_a_pod_whose_volume_never_comes_is_not_bound(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        await make_volume(here)
        uid = await here.pod("a")
        await here.wait_for_pods("a")
        (failed,) = await here.execute(bind(uid, "a", "n1", volumes=(VolumeChoice("default/c"),)))
        assert isinstance(failed, BindFailed)
        assert "no volume was bound to default/c within 3 s" in failed.why
        assert "nodeName" not in (await here.get_pod("a"))["spec"]
        claim = await here.get(("", "PersistentVolumeClaim"), "c")
        assert claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "n1"

    run_async(servers, steps)


# --- Words --------------------------------------------------------------------------------------------------------------------


def crd(group: str, kind: str, plural: str, version: str, *, status: bool) -> Manifest:
    entry: Manifest = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    if status:
        entry["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # These groups are the community's own, and guarded by the server.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural}, "versions": [entry]},
    }


@pytest.fixture
def custom_kinds(servers: Servers) -> Iterable[None]:
    async def prepare() -> None:
        client = Client(await read_access(servers.kubeconfig()))
        volcano = crd("scheduling.volcano.sh", "PodGroup", "podgroups", "v1beta1", status=True)
        quota = crd("scheduling.sigs.k8s.io", "ElasticQuota", "elasticquotas", "v1alpha1", status=False)
        for one in (volcano, quota):
            await client.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=one)
        for resource in (resource_of("scheduling.volcano.sh", "PodGroup"), resource_of("scheduling.sigs.k8s.io", "ElasticQuota")):
            await served(client, resource.path(resource.versions[0], namespace="default"))
        await client.close()

    asyncio.run(prepare())
    yield
    servers.reset(kinds=True)


async def served(client: Client, path: str) -> None:
    for _ in range(200):
        try:
            await client.request("GET", path)
            return
        except ApiError:
            await asyncio.sleep(0.05)
    raise AssertionError(f"{path} is not served")


@pytest.mark.usefixtures("custom_kinds")
def test_groups_quotas_and_members_get_their_status(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}}
        quota = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": {"name": "q"}}
        await here.make("/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups", {**group, "spec": {"minMember": 2}})
        await here.make("/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas", {**quota, "spec": {}})
        for name in ("a", "b"):
            await here.pod(name, annotations={"scheduling.k8s.io/group-name": "g"})
        await here.wait_for_pods("a", "b")
        await here.until(lambda event: isinstance(event, Upsert) and getattr(event.obj, "key", "") == "quota/default/q")
        await here.execute(
            Condition("gang", "default/g", ok=False, code="InsufficientCapacity", why="1/2 members placed"),
            PodGroupStatus("volcano:default/g", "Running", 2, 1),
            QueueStatus("quota/default/q", (("used.cpu", "1500m"),)),
        )
        for name in ("a", "b"):
            said = conditions(await here.get_pod(name))["PodScheduled"]
            assert (said["status"], said["reason"], said["message"]) == (
                "False",
                "Unschedulable",
                "1/2 members placed [InsufficientCapacity]",
            )
        shown = await here.get(("scheduling.volcano.sh", "PodGroup"), "g")
        assert (shown["status"]["phase"], shown["status"]["running"]) == ("Running", 1)
        assert conditions(shown)["Unschedulable"]["message"] == "1/2 members placed"
        assert (await here.get(("scheduling.sigs.k8s.io", "ElasticQuota"), "q"))["status"] == {"used": {"cpu": "1500m"}}

    run_async(servers, steps)


@pytest.mark.usefixtures("custom_kinds")
def test_a_condition_that_somebody_else_wrote_meanwhile_is_not_lost(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}}
        await here.make(path, {**group, "spec": {"minMember": 1}})
        await here.until(lambda event: isinstance(event, Upsert) and getattr(event.obj, "name", "") == "g")
        await here.patch(f"{path}/g/status", {"status": {"conditions": [{"type": "Paid", "status": "True"}]}})
        # No watch has told us of that yet, or hardly.
        await here.execute(Condition("gang", "volcano:default/g", ok=False, code="InsufficientCapacity", why="no capacity"))
        assert conditions(await here.get(("scheduling.volcano.sh", "PodGroup"), "g")).keys() == {"Paid", "Unschedulable"}

    run_async(servers, steps)


def test_a_native_group_gets_its_own_condition_while_it_waits(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        group = {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        }
        await here.make("/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups", group)
        await here.until(lambda event: isinstance(event, Upsert) and getattr(event.obj, "name", "") == "g")
        await here.execute(Condition("gang", "native:default/g", ok=False, code="InsufficientCapacity", why="no capacity"))
        said = conditions(await here.get(("scheduling.k8s.io", "PodGroup"), "g"))
        assert said["PodGroupInitiallyScheduled"]["status"] == "False"

    run_async(servers, steps)


def test_events_are_written_last_and_counted(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        uid = await here.pod("a")
        victim = await here.pod("v", at="n1")
        await here.wait_for_pods("a", "v")
        refused = Condition("gang", "default/a", ok=False, code="InsufficientCapacity", why="no capacity")
        await here.execute(refused)
        await here.execute(refused)
        await here.execute(nominate(uid, "a"), evict(victim, "v", "delete"))
        await here.execute(bind(uid, "a", "n1"))
        wanted = {"FailedScheduling": "a", "Nominated": "a", "Preempted": "v", "Preempting": "a", "Scheduled": "a"}
        found: dict[str, str] = {}
        for _ in range(100):
            listed = json.loads(await here.client.request("GET", "/api/v1/namespaces/default/events"))["items"]
            found = {one["reason"]: one["involvedObject"]["name"] for one in listed}
            if len(found) == len(wanted):
                break
            await asyncio.sleep(0.05)
        assert found == wanted

    run_async(servers, steps)


# --- The whole loop -----------------------------------------------------------------------------------------------------------


async def ready_node(here: LiveFixture, name: str, *, cpu: str) -> None:
    await here.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    await here.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": allocatable, "allocatable": allocatable}})


async def member(here: LiveFixture, name: str, *, cpu: str, priority: str = "", **annotations: str) -> str:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    spec: Manifest = {"schedulerName": "muster", "containers": [container]}
    if priority:
        spec["priorityClassName"] = priority
    metadata = {"name": name, "annotations": annotations}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    uid: str = (await here.make("/api/v1/namespaces/default/pods", manifest))["metadata"]["uid"]
    return uid


async def cycles(here: LiveFixture, scheduler: Scheduler, until: Callable[[], Awaitable[bool]]) -> None:
    """Turn the loop as a running scheduler does: in a thread of its own."""

    def turn() -> None:
        here.cluster.wait(0.2)
        step(scheduler, here.cluster, time.time())

    for _ in range(100):
        await asyncio.to_thread(turn)
        if await until():
            return
    raise AssertionError("it did not come to that")


def test_a_gang_is_bound_and_preempts_on_a_real_server(servers: Servers) -> None:
    async def steps(here: LiveFixture) -> None:
        scheduler = Scheduler(default_policy())
        scheduler.feed(here.seen)
        for name in ("n1", "n2"):
            await ready_node(here, name, cpu="2")
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
        await here.make("/apis/scheduling.k8s.io/v1/priorityclasses", high)
        gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
        for name in ("g-0", "g-1"):
            await member(here, name, cpu="2", **gang)

        async def all_bound() -> bool:
            return all([bool((await here.get_pod(name))["spec"].get("nodeName")) for name in ("g-0", "g-1")])

        await cycles(here, scheduler, all_bound)
        await member(here, "urgent", cpu="2", priority="high")

        async def is_nominated() -> bool:
            return "nominatedNodeName" in (await here.get_pod("urgent"))["status"] and bool(
                await pod_is_terminating(here, "g-0", "g-1")
            )

        await cycles(here, scheduler, is_nominated)
        # What a kubelet does once the containers have stopped.
        for name in await pod_is_terminating(here, "g-0", "g-1"):
            await here.client.request("DELETE", f"/api/v1/namespaces/default/pods/{name}", params={"gracePeriodSeconds": "0"})

        async def is_bound() -> bool:
            return bool((await here.get_pod("urgent"))["spec"].get("nodeName"))

        await cycles(here, scheduler, is_bound)
        assert await here.cluster.drain(timeout_s=30)
        assert "volcano.sh/pipelined-node" not in (await here.get_pod("urgent"))["metadata"].get("annotations", {})

    run_async(servers, steps)


async def pod_is_terminating(here: LiveFixture, *pods: str) -> list[str]:
    return [name for name in pods if "deletionTimestamp" in (await here.get_pod(name))["metadata"]]


def test_nothing_is_decided_while_pods_may_not_be_read(servers: Servers) -> None:
    """Every node would look empty."""

    async def steps() -> None:
        client = Client(await read_access(servers.kubeconfig("stranger")))
        cluster = LiveCluster(client, may_write=lambda: True, limits=PACE)
        running = asyncio.create_task(cluster.run())
        try:
            async with asyncio.timeout(20):
                while not all(health.forbidden for health in cluster.health().values()):
                    await asyncio.sleep(0.02)
            assert not cluster.synced
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.close()

    asyncio.run(steps())
