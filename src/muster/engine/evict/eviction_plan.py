"""What a search for victims finds: a plan, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from muster.engine.evict.plan_order import PlanKey
from muster.model.pod import Placement, Pod


@dataclass(frozen=True, slots=True)
class Plan:
    """Who is evicted, which members are placed where, and what it costs. `released` only lose what was reserved for them."""

    domain: str
    victims: tuple[Pod, ...]
    released: tuple[Pod, ...]
    placements: tuple[tuple[Pod, Placement], ...]
    cost: float
    key: PlanKey
    """Its place in the one order of plans: the lower is better."""
    why_evicted: Callable[[Pod], str]
    """Why each victim is evicted, asked before anything of the plan is done."""
    units: tuple[int, ...] = ()
    crossing: tuple[str, ...] = ()
    """Gangs of its victims that bring a queue of theirs below its share, by key."""
    moves: tuple[tuple[Pod, str], ...] = ()
    """Victims that are only moved, and the nodes that are kept for them."""


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Why there is no plan, and from when on time alone may change that."""

    why: str
    at: float | None = None
