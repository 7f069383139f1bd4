"""The more important gang goes first, and within a gang the more important pod."""

from __future__ import annotations

from dataclasses import dataclass

from muster.engine.session import Session
from muster.model.gang import Gang


@dataclass(frozen=True)
class Priority:
    name: str = "priority"

    def gang_key(self, s: Session, gang: Gang) -> int:
        return -gang.priority
