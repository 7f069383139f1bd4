"""What is guaranteed to queues, as far as there is so much. What is guaranteed beyond that never stops the others.

A guarantee is at most the queue's limit. One that is larger than all that its parent may have is an error, and counts for nothing;
those of siblings that add up to more than that (a node was lost) are scaled down in proportion.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.quota import BY_QUEUE, UNLIMITED, limits
from muster.engine.session import Session
from muster.model.resource_amounts import short_name, show_amount
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.resource_columns import Amounts
from muster.state.world import World


@dataclass(frozen=True, slots=True)
class Guarantees:
    """Rows as in the ledger."""

    counted: Amounts
    """What is guaranteed to each queue, after scaling."""
    left: Amounts
    """What the guarantees of its siblings leave to each queue, and at least its own; UNLIMITED where they have none."""
    why_reduced: dict[str, str]
    """Of the queues whose guarantee does not count in full."""


_GUARANTEES: Derived[Guarantees | None] = Derived("guarantees of queues", *BY_QUEUE, Topic.ALLOCATABLE)


def guarantees(s: Session) -> Guarantees | None:
    """None where no queue has one."""
    return _GUARANTEES.of(s.world, lambda: _compute(s.world))


def _compute(world: World) -> Guarantees | None:
    tree, row = world.facts.tree, world.ledger.row
    if not any(queue.guarantee for queue in tree.nodes.values()):
        return None
    limit, total = limits(world).rows, np.asarray(world.table.allocatable.sum(axis=0), dtype=np.int64)
    found = Guarantees(np.zeros_like(limit), np.full_like(limit, UNLIMITED), {})
    most = {"": total}
    branches = [""]
    for parent in branches:
        children = tree.children.get(parent, ())
        possible = {child: _possible(world, child, limit[row[child]], most[parent], found) for child in children}
        together = np.sum(list(possible.values()), axis=0) if children else total
        scaled = {child: _scaled(world, child, own, together, most[parent], found) for child, own in possible.items()}
        all_scaled = np.sum(list(scaled.values()), axis=0) if children else total
        for child, own in scaled.items():
            others = all_scaled - own
            left = np.maximum(most[parent] - others, possible[child])
            found.counted[row[child]] = own
            found.left[row[child]] = np.where(others > 0, left, UNLIMITED)
            most[child] = np.minimum(limit[row[child]], left)
        branches.extend(children)
    return found


def _possible(world: World, queue: str, limit: Amounts, most: Amounts, found: Guarantees) -> Amounts:
    """Its guarantee, where that can be had at all."""
    configured = world.columns.vector(world.facts.tree.nodes[queue].guarantee)
    limited = np.minimum(configured, limit)
    possible = np.where(limited > most, 0, limited)
    for column in np.flatnonzero(possible < configured).tolist():
        why = "its limit" if possible[column] else "more than there is"
        _reduced(
            world,
            queue,
            column,
            int(possible[column]),
            f"{why}, {_shown(world, column, int(min(limit[column], most[column])))}",
            found,
        )
    return possible


def _scaled(world: World, queue: str, own: Amounts, together: Amounts, most: Amounts, found: Guarantees) -> Amounts:
    """Its part of what there is, where the guarantees of its siblings and its own add up to more."""
    scaled = own.copy()
    for column in np.flatnonzero((together > most) & (own > 0)).tolist():
        # Integers without bound: bytes times bytes are more than a column can hold.
        scaled[column] = int(own[column]) * int(most[column]) // int(together[column])
        sums = f"the guarantees beside it and its own add up to {_shown(world, column, int(together[column]))}"
        _reduced(world, queue, column, int(scaled[column]), f"{sums} of {_shown(world, column, int(most[column]))}", found)
    return scaled


def _reduced(world: World, queue: str, column: int, counted: int, why: str, found: Guarantees) -> None:
    name = world.columns.names[column]
    configured = _shown(world, column, world.facts.tree.nodes[queue].guarantee[name])
    text = f"its guarantee of {short_name(name)} {configured} counts as {_shown(world, column, counted)}: {why}"
    found.why_reduced[queue] = "; ".join(filter(None, (found.why_reduced.get(queue, ""), text)))


def _shown(world: World, column: int, value: int) -> str:
    return show_amount(world.columns.names[column], value)
