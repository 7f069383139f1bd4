"""A plugin of your own that chooses the victims: teams that volunteered are evicted first, whatever the usual order.

Use it in a policy as `./by_team.py:ByTeam`, or as `by_team:ByTeam` if its folder is on the Python path.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.engine.evict.eviction_units import EvictionUnits
from muster.engine.evict.victims import victim_table_of
from muster.engine.hooks import Ask
from muster.engine.session import Session


@dataclass(frozen=True)
class ByTeam:
    """Gangs of the namespaces `volunteers` are taken before all others."""

    volunteers: tuple[str, ...] = ()
    name: str = "by-team"

    def victims(self, s: Session, ask: Ask, eviction_units: EvictionUnits) -> Sequence[int] | None:
        if not self.volunteers:
            return None  # No opinion: the engine chooses.
        gangs = victim_table_of(s.world).gangs
        spaces = [gangs[number].full_name.partition("/")[0] for number in eviction_units.gang.tolist()]
        # Numbers of units in the order in which to take them. Sorting is stable: within both groups the usual order stays.
        # Vetoes still apply, only as many are taken as are needed, and victims that are not needed after all are reprieved.
        return sorted(range(len(eviction_units)), key=lambda unit: spaces[unit] not in self.volunteers)
