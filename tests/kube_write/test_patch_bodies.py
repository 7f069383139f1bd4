"""What a live cluster needs of an effect beyond the patches that the scenarios show."""

from __future__ import annotations

import pytest

from muster.kube.read.object_references import ApiObjectRef
from muster.kube.write import patch_bodies
from muster.kube.write.status_updates import pod_group_refs
from muster.model.effects import Bind, QueueStatus


def test_a_binding_names_the_pod_by_its_uid_too() -> None:
    assert patch_bodies.binding(Bind("u1", "team/a", "n1", "team/g", "it fits"), now=0.0) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", "namespace": "team", "uid": "u1"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


def test_a_queue_always_says_what_is_allocated_and_a_quota_never() -> None:
    idle = (("running", "0"), ("state", "Open"))
    status = patch_bodies.queue_status(QueueStatus("queue/a", idle), present={"allocated": {"cpu": "4"}})["status"]
    assert status == {"allocated": {"cpu": None}, "running": 0, "state": "Open"}
    assert patch_bodies.queue_status(QueueStatus("queue/a", idle), present={})["status"]["allocated"] == {}
    assert "allocated" not in patch_bodies.queue_status(QueueStatus("quota/team/a", (("used.cpu", "1"),)), present={})["status"]


@pytest.mark.parametrize(
    ("family", "api_group"),
    [
        ("volcano", "scheduling.volcano.sh"),
        ("koordinator", "scheduling.sigs.k8s.io"),
        ("sigs", "scheduling.x-k8s.io"),
        ("native", "scheduling.k8s.io"),
    ],
)
def test_a_gang_key_is_named_after_its_pod_group(family: str, api_group: str) -> None:
    ref = ApiObjectRef(api_group, "PodGroup", "team", "g")
    assert pod_group_refs(f"{family}:team/g") == [ref]
    assert ref in pod_group_refs("team/g")


def test_a_single_pod_has_no_pod_group() -> None:
    assert pod_group_refs("pod:0000-1") == []
