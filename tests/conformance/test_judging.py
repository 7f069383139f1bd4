"""How cases are judged: what counts as a difference, which reasons excuse one, and that nothing is excused by accident."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.cases import RECLAIMING, case, group, hypernode, node, pods, queue, with_deserved
from tests.conformance.corpus import Case
from tests.conformance.judge import Judgement, Mark, describe, entries, judge, table
from tests.conformance.probes import ProbeResult
from tests.conformance.reasons import REASONS

pytestmark = pytest.mark.conformance


def one_pod(actual: dict[str, Any], **fields: Any) -> Case:
    return case(
        "allocate", nodes=[node("n1", gpu=4)], groups=[group("g", least=1)], members=pods("g", 1, gpu=1), actual=actual, **fields
    )


def test_an_outcome_that_is_equal_in_all_that_was_recorded_agrees() -> None:
    assert judge(one_pod({"binds": {"ns/g-0": "n1"}, "podgroup_phase": {"ns/g": "Inqueue"}})).mark is Mark.AGREE


@pytest.mark.parametrize(
    ("actual", "sentence"),
    [
        ({"binds": {"ns/g-0": "n2"}}, "binds: expected {'ns/g-0': 'n2'}, found {'ns/g-0': 'n1'}"),
        ({"binds": {}}, "number of binds: expected 0, found 1"),
        ({"binds": {"ns/g-0": "n1"}, "evicted": ["ns/g-0"]}, "number of evictions: expected 1, found 0"),
        ({"binds": {"ns/g-0": "n1"}, "pipelined": {"ns/g-0": "n1"}}, "number of pipelined: expected 1, found 0"),
        ({"binds": {"ns/g-0": "n1"}, "podgroup_phase": {"ns/g": "Running"}}, "phase of ns/g: expected Running, found Inqueue"),
    ],
)
def test_whatever_was_recorded_of_a_stable_case_must_be_equal(actual: dict[str, Any], sentence: str) -> None:
    judgement = judge(one_pod(actual))
    assert judgement.mark is Mark.DIFFER
    assert sentence in judgement.differences
    assert f"          {sentence}" in describe(judgement)


@pytest.mark.parametrize(
    ("expect", "sentence"),
    [
        ({"binds": {"ns/g-0": "n2"}}, "binds: expected {'ns/g-0': 'n2'}, found {'ns/g-0': 'n1'}"),
        ({"pipelined": {"ns/g": ["n1"]}}, "pipelined of ns/g: expected on n1, found on none"),
        ({"task_status_nums": {"ns/g": {"Pending": 1}}}, "statuses of ns/g: expected {'Pending': 1}, found {'Binding': 1}"),
    ],
)
def test_what_upstream_asserts_must_hold_even_where_outcomes_vary(expect: dict[str, Any], sentence: str) -> None:
    vague = one_pod({}, expect=expect, stable=False, unstable=["binds", "pipelined"])
    assert judge(vague).differences == (sentence,)


def test_of_an_outcome_that_varies_the_numbers_count_where_those_are_stable() -> None:
    varies = {"stable": False, "unstable": ["binds"], "counts_stable": True}
    assert judge(one_pod({"binds": {"ns/g-0": "n2"}}, **varies)).mark is Mark.AGREE
    assert judge(one_pod({"binds": {}}, **varies)).differences == ("number of binds: expected 0, found 1",)


def test_what_is_true_only_in_the_rig_of_upstreams_test_is_not_required() -> None:
    rigged = one_pod({"binds": {"ns/g-0": "n1"}}, expect={"binds": {}}, expect_rig_only={"binds": {}})
    assert judge(rigged).mark is Mark.AGREE


@pytest.mark.parametrize(
    "fields",
    [
        {"features": ["sharding"]},
        {"features": ["dra"]},
        {"custom": {"plugins": ["made-for-a-test"]}},
        {"plugins": [[{"name": "nodegroup"}]]},
        {"configurations": [{"name": "gangpreempt", "arguments": {"allowWholeBundle": False}}]},
        {"kind": "probe", "actual": {"probe": {"batch_node_order": {}}}},
    ],
)
def test_a_case_that_needs_what_does_not_exist_is_counted_apart_whatever_comes_out(fields: dict[str, Any]) -> None:
    written = {**one_pod({"binds": {"ns/g-0": "n1"}}).written, **fields}
    judgement = judge(Case(written, "own/Case"))
    assert judgement.mark is Mark.NOT_APPLICABLE
    assert judgement.why


def test_a_probe_compares_orders_and_not_values() -> None:
    probe_result = ProbeResult()
    probe_result.same_order("nodes", {"a": 75, "b": 15, "c": 15, "d": 3}, {"a": 0.9, "b": 0.2, "c": 0.2})
    assert (probe_result.compared, probe_result.differences) == (3, [])
    probe_result.same_order("nodes", {"a": 75, "b": 15}, {"a": 0.1, "b": 0.2})
    probe_result.same_order("nodes", {"a": 75, "b": 75}, {"a": 0.1, "b": 0.2})
    assert probe_result.differences == [
        "nodes: expected a better than b, found it worse than it",
        "nodes: expected a as good as b, found it worse than it",
    ]


def test_the_table_has_a_line_for_each_file_and_one_for_all() -> None:
    one, other = one_pod({"binds": {"ns/g-0": "n1"}}), one_pod({})
    lines = table([judge(one), judge(other), Judgement(Case(one.written, "own/Other"), Mark.NOT_APPLICABLE)])
    assert [line.split() for line in lines] == [
        ["agree", "differ", "explained", "n.", "a."],
        ["own/Case", "1", "1", ".", "."],
        ["own/Other", ".", ".", ".", "1"],
        ["all", "files", "1", "1", ".", "1"],
    ]


# -- reasons -----------------------------------------------------------------------------------------------------------------------

RIGID_OVER_TWO_NODES: dict[str, Any] = {
    "nodes": [node("n1", gpu=4), node("n2", gpu=4)],
    "groups": [group("v", least=4, phase="Running"), group("h", least=1, priority="high")],
    "members": [*pods("v", 2, gpu=2, on="n1"), *pods("v", 2, gpu=2, on="n2", start=2), *pods("h", 1, gpu=2)],
}
ONE_SURPLUS_IS_ENOUGH: dict[str, Any] = {
    "nodes": [node("n1", gpu=4)],
    "groups": [group("v", least=1, phase="Running"), group("h", least=1, priority="high")],
    "members": [*pods("v", 4, gpu=1, on="n1"), *pods("h", 1, gpu=1)],
}
ELASTIC_ASKER: dict[str, Any] = {
    "nodes": [node("n1", gpu=2)],
    "groups": [group("a", least=1, phase="Running"), group("b", least=1, phase="Running"), group("h", least=1, priority="high")],
    "members": [*pods("a", 1, gpu=1, on="n1"), *pods("b", 1, gpu=1, on="n1"), *pods("h", 2, gpu=1)],
}
OVER_ITS_SHARE: dict[str, Any] = {
    "nodes": [node("n1", gpu=4), node("n2", gpu=4)],
    "groups": [
        group("a", least=1, phase="Running", queue="q1"),
        group("b", least=1, phase="Running", queue="q1"),
        group("h", least=2, queue="q2"),
    ],
    "members": [*pods("a", 1, gpu=4, on="n1"), *pods("b", 1, gpu=4, on="n2"), *pods("h", 2, gpu=2)],
    "queues": [queue("q1", gpu=4), queue("q2", gpu=4)],
    "plugins": RECLAIMING,
}
EITHER_NODE: dict[str, Any] = {
    "nodes": [node("n1", gpu=2), node("n2", gpu=4)],
    "groups": [group("a", least=1, phase="Running"), group("b", least=2, phase="Running"), group("h", least=1, priority="high")],
    "members": [*pods("a", 1, gpu=2, on="n1"), *pods("b", 2, gpu=2, on="n2"), *pods("h", 1, gpu=2)],
}
LESSER_MEMBER: dict[str, Any] = {
    "nodes": [node("n1", gpu=1)],
    "groups": [group("g", least=1, phase="Running")],
    "members": [*pods("g", 1, gpu=1, on="n1"), *pods("g", 1, gpu=1, start=1, priority=50)],
}
ONE_RACK: dict[str, Any] = {
    "nodes": [node("n1", gpu=2)],
    "groups": [
        group("v", least=1, phase="Running"),
        group("h", least=1, priority="high", networkTopology={"mode": "hard", "highestTierAllowed": 1}),
    ],
    "members": [*pods("v", 1, gpu=2, on="n1"), *pods("h", 1, gpu=2)],
    "hypernodes": [hypernode("r1", "n1")],
    "off": {"gang": ("enablePreemptable",)},
}
ONE_NEVER: dict[str, Any] = {
    "nodes": [node("n1", gpu=2)],
    "groups": [group("v", least=1, phase="Running"), group("h", least=2, priority="high")],
    "members": [*pods("v", 1, gpu=2, on="n1"), *pods("h", 1, gpu=1, preemptionPolicy="Never"), *pods("h", 1, gpu=1, start=1)],
}
OVER_WITH_THE_ASK: dict[str, Any] = {
    "nodes": [node("n1", gpu=4)],
    "groups": [
        group("a", least=1, phase="Running", queue="q1"),
        group("b", least=1, phase="Running", queue="q2"),
        group("h", least=1, queue="q2"),
    ],
    "members": [*pods("a", 1, gpu=2, on="n1"), *pods("b", 1, gpu=2, on="n1"), *pods("h", 1, gpu=2)],
    "queues": [queue("q1", gpu=1), queue("q2", gpu=3)],
    "plugins": RECLAIMING,
}
ONLY_BORROWED: dict[str, Any] = {
    "nodes": [node("n1", gpu=2)],
    "groups": [group("v", least=1, phase="Running", queue="q1"), group("h", least=1, queue="q2")],
    "members": [*pods("v", 1, gpu=2, on="n1"), *pods("h", 1, gpu=2)],
    "queues": [with_deserved(queue("q1"), cpu="8"), queue("q2", gpu=2)],
    "plugins": RECLAIMING,
    "off": {"gang": ("enableReclaimable",)},
}
BORROWED_WITHIN_A_BRANCH: dict[str, Any] = {
    "nodes": [node("n1", gpu=4), node("n2", gpu=4)],
    "groups": [group("v", least=1, phase="Running", queue="b1"), group("h", least=1, queue="a1")],
    "members": [*pods("v", 1, gpu=4, on="n1"), *pods("v", 1, gpu=4, on="n2", start=1), *pods("h", 1, gpu=4)],
    "queues": [queue("a", gpu=4), queue("a1", gpu=4, parent="a"), queue("b", gpu=8), queue("b1", gpu=4, parent="b")],
    "plugins": RECLAIMING,
}
ANTI_AFFINITY = {
    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host", "labelSelector": {}}]}
}
WITH_ANTI_AFFINITY: dict[str, Any] = {
    "nodes": [node("n1", gpu=4, host="n1")],
    "groups": [group("v", least=1, phase="Running"), group("h", least=1, priority="high")],
    "members": [*pods("v", 1, gpu=1, on="n1"), *pods("h", 1, gpu=1, affinity=ANTI_AFFINITY)],
    "configurations": [{"name": "preempt", "arguments": {"enableTopologyAwarePreemption": True}}],
    "off": {"predicates": ("enablePreemptable", "enabledAllocatable"), "gang": ("enablePreemptable",)},
}
WAITS_IN_A_PARENT: dict[str, Any] = {
    "nodes": [node("n1", gpu=4)],
    "groups": [group("x", least=1, queue="a"), group("g", least=1, queue="b")],
    "members": [*pods("x", 1, gpu=1), *pods("g", 1, gpu=1)],
    "queues": [queue("a", gpu=2), queue("a1", gpu=2, parent="a"), queue("b", gpu=2)],
    "plugins": RECLAIMING,
}
SAYS_RUNNING: dict[str, Any] = {
    "nodes": [node("n1", gpu=4)],
    "groups": [group("g", least=1, phase="Running")],
    "members": pods("g", 1, gpu=1),
}
ELASTIC_OVER_ITS_SHARE: dict[str, Any] = {
    "nodes": [node("n1", gpu=4), node("n2", gpu=4)],
    "groups": [group("v", least=1, phase="Running", queue="q1"), group("h", least=2, queue="q2")],
    "members": [*pods("v", 1, gpu=4, on="n1"), *pods("v", 1, gpu=4, on="n2", start=1), *pods("h", 2, gpu=2)],
    "queues": [queue("q1", gpu=4), queue("q2", gpu=4)],
    "plugins": RECLAIMING,
}
TWO_ELASTIC_GANGS: dict[str, Any] = {
    "nodes": [node("n1", gpu=4)],
    "groups": [group("a", least=1), group("b", least=1)],
    "members": [*pods("a", 4, gpu=1), *pods("b", 4, gpu=1)],
    "plugins": ("gang", "predicates"),
}

EXAMPLES = {
    "whole_gangs": case(
        "allocate", "preempt", **RIGID_OVER_TWO_NODES, actual={"evicted": ["ns/v-0"], "pipelined": {"ns/h-0": "n1"}}
    ),
    "no_more_than_needed": case(
        "allocate",
        "gangpreempt",
        **ONE_SURPLUS_IS_ENOUGH,
        actual={"evicted": ["ns/v-0", "ns/v-1", "ns/v-2"], "pipelined": {"ns/h-0": "n1"}},
    ),
    "only_the_minimum": case(
        "allocate",
        "gangpreempt",
        **ELASTIC_ASKER,
        actual={"evicted": ["ns/a-0", "ns/b-0"], "pipelined": {"ns/h-0": "n1", "ns/h-1": "n1"}},
    ),
    "cheaper_victims": case(
        "allocate", "preempt", **EITHER_NODE, actual={"evicted": ["ns/b-0", "ns/b-1"], "pipelined": {"ns/h-0": "n2"}}
    ),
    "never_its_own": case("allocate", "preempt", **LESSER_MEMBER, actual={"evicted": ["ns/g-0"], "pipelined": {"ns/g-1": "n1"}}),
    "whole_gangs_are_evictable": case("allocate", "reclaim", **OVER_ITS_SHARE),
    "topology_is_served": case("allocate", "preempt", **ONE_RACK),
    "reclaims_for_gangs": case("allocate", "reclaim", **ELASTIC_OVER_ITS_SHARE),
    "never_means_the_gang": case("allocate", "preempt", **ONE_NEVER, actual={"evicted": ["ns/v-0"], "pipelined": {"ns/h-1": "n1"}}),
    "borrowing_never_evicts": case(
        "allocate", "reclaim", **OVER_WITH_THE_ASK, actual={"evicted": ["ns/a-0"], "pipelined": {"ns/h-0": "n1"}}
    ),
    "only_borrowed_there": case("allocate", "reclaim", **ONLY_BORROWED),
    "judged_where_the_tree_forks": case(
        "allocate", "reclaim", **BORROWED_WITHIN_A_BRANCH, actual={"evicted": ["ns/v-1"], "pipelined": {"ns/h-0": "n2"}}
    ),
    "checks_see_evicted_pods": case("allocate", "preempt", **WITH_ANTI_AFFINITY),
    "others_are_not_stopped": case("allocate", **WAITS_IN_A_PARENT),
    "surplus_in_one_go": case(
        "allocate", **TWO_ELASTIC_GANGS, actual={"binds": {"ns/a-0": "n1", "ns/a-1": "n1", "ns/b-0": "n1", "ns/b-1": "n1"}}
    ),
}


@pytest.mark.parametrize("reason", EXAMPLES)
def test_a_difference_that_a_reason_accounts_for_is_explained_by_it(reason: str) -> None:
    judgement = judge(EXAMPLES[reason])
    assert (judgement.mark, judgement.reason) == (Mark.EXPLAINED, reason), describe(judgement)


@pytest.mark.parametrize("reason", EXAMPLES)
def test_no_reason_explains_what_else_is_wrong(reason: str) -> None:
    written = EXAMPLES[reason].written
    wrong = {**written, "expect": {"task_status_nums": {"ns/nobody": {"Running": 1}}}}
    assert judge(Case(wrong, "own/Case")).mark is Mark.DIFFER


def test_an_eviction_without_a_right_to_it_is_never_explained() -> None:
    within = {**OVER_ITS_SHARE, "queues": [queue("q1", gpu=4), queue("q2", gpu=4)]}
    entitled = case("allocate", "reclaim", **within)
    assert judge(entitled).mark is Mark.EXPLAINED
    seen = entitled.written["objects"]["queues"]
    unfair = {**entitled.written, "objects": {**entitled.written["objects"], "queues": [queue("q1", gpu=8), *seen[1:]]}}
    assert judge(Case(unfair, "own/Case")).mark is Mark.AGREE


PROBE = case(
    nodes=[node("n1", gpu=4), node("n2", gpu=4)],
    groups=[group("g", least=1)],
    members=pods("g", 1, gpu=1) + pods("v", 1, gpu=1, on="n1"),
    kind="probe",
    actual={"probe": {"node_order": {"ns/g-0": {"n1": 1, "n2": 1}}, "job_enqueueable": {"ns/g": True}}},
)
POOR = {**{name: EXAMPLES[name] for name in ("whole_gangs", "borrowing_never_evicts", "topology_is_served")}, "probe": PROBE}


def _fields(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield (*path, key)
        yield from _fields(each, (*path, key))


def _without(value: Any, path: tuple[Any, ...], *, is_null: bool) -> Any:
    """The same without one field, or with nothing in it."""
    key, *rest = path
    poor = value.copy()
    if rest:
        poor[key] = _without(value[key], tuple(rest), is_null=is_null)
    elif is_null:
        poor[key] = None
    else:
        del poor[key]
    return poor


@pytest.mark.parametrize("is_null", [False, True], ids=["missing", "null"])
@pytest.mark.parametrize("name", POOR)
def test_an_object_that_lacks_a_field_does_not_end_the_runner(name: str, *, is_null: bool) -> None:
    written = POOR[name].written
    first = {kind: objects[:1] for kind, objects in written["objects"].items()}
    for path in _fields(first):
        if len(path) > 2:
            poor = {**written, "objects": _without(written["objects"], path, is_null=is_null)}
            assert judge(Case(poor, "own/Case")).mark in Mark, path


def test_a_probe_of_what_is_not_there_differs() -> None:
    assert judge(PROBE).mark is Mark.AGREE
    gone = {**PROBE.written, "objects": {**PROBE.written["objects"], "pods": []}}
    assert judge(Case(gone, "own/Case")).differences == ("ns/g-0 is asked about and is not there",)


def test_a_pod_group_that_said_running_and_does_not_run_is_pending_in_volcanos_words() -> None:
    seen = {"binds": {"ns/g-0": "n1"}, "podgroup_phase": {"ns/g": "Pending"}}
    assert judge(case("allocate", **SAYS_RUNNING, actual=seen)).mark is Mark.AGREE
    assert judge(one_pod(seen)).differences == ("phase of ns/g: expected Pending, found Inqueue",)


def test_a_plugin_of_the_test_is_emulated_where_the_case_says_all_that_it_does() -> None:
    flags = {"enableJobEnqueued": True}
    plugins = [{"name": "proportion", "enabled": flags}, {"name": "test-rejecter", "enabled": flags, "custom": True}]
    needs = {"nvidia.com/gpu": "1"}
    rejected = case(
        "enqueue",
        nodes=[node("n1", gpu=4)],
        groups=[group("a", least=1, phase="Pending", minResources=needs), group("b", least=1, phase="Pending", minResources=needs)],
        members=pods("a", 1, gpu=1) + pods("b", 1, gpu=1),
        actual={"podgroup_phase": {"ns/a": "Pending", "ns/b": "Inqueue"}},
        custom={"plugins": ["test-rejecter"]},
        name="rejecter blocks a, b must still be admitted",
    ).written
    rejected = {**rejected, "plugins": [plugins]}
    assert judge(Case(rejected, "own/Case")).mark is Mark.AGREE
    assert judge(Case({**rejected, "name": ""}, "own/Case")).mark is Mark.NOT_APPLICABLE


def test_a_pod_without_a_pod_group_is_judged_like_any_other() -> None:
    written = EXAMPLES["whole_gangs_are_evictable"].written
    objects = written["objects"]
    alone = [{**pod, "metadata": {**pod["metadata"], "annotations": {}}} for pod in objects["pods"][:1]]
    poor = {**written, "objects": {**objects, "pods": [*alone, *objects["pods"][1:]]}}
    assert judge(Case(poor, "own/Case")).mark in Mark


def test_every_entry_has_a_check_an_example_and_a_sentence() -> None:
    assert [entry.when for entry in entries()] == list(REASONS)
    assert set(EXAMPLES) == set(REASONS)
    assert all(len(entry.why.split()) > 8 for entry in entries())
