"""What a live cluster needs of an effect beyond the patches that the stories show."""

from __future__ import annotations

from muster.kube.write import patch_bodies
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


def test_a_gang_key_is_named_after_its_pod_group() -> None:
    assert patch_bodies.pod_group_of_gang_key("volcano:team/g") == ("scheduling.volcano.sh", "team", "g")
    assert patch_bodies.pod_group_of_gang_key("koordinator:team/g") == ("scheduling.sigs.k8s.io", "team", "g")
    assert patch_bodies.pod_group_of_gang_key("sigs:team/g") == ("scheduling.x-k8s.io", "team", "g")
    assert patch_bodies.pod_group_of_gang_key("native:team/g") == ("scheduling.k8s.io", "team", "g")
    assert patch_bodies.pod_group_of_gang_key("pod:0000-1") is None
