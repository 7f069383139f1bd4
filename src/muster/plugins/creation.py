"""First come, first served."""

from __future__ import annotations

from dataclasses import dataclass

from muster.engine.session import Session
from muster.model.gang import Gang


@dataclass(frozen=True)
class Creation:
    """Gangs are ordered by creation.

    Gangs that are equal to all ordering plugins are always ordered by creation and then by name; with this plugin creation counts
    before the plugins after it.
    """

    name: str = "creation"

    def gang_key(self, s: Session, gang: Gang) -> float:
        return gang.created
