"""First come, first served."""

from __future__ import annotations

from dataclasses import dataclass

from muster.engine.session import Session
from muster.model.gang import Gang


@dataclass(frozen=True)
class Creation:
    """Gangs go in the order in which they were created.

    Gangs that are equal to all ordering plugins always go by creation and then by name; with this plugin creation counts before
    the plugins that stand after it.
    """

    name: str = "creation"

    def gang_key(self, s: Session, gang: Gang) -> float:
        return gang.created
