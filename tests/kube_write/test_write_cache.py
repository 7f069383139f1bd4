"""What a writer knows of objects: never an older version than it has seen, and never more than it needs."""

import json
from typing import Any

from muster.kube.read.object_references import POD, ApiObjectRef, pod_ref
from muster.kube.watch.reflector import UpdateType
from muster.kube.write.write_cache import WriteCache

A = pod_ref("default/a")


def pod(version: int, *, uid: str = "u", **more: Any) -> bytes:
    metadata = {"name": "a", "namespace": "default", "uid": uid, "resourceVersion": str(version), **more.pop("metadata", {})}
    return json.dumps({"metadata": metadata, "spec": {}, "status": {}, **more}).encode()


def cache_with(*pods: bytes) -> WriteCache:
    cache = WriteCache()
    for one in pods:
        cache.apply_watch(POD, UpdateType.UPSERT, one)
    return cache


def peek(cache: WriteCache) -> Any:
    return cache.peek(A)


def test_of_a_pod_only_the_fields_that_we_write_are_kept() -> None:
    ours = {"muster.dev/claim": "{}", "team": "x"}
    labels = {"scheduling.koordinator.sh/soft-eviction": "true", "app": "y"}
    problem_text = [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "False", "reason": "r", "message": "m"}]
    status = {"phase": "Pending", "nominatedNodeName": "n", "conditions": problem_text, "podIP": "::1"}
    shown = peek(cache_with(pod(7, metadata={"annotations": ours, "labels": labels}, status=status)))
    assert shown == {
        "metadata": {
            "uid": "u",
            "resourceVersion": "7",
            "labels": {"scheduling.koordinator.sh/soft-eviction": "true"},
            "annotations": {"muster.dev/claim": "{}"},
        },
        "spec": {},
        "status": {"phase": "Pending", "nominatedNodeName": "n", "conditions": problem_text[1:]},
    }


def test_an_answer_that_overtook_the_watch_is_not_undone_by_it() -> None:
    cache = cache_with(pod(1))
    cache.apply_response(POD, pod(5, status={"nominatedNodeName": "n"}))
    cache.apply_watch(POD, UpdateType.UPSERT, pod(3))
    assert peek(cache)["status"]["nominatedNodeName"] == "n"
    assert cache.version_of(A) == "5"


def test_a_bind_and_an_eviction_that_no_watch_showed_yet_are_known() -> None:
    cache = cache_with(pod(1))
    cache.mark_bound(A, uid="u", node="n")
    cache.mark_terminating(A, uid="u")
    cache.apply_watch(POD, UpdateType.UPSERT, pod(2))
    assert peek(cache)["spec"]["nodeName"] == "n"
    assert peek(cache)["metadata"]["deletionTimestamp"]


def test_another_pod_of_the_same_name_starts_afresh() -> None:
    cache = cache_with(pod(1))
    cache.mark_bound(A, uid="u", node="n")
    cache.apply_watch(POD, UpdateType.UPSERT, pod(9, uid="v"))
    assert peek(cache)["spec"] == {}
    cache.mark_bound(A, uid="u", node="n")
    assert peek(cache)["spec"] == {}


def test_a_deleted_object_stays_deleted_whatever_answer_comes_late() -> None:
    cache = cache_with(pod(1))
    cache.apply_watch(POD, UpdateType.DELETE, pod(2))
    cache.apply_response(POD, pod(3))
    assert cache.peek(A) is None
    assert len(cache) == 0


def test_the_deletion_of_an_older_pod_does_not_remove_the_newer_one() -> None:
    cache = cache_with(pod(5, uid="v"))
    cache.apply_watch(POD, UpdateType.DELETE, pod(2, uid="u"))
    cache.forget(A, uid="u")
    assert cache.uid_of(A) == "v"


def test_of_other_kinds_it_is_enough_to_know_who_they_are() -> None:
    cache = WriteCache()
    head = cache.apply_watch(("", "Namespace"), UpdateType.UPSERT, json.dumps({"metadata": {"name": "x", "uid": "u"}}).encode())
    assert head.ref == ApiObjectRef("", "Namespace", "", "x")
    assert len(cache) == 0


def test_a_custom_object_with_nonsense_for_a_status_is_still_known() -> None:
    cache, kind = WriteCache(), ("scheduling.volcano.sh", "PodGroup")
    metadata = {"name": "g", "namespace": "default", "uid": "u", "resourceVersion": "3"}
    head = cache.apply_watch(kind, UpdateType.UPSERT, json.dumps({"metadata": metadata, "status": "fine"}).encode())
    shown = cache.peek(head.ref)
    assert shown is not None
    assert shown["status"] == {}
