"""What a pod asks of its node is what Kubernetes says it asks."""

from __future__ import annotations

import pytest
from tests.kube_read.manifests import Manifest, bad_fields, problem_text, read_pod

from muster.model.resource_amounts import LARGEST_AMOUNT

GI = 2**30


def container(
    *, always: bool = False, limits: Manifest | None = None, also: Manifest | None = None, **requests: object
) -> Manifest:
    """One container; `always` makes an init container a sidecar; `also` names resources that Python cannot."""
    policy = {"restartPolicy": "Always"} if always else {}
    return {"name": "c", "resources": {"requests": requests | (also or {}), "limits": limits or {}}, **policy}


def request_of(**spec: object) -> dict[str, int]:
    request = dict(read_pod(spec=spec).signature.request.items)
    assert request.pop("pods") == 1
    return request


CASES = {
    "no containers ask for nothing": ({}, {}),
    "containers add up": ({"containers": [container(cpu="500m"), container(cpu="1")]}, {"cpu": 1500}),
    "memory is in bytes": ({"containers": [container(memory="1Gi")]}, {"memory": GI}),
    "a device is counted as it is": ({"containers": [container(also={"nvidia.com/gpu": "4"})]}, {"nvidia.com/gpu": 4}),
    "a zero is no request": ({"containers": [container(cpu="0", memory="1Gi")]}, {"memory": GI}),
    "a number is a quantity too": ({"containers": [container(memory=1024, also={"x/y": 0.5})]}, {"memory": 1024, "x/y": 1}),
    "a limit alone is the request": ({"containers": [container(limits={"cpu": "2"})]}, {"cpu": 2000}),
    "a request beside a limit stands": ({"containers": [container(cpu="1", limits={"cpu": "2"})]}, {"cpu": 1000}),
    "a limit fills only what is missing": (
        {"containers": [container(cpu="1", limits={"memory": "1Gi"})]},
        {"cpu": 1000, "memory": GI},
    ),
    "an init container counts alone": ({"containers": [container(cpu="1")], "initContainers": [container(cpu="3")]}, {"cpu": 3000}),
    "a small init container does not count": (
        {"containers": [container(cpu="2")], "initContainers": [container(cpu="1")]},
        {"cpu": 2000},
    ),
    "init containers do not add up": (
        {"initContainers": [container(cpu="1"), container(cpu="2"), container(cpu="1")]},
        {"cpu": 2000},
    ),
    "init limits default too": ({"initContainers": [container(limits={"cpu": "3"})]}, {"cpu": 3000}),
    "a sidecar adds to the containers": (
        {"containers": [container(cpu="1")], "initContainers": [container(cpu="1", always=True)]},
        {"cpu": 2000},
    ),
    "an init container runs beside the sidecars before it": (
        {"containers": [container(cpu="1")], "initContainers": [container(cpu="2", always=True), container(cpu="4")]},
        {"cpu": 6000},
    ),
    "a sidecar that comes later is not yet there": (
        {"containers": [container(cpu="1")], "initContainers": [container(cpu="4"), container(cpu="2", always=True)]},
        {"cpu": 4000},
    ),
    "sidecars add up among themselves": (
        {
            "initContainers": [
                container(cpu="1", always=True),
                container(cpu="2", always=True),
                container(cpu="5"),
                container(cpu="1", always=True),
            ]
        },
        {"cpu": 8000},
    ),
    "each dimension has its own peak": (
        {"containers": [container(cpu="4", memory="1Gi")], "initContainers": [container(cpu="1", memory="3Gi")]},
        {"cpu": 4000, "memory": 3 * GI},
    ),
    "overhead comes on top": ({"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, {"cpu": 1250}),
    "a pod-level request takes the place of the sum": (
        {"containers": [container(cpu="1"), container(cpu="1")], "resources": {"requests": {"cpu": "5"}}},
        {"cpu": 5000},
    ),
    "a pod-level request may be smaller": (
        {"containers": [container(cpu="4")], "resources": {"requests": {"cpu": "3"}}},
        {"cpu": 3000},
    ),
    "a pod-level request touches only what it names": (
        {"containers": [container(cpu="1", memory="2Gi")], "resources": {"requests": {"cpu": "5"}}},
        {"cpu": 5000, "memory": 2 * GI},
    ),
    "a pod-level limit speaks where no container asks": (
        {"containers": [container(cpu="1")], "resources": {"limits": {"cpu": "5", "memory": "1Gi"}}},
        {"cpu": 1000, "memory": GI},
    ),
    "huge pages follow the pod-level limit": (
        {"containers": [container(also={"hugepages-2Mi": "2Mi"})], "resources": {"limits": {"hugepages-2Mi": "4Mi"}}},
        {"hugepages-2Mi": 4 * 2**20},
    ),
    "overhead comes on top of a pod-level request": (
        {"resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "1"}},
        {"cpu": 3000},
    ),
}


@pytest.mark.parametrize(("spec", "wanted"), CASES.values(), ids=CASES.keys())
def test_a_pod_requests_what_kubernetes_says(spec: Manifest, wanted: dict[str, int]) -> None:
    assert request_of(**spec) == wanted


def test_a_pod_level_device_is_ignored_and_named() -> None:
    pod = read_pod(spec={"resources": {"requests": {"nvidia.com/gpu": "1"}}})
    assert pod.signature.request["nvidia.com/gpu"] == 0
    assert "nvidia.com/gpu" in problem_text(pod)
    assert "cpu, memory and hugepages-*" in problem_text(pod)


QUANTITIES = {
    "1": 1000, "0.1": 100, "100m": 100, "1500m": 1500, "1e3": 10**6, "1E3": 10**6, "1e-3": 1, "2k": 2 * 10**6,
    "1Ki": 1024 * 1000, "0.0001": 1, "1n": 1, "1u": 1, ".5": 500, "5.": 5000, "+2": 2000,
}  # fmt: skip


@pytest.mark.parametrize(("text", "milli"), QUANTITIES.items())
def test_a_quantity_is_read_exactly_and_rounded_up(text: str, milli: int) -> None:
    assert request_of(containers=[container(cpu=text)]) == {"cpu": milli}


BAD_QUANTITIES = ["", "one", "-1", "1Xi", "1 Gi", "1e400", "1e31", "0x10", "nan", "inf", "1,5", "9" * 70, "1Ei", "1mm", "--1"]


@pytest.mark.parametrize("text", BAD_QUANTITIES)
def test_a_bad_quantity_costs_one_resource_and_is_named(text: str) -> None:
    pod = read_pod(spec={"containers": [container(memory="1Gi"), container(cpu=text, memory="1Gi")]})
    assert dict(pod.signature.request.items) == {"memory": 2 * GI, "pods": 1}
    assert bad_fields(pod) == ["spec.containers[1].resources.requests[cpu]"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1, 10**400, 1e30, True, [], {}])
def test_a_number_that_is_no_amount_is_named_too(number: object) -> None:
    pod = read_pod(spec={"containers": [container(x=number)]})
    assert pod.signature.request["x"] == 0
    assert bad_fields(pod) == ["spec.containers[0].resources.requests[x]"]


def test_a_sum_beyond_every_machine_stays_within_the_range_of_a_column() -> None:
    pod = read_pod(spec={"containers": [container(x=str(LARGEST_AMOUNT))] * 10_000})
    assert pod.signature.request["x"] == LARGEST_AMOUNT
    assert "more than any machine has" in problem_text(pod)
