"""Enqueue: which PodGroups may have their pods attempted at all, and why the others may not.

A PodGroup that says what it needs at least is let in when that fits its queue and the cluster beside those let in before it. What
is used now is no reason to keep somebody out for whom others could be asked to leave.
"""

from __future__ import annotations

from dataclasses import replace

from muster.engine.hooks import Ask, Purpose
from muster.engine.order import ordered
from muster.engine.quota import may_enter
from muster.engine.session import Session
from muster.model.effects import Verdict
from muster.model.gang import Gang


def enqueue(s: Session) -> None:
    gangs = [gang for key in (*s.world.placements.unseated, *s.world.facts.awaited) if _waits(s, gang := s.world.facts.gangs[key])]
    if not any(_is_asking(s, gang) for gang in gangs):
        return
    for gang in ordered(s, gangs):
        if _is_asking(s, gang):
            verdict = _let_in(s, gang)
            attempts = s.world.memory.attempts
            attempts.set(gang.key, replace(attempts[gang.key], enqueued=verdict.ok, kept_out=not verdict.ok))
            s.world.changes.gangs.add(gang.key)
            if not verdict.ok:
                s.judge(gang, verdict)
        if s.world.memory.attempts[gang.key].enqueued:
            _stand_ahead(s, gang)


def _waits(s: Session, gang: Gang) -> bool:
    """Does it say what it needs, and has no seat yet?"""
    return bool(gang.min_resources) and s.world.placements.unseated.get(gang.key, 0) == gang.size


def _is_asking(s: Session, gang: Gang) -> bool:
    """Is there a decision to make about this gang?"""
    return not s.world.memory.attempts[gang.key].enqueued and not s.is_settled(gang)


def _let_in(s: Session, gang: Gang) -> Verdict:
    verdict = may_enter(s.world, gang)
    return s.admit(Ask(gang, (), Purpose.ENQUEUE, action="enqueue")) if verdict.ok else verdict


def _stand_ahead(s: Session, gang: Gang) -> None:
    """What it needs is spoken for, in its queue and all above it, until it has seats."""
    ledger = s.world.ledger
    s.ahead[[ledger.row[key] for key in ledger.path(gang.queue)]] += s.world.columns.vector(gang.min_resources)
