"""What a live cluster needs of an effect beyond the patches that the stories show."""

from __future__ import annotations

from muster.adapters.kube import encode
from muster.model.effects import Bind, QueueStatus


def test_a_binding_names_the_pod_by_its_uid_too() -> None:
    assert encode.binding(Bind("u1", "team/a", "n1", "team/g", "it fits"), now=0.0) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", "namespace": "team", "uid": "u1"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


def test_a_queue_always_says_what_is_allocated_and_a_quota_never() -> None:
    idle = (("running", "0"), ("state", "Open"))
    status = encode.queue_status(QueueStatus("queue/a", idle), present={"allocated": {"cpu": "4"}})["status"]
    assert status == {"allocated": {"cpu": None}, "running": 0, "state": "Open"}
    assert encode.queue_status(QueueStatus("queue/a", idle), present={})["status"]["allocated"] == {}
    assert "allocated" not in encode.queue_status(QueueStatus("quota/team/a", (("used.cpu", "1"),)), present={})["status"]


def test_a_slot_is_named_after_its_pod_group() -> None:
    assert encode.group_of_slot("volcano:team/g") == ("scheduling.volcano.sh", "team", "g")
    assert encode.group_of_slot("koordinator:team/g") == ("scheduling.sigs.k8s.io", "team", "g")
    assert encode.group_of_slot("sigs:team/g") == ("scheduling.x-k8s.io", "team", "g")
    assert encode.group_of_slot("native:team/g") == ("scheduling.k8s.io", "team", "g")
    assert encode.group_of_slot("pod:0000-1") is None
