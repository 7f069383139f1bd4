"""Beside an endless stream of smaller work that ends, every gang that fits the cluster and its queue starts within a bound."""

from __future__ import annotations

from random import Random

import pytest

from muster.scenario import run
from muster.scenario.loader import from_document

NODES, GPUS, RUNS_S, AFTER_S = 3, 4, 180, 120


def endless_stream(chance: Random) -> dict[str, object]:
    """More small gangs of its priority or below than the cluster or the queue takes until long after the bound."""
    members = chance.randint(2, NODES)
    limit = chance.choice((None, members * GPUS))
    queue: dict[str, object] = {"name": "q", **({} if limit is None else {"limit": {"gpu": limit}})}
    each = {"queue": "q", "runDuration": f"{RUNS_S}s"}
    stream = [
        {
            **each,
            "name": f"s{i}",
            "requests": {"cpu": 2, "memory": "4Gi", "gpu": chance.randint(1, GPUS)},
            "priority": -chance.randint(0, 1),
        }
        for i in range(70)
    ]
    big = {"name": "big", "queue": "q", "pods": members, "requests": {"cpu": 4, "memory": "8Gi", "gpu": GPUS}, "priority": 0}
    # What runs when it comes drains once; then its nodes, or its part of the queue, are kept.
    bound_s = AFTER_S + 3 * RUNS_S
    return {
        "name": "an endless stream",
        "policy": {"base": "default", "settings": {"reserveAfterSeconds": AFTER_S}},
        "nodes": [{"name": f"n[1-{NODES}]", "cpu": 32, "memory": "128Gi", "gpu": GPUS}],
        "queues": [queue],
        "priorityClasses": [{"name": "patient", "value": 0, "preemptionPolicy": "Never"}],
        "steps": [
            {"submit": stream[:10]},
            {"run": "20s"},
            {"submit": {**{k: v for k, v in big.items() if k != "priority"}, "priorityClassName": "patient"}},
            {"submit": stream[10:]},
            {"run": {"for": f"{chance.randint(1, 3) * 30}s", "every": "10s"}},
            *(["restart"] if chance.random() < 0.5 else []),
            {"run": {"for": f"{bound_s}s", "every": "10s"}},
            {"expect": {"bound": {"big": members}}},
        ],
    }


@pytest.mark.parametrize("seed", range(6))
def test_a_gang_starts_within_a_bound_beside_any_stream_of_smaller_ones(seed: int) -> None:
    report = run(from_document(endless_stream(Random(f"stream {seed}")), file=f"<stream, seed {seed}>"))
    assert report.ok, report.explain()
