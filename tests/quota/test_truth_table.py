"""Who may cause evictions in a quota, and which whole jobs a quota takes: every combination."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import yaml

from muster.scenario import parse, run

PREFIX = "quota.scheduling.koordinator.sh"


def quota_scenario(
    *, options: dict[str, Any], job: dict[str, Any], expect: dict[str, Any], least: int, most: int, running: list[dict[str, Any]],
    nodes: int = 1, deserve: str = "team",
) -> str:  # fmt: skip
    """One quota, some who run in it, and a job that comes."""
    quota = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": deserve, "namespace": "default"},
        "spec": {"min": {"nvidia.com/gpu": least}, "max": {"nvidia.com/gpu": most}},
    }
    plugins: list[Any] = ["priority", "fit", "binpack", "nominated", {"elastic-quota": options}]
    actions = ["expire", "enqueue", "allocate", "job-preempt"]
    common = {"apiFlavour": "koordinator", "requests": {"gpu": 1}}
    gangs = [{"age": "1h", "runningOn": "n1", **common, **gang, "labels": _labels(gang)} for gang in running]
    asks = {"name": "job", "priority": 9, **common, **job, "labels": _labels(job)}
    written = {
        "name": "a row of the table",
        "policy": {"plugins": plugins, "actions": actions},
        "nodes": [{"name": f"n{number + 1}", "gpu": 8} for number in range(nodes)],
        "objects": [quota],
        "gangs": gangs,
        "steps": [{"submit": asks}, "cycle", {"expect": expect}],
    }
    return yaml.safe_dump(written)


def _labels(gang: dict[str, Any]) -> dict[str, str]:
    return {f"{PREFIX}/name": "team", **gang.get("labels", {})}


def assert_scenario_holds(text: str) -> None:
    (scenario,) = parse(text, file="table.yaml")
    report = run(scenario)
    assert report.ok, "\n" + report.explain()


TRIGGERS = list(product([False, True], [None, "true", "false"], [None, "PreemptLowerPriority", "Never"]))


def why_may_not_preempt(*, needs_label: bool, label: str | None, policy: str | None) -> bool:
    if policy == "Never" or label == "false":
        return False
    return label == "true" or not needs_label


@pytest.mark.parametrize(("needs_label", "label", "policy"), TRIGGERS)
def test_who_may_cause_evictions(*, needs_label: bool, label: str | None, policy: str | None) -> None:
    may = why_may_not_preempt(needs_label=needs_label, label=label, policy=policy)
    job: dict[str, Any] = {"pods": 1, "requests": {"gpu": 8}, "labels": {f"{PREFIX}/can-preempt": label} if label else {}}
    if policy is not None:
        job["spec"] = {"preemptionPolicy": policy}
    low = {"name": "low", "pods": 1, "requests": {"gpu": 8}, "priority": 1}
    expect = {"evicted": ["low/0"], "nominated": {"job": 1}} if may else {"evicted": [], "pending": {"job": 1}}
    options = {"disableDefaultTriggerPreemption": needs_label}
    assert_scenario_holds(quota_scenario(options=options, job=job, expect=expect, least=8, most=16, running=[low]))


@pytest.mark.parametrize("spelling", ["disableDefaultPreemptiable", "disableDefaultPreemptible"])
@pytest.mark.parametrize("disabled", [False, True])
@pytest.mark.parametrize("label", [None, "true", "false"])
def test_who_is_preemptible(*, spelling: str, disabled: bool, label: str | None) -> None:
    preemptible = label == "true" or (label is None and not disabled)
    labels = {f"{PREFIX}/preemptible": label} if label else {}
    low = {"name": "low", "pods": 1, "requests": {"gpu": 8}, "priority": 1, "labels": labels}
    job = {"pods": 1, "requests": {"gpu": 8}, "labels": {f"{PREFIX}/preemptible": "true"}}
    expect = {"evicted": ["low/0"], "nominated": {"job": 1}} if preemptible else {"evicted": [], "pending": {"job": 1}}
    assert_scenario_holds(quota_scenario(options={spelling: disabled}, job=job, expect=expect, least=8, most=32, running=[low]))


NON_PREEMPTIBLE = {f"{PREFIX}/preemptible": "false"}
# What non-preemptible and preemptible pods use, what the job asks, min, max.
NON_PREEMPTIBLE_ROWS = [
    (2, 0, 2, 4, 8, True),  # exactly at min
    (2, 0, 3, 4, 8, False),  # one above min
    (0, 4, 4, 4, 8, True),  # exactly at max
    (0, 5, 4, 4, 8, False),  # within min, above max: the preemptible ones are in the way
    (0, 0, 4, 4, 4, True),  # all three equal
    (4, 0, 1, 4, 8, False),  # min used up
]
PREEMPTIBLE_ROWS = [
    (0, 4, 4, 4, 8, True),  # exactly at max
    (0, 4, 5, 4, 8, False),  # above max
    (2, 2, 4, 4, 8, True),  # the non-preemptible part counts as it is
    (2, 3, 4, 4, 8, False),
    (4, 0, 4, 4, 8, True),
    (4, 1, 4, 4, 8, False),
]


def _running(firm: int, free: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if firm:
        found.append({"name": "firm", "pods": firm, "priority": 9, "labels": NON_PREEMPTIBLE})
    if free:
        found.append({"name": "free", "pods": free, "priority": 9})
    return found


@pytest.mark.parametrize("runtime", [False, True])
@pytest.mark.parametrize(("firm", "free", "asked", "least", "most", "enters"), NON_PREEMPTIBLE_ROWS)
def test_a_whole_non_preemptible_job_stays_within_min_and_max(
    *, runtime: bool, firm: int, free: int, asked: int, least: int, most: int, enters: bool
) -> None:
    """With the runtime quota on, a single quota's runtime is what it asks for, up to max: the same table holds."""
    job = {"pods": asked, "labels": NON_PREEMPTIBLE}
    expect = {"bound": {"job": asked}} if enters else {"pending": {"job": asked}, "evicted": []}
    options = {"enableRuntimeQuota": runtime}
    assert_scenario_holds(
        quota_scenario(options=options, job=job, expect=expect, least=least, most=most, running=_running(firm, free), nodes=4)
    )


@pytest.mark.parametrize("runtime", [False, True])
@pytest.mark.parametrize(("firm", "free", "asked", "least", "most", "enters"), PREEMPTIBLE_ROWS)
def test_a_whole_preemptible_job_stays_within_max(
    *, runtime: bool, firm: int, free: int, asked: int, least: int, most: int, enters: bool
) -> None:
    job = {"pods": asked}
    expect = {"bound": {"job": asked}} if enters else {"pending": {"job": asked}, "evicted": []}
    options = {"enableRuntimeQuota": runtime}
    assert_scenario_holds(
        quota_scenario(options=options, job=job, expect=expect, least=least, most=most, running=_running(firm, free), nodes=4)
    )


@pytest.mark.parametrize(("waiting", "asked", "enters"), [(3, 5, True), (3, 6, False), (4, 4, True), (4, 5, False), (6, 5, True)])
def test_what_non_preemptible_jobs_wait_for_is_kept_free_up_to_min(*, waiting: int, asked: int, enters: bool) -> None:
    """A quota of min 4, max 8: a non-preemptible job that waits keeps what it asked for; one that can never be admitted keeps
    nothing."""
    waits = {
        "name": "waits",
        "pods": waiting,
        "labels": NON_PREEMPTIBLE,
        "spec": {"nodeSelector": {"no": "where"}},
        "runningOn": None,
    }
    text = quota_scenario(options={}, job={"pods": asked}, expect={}, least=4, most=8, running=[], nodes=4)
    written = yaml.safe_load(text)
    del waits["runningOn"]
    written["policy"]["plugins"].insert(1, "selectors")
    written["gangs"] = [{"apiFlavour": "koordinator", "requests": {"gpu": 1}, "priority": 20, **waits, "labels": _labels(waits)}]
    expect = {"bound": {"job": asked}} if enters else {"pending": {"job": asked}, "why": {"job": "reserved for non-preemptible"}}
    written["steps"][-1] = {"expect": expect}
    assert_scenario_holds(yaml.safe_dump(written))


def test_a_mixed_job_is_refused_and_both_pods_are_named() -> None:
    text = quota_scenario(options={}, job={"pods": 2}, expect={}, least=4, most=8, running=[])
    written = yaml.safe_load(text)
    written["steps"] = [
        {"submit": {**written["steps"][0]["submit"], "initialPods": 1}},
        {"submit": {"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": "odd", "labels": {**_labels({}), **NON_PREEMPTIBLE,
                                                         "pod-group.scheduling.sigs.k8s.io": "job"}},
                    "spec": {"schedulerName": "muster", "containers": [{"name": "main"}]}}},
        "cycle",
        {"expect": {"bound": [], "code": {"job": "MixedPreemptible"}, "why": {"job": ["job-0 is", "odd is not"]}}},
    ]  # fmt: skip
    assert_scenario_holds(yaml.safe_dump(written))
