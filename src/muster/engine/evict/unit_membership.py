"""Which placed pods form a unit: a surplus member alone, what a gang only has reserved, and the rest of a gang as a whole."""

from __future__ import annotations

import numpy as np

from muster.engine.evict.victims import BROKEN_AFTER_S, VictimTable
from muster.engine.session import Session
from muster.model.gang import Gang, Subgroup
from muster.model.pod import PLACED, Phase
from muster.state.gangs.gang_stage import count
from muster.state.gangs.subgroups import placed_in_subgroup
from muster.state.node_table import BoolColumn, IntColumn, RowIndex
from muster.state.resource_columns import Amounts


def unit_numbers(
    s: Session, victim_table: VictimTable, victim: RowIndex, in_domain: BoolColumn, protected: BoolColumn, need: Amounts
) -> IntColumn:
    """A number for each pod's unit, -1 where it can be in none: the gang's number for the gang as a whole, then one for each pod
    that is evicted alone, then one for what a gang only has reserved or was given in this very cycle."""
    total = len(victim_table.gangs)
    gang, phase = victim_table.gang[victim], victim_table.phase[victim]
    unit = gang.copy()
    bound = phase == Phase.BOUND
    unit[~bound] = total + len(victim_table.pods) + gang[~bound]
    single = bound & victim_table.gang_per_pod[gang]
    unit[single] = total + victim[single]
    surplus = (
        np.bincount(victim_table.gang[_placed(victim_table)], minlength=total)[:total]
        + victim_table.gang_succeeded[:total]
        - victim_table.gang_min[:total]
    )
    for number in np.unique(gang[bound & ~single & in_domain & (surplus[gang] != 0)]).tolist():
        here = np.flatnonzero(bound & in_domain & (gang == number))
        for at in _surplus_victims(
            s, victim_table, victim, here, need, surplus=int(surplus[number]), gang=victim_table.gangs[number], protected=protected
        ):
            unit[at] = total + victim[at]
    # No gang served in this cycle is a victim in it.
    served = np.zeros(total, dtype=np.bool_)
    served[gang[phase == Phase.BINDING]] = True
    unit[bound & served[gang]] = -1
    # A gang that was half bound keeps what completes it: without that the half that runs would be worth nothing.
    runs = np.bincount(gang[bound], minlength=total)[:total]
    torn = served & (runs > 0) & (runs + victim_table.gang_succeeded[:total] < victim_table.gang_min[:total])
    unit[(phase == Phase.BINDING) & torn[gang]] = -1
    return unit


def _placed(victim_table: VictimTable) -> RowIndex:
    phase = victim_table.phase[: len(victim_table.pods)]
    return np.flatnonzero(victim_table.alive[: len(victim_table.pods)] & ((phase == Phase.BOUND) | (phase == Phase.BINDING)))


def _surplus_victims(
    s: Session,
    victim_table: VictimTable,
    victim: RowIndex,
    here: RowIndex,
    need: Amounts,
    *,
    surplus: int,
    gang: Gang,
    protected: BoolColumn,
) -> list[int]:
    """Which of the gang's pods in the domain are surplus: all of a broken gang's, else what is above its minimums."""
    if surplus < 0:
        return here.tolist() if is_broken(s, gang) else []
    budget: dict[str | Subgroup, int] = {role.name: count(s.world, role, PLACED) + role.succeeded - role.min for role in gang.roles}
    budget.update({subgroup: placed_in_subgroup(s.world, subgroup, PLACED) - subgroup.min for subgroup in gang.subgroups})
    alone: list[int] = []
    # Protected pods come last: they stay anyway, and count towards the minimum.
    for at in sorted(here.tolist(), key=lambda i: (bool(protected[i]), _victim_order(victim_table, int(victim[i]), need))):
        uid = victim_table.pods[int(victim[at])].uid
        belongs: list[str | Subgroup] = [
            s.world.facts.members[uid].role,
            *(subgroup for subgroup in gang.subgroups if uid in subgroup.members),
        ]
        if len(alone) < surplus and all(budget[each] > 0 for each in belongs):
            alone.append(at)
            for each in belongs:
                budget[each] -= 1
    return alone


def is_broken(s: Session, gang: Gang) -> bool:
    """Below its minimum for good: the missing members do not exist, or have waited long enough."""
    world = s.world
    waiting = [pod for pod in gang.pods() if world.phase(pod) is Phase.PENDING]
    placed = sum(count(world, role, PLACED) + role.succeeded for role in gang.roles)
    if placed + len(waiting) < gang.min:
        return True
    return all(s.now - pod.created >= BROKEN_AFTER_S for pod in waiting)


def _victim_order(victim_table: VictimTable, at: int, need: Amounts) -> tuple[float, int, float, float, str]:
    """Within a gang: what covers most of the need, the lowest priority, the least waste, the youngest."""
    requested = need > 0
    request = victim_table.request[at]
    coverage = float((np.minimum(request[requested], need[requested]) / need[requested]).sum())
    waste = float((request[requested] / need[requested]).sum())
    pod = victim_table.pods[at]
    return (-coverage, pod.priority, waste, -pod.created, pod.full_name)
