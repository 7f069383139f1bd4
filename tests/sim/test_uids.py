"""UIDs are drawn by the server, others in each cluster: no decision may follow from their order."""

import hashlib
import uuid
from pathlib import Path
from typing import Any

import pytest

from muster.model.effects import StateEffect
from muster.scenario import Scenario, generate, load, run
from muster.scenario.run_report import Report
from muster.sim.object_store import ObjectStore

SCENARIO_DIR = Path(__file__).parents[2] / "scenarios"
SCENARIOS = (
    *(
        one
        for file in ("topology/subgroups", "evict/units", "evict/order", "preempt/cost")
        for one in load(SCENARIO_DIR / f"{file}.yaml")
    ),
    *(generate(nodes=8 + seed, gangs=30, seed=seed, events=60) for seed in range(4)),
)


def randomly_drawn(store: ObjectStore, wanted: Any) -> str:
    """As a real server draws them: in no order."""
    if isinstance(wanted, str) and wanted:
        return wanted
    store._uids_made += 1
    return str(uuid.UUID(hashlib.md5(str(store._uids_made).encode()).hexdigest()))


def decided_effects(report: Report) -> list[tuple[str, ...]]:
    return [
        (
            type(decided.effect).__name__,
            *(str(getattr(decided.effect, name, "")) for name in ("pod", "node", "gang", "cause", "why")),
        )
        for decided in report.decided_effects
        # Plans name gangs by their keys: that of a single pod is its UID.
        if not isinstance(decided.effect, StateEffect)
    ]


@pytest.mark.parametrize("scenario", [pytest.param(one, id=one.name) for one in SCENARIOS])
def test_the_order_of_uids_decides_nothing(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = decided_effects(run(scenario))
    monkeypatch.setattr(ObjectStore, "_new_uid", randomly_drawn)
    assert decided_effects(run(scenario)) == expected
