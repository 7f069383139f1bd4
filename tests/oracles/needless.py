"""Whether a plan evicts without need: a unit that can be left out, or a gang that ends where its surplus would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice

from tests.oracles.legality import rights_findings, shown
from tests.oracles.packing import TooHardToPack, is_packable_world, pack
from tests.oracles.plan_units import Unit, UnitKind, keeps_minimums, torn_subgroups
from tests.oracles.snapshot import Finding, JudgedPlan, Snapshot

from muster.model.pod import Pod

MOST_CHOICES = 200


def needless_findings(s: Snapshot, plan: JudgedPlan, units: Sequence[Unit]) -> Iterator[Finding]:
    members = [s.pods[uid] for uid in plan.placed]
    gang = s.gangs[plan.asker]
    if gang.subgroups or not members or not is_packable_world(s, members):
        return
    # What was wrong with the plan all along does not make a unit necessary.
    known = frozenset(finding.rule for finding in rights_findings(s, plan, units))
    for unit in units:
        rest = [other for other in units if other is not unit]
        if _is_enough(s, plan, members, rest, known):
            yield Finding("D8 needless", f"{shown(s, unit)} is evicted, and {gang.full_name} can be placed without that")
        elif unit.kind is UnitKind.WHOLE and unit.gang:
            surplus = _surplus_that_would_do(s, plan, members, unit, rest, known)
            if surplus:
                text = f"{shown(s, unit)} ends, and its surplus {', '.join(surplus)} would have been enough"
                yield Finding("D3 surplus", text)


def _is_enough(
    s: Snapshot, plan: JudgedPlan, members: Sequence[Pod], units: Sequence[Unit], known: frozenset[str] = frozenset()
) -> bool:
    """Whether the members find capacity, and the asker may have it, with these units alone."""
    victims = tuple(uid for unit in units for uid in unit.pods)
    smaller = replace(plan, victims=victims)
    after = s.without({*smaller.gone, *plan.placed})
    try:
        if pack(after, members, _nodes_of(s, plan)) is None:
            return False
    except TooHardToPack:
        return False
    return all(finding.rule in known for finding in rights_findings(s, smaller, units))


def _nodes_of(s: Snapshot, plan: JudgedPlan) -> frozenset[str]:
    """The nodes on which the members may be placed otherwise: those of the same domain that are not kept for others, as far as that
    is certain."""
    topology = s.gangs[plan.asker].topology
    if len(plan.placed) == 1 or (topology is not None and "topology" in s.rules.plugins):
        return frozenset(plan.placed.values())
    kept = [nodes for gang, nodes in s.kept_nodes.items() if gang != plan.asker]
    return frozenset(s.nodes).difference(*kept) | frozenset(plan.placed.values())


def _surplus_that_would_do(
    s: Snapshot, plan: JudgedPlan, members: Sequence[Pod], whole: Unit, rest: Sequence[Unit], known: frozenset[str]
) -> tuple[str, ...]:
    gang = s.gangs[whole.gang]
    surplus = len(s.placed_members(gang)) + sum(role.succeeded for role in gang.roles) - gang.min
    for count in range(1, surplus + 1):
        for chosen in islice(combinations(whole.pods, count), MOST_CHOICES):
            if not keeps_minimums(s, gang, chosen) or torn_subgroups(s, gang, chosen):
                continue
            singles = [Unit(UnitKind.SAFE, gang.key, (uid,), s.pods[uid].priority) for uid in chosen]
            if _is_enough(s, plan, members, [*rest, *singles], known):
                return tuple(s.pods[uid].full_name for uid in chosen)
    return ()
