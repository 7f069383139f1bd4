"""A plan that was torn by a crash, and what happens before the next scheduler looks at it."""

from __future__ import annotations

from muster.scenario import run
from muster.scenario.loader import from_document


def test_a_half_written_plan_whose_gang_was_deleted_evicts_nobody() -> None:
    scenario = {
        "name": "torn",
        "policy": {
            "plugins": ["priority", "fit", "binpack", "nominated"],
            "actions": ["expire", "enqueue", "allocate", "preempt", "gang-preempt"],
        },
        "nodes": [{"name": "n[1-4]", "gpu": 8}],
        "gangs": [{"name": "low", "pods": 4, "min": 1, "requests": {"gpu": 8}, "priority": 1, "runningOn": "n[1-4]", "age": "1h"}],
        "steps": [
            {"submit": {"name": "hi", "pods": 4, "requests": {"gpu": 8}, "priority": 9}},
            {"crash": 2},
            {"delete": "hi"},
            {"run": "2m"},
            {"expect": {"writes": {"delete": 0, "evict": 0}, "bound": ["low"], "nominated": [], "stable": 50}},
        ],
    }
    report = run(from_document(scenario))
    assert report.ok, report.explain()
