"""UIDs are drawn by the server, others in each cluster: no decision may follow from their order."""

import hashlib
import uuid
from pathlib import Path
from typing import Any

import pytest

from muster.adapters.sim.objects import ObjectStore
from muster.scenario import Scenario, generate, load, run
from muster.scenario.report import Report

HOME = Path(__file__).parents[2] / "scenarios"
STORIES = (
    *(one for file in ("topology/cells", "evict/units", "evict/order", "preempt/cost") for one in load(HOME / f"{file}.yaml")),
    *(generate(nodes=8 + seed, gangs=30, seed=seed, events=60) for seed in range(4)),
)


def drawn(store: ObjectStore, wanted: Any) -> str:
    """As a real server draws them: in no order."""
    if isinstance(wanted, str) and wanted:
        return wanted
    store._made += 1
    return str(uuid.UUID(hashlib.md5(str(store._made).encode()).hexdigest()))


def deeds(report: Report) -> list[tuple[str, ...]]:
    return [
        (type(deed.effect).__name__, *(str(getattr(deed.effect, name, "")) for name in ("pod", "node", "gang", "cause", "why")))
        for deed in report.deeds
    ]


@pytest.mark.parametrize("scenario", [pytest.param(one, id=one.name) for one in STORIES])
def test_the_order_of_uids_decides_nothing(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = deeds(run(scenario))
    monkeypatch.setattr(ObjectStore, "_fresh_uid", drawn)
    assert deeds(run(scenario)) == expected
