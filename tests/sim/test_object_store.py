"""The memory of the API server: names, UIDs, versions, patches and deletions."""

from __future__ import annotations

import pytest
from tests.sim.sim_manifests import node, pod, pod_group

from muster.kube.read.object_references import NODE, POD, ApiObjectRef
from muster.kube.write.merge_patch import merged
from muster.sim.api_kinds import BadManifest, ref_of
from muster.sim.object_store import ChangeType, Conflict, NotFound, ObjectStore
from muster.sim.virtual_clock import VIRTUAL_START, VirtualClock

A = ApiObjectRef(*POD, "default", "a")


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore(VirtualClock())


def test_what_the_server_sets_is_set_on_creation(store: ObjectStore) -> None:
    made = store.create(pod())
    assert made["metadata"]["uid"]
    assert made["metadata"]["resourceVersion"] == "1"
    assert made["metadata"]["generation"] == 1
    assert made["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"


def test_a_name_exists_once_in_its_kind_and_namespace(store: ObjectStore) -> None:
    store.create(pod())
    store.create(pod(namespace="other"))
    store.create(pod_group("a", flavour="volcano"))
    store.create(pod_group("a", flavour="koordinator"))
    with pytest.raises(Conflict, match="Pod default/a exists already"):
        store.create(pod())


def test_a_uid_is_never_used_twice(store: ObjectStore) -> None:
    uids = set()
    for _ in range(3):
        uids.add(store.create(pod())["metadata"]["uid"])
        store.delete(A)
    assert len(uids) == 3


def test_a_uid_that_a_manifest_brings_is_kept_unless_it_was_used(store: ObjectStore) -> None:
    brought = pod()
    brought["metadata"]["uid"] = "mine"
    assert store.create(brought)["metadata"]["uid"] == "mine"
    store.delete(A)
    assert store.create(brought)["metadata"]["uid"] != "mine"


def test_what_is_handed_out_is_not_what_is_stored(store: ObjectStore) -> None:
    given = pod(labels={"x": "1"})
    store.create(given)
    given["metadata"]["labels"]["x"] = "2"
    store.get(A)["metadata"]["labels"]["x"] = "3"
    store.listed(POD)[0]["metadata"]["labels"]["x"] = "4"
    assert store.get(A)["metadata"]["labels"] == {"x": "1"}


def test_the_log_keeps_each_version_as_it_was(store: ObjectStore) -> None:
    store.create(pod(labels={"x": "1"}))
    store.patch(A, {"metadata": {"labels": {"x": "2"}}})
    store.delete(A)
    changes = store.drain()
    assert [change.what for change in changes] == [ChangeType.ADDED, ChangeType.MODIFIED, ChangeType.DELETED]
    assert [change.manifest["metadata"]["labels"]["x"] for change in changes] == ["1", "2", "2"]
    assert [change.manifest["metadata"]["resourceVersion"] for change in changes] == ["1", "2", "3"]
    assert store.drain() == []


def test_a_patch_that_changes_nothing_makes_no_version(store: ObjectStore) -> None:
    store.create(pod(labels={"x": "1"}))
    store.drain()
    before = store.get(A)
    store.patch(A, {"metadata": {"labels": {"x": "1", "y": None}, "annotations": {"z": None}}, "status": {"gone": None}})
    assert store.get(A) == before
    assert store.drain() == []


def test_a_new_spec_is_a_new_generation_a_new_status_is_not(store: ObjectStore) -> None:
    store.create(pod())
    assert store.patch(A, {"status": {"phase": "Running"}})["metadata"]["generation"] == 1
    assert store.patch(A, {"spec": {"nodeName": "n1"}})["metadata"]["generation"] == 2


def test_a_patch_cannot_change_who_an_object_is(store: ObjectStore) -> None:
    made = store.create(pod())
    changed = store.patch(
        A, {"metadata": {"uid": "x", "name": "b", "creationTimestamp": "2020-01-01T00:00:00Z", "labels": {"k": "v"}}}
    )
    for field in ("uid", "name", "creationTimestamp"):
        assert changed["metadata"][field] == made["metadata"][field]


def test_a_deletion_meant_for_another_pod_of_that_name_is_refused(store: ObjectStore) -> None:
    first = store.create(pod())["metadata"]["uid"]
    store.delete(A, uid=first)
    store.create(pod())
    with pytest.raises(Conflict, match="is now another one"):
        store.delete(A, uid=first)
    with pytest.raises(NotFound, match="Pod default/b does not exist"):
        store.delete(ApiObjectRef(*POD, "default", "b"))


def test_a_bound_pod_is_given_its_grace_period_and_a_shorter_one_counts() -> None:
    store = ObjectStore(VirtualClock(start=VIRTUAL_START + 0.5))
    store.create(pod(at="n1", spec={"terminationGracePeriodSeconds": 60}))
    store.delete(A)
    assert store.get(A)["metadata"]["deletionTimestamp"] == "2026-01-01T00:01:00Z"
    assert store.get(A)["metadata"]["deletionGracePeriodSeconds"] == 60
    store.delete(A, grace_s=90)
    assert store.get(A)["metadata"]["deletionGracePeriodSeconds"] == 60
    store.delete(A, grace_s=5)
    assert store.get(A)["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:05Z"
    store.delete(A, grace_s=0)
    assert store.peek(A) is None


@pytest.mark.parametrize("ended", ["Succeeded", "Failed"])
def test_a_pod_that_runs_nowhere_goes_at_once(store: ObjectStore, ended: str) -> None:
    store.create(pod())
    store.delete(A)
    assert store.peek(A) is None
    store.create(pod(at="n1") | {"status": {"phase": ended}})
    store.delete(A)
    assert store.peek(A) is None


def test_a_finalizer_keeps_an_object_until_it_is_removed(store: ObjectStore) -> None:
    kept = node()
    kept["metadata"]["finalizers"] = ["example.com/wait"]
    store.create(kept)
    ref = ApiObjectRef(*NODE, "", "n1")
    store.delete(ref)
    assert store.get(ref)["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
    store.patch(ref, {"metadata": {"finalizers": None}})
    assert store.peek(ref) is None
    assert store.drain()[-1].what is ChangeType.DELETED


def test_annotations_are_texts_whatever_was_written(store: ObjectStore) -> None:
    store.create(pod(annotations={"n": 4, "l": ["a/x"], "b": True, "t": "text"}))
    assert store.get(A)["metadata"]["annotations"] == {"n": "4", "l": '["a/x"]', "b": "true", "t": "text"}


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({}, "kind: None is no kind"),
        ({"kind": "Pod"}, "apiVersion: None of the Pod"),
        ({"apiVersion": "v1", "kind": "Pods"}, "kind: 'Pods' of 'v1' is unknown; write for example Pod"),
        ({"apiVersion": "v2/x", "kind": "Queue"}, "write for example Queue of scheduling.volcano.sh"),
        ({"apiVersion": "v1", "kind": "Pod"}, "metadata: the Pod has none"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {}}, "metadata.name: None of the Pod"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": 7}}, "metadata.namespace: 7 of Pod a"),
    ],
)
def test_a_manifest_without_an_identity_is_refused_by_its_field(broken: dict[str, object], says: str) -> None:
    with pytest.raises(BadManifest) as refused:
        ref_of(broken)
    assert says in str(refused.value)


def test_a_namespace_is_default_where_none_is_given_and_none_where_there_are_none() -> None:
    namespaced = pod()
    del namespaced["metadata"]["namespace"]
    assert ref_of(namespaced).full_name == "default/a"
    misplaced = node()
    misplaced["metadata"]["namespace"] = "x"
    assert ref_of(misplaced).full_name == "n1"


def test_a_merge_patch_shares_what_it_does_not_touch() -> None:
    old = {"spec": {"a": [1, 2]}, "status": {"x": {"y": 1}}}
    new = merged(old, {"status": {"x": {"z": 2}}})
    assert new == {"spec": {"a": [1, 2]}, "status": {"x": {"y": 1, "z": 2}}}
    assert new["spec"] is old["spec"]
    assert old["status"] == {"x": {"y": 1}}
    assert merged(old, {"status": {"x": {"y": None}}}) == {"spec": {"a": [1, 2]}, "status": {"x": {}}}
    assert merged(old, {"status": None}) == {"spec": {"a": [1, 2]}}
