"""A disruption budget: how many of its pods may be disturbed right now."""

from __future__ import annotations

from dataclasses import dataclass

from muster.model.pod import Problem
from muster.model.pod_constraints import LabelSelector


@dataclass(frozen=True, slots=True)
class Budget:
    namespace: str
    name: str
    uid: str = ""
    version: int = 0
    selector: LabelSelector | None = None
    """None selects nothing; without requirements it selects every pod of the namespace."""
    allowed: int = 0
    problems: tuple[Problem, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
