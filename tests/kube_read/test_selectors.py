"""Where a pod may go: selectors, affinities, tolerations, ports, spread and volumes as Kubernetes writes them."""

from __future__ import annotations

import pytest
from tests.kube_read.manifests import Manifest, bad_fields, problem_text, read_pod

from muster.model.pod import Pod, PodSignature
from muster.model.pod_constraints import (
    HostPort,
    LabelSelector,
    NodeAffinity,
    NodeTerm,
    Operator,
    PodAffinity,
    PodTerm,
    Requirement,
    SpreadConstraint,
    TaintEffect,
    Toleration,
    WeightedNodeTerm,
    WeightedPodTerm,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
APP = LabelSelector((Requirement("app", Operator.IN, ("x",)),))


def kind(**spec: object) -> PodSignature:
    pod = read_pod(spec=spec)
    assert bad_fields(pod) == []
    return pod.signature


def on_nodes(*expressions: Manifest, fields: list[Manifest] | None = None) -> Pod:
    term = {"matchExpressions": list(expressions), "matchFields": fields or []}
    return read_pod(spec={"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}})


def test_a_node_selector_is_sorted() -> None:
    assert kind(nodeSelector={"zone": "a", "disk": "ssd"}).node_selector == (("disk", "ssd"), ("zone", "a"))


OPERATORS: dict[Operator, list[str]] = {
    Operator.IN: ["a", "b"],
    Operator.NOT_IN: ["a"],
    Operator.EXISTS: [],
    Operator.DOES_NOT_EXIST: [],
    Operator.GT: ["8"],
    Operator.LT: ["-8"],
}


@pytest.mark.parametrize("operator", Operator)
def test_every_operator_of_a_node_term_is_read(operator: Operator) -> None:
    pod = on_nodes({"key": "k", "operator": operator.value, "values": OPERATORS[operator]})
    wanted = NodeTerm((Requirement("k", operator, tuple(OPERATORS[operator])),))
    assert pod.signature.node_affinity.required == (wanted,)
    assert pod.problems == ()


def test_a_node_is_chosen_by_its_name() -> None:
    pod = on_nodes(fields=[{"key": "metadata.name", "operator": "In", "values": ["n1"]}])
    assert pod.signature.node_affinity.required == (NodeTerm(fields=(Requirement("metadata.name", Operator.IN, ("n1",)),)),)
    assert pod.signature.namespace == "", "node affinity means the same in every namespace"


BAD_EXPRESSIONS: tuple[Manifest, ...] = (
    {"key": "k", "operator": "Near", "values": ["a"]},
    {"key": "k", "operator": "in", "values": ["a"]},
    {"key": "k", "values": ["a"]},
    {"key": "", "operator": "Exists"},
    {"key": "k", "operator": "In"},
    {"key": "k", "operator": "In", "values": []},
    {"key": "k", "operator": "Exists", "values": ["a"]},
    {"key": "k", "operator": "Gt", "values": ["8", "9"]},
    {"key": "k", "operator": "Lt", "values": ["many"]},
)


@pytest.mark.parametrize("expression", BAD_EXPRESSIONS)
def test_a_term_that_cannot_be_understood_matches_no_node(expression: Manifest) -> None:
    pod = on_nodes({"key": "zone", "operator": "In", "values": ["a"]}, expression)
    assert pod.signature.node_affinity.required == (NodeTerm(),)
    assert len(pod.problems) == 1
    assert pod.problems[0].field.startswith(f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[1]")


def test_a_field_that_no_node_has_matches_no_node() -> None:
    pod = on_nodes(fields=[{"key": "spec.unschedulable", "operator": "In", "values": ["false"]}])
    assert pod.signature.node_affinity.required == (NodeTerm(),)
    assert "metadata.name" in problem_text(pod)


def test_a_requirement_without_terms_matches_no_node() -> None:
    assert kind(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}).node_affinity.required == ()


def test_a_preference_for_nodes_keeps_its_weight() -> None:
    preference = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
    found = kind(affinity={"nodeAffinity": {PREFERRED: [{"weight": 7, "preference": preference}]}}).node_affinity
    assert found == NodeAffinity(preferred=(WeightedNodeTerm(7, NodeTerm((Requirement("gpu", Operator.EXISTS),))),))


@pytest.mark.parametrize("weight", [0, -1, 101])
def test_a_preference_that_weighs_nothing_is_ignored_and_named(weight: int) -> None:
    pod = read_pod(spec={"affinity": {"nodeAffinity": {PREFERRED: [{"weight": weight, "preference": {}}]}}})
    assert pod.signature.node_affinity.preferred == ()
    assert bad_fields(pod) == [f"spec.affinity.nodeAffinity.{PREFERRED}[0].weight"]


def test_affinity_and_anti_affinity_are_read_with_their_namespaces() -> None:
    term = {
        "topologyKey": "rack",
        "labelSelector": {"matchLabels": {"app": "x"}},
        "namespaces": ["a"],
        "namespaceSelector": {},
        "matchLabelKeys": ["hash"],
        "mismatchLabelKeys": ["tenant"],
    }
    wanted = PodTerm("rack", APP, ("a",), LabelSelector(), ("hash",), ("tenant",))
    found = kind(
        affinity={
            "podAffinity": {REQUIRED: [term]},
            "podAntiAffinity": {PREFERRED: [{"weight": 3, "podAffinityTerm": term}]},
        }
    )
    assert found.affinity == PodAffinity(required=(wanted,))
    assert found.anti_affinity == PodAffinity(preferred=(WeightedPodTerm(3, wanted),))
    assert found.namespace == "default"


@pytest.mark.parametrize("operator", list(Operator)[:4])
def test_every_operator_of_a_label_selector_is_read(operator: Operator) -> None:
    selector = {"matchExpressions": [{"key": "k", "operator": operator.value, "values": OPERATORS[operator]}]}
    found = kind(affinity={"podAffinity": {REQUIRED: [{"topologyKey": "t", "labelSelector": selector}]}})
    assert found.affinity.required[0].selector == LabelSelector((Requirement("k", operator, tuple(OPERATORS[operator])),))


@pytest.mark.parametrize("operator", ["Gt", "Lt", "Near", ""])
def test_a_label_selector_that_cannot_be_understood_selects_nothing(operator: str) -> None:
    selector = {"matchExpressions": [{"key": "k", "operator": operator, "values": ["1"]}]}
    pod = read_pod(spec={"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "t", "labelSelector": selector}]}}})
    assert pod.signature.affinity.required[0].selector is None
    assert "In, NotIn, Exists, DoesNotExist" in problem_text(pod)


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    terms = [{"topologyKey": "t"}, {"topologyKey": "t", "labelSelector": {}}]
    found = kind(affinity={"podAffinity": {REQUIRED: terms}}).affinity.required
    assert [term.selector for term in found] == [None, LabelSelector()]


TOLERATIONS: tuple[tuple[Manifest, Toleration], ...] = (
    ({}, Toleration()),
    ({"operator": "Exists"}, Toleration("", "Exists")),
    ({"key": "k", "value": "v"}, Toleration("k", "Equal", "v")),
    ({"key": "k", "operator": "Equal", "value": "v"}, Toleration("k", "Equal", "v")),
    ({"key": "k", "operator": "Gt", "value": "5"}, Toleration("k", "Gt", "5")),
    ({"key": "k", "operator": "Lt", "value": "5"}, Toleration("k", "Lt", "5")),
    ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, Toleration("k", "Exists", "", TaintEffect.NO_EXECUTE)),
    ({"key": "k", "effect": "NoSchedule"}, Toleration("k", "Equal", "", TaintEffect.NO_SCHEDULE)),
    ({"key": "k", "effect": "PreferNoSchedule"}, Toleration("k", "Equal", "", TaintEffect.PREFER_NO_SCHEDULE)),
    ({"key": "k", "operator": "Exists", "tolerationSeconds": 300}, Toleration("k", "Exists")),
)


@pytest.mark.parametrize(("written", "wanted"), TOLERATIONS)
def test_a_toleration_is_read(written: Manifest, wanted: Toleration) -> None:
    assert kind(tolerations=[written]).tolerations == (wanted,)


@pytest.mark.parametrize(("field", "value"), [("operator", "Like"), ("effect", "NoWay")])
def test_a_toleration_that_cannot_be_understood_tolerates_nothing(field: str, value: str) -> None:
    pod = read_pod(spec={"tolerations": [{"key": "k", field: value}, {"key": "good"}]})
    assert pod.signature.tolerations == (Toleration("good"),)
    assert bad_fields(pod) == [f"spec.tolerations[0].{field}"]


def test_host_ports_are_collected_from_all_containers_that_run_together() -> None:
    found = kind(
        containers=[{"ports": [{"hostPort": 80}, {"containerPort": 9}]}, {"ports": [{"hostPort": 80}]}],
        initContainers=[
            {"restartPolicy": "Always", "ports": [{"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}]},
            {"ports": [{"hostPort": 99}]},
        ],
    )
    assert found.ports == (HostPort(53, "UDP", "10.0.0.1"), HostPort(80))


def test_on_the_hosts_network_every_port_is_the_hosts() -> None:
    assert kind(hostNetwork=True, containers=[{"ports": [{"containerPort": 8080}]}]).ports == (HostPort(8080),)


@pytest.mark.parametrize("port", [-1, 70000])
def test_an_invalid_port_is_ignored_and_named(port: int) -> None:
    pod = read_pod(spec={"containers": [{"ports": [{"hostPort": port}]}]})
    assert (pod.signature.ports, bad_fields(pod)) == ((), ["spec.containers.ports.hostPort"])


def test_a_spread_constraint_is_read() -> None:
    found = kind(
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
            {
                "maxSkew": 2,
                "topologyKey": "rack",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "x"}},
                "minDomains": 3,
                "nodeAffinityPolicy": "Ignore",
                "nodeTaintsPolicy": "Honor",
                "matchLabelKeys": ["hash"],
            },
        ]
    )
    assert found.spread == (
        SpreadConstraint(1, "zone", hard=True, selector=None),
        SpreadConstraint(2, "rack", False, APP, 3, honor_affinity=False, honor_taints=True, match_label_keys=("hash",)),
    )
    assert found.namespace == "default", "it counts pods of its own namespace"


def test_a_bad_spread_constraint_is_read_as_the_stricter() -> None:
    pod = read_pod(spec={"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "Try"}]})
    assert pod.signature.spread == (SpreadConstraint(1, "z", hard=True, selector=None),)
    assert len(pod.problems) == 2


def test_volume_claims_are_named_and_tie_the_signature_to_its_namespace() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "b"}},
        {"name": "more", "persistentVolumeClaim": {"claimName": "a"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "tmp", "emptyDir": {}},
    ]
    found = kind(volumes=volumes)
    assert found.volume_claims == ("a", "b", "p-scratch")
    assert found.namespace == "default"


def test_plain_pods_of_all_namespaces_have_one_signature() -> None:
    one, two = (read_pod(namespace=namespace, spec={"nodeSelector": {"a": "b"}}).signature for namespace in ("x", "y"))
    assert one == two


# --- More than anybody needs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "spec", "most"),
    [
        (
            f"spec.affinity.podAntiAffinity.{REQUIRED}",
            {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": {}}] * 33}}},
            32,
        ),
        (
            f"spec.affinity.podAffinity.{PREFERRED}",
            {"affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}] * 33}}},
            32,
        ),
        (
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms",
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}] * 65}}}},
            64,
        ),
        (
            "spec.topologySpreadConstraints",
            {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}] * 17},
            16,
        ),
    ],
)
def test_a_pod_that_lists_more_constraints_than_anybody_needs_gets_no_node(field: str, spec: Manifest, most: int) -> None:
    pod = read_pod(spec={"containers": [], **spec})
    problem = next(one for one in pod.problems if one.unsupported)
    assert problem.field == field
    assert f"has {most + 1} entries, and {most} are honoured at most, so the pod gets no node" in problem.text
