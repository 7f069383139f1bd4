"""Stories that break gang schedulers, told on a real API server with `muster run` as a process: a budget that refuses, crashes in
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
from tests.kube.gate import Asked, Gate
from tests.kube.ground import Ground, install_kinds, until
from tests.kube.nursery import Nursery
from tests.kube.real_time import RealTime
from tests.kube.user import User

from muster.adapters.kube import names
from muster.adapters.kube.claims import read_claim
from muster.lab.servers import Servers

Manifest = dict[str, Any]

LEASE = ("--lease-duration", "5", "--renew-deadline", "3", "--retry-period", "0.4")
POLICY = {
    "plugins": ["priority", "fit", "binpack", "nominated"],
    "actions": ["expire", "enqueue", "allocate", "preempt", "gang-preempt"],
}
WITH_BUDGETS = {**POLICY, "plugins": [*POLICY["plugins"], "pdb"]}
GPU = "nvidia.com/gpu"
LEAVE = "sim.muster.dev/leave-seconds"


@pytest.fixture
def policy(tmp_path: Path) -> Callable[[Manifest], tuple[str, str]]:
    def written(what: Manifest) -> tuple[str, str]:
        file = tmp_path / "policy.yaml"
        file.write_text(json.dumps(what))
        return "--policy", str(file)

    return written


Policies = Callable[[Manifest], tuple[str, str]]


# --- 7: a budget refuses one of four victims --------------------------------------------------------------------------------------


def test_a_victim_that_its_budget_refuses_is_not_asked_again_and_the_gang_is_planned_anew(
    servers: Servers, nursery: Nursery, tmp_path: Path, policy: Policies
) -> None:
    with Ground(servers, nursery, tmp_path) as ground:
        _nodes(ground, 5)
        ground.user.apply(_budget(most_gone=1))
        for number in range(1, 6):
            labels = {"app": "db"} if number == 3 else {}
            _runs(ground, f"low{number}", node=f"n{number}", priority=2 if number == 5 else 1, leave_s=0, labels=labels)

        async def before(asked: Asked) -> bool:
            """Its budget changes its mind when the claims are written and two others have left."""
            if asked.verb == "evict" and asked.object == "default/low3":
                while len(await asyncio.to_thread(_titles, ground) & {"low1", "low2", "low4"}) > 1:
                    await asyncio.sleep(0.05)
                await asyncio.to_thread(ground.user.patch, "PodDisruptionBudget", "default", "keep", _budget(most_gone=0))
                while await asyncio.to_thread(_allowed, ground.user):
                    await asyncio.sleep(0.05)
            return True

        ground.gate.before = before
        ground.scheduler("only", "--no-leader-election", *policy(WITH_BUDGETS))
        _gang(ground, "hi", 4, priority=9)
        until(lambda: len(ground.gate.done("bind")) == 4)
        assert [write.status for write in ground.gate.writes if write.object == "default/low3"] == [429]
        assert set(_where(ground.user, "hi")) == {"n1", "n2", "n4", "n5"}
        assert _where(ground.user, "low3") == ["n3"]
        assert ground.gate.times("evict") == {"low1": 1, "low2": 1, "low4": 1, "low5": 1}


# --- 8: crashes while a plan is carried out ---------------------------------------------------------------------------------------


class _At:
    """The scheduler dies when so many writes that look like this are done."""

    def __init__(self, count: int, looks: Callable[[Asked], bool]) -> None:
        self._left = count
        self._looks = looks

    def strikes(self, asked: Asked, *, is_done: bool) -> bool:
        if is_done and self._looks(asked):
            self._left -= 1
            return not self._left
        return False


def test_a_plan_of_which_two_of_four_claims_are_written_is_dropped_whole(
    servers: Servers, nursery: Nursery, tmp_path: Path, policy: Policies
) -> None:
    fate = _At(2, lambda asked: _plan(asked) != "")
    with RealTime(servers, nursery, tmp_path, options=policy(POLICY), fate=fate) as stage:
        _four_to_preempt(stage)
        assert stage.lives == 2
        old = {_plan(write) for write in stage.gate.writes if write.door == "life-1"} - {""}
        new = [_plan(write) for write in stage.gate.writes if write.door == "life-2" and _plan(write)]
        assert len(new) == 4
        assert not old & set(new)
        _is_carried_out_once(stage.gate)


def test_a_plan_whose_claims_are_all_written_is_carried_out_once(
    servers: Servers, nursery: Nursery, tmp_path: Path, policy: Policies
) -> None:
    fate = _At(4, lambda asked: _plan(asked) != "")
    with RealTime(servers, nursery, tmp_path, options=policy(POLICY), fate=fate) as stage:
        _four_to_preempt(stage)
        assert stage.lives == 2
        assert {write.door for write in stage.gate.writes if write.verb == "delete"} == {"life-2"}
        # The claims are taken over as they stand.
        assert not [write for write in stage.gate.writes if write.door == "life-2" and _plan(write)]
        _is_carried_out_once(stage.gate)


def test_of_a_gang_that_is_half_bound_the_other_half_is_bound_first(
    servers: Servers, nursery: Nursery, tmp_path: Path, policy: Policies
) -> None:
    install_kinds(servers)
    fate = _At(2, lambda asked: asked.verb == "bind")
    with RealTime(servers, nursery, tmp_path, options=policy(POLICY), fate=fate) as stage:
        _nodes(stage, 4)
        _volcano_gang(stage, "train", 4, priority=1)
        stage.start()
        until(lambda: stage.is_dead)
        # Whoever came while nobody scheduled is more important, and waits all the same.
        _volcano_gang(stage, "hi", 2, priority=9)
        stage.rest()
        binds = [write.object for write in stage.gate.writes if write.verb == "bind" and write.is_done]
        assert sorted(binds[:4]) == [f"default/train-{number}" for number in range(4)]
        assert max(stage.gate.times("bind").values()) == 1


def _four_to_preempt(stage: RealTime) -> None:
    _nodes(stage, 4)
    for number in range(1, 5):
        _runs(stage, f"low{number}", node=f"n{number}", priority=1, leave_s=1)
    stage.start()
    stage.rest()
    with stage.asleep():
        _gang(stage, "hi", 4, priority=9)
    stage.rest()


def _is_carried_out_once(gate: Gate) -> None:
    """Nobody was evicted before all claims of one plan stood, and then everybody once."""
    plans: dict[str, str] = {}
    for write in gate.writes:
        if _plan(write) and write.is_done:
            plans[write.object] = _plan(write)
        elif write.verb == "delete":
            assert len(plans) == 4
            assert len(set(plans.values())) == 1
    assert gate.times("delete") == {f"low{number}": 1 for number in range(1, 5)}
    assert gate.times("bind") == {f"hi-{number}": 1 for number in range(4)}


def _plan(asked: Asked) -> str:
    """The plan of the claim that this write puts onto a pod, if it does."""
    body = asked.body if asked.method == "PATCH" and isinstance(asked.body, dict) else {}
    text = ((body.get("metadata") or {}).get("annotations") or {}).get(names.CLAIM)
    return read_claim(text, uid=asked.uid).plan if text else ""


# --- 15: another scheduler on the same nodes --------------------------------------------------------------------------------------


@contextmanager
def _rival(user: User) -> Iterator[None]:
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


def test_room_that_another_scheduler_takes_is_lost_and_planned_anew(
    servers: Servers, nursery: Nursery, tmp_path: Path, policy: Policies
) -> None:
    with Ground(servers, nursery, tmp_path) as ground:
        _nodes(ground, 4)
        _runs(ground, "low1", node="n1", priority=1, leave_s=2)
        _runs(ground, "low2", node="n2", priority=1, leave_s=4)
        _runs(ground, "low3", node="n3", priority=2, leave_s=1)
        _runs(ground, "firm", node="n4", priority=20, leave_s=1)
        with _rival(ground.user):
            only = ground.scheduler("only", "--no-leader-election", *policy(POLICY))
            until(lambda: only.is_ready)
            _gang(ground, "hi", 2, priority=9)
            until(lambda: len(ground.gate.done("delete")) == 2)
            # The first room that is free is taken at once, before the gang can have all of its own.
            until(lambda: "low1" not in _titles(ground))
            _rivals_pod(ground, "foreign", to="n1")
            until(lambda: len(ground.gate.done("bind")) == 2)
        assert set(_where(ground.user, "hi")) == {"n2", "n3"}
        assert _where(ground.user, "foreign") == ["n1"]
        assert ground.gate.times("delete") == {"low1": 1, "low2": 1, "low3": 1}
        assert ground.gate.times("bind") == {"hi-0": 1, "hi-1": 1}
        _nobody_is_overbooked(ground.user)


def test_two_schedulers_on_the_same_free_nodes_break_nothing_and_who_is_refused_by_a_kubelet_is_a_lost_member(
    servers: Servers, nursery: Nursery, tmp_path: Path, policy: Policies
) -> None:
    with Ground(servers, nursery, tmp_path) as ground:
        _nodes(ground, 8)

        async def before(asked: Asked) -> bool:
            """Of one member the bind is on its way while the other scheduler takes the very same room."""
            if (
                asked.verb == "bind"
                and asked.object == "default/train-1"
                and not await asyncio.to_thread(_where, ground.user, "thief")
            ):
                taken = asked.body["target"]["name"]
                await asyncio.to_thread(_rivals_pod, ground, "thief", to=taken)
                while not await asyncio.to_thread(_where, ground.user, "thief"):
                    await asyncio.sleep(0.02)
            return True

        ground.gate.before = before
        with _rival(ground.user):
            ground.scheduler("only", "--no-leader-election", *policy(POLICY))
            _gang(ground, "train", 4, priority=1)
            until(lambda: len(ground.gate.done("bind")) == 4)
            until(lambda: _phases(ground.user)["train-1"] == "Failed")
            # Whoever owns the gang makes the lost member anew, and it finds other room.
            ground.user.delete("Pod", "default", "train-1")
            until(lambda: "train-1" not in _titles(ground))
            ground.user.apply(_pod("train-1", gang="train", count=4, priority=1))
            until(lambda: len(_where(ground.user, "train")) == 4)
        assert max(Counter(write.uid for write in ground.gate.done("bind")).values()) == 1
        assert ground.gate.done("delete") == []
        _nobody_is_overbooked(ground.user)


def _rivals_pod(ground: Ground, name: str, *, to: str) -> None:
    pod = _pod(name, priority=0)
    pod["metadata"]["annotations"]["to"] = to
    pod["spec"]["schedulerName"] = "rival"
    ground.user.apply(pod)


def _phases(user: User) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in user.listed("Pod")}


def _nobody_is_overbooked(user: User) -> None:
    """Every node here has room for one of these pods."""
    alive = [pod for pod in user.listed("Pod") if pod["status"]["phase"] not in ("Failed", "Succeeded")]
    here = Counter(pod["spec"]["nodeName"] for pod in alive if pod["spec"].get("nodeName"))
    assert max(here.values()) == 1


# --- 16: a leader that is cut off -------------------------------------------------------------------------------------------------


@contextmanager
def _cut_off(ground: Ground, late: Callable[[Asked], bool]) -> Iterator[Callable[[], Asked]]:
    """The first leader loses its lease when it sends such a write, and that write is under way until it is let go."""
    caught: list[Asked] = []
    may_land = asyncio.Event()

    async def before(asked: Asked) -> bool:
        if asked.door == "first" and not caught and late(asked):
            caught.append(asked)
            await may_land.wait()
        # From then on it reaches nobody any more.
        return asked.door != "first" or not caught or asked in caught

    async def let_go() -> None:
        may_land.set()

    def land() -> Asked:
        ground.background.do(let_go())
        until(lambda: caught[0].status is not None)
        return caught[0]

    ground.gate.before = before
    yield land


def _first_and_second(ground: Ground, options: tuple[str, ...]) -> None:
    first = ground.scheduler("first", *LEASE, *options)
    until(lambda: first.is_ready)
    ground.scheduler("second", *LEASE, *options)


def test_an_eviction_that_lands_late_changes_nothing(servers: Servers, nursery: Nursery, tmp_path: Path, policy: Policies) -> None:
    with Ground(servers, nursery, tmp_path) as ground:
        _nodes(ground, 4)
        for number in range(1, 5):
            _runs(ground, f"low{number}", node=f"n{number}", priority=1, leave_s=1)
        _first_and_second(ground, policy(POLICY))
        with _cut_off(ground, lambda asked: asked.verb == "delete" and asked.object == "default/low3") as land:
            _gang(ground, "hi", 4, priority=9)
            until(lambda: len(ground.gate.done("bind")) == 4)
            # Somebody else has that name by now.
            ground.user.apply(_pod("low3", priority=1))
            assert land().status == 409
        assert "low3" in _titles(ground)
        assert ground.gate.times("delete") == {f"low{number}": 1 for number in range(1, 5)}
        assert {write.door for write in ground.gate.done("bind")} == {"second"}
        assert len(_where(ground.user, "hi")) == 4


def test_a_claim_that_lands_late_changes_nothing(servers: Servers, nursery: Nursery, tmp_path: Path, policy: Policies) -> None:
    with Ground(servers, nursery, tmp_path) as ground:
        _nodes(ground, 4)
        for number in range(1, 5):
            _runs(ground, f"low{number}", node=f"n{number}", priority=1, leave_s=1)
        _first_and_second(ground, policy(POLICY))
        with _cut_off(ground, lambda asked: _plan(asked) != "" and asked.object == "default/hi-3") as land:
            _gang(ground, "hi", 4, priority=9)
            until(lambda: len(ground.gate.done("bind")) == 4)
            assert land().status == 409
        assert {write.door for write in ground.gate.done("delete")} == {"second"}
        assert ground.gate.times("delete") == {f"low{number}": 1 for number in range(1, 5)}
        until(lambda: not [pod for pod in ground.user.listed("Pod") if names.CLAIM in (pod["metadata"]["annotations"] or {})])


def test_a_bind_that_lands_late_is_refused_or_taken_for_what_it_is(
    servers: Servers, nursery: Nursery, tmp_path: Path, policy: Policies
) -> None:
    with Ground(servers, nursery, tmp_path) as ground:
        _nodes(ground, 4)
        _first_and_second(ground, policy(POLICY))
        with _cut_off(ground, lambda asked: asked.verb == "bind" and asked.object == "default/train-2") as land:
            _gang(ground, "train", 4, priority=1)
            until(lambda: len(_where(ground.user, "train")) == 4)
            where = _where(ground.user, "train")
            assert land().status == 409
        assert _where(ground.user, "train") == where
        assert ground.gate.times("bind") == {f"train-{number}": 1 for number in range(4)}
        _nobody_is_overbooked(ground.user)


# -- what is there -----------------------------------------------------------------------------------------------------------------


def _nodes(ground: Ground, count: int) -> None:
    """n1, n2 and so on, each with room for one pod."""
    room = {"cpu": "64", "memory": "64Gi", "pods": "110", GPU: "8"}
    for number in range(1, count + 1):
        status = {"allocatable": room, "capacity": room}
        metadata = {"name": f"n{number}"}
        ground.user.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status})
    ground.settle()


def _gang(ground: Ground, name: str, count: int, *, priority: int) -> None:
    for number in range(count):
        ground.user.apply(_pod(f"{name}-{number}", gang=name, count=count, priority=priority))


def _volcano_gang(ground: Ground, name: str, count: int, *, priority: int) -> None:
    spec = {"minMember": count}
    metadata = {"name": name, "namespace": "default"}
    ground.user.apply({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec})
    for number in range(count):
        pod = _pod(f"{name}-{number}", priority=priority)
        pod["metadata"]["annotations"][names.VOLCANO_GROUP_NAME] = name
        ground.user.apply(pod)


def _runs(ground: Ground, name: str, *, node: str, priority: int, leave_s: int, labels: dict[str, str] | None = None) -> None:
    pod = _pod(name, priority=priority)
    pod["metadata"]["annotations"][LEAVE] = str(leave_s)
    pod["metadata"]["labels"] = labels or {}
    pod["spec"]["nodeName"] = node
    ready = {"type": "Ready", "status": "True"}
    ground.user.apply({**pod, "status": {"phase": "Running", "conditions": [ready]}})
    ground.settle()


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


def _allowed(user: User) -> int:
    """How many more pods the budget lets go, by its own word."""
    found = user.get("PodDisruptionBudget", "default", "keep")
    assert found is not None
    allowed: int = found["status"]["disruptionsAllowed"]
    return allowed


def _titles(ground: Ground) -> set[str]:
    return {pod["metadata"]["name"] for pod in ground.user.listed("Pod")}


def _where(user: User, name: str) -> list[str]:
    """The nodes of the pods whose names begin so."""
    mine = [pod for pod in user.listed("Pod") if pod["metadata"]["name"].startswith(name)]
    return [pod["spec"]["nodeName"] for pod in mine if pod["spec"].get("nodeName")]
