"""What queues used in the past: an average that forgets half of it in each half-life, for the order in which queues get free
capacity. Use is constant between two cycles, so the average is worked out exactly from when it last changed."""

from __future__ import annotations

from muster.engine.session import Session
from muster.model.saved_state import PastUse
from muster.model.topics import Topic
from muster.state.derived_values import Derived

_NO_USE = PastUse(0.0)
_LEAST = 0.001
"""An average below this is forgotten."""

_BY_QUEUE: Derived[dict[int, float]] = Derived("past use of queues", Topic.CYCLE)


def past_use(s: Session, queue: str) -> dict[int, float]:
    """The average of what the queue used, by column; empty where the policy does not look at it."""
    known = s.world.memory.past_use.get(queue) if s.policy.settings.usage_half_life_s else None
    return _BY_QUEUE.of(s.world, lambda: _by_column(s, known), key=queue) if known is not None else {}


def _by_column(s: Session, known: PastUse) -> dict[int, float]:
    return {s.world.columns.position[name]: value for name, value in _average(s, known) if name in s.world.columns.position}


def _average(s: Session, known: PastUse) -> tuple[tuple[str, float], ...]:
    """The average by resource, as it is now."""
    kept = 0.5 ** (max(0.0, s.now - known.at) / s.policy.settings.usage_half_life_s)
    used, average = dict(known.used), dict(known.average)
    found = {name: used.get(name, 0) * (1 - kept) + average.get(name, 0.0) * kept for name in sorted({*used, *average})}
    return tuple((name, round(value, 3)) for name, value in found.items() if value >= _LEAST)


def record_use(s: Session) -> None:
    """Remember what the queues use now whose use changed, and forget queues that are gone."""
    world, memory = s.world, s.world.memory
    if not s.policy.settings.usage_half_life_s:
        return
    log = world.changes.ledger
    changed = log.since(memory.noted_use)
    memory.noted_use = log.position
    queues = world.facts.tree.nodes.keys() if changed is None else world.facts.tree.nodes.keys() & changed
    for key in sorted({above for queue in queues for above in world.ledger.path(queue)[:-1]}):
        amounts = zip(world.columns.names, world.ledger.used(key).tolist(), strict=True)
        used = tuple(sorted((name, value) for name, value in amounts if value))
        known = memory.past_use.get(key, _NO_USE)
        if used != known.used:
            memory.past_use.set(key, PastUse(s.now, used, _average(s, known)))
    for key in [key for key in memory.past_use if key not in world.facts.tree.nodes]:
        memory.past_use.drop(key)
