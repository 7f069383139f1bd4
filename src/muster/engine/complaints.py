"""What is wrong with the objects of a gang, told to their owner: said when it changes, and only then."""

from __future__ import annotations

from collections.abc import Iterator

from muster.engine.explain import INVALID, VALID
from muster.engine.session import Session
from muster.model.effects import Condition


def complaints(s: Session) -> Iterator[Condition]:
    """Of the gangs that something happened to: which fields could not be read, and what to write instead."""
    world = s.world
    for key in sorted(world.touched):
        gang, memory = world.gangs.get(key), world.attempts.get(key)
        if gang is None or memory is None:
            continue
        why = "; ".join(f"{problem.field}: {problem.text}" for problem in gang.problems)
        if why != memory.complaint:
            memory.complaint = why
            yield Condition("gang", gang.title, not why, INVALID if why else VALID, why or "nothing is wrong with it any more")
