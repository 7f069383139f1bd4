"""Where a gang would fit soonest: by the run times of the pods that run there as far as they are known, else where most is free.

Equal members that ask for capacity alone are counted: each node has space for so many of them, from then and then on. Of others
that count is only where the search begins: nodes are emptied in a trial, the soonest first, until a placement succeeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from muster.engine.domain_placement import place_gang
from muster.engine.evict.contested import usable_domains
from muster.engine.evict.victims import VictimTable, victim_table_of
from muster.engine.fit_counts import EqualMembers, equal_members
from muster.engine.hooks import Ask, Domain, Purpose
from muster.engine.members_to_place import unplaced_members
from muster.engine.place import has_filters
from muster.engine.run_times import run_time_of_queue
from muster.engine.session import Session
from muster.model.gang import Gang
from muster.model.pod import RESERVATIONS, Phase, Pod
from muster.state.node_table import BoolColumn, FloatColumn, RowIndex
from muster.state.pod_terms import terms_of
from muster.state.resource_columns import Amounts

NEVER = np.inf
OVERDUE_S = 60.0
"""A pod that runs for so much longer than was said ends nobody knows when."""
_MAX_TRIALS = 32
_MAX_RELEASED = 20_000
"""So many pods are taken away in the trials of one search."""


@dataclass(frozen=True, slots=True)
class SoonestNodes:
    """`start`: from when on the gang fits there; NEVER where run times do not tell."""

    nodes: tuple[str, ...]
    start: float


def soonest_nodes(s: Session, gang: Gang, usable: BoolColumn, *, endless_since: float | None = None) -> SoonestNodes | None:
    """The nodes among these where what the gang lacks fits soonest, in one domain. `endless_since`: pods that say nothing and ran
    before that never end."""
    members = unplaced_members(s.world, gang).minimum
    if not members:
        return None
    search = _Search(s, gang, members, usable, endless_since)
    return search.best(usable_domains(s, Ask(gang, (), Purpose.ALLOCATE)))


def ends_at(s: Session, table: VictimTable, victims: RowIndex) -> FloatColumn:
    """When pods that run or are nominated are known to end; NEVER where nobody says so or what was said did not come true."""
    of_queue = np.array([run_time_of_queue(s.world, queue) for queue in table.queue_number], dtype=np.float64)
    queue = table.run_queue[victims]
    declared = table.run_s[victims]
    run_s = np.where(queue < 0, declared, np.minimum(declared, of_queue[queue]))
    is_to_come = np.isin(table.phase[victims], sorted(RESERVATIONS))
    ends = np.where(is_to_come, s.now, started_at(table, victims)) + run_s
    found: FloatColumn = np.where(ends + OVERDUE_S >= s.now, np.maximum(ends, s.now), NEVER)
    return found


def started_at(table: VictimTable, victims: RowIndex) -> FloatColumn:
    started = table.started[victims]
    found: FloatColumn = np.where(started < np.inf, started, table.since[victims])
    return found


@dataclass(frozen=True, slots=True)
class _Spaces:
    """The soonest first: from when on, how full the node is now, its row, and for which kind of member."""

    at: FloatColumn
    used: FloatColumn
    row: RowIndex
    kind: RowIndex

    def among(self, chosen: RowIndex) -> _Spaces:
        return _Spaces(self.at[chosen], self.used[chosen], self.row[chosen], self.kind[chosen])


class _Search:
    def __init__(self, s: Session, gang: Gang, members: tuple[Pod, ...], usable: BoolColumn, endless_since: float | None) -> None:
        self.s, self.members, self.usable = s, members, usable
        self.kinds = list(equal_members(s.world, members))
        self.is_counted = len(self.kinds) == 1 and not gang.subgroups and not has_filters(s, members[0])
        self.ending = _EndingPods(s, usable, endless_since)
        self.spaces = self._all_spaces()
        # Whom they want to be beside stays.
        terms = {pod.signature: terms_of(pod) for pod in members}.values()
        self._beside = [target.selection for each in terms for target in each.required_affinity]
        self._trials, self._released = _MAX_TRIALS, _MAX_RELEASED

    def best(self, domains: Sequence[Domain]) -> SoonestNodes | None:
        """Of the domains where it could be soonest, the first that takes the gang."""
        bounds = []
        for number, domain in enumerate(domains):
            inside = self.spaces.among(np.flatnonzero(domain.mask(len(self.s.world.table))[self.spaces.row]))
            least = self._least(inside)
            if least is not None:
                used = round(float(inside.used[:least].sum()), 9)
                bounds.append((float(inside.at[least - 1]), used, int(inside.row[0]), number, domain, inside, least))
        best: SoonestNodes | None = None
        for start, *_, domain, inside, least in sorted(bounds, key=lambda each: each[:4]):
            if best is not None and best.start <= start:
                break
            found = self._counted(inside, least) if self.is_counted else self._tried(domain, inside, least)
            if found is not None and (best is None or found.start < best.start):
                best = found
        return best

    def _least(self, spaces: _Spaces) -> int | None:
        """With so many of the spaces each kind of member has enough; None where there are too few."""
        least = 0
        for number, kind in enumerate(self.kinds):
            own = np.flatnonzero(spaces.kind == number)
            if len(own) < kind.count:
                return None
            least = max(least, int(own[kind.count - 1]) + 1)
        return least

    def _counted(self, spaces: _Spaces, least: int) -> SoonestNodes:
        return self._named(spaces.row[:least].tolist(), float(spaces.at[least - 1]))

    def _named(self, rows: Sequence[int], start: float) -> SoonestNodes:
        return SoonestNodes(tuple(self.s.world.table.names[row] for row in dict.fromkeys(rows)), start)

    # -- with every check ----------------------------------------------------------------------------------------------------------

    def _tried(self, domain: Domain, spaces: _Spaces, least: int) -> SoonestNodes | None:
        """More and more spaces, until the members can be placed there; then whole nodes, whoever is in their way."""
        found = self._grown(domain, spaces.at, spaces.row, least)
        if found is not None:
            return found
        rows = np.unique(spaces.row)
        order = np.lexsort((rows, self.ending.fullness[rows], self.ending.last_end[rows]))
        return self._grown(domain, self.ending.last_end[rows][order], rows[order], min(len(rows), len(self.members)))

    def _grown(self, domain: Domain, at: FloatColumn, row: RowIndex, least: int) -> SoonestNodes | None:
        failed, many = least - 1, least
        while (found := self._placed(domain, at[:many], row[:many])) is None:
            if many == len(row) or not self._has_budget:
                return None
            failed, many = many, min(2 * many, len(row))
        while many - failed > 1 and found.start < NEVER and self._has_budget:
            middle = (failed + many) // 2
            sooner = self._placed(domain, at[:middle], row[:middle])
            if sooner is None:
                failed = middle
            else:
                found, many = sooner, middle
        return found

    @property
    def _has_budget(self) -> bool:
        return self._trials > 0 and self._released > 0

    def _placed(self, domain: Domain, at: FloatColumn, row: RowIndex) -> SoonestNodes | None:
        """Where the members are placed on these nodes once all pods there have ended that do so until then."""
        s, before = self.s, self.s.left_out
        until = np.full(len(s.world.table), -NEVER)
        np.maximum.at(until, row, at)
        self._trials -= 1
        with s.trial("simulated", cause="Simulated") as trial:
            for pod in self.ending.until(until):
                if not any(target.matches_pod(s.world.facts.namespaces, pod) for target in self._beside):
                    trial.release(pod)
                self._released -= 1
            s.left_out = until == -NEVER
            placed = place_gang(s, trial, self.members, domain=domain, phase=Phase.NOMINATED, admitted=True)
            s.left_out = before
            if placed.first_refused is not None:
                return None
            nodes = sorted({s.world.placement(pod).node or "" for pod in self.members})
        rows = [s.world.table.row[node] for node in nodes]
        return self._named(rows, float(until[rows].max()))

    # -- spaces --------------------------------------------------------------------------------------------------------------------

    def _all_spaces(self) -> _Spaces:
        each = [self._spaces(number, kind) for number, kind in enumerate(self.kinds)]
        joined = _Spaces(*(np.concatenate(columns) for columns in zip(*((x.at, x.used, x.row, x.kind) for x in each), strict=True)))
        return joined.among(np.lexsort((joined.kind, joined.row, joined.used, joined.at)))

    def _spaces(self, number: int, kind: EqualMembers) -> _Spaces:
        """From when on each node has space for one, two, three of these members."""
        s, table = self.s, self.s.world.table
        request = s.world.request(kind.pod)
        asked = np.flatnonzero(request > 0)
        usable = self.usable & s.match(kind.pod)
        free = (table.allocatable - table.planned)[:, asked]
        used = (table.planned[:, asked] / np.maximum(table.allocatable[:, asked], 1)).max(axis=1, initial=0.0).round(9)
        now = np.clip((free // request[asked]).min(axis=1), 0, kind.count) * usable
        row, ends, requests = self.ending.on(usable)
        first = np.searchsorted(row, row)
        gone = np.cumsum(requests[:, asked], axis=0)
        freed = gone - (gone[first] - requests[first][:, asked])
        count = np.clip(((free[row] + freed) // request[asked]).min(axis=1), 0, kind.count).astype(np.int64)
        before = np.concatenate([[0], count[:-1]]) if len(count) else count
        more = count - np.where(first == np.arange(len(row)), now[row], before)
        rows = np.concatenate([np.repeat(np.arange(len(table)), now), np.repeat(row, more)])
        at = np.concatenate([np.full(int(now.sum()), s.now), np.repeat(ends, more)])
        return _Spaces(at, used[rows], rows, np.full(len(rows), number))


class _EndingPods:
    """Placed pods of ours on usable rows that end some time, by row and by when they do. Those that are nominated count where their
    run time is known: where evictions go on, some node has one at any time."""

    def __init__(self, s: Session, usable: BoolColumn, endless_since: float | None) -> None:
        self._s, table = s, victim_table_of(s.world)
        used = len(table.pods)
        here = table.alive[:used] & (table.row[:used] >= 0)
        here[here] = usable[table.row[:used][here]]
        at = np.flatnonzero(here & table.ours[:used])
        started = started_at(table, at)
        ends = ends_at(s, table, at)
        runs = (ends < NEVER) | ~np.isin(table.phase[at], sorted(RESERVATIONS))
        at, started, ends = at[runs], started[runs], ends[runs]
        if endless_since is not None:
            kept = (ends < NEVER) | (started >= endless_since)
            at, ends = at[kept], ends[kept]
        order = np.lexsort((at, ends, table.row[at]))
        self.row, self.ends, self.request = table.row[at][order], ends[order], table.request[at][order]
        self._pods = [table.pods[number] for number in at[order].tolist()]

    def on(self, usable: BoolColumn) -> tuple[RowIndex, FloatColumn, Amounts]:
        """Rows, ends and requests of those on these rows."""
        here = usable[self.row]
        return self.row[here], self.ends[here], self.request[here]

    def until(self, until: FloatColumn) -> Iterator[Pod]:
        """Those that have ended on each row until then."""
        return (self._pods[at] for at in np.flatnonzero(self.ends <= until[self.row]).tolist())

    @cached_property
    def last_end(self) -> FloatColumn:
        """When the last of them ends on each row: from the beginning where there is none."""
        last = np.full(len(self._s.world.table), self._s.now)
        np.maximum.at(last, self.row, self.ends)
        return last

    @cached_property
    def fullness(self) -> FloatColumn:
        table = self._s.world.table
        found: FloatColumn = (table.planned / np.maximum(table.allocatable, 1)).max(axis=1, initial=0.0).round(9)
        return found
