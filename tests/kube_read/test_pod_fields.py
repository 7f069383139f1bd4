"""Every field of a pod's spec is honoured, is no constraint, or refuses the pod; and what a kubelet has allocated counts."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import fields

from muster.kube.read.decoder import Decoder
from muster.kube.read.decoding_problems import MAX_PROBLEMS
from muster.kube.read.wire import PodSpec, UnconstrainingFields
from muster.model.pod import Pod

PAGE = Path(__file__).parents[2] / "docs" / "pods.md"
NO_CONSTRAINT = {info.encode_name for info in fields(UnconstrainingFields)}
HONOURED = {info.encode_name for info in fields(PodSpec)} - NO_CONSTRAINT


def decoded(spec: dict[str, Any], status: dict[str, Any] | None = None, *, as_bytes: bool = True) -> Pod:
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "1"},
        "spec": spec,
        "status": status or {},
    }
    found = Decoder().decode(msgspec.json.encode(manifest) if as_bytes else manifest)
    assert isinstance(found, Pod)
    return found


def test_the_page_has_both_lists() -> None:
    _, honoured, rest = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    rows = [line.split("|")[1] for line in honoured.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == HONOURED
    listed = rest.partition("\n\n")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == NO_CONSTRAINT


@pytest.mark.parametrize("as_bytes", [True, False])
def test_a_field_on_neither_list_refuses_the_pod_and_the_rest_is_read(as_bytes: bool) -> None:
    spec = {"nodeSelector": {"a": "b"}, "newConstraint": {"x": 1}, "containers": [{"resources": {"requests": {"cpu": "2"}}}]}
    pod = decoded(spec, as_bytes=as_bytes)
    (problem,) = pod.problems
    assert problem.unsupported
    assert problem.field == "spec.newConstraint"
    assert "gets no node" in problem.text
    assert pod.signature.request["cpu"] == 2000
    assert pod.signature.node_selector == (("a", "b"),)


def test_fields_that_are_no_constraint_are_no_problem_whatever_they_hold() -> None:
    values: list[Any] = [{"a": [1]}, [], "text", 3, True]
    for value in values:
        assert not decoded(dict.fromkeys(sorted(NO_CONSTRAINT), value)).problems


def test_a_claim_is_refused_however_many_other_fields_are_invalid() -> None:
    wrong = {"labels": {f"l{i}": i for i in range(3 * MAX_PROBLEMS)}}
    tolerations = [{"key": 5} for _ in range(3 * MAX_PROBLEMS)]
    pod = decoded({"resourceClaims": [{"name": "gpu"}], "tolerations": tolerations, **wrong})
    assert any(problem.unsupported and problem.field == "spec.resourceClaims" for problem in pod.problems)
    assert len(pod.problems) <= MAX_PROBLEMS + 1


CPU_2 = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        ({}, 2000),
        ({"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "16"}}]}, 16000),
        ({"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "16"}}}]}, 16000),
        ({"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "3"}}}]}, 3000),
        ({"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}}]}, 2000),
        ({"containerStatuses": [{"name": "other", "allocatedResources": {"cpu": "16"}}]}, 2000),
    ],
)
def test_the_larger_of_what_is_asked_for_and_what_is_allocated_counts(status: dict[str, Any], cpu: int) -> None:
    assert decoded(CPU_2, status).signature.request["cpu"] == cpu


def test_a_sidecar_is_resized_like_a_container() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    status = {
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}}],
        "initContainerStatuses": [{"name": "s", "allocatedResources": {"cpu": "4"}}],
    }
    assert decoded({**CPU_2, "initContainers": [sidecar]}, status).signature.request["cpu"] == 6000


def test_pods_whose_status_says_what_they_ask_for_share_one_signature() -> None:
    decoder = Decoder()
    plain = {"metadata": {"name": "a"}, "kind": "Pod", "apiVersion": "v1", "spec": CPU_2}
    running = {**plain, "status": {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}}]}}
    one, other = decoder.decode(plain), decoder.decode(running)
    assert isinstance(one, Pod)
    assert isinstance(other, Pod)
    assert one.signature is other.signature
