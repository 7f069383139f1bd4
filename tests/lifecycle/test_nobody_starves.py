"""Beside an endless stream of smaller work that ends, every gang that fits the cluster and its queue starts within a bound."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from muster.scenario import run
from muster.scenario.loader import from_document

RACKS, PER_RACK, GPUS, RUNS_S, AFTER_S = 2, 2, 4, 180, 120
NODES = RACKS * PER_RACK

Gang = dict[str, Any]


def whole_nodes(_: Random) -> Gang:
    return {"pods": NODES, "requests": {"cpu": 4, "memory": "8Gi", "gpu": GPUS}}


def single_pod(_: Random) -> Gang:
    return {"apiFlavour": "single-pod", "requests": {"gpu": GPUS}}


def one_rack(_: Random) -> Gang:
    return {"pods": PER_RACK, "requests": {"gpu": GPUS}, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}


def roles_of_two_sizes(chance: Random) -> Gang:
    """One wants many cores, the others whole nodes: no node has space for what is the most of both."""
    return {
        "roles": [
            {"name": "launcher", "requests": {"cpu": 64}},
            {"name": "worker", "pods": chance.randint(2, NODES), "requests": {"gpu": GPUS}},
        ]
    }


def one_pod_a_node(chance: Random) -> Gang:
    terms = [{"labelSelector": {"matchLabels": {"app": "big"}}, "topologyKey": "kubernetes.io/hostname"}]
    return {
        "pods": chance.randint(2, NODES),
        "requests": {"gpu": 1},
        "labels": {"app": "big"},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
    }


def parts_in_a_rack_each(_: Random) -> Gang:
    part = {"pods": PER_RACK, "requests": {"gpu": GPUS}}
    policy = {
        "name": "parts",
        "labelSelector": {"matchExpressions": [{"key": "part", "operator": "Exists"}]},
        "matchLabelKeys": ["part"],
        "subGroupSize": PER_RACK,
        "minSubGroups": RACKS,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    roles = [{"name": f"p{number}", "labels": {"part": f"p{number}"}, **part} for number in range(RACKS)]
    return {"roles": roles, "podGroupSpec": {"subGroupPolicy": [policy]}}


SHAPES: tuple[Callable[[Random], Gang], ...] = (
    whole_nodes,
    single_pod,
    one_rack,
    roles_of_two_sizes,
    one_pod_a_node,
    parts_in_a_rack_each,
)


QUOTA = "quota.scheduling.koordinator.sh/name"
WHERE = ("other queues", "below one parent", "quotas")


def charged_to(queue: str, gang: Gang) -> Gang:
    """The same in an ElasticQuota: its pods name it by a label."""
    moved = {key: value for key, value in gang.items() if key != "queue"}
    if "roles" in moved:
        return {**moved, "roles": [{**role, "labels": {**role.get("labels", {}), QUOTA: queue}} for role in moved["roles"]]}
    return {**moved, "labels": {**moved.get("labels", {}), QUOTA: queue}}


def beside(chance: Random, where: str, document: dict[str, Any]) -> dict[str, Any]:
    """The stream in other queues than the gang, of any weight, in which nobody has a share: alone, below a parent whose limit is as
    narrow as the gang's queue, or in quotas. Two of its pods at a time may come as a gang of two."""
    names = [f"s{number}" for number in range(chance.randint(1, 3))]
    (own,) = document["queues"]
    submitted = [step["submit"] for step in document["steps"] if "submit" in step]
    big = next(one for one in submitted if isinstance(one, dict))
    for one in (*document["gangs"], *(gang for many in submitted if isinstance(many, list) for gang in many)):
        one["queue"] = chance.choice(names)
        if one["name"] != "service" and chance.random() < 0.3:
            del one["apiFlavour"]
            one |= {"pods": 2, "min": chance.randint(1, 2)}
    document["queues"] = [{"name": name, "weight": chance.randint(1, 3)} for name in names]
    if where == "quotas":
        limits = {"q": own.get("limit", {}).get("gpu", NODES * GPUS), **dict.fromkeys(names, NODES * GPUS)}
        document["queues"] = []
        document["objects"] = [
            {
                "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
                "kind": "ElasticQuota",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"min": {}, "max": {"nvidia.com/gpu": limit}},
            }
            for name, limit in limits.items()
        ]
        for one in (*document["gangs"], big, *(gang for many in submitted if isinstance(many, list) for gang in many)):
            moved = charged_to(one.get("queue", "q"), one)
            one.clear()
            one |= moved
    elif where == "below one parent":
        document["queues"] = [{**own, "name": "p"}, *({**queue, "parent": "p"} for queue in (*document["queues"], {"name": "q"}))]
    else:
        document["queues"].append(own)
    return document


def endless_stream(chance: Random, shape: Callable[[Random], Gang]) -> dict[str, Any]:
    """More small gangs of its priority or below than the cluster or the queue takes, each of which comes again when it has ended.
    Some declare a run time, and not all of these keep to it."""
    big: Gang = {"name": "big", "queue": "q", "priorityClassName": "patient", **shape(chance)}
    roles: list[Gang] = big.get("roles") or [big]
    members = sum(role.get("pods", 1) for role in roles)
    gpus = sum(role.get("pods", 1) * role["requests"].get("gpu", 0) for role in roles)
    limit = chance.choice((None, max(gpus, GPUS)))
    queue: dict[str, object] = {"name": "q", **({} if limit is None else {"limit": {"gpu": limit}})}
    says = chance.choice((None, None, RUNS_S + 10, 30))
    stream = [
        {
            "name": f"s{number}",
            "apiFlavour": "single-pod",
            "queue": "q",
            "requests": {"cpu": chance.randint(1, 4), "gpu": chance.randint(1, GPUS)},
            # Whoever was there before it, and waits for room as well, comes after it all the same.
            "priority": -1 if number < NODES else -chance.randint(0, 1),
            "runDuration": f"{chance.randint(RUNS_S // 3, RUNS_S)}s",
            "exitPhase": "Failed",
            "controller": "recreate",
            "recreateAfter": "5s",
            **({} if says is None or chance.random() < 0.3 else {"annotations": {"muster.dev/run-seconds": str(says)}}),
        }
        for number in range(6 * NODES)
    ]
    more = {"requests": {"cpu": 40}, "runDuration": "100s", "exitPhase": "Failed", "controller": "recreate", "queue": "q"}
    stream += [{"name": f"c{number}", "apiFlavour": "single-pod", **more} for number in range(2)]
    # A pod that never ends, on a node that the gang can do without.
    service: Gang = {"name": "service", "apiFlavour": "single-pod", "queue": "q", "requests": {"cpu": 1}, "age": "5h"}
    can_do_without = shape is single_pod and limit is None
    if can_do_without:
        service["requests"] = {"gpu": 1}
    # What runs when it comes drains once; then its nodes, or its part of the queue, are kept. Where pods run for ever or for longer
    # than they say, other nodes are tried, each time for twice as long.
    bound_s = AFTER_S + (10 if says == 30 or can_do_without else 4) * RUNS_S
    return {
        "name": "an endless stream",
        "policy": {
            "base": "default",
            "plugins": [{"topology": {"tiers": {"rack": "rack"}}}],
            "settings": {"reserveAfterSeconds": AFTER_S},
        },
        "nodes": [
            *({"name": f"r{rack}n[1-{PER_RACK}]", "cpu": 32, "gpu": GPUS, "labels": {"rack": f"r{rack}"}} for rack in range(RACKS)),
            {"name": "cores", "cpu": 64},
        ],
        "queues": [queue],
        "priorityClasses": [{"name": "patient", "value": 0, "preemptionPolicy": "Never"}],
        "gangs": [{**service, "runningOn": "r0n1"}],
        "steps": [
            {"submit": stream[:NODES]},
            {"run": {"for": "30s", "every": "10s"}},
            {"submit": big},
            {"submit": stream[NODES:]},
            {"run": {"for": f"{chance.randint(1, 3) * 30}s", "every": "10s"}},
            *(["restart"] if chance.random() < 0.5 else []),
            {"run": {"for": f"{bound_s}s", "every": "10s"}},
            {"expect": {"bound": {"big": members}}},
        ],
    }


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize("seed", range(3))
def test_a_gang_starts_within_a_bound_beside_any_stream_of_smaller_ones(seed: int, shape: Callable[[Random], Gang]) -> None:
    chance = Random(f"stream {shape.__name__} {seed}")
    report = run(from_document(endless_stream(chance, shape), file=f"<stream, seed {seed}>"))
    assert report.ok, report.explain()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize("where", WHERE)
def test_a_gang_starts_within_a_bound_beside_any_stream_in_other_queues(where: str, shape: Callable[[Random], Gang]) -> None:
    chance = Random(f"stream {shape.__name__} {where}")
    document = beside(chance, where, endless_stream(chance, shape))
    report = run(from_document(document, file=f"<stream, {where}>"))
    assert report.ok, report.explain()
