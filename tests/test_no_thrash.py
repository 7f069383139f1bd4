"""Evictions come to an end: random trees of queues and quotas whose controllers re-create every victim.

MUSTER_SEEDS says how many trees there are: sixty, or twice as many as seeds in a soak.
"""

from __future__ import annotations

import os

import pytest
from tests.generated.recreated_victims import late_evictions, run_recreated_victims

TREES = 2 * int(os.environ["MUSTER_SEEDS"]) if "MUSTER_SEEDS" in os.environ else 60
TREES_PER_RUN = 10


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, TREES, TREES_PER_RUN))
def test_nobody_is_evicted_in_the_second_half_of_an_hour(first: int) -> None:
    for seed in range(first, min(first + TREES_PER_RUN, TREES)):
        report = run_recreated_victims(seed)
        assert report.ok, f"\n{report.name}\n{report.explain()}"
        assert late_evictions(report) == [], report.name


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 31, 33] if "MUSTER_SEEDS" not in os.environ else range(TREES // 2))
def test_nor_where_fair_shares_are_reclaimed(seed: int) -> None:
    report = run_recreated_victims(seed, settings={"reclaimFor": "fairShare"})
    assert report.ok, f"\n{report.name}\n{report.explain()}"
    assert late_evictions(report) == [], report.name


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [2, 7, 12, 40] if "MUSTER_SEEDS" not in os.environ else range(TREES // 2))
def test_nor_where_queues_take_by_priority_what_siblings_borrow(seed: int) -> None:
    report = run_recreated_victims(seed, settings={"preemptWithinParent": "LowerPriority"})
    assert report.ok, f"\n{report.name}\n{report.explain()}"
    assert late_evictions(report) == [], report.name
