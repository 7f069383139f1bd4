"""What a search for victims finds: a plan, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from muster.model.pod import Placement, Pod


@dataclass(frozen=True, slots=True)
class Plan:
    """Who is evicted, which members are placed where, and what it costs. `released` only lose what was reserved for them."""

    domain: str
    victims: tuple[Pod, ...]
    released: tuple[Pod, ...]
    placements: tuple[tuple[Pod, Placement], ...]
    cost: float
    worst_class: int
    """The highest class of the evicted units: what is never traded for a lower cost."""
    units: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Why there is no plan, and from when on time alone may change that."""

    why: str
    at: float | None = None
