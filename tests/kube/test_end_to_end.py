"""What breaks gang schedulers, run on a real API server with `muster run` as a process: a budget that refuses, crashes in
the middle of a plan, another scheduler on the same nodes, a leader that is cut off."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.api_user import ApiUser
from tests.kube.fork_server import ForkServer
from tests.kube.live_backend import ProcessHarness, install_kinds, wait_until
from tests.kube.real_time_backend import RealTimeBackend
from tests.kube.recording_proxy import ProxiedRequest, RecordingProxy

from muster.kube.read import names

Manifest = dict[str, Any]

LEASE = ("--lease-duration", "5", "--renew-deadline", "3", "--retry-period", "0.4")
POLICY = {
    "plugins": ["priority", "fit", "binpack", "nominated"],
    "actions": ["expire", "enqueue", "allocate", "preempt", "gang-preempt"],
}
WITH_BUDGETS = {**POLICY, "plugins": [*POLICY["plugins"], "pdb"]}
GPU = "nvidia.com/gpu"
LEAVE_SECONDS = "sim.muster.dev/termination-seconds"


@pytest.fixture
def policy(tmp_path: Path) -> Callable[[Manifest], tuple[str, str]]:
    def written(what: Manifest) -> tuple[str, str]:
        file = tmp_path / "policy.yaml"
        file.write_text(json.dumps(what))
        return "--policy", str(file)

    return written


Policies = Callable[[Manifest], tuple[str, str]]


# --- 7: a budget refuses one of four victims --------------------------------------------------------------------------------------


def test_a_victim_that_its_budget_refuses_is_not_retried_and_the_gang_is_planned_anew(
    servers: Servers, fork_server: ForkServer, tmp_path: Path, policy: Policies
) -> None:
    with ProcessHarness(servers, fork_server, tmp_path) as harness:
        _nodes(harness, 5)
        harness.user.apply(_budget(most_gone=1))
        for number in range(1, 6):
            labels = {"app": "db"} if number == 3 else {}
            _running_pod(harness, f"low{number}", node=f"n{number}", priority=2 if number == 5 else 1, leave_s=0, labels=labels)

        async def before(proxied: ProxiedRequest) -> bool:
            """Its budget changes its mind when the nominations are written and two others have left."""
            if proxied.verb == "evict" and proxied.object == "default/low3":
                while len(await asyncio.to_thread(_pod_names, harness) & {"low1", "low2", "low4"}) > 1:
                    await asyncio.sleep(0.05)
                await asyncio.to_thread(harness.user.patch, "PodDisruptionBudget", "default", "keep", _budget(most_gone=0))
                while await asyncio.to_thread(_disruptions_allowed, harness.user):
                    await asyncio.sleep(0.05)
            return True

        harness.proxy.before = before
        harness.scheduler("only", "--no-leader-election", *policy(WITH_BUDGETS))
        _gang(harness, "hi", 4, priority=9)
        wait_until(lambda: len(harness.proxy.completed("bind")) == 4)
        assert [write.status for write in harness.proxy.writes if write.object == "default/low3"] == [429]
        assert set(_nodes_of(harness.user, "hi")) == {"n1", "n2", "n4", "n5"}
        assert _nodes_of(harness.user, "low3") == ["n3"]
        assert harness.proxy.count_by_object("evict") == {"low1": 1, "low2": 1, "low4": 1, "low5": 1}


# --- 8: crashes while a plan is carried out ---------------------------------------------------------------------------------------


class _AfterWrites:
    """The scheduler dies when so many writes that look like this are done."""

    def __init__(self, count: int, matches: Callable[[ProxiedRequest], bool]) -> None:
        self._left = count
        self._matches = matches

    def fires(self, proxied: ProxiedRequest, *, is_done: bool) -> bool:
        if is_done and self._matches(proxied):
            self._left -= 1
            return not self._left
        return False


def test_a_plan_that_is_saved_is_carried_out_once_though_only_two_of_four_nominations_are_written(
    servers: Servers, fork_server: ForkServer, tmp_path: Path, policy: Policies
) -> None:
    crash_trigger = _AfterWrites(2, _is_nomination)
    with RealTimeBackend(servers, fork_server, tmp_path, options=policy(POLICY), crash_trigger=crash_trigger) as backend:
        _four_to_preempt(backend)
        assert backend.starts == 2
        assert not [write for write in backend.proxy.writes if write.listener == "life-2" and _is_plan_of_four(write)]
        _is_carried_out_once(backend.proxy)


def test_a_plan_that_is_saved_is_carried_out_once_though_nothing_else_is_written(
    servers: Servers, fork_server: ForkServer, tmp_path: Path, policy: Policies
) -> None:
    crash_trigger = _AfterWrites(1, _is_plan_of_four)
    with RealTimeBackend(servers, fork_server, tmp_path, options=policy(POLICY), crash_trigger=crash_trigger) as backend:
        _four_to_preempt(backend)
        assert backend.starts == 2
        assert {write.listener for write in backend.proxy.writes if write.verb == "delete"} == {"life-2"}
        # The plan is taken over as it is.
        assert not [write for write in backend.proxy.writes if write.listener == "life-2" and _is_plan_of_four(write)]
        _is_carried_out_once(backend.proxy)


def test_of_a_gang_that_is_half_bound_the_other_half_is_bound_first(
    servers: Servers, fork_server: ForkServer, tmp_path: Path, policy: Policies
) -> None:
    install_kinds(servers)
    crash_trigger = _AfterWrites(2, lambda proxied: proxied.verb == "bind")
    with RealTimeBackend(servers, fork_server, tmp_path, options=policy(POLICY), crash_trigger=crash_trigger) as backend:
        _nodes(backend, 4)
        _volcano_gang(backend, "train", 4, priority=1)
        backend.start()
        wait_until(lambda: backend.is_dead)
        # Whoever came while nobody scheduled is more important, and waits all the same.
        _volcano_gang(backend, "hi", 2, priority=9)
        backend.wait_until_settled()
        binds = [write.object for write in backend.proxy.writes if write.verb == "bind" and write.is_done]
        assert sorted(binds[:4]) == [f"default/train-{number}" for number in range(4)]
        assert max(backend.proxy.count_by_object("bind").values()) == 1


def _four_to_preempt(backend: RealTimeBackend) -> None:
    _nodes(backend, 4)
    for number in range(1, 5):
        _running_pod(backend, f"low{number}", node=f"n{number}", priority=1, leave_s=1)
    backend.start()
    backend.wait_until_settled()
    with backend.paused():
        _gang(backend, "hi", 4, priority=9)
    backend.wait_until_settled()


def _is_carried_out_once(proxy: RecordingProxy) -> None:
    """Nobody was nominated and nobody evicted before the plan was saved, and then everybody once."""
    for write in proxy.writes:
        if _is_plan_of_four(write) and write.is_done:
            break
        assert write.verb != "delete"
        assert "nominatedNodeName" not in str(write.body)
    else:
        pytest.fail("no plan was saved")
    assert proxy.count_by_object("delete") == {f"low{number}": 1 for number in range(1, 5)}
    assert proxy.count_by_object("bind") == {f"hi-{number}": 1 for number in range(4)}


def _is_nomination(proxied: ProxiedRequest) -> bool:
    return proxied.method == "PATCH" and bool(((proxied.body or {}).get("status") or {}).get("nominatedNodeName"))


def _is_plan_of_four(proxied: ProxiedRequest) -> bool:
    return proxied.verb == "save" and len(((proxied.body or {}).get("spec") or {}).get("members", ())) == 4


# --- 15: another scheduler on the same nodes --------------------------------------------------------------------------------------


@contextmanager
def _other_scheduler(user: ApiUser) -> Iterator[None]:
    """A small scheduler of another name. It binds each of its pods to the node that the pod names, whoever has claimed that."""
    over = threading.Event()

    def live() -> None:
        while not over.wait(0.02):
            for pod in user.listed("Pod"):
                if pod["spec"]["schedulerName"] == "rival" and not pod["spec"].get("nodeName"):
                    user.bind("default", pod["metadata"]["name"], node=pod["metadata"]["annotations"]["to"])

    thread = threading.Thread(target=live)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_capacity_that_another_scheduler_takes_is_lost_and_planned_anew(
    servers: Servers, fork_server: ForkServer, tmp_path: Path, policy: Policies
) -> None:
    with ProcessHarness(servers, fork_server, tmp_path) as harness:
        _nodes(harness, 4)
        _running_pod(harness, "low1", node="n1", priority=1, leave_s=2)
        _running_pod(harness, "low2", node="n2", priority=1, leave_s=4)
        _running_pod(harness, "low3", node="n3", priority=2, leave_s=1)
        _running_pod(harness, "firm", node="n4", priority=20, leave_s=1)
        with _other_scheduler(harness.user):
            only = harness.scheduler("only", "--no-leader-election", *policy(POLICY))
            wait_until(lambda: only.is_ready)
            _gang(harness, "hi", 2, priority=9)
            wait_until(lambda: len(harness.proxy.completed("delete")) == 2)
            # The first room that is free is taken at once, before the gang can have all of its own.
            wait_until(lambda: "low1" not in _pod_names(harness))
            _other_schedulers_pod(harness, "foreign", to="n1")
            wait_until(lambda: len(harness.proxy.completed("bind")) == 2)
        assert set(_nodes_of(harness.user, "hi")) == {"n2", "n3"}
        assert _nodes_of(harness.user, "foreign") == ["n1"]
        assert harness.proxy.count_by_object("delete") == {"low1": 1, "low2": 1, "low3": 1}
        assert harness.proxy.count_by_object("bind") == {"hi-0": 1, "hi-1": 1}
        _nobody_is_overbooked(harness.user)


def test_two_schedulers_on_the_same_free_nodes_break_nothing_and_who_is_refused_by_a_kubelet_is_a_lost_member(
    servers: Servers, fork_server: ForkServer, tmp_path: Path, policy: Policies
) -> None:
    with ProcessHarness(servers, fork_server, tmp_path) as harness:
        _nodes(harness, 8)

        async def before(proxied: ProxiedRequest) -> bool:
            """Of one member the bind is on its way while the other scheduler takes the very same room."""
            if (
                proxied.verb == "bind"
                and proxied.object == "default/train-1"
                and not await asyncio.to_thread(_nodes_of, harness.user, "thief")
            ):
                taken = proxied.body["target"]["name"]
                await asyncio.to_thread(_other_schedulers_pod, harness, "thief", to=taken)
                while not await asyncio.to_thread(_nodes_of, harness.user, "thief"):
                    await asyncio.sleep(0.02)
            return True

        harness.proxy.before = before
        with _other_scheduler(harness.user):
            harness.scheduler("only", "--no-leader-election", *policy(POLICY))
            _gang(harness, "train", 4, priority=1)
            wait_until(lambda: len(harness.proxy.completed("bind")) == 4)
            wait_until(lambda: _phases(harness.user)["train-1"] == "Failed")
            # Whoever owns the gang makes the lost member anew, and it finds other room.
            harness.user.delete("Pod", "default", "train-1")
            wait_until(lambda: "train-1" not in _pod_names(harness))
            harness.user.apply(_pod("train-1", gang="train", count=4, priority=1))
            wait_until(lambda: len(_nodes_of(harness.user, "train")) == 4)
        assert max(Counter(write.uid for write in harness.proxy.completed("bind")).values()) == 1
        assert harness.proxy.completed("delete") == []
        _nobody_is_overbooked(harness.user)


def _other_schedulers_pod(harness: ProcessHarness, name: str, *, to: str) -> None:
    pod = _pod(name, priority=0)
    pod["metadata"]["annotations"]["to"] = to
    pod["spec"]["schedulerName"] = "rival"
    harness.user.apply(pod)


def _phases(user: ApiUser) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in user.listed("Pod")}


def _nobody_is_overbooked(user: ApiUser) -> None:
    """Every node here has room for one of these pods."""
    alive = [pod for pod in user.listed("Pod") if pod["status"]["phase"] not in ("Failed", "Succeeded")]
    here = Counter(pod["spec"]["nodeName"] for pod in alive if pod["spec"].get("nodeName"))
    assert max(here.values()) == 1


# --- 16: a leader that is cut off -------------------------------------------------------------------------------------------------


@contextmanager
def _cut_off_leader(harness: ProcessHarness, late: Callable[[ProxiedRequest], bool]) -> Iterator[Callable[[], ProxiedRequest]]:
    """The first leader loses its lease when it sends such a write, and that write is under way until it is let go."""
    caught: list[ProxiedRequest] = []
    may_land = asyncio.Event()

    async def before(proxied: ProxiedRequest) -> bool:
        if proxied.listener == "first" and not caught and late(proxied):
            caught.append(proxied)
            await may_land.wait()
        # From then on it reaches nobody any more.
        return proxied.listener != "first" or not caught or proxied in caught

    async def let_go() -> None:
        may_land.set()

    def deliver() -> ProxiedRequest:
        harness.background.run(let_go())
        wait_until(lambda: caught[0].status is not None)
        return caught[0]

    harness.proxy.before = before
    yield deliver


def _first_and_second(harness: ProcessHarness, options: tuple[str, ...]) -> None:
    first = harness.scheduler("first", *LEASE, *options)
    wait_until(lambda: first.is_ready)
    harness.scheduler("second", *LEASE, *options)


def test_an_eviction_that_lands_late_changes_nothing(
    servers: Servers, fork_server: ForkServer, tmp_path: Path, policy: Policies
) -> None:
    with ProcessHarness(servers, fork_server, tmp_path) as harness:
        _nodes(harness, 4)
        for number in range(1, 5):
            _running_pod(harness, f"low{number}", node=f"n{number}", priority=1, leave_s=1)
        _first_and_second(harness, policy(POLICY))
        with _cut_off_leader(harness, lambda proxied: proxied.verb == "delete" and proxied.object == "default/low3") as deliver:
            _gang(harness, "hi", 4, priority=9)
            wait_until(lambda: len(harness.proxy.completed("bind")) == 4)
            # Somebody else has that name by now.
            harness.user.apply(_pod("low3", priority=1))
            assert deliver().status == 409
        assert "low3" in _pod_names(harness)
        assert harness.proxy.count_by_object("delete") == {f"low{number}": 1 for number in range(1, 5)}
        assert {write.listener for write in harness.proxy.completed("bind")} == {"second"}
        assert len(_nodes_of(harness.user, "hi")) == 4


def test_a_nomination_that_lands_late_changes_nothing(
    servers: Servers, fork_server: ForkServer, tmp_path: Path, policy: Policies
) -> None:
    with ProcessHarness(servers, fork_server, tmp_path) as harness:
        _nodes(harness, 4)
        for number in range(1, 5):
            _running_pod(harness, f"low{number}", node=f"n{number}", priority=1, leave_s=1)
        _first_and_second(harness, policy(POLICY))
        with _cut_off_leader(harness, _is_plan_of_four) as deliver:
            _gang(harness, "hi", 4, priority=9)
            wait_until(lambda: len(harness.proxy.completed("bind")) == 4)
            wait_until(lambda: not harness.user.listed("Plan"))
            assert deliver().status == 201
        # It is not believed, and deleted.
        wait_until(lambda: not harness.user.listed("Plan"))
        assert {write.listener for write in harness.proxy.completed("delete")} == {"second"}
        assert harness.proxy.count_by_object("delete") == {f"low{number}": 1 for number in range(1, 5)}


def test_a_bind_that_lands_late_is_refused_or_taken_for_what_it_is(
    servers: Servers, fork_server: ForkServer, tmp_path: Path, policy: Policies
) -> None:
    with ProcessHarness(servers, fork_server, tmp_path) as harness:
        _nodes(harness, 4)
        _first_and_second(harness, policy(POLICY))
        with _cut_off_leader(harness, lambda proxied: proxied.verb == "bind" and proxied.object == "default/train-2") as deliver:
            _gang(harness, "train", 4, priority=1)
            wait_until(lambda: len(_nodes_of(harness.user, "train")) == 4)
            where = _nodes_of(harness.user, "train")
            assert deliver().status == 409
        assert _nodes_of(harness.user, "train") == where
        assert harness.proxy.count_by_object("bind") == {f"train-{number}": 1 for number in range(4)}
        _nobody_is_overbooked(harness.user)


# -- what is there -----------------------------------------------------------------------------------------------------------------


def _nodes(harness: ProcessHarness, count: int) -> None:
    """n1, n2 and so on, each with room for one pod."""
    allocatable = {"cpu": "64", "memory": "64Gi", "pods": "110", GPU: "8"}
    for number in range(1, count + 1):
        status = {"allocatable": allocatable, "capacity": allocatable}
        metadata = {"name": f"n{number}"}
        harness.user.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status})
    harness.settle()


def _gang(harness: ProcessHarness, name: str, count: int, *, priority: int) -> None:
    for number in range(count):
        harness.user.apply(_pod(f"{name}-{number}", gang=name, count=count, priority=priority))


def _volcano_gang(harness: ProcessHarness, name: str, count: int, *, priority: int) -> None:
    spec = {"minMember": count}
    metadata = {"name": name, "namespace": "default"}
    harness.user.apply({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec})
    for number in range(count):
        pod = _pod(f"{name}-{number}", priority=priority)
        pod["metadata"]["annotations"][names.VOLCANO_GROUP_NAME] = name
        harness.user.apply(pod)


def _running_pod(
    harness: ProcessHarness, name: str, *, node: str, priority: int, leave_s: int, labels: dict[str, str] | None = None
) -> None:
    pod = _pod(name, priority=priority)
    pod["metadata"]["annotations"][LEAVE_SECONDS] = str(leave_s)
    pod["metadata"]["labels"] = labels or {}
    pod["spec"]["nodeName"] = node
    ready = {"type": "Ready", "status": "True"}
    harness.user.apply({**pod, "status": {"phase": "Running", "conditions": [ready]}})
    harness.settle()


def _pod(name: str, *, priority: int, gang: str = "", count: int = 1) -> Manifest:
    notes = {names.GANG_NAME: gang, names.GANG_MIN_AVAILABLE: str(count)} if gang else {}
    container = {"name": "main", "resources": {"requests": {GPU: "8"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": notes},
        "spec": {"schedulerName": "muster", "priority": priority, "containers": [container]},
    }


def _budget(*, most_gone: int) -> Manifest:
    spec = {"maxUnavailable": most_gone, "selector": {"matchLabels": {"app": "db"}}}
    metadata = {"name": "keep", "namespace": "default"}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def _disruptions_allowed(user: ApiUser) -> int:
    """How many more pods the budget lets go, by its own word."""
    found = user.get("PodDisruptionBudget", "default", "keep")
    assert found is not None
    allowed: int = found["status"]["disruptionsAllowed"]
    return allowed


def _pod_names(harness: ProcessHarness) -> set[str]:
    return {pod["metadata"]["name"] for pod in harness.user.listed("Pod")}


def _nodes_of(user: ApiUser, name: str) -> list[str]:
    """The nodes of the pods whose names begin so."""
    mine = [pod for pod in user.listed("Pod") if pod["metadata"]["name"].startswith(name)]
    return [pod["spec"]["nodeName"] for pod in mine if pod["spec"].get("nodeName")]
