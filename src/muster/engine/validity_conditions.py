"""What is wrong with the objects of a gang, or with a node, told to their owner: said when it changes, and only then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster.engine.explain import INVALID, VALID
from muster.engine.reporting import condition_news
from muster.engine.session import Session
from muster.model.effects import Condition


def validity_conditions(s: Session, gangs: Sequence[str]) -> Iterator[Condition]:
    """Of these gangs and of all nodes: which fields could not be read, and what to write instead."""
    facts = s.world.facts
    for key in gangs:
        gang = facts.gangs[key]
        why = "; ".join(f"{problem.field}: {problem.text}" for problem in gang.problems)
        yield from _news(s, key, "gang", gang.full_name, why, gang_key=key)
    for name in sorted({*facts.node_problems, *s.world.memory.faulty_nodes}):
        node = facts.nodes.get(name)
        if node is not None:
            why = "; ".join(text for _, text in sorted(facts.node_problems.get(name, {}).items()))
            yield from _news(s, node.uid or name, "node", name, why)
        if name in facts.node_problems:
            s.world.memory.faulty_nodes.set(name, None)
        else:
            s.world.memory.faulty_nodes.drop(name)


def _news(s: Session, uid: str, subject: str, key: str, why: str, *, gang_key: str = "") -> Iterator[Condition]:
    now = Condition(subject, key, False, INVALID, why, gang_key) if why else None
    return condition_news(s.world, uid, now, Condition(subject, key, True, VALID, "nothing is wrong with it any more", gang_key))
