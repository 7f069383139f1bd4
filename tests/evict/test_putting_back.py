"""Many units are put back together: what a plan evicts is what it would be, were each put back in a turn of its own."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import yaml
from tests.cli.commands import muster


def crowded(seed: int) -> dict[str, object]:
    """Gangs of one to five members on shared nodes, so that whoever needs whole nodes evicts many of them."""
    random, places = Random(seed), [f"n{node}" for node in range(1, 13) for _ in range(8)]
    gangs: list[dict[str, object]] = []
    random.shuffle(places)
    while places:
        number, pods = len(gangs), min(random.choice((1, 1, 2, 3, 5)), len(places))
        gangs.append(
            {
                "name": f"g{number}",
                "pods": pods,
                "min": random.randint(1, pods),
                "requests": {"gpu": 1},
                "priority": random.choice((1, 1, 2, 3)),
                "runningOn": places[:pods],
                "age": f"{random.randint(1, 600)}m",
            }
        )
        del places[:pods]
    return {"name": "crowded", "nodes": [{"name": "n[1-12]", "gpu": 8}], "gangs": gangs}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("pods", [2, 4])
def test_units_that_are_put_back_together_are_those_that_are_put_back_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, pods: int
) -> None:
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(crowded(seed)))
    (tmp_path / "job.yaml").write_text(f"{{name: big, pods: {pods}, requests: {{gpu: 8}}, priority: 9}}")
    found = []
    for few in (1, 1 << 30):
        monkeypatch.setattr("muster.engine.evict.victim_search._FEW_UNITS", few)
        found.append(muster("plan", "job.yaml", "-c", "cluster.yaml", "--json", cwd=tmp_path).document["gangs"])
    assert found[0] == found[1]
    assert found[0][0]["code"] == 2
