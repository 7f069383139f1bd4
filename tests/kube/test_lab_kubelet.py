"""The lab's kubelets on a real API server: nodes become ready, pods live and go, budgets are kept, lost pods are made anew."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.harness.settling_kubelets import SettlingKubelets

from muster.kube.watch.access import read_access
from muster.kube.watch.client import ApiError, Client

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
SOFT = "scheduling.koordinator.sh/soft-eviction"


class Time:
    """A time that the test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class KubeletFixture:
    """A client and the kubelets, and the time that they live in."""

    def __init__(self, client: Client, kubelets: SettlingKubelets, time: Time) -> None:
        self.client = client
        self.kubelets = kubelets
        self.time = time

    async def ask(self, method: str, path: str, *, body: object | None = None, content_type: str = "application/json") -> Any:
        return json.loads(await self.client.request(method, path, body=body, content_type=content_type, retry_throttled=False))

    async def advance(self, seconds: float) -> None:
        await self.kubelets.settle()
        self.time.now += seconds
        self.kubelets.wake()
        await self.kubelets.settle()

    async def run(self, name: str, *, node: str = "n1", cpu: str = "1", **behaviour: str) -> None:
        """A pod that is bound at once."""
        await self.ask("POST", PODS, body=pod(name, cpu=cpu, **behaviour))
        await self.bind(name, node=node)

    async def bind(self, name: str, *, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        await self.ask("POST", f"{PODS}/{name}/binding", body={"metadata": {"name": name}, "target": target})

    async def phase(self, name: str) -> str:
        status: dict[str, Any] = (await self.ask("GET", f"{PODS}/{name}"))["status"]
        return f"{status['phase']} {status['reason']}" if "reason" in status else str(status["phase"])

    async def phases(self) -> dict[str, str]:
        found = (await self.ask("GET", PODS))["items"]
        return {one["metadata"]["name"]: one["status"]["phase"] for one in found}

    async def evict(self, name: str) -> None:
        await self.ask("POST", f"{PODS}/{name}/eviction", body={"metadata": {"name": name, "namespace": "default"}})


def node(name: str, *, cpu: str = "4") -> dict[str, Any]:
    allocatable = {"cpu": cpu, "memory": "8Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": allocatable, "allocatable": allocatable},
    }


def pod(name: str, *, cpu: str = "1", **behaviour: str) -> dict[str, Any]:
    annotations = {f"sim.muster.dev/{key.replace('_', '-')}": value for key, value in behaviour.items()}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "a"}, "annotations": annotations},
        "spec": {"schedulerName": "nobody", "containers": [container]},
    }


def budget(*, least: int) -> dict[str, Any]:
    return {"metadata": {"name": "b"}, "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "a"}}}}


@asynccontextmanager
async def kubelet_fixture(
    kubeconfig: Path, *, nodes: int = 1, soft_eviction_cleanup: bool = False
) -> AsyncIterator[KubeletFixture]:
    client, time = Client(await read_access(kubeconfig)), Time()
    try:
        async with SettlingKubelets(client, now=time, soft_eviction_cleanup=soft_eviction_cleanup) as kubelets:
            await kubelets.register(node(f"n{i + 1}") for i in range(nodes))
            yield KubeletFixture(client, kubelets, time)
    finally:
        await client.close()


def run_async(
    kubeconfig: Path, steps: Callable[[KubeletFixture], Awaitable[None]], *, nodes: int = 1, soft_eviction_cleanup: bool = False
) -> None:
    async def bounded() -> None:
        async with kubelet_fixture(kubeconfig, nodes=nodes, soft_eviction_cleanup=soft_eviction_cleanup) as here:
            await steps(here)

    asyncio.run(bounded())


def test_a_registered_node_is_ready_and_bears_no_taint(kubeconfig: Path) -> None:
    async def steps(here: KubeletFixture) -> None:
        await here.kubelets.settle()
        found = await here.ask("GET", f"{NODES}/n1")
        assert "taints" not in found["spec"]
        assert [(one["type"], one["status"]) for one in found["status"]["conditions"]] == [("Ready", "True")]
        assert found["status"]["allocatable"]["pods"] == "110"

    run_async(kubeconfig, steps)


def test_a_node_that_somebody_else_made_is_taken_care_of_as_well(kubeconfig: Path) -> None:
    async def steps(here: KubeletFixture) -> None:
        await here.ask("POST", NODES, body={**node("other"), "spec": {"taints": [{"key": "own", "effect": "NoSchedule"}]}})
        await here.kubelets.settle()
        found = await here.ask("GET", f"{NODES}/other")
        assert [one["key"] for one in found["spec"]["taints"]] == ["own"]
        assert [(one["type"], one["status"]) for one in found["status"]["conditions"]] == [("Ready", "True")]

    run_async(kubeconfig, steps)


def test_a_bound_pod_starts_runs_for_its_time_and_ends(kubeconfig: Path) -> None:
    async def steps(here: KubeletFixture) -> None:
        await here.run("good", run_seconds="60")
        await here.run("bad", run_seconds="30", exit="failed")
        await here.run("slow", startup_seconds="45")
        await here.ask("POST", PODS, body=pod("unbound"))
        await here.advance(0.5)
        assert set((await here.phases()).values()) == {"Pending"}
        await here.advance(1)
        assert await here.phases() == {"good": "Running", "bad": "Running", "slow": "Pending", "unbound": "Pending"}
        await here.advance(31)
        assert await here.phases() == {"good": "Running", "bad": "Failed", "slow": "Pending", "unbound": "Pending"}
        await here.advance(30)
        assert await here.phases() == {"good": "Succeeded", "bad": "Failed", "slow": "Running", "unbound": "Pending"}

    run_async(kubeconfig, steps)


def test_a_deleted_pod_takes_its_grace_period_or_the_time_that_it_wants(kubeconfig: Path) -> None:
    async def steps(here: KubeletFixture) -> None:
        for name, behaviour in (
            ("polite", {}),
            ("quick", {"termination_seconds": "2"}),
            ("stuck", {"termination_seconds": "never"}),
        ):
            await here.run(name, **behaviour)
        await here.advance(2)
        for name in ("polite", "quick", "stuck"):
            await here.ask("DELETE", f"{PODS}/{name}")
        await here.advance(3)
        assert set(await here.phases()) == {"polite", "stuck"}
        await here.advance(30)
        assert set(await here.phases()) == {"stuck"}

    run_async(kubeconfig, steps)


def test_conditions_that_others_wrote_outlive_the_kubelets_own(kubeconfig: Path) -> None:
    async def steps(here: KubeletFixture) -> None:
        await here.run("a")
        # Written behind the kubelet's back, and not yet seen by it when it starts the pod.
        entry = {"type": "example.com/Mark", "status": "True"}
        here.time.now += 2
        here.kubelets.wake()
        await here.ask(
            "PATCH",
            f"{PODS}/a/status",
            body={"status": {"conditions": [entry]}},
            content_type="application/strategic-merge-patch+json",
        )
        await here.advance(2)
        status = (await here.ask("GET", f"{PODS}/a"))["status"]
        assert {one["type"] for one in status["conditions"]} >= {"example.com/Mark", "PodScheduled", "Ready"}
        assert status["phase"] == "Running"

    run_async(kubeconfig, steps)


def test_a_pod_that_does_not_fit_is_refused_with_the_numbers(kubeconfig: Path) -> None:
    async def steps(here: KubeletFixture) -> None:
        await here.run("first", cpu="3")
        await here.kubelets.settle()
        await here.run("second", cpu="2")
        await here.advance(2)
        assert await here.phase("first") == "Running"
        assert await here.phase("second") == "Failed OutOfcpu"

    run_async(kubeconfig, steps)


def test_a_budget_allows_as_many_disruptions_as_it_can_and_no_more(kubeconfig: Path) -> None:
    async def steps(here: KubeletFixture) -> None:
        for name in ("a", "b", "c"):
            await here.run(name, termination_seconds="5")
        await here.ask("POST", BUDGETS, body=budget(least=2))
        await here.advance(2)
        status = (await here.ask("GET", f"{BUDGETS}/b"))["status"]
        assert (status["disruptionsAllowed"], status["currentHealthy"], status["expectedPods"]) == (1, 3, 3)
        await here.evict("a")
        with pytest.raises(ApiError, match="violate the pod's disruption budget") as refused:
            await here.evict("b")
        assert refused.value.status == 429
        await here.advance(6)
        status = (await here.ask("GET", f"{BUDGETS}/b"))["status"]
        assert (status["disruptionsAllowed"], status["currentHealthy"], status.get("disruptedPods")) == (0, 2, None)
        await here.run("d")
        await here.advance(2)
        await here.evict("b")

    run_async(kubeconfig, steps)


def test_a_pod_with_a_controller_is_made_anew_when_it_is_lost_and_bears_no_marks(kubeconfig: Path) -> None:
    async def steps(here: KubeletFixture) -> None:
        await here.run("a", controller="recreate", recreate_after_seconds="10", recreate_limit="1", termination_seconds="0")
        await here.advance(2)
        before = await here.ask("GET", f"{PODS}/a")
        await here.ask("DELETE", f"{PODS}/a")
        await here.advance(5)
        assert await here.phases() == {}
        await here.advance(6)
        after = await here.ask("GET", f"{PODS}/a")
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert "nodeName" not in after["spec"]
        assert after["metadata"]["annotations"]["sim.muster.dev/recreations"] == "1"
        await here.ask("DELETE", f"{PODS}/a")
        await here.advance(60)
        assert await here.phases() == {}

    run_async(kubeconfig, steps)


def test_a_node_that_fails_loses_its_pods_after_a_while_and_may_return(kubeconfig: Path) -> None:
    async def steps(here: KubeletFixture) -> None:
        await here.run("a", node="n1", termination_seconds="0")
        await here.run("b", node="n2")
        await here.advance(2)
        here.kubelets.fail_node("n1")
        await here.advance(1)
        found = await here.ask("GET", f"{NODES}/n1")
        assert {one["effect"] for one in found["spec"]["taints"]} == {"NoSchedule", "NoExecute"}
        assert set(await here.phases()) == {"a", "b"}
        await here.advance(6)
        assert set(await here.phases()) == {"b"}
        here.kubelets.recover_node("n1")
        await here.kubelets.settle()
        assert "taints" not in (await here.ask("GET", f"{NODES}/n1"))["spec"]
        here.kubelets.fail_node("n2", gone=True)
        await here.advance(6)
        assert await here.phases() == {}
        here.kubelets.recover_node("n2")
        await here.advance(0)
        assert "taints" not in (await here.ask("GET", f"{NODES}/n2"))["spec"]

    run_async(kubeconfig, steps, nodes=2)


def test_a_volume_claim_for_which_a_scheduler_chose_a_node_gets_a_volume(kubeconfig: Path) -> None:
    async def steps(here: KubeletFixture) -> None:
        storage = {"metadata": {"name": "late"}, "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
        await here.ask("POST", "/apis/storage.k8s.io/v1/storageclasses", body=storage)
        wanted = {"accessModes": ["ReadWriteOnce"], "storageClassName": "late", "resources": {"requests": {"storage": "1Gi"}}}
        claims = "/api/v1/namespaces/default/persistentvolumeclaims"
        await here.ask("POST", claims, body={"metadata": {"name": "c"}, "spec": wanted})
        await here.kubelets.settle()
        assert (await here.ask("GET", f"{claims}/c"))["status"]["phase"] == "Pending"
        chosen = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}
        await here.ask("PATCH", f"{claims}/c", body=chosen, content_type="application/merge-patch+json")
        await here.kubelets.settle()
        found = await here.ask("GET", f"{claims}/c")
        assert found["status"]["phase"] == "Bound"
        volume = await here.ask("GET", f"/api/v1/persistentvolumes/{found['spec']['volumeName']}")
        assert volume["spec"]["claimRef"]["name"] == "c"

    run_async(kubeconfig, steps)


def test_behaviour_annotations_that_cannot_be_read_are_ignored_and_nothing_stops(kubeconfig: Path) -> None:
    async def steps(here: KubeletFixture) -> None:
        await here.run("odd", run_seconds="soon", no_such="setting")
        await here.run("plain")
        await here.advance(2)
        assert await here.phases() == {"odd": "Running", "plain": "Running"}

    run_async(kubeconfig, steps)


def test_nodes_keep_a_lease_that_is_renewed(kubeconfig: Path) -> None:
    async def steps() -> None:
        client = Client(await read_access(kubeconfig))
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
        try:
            async with SettlingKubelets(client, heartbeat_s=0.2) as kubelets, asyncio.timeout(120):
                await kubelets.register([node("n1")])
                seen = set[str]()
                while len(seen) < 3:
                    await asyncio.sleep(0.05)
                    with suppress(ApiError):
                        seen.add(json.loads(await client.request("GET", lease))["spec"]["renewTime"])
        finally:
            await client.close()

    asyncio.run(steps())


def test_the_cleaner_is_a_program_of_its_own_that_deletes_what_is_marked(kubeconfig: Path) -> None:
    async def steps(here: KubeletFixture) -> None:
        await here.run("marked", termination_seconds="0")
        await here.run("unmarked", termination_seconds="0", cleanup_after_seconds="600")
        await here.run("other")
        await here.advance(2)
        mark = {"metadata": {"labels": {SOFT: "true"}}}
        for name in ("marked", "unmarked"):
            await here.ask("PATCH", f"{PODS}/{name}", body=mark, content_type="application/merge-patch+json")
        async with asyncio.timeout(120):
            while "marked" in await here.phases():
                await asyncio.sleep(0.05)
        assert set(await here.phases()) == {"unmarked", "other"}

    command = [sys.executable, "-m", "tests.harness.soft_eviction_cleaner", "--kubeconfig", str(kubeconfig), "--after", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cleaner:
        try:
            run_async(kubeconfig, steps)
        finally:
            cleaner.terminate()
        assert cleaner.stdout is not None
        assert cleaner.stdout.read() == "deleted default/marked\n"
    assert cleaner.returncode == 0


def test_marked_pods_that_say_when_are_cleaned_up_in_the_time_of_the_test(kubeconfig: Path) -> None:
    async def steps(here: KubeletFixture) -> None:
        await here.run("a", termination_seconds="0", cleanup_after_seconds="600")
        await here.advance(2)
        mark = {"metadata": {"labels": {SOFT: "true"}}}
        await here.ask("PATCH", f"{PODS}/a", body=mark, content_type="application/merge-patch+json")
        await here.advance(590)
        assert set(await here.phases()) == {"a"}
        await here.advance(20)
        assert await here.phases() == {}

    run_async(kubeconfig, steps, soft_eviction_cleanup=True)
