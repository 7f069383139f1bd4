"""Whatever an object holds, one bad field costs that field, and nothing worse than BadObject ever comes out."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kube_read.manifests import Manifest, as_json, bad_fields, pod_manifest, problem_text, read, read_pod

from muster.kube.read import names
from muster.kube.read.decoder import BadObject, Decoder
from muster.kube.read.decoding_problems import MAX_PROBLEMS
from muster.model.events import ClusterObject
from muster.model.gang import PodGroup
from muster.model.pod import Pod

GANG = "gang.scheduling.koordinator.sh"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SELECTOR = {"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["a"]}]}
TERM = {
    "topologyKey": "rack",
    "labelSelector": SELECTOR,
    "namespaces": ["a"],
    "namespaceSelector": SELECTOR,
    "matchLabelKeys": ["h"],
}
NODE_TERM = {"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["1"]}]}
CONTAINER = {
    "resources": {"requests": {"cpu": "1", "memory": 5}, "limits": {"cpu": "2"}},
    "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP", "hostIP": "10.0.0.1"}],
    "restartPolicy": "Always",
}
GPU = {"resources": {"limits": {"nvidia.com/gpu": "1", "volcano.sh/vgpu-number": "1", "koordinator.sh/gpu": "100"}}}
POD = pod_manifest(
    labels={"app": "x", "pod-group.scheduling.sigs.k8s.io": "g"},
    annotations={f"{GANG}/name": "g", f"{GANG}/min-available": "2", "volcano.sh/pipelined-node": "n"},
    resourceVersion="5",
    creationTimestamp="2026-03-01T12:00:00Z",
    deletionTimestamp="2026-03-01T12:00:00Z",
    ownerReferences=[{"kind": "ReplicaSet"}],
    spec={
        "nodeName": "n",
        "priority": 5,
        "priorityClassName": "c",
        "preemptionPolicy": "Never",
        "containers": [CONTAINER],
        "initContainers": [CONTAINER],
        "overhead": {"cpu": "1"},
        "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1"}},
        "nodeSelector": {"a": "b"},
        "affinity": {
            "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [NODE_TERM]}, PREFERRED: [{"weight": 1, "preference": NODE_TERM}]},
            "podAffinity": {REQUIRED: [TERM], PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]},
            "podAntiAffinity": {REQUIRED: [TERM]},
        },
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR, "minDomains": 2}
        ],
        "hostNetwork": False,
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "w", "ephemeral": {}}],
        "schedulingGates": [{"name": "g"}],
        "schedulingGroup": {"podGroupName": "g"},
    },
    status={"phase": "Running", "startTime": "2026-03-01T12:00:00Z", "nominatedNodeName": "n"},
)
META = {"name": "o", "namespace": "a", "labels": {"a": "b"}, "annotations": {f"{GANG}/mode": "Strict"}}
OTHERS: tuple[Manifest, ...] = (
    {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": META,
        "spec": {
            "minMember": 1,
            "minTaskMember": {"a": 1},
            "minResources": {"cpu": "1"},
            "queue": "q",
            "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
            "subGroupPolicy": [{"name": "a", "labelSelector": SELECTOR, "networkTopology": {"mode": "soft"}}],
            "scheduleTimeoutSeconds": 5,
            "schedulingPolicy": {"gang": {"minCount": 3}},
        },
        "status": {"phase": "Running", "running": 1, "conditions": [{"type": "a"}]},
    },
    {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": META,
        "spec": {
            "parent": "p",
            "weight": 1,
            "capability": {"cpu": "1"},
            "guarantee": {"resource": {"cpu": 1}},
            "reclaimable": True,
        },
        "status": {"state": "Open"},
    },
    {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": META | {"annotations": {"quota.scheduling.koordinator.sh/shared-weight": '{"cpu": 1}'}},
        "spec": {"max": {"cpu": "1"}, "min": {"cpu": "1"}},
    },
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": META,
        "spec": {"unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "1"}, "capacity": {"cpu": "1"}},
    },
    {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": META,
        "spec": {
            "tier": 1,
            "tierName": "t",
            "members": [
                {"type": "Node", "selector": {"exactMatch": {"name": "n"}, "regexMatch": {"pattern": "n"}, "labelMatch": SELECTOR}}
            ],
        },
    },
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": META, "value": 1, "globalDefault": True},
    {"apiVersion": "v1", "kind": "Namespace", "metadata": META},
)
ALL = (POD, *OTHERS)

Path = tuple[str | int, ...]


def paths(value: object, *, at: Path = ()) -> Iterator[Path]:
    """Every place in a manifest at which a value stands."""
    if at:
        yield at
    if isinstance(value, dict):
        for key, part in value.items():
            yield from paths(part, at=(*at, key))
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from paths(part, at=(*at, i))


def with_value(manifest: Manifest, path: Path, *, to: object) -> Manifest:
    copied = copy.deepcopy(manifest)
    place: Any = copied
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return copied


def decoded_or_error(form: Manifest | bytes) -> ClusterObject | str | None:
    try:
        return Decoder().decode(form)
    except BadObject:
        return "refused"


GIANTS: tuple[object, ...] = ("x" * 5000, 10**5000, [["y" * 5000] * 50] * 50, {"k" * 5000: {}})
PATHS = [(manifest, path) for manifest in ALL for path in paths(manifest)]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "1", "true", "In", "Exists", "Gt", "1Gi", "-1", "1e400", "9" * 70, "2026-03-01T12:00:00Z", "[]", "{}"])
)
KEYS = st.text(max_size=10) | st.sampled_from(["name", "cpu", "key", "requests", "type", "labels", "values"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8)


def test_the_manifests_that_are_corrupted_here_are_valid() -> None:
    for manifest in OTHERS:
        obj = decoded_or_error(manifest)
        assert not isinstance(obj, str | None)
        assert bad_fields(obj) == []
    assert [field for field in bad_fields(read(POD, wanted=Pod)) if "claim" not in field and "schedulingGroup" not in field] == []


@settings(max_examples=1500, deadline=None)
@given(place=st.sampled_from(PATHS), value=VALUES)
def test_any_value_in_any_field_costs_at_most_that_object(place: tuple[Manifest, Path], value: object) -> None:
    manifest, path = place
    found = decoded_or_error(with_value(manifest, path, to=value))
    if path[0] not in ("apiVersion", "kind") and path not in (("metadata",), ("metadata", "name")):
        assert not isinstance(found, str | None), "the object kept its identity"


@settings(max_examples=500, deadline=None)
@given(place=st.sampled_from(PATHS), value=VALUES)
def test_json_and_mapping_are_read_alike(place: tuple[Manifest, Path], value: object) -> None:
    manifest, path = place
    text = json.dumps(with_value(manifest, path, to=value))
    assert repr(decoded_or_error(text.encode())) == repr(decoded_or_error(json.loads(text)))


@settings(max_examples=300, deadline=None)
@given(manifest=st.dictionaries(KEYS | st.just("kind") | st.integers(), VALUES, max_size=5))
def test_any_mapping_is_read_or_refused(manifest: Manifest) -> None:
    assert decoded_or_error(manifest) in (None, "refused"), "no kind that is read, or no name"
    found = decoded_or_error({"kind": "Pod", "metadata": manifest})
    assert isinstance(found, Pod) if manifest.get("name") and isinstance(manifest["name"], str) else found is not None
    assert isinstance(decoded_or_error({"kind": "Pod", "metadata": {"name": "p"}, "spec": manifest}), Pod)


@settings(max_examples=300, deadline=None)
@given(text=st.binary(max_size=50), start=st.integers(0, len(as_json(POD)) - 1))
def test_any_bytes_are_read_or_refused(text: bytes, start: int) -> None:
    """By themselves, and as the end of a pod that was cut off."""
    assert decoded_or_error(text) in (None, "refused")
    assert decoded_or_error(as_json(POD)[:start] + text) in (None, "refused")


def test_every_problem_names_its_field_and_stays_short() -> None:
    for manifest, path in PATHS:
        for value in GIANTS:
            obj = decoded_or_error(with_value(manifest, path, to=value))
            for problem in () if isinstance(obj, str | None) else obj.problems:
                assert len(problem.field) <= 200
                assert 0 < len(problem.text) <= 600


def test_a_field_that_is_null_is_a_field_that_is_absent() -> None:
    for manifest, path in PATHS:
        if isinstance(path[-1], str) and path[0] not in ("apiVersion", "kind") and path[-1] not in ("metadata", "name"):
            without = with_value(manifest, path, to=None)
            assert not isinstance(decoded_or_error(without), str | None), path


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("Plan", {"gang": "default/g", "members": [{"uid": "u"}]}, "spec.members[0]"),
        ("Plan", {"gang": "default/g", "evictions": [{"plan": "p", "action": {}, "since": 0, "victims": []}]}, "action"),
        ("History", {"losses": [{"evictions": 1}, {"key": "k", "crossings": [{"count": 1}]}]}, "spec.losses[0]"),
        ("History", {"belowMinSince": [{"key": "k", "at": "soon"}, {"key": "l", "at": 1}]}, "spec.belowMinSince[0].at"),
    ],
)
def test_an_entry_without_what_it_needs_costs_that_entry_only(kind: str, spec: Manifest, field: str) -> None:
    obj = decoded_or_error({"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": "n"}, "spec": spec})
    assert not isinstance(obj, str | None)
    assert any(field in bad for bad in bad_fields(obj))


# --- Giants -----------------------------------------------------------------------------------------------------------


def test_a_megabyte_in_an_annotation_that_nobody_reads_is_dropped() -> None:
    pod = read_pod(annotations={"somebody.else/blob": "x" * 2**20})
    assert (pod.annotations, pod.problems) == ({}, ())


@pytest.mark.parametrize("key", ["volcano.sh/pipelined-node", f"{GANG}/groups", "volcano.sh/task-spec"])
def test_a_megabyte_in_an_annotation_that_is_read_is_dropped_and_named(key: str) -> None:
    pod = read_pod(annotations={key: "x" * 2**20})
    assert (pod.annotations, bad_fields(pod)) == ({}, [f"metadata.annotations[{key}]"])
    assert len(problem_text(pod)) < 1000


def test_ten_thousand_containers_add_up() -> None:
    pod = read_pod(spec={"containers": [{"resources": {"requests": {"cpu": "1m"}}}] * 10_000})
    assert pod.signature.request["cpu"] == 10_000


def test_ten_thousand_bad_containers_are_counted_not_listed() -> None:
    pod = read_pod(spec={"containers": [{"resources": {"requests": {"cpu": "one"}}}] * 10_000 + [5] * 10_000})
    assert len(pod.problems) <= MAX_PROBLEMS + 1
    assert "more fields of this object are invalid" in problem_text(pod)


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("key", sorted(names.ALL_KEYS))
@pytest.mark.parametrize("text", ['{"a":' * 50_000, "[" * 50_000, '{"a":' + "[" * 50_000], ids=["maps", "lists", "lists in a map"])
def test_an_annotation_of_great_depth_costs_its_field_only(key: str, text: str) -> None:
    labels = {names.SOFT_EVICTION: "true"} if key == names.SOFT_EVICTION else {}
    pod = read_pod(annotations={key: text}, labels=labels, spec={"nodeName": "n", "containers": [GPU]})
    assert pod.node == "n"


@pytest.mark.parametrize("path", [("status",), ("metadata", "annotations", "a"), ("spec", "minMember"), ("spec", "other")])
def test_a_value_of_great_depth_costs_its_field_only(path: tuple[str, ...]) -> None:
    manifest: Manifest = {"kind": "PodGroup", "metadata": {"name": "g", "annotations": {}}, "spec": {}, "status": {}}
    found = read(with_value(manifest, path, to=nested(50_000)), wanted=PodGroup)
    assert found.min_member == 1


def test_a_status_that_contains_itself_many_times_is_read_as_far_as_it_goes() -> None:
    status: dict[str, object] = {"phase": "Running"}
    status.update((f"self{i}", status) for i in range(1000))
    found = read({"kind": "PodGroup", "metadata": {"name": "g"}, "status": status}, wanted=PodGroup)
    assert found.phase == "Running"
    assert len(found.status) <= 1000


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "9" * 300])
def test_a_number_that_is_none_costs_its_field_only(number: str) -> None:
    text = '{"kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"n","priority":' + number + "}}"
    pod = Decoder().decode(text.encode())
    assert isinstance(pod, Pod)
    assert (pod.node, bad_fields(pod)) == ("n", ["spec.priority"])


def test_text_that_is_not_unicode_is_read_or_refused() -> None:
    found = {path: decoded_or_error(with_value(POD, path, to="\ud800")) for path in paths(POD)}
    assert found.pop(("kind",)) is None
    assert found["metadata", "name"] == "refused"
    assert isinstance(found["metadata", "labels", "app"], Pod)
    assert {one if isinstance(one, str | None) else "read" for one in found.values()} == {"refused", "read"}


def test_keys_that_are_no_strings_are_named() -> None:
    pod = read_pod(spec={"nodeSelector": {1: "a", None: "c", (2,): "d"}})
    assert pod.signature.node_selector == (("", "c"), ("1", "a"), ("[2]", "d"))
    assert len(pod.problems) == 3


def test_a_decoder_keeps_nothing_that_is_unique() -> None:
    decoder = Decoder()
    for i in range(40_000):
        decoder.decode(pod_manifest(name=f"p{i}", labels={"own": str(i)}, spec={"nodeSelector": {"own": str(i)}}))
    one, two = (decoder.decode(as_json(pod_manifest(name=name, labels={"app": "x"}))) for name in "ab")
    assert isinstance(one, Pod)
    assert isinstance(two, Pod)
    assert one.labels is two.labels


LONG = (
    *(
        "9" * 200_000,
        "9" * 20_000 + "h",
        "1." + "0" * 200_000,
        "-" * 200_000,
        " " * 200_000,
        "1h" * 100_000,
        "a" * 200_000,
        "a." * 100_000,
        "a-" * 100_000,
    ),
    *("[" * 200_000, '{"a":' * 40_000, "[1," * 60_000, "a,b:" * 50_000, "\u0663" * 100_000, "1e" + "9" * 200_000),
)


@pytest.mark.parametrize("value", LONG, ids=lambda value: f"{value[:8]}...")
def test_a_value_of_any_length_is_read_at_once(value: str) -> None:
    """As long as the API server takes them: 256 KB of annotations, 1.5 MB in all."""
    annotations = dict.fromkeys(names.ALL_KEYS, value[:4000])
    metadata = {"name": "x", "namespace": "a", "uid": "u", "annotations": annotations, "labels": annotations}
    amounts = {"cpu": value, "volcano.sh/vgpu-memory": value}
    pod = {"schedulerName": "muster", "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]}
    group = {"minMember": value, "minResources": amounts, "minTaskMember": {"a": value}, "queue": value, "priorityClassName": value}
    topology = {"mode": value, "highestTierAllowed": value, "highestTierName": value}
    written = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod},
        *(
            {"apiVersion": f"{api}", "kind": "PodGroup", "metadata": metadata, "spec": {**group, "networkTopology": topology}}
            for api in ("scheduling.volcano.sh/v1beta1", "scheduling.sigs.k8s.io/v1alpha1", "scheduling.x-k8s.io/v1alpha1")
        ),
    ]
    for text in [json.dumps(one, ensure_ascii=False).encode() for one in written]:
        began = time.process_time()
        with suppress(BadObject):
            Decoder().decode(text)
        assert time.process_time() - began < 0.5
