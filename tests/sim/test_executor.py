"""What becomes of a scheduler's effects: which objects change, what is left alone, and what comes back as a failure."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.sim.sim_manifests import bind, evict, found, node, phase, pod, pod_group, uid_of

from muster.kube.read import names
from muster.model.device import DeviceSlot
from muster.model.effects import (
    Bind,
    Condition,
    DeletePlan,
    Effect,
    Nominate,
    PodGroupStatus,
    QueueStatus,
    Release,
    Reserve,
    SaveHistory,
    SavePlan,
)
from muster.model.events import BindFailed, Event, EvictFailed, Upsert
from muster.model.pod import Phase, Pod
from muster.model.saved_state import (
    CancelledEviction,
    Losses,
    SavedEvictions,
    SavedHistory,
    SavedMember,
    SavedPlan,
    saved_plan_name,
)
from muster.sim.cluster import SimCluster
from muster.sim.executor import Write


@pytest.fixture
def cluster() -> SimCluster:
    cluster = SimCluster()
    cluster.apply(node("n1"))
    cluster.apply(node("n2"))
    cluster.apply(pod(annotations={"team": "x"}))
    cluster.events()
    return cluster


def nominate(cluster: SimCluster, name: str = "a", *, to: str = "n1", evicts: bool = True) -> Nominate:
    uid = uid_of(cluster, name)
    slots = (DeviceSlot(0, 4, 50),)
    return Nominate(uid, f"default/{name}", to, f"default/{name}", "fits", "Preempted", cluster.now, "p1", evicts, slots)


def saved_plan(cluster: SimCluster, name: str = "a", *, victims: tuple[str, ...] = ("v1", "v2")) -> SavedPlan:
    uid, slots = uid_of(cluster, name), (DeviceSlot(0, 4, 50),)
    member = SavedMember(uid, f"default/{name}", "n1", Phase.NOMINATED, cluster.now, "p1", slots)
    entry = SavedEvictions("p1", "preempt", cluster.now, victims)
    return SavedPlan(f"pod:{uid}", (member,), (entry,), ("c1",), name=saved_plan_name(f"pod:{uid}"))


def reserve(cluster: SimCluster, name: str = "a", *, to: str = "n1") -> Reserve:
    return Reserve(uid_of(cluster, name), f"default/{name}", to, f"default/{name}", "the others", "Waits", cluster.now)


def release(cluster: SimCluster, name: str = "a", *, timed_out: bool = False) -> Release:
    return Release(uid_of(cluster, name), f"default/{name}", "n1", f"default/{name}", "over", "TimedOut", timed_out)


def last_pod(events: list[Event]) -> Pod:
    pods = [event.obj for event in events if isinstance(event, Upsert) and isinstance(event.obj, Pod)]
    return pods[-1]


def bind_failures(cluster: SimCluster) -> list[BindFailed]:
    return [event for event in cluster.events() if isinstance(event, BindFailed)]


def pod_scheduled(cluster: SimCluster, name: str = "a") -> dict[str, Any]:
    conditions = found(cluster, "Pod", name)["status"].get("conditions", [])
    return next((c for c in conditions if c["type"] == "PodScheduled"), {})


# --- Binds ------------------------------------------------------------------------------------------------------------------------


def test_a_bind_sets_the_node_and_the_condition_of_the_pod(cluster: SimCluster) -> None:
    cluster.execute([bind(cluster, "a")])
    assert found(cluster, "Pod", "a")["spec"]["nodeName"] == "n1"
    assert pod_scheduled(cluster)["status"] == "True"
    assert cluster.writes == [Write("bind", "Pod", "default/a")]
    assert last_pod(cluster.events()).node == "n1"


def test_a_bind_ends_the_reservation(cluster: SimCluster) -> None:
    cluster.execute([nominate(cluster)])
    cluster.execute([bind(cluster, "a")])
    bound = found(cluster, "Pod", "a")
    assert bound["metadata"]["annotations"] == {"team": "x"}
    assert "nominatedNodeName" not in bound["status"]
    assert [write.verb for write in cluster.writes] == ["patch", "bind", "patch"]


def test_a_pod_that_is_bound_to_the_target_already_is_bound(cluster: SimCluster) -> None:
    cluster.execute([bind(cluster, "a")])
    cluster.execute([bind(cluster, "a")])
    assert bind_failures(cluster) == []
    assert len(cluster.writes) == 1


def test_a_pod_found_bound_loses_what_is_left_of_its_reservation(cluster: SimCluster) -> None:
    cluster.execute([nominate(cluster)])
    cluster.execute([bind(cluster, "a")], max_writes=1)
    assert names.PIPELINED_NODE in found(cluster, "Pod", "a")["metadata"]["annotations"]
    cluster.execute([bind(cluster, "a")])
    assert names.PIPELINED_NODE not in found(cluster, "Pod", "a")["metadata"]["annotations"]


def test_a_pod_that_is_bound_elsewhere_cannot_be_bound(cluster: SimCluster) -> None:
    cluster.execute([nominate(cluster, to="n2")])
    cluster.patch("Pod", "default", "a", {"spec": {"nodeName": "n1"}})
    cluster.execute([bind(cluster, "a", to="n2")])
    (failed,) = bind_failures(cluster)
    assert (failed.node, failed.why) == ("n2", "pod default/a is bound to n1 already")
    assert found(cluster, "Pod", "a")["metadata"]["annotations"] == {"team": "x"}


@pytest.mark.parametrize(
    ("meanwhile", "says"),
    [
        (lambda c: c.delete("Pod", "default", "a"), "is gone"),
        (lambda c: (c.delete("Pod", "default", "a"), c.apply(pod())), "is gone"),
        (lambda c: c.fail_node("n1", gone=True), "node n1 is gone"),
        (lambda c: c.patch("Pod", "default", "a", {"spec": {"schedulingGates": [{"name": "g"}]}}), "has scheduling gates"),
        (lambda c: c.fail_bind("default/a"), "the API server refused to bind pod default/a"),
    ],
    ids=["the pod is deleted", "the pod is another one", "the node is gone", "the pod is gated", "the server says no"],
)
def test_a_bind_that_comes_too_late_fails(cluster: SimCluster, meanwhile: Any, says: str) -> None:
    late = bind(cluster, "a")
    meanwhile(cluster)
    cluster.execute([late])
    (failed,) = bind_failures(cluster)
    assert failed.uid == late.uid
    assert says in failed.why
    assert cluster.writes == []


def test_a_bind_that_was_made_to_fail_works_the_next_time(cluster: SimCluster) -> None:
    cluster.fail_bind("default/a", times=2)
    for _ in range(3):
        cluster.execute([bind(cluster, "a")])
    assert len(bind_failures(cluster)) == 2
    assert found(cluster, "Pod", "a")["spec"]["nodeName"] == "n1"


# --- Reservations -----------------------------------------------------------------------------------------------------------------


def test_a_nomination_is_written_on_the_pod(cluster: SimCluster) -> None:
    cluster.execute([nominate(cluster)])
    written = found(cluster, "Pod", "a")
    annotations = written["metadata"]["annotations"]
    assert written["status"]["nominatedNodeName"] == "n1"
    assert annotations["volcano.sh/pipelined-status"] == "true"
    assert annotations["volcano.sh/pipelined-node"] == "n1"
    assert annotations["volcano.sh/eviction-occurred"] == "true"
    assert annotations["team"] == "x"
    assert cluster.writes == [Write("patch", "Pod", "default/a")]


def test_a_new_scheduler_reads_the_nomination_on_the_pod(cluster: SimCluster) -> None:
    cluster.execute([nominate(cluster)])
    read = last_pod(cluster.relist())
    assert (read.nominated_node, read.pipelined_node) == ("n1", "n1")
    cluster.execute([reserve(cluster, to="n2")])
    read = last_pod(cluster.relist())
    assert (read.nominated_node, read.pipelined_node) == ("n2", "")


def test_a_new_scheduler_reads_the_whole_plan(cluster: SimCluster) -> None:
    cluster.advance(2.5)
    plan = saved_plan(cluster)
    cluster.execute([SavePlan(plan)])
    assert [replace(read, version=0) for read in plans(cluster)] == [plan]
    fewer = replace(plan, members=(), evictions=(), cancelled=())
    cluster.execute([SavePlan(fewer)])
    assert [replace(read, version=0) for read in plans(cluster)] == [fewer]
    cluster.execute([DeletePlan(plan.gang, plan.name)])
    assert plans(cluster) == []
    cluster.execute([DeletePlan(plan.gang, plan.name)])
    assert [write.verb for write in cluster.writes] == ["save"] * 3


def plans(cluster: SimCluster) -> list[SavedPlan]:
    return [event.obj for event in cluster.relist() if isinstance(event, Upsert) and isinstance(event.obj, SavedPlan)]


def test_a_new_scheduler_reads_the_whole_history(cluster: SimCluster) -> None:
    lost = Losses("default", 1.5, 10.0, 0.5, 20.0, 3.25, (("a", 2),), ("p1", "p2"))
    losses = {"u-1": lost, "volcano:default/g": Losses("default", hours=1.0)}
    full = SavedHistory("default", losses, {"volcano:default/g": 5.0}, {"u-2": CancelledEviction(7.0, 2)})
    for history in (full, SavedHistory("default")):
        cluster.execute([SaveHistory(history)])
        read = [event.obj for event in cluster.relist() if isinstance(event, Upsert) and isinstance(event.obj, SavedHistory)]
        assert [replace(one, version=0) for one in read] == [history]


def test_a_nomination_that_evicts_nobody_does_not_mention_evictions(cluster: SimCluster) -> None:
    cluster.execute([nominate(cluster, evicts=False)])
    assert "volcano.sh/eviction-occurred" not in found(cluster, "Pod", "a")["metadata"]["annotations"]


@pytest.mark.parametrize("timed_out", [False, True])
def test_a_release_removes_all_of_a_reservation(cluster: SimCluster, timed_out: bool) -> None:
    cluster.execute([nominate(cluster)])
    cluster.execute([release(cluster, timed_out=timed_out)])
    mark = {"gang.scheduling.koordinator.sh/timeout": "true"} if timed_out else {}
    assert found(cluster, "Pod", "a")["metadata"]["annotations"] == {"team": "x", **mark}
    assert "nominatedNodeName" not in found(cluster, "Pod", "a")["status"]
    assert last_pod(cluster.relist()).timed_out is timed_out


@pytest.mark.parametrize("what", [nominate, reserve, release])
def test_what_is_there_already_is_not_written_again(cluster: SimCluster, what: Any) -> None:
    cluster.execute([nominate(cluster)])
    cluster.execute([what(cluster)])
    writes, version = len(cluster.writes), found(cluster, "Pod", "a")["metadata"]["resourceVersion"]
    cluster.execute([what(cluster)])
    assert len(cluster.writes) == writes
    assert found(cluster, "Pod", "a")["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize("what", [nominate, reserve, release])
def test_a_reservation_of_the_old_pod_is_not_written_onto_the_new_one_of_its_name(cluster: SimCluster, what: Any) -> None:
    effect = what(cluster)
    cluster.delete("Pod", "default", "a")
    cluster.execute([effect])
    cluster.apply(pod())
    cluster.execute([effect])
    assert cluster.writes == []


# --- Evictions --------------------------------------------------------------------------------------------------------------------


def test_evictions_come_after_all_nominations(cluster: SimCluster) -> None:
    cluster.apply(pod("victim", at="n1"))
    effects: list[Effect] = [evict(cluster, "victim"), nominate(cluster)]
    cluster.execute(effects)
    assert cluster.writes == [
        Write("patch", "Pod", "default/a"),
        Write("patch", "Pod", "default/victim"),
        Write("delete", "Pod", "default/victim"),
    ]


def test_a_pod_gets_the_disruption_condition_before_it_is_deleted(cluster: SimCluster) -> None:
    cluster.apply(pod("victim", at="n1"))
    cluster.execute([evict(cluster, "victim")], max_writes=1)
    (condition,) = [c for c in found(cluster, "Pod", "victim")["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert (condition["status"], condition["reason"]) == ("True", "PreemptionByScheduler")
    assert phase(cluster, "victim") == "Pending"
    cluster.execute([evict(cluster, "victim")])
    assert [write.verb for write in cluster.writes] == ["patch", "delete"]


def test_a_scheduler_may_die_between_any_two_writes(cluster: SimCluster) -> None:
    cluster.apply(pod("b"))
    cluster.apply(pod("victim", at="n1"))
    effects: list[Effect] = [nominate(cluster, "a"), nominate(cluster, "b"), evict(cluster, "victim")]
    cluster.execute(effects, max_writes=2)
    assert [write.name for write in cluster.writes] == ["default/a", "default/b"]
    assert phase(cluster, "victim") == "Pending"
    cluster.execute(effects)
    assert phase(cluster, "victim") == "leaving"
    assert [write.verb for write in cluster.writes] == ["patch", "patch", "patch", "delete"]


def test_a_soft_eviction_marks_the_pod_and_leaves_it_running(cluster: SimCluster) -> None:
    cluster.apply(pod("victim", at="n1"))
    cluster.advance(2)
    cluster.execute([evict(cluster, "victim", manner="soft")])
    key = "scheduling.koordinator.sh/soft-eviction"
    marked = found(cluster, "Pod", "victim")["metadata"]
    assert marked["labels"][key] == "true"
    written = json.loads(marked["annotations"][key])
    assert written == {"preemptJob": "default/hi", "timestamp": "2026-01-01T00:00:02Z", "reason": "default/hi needs cpu 4"}
    assert phase(cluster, "victim") == "Running"
    cluster.advance(5)
    cluster.execute([evict(cluster, "victim", manner="soft")])
    assert len(cluster.writes) == 1


def test_a_terminating_pod_is_not_deleted_twice(cluster: SimCluster) -> None:
    cluster.apply(pod("victim", at="n1"))
    cluster.execute([evict(cluster, "victim")])
    cluster.execute([evict(cluster, "victim")])
    assert [write.verb for write in cluster.writes] == ["patch", "delete"]


def test_an_eviction_of_a_pod_that_is_another_one_by_now_does_nothing(cluster: SimCluster) -> None:
    stale = evict(cluster, "a")
    cluster.delete("Pod", "default", "a")
    cluster.apply(pod())
    cluster.execute([stale])
    assert phase(cluster, "a") == "Pending"


def test_an_eviction_can_be_made_to_fail(cluster: SimCluster) -> None:
    cluster.apply(pod("victim", at="n1"))
    cluster.fail_evict("default/victim")
    cluster.execute([evict(cluster, "victim")])
    failed = [event for event in cluster.events() if isinstance(event, EvictFailed)]
    assert [event.uid for event in failed] == [uid_of(cluster, "victim")]
    cluster.execute([evict(cluster, "victim")])
    assert phase(cluster, "victim") == "leaving"


# --- Words ------------------------------------------------------------------------------------------------------------------------

FULL = Condition("gang", "default/g", ok=False, code="InsufficientCapacity", why="1/2 members placed")
DONE = Condition("gang", "default/g", ok=True, code="Scheduled", why="every member has a node")


def gang_of_two(flavour: str) -> SimCluster:
    cluster = SimCluster()
    cluster.apply(node())
    cluster.apply(pod_group("g", flavour=flavour))
    label = {"koordinator": "pod-group.scheduling.sigs.k8s.io", "sigs": "scheduling.x-k8s.io/pod-group"}.get(flavour)
    for name in ("a", "b"):
        member: dict[str, Any] = {"labels": {label: "g"}} if label else {}
        if flavour == "native":
            member = {"spec": {"schedulingGroup": {"podGroupName": "g"}}}
        cluster.apply(pod(name, gang="g" if flavour == "volcano" else "", **member))
    cluster.apply(pod("stranger"))
    return cluster


def group_conditions(cluster: SimCluster) -> dict[str, tuple[str, str]]:
    conditions = found(cluster, "PodGroup", "g").get("status", {}).get("conditions", [])
    return {c["type"]: (c["status"], c["message"]) for c in conditions}


@pytest.mark.parametrize("flavour", ["volcano", "koordinator", "sigs", "native"])
@pytest.mark.parametrize("by", ["title", "key"])
def test_the_waiting_members_of_a_gang_say_why(flavour: str, by: str) -> None:
    cluster = gang_of_two(flavour)
    cluster.execute([bind(cluster, "a")])
    key = "default/g" if by == "title" else f"{flavour}:default/g"
    cluster.execute([Condition("gang", key, ok=False, code="InsufficientCapacity", why="1/2 members placed")])
    assert pod_scheduled(cluster, "a")["status"] == "True"
    waiting = pod_scheduled(cluster, "b")
    assert (waiting["status"], waiting["reason"]) == ("False", "Unschedulable")
    assert waiting["message"] == "1/2 members placed [InsufficientCapacity]"
    assert pod_scheduled(cluster, "stranger") == {}


@pytest.mark.parametrize(
    ("flavour", "waiting", "done"),
    [
        ("volcano", {"Unschedulable": "True"}, {"Unschedulable": "False", "Scheduled": "True"}),
        ("koordinator", {"Scheduled": "False"}, {"Scheduled": "True"}),
        ("sigs", {"Scheduled": "False"}, {"Scheduled": "True"}),
        ("native", {"PodGroupInitiallyScheduled": "False"}, {"PodGroupInitiallyScheduled": "True"}),
    ],
)
def test_a_pod_group_gets_the_condition_of_its_flavour(flavour: str, waiting: dict[str, str], done: dict[str, str]) -> None:
    cluster = gang_of_two(flavour)
    cluster.execute([FULL])
    assert {kind: status for kind, (status, _) in group_conditions(cluster).items()} == waiting
    assert all("1/2 members placed" in message for _, message in group_conditions(cluster).values())
    cluster.execute([DONE])
    assert {kind: status for kind, (status, _) in group_conditions(cluster).items()} == done


def test_once_scheduled_a_native_group_stays_scheduled() -> None:
    cluster = gang_of_two("native")
    cluster.execute([DONE])
    cluster.execute([FULL])
    assert group_conditions(cluster)["PodGroupInitiallyScheduled"][0] == "True"


def test_a_condition_is_written_once_and_its_time_is_that_of_the_change() -> None:
    cluster = gang_of_two("volcano")
    cluster.execute([FULL])
    writes = len(cluster.writes)
    cluster.advance(10)
    cluster.execute([FULL])
    assert len(cluster.writes) == writes
    cluster.execute([Condition("gang", "default/g", ok=False, code="InsufficientCapacity", why="0/2 members placed")])
    assert pod_scheduled(cluster, "b")["message"] == "0/2 members placed [InsufficientCapacity]"
    assert pod_scheduled(cluster, "b")["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_conditions_of_others_stay(cluster: SimCluster) -> None:
    cluster.patch("Pod", "default", "a", {"status": {"conditions": [{"type": "example.com/Paid", "status": "True"}]}})
    cluster.execute([Condition("gang", "default/a", ok=False, code="InsufficientCapacity", why="no node has cpu 1")])
    cluster.execute([bind(cluster, "a")])
    conditions = {c["type"]: c for c in found(cluster, "Pod", "a")["status"]["conditions"]}
    assert conditions["example.com/Paid"] == {"type": "example.com/Paid", "status": "True"}
    assert conditions["PodScheduled"]["status"] == "True"
    assert "message" not in conditions["PodScheduled"]


def test_the_condition_of_a_single_pod_is_found_by_its_name_or_its_key(cluster: SimCluster) -> None:
    for key in ("default/a", f"pod:{uid_of(cluster, 'a')}"):
        cluster.execute([Condition("gang", key, ok=False, code="InsufficientCapacity", why=f"said to {key}")])
        assert f"said to {key}" in pod_scheduled(cluster)["message"]


def test_bad_fields_of_a_gang_have_a_condition_of_their_own() -> None:
    cluster = gang_of_two("volcano")
    cluster.execute([FULL, Condition("gang", "default/g", ok=False, code="Invalid", why="spec.minMember: -1 is negative")])
    assert group_conditions(cluster)["Unschedulable"] == ("True", "1/2 members placed")
    assert group_conditions(cluster)["muster.dev/Valid"] == ("False", "spec.minMember: -1 is negative")
    assert pod_scheduled(cluster, "a")["message"] == "1/2 members placed [InsufficientCapacity]"


def test_all_gangs_of_a_gang_group_get_the_condition() -> None:
    cluster = gang_of_two("volcano")
    cluster.apply(pod_group("h"))
    cluster.apply(pod("c", gang="h"))
    cluster.execute([Condition("gang", "default/g+default/h", ok=False, code="InsufficientCapacity", why="no free capacity")])
    assert [pod_scheduled(cluster, name)["status"] for name in ("a", "b", "c")] == ["False"] * 3


@pytest.mark.parametrize(
    ("subject", "key", "manifest"),
    [
        ("node", "n1", node()),
        ("queue", "queue/q", {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}}),
        (
            "queue",
            "quota/default/q",
            {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": {"name": "q"}},
        ),
        ("domain", "h", {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": "h"}}),
    ],
)
def test_other_objects_get_a_condition_with_their_errors(subject: str, key: str, manifest: dict[str, Any]) -> None:
    cluster = SimCluster()
    cluster.apply(manifest)
    cluster.execute([Condition(subject, key, ok=False, code="Invalid", why="min 4 is above max 2")])
    conditions = found(cluster, manifest["kind"], manifest["metadata"]["name"])["status"]["conditions"]
    (said,) = [c for c in conditions if c["type"] == "muster.dev/Valid"]
    assert (said["status"], said["reason"], said["message"]) == ("False", "Invalid", "min 4 is above max 2")


@pytest.mark.parametrize(
    ("flavour", "status"),
    [
        ("volcano", {"phase": "Running", "running": 2, "succeeded": 1, "failed": 0}),
        (
            "koordinator",
            {
                "phase": "Running",
                "scheduled": 3,
                "running": 2,
                "succeeded": 1,
                "failed": 0,
                "scheduleStartTime": "2026-01-01T00:00:00Z",
            },
        ),
        (
            "native",
            {
                "conditions": [
                    {
                        "type": "PodGroupInitiallyScheduled",
                        "status": "True",
                        "reason": "Scheduled",
                        "message": "4 of its members have had a node, as many as it needs",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }
                ]
            },
        ),
    ],
)
def test_a_pod_group_shows_the_counts_that_it_has_fields_for(flavour: str, status: dict[str, Any]) -> None:
    cluster = gang_of_two(flavour)
    effect = PodGroupStatus(f"{flavour}:default/g", "Running", 3, 2, 1, 0, cluster.now)
    cluster.execute([effect])
    cluster.execute([effect])
    assert found(cluster, "PodGroup", "g").get("status") == status
    assert len(cluster.writes) == 1


def test_the_amounts_of_a_queue_are_written_whole() -> None:
    cluster = SimCluster()
    cluster.apply({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}})
    cluster.apply({"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": {"name": "q"}})
    fields = (("allocated.cpu", "4"), ("allocated.nvidia.com/gpu", "2"), ("pending", "3"), ("state", "Open"))
    cluster.execute([QueueStatus("queue/q", fields), QueueStatus("quota/default/q", (("used.cpu", "1500m"),))])
    status = {"allocated": {"cpu": "4", "nvidia.com/gpu": "2"}, "pending": 3, "state": "Open"}
    assert found(cluster, "Queue", "q")["status"] == status
    assert found(cluster, "ElasticQuota", "q")["status"] == {"used": {"cpu": "1500m"}}
    cluster.execute([QueueStatus("queue/q", fields), QueueStatus("queue/q", (("allocated.cpu", "5"),))])
    assert found(cluster, "Queue", "q")["status"] == {**status, "allocated": {"cpu": "5"}}
    assert len(cluster.writes) == 3


def test_a_volcano_group_has_volcanos_phases() -> None:
    cluster = gang_of_two("volcano")
    for said, word in (("PreScheduling", "Inqueue"), ("Running", "Running"), ("Finished", "Completed")):
        cluster.execute([PodGroupStatus("volcano:default/g", said)])
        assert found(cluster, "PodGroup", "g")["status"]["phase"] == word


def test_nothing_is_written_on_what_does_not_exist(cluster: SimCluster) -> None:
    cluster.execute([FULL, PodGroupStatus("volcano:default/g", "Running"), Condition("node", "n9", ok=False, code="x", why="y")])
    cluster.execute([Bind("no-such-uid", "default/zz", "n1", "default/zz", "why")])
    assert cluster.writes == []
