"""What a decoded pod carries beside its request and its gang."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.kube_read.manifests import Manifest, as_json, bad_fields, pod_manifest, problem_text, read, read_pod

from muster.kube.read.decoder import Decoder
from muster.model.pod import Pod, PodStatusPhase

NOON = "2026-03-01T12:00:00Z"
NOON_S = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


def test_a_whole_pod_is_read() -> None:
    pod = read_pod(
        name="a",
        namespace="team",
        labels={"app": "x"},
        annotations={"volcano.sh/preemptable": "false", "somebody.else/key": "value"},
        resourceVersion="42",
        creationTimestamp=NOON,
        deletionTimestamp="2026-03-01T12:00:30Z",
        deletionGracePeriodSeconds=30,
        spec={
            "nodeName": "n1",
            "priority": 9,
            "priorityClassName": "high",
            "preemptionPolicy": "Never",
            "schedulingGates": [{"name": "wait"}],
        },
        status={"phase": "Running", "startTime": "2026-03-01T12:00:01Z", "nominatedNodeName": "n2"},
    )
    assert (pod.uid, pod.full_name, pod.version, pod.created) == ("uid-a", "team/a", 42, NOON_S)
    assert (pod.labels, pod.annotations) == ({"app": "x"}, {"volcano.sh/preemptable": "false"})
    assert (pod.priority, pod.priority_class, pod.never_preempts, pod.gates) == (9, "high", True, ("wait",))
    assert (pod.node, pod.nominated_node, pod.status_phase, pod.started) == ("n1", "n2", PodStatusPhase.RUNNING, NOON_S + 1)
    assert pod.deleted_at == NOON_S + 30
    assert (pod.membership, pod.queue, pod.protected, pod.pipelined_node, pod.timed_out, pod.problems) == (
        None,
        "",
        "",
        "",
        False,
        (),
    )


def test_an_empty_pod_is_a_pending_pod_without_priority() -> None:
    pod = read({"kind": "Pod", "metadata": {"name": "p"}}, wanted=Pod)
    assert pod.full_name == "default/p"
    assert (pod.uid, pod.created, pod.version, pod.priority) == ("default/p", 0.0, 0, 0)
    assert (pod.node, pod.nominated_node, pod.started, pod.deleted_at) == (None, None, None, None)
    assert (pod.status_phase, pod.signature.request.items, pod.problems) == (PodStatusPhase.PENDING, (("pods", 1),), ())


@pytest.mark.parametrize(("scheduler", "ours"), [("muster", True), ("night", True), ("default-scheduler", False), (None, False)])
def test_a_pod_is_ours_when_it_names_one_of_our_schedulers(scheduler: str | None, ours: bool) -> None:
    manifest = pod_manifest(spec={"schedulerName": scheduler})
    pod = Decoder(("muster", "night")).decode(manifest)
    assert isinstance(pod, Pod)
    assert pod.ours is ours
    assert pod.problems == ()


def test_a_pod_without_a_scheduler_name_is_the_default_schedulers() -> None:
    pod = Decoder(("default-scheduler",)).decode({"kind": "Pod", "metadata": {"name": "p"}})
    assert isinstance(pod, Pod)
    assert pod.ours


PHASES = {
    "Pending": PodStatusPhase.PENDING,
    "Running": PodStatusPhase.RUNNING,
    "Succeeded": PodStatusPhase.SUCCEEDED,
    "Failed": PodStatusPhase.FAILED,
}


@pytest.mark.parametrize(("phase", "running"), [*PHASES.items(), ("Unknown", PodStatusPhase.RUNNING), ("", PodStatusPhase.PENDING)])
def test_the_phase_of_a_pod_is_read(phase: str, running: PodStatusPhase) -> None:
    assert read_pod(status={"phase": phase}).status_phase is running


def test_an_unknown_phase_is_named() -> None:
    pod = read_pod(status={"phase": "Sleeping"})
    assert (pod.status_phase, bad_fields(pod)) == (PodStatusPhase.PENDING, ["status.phase"])


PROTECTED: tuple[tuple[Manifest, str], ...] = (
    ({"namespace": "kube-system"}, "it is in namespace kube-system"),
    ({"spec": {"priorityClassName": "system-node-critical"}}, "its priority class is system-node-critical"),
    ({"spec": {"priorityClassName": "system-cluster-critical"}}, "its priority class is system-cluster-critical"),
    ({"annotations": {"kubernetes.io/config.mirror": "abc"}}, "it mirrors a static pod"),
    ({"ownerReferences": [{"kind": "DaemonSet", "name": "d"}]}, "it belongs to a DaemonSet"),
    (
        {"labels": {"scheduling.koordinator.sh/disable-preemptible": "true"}},
        "its label scheduling.koordinator.sh/disable-preemptible is true",
    ),
    ({"ownerReferences": [{"kind": "ReplicaSet", "name": "r"}]}, ""),
    ({"spec": {"priorityClassName": "system-of-mine"}}, ""),
)


@pytest.mark.parametrize(("manifest", "reason"), PROTECTED)
def test_a_pod_that_may_never_be_a_victim_says_why(manifest: Manifest, reason: str) -> None:
    assert read_pod(**manifest).protected == reason


def test_a_label_can_forbid_a_pod_to_preempt() -> None:
    assert read_pod(labels={"scheduling.koordinator.sh/preemption-policy": "Never"}).never_preempts


@pytest.mark.parametrize("value", ["true", True])
def test_a_pod_whose_gang_timed_out_is_marked(value: object) -> None:
    assert read_pod(annotations={"gang.scheduling.koordinator.sh/timeout": value}).timed_out


@pytest.mark.parametrize("value", ["false", "", "True"])
def test_any_other_mark_is_none(value: object) -> None:
    assert not read_pod(annotations={"gang.scheduling.koordinator.sh/timeout": value}).timed_out


def test_a_pod_says_what_evicting_it_would_cost() -> None:
    pod = read_pod(annotations={"muster.dev/last-checkpoint": NOON, "muster.dev/restart-seconds": "90"})
    assert (pod.checkpoint, pod.restart_s, pod.problems) == (NOON_S, 90.0, ())
    silent = read_pod()
    assert (silent.checkpoint, silent.restart_s) == (None, 0.0)


@pytest.mark.parametrize(
    ("key", "value"),
    [("last-checkpoint", "noon"), ("last-checkpoint", ""), ("restart-seconds", "-1"), ("restart-seconds", "1e400")],
)
def test_a_cost_that_cannot_be_read_is_named(key: str, value: str) -> None:
    pod = read_pod(annotations={f"muster.dev/{key}": value})
    assert (pod.checkpoint, pod.restart_s, bad_fields(pod)) == (None, 0.0, [f"metadata.annotations[muster.dev/{key}]"])


TIMES = {
    NOON: NOON_S,
    "2026-03-01T12:00:00.250000Z": NOON_S + 0.25,
    "2026-03-01T14:00:00+02:00": NOON_S,
    datetime(2026, 3, 1, 12, tzinfo=UTC): NOON_S,
    datetime(2026, 3, 1, 12): NOON_S,
    None: 0.0,
}


@pytest.mark.parametrize(("written", "seconds"), TIMES.items())
def test_a_time_is_seconds_since_1970(written: object, seconds: float) -> None:
    pod = read_pod(creationTimestamp=written)
    assert (pod.created, pod.problems) == (seconds, ())


@pytest.mark.parametrize("written", ["yesterday", "2026-03-01", 5, True, []])
def test_a_bad_time_is_named_with_an_example(written: object) -> None:
    pod = read_pod(creationTimestamp=written)
    assert (pod.created, bad_fields(pod)) == (0.0, ["metadata.creationTimestamp"])
    assert "2026-03-01T12:00:00Z" in problem_text(pod)


@pytest.mark.parametrize(("written", "version"), [("7", 7), ("", 0), ("x7", 0), ("-7", 0), ("9" * 30, 0), ("٣", 0)])
def test_a_resource_version_that_is_no_number_is_the_oldest(written: str, version: int) -> None:
    assert read_pod(resourceVersion=written).version == version


# --- Sharing ----------------------------------------------------------------------------------------------------------


def test_pods_of_one_template_share_all_that_they_have_in_common() -> None:
    decoder = Decoder()
    template: Manifest = {
        "labels": {"app": "x"},
        "annotations": {"scheduling.k8s.io/group-name": "g"},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
    }
    one, two = (decoder.decode(as_json(pod_manifest(name=name, **template))) for name in ("a", "b"))  # type: ignore[arg-type]
    assert isinstance(one, Pod)
    assert isinstance(two, Pod)
    assert one.signature is two.signature
    assert one.labels is two.labels
    assert one.annotations is two.annotations
    assert one.membership is two.membership
    assert one.uid != two.uid


def test_signatures_written_differently_but_meaning_the_same_are_one() -> None:
    decoder = Decoder()
    ways = ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "1000m"}}, {"limits": {"cpu": 1}})
    pods = [decoder.decode(pod_manifest(spec={"containers": [{"resources": way}]})) for way in ways]
    assert len({id(pod.signature) for pod in pods if isinstance(pod, Pod)}) == 1


def test_problems_of_a_shared_template_reach_each_of_its_pods() -> None:
    decoder = Decoder()
    spec = {"containers": [{"resources": {"requests": {"cpu": "one"}}}]}
    pods = [decoder.decode(pod_manifest(name=name, spec=spec, labels={"pod-group.scheduling.sigs.k8s.io": "G"})) for name in "ab"]
    assert [len(pod.problems) for pod in pods if isinstance(pod, Pod)] == [2, 2]
