"""From effects to patches: what is checked before a write, and which object gets which status update."""

from collections.abc import Sequence
from typing import Any

import pytest

from muster.kube.read.object_references import ApiObjectRef, ManifestView, pod_ref
from muster.kube.write.patch_builder import (
    StatusWrite,
    check_bind,
    status_key,
    status_patch,
    status_writes,
    volume_conflict,
)
from muster.model.effects import Bind, Condition, PodGroupStatus, QueueStatus
from muster.model.volume import VolumeChoice

MEMBERS = {"default/g": ["default/a", "default/b"], "default/h": ["default/c"]}


def gang_pods(gang_key: str) -> Sequence[ApiObjectRef]:
    return [pod_ref(name) for name in MEMBERS.get(gang_key.partition(":")[2] or gang_key, [])]


BIND = Bind("a", "default/a", "n", "default/a", "w")
STATUS = PodGroupStatus("volcano:default/g", "Running")


class ObjectReader:
    def __init__(self, **pods: dict[str, Any]) -> None:
        self.known: dict[ApiObjectRef, ManifestView] = {ApiObjectRef("", "Node", "", "n"): {"metadata": {"uid": "n"}}}
        for name, more in pods.items():
            pod = {"metadata": {"uid": name, **more.get("metadata", {})}, "spec": more.get("spec", {}), "status": {}}
            self.known[pod_ref(f"default/{name}")] = pod

    def peek(self, ref: ApiObjectRef) -> ManifestView | None:
        return self.known.get(ref)


@pytest.mark.parametrize(
    ("pod", "bound", "says"),
    [
        ({}, False, ""),
        ({"spec": {"nodeName": "n"}}, True, ""),
        ({"spec": {"nodeName": "m"}}, True, "is bound to m already"),
        ({"metadata": {"uid": "other"}}, False, "is gone"),
        ({"metadata": {"deletionTimestamp": "now"}}, False, "is being deleted"),
        ({"spec": {"schedulingGates": [{"name": "g"}]}}, False, "has scheduling gates"),
    ],
)
def test_a_bind_is_checked_before_it_is_written(pod: dict[str, Any], bound: bool, says: str) -> None:
    cache_with = check_bind(BIND, ObjectReader(a=pod))
    assert (cache_with.bound, bool(cache_with.why)) == (bound, bool(says))
    assert says in cache_with.why


def test_no_pod_is_bound_to_a_deleted_node() -> None:
    objects = ObjectReader(a={})
    objects.known.pop(ApiObjectRef("", "Node", "", "n"))
    assert "node n is gone" in check_bind(BIND, objects).why


def test_a_volume_that_went_to_another_volume_claim_is_refused() -> None:
    objects, choice = ObjectReader(), VolumeChoice("default/c", "pv")
    assert "claim default/c is gone" in volume_conflict(choice, objects)
    objects.known[ApiObjectRef("", "PersistentVolumeClaim", "default", "c")] = {"spec": {}}
    assert "volume pv is gone" in volume_conflict(choice, objects)
    objects.known[ApiObjectRef("", "PersistentVolume", "", "pv")] = {"spec": {"claimRef": {"namespace": "default", "name": "d"}}}
    assert "went to claim default/d" in volume_conflict(choice, objects)
    objects.known[ApiObjectRef("", "PersistentVolume", "", "pv")] = {"spec": {"claimRef": {"namespace": "default", "name": "c"}}}
    assert volume_conflict(choice, objects) == ""


def object_names(update: Condition | PodGroupStatus | QueueStatus) -> list[str]:
    return [f"{one.ref.kind}.{one.ref.group} {one.ref.full_name}" for one in status_writes(update, gang_pods=gang_pods)]


def test_which_object_gets_which_status_update() -> None:
    refusal = Condition("gang", "koordinator:default/g+koordinator:default/h", ok=False, code="InsufficientCapacity", why="w")
    group = "PodGroup.scheduling.sigs.k8s.io default"
    assert object_names(refusal) == [f"{group}/g", "Pod. default/a", "Pod. default/b", f"{group}/h", "Pod. default/c"]
    all_well = Condition("gang", "koordinator:default/g", ok=True, code="Scheduled", why="w")
    assert object_names(all_well) == [f"{group}/g"]
    assert object_names(Condition("node", "n", ok=False, code="Invalid", why="w")) == ["Node. n"]
    assert len(object_names(QueueStatus("quota/default/q", ()))) == 2
    with pytest.raises(ValueError, match="no status to write for a moon"):
        object_names(Condition("moon", "m", ok=False, code="x", why="w"))


def test_of_one_topic_the_newer_status_update_replaces_the_older() -> None:
    ref = pod_ref("default/a")
    scheduling = StatusWrite(ref, Condition("gang", "default/g", ok=False, code="InsufficientCapacity", why="w"))
    fields = StatusWrite(ref, Condition("gang", "default/g", ok=False, code="Invalid", why="w"))
    assert [status_key(scheduling), status_key(fields), status_key(StatusWrite(ref, STATUS))] == [
        "scheduling",
        "validity",
        "status",
    ]


def test_only_a_waiting_object_is_reported_as_waiting() -> None:
    status_write = StatusWrite(pod_ref("default/a"), Condition("pod", "default/a", ok=False, code="InsufficientCapacity", why="w"))
    waiting: ManifestView = {"metadata": {}, "spec": {}, "status": {}}
    assert status_patch(status_write, waiting, now=0.0) is not None
    assert status_patch(status_write, {**waiting, "spec": {"nodeName": "n"}}, now=0.0) is None
    assert status_patch(status_write, {**waiting, "spec": {"schedulingGates": [{}]}}, now=0.0) is None


@pytest.mark.parametrize("status", ["fine", {"conditions": "fine"}, {"conditions": ["fine", 7, None]}, None])
def test_an_invalid_status_is_overwritten(status: Any) -> None:
    ref = ApiObjectRef("scheduling.volcano.sh", "PodGroup", "default", "g")
    refused = StatusWrite(ref, Condition("gang", "volcano:default/g", ok=False, code="InsufficientCapacity", why="w"))
    patch = status_patch(refused, {"metadata": {}, "spec": {}, "status": status}, now=0.0)
    assert patch is not None
    assert [one["type"] for one in patch["status"]["conditions"]] == ["Unschedulable"]
    figures = StatusWrite(
        ApiObjectRef("scheduling.volcano.sh", "Queue", "", "q"), QueueStatus("queue/q", (("allocated.cpu", "1"),))
    )
    assert status_patch(figures, {"status": status}, now=0.0) == {"status": {"allocated": {"cpu": "1"}}}
