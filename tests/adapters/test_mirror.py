"""What a writer knows of objects: never an older version than it has seen, and never more than it needs."""

import json
from typing import Any

from muster.adapters.kube.mirror import Mirror
from muster.adapters.kube.reflector import What
from muster.adapters.kube.refs import POD, Ref, pod_ref

A = pod_ref("default/a")


def pod(version: int, *, uid: str = "u", **more: Any) -> bytes:
    metadata = {"name": "a", "namespace": "default", "uid": uid, "resourceVersion": str(version), **more.pop("metadata", {})}
    return json.dumps({"metadata": metadata, "spec": {}, "status": {}, **more}).encode()


def seen(*pods: bytes) -> Mirror:
    mirror = Mirror()
    for one in pods:
        mirror.take(POD, What.SEEN, one)
    return mirror


def peek(mirror: Mirror) -> Any:
    return mirror.peek(A)


def test_of_a_pod_only_what_we_write_is_kept() -> None:
    ours = {"muster.dev/claim": "{}", "team": "x"}
    labels = {"scheduling.koordinator.sh/soft-eviction": "true", "app": "y"}
    said = [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "False", "reason": "r", "message": "m"}]
    status = {"phase": "Pending", "nominatedNodeName": "n", "conditions": said, "podIP": "::1"}
    shown = peek(seen(pod(7, metadata={"annotations": ours, "labels": labels}, status=status)))
    assert shown == {
        "metadata": {
            "uid": "u",
            "resourceVersion": "7",
            "labels": {"scheduling.koordinator.sh/soft-eviction": "true"},
            "annotations": {"muster.dev/claim": "{}"},
        },
        "spec": {},
        "status": {"phase": "Pending", "nominatedNodeName": "n", "conditions": said[1:]},
    }


def test_an_answer_that_overtook_the_watch_is_not_undone_by_it() -> None:
    mirror = seen(pod(1))
    mirror.learn(POD, pod(5, status={"nominatedNodeName": "n"}))
    mirror.take(POD, What.SEEN, pod(3))
    assert peek(mirror)["status"]["nominatedNodeName"] == "n"
    assert mirror.version_of(A) == "5"


def test_a_bind_and_an_eviction_that_no_watch_showed_yet_are_known() -> None:
    mirror = seen(pod(1))
    mirror.note_bound(A, uid="u", node="n")
    mirror.note_leaving(A, uid="u")
    mirror.take(POD, What.SEEN, pod(2))
    assert peek(mirror)["spec"]["nodeName"] == "n"
    assert peek(mirror)["metadata"]["deletionTimestamp"]


def test_another_pod_of_the_same_name_starts_afresh() -> None:
    mirror = seen(pod(1))
    mirror.note_bound(A, uid="u", node="n")
    mirror.take(POD, What.SEEN, pod(9, uid="v"))
    assert peek(mirror)["spec"] == {}
    mirror.note_bound(A, uid="u", node="n")
    assert peek(mirror)["spec"] == {}


def test_what_is_gone_stays_gone_whatever_is_answered_late() -> None:
    mirror = seen(pod(1))
    mirror.take(POD, What.GONE, pod(2))
    mirror.learn(POD, pod(3))
    assert mirror.peek(A) is None
    assert len(mirror) == 0


def test_the_farewell_of_an_older_pod_does_not_take_the_newer_one_away() -> None:
    mirror = seen(pod(5, uid="v"))
    mirror.take(POD, What.GONE, pod(2, uid="u"))
    mirror.forget(A, uid="u")
    assert mirror.uid_of(A) == "v"


def test_of_other_kinds_it_is_enough_to_know_who_they_are() -> None:
    mirror = Mirror()
    head = mirror.take(("", "Namespace"), What.SEEN, json.dumps({"metadata": {"name": "x", "uid": "u"}}).encode())
    assert head.ref == Ref("", "Namespace", "", "x")
    assert len(mirror) == 0


def test_a_custom_object_with_nonsense_for_a_status_is_still_known() -> None:
    mirror, kind = Mirror(), ("scheduling.volcano.sh", "PodGroup")
    metadata = {"name": "g", "namespace": "default", "uid": "u", "resourceVersion": "3"}
    head = mirror.take(kind, What.SEEN, json.dumps({"metadata": metadata, "status": "fine"}).encode())
    shown = mirror.peek(head.ref)
    assert shown is not None
    assert shown["status"] == {}
