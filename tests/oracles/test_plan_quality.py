"""How good plans are on small random clusters, beside the best ones: `muster bench quality`, on a few seeds.

Clusters whose answer is known to be wrong, and rows whose plans are known to cost too much, are listed. The lists only get
shorter: whatever is right is taken off.
"""

from __future__ import annotations

import pytest
from benchmarks.plan_quality import row_quality
from benchmarks.quality_rows import ROWS, make_world
from benchmarks.quality_workloads import MOST_COST, MOST_COST_MEAN, show

from muster.scenario import parse, run

SEEDS = range(15)
KNOWN_WRONG: dict[str, set[int]] = {}
KNOWN_COSTLY: set[str] = set()


@pytest.mark.parametrize("row", ROWS)
def test_the_plan_is_the_best_or_nearly(row: str) -> None:
    found = row_quality(row, SEEDS)
    wrong = {seed: fault.value for fault, seeds in found.faults.items() for seed in seeds}
    assert wrong.keys() == KNOWN_WRONG.get(row, set()), f"muster bench quality --show '{row}:SEED' shows one: {wrong}"
    is_costly = found.mean > MOST_COST_MEAN or found.worst > MOST_COST
    assert is_costly == (row in KNOWN_COSTLY), f"mean {found.mean:.3f}, worst {found.worst:.3f}"
    assert found.exist > len(SEEDS) // 3, "where there is nothing to find nothing is proved"


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_the_same_clusters_every_time(row: str) -> None:
    assert make_world(row, 3) == make_world(row, 3)
    assert make_world(row, 3) != make_world(row, 4)


def test_a_cluster_is_shown_as_a_scenario() -> None:
    text = show("tree of queues", 3)
    assert text.startswith("# found: ")
    (scenario,) = parse(text, file="shown.yaml")
    assert run(scenario).cycles == 1
