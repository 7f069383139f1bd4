"""Gangs grouped by a text that follows from each of them: its namespace, its history. Follows the log of gangs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from muster.model.gang import Gang
from muster.state.derived_values import Derived
from muster.state.world import World


class GangsBy:
    def __init__(self) -> None:
        self._of_gang: dict[str, str] = {}
        self.gangs: dict[str, set[str]] = {}
        """The keys of the gangs of each text that any has."""

    def put(self, key: str, text: str | None) -> None:
        """The gang has this text now; None: it is no more."""
        before = self._of_gang.pop(key, None)
        if before is not None:
            self.gangs[before].discard(key)
            if not self.gangs[before]:
                del self.gangs[before]
        if text is not None:
            self._of_gang[key] = text
            self.gangs.setdefault(text, set()).add(key)


def gangs_by(declared: Derived[GangsBy], world: World, text_of: Callable[[Gang], str]) -> dict[str, set[str]]:
    """`declared` follows the topic GANGS."""
    gangs = world.facts.gangs

    def put(known: GangsBy, keys: Iterable[str]) -> None:
        for key in dict.fromkeys(keys):
            known.put(key, text_of(gangs[key]) if key in gangs else None)

    def build() -> GangsBy:
        known = GangsBy()
        put(known, gangs)
        return known

    return declared.of(world, build, update=put).gangs
