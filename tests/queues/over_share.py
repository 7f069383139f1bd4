"""What a queue uses beyond what it deserves, worked out from what the share plugins say."""

from __future__ import annotations

from muster.engine.session import Session
from muster.engine.shares import dimensions
from muster.model.resource_amounts import Resources


def over_share(s: Session, queue: str) -> Resources:
    """What the queue uses beyond what it deserves, as far as all share plugins agree; all of it where it deserves nothing."""
    over: dict[str, int] | None = None
    for plugin in s.policy.deserved_shares:
        found = dict(_over_deserved(s, queue, s.amounts(plugin.deserved(s), queue)).items)
        over = found if over is None else {name: min(value, found[name]) for name, value in over.items() if name in found}
    return Resources.of(over or {})


def _over_deserved(s: Session, queue: str, deserved: Resources) -> Resources:
    """What the queue uses beyond what it deserves, where it deserves anything; all of it where it deserves nothing."""
    names, taken = s.world.columns.names, s.world.ledger.planned_list(queue)
    if not deserved:
        return Resources.of({names[column]: taken[column] for column, _ in dimensions(s) if taken[column] > 0})
    position = s.world.columns.position
    over = {name: taken[position[name]] - value for name, value in deserved.items if value}
    return Resources.of({name: value for name, value in over.items() if value > 0})
