"""What is wrong with the objects of a gang, or with a node, told to their owner: said when it changes, and only then."""

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
            yield _condition("gang", gang.title, why)
    for name in sorted({*world.faulty, *world.faults_told}):
        why = "; ".join(text for _, text in sorted(world.faulty.get(name, {}).items()))
        if name in world.nodes and why != world.faults_told.get(name, ""):
            world.faults_told[name] = why
            yield _condition("node", name, why)


def _condition(subject: str, key: str, why: str) -> Condition:
    return Condition(subject, key, not why, INVALID if why else VALID, why or "nothing is wrong with it any more")
