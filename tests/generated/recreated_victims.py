"""Random trees of queues and quotas in which controllers re-create every victim, and no new work is submitted."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tests.generated.objects import Document, Objects

from muster.model.effects import Evict
from muster.scenario import Report, run
from muster.scenario.loader import from_document

HALF_S = 1800


def recreated_victims_document(seed: int) -> Document:
    """Work comes in the first ten minutes; then an hour passes in which nothing happens but what the scheduler causes."""
    chance = Random(f"recreated victims {seed}")
    objects = Objects(chance, chance.randint(2, 5), "")
    made: Document = {"name": f"recreated victims, seed {seed}", "seed": seed}
    made["nodes"] = [objects.node() for _ in range(objects.nodes_wanted)]
    made["queues"] = objects.queue_tree() if chance.random() < 0.9 else []
    made["objects"] = objects.quota_tree() if not objects.queues or chance.random() < 0.5 else []
    made["gangs"] = [_for_ever(objects.gang()) for _ in range(3 * objects.nodes_wanted)]
    made["steps"] = []
    for _ in range(3 * objects.nodes_wanted):
        made["steps"] += [{"submit": _for_ever(objects.gang())}, {"run": {"for": f"{chance.randrange(10, 120)}s", "every": "30s"}}]
    made["steps"] += [{"run": {"for": f"{HALF_S}s", "every": "30s"}}, {"run": {"for": f"{HALF_S}s", "every": "60s"}}]
    return made


def _for_ever(gang: Document) -> Document:
    """Its members run until somebody ends them, and come again each time."""
    for key in ("runDuration", "exitPhase", "recreateLimit"):
        gang.pop(key, None)
    return {**gang, "controller": "recreate"}


def late_evictions(report: Report) -> list[str]:
    """Evictions of the second half of the hour."""
    begin = report.virtual_s - HALF_S
    return [
        f"after {decided.at_s:g} s: {decided.effect.pod} for {decided.effect.for_gang}: {decided.effect.why}"
        for decided in report.decided_effects
        if isinstance(decided.effect, Evict) and decided.at_s > begin
    ]


def run_recreated_victims(seed: int, *, settings: Mapping[str, object] | None = None) -> Report:
    policy = {"policy": {"base": "default", "settings": dict(settings)}} if settings else {}
    return run(from_document({**recreated_victims_document(seed), **policy}, file=f"<recreated victims, seed {seed}>"))
