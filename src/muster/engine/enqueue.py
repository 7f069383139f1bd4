"""Enqueue: which PodGroups may have their pods attempted at all, and why the others may not.

A PodGroup that says what it needs at least is let in when that fits its queue and the cluster beside those of its namespace that
were let in before it: whoever says that she needs everything keeps out nobody else. What is used now is no reason to refuse a gang
that could have others evicted.
"""

from __future__ import annotations

from muster.engine.attempt_budget import namespace_of
from muster.engine.gang_order import order_gangs
from muster.engine.hooks import Ask, Purpose
from muster.engine.quota import queue_accepts
from muster.engine.session import Refusals, Session
from muster.model.effects import Verdict
from muster.model.gang import Gang
from muster.state.resource_columns import Amounts


def enqueue(s: Session, refusals: Refusals) -> None:  # noqa: ARG001
    gangs = [
        gang
        for key in (*s.world.placements.unplaced_members, *s.world.facts.without_pods)
        if _is_unplaced(s, gang := s.world.facts.gangs[key])
    ]
    if not any(_needs_decision(s, gang) for gang in gangs):
        return
    nothing = s.inqueue_resources
    inqueue: dict[str, Amounts] = {}
    for gang in order_gangs(s, gangs):
        s.inqueue_resources = inqueue.setdefault(namespace_of(gang), nothing.copy())
        if _needs_decision(s, gang):
            verdict = _admit(s, gang)
            s.world.memory.set_enqueued(gang.key, admitted=verdict.ok)
            if not verdict.ok:
                s.record_verdict(gang, verdict)
        if s.world.memory.attempts[gang.key].enqueued:
            _count_inqueue(s, gang)


def _is_unplaced(s: Session, gang: Gang) -> bool:
    """Does it declare minimum resources, and has no node yet?"""
    return (
        bool(gang.min_resources.items)
        and bool(gang.min_resources)
        and s.world.placements.unplaced_members.get(gang.key, 0) == gang.size
    )


def _needs_decision(s: Session, gang: Gang) -> bool:
    """Is there a decision to make about this gang?"""
    return not s.world.memory.attempts[gang.key].enqueued and not s.is_still_refused(gang.key)


def _admit(s: Session, gang: Gang) -> Verdict:
    verdict = queue_accepts(s.world, gang)
    return s.admit(Ask(gang, (), Purpose.ENQUEUE, action="enqueue")) if verdict.ok else verdict


def _count_inqueue(s: Session, gang: Gang) -> None:
    """What it needs is set aside for its namespace, in its queue and all ancestors, until it has nodes."""
    ledger = s.world.ledger
    s.inqueue_resources[[ledger.row[key] for key in ledger.path(gang.queue)]] += s.world.columns.vector(gang.min_resources)
