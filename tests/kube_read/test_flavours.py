"""Every way to declare a gang that users already know is understood, and a bad value is named."""

from __future__ import annotations

from itertools import combinations

import pytest
from tests.kube_read.manifests import Manifest, bad_fields, problem_text, read_pod

from muster.model.pod import NOT_DECLARED, ApiFlavour, Declared, Membership

GANG = "gang.scheduling.koordinator.sh"
LIGHTWEIGHT = "pod-group.scheduling.sigs.k8s.io"
NATIVE: Manifest = {"spec": {"schedulingGroup": {"podGroupName": "g"}}}

DECLARATIONS: dict[str, tuple[Manifest, Membership | None]] = {
    "nothing said": ({}, None),
    "volcano": ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, Membership(ApiFlavour.VOLCANO, "g")),
    "volcano, other name": ({"annotations": {"scheduling.volcano.sh/group-name": "g"}}, Membership(ApiFlavour.VOLCANO, "g")),
    "volcano with a role": (
        {"annotations": {"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": "worker"}},
        Membership(ApiFlavour.VOLCANO, "g", "worker"),
    ),
    "volcano with a role as label": (
        {"annotations": {"scheduling.k8s.io/group-name": "g"}, "labels": {"volcano.sh/task-spec": "ps"}},
        Membership(ApiFlavour.VOLCANO, "g", "ps"),
    ),
    "koordinator": ({"labels": {LIGHTWEIGHT: "g"}}, Membership(ApiFlavour.KOORDINATOR, "g")),
    "koordinator with annotations": (
        {"labels": {LIGHTWEIGHT: "g"}, "annotations": {f"{GANG}/min-available": "3"}},
        Membership(ApiFlavour.KOORDINATOR, "g", declared=Declared(min=3)),
    ),
    "community": ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, Membership(ApiFlavour.SIGS, "g")),
    "light": (
        {"labels": {f"{LIGHTWEIGHT}/name": "g", f"{LIGHTWEIGHT}/min-available": "2"}},
        Membership(ApiFlavour.ANNOTATION, "g", needs_group=False, declared=Declared(min=2)),
    ),
    "light without a minimum waits for a PodGroup": (
        {"labels": {f"{LIGHTWEIGHT}/name": "g"}},
        Membership(ApiFlavour.ANNOTATION, "g"),
    ),
    "annotations alone": (
        {"annotations": {f"{GANG}/name": "g", f"{GANG}/min-available": "5"}},
        Membership(ApiFlavour.ANNOTATION, "g", needs_group=False, declared=Declared(min=5)),
    ),
    "native": (NATIVE, Membership(ApiFlavour.NATIVE, "g")),
    "an empty name names nothing": ({"labels": {LIGHTWEIGHT: ""}, "annotations": {f"{GANG}/name": ""}}, None),
    "a minimum without a name makes no gang": ({"annotations": {f"{GANG}/min-available": "5"}}, None),
}


@pytest.mark.parametrize(("manifest", "wanted"), DECLARATIONS.values(), ids=DECLARATIONS.keys())
def test_a_pod_says_to_which_gang_it_belongs(manifest: Manifest, wanted: Membership | None) -> None:
    pod = read_pod(**manifest)
    assert pod.membership == wanted
    assert bad_fields(pod) == []


ORDER: tuple[tuple[dict[str, dict[str, object]], ApiFlavour], ...] = (
    ({"annotations": {"scheduling.k8s.io/group-name": "v"}}, ApiFlavour.VOLCANO),
    ({"labels": {LIGHTWEIGHT: "k"}}, ApiFlavour.KOORDINATOR),
    ({"labels": {"scheduling.x-k8s.io/pod-group": "x"}}, ApiFlavour.SIGS),
    ({"annotations": {f"{GANG}/name": "a", f"{GANG}/min-available": "1"}}, ApiFlavour.ANNOTATION),
    ({"spec": {"schedulingGroup": {"podGroupName": "n"}}}, ApiFlavour.NATIVE),
)


@pytest.mark.parametrize(("first", "second"), tuple(combinations(ORDER, 2)))
def test_of_two_flavours_the_earlier_counts_and_the_other_is_named(
    first: tuple[dict[str, dict[str, object]], ApiFlavour], second: tuple[dict[str, dict[str, object]], ApiFlavour]
) -> None:
    (one, flavour), (other, loser) = first, second
    both = {part: {**one.get(part, {}), **other.get(part, {})} for part in ("labels", "annotations", "spec")}
    pod = read_pod(**both)
    assert pod.membership is not None
    assert pod.membership.flavour is flavour
    assert len(pod.problems) == 1
    assert f"({flavour.value})" in problem_text(pod)
    assert f"({loser.value})" in problem_text(pod)


def test_naming_one_gang_twice_in_one_family_is_no_conflict() -> None:
    pod = read_pod(labels={LIGHTWEIGHT: "g", f"{LIGHTWEIGHT}/name": "g"}, annotations={f"{GANG}/name": "g"})
    assert pod.membership == Membership(ApiFlavour.KOORDINATOR, "g")
    assert bad_fields(pod) == []


def test_naming_two_gangs_in_one_family_is_a_conflict() -> None:
    pod = read_pod(labels={LIGHTWEIGHT: "g"}, annotations={f"{GANG}/name": "h"})
    assert pod.membership is not None
    assert pod.membership.name == "g"
    assert bad_fields(pod) == [f"metadata.annotations[{GANG}/name]"]


NAMES = {"Gang_A": "gang-a", "-x-": "x", "a..b": "a.b", "ü": "gang-a", "x" * 300: "x" * 253}


@pytest.mark.parametrize(("name", "nearest"), NAMES.items(), ids=range(len(NAMES)))
def test_a_gang_name_that_is_no_object_name_is_named_with_the_nearest(name: str, nearest: str) -> None:
    pod = read_pod(labels={LIGHTWEIGHT: name})
    assert pod.membership is not None, "it meant to be in a gang, so it must not start alone"
    assert bad_fields(pod) == [f"metadata.labels[{LIGHTWEIGHT}]"]
    assert repr(nearest) in problem_text(pod)


def declared(**annotations: object) -> Declared:
    pod = read_pod(annotations={f"{GANG}/name": "g"} | {f"{GANG}/{key.replace('_', '-')}": v for key, v in annotations.items()})
    assert pod.membership is not None
    assert bad_fields(pod) == []
    return pod.membership.declared


DECLARED: tuple[tuple[dict[str, object], Declared], ...] = (
    ({}, NOT_DECLARED),
    ({"min_available": "4"}, Declared(min=4)),
    ({"min_available": 4}, Declared(min=4)),
    ({"total_number": "6"}, Declared(total=6)),
    ({"waiting_time": "3600s"}, Declared(wait_s=3600.0)),
    ({"waiting_time": "1h30m"}, Declared(wait_s=5400.0)),
    ({"waiting_time": "1.5h"}, Declared(wait_s=5400.0)),
    ({"waiting_time": "1500ms"}, Declared(wait_s=1.5)),
    ({"waiting_time": "2m0.5s"}, Declared(wait_s=120.5)),
    ({"waiting_time": "48h"}, Declared(wait_s=172800.0)),
    ({"waiting_time": ""}, NOT_DECLARED),
    ({"waiting_time": "0"}, NOT_DECLARED),
    ({"waiting_time": "0s"}, NOT_DECLARED),
    ({"mode": "Strict"}, Declared(mode="Strict")),
    ({"mode": "NonStrict"}, Declared(mode="NonStrict")),
    ({"mode": ""}, NOT_DECLARED),
    ({"match_policy": "only-waiting"}, Declared(match_policy="only-waiting")),
    ({"match_policy": "waiting-and-running"}, Declared(match_policy="waiting-and-running")),
    ({"match_policy": "once-satisfied"}, Declared(match_policy="once-satisfied")),
    ({"groups": '["b/y", "a/x", "b/y"]'}, Declared(groups=("a/x", "b/y"))),
    ({"groups": ["a/x", "b/y"]}, Declared(groups=("a/x", "b/y"))),
    ({"gang_groups": '["a/x"]'}, Declared(groups=("a/x",))),
    ({"groups": '["a/x"]', "gang_groups": '["b/y"]'}, Declared(groups=("a/x",))),
    ({"groups": ""}, Declared(groups=())),
    ({"groups": "[]"}, Declared(groups=())),
    ({"network_topology_spec": ""}, NOT_DECLARED),
    (
        {
            "network_topology_spec": '{"gatherStrategy":[{"layer":"spine","strategy":"PreferGather"},'
            '{"layer":"block","strategy":"MustGather"},{"layer":"rack","strategy":"MustGather"}]}'
        },
        Declared(must_gather="rack", prefer_gather="spine"),
    ),
)


@pytest.mark.parametrize(("annotations", "wanted"), DECLARED)
def test_an_annotation_is_read(annotations: dict[str, object], wanted: Declared) -> None:
    assert declared(**annotations) == wanted


def test_the_match_policy_has_an_alias_that_is_read_second() -> None:
    alias = {f"{LIGHTWEIGHT}/match-policy": "only-waiting", f"{GANG}/name": "g"}
    both = alias | {f"{GANG}/match-policy": "once-satisfied"}
    found = [read_pod(annotations=annotations).membership for annotations in (alias, both)]
    assert [one.declared.match_policy for one in found if one] == ["only-waiting", "once-satisfied"]


def test_the_lightweight_minimum_is_read_before_the_annotation() -> None:
    pod = read_pod(
        labels={f"{LIGHTWEIGHT}/name": "g", f"{LIGHTWEIGHT}/min-available": "2"}, annotations={f"{GANG}/min-available": "3"}
    )
    assert pod.membership is not None
    assert pod.membership.declared.min == 2


INVALID: tuple[tuple[str, object, Declared, str], ...] = (
    ("min-available", "four", NOT_DECLARED, "write for example 4"),
    ("min-available", "0", NOT_DECLARED, "from 1"),
    ("min-available", "-1", NOT_DECLARED, "from 1"),
    ("min-available", 4.5, NOT_DECLARED, "whole number"),
    ("min-available", "9" * 400, NOT_DECLARED, "whole number"),
    ("min-available", None, NOT_DECLARED, "whole number"),
    ("total-number", "many", NOT_DECLARED, "whole number"),
    ("waiting-time", "3600", NOT_DECLARED, "write for example 3600s"),
    ("waiting-time", "-1h", NOT_DECLARED, "above zero"),
    ("waiting-time", "soon", NOT_DECLARED, "1h30m"),
    ("waiting-time", "9" * 60 + "h", NOT_DECLARED, "ten years"),
    ("waiting-time", "1h" * 1000, NOT_DECLARED, "no duration"),
    ("mode", "nonstrict", Declared(mode="Strict"), "write NonStrict"),
    ("mode", "loose", Declared(mode="Strict"), "Strict is used"),
    ("match-policy", "always", NOT_DECLARED, "once-satisfied, waiting-and-running, only-waiting"),
    ("groups", "a/x", NOT_DECLARED, "no JSON"),
    ("groups", '["x"]', NOT_DECLARED, "'x' is no namespace/name"),
    ("groups", '["a/x/y"]', NOT_DECLARED, "namespace/name"),
    ("groups", '["a/"]', NOT_DECLARED, "namespace/name"),
    ("groups", "[1]", NOT_DECLARED, "JSON list of texts"),
    ("groups", '{"a": 1}', NOT_DECLARED, "JSON list of texts"),
    ("groups", "[" * 50_000, NOT_DECLARED, "no JSON"),
    ("network-topology-spec", "{}]", NOT_DECLARED, "no JSON"),
    ("network-topology-spec", '{"gatherStrategy":[{"layer":"rack","strategy":"Maybe"}]}', NOT_DECLARED, "MustGather"),
    ("network-topology-spec", '{"gatherStrategy":[{"strategy":"MustGather"}]}', NOT_DECLARED, "layer"),
)


@pytest.mark.parametrize(("key", "value", "wanted", "advice"), INVALID, ids=[f"{i}-{row[0]}" for i, row in enumerate(INVALID)])
def test_an_invalid_annotation_counts_as_absent_and_is_named(key: str, value: object, wanted: Declared, advice: str) -> None:
    pod = read_pod(annotations={f"{GANG}/name": "g", f"{GANG}/{key}": value})
    assert pod.membership is not None
    assert pod.membership.declared == wanted
    assert bad_fields(pod) == [f"metadata.annotations[{GANG}/{key}]"]
    assert advice in problem_text(pod)


def test_a_gang_whose_only_minimum_is_bad_waits_for_a_podgroup() -> None:
    pod = read_pod(annotations={f"{GANG}/name": "g", f"{GANG}/min-available": "four"})
    assert pod.membership is not None
    assert pod.membership.needs_group


QUEUES = {
    "none": ({}, ""),
    "volcano annotation": ({"annotations": {"scheduling.volcano.sh/queue-name": "q"}}, "queue/q"),
    "volcano label": ({"labels": {"scheduling.volcano.sh/queue-name": "q"}}, "queue/q"),
    "annotation before label": (
        {"annotations": {"scheduling.volcano.sh/queue-name": "a"}, "labels": {"scheduling.volcano.sh/queue-name": "l"}},
        "queue/a",
    ),
    "quota": ({"labels": {"quota.scheduling.koordinator.sh/name": "q"}}, "quota/?/q"),
}


@pytest.mark.parametrize(("manifest", "key"), QUEUES.values(), ids=QUEUES.keys())
def test_a_pod_names_its_queue(manifest: Manifest, key: str) -> None:
    assert read_pod(**manifest).queue == key


def test_a_pod_in_a_queue_and_a_quota_is_in_the_queue_and_it_is_reported() -> None:
    pod = read_pod(annotations={"scheduling.volcano.sh/queue-name": "a"}, labels={"quota.scheduling.koordinator.sh/name": "b"})
    assert pod.queue == "queue/a"
    assert bad_fields(pod) == ["metadata.labels[quota.scheduling.koordinator.sh/name]"]
