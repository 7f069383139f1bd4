"""Room for one pod, the slow and obvious way: node by node, unit by unit, with plain numbers. It shares no code with the engine.

It knows lone pods, Volcano gangs (spare seats and the rest as a whole), Koordinator gangs that are satisfied (seat by seat),
claims, host ports, affinity and anti-affinity, disruption budgets, lost work and a queue's limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Key = tuple[object, ...]


@dataclass(frozen=True)
class Body:
    """A pod: where it stands and what it minds. `avoids` and `needs` are (label value, topology)."""

    name: str
    gang: str
    node: str | None
    gpus: int
    priority: int
    app: str
    started: int = 0
    port: int = 0
    avoids: tuple[str, str] | None = None
    needs: tuple[str, str] | None = None
    claimed: bool = False


@dataclass(frozen=True)
class Company:
    """A gang: its members, how many it needs, and what kind it is: lone, whole or single (once satisfied)."""

    name: str
    kind: str
    members: tuple[Body, ...]
    least: int
    created: int
    queue: str = "q"

    @property
    def priority(self) -> int:
        return self.members[0].priority


@dataclass(frozen=True)
class Town:
    """Nodes are name: (GPUs, zone); budgets are label value: how many may go."""

    nodes: dict[str, tuple[int, str]]
    companies: tuple[Company, ...]
    budgets: dict[str, int]
    hard: bool
    limit: int | None
    asker: Body
    now: int


@dataclass(frozen=True)
class Unit:
    seats: tuple[Body, ...]
    company: Company
    spare: bool
    free: bool


@dataclass(frozen=True)
class Chosen:
    node: str
    victims: frozenset[str]
    released: frozenset[str]


def decide(town: Town) -> Chosen | None:
    """The cheapest node, ties by name."""
    units = allowed(town, [unit for company in town.companies for unit in units_of(town, company)])
    found: list[tuple[Key, str, Chosen]] = []
    for node in sorted(town.nodes):
        here = [unit for unit in units if any(seat.node == node for seat in unit.seats)]
        taken = on_node(town, node, here) if here else None
        if taken is not None:
            alone, taken = len(taken), with_followers(town, taken, units)
            before = len(taken) if len(taken) == alone else None
            while before != len(taken):
                before = len(taken)
                for unit in put_back_order(town, [unit for unit in taken if not follows(unit, taken)]):
                    rest = [other for other in taken if other is not unit]
                    taken = rest if passes(town, node, rest) else taken
        if taken is not None and passes(town, node, taken):
            victims = [seat for unit in taken for seat in unit.seats if not seat.claimed]
            released = frozenset(seat.name for unit in taken for seat in unit.seats if seat.claimed)
            found.append((cost(town, taken, victims), node, Chosen(node, frozenset(v.name for v in victims), released)))
    return min(found, key=lambda option: option[:2])[2] if found else None


# -- units -------------------------------------------------------------------------------------------------------------------------


def units_of(town: Town, company: Company) -> list[Unit]:
    if company.queue != "q" or company.priority >= town.asker.priority:
        return []
    bound = [seat for seat in company.members if seat.node is not None and not seat.claimed]
    claims = tuple(seat for seat in company.members if seat.claimed)
    units = [Unit(claims, company, spare=True, free=True)] if claims else []
    if company.kind == "single":
        return units + [Unit((seat,), company, spare=False, free=False) for seat in bound]
    by_use = sorted(bound, key=lambda seat: (-min(seat.gpus, town.asker.gpus), seat.priority, seat.gpus, seat.name))
    over = max(0, len(bound) - company.least)
    units += [Unit((seat,), company, spare=True, free=False) for seat in by_use[:over]]
    if by_use[over:]:
        units.append(Unit(tuple(by_use[over:]), company, spare=False, free=False))
    return units


def allowed(town: Town, units: Sequence[Unit]) -> list[Unit]:
    """With hard budgets nobody is chosen whose budget has nothing left."""
    if not town.hard:
        return list(units)
    return [unit for unit in units if all(town.budgets.get(seat.app, 1) > 0 for seat in unit.seats if not seat.claimed)]


def breaks(town: Town, unit: Unit, gone: Sequence[Body] = ()) -> bool:
    """Would its going break a budget, these being gone already?"""
    going = Counter(seat.app for seat in unit.seats if not seat.claimed)
    before = Counter(seat.app for seat in gone if not seat.claimed)
    return any(app in town.budgets and count > town.budgets[app] - before[app] for app, count in going.items())


def order(town: Town, unit: Unit) -> Key:
    """Whose budget allows it first, then the less important; of equals the spare, and those of whom most is gained for what it
    costs, who lose least, the youngest, by name."""
    hours = sum(worked(town, seat) for seat in unit.seats)
    cost = round(sum(seat.gpus / town.asker.gpus * (1.0 + worked(town, seat)) for seat in unit.seats), 9)
    gain = min(sum(seat.gpus for seat in unit.seats), town.asker.gpus) / town.asker.gpus
    worth = 0.0 if unit.spare or cost <= 0 else float(round(gain / cost / 0.05))
    kind = 0 if unit.free else 1 if unit.spare else 2
    member = unit.company.members.index(unit.seats[0])
    tail = (kind, -worth, hours, -unit.company.created, unit.company.name, member)
    return (breaks(town, unit), unit.company.priority, not unit.spare, *tail)


def worked(town: Town, seat: Body) -> int:
    """Who only has a claim has not begun."""
    return 0 if seat.claimed else town.now - seat.started


# -- one node ----------------------------------------------------------------------------------------------------------------------


def on_node(town: Town, node: str, units: Sequence[Unit]) -> list[Unit] | None:
    """Take in order until the pod passes, then put back from the most important on, whoever may come back for the pod to pass; it
    may be just one of these that the pod needs beside it, so others may follow in another round. None: that does not help."""
    in_order = sorted(units, key=lambda unit: order(town, unit))
    taken: list[Unit] = []
    for unit in in_order:
        if passes(town, node, taken):
            break
        if not (town.hard and breaks(town, unit, [seat for other in taken for seat in other.seats])):
            taken.append(unit)
    before = None
    while before != len(taken):
        before = len(taken)
        back = sorted(taken, key=lambda unit: in_order.index(unit), reverse=True)
        for unit in sorted(back, key=lambda unit: not breaks(town, unit)):
            rest = [other for other in taken if other is not unit]
            if passes(town, node, rest):
                taken = rest
    return taken if passes(town, node, taken) else None


def put_back_order(town: Town, taken: Sequence[Unit]) -> list[Unit]:
    """Whose budget is broken first, then the most important."""
    back = sorted(taken, key=lambda unit: order(town, unit), reverse=True)
    return sorted(back, key=lambda unit: not breaks(town, unit))


def follows(unit: Unit, taken: Sequence[Unit]) -> bool:
    """Whether it goes because its gang goes."""
    return unit.spare and unit.company.kind != "single" and any(not o.spare and o.company is unit.company for o in taken)


def with_followers(town: Town, taken: list[Unit], units: Sequence[Unit]) -> list[Unit]:
    """Whoever is left of a gang that goes whole goes with it. Those whom a budget keeps stay; and all of them do where the gang
    then has as many as it needs."""
    for leader in [unit for unit in taken if not unit.spare and unit.company.kind != "single"]:
        others = sorted((u for u in units if u.company is leader.company and u not in taken), key=lambda unit: order(town, unit))
        going: list[Unit] = []
        for unit in others:
            if not (town.hard and breaks(town, unit, [seat for other in (*taken, *going) for seat in other.seats])):
                going.append(unit)
        if len(going) == len(others) or not goes_on(leader.company, taken):
            taken = [*taken, *going]
    return taken


def goes_on(company: Company, taken: Sequence[Unit]) -> bool:
    gone = {seat.name for unit in taken for seat in unit.seats}
    return sum(seat.node is not None and not seat.claimed and seat.name not in gone for seat in company.members) >= company.least


def passes(town: Town, node: str, taken: Sequence[Unit]) -> bool:
    gone = {seat.name for unit in taken for seat in unit.seats}
    there = [seat for company in town.companies for seat in company.members if seat.node is not None and seat.name not in gone]
    if town.limit is not None:
        names = {seat.name for company in town.companies if company.queue == "q" for seat in company.members}
        if sum(seat.gpus for seat in there if seat.name in names) + town.asker.gpus > town.limit:
            return False
    without = [seat for seat in there if not (seat.claimed and seat.node == node)]
    return _checks(town, node, there) and _checks(town, node, without)


def _checks(town: Town, node: str, there: Sequence[Body]) -> bool:
    asker = town.asker
    here = [seat for seat in there if seat.node == node]
    if sum(seat.gpus for seat in here) + asker.gpus > town.nodes[node][0]:
        return False
    if asker.port and any(seat.port == asker.port for seat in here):
        return False
    if asker.avoids and any(seat.app == asker.avoids[0] for seat in _near(town, node, there, asker.avoids[1])):
        return False
    if asker.needs and not any(seat.app == asker.needs[0] for seat in _near(town, node, there, asker.needs[1])):
        return False
    return not any(
        seat.avoids and seat.avoids[0] == asker.app and seat in _near(town, node, there, seat.avoids[1]) for seat in there
    )


def _near(town: Town, node: str, there: Sequence[Body], topology: str) -> list[Body]:
    if topology == "host":
        return [seat for seat in there if seat.node == node]
    zone = town.nodes[node][1]
    return [seat for seat in there if seat.node is not None and town.nodes[seat.node][1] == zone]


def cost(town: Town, taken: Sequence[Unit], victims: Sequence[Body]) -> Key:
    going = Counter(seat.app for seat in victims)
    beyond = sum(max(0, count - max(0, town.budgets[app])) for app, count in going.items() if app in town.budgets)
    return (
        beyond,
        sum(_is_several(unit) and not goes_on(unit.company, taken) for unit in taken),
        max((seat.priority for seat in victims), default=-(2**31)),
        sum(seat.priority for seat in victims),
        len(victims),
        sum(town.now - seat.started for seat in victims),
        -max((seat.started for seat in victims), default=float("-inf")),
    )


def _is_several(unit: Unit) -> bool:
    """A gang of several members, or the rest of one."""
    return not unit.spare and unit.company.kind != "single" and sum(seat.node is not None for seat in unit.company.members) > 1
