"""What is checked before an effect is written."""

from typing import Any

import pytest

from muster.kube.read.object_references import ApiObjectRef, ManifestView, pod_ref
from muster.kube.write.effect_writes import check_bind, volume_conflict
from muster.model.effects import Bind
from muster.model.volume import VolumeChoice

BIND = Bind("a", "default/a", "n", "default/a", "w")


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
