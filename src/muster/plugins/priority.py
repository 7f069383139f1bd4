"""Gangs are ordered by priority."""

from __future__ import annotations

from dataclasses import dataclass

from muster.engine.session import Session
from muster.model.gang import Gang


@dataclass(frozen=True)
class Priority:
    """The gang with the higher priority comes first."""

    name: str = "priority"

    def gang_key(self, s: Session, gang: Gang) -> int:
        return -gang.priority
