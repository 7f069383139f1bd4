"""What a writer knows of objects: never an older version than it has seen, and never more than it needs."""

import json
from typing import Any

from tests.kube_write.watch_updates import watch_update

from muster.kube.read.object_references import POD, pod_ref
from muster.kube.watch.object_tracker import UpdateType
from muster.kube.write.write_cache import WriteCache

A = pod_ref("default/a")


def pod(version: int, *, uid: str = "u", **more: Any) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "default", "uid": uid, "resourceVersion": str(version), **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": {}, "status": {}, **more}


def cache_with(*pods: dict[str, Any]) -> WriteCache:
    cache = WriteCache()
    for one in pods:
        cache.apply_watch(watch_update(POD, one))
    return cache


def peek(cache: WriteCache) -> Any:
    return cache.peek(A)


def test_of_a_pod_only_the_fields_that_we_write_are_kept() -> None:
    ours = {"volcano.sh/pipelined-node": "n", "team": "x"}
    labels = {"scheduling.koordinator.sh/soft-eviction": "true", "app": "y"}
    problem_text = [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "False", "reason": "r", "message": "m"}]
    status = {"phase": "Pending", "nominatedNodeName": "n", "conditions": problem_text, "podIP": "::1"}
    shown = peek(cache_with(pod(7, metadata={"annotations": ours, "labels": labels}, status=status)))
    assert shown == {
        "metadata": {
            "uid": "u",
            "resourceVersion": "7",
            "labels": {"scheduling.koordinator.sh/soft-eviction": "true"},
            "annotations": {"volcano.sh/pipelined-node": "n"},
        },
        "spec": {},
        "status": {"phase": "Pending", "nominatedNodeName": "n", "conditions": problem_text[1:]},
    }


def test_an_answer_that_overtook_the_watch_is_not_undone_by_it() -> None:
    cache = cache_with(pod(1))
    cache.apply_response(A, json.dumps(pod(5, status={"nominatedNodeName": "n"})).encode())
    cache.apply_watch(watch_update(POD, pod(3)))
    assert peek(cache)["status"]["nominatedNodeName"] == "n"
    assert cache.version_of(A) == "5"


def test_a_bind_and_an_eviction_that_no_watch_showed_yet_are_known() -> None:
    cache = cache_with(pod(1))
    cache.mark_bound(A, uid="u", node="n")
    cache.mark_terminating(A, uid="u")
    cache.apply_watch(watch_update(POD, pod(2)))
    assert peek(cache)["spec"]["nodeName"] == "n"
    assert peek(cache)["metadata"]["deletionTimestamp"]


def test_another_pod_of_the_same_name_starts_afresh() -> None:
    cache = cache_with(pod(1))
    cache.mark_bound(A, uid="u", node="n")
    cache.apply_watch(watch_update(POD, pod(9, uid="v")))
    assert peek(cache)["spec"] == {}
    cache.mark_bound(A, uid="u", node="n")
    assert peek(cache)["spec"] == {}


def test_a_deleted_object_stays_deleted_whatever_answer_comes_late() -> None:
    cache = cache_with(pod(1))
    cache.apply_watch(watch_update(POD, pod(2), UpdateType.DELETE))
    cache.apply_response(A, json.dumps(pod(3)).encode())
    assert cache.peek(A) is None
    assert len(cache) == 0


def test_the_deletion_of_an_older_pod_does_not_remove_the_newer_one() -> None:
    cache = cache_with(pod(5, uid="v"))
    cache.apply_watch(watch_update(POD, pod(2, uid="u"), UpdateType.DELETE))
    cache.forget(A, uid="u")
    assert cache.uid_of(A) == "v"


def test_objects_of_other_kinds_are_not_kept() -> None:
    cache = WriteCache()
    cache.apply_watch(watch_update(("", "Namespace"), {"metadata": {"name": "x", "uid": "u"}}))
    assert len(cache) == 0


def test_a_custom_object_with_nonsense_for_a_status_is_still_known() -> None:
    cache, kind = WriteCache(), ("scheduling.volcano.sh", "PodGroup")
    metadata = {"name": "g", "namespace": "default", "uid": "u", "resourceVersion": "3"}
    update = watch_update(kind, {"metadata": metadata, "status": "fine"})
    cache.apply_watch(update)
    shown = cache.peek(update.ref)
    assert shown is not None
    assert shown["status"] == {}
