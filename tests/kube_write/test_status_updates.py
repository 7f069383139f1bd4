"""Which object gets which status update, and how it changes the object."""

from collections.abc import Sequence
from typing import Any

import pytest

from muster.kube.read.object_references import ApiObjectRef, ManifestView, pod_ref
from muster.kube.write.status_updates import StatusWrite, status_key, status_patch, status_writes
from muster.model.effects import Condition, PodGroupStatus, QueueStatus

MEMBERS = {"default/g": ["default/a", "default/b"], "default/h": ["default/c"]}


def gang_pods(gang_key: str) -> Sequence[ApiObjectRef]:
    return [pod_ref(name) for name in MEMBERS.get(gang_key.partition(":")[2] or gang_key, [])]


STATUS = PodGroupStatus("volcano:default/g", "Running")


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
