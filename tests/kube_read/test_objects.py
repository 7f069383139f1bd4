"""PodGroups, queues, quotas, nodes, domains and classes, of every API group that declares them."""

from __future__ import annotations

import pytest
from tests.kube_read.manifests import Manifest, bad_fields, problem_text, read

from muster.model.events import Namespace, PriorityClass
from muster.model.gang import PodGroup, RoleMin, SubgroupPolicy
from muster.model.node import Node
from muster.model.pod import Declared
from muster.model.pod_constraints import LabelSelector, Operator, Requirement, Taint, TaintEffect
from muster.model.queue import Queue, QueueState
from muster.model.resource_amounts import NOTHING, Resources
from muster.model.topology_spec import DomainMember, DomainSpec, TopologyConstraint

VOLCANO = "scheduling.volcano.sh/v1beta1"
SIGS = "scheduling.sigs.k8s.io/v1alpha1"
X_K8S = "scheduling.x-k8s.io/v1alpha1"
QUOTA = "quota.scheduling.koordinator.sh"
GANG = "gang.scheduling.koordinator.sh"
GI = 2**30


def obj(
    api: str, kind: str, *, name: str = "o", spec: Manifest | None = None, status: Manifest | None = None, **meta: object
) -> Manifest:
    metadata = {"name": name, "namespace": "team", "uid": "u", "resourceVersion": "3", "creationTimestamp": "1970-01-01T00:00:09Z"}
    return {"apiVersion": api, "kind": kind, "metadata": metadata | meta, "spec": spec or {}, "status": status or {}}


def group(api: str, *, meta: Manifest | None = None, **spec: object) -> PodGroup:
    return group_of(spec, api=api, meta=meta)


def group_of(spec: Manifest, *, api: str, meta: Manifest | None = None) -> PodGroup:
    return read(obj(api, "PodGroup", spec=spec, **(meta or {})), wanted=PodGroup)  # type: ignore[arg-type]


# --- PodGroup ---------------------------------------------------------------------------------------------------------

GROUPS = {
    VOLCANO: ("volcano:team/o", {"minMember": 4}),
    SIGS: ("koordinator:team/o", {"minMember": 4}),
    X_K8S: ("sigs:team/o", {"minMember": 4}),
    "scheduling.k8s.io/v1alpha2": ("native:team/o", {"schedulingPolicy": {"gang": {"minCount": 4}}}),
    "scheduling.k8s.io/v1alpha3": ("native:team/o", {"schedulingPolicy": {"gang": {"minCount": 4}}}),
    "scheduling.k8s.io/v1beta1": ("native:team/o", {"schedulingPolicy": {"gang": {"minCount": 4}}}),
    "v1alpha1": ("koordinator:team/o", {"minMember": 4}),
}


@pytest.mark.parametrize(("api", "key", "spec"), [(api, *rest) for api, rest in GROUPS.items()])
def test_a_podgroup_of_every_api_group_is_read(api: str, key: str, spec: Manifest) -> None:
    found = group_of(spec, api=api)
    assert (found.key, found.full_name, found.min_member) == (key, "team/o", 4)
    assert (found.uid, found.version, found.created, found.problems) == ("u", 3, 9.0, ())


def test_a_volcano_podgroup_is_read_whole() -> None:
    found = group(
        VOLCANO,
        minMember=5,
        minTaskMember={"worker": 4, "ps": 1},
        minResources={"cpu": "5", "memory": "2Gi"},
        priorityClassName="high",
        queue="research",
        networkTopology={"mode": "hard", "highestTierAllowed": 2},
        subGroupPolicy=[
            {"name": "worker", "networkTopology": {"mode": "soft", "highestTierName": "rack"}},
            {"name": "x", "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "ps"}}, "networkTopology": {}},
            {"name": "free"},
        ],
    )
    assert found.role_mins == (RoleMin("ps", 1), RoleMin("worker", 4))
    assert found.min_resources == Resources.of({"cpu": 5000, "memory": 2 * GI})
    assert (found.priority_class, found.queue) == ("high", "queue/research")
    assert found.topology == TopologyConstraint(hard=True, highest_tier=2)
    ps = LabelSelector((Requirement("volcano.sh/task-spec", Operator.IN, ("ps",)),))
    assert found.sub_groups == (
        SubgroupPolicy("worker", role="worker", topology=TopologyConstraint(hard=False, highest_tier_name="rack")),
        SubgroupPolicy("x", selector=ps, topology=TopologyConstraint(hard=True)),
        SubgroupPolicy("free", role="free"),
    )


def test_a_native_podgroup_has_a_priority_and_a_policy_of_its_own() -> None:
    found = group(
        "scheduling.k8s.io/v1beta1",
        schedulingPolicy={"gang": {"minCount": 3}},
        priority=7,
        priorityClassName="high",
        preemptionPolicy="Never",
        schedulingConstraints={"topology": [{"key": "example.com/rack"}]},
    )
    assert (found.min_member, found.priority, found.priority_class, found.never_preempts) == (3, 7, "high", True)
    assert found.topology == TopologyConstraint(hard=True, highest_tier_name="example.com/rack")


def test_a_basic_native_podgroup_is_placed_one_by_one() -> None:
    assert group("scheduling.k8s.io/v1beta1", schedulingPolicy={"basic": {}}).min_member == 1


def test_annotations_of_a_podgroup_declare_too() -> None:
    found = group(
        SIGS,
        meta={"annotations": {f"{GANG}/total-number": 5, f"{GANG}/mode": "NonStrict", f"{GANG}/waiting-time": "1m"}},
        minMember=3,
    )
    assert found.declared == Declared(total=5, mode="NonStrict", wait_s=60.0)


@pytest.mark.parametrize(("strategy", "hard"), [("MustGather", True), ("PreferGather", False)])
def test_a_podgroup_is_placed_in_the_layer_that_its_annotation_names(strategy: str, hard: bool) -> None:
    text = f'{{"gatherStrategy":[{{"layer":"rack","strategy":"{strategy}"}}]}}'
    found = group(SIGS, meta={"annotations": {f"{GANG}/network-topology-spec": text}})
    assert found.topology == TopologyConstraint(hard=hard, highest_tier_name="rack")


@pytest.mark.parametrize(("seconds", "wait_s"), [(600, 600.0), (0, None), (None, None)])
def test_the_wait_time_of_a_podgroup_is_read(seconds: int | None, wait_s: float | None) -> None:
    found = group(SIGS, scheduleTimeoutSeconds=seconds)
    assert (found.wait_s, found.problems) == (wait_s, ())


def test_a_podgroup_without_a_queue_may_name_one_as_pods_do() -> None:
    assert group(SIGS, meta={"labels": {f"{QUOTA}/name": "q"}}).queue == "quota/?/q"
    assert group(VOLCANO).queue == ""


def test_the_fields_of_a_status_are_kept_as_they_were_written_and_conditions_are_not() -> None:
    status = {
        "phase": "Running",
        "running": 3,
        "conditions": [{"type": "Scheduled", "status": "True", "reason": "enough"}, "odd"],
        "allocated": {"cpu": "2", "memory": 1.5, "deeper": {"than": "amounts"}},
    }
    found = read(obj(VOLCANO, "PodGroup", status=status), wanted=PodGroup)
    assert found.phase == "Running"
    assert found.status == {"phase": "Running", "running": "3", "allocated.cpu": "2", "allocated.memory": "1.5"}


BAD_GROUPS: tuple[tuple[Manifest, str, str], ...] = (
    ({"minMember": "four"}, "spec.minMember", "'four' was ignored; write a whole number"),
    ({"minMember": "4"}, "spec.minMember", "was read as 4; write 4"),
    ({"minMember": 4.0}, "spec.minMember", "was read as 4"),
    ({"minMember": 4.5}, "spec.minMember", "ignored"),
    ({"minMember": -4}, "spec.minMember", "negative; 1 is used"),
    ({"minMember": 10**12}, "spec.minMember", "was read as 2147483647"),
    ({"minMember": [4]}, "spec.minMember", "[4] was ignored"),
    ({"minTaskMember": {"worker": "two"}}, "spec.minTaskMember[worker]", "ignored"),
    ({"minTaskMember": {"worker": -2}}, "spec.minTaskMember[worker]", "negative; 0 is used"),
    ({"minTaskMember": 5}, "spec.minTaskMember", "is no mapping"),
    ({"minResources": {"cpu": "lots"}}, "spec.minResources[cpu]", "'lots' is not a quantity"),
    ({"queue": 5}, "spec.queue", 'was read as "5"; write "5"'),
    ({"queue": ["a"]}, "spec.queue", "a text in quotes"),
    ({"networkTopology": {"mode": "firm"}}, "spec.networkTopology.mode", "write hard or soft"),
    ({"networkTopology": {"highestTierAllowed": -1}}, "spec.networkTopology.highestTierAllowed", "0 is used"),
    ({"scheduleTimeoutSeconds": -1}, "spec.scheduleTimeoutSeconds", "write 600"),
)


@pytest.mark.parametrize(("spec", "field", "advice"), BAD_GROUPS)
def test_one_bad_field_of_a_podgroup_is_named_and_the_rest_is_read(spec: Manifest, field: str, advice: str) -> None:
    found = group_of({"priorityClassName": "high", **spec}, api=VOLCANO)
    assert found.priority_class == "high"
    assert bad_fields(found) == [field]
    assert advice in problem_text(found)


# --- Queue and ElasticQuota -------------------------------------------------------------------------------------------


def test_a_volcano_queue_is_read_whole() -> None:
    spec: Manifest = {
        "parent": "research",
        "weight": 3,
        "capability": {"cpu": "10", "nvidia.com/gpu": 0},
        "deserved": {"cpu": "5"},
        "guarantee": {"resource": {"cpu": "2"}},
        "reclaimable": False,
        "priority": 8,
    }
    found = read(obj(VOLCANO, "Queue", spec=spec, status={"state": "Closed", "allocated": {"cpu": "1"}}), wanted=Queue)
    assert (found.key, found.parent, found.weight, found.priority) == ("queue/o", "queue/research", 3, 8)
    assert found.limit == Resources.of({"cpu": 10_000, "nvidia.com/gpu": 0}), "a zero forbids, so it is kept"
    assert (found.deserved, found.guarantee) == (Resources.of({"cpu": 5000}), Resources.of({"cpu": 2000}))
    assert (found.reclaimable, found.state, found.is_quota) == (False, QueueState.CLOSED, False)
    assert found.status == {"state": "Closed", "allocated.cpu": "1"}
    assert found.problems == ()


@pytest.mark.parametrize("parent", ["", "root"])
def test_a_queue_under_the_root_has_no_parent(parent: str) -> None:
    assert read(obj(VOLCANO, "Queue", spec={"parent": parent}), wanted=Queue).parent == ""


def test_an_empty_queue_takes_the_defaults() -> None:
    found = read(obj(VOLCANO, "Queue"), wanted=Queue)
    assert (found.weight, found.limit, found.reclaimable, found.state) == (1, NOTHING, True, QueueState.OPEN)


@pytest.mark.parametrize(
    ("spec", "status", "field"),
    [
        ({"weight": 0}, {}, "spec.weight"),
        ({"reclaimable": "maybe"}, {}, "spec.reclaimable"),
        ({"deserved": {"cpu": "-1"}}, {}, "spec.deserved[cpu]"),
        ({"guarantee": {"resource": {"cpu": "x"}}}, {}, "spec.guarantee.resource[cpu]"),
        ({}, {"state": "Ajar"}, "status.state"),
    ],
)
def test_a_bad_field_of_a_queue_is_named_and_the_default_is_used(spec: Manifest, status: Manifest, field: str) -> None:
    found = read(obj(VOLCANO, "Queue", spec=spec, status=status), wanted=Queue)
    assert bad_fields(found) == [field]
    assert (found.weight, found.reclaimable, found.deserved, found.state) == (1, True, NOTHING, QueueState.OPEN)


def quota(*, api: str = SIGS, labels: dict[str, str] | None = None, annotations: Manifest | None = None, **spec: object) -> Queue:
    named = {f"{QUOTA}/{key}": value for key, value in (labels or {}).items()}
    noted = {f"{QUOTA}/{key}": value for key, value in (annotations or {}).items()}
    return read(obj(api, "ElasticQuota", spec=spec, labels=named, annotations=noted), wanted=Queue)


def test_a_quota_is_a_queue_with_a_limit_and_a_deserved_share() -> None:
    found = quota(
        max={"cpu": "40", "memory": "80Gi"},
        min={"cpu": "10"},
        labels={"parent": "research", "is-parent": "true", "allow-lent-resource": "false", "tree-id": "t1"},
        annotations={"shared-weight": '{"cpu": 20, "memory": "10Gi"}', "namespaces": '["b", "a"]'},
    )
    assert (found.key, found.parent, found.is_quota) == ("quota/team/o", "quota/?/research", True)
    assert found.limit == Resources.of({"cpu": 40_000, "memory": 80 * GI})
    assert found.deserved == Resources.of({"cpu": 10_000})
    assert found.weights == Resources.of({"cpu": 20_000, "memory": 10 * GI})
    assert (found.is_parent, found.lends, found.tree, found.namespaces) == (True, False, "t1", ("a", "b"))
    assert found.problems == ()


@pytest.mark.parametrize("parent", ["", "koordinator-root-quota"])
def test_a_quota_under_the_root_has_no_parent(parent: str) -> None:
    assert quota(labels={"parent": parent}).parent == ""


@pytest.mark.parametrize("annotations", [{}, {"shared-weight": ""}, {"shared-weight": '{"cpu": 0}'}])
def test_a_quota_without_a_weight_weighs_as_much_as_its_limit(annotations: Manifest) -> None:
    assert quota(max={"cpu": "4"}, annotations=annotations).weights == Resources.of({"cpu": 4000})


def test_a_community_quota_is_for_its_own_namespace() -> None:
    found = quota(api=X_K8S, max={"cpu": "4"}, min={"cpu": "2"})
    assert (found.key, found.namespaces, found.lends) == ("quota/team/o", ("team",), True)


def test_a_minimum_above_the_maximum_is_named_with_the_highest_that_would_do() -> None:
    found = quota(max={"cpu": "4", "memory": "1Gi"}, min={"cpu": "5", "memory": "1Gi"})
    assert bad_fields(found) == ["spec.min[cpu]"]
    assert "write at most 4" in problem_text(found)


@pytest.mark.parametrize(
    ("annotations", "field"),
    [
        ({"shared-weight": "heavy"}, f"metadata.annotations[{QUOTA}/shared-weight]"),
        ({"shared-weight": "[1]"}, f"metadata.annotations[{QUOTA}/shared-weight]"),
        ({"shared-weight": '{"cpu": null}'}, f"metadata.annotations[{QUOTA}/shared-weight]"),
        ({"shared-weight": '{"cpu": "x"}'}, f"metadata.annotations[{QUOTA}/shared-weight][cpu]"),
        ({"namespaces": "a,b"}, f"metadata.annotations[{QUOTA}/namespaces]"),
        ({"namespaces": "[1]"}, f"metadata.annotations[{QUOTA}/namespaces]"),
    ],
)
def test_a_bad_annotation_of_a_quota_is_named(annotations: Manifest, field: str) -> None:
    found = quota(max={"cpu": "4"}, annotations=annotations)
    assert (bad_fields(found), found.namespaces, found.weights) == ([field], (), Resources.of({"cpu": 4000}))


# --- Node, HyperNode, PriorityClass, Namespace ------------------------------------------------------------------------


def test_a_node_is_read() -> None:
    spec: Manifest = {"unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}
    status: Manifest = {
        "capacity": {"cpu": "9"},
        "allocatable": {"cpu": "8", "memory": "1Gi", "pods": "110", "nvidia.com/gpu": "8"},
    }
    found = read(obj("v1", "Node", name="n1", spec=spec, status=status, labels={"zone": "a"}), wanted=Node)
    assert (found.name, found.uid, found.version, found.created) == ("n1", "u", 3, 9.0)
    assert found.allocatable == Resources.of({"cpu": 8000, "memory": GI, "pods": 110, "nvidia.com/gpu": 8})
    assert (found.labels, found.unschedulable) == ({"zone": "a"}, True)
    assert found.taints == (Taint("k", TaintEffect.NO_SCHEDULE, "v"),)
    assert found.problems == ()


def test_a_node_that_reports_only_its_capacity_offers_that() -> None:
    assert read(obj("v1", "Node", status={"capacity": {"cpu": "9"}}), wanted=Node).allocatable == Resources.of({"cpu": 9000})


def test_a_node_keeps_what_can_be_read() -> None:
    spec: Manifest = {"taints": [{"key": "a", "effect": "Never"}, {"key": "b", "effect": "NoExecute"}]}
    found = read(obj("v1", "Node", spec=spec, status={"allocatable": {"cpu": "8", "memory": "1Qi"}}), wanted=Node)
    assert found.allocatable == Resources.of({"cpu": 8000})
    assert found.taints == (Taint("b", TaintEffect.NO_EXECUTE),)
    assert bad_fields(found) == ["status.allocatable[memory]", "spec.taints[0].effect"]


def domain(*members: Manifest, **spec: object) -> DomainSpec:
    return read(obj("topology.volcano.sh/v1alpha1", "HyperNode", spec={"members": list(members), **spec}), wanted=DomainSpec)


def test_a_domain_names_its_members_in_three_ways() -> None:
    found = domain(
        {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}},
        {"type": "Node", "selector": {"regexMatch": {"pattern": "^n-[0-9]+$"}}},
        {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"rack": "r1"}}}},
        {"type": "HyperNode", "selector": {"exactMatch": {"name": "s1"}}},
        tier=2,
        tierName="block",
    )
    assert (found.name, found.tier, found.tier_name, found.problems) == ("o", 2, "block", ())
    assert found.members == (
        DomainMember(is_node=True, exact="n1"),
        DomainMember(is_node=True, regex="^n-[0-9]+$"),
        DomainMember(is_node=True, labels=LabelSelector((Requirement("rack", Operator.IN, ("r1",)),))),
        DomainMember(is_node=False, exact="s1"),
    )


def test_a_bad_member_of_a_domain_is_named_and_the_others_stay() -> None:
    found = domain(
        {"type": "Rack", "selector": {"exactMatch": {"name": "n1"}}},
        {"type": "Node", "selector": {"regexMatch": {"pattern": "n["}}},
        {"type": "Node", "selector": {"regexMatch": {"pattern": "n" * 5000}}},
        {"type": "Node", "selector": {"exactMatch": {"name": "n2"}}},
        tier="1",
    )
    assert found.members == (DomainMember(is_node=True, exact="n2"),)
    assert bad_fields(found) == [
        "spec.tier",
        "spec.members[0].type",
        "spec.members[1].selector.regexMatch.pattern",
        "spec.members[2].selector.regexMatch.pattern",
    ]
    assert found.tier == 1


def test_a_priority_class_is_read() -> None:
    manifest = obj("scheduling.k8s.io/v1", "PriorityClass", name="high") | {
        "value": 1000,
        "globalDefault": True,
        "preemptionPolicy": "Never",
    }
    assert read(manifest, wanted=PriorityClass) == PriorityClass("high", 1000, 3, is_default=True, never_preempts=True)


def test_a_priority_class_with_a_bad_value_counts_as_zero_and_it_is_reported() -> None:
    found = read(obj("scheduling.k8s.io/v1", "PriorityClass") | {"value": "high"}, wanted=PriorityClass)
    assert (found.value, bad_fields(found)) == (0, ["value"])


def test_a_namespace_is_read() -> None:
    assert read(obj("v1", "Namespace", name="a", labels={"team": "x"}), wanted=Namespace) == Namespace("a", 3, {"team": "x"})
