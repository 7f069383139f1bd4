"""The cluster as its users and a scheduler meet it: objects in, events out, the same every time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.harness.scheduling_turn import step
from tests.sim.sim_manifests import bind, evict, found, node, pod, pod_group, pods_in, uid_of

from muster.engine.hooks import Policy
from muster.model.effects import Bind
from muster.model.events import Delete, Event, Upsert
from muster.model.gang import PodGroup
from muster.model.pod import Pod
from muster.plugins.fit import Fit
from muster.scheduler import Scheduler
from muster.sim.api_kinds import BadManifest
from muster.sim.cluster import SimCluster
from muster.sim.fault_injection import FaultRates
from muster.sim.object_store import NotFound
from muster.sim.virtual_clock import VIRTUAL_START


def test_time_begins_with_the_year_and_moves_only_on_advance() -> None:
    cluster = SimCluster()
    assert cluster.now == VIRTUAL_START == 1_767_225_600.0
    cluster.advance(90.5)
    assert cluster.now == VIRTUAL_START + 90.5
    with pytest.raises(ValueError, match="does not go back"):
        cluster.advance(-1)


def test_an_applied_object_makes_one_event() -> None:
    cluster = SimCluster()
    cluster.apply(node())
    cluster.apply(pod_group("g"))
    cluster.apply(pod(gang="g"))
    kinds = [type(event.obj).__name__ for event in cluster.events() if isinstance(event, Upsert)]
    assert kinds == ["Node", "PodGroup", "Pod"]
    assert cluster.events() == []


def test_applying_again_merges_and_what_the_cluster_set_stays() -> None:
    cluster = SimCluster()
    cluster.apply(node())
    first = cluster.apply(pod(at="n1", labels={"x": "1"}))
    cluster.advance(2)
    again = cluster.apply(pod(labels={"y": "2"}))
    assert again["metadata"]["uid"] == first["metadata"]["uid"]
    assert again["metadata"]["labels"] == {"x": "1", "y": "2"}
    assert again["status"]["phase"] == "Running"


def test_a_deletion_event_carries_the_uid_or_key() -> None:
    cluster = SimCluster()
    cluster.apply(pod())
    uid = uid_of(cluster, "a")
    cluster.apply(pod_group("g"))
    cluster.apply(node())
    cluster.events()
    cluster.delete("Pod", "default", "a")
    cluster.delete("PodGroup", "", "g")
    cluster.delete("Node", "", "n1")
    gone = [(event.kind, event.key) for event in cluster.events() if isinstance(event, Delete)]
    assert gone == [("Pod", uid), ("PodGroup", "volcano:default/g"), ("Node", "n1")]


def test_only_what_a_scheduler_reads_makes_events() -> None:
    cluster = SimCluster()
    cluster.apply({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "muster"}})
    assert cluster.events() == []
    assert len(cluster.listed("Lease")) == 1


def test_a_restarted_scheduler_reads_everything_and_nothing_older() -> None:
    cluster = SimCluster()
    for manifest in (pod("b"), pod("a"), pod_group("g"), node()):
        cluster.apply(manifest)
    cluster.delete("Pod", "default", "b")
    kinds = [type(event.obj).__name__ for event in cluster.relist() if isinstance(event, Upsert)]
    assert kinds == ["Node", "PodGroup", "Pod"]
    assert cluster.events() == []
    cluster.apply(pod("c"))
    assert pods_in(cluster.events()) == ["c"]


def test_pods_of_other_schedulers_are_read_but_are_not_ours() -> None:
    cluster = SimCluster(scheduler_names=("one", "two"))
    for name in ("one", "two", "three"):
        cluster.apply(pod(name, spec={"schedulerName": name}))
    ours = {e.obj.name: e.obj.ours for e in cluster.events() if isinstance(e, Upsert) and isinstance(e.obj, Pod)}
    assert ours == {"one": True, "two": True, "three": False}


def test_a_kind_of_several_groups_is_found_where_its_name_is() -> None:
    cluster = SimCluster()
    cluster.apply(pod_group("g", flavour="volcano"))
    cluster.apply(pod_group("h", flavour="volcano"))
    cluster.apply(pod_group("h", flavour="native"))
    assert cluster.get("PodGroup", "default", "g") is not None
    with pytest.raises(BadManifest, match=r"write PodGroup\.scheduling\.volcano\.sh or PodGroup\.scheduling\.k8s\.io"):
        cluster.get("PodGroup", "default", "h")
    cluster.delete("PodGroup.scheduling.volcano.sh", "default", "h")
    assert found(cluster, "PodGroup", "h")["apiVersion"] == "scheduling.k8s.io/v1beta1"


def test_a_document_may_leave_out_the_group_of_a_pod_group() -> None:
    cluster = SimCluster()
    cluster.apply({"apiVersion": "v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 3}})
    (event,) = cluster.events()
    assert isinstance(event, Upsert)
    assert isinstance(event.obj, PodGroup)
    assert event.obj.key == "koordinator:default/g"


def test_a_pod_gets_the_number_of_its_priority_class() -> None:
    cluster = SimCluster()
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    cluster.apply({**kind, "metadata": {"name": "high"}, "value": 9, "preemptionPolicy": "Never"})
    cluster.apply({**kind, "metadata": {"name": "usual"}, "value": 5, "globalDefault": True})
    cluster.apply(pod("a", spec={"priorityClassName": "high"}))
    cluster.apply(pod("b"))
    cluster.apply(pod("c", spec={"priority": 7}))
    cluster.apply(pod("d", spec={"priorityClassName": "system-node-critical"}))
    pods = [e.obj for e in cluster.events() if isinstance(e, Upsert) and isinstance(e.obj, Pod)]
    assert [found.priority for found in pods] == [9, 5, 7, 2_000_001_000]
    assert pods[0].never_preempts


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({**pod(), "kind": "Pud"}, "kind: 'Pud' of 'v1' is unknown; write for example Pod"),
        (pod(spec={"priorityClassName": "none"}), "spec.priorityClassName: there is no PriorityClass 'none'"),
        (pod(run_seconds="long"), "metadata.annotations[sim.muster.dev/run-seconds]: 'long' is no number"),
        (pod(run_second="5"), "write for example sim.muster.dev/run-seconds"),
        (pod(controller="redo"), "'redo' is neither recreate nor none"),
        (pod(labels=["x"]), "metadata.labels: ['x'] is of the wrong type"),  # type: ignore[arg-type]
        (pod(spec={"tolerations": [{"effect": "NoWay"}]}), "spec.tolerations[0].effect: 'NoWay' is unknown"),
        ({**pod(), "spec": "x"}, "spec: 'x' is of the wrong type"),
        (node(taints=[{"key": "x"}]), "spec.taints[0].effect: None is unknown"),
        (pod(spec={"nodeSelector": {"x": "\ud800"}}), "holds text that is not Unicode"),
    ],
)
def test_a_bad_manifest_is_refused_with_its_field_and_changes_nothing(broken: dict[str, Any], says: str) -> None:
    cluster = SimCluster()
    with pytest.raises(BadManifest) as refused:
        cluster.apply(broken)
    assert says in str(refused.value)
    assert cluster.relist() == []


def test_a_bad_patch_is_refused_and_changes_nothing() -> None:
    cluster = SimCluster()
    before = cluster.apply(pod())
    with pytest.raises(BadManifest, match=r"metadata\.annotations"):
        cluster.patch("Pod", "default", "a", {"metadata": {"annotations": {"sim.muster.dev/termination-seconds": "-1"}}})
    with pytest.raises(NotFound, match="Pod default/b does not exist"):
        cluster.patch("Pod", "default", "b", {})
    with pytest.raises(BadManifest, match="kind: 'Pood' is unknown; write for example Pod"):
        cluster.get("Pood", "default", "a")
    assert found(cluster, "Pod", "a") == before


def test_an_object_that_cannot_be_read_is_remembered_and_stops_nobody() -> None:
    cluster = SimCluster()
    cluster.apply(pod("a"))
    cluster.apply(pod("b"))
    cluster.events()
    cluster.patch("Pod", "default", "a", {"spec": {"nodeSelector": {"x": "\ud800"}}})
    cluster.patch("Pod", "default", "b", {"metadata": {"labels": {"x": "y"}}})
    assert pods_in(cluster.events()) == ["b"]
    ((kind, name, why),) = cluster.rejected
    assert (kind, name) == ("Pod", "default/a")
    assert "not Unicode" in why
    assert pods_in(cluster.relist()) == ["b"]


def random_day(seed: int) -> tuple[list[Event], list[Any]]:
    """A day in which much goes wrong, with a scheduler that binds what it sees."""
    faults = FaultRates(seed=seed, delayed=0.2, dropped=0.2, duplicated=0.2, reordered=0.3, bind_failures=0.3)
    cluster = SimCluster(faults=faults)
    heard: list[Event] = []
    for i in range(3):
        cluster.apply(node(f"n{i}"))
    for i in range(12):
        cluster.apply(pod(f"p{i}", run_seconds=20 + i, controller="recreate", recreate_limit=2))
    for cycle in range(20):
        heard.extend(cluster.events())
        waiting = [found["metadata"]["name"] for found in cluster.listed("Pod") if "nodeName" not in found["spec"]]
        cluster.execute([bind(cluster, name, to=f"n{i % 3}") for i, name in enumerate(waiting)])
        if cycle == 5:
            cluster.fail_node("n1")
        if cycle == 9:
            cluster.recover_node("n1")
            cluster.execute([evict(cluster, "p3")] if cluster.get("Pod", "default", "p3") else [])
        cluster.advance(7)
    return heard, [cluster.listed(kind) for kind in ("Pod", "Node")]


def test_the_same_seed_gives_the_same_run() -> None:
    assert random_day(1) == random_day(1)
    assert random_day(1) != random_day(2)


def test_a_scheduler_runs_on_it_from_submission_to_end() -> None:
    cluster = SimCluster()
    cluster.apply(node("n1", cpu=4))
    cluster.apply(pod_group("g", min_member=4))
    for i in range(4):
        cluster.apply(pod(f"g-{i}", gang="g", run_seconds=60))
    scheduler = Scheduler(Policy([Fit()], ["expire", "enqueue", "allocate"]))
    outcome = step(scheduler, cluster, cluster.now)
    assert sum(isinstance(effect, Bind) for effect in outcome.effects) == 4
    cluster.advance(61)
    assert {found["status"]["phase"] for found in cluster.listed("Pod")} == {"Succeeded"}
