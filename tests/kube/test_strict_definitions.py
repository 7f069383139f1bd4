"""Statuses on a real API server whose definitions are as strict as those that Volcano and Koordinator ship: an enum of phases, no
unknown fields, no status subresource where theirs has none."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.contract import real_cluster
from tests.kube.live_backend import install_kinds

from muster.kube.read import names
from muster.lab.assets import Assets
from muster.scenario.loader import parse
from muster.scenario.scenario_runner import run

Manifest = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PHASES = ("Pending", "Running", "Unknown", "Inqueue", "Completed")
STRING = {"type": "string"}
INTEGER = {"type": "integer", "format": "int32"}
TIME = {"type": "string", "format": "date-time"}
QUANTITIES = {
    "type": "object",
    "additionalProperties": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
}
CONDITIONS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            **dict.fromkeys(("type", "status", "reason", "message", "transitionID"), STRING),
            "lastTransitionTime": TIME,
        },
    },
}


def of_volcano(phases: tuple[str, ...]) -> Manifest:
    counts = dict.fromkeys(("running", "succeeded", "failed"), INTEGER)
    status = {"phase": {"type": "string", "enum": list(phases)}, "conditions": CONDITIONS, **counts}
    spec = {"minMember": INTEGER, "queue": {"type": "string", "default": "default"}, "minResources": QUANTITIES}
    return definition("scheduling.volcano.sh", "v1beta1", "PodGroup", spec, status)


def of_volcano_queue() -> Manifest:
    counts = dict.fromkeys(("pending", "inqueue", "running", "completed", "unknown"), INTEGER)
    status = {"state": {"type": "string", "enum": ["Open", "Closed", "Closing", "Unknown"]}, "allocated": QUANTITIES, **counts}
    spec = {"weight": INTEGER, "capability": QUANTITIES, "deserved": QUANTITIES, "parent": {"type": "string"}}
    return definition("scheduling.volcano.sh", "v1beta1", "Queue", spec, status, scope="Cluster")


def of_koordinator() -> Manifest:
    counts = dict.fromkeys(("scheduled", "running", "succeeded", "failed"), INTEGER)
    status = {"phase": {"type": "string"}, "occupiedBy": {"type": "string"}, "scheduleStartTime": TIME, **counts}
    spec = {"minMember": INTEGER, "minResources": QUANTITIES, "scheduleTimeoutSeconds": INTEGER}
    made = definition("scheduling.sigs.k8s.io", "v1alpha1", "PodGroup", spec, status)
    del made["spec"]["versions"][0]["subresources"]
    return made


def definition(group: str, version: str, kind: str, spec: Manifest, status: Manifest, *, scope: str = "Namespaced") -> Manifest:
    properties = {
        **dict.fromkeys(("apiVersion", "kind"), STRING),
        "metadata": {"type": "object"},
        "spec": {"type": "object", "properties": spec},
        "status": {"type": "object", "properties": status},
    }
    one = {"name": version, "served": True, "storage": True, "subresources": {"status": {}}}
    names = {"kind": kind, "plural": f"{kind.lower()}s"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{names['plural']}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": scope,
            "names": names,
            "versions": [{**one, "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}],
        },
    }


@pytest.fixture(scope="module")
def strict_servers(assets: Assets) -> Iterator[Servers]:
    with Servers(assets) as running:
        install_kinds(running, group=names.MUSTER_GROUP)
        yield running


def define(servers: Servers, *definitions: Manifest) -> None:
    with servers.api() as api:
        for one in definitions:
            name = one["metadata"]["name"]
            if any(known["metadata"]["name"] == name for known in api.request("GET", DEFINITIONS)["items"]):
                version = api.request("GET", f"{DEFINITIONS}/{name}")["metadata"]["resourceVersion"]
                body = {**one, "metadata": {**one["metadata"], "resourceVersion": version}}
                api.request("PUT", f"{DEFINITIONS}/{name}", body=body)
            else:
                api.request("POST", DEFINITIONS, body=one)
        deadline = time.monotonic() + 30
        for one in definitions:
            spec = one["spec"]
            while not api.is_ready(f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"):
                assert time.monotonic() < deadline, "the server does not serve the custom kinds"
                time.sleep(0.05)
        # A changed schema is used a little later than it is stored.
        time.sleep(2)


SCENARIO = """
name: a gang from its first pod to its end
nodes: [{{name: n1, cpu: 4}}]
queues: [{{name: q, deserved: {{cpu: 4}}}}]
steps:
- submit: {{name: late, apiFlavour: {flavour}, {queue} pods: 2, initialPods: 1, requests: {{cpu: 1}}}}
- submit: {{name: large, apiFlavour: {flavour}, {queue} pods: 2, requests: {{cpu: 4}}}}
- submit: {{name: fits, apiFlavour: {flavour}, {queue} pods: 2, requests: {{cpu: 1}}}}
- cycle: 3
"""


def statuses(servers: Servers, flavour: str, *, queue: str = "") -> dict[str, Manifest]:
    (scenario,) = parse(SCENARIO.format(flavour=flavour, queue=f"queue: {queue}," if queue else ""), file="<test>")
    with real_cluster(servers, scenario) as cluster:
        run(scenario, cluster=cluster)
        found = [*cluster.listed("PodGroup"), *cluster.listed("Queue")]
    servers.reset()
    return {one["metadata"]["name"]: one.get("status") or {} for one in found}


def condition_types(status: Manifest) -> set[str]:
    return {one["type"] for one in status["conditions"] if one["status"] == "True"}


def test_volcanos_definition_takes_every_status(strict_servers: Servers) -> None:
    define(strict_servers, of_volcano(PHASES), of_volcano_queue())
    found = statuses(strict_servers, "volcano", queue="q")
    assert {name: found[name]["phase"] for name in ("late", "large", "fits")} == {
        "late": "Inqueue",
        "large": "Inqueue",
        "fits": "Running",
    }
    assert condition_types(found["large"]) == {"Unschedulable"}
    assert found["q"]["running"] == 1


def test_koordinators_definition_takes_every_status_that_it_knows(strict_servers: Servers) -> None:
    define(strict_servers, of_koordinator(), of_volcano_queue())
    found = statuses(strict_servers, "koordinator")
    assert {name: found[name]["phase"] for name in ("late", "large", "fits")} == {
        "late": "Pending",
        "large": "PreScheduling",
        "fits": "Scheduled",
    }
    assert found["fits"]["scheduled"] == 2
    assert found["fits"]["scheduleStartTime"]


def test_a_field_that_is_refused_does_not_lose_the_others(strict_servers: Servers) -> None:
    define(strict_servers, of_volcano(("Pending",)), of_volcano_queue())
    found = statuses(strict_servers, "volcano", queue="q")
    assert "phase" not in found["large"]
    assert condition_types(found["large"]) == {"Unschedulable"}
    assert found["large"]["running"] == found["large"]["failed"] == 0
