"""How many more pods of one signature fit on nodes by amounts alone, and what that means for domains.

These are upper bounds: no check admits more pods than fit by amounts, but a check may admit fewer. A domain where too few fit need
not be simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from muster.engine.hooks import Ask, Purpose
from muster.engine.node_scores import COLUMNS, MOUNTING_COLUMNS, REFUSED
from muster.engine.session import Session
from muster.model.gang import MatchPolicy
from muster.model.pod import PLACED, PLACED_OR_NOMINATED, Pod, PodSignature
from muster.model.topics import Topic
from muster.state.derived.topology_domains import Domain
from muster.state.derived_values import Derived
from muster.state.gangs.gang_stage import count, is_running, phases_that_count
from muster.state.gangs.subgroups import CountsMember, in_phases, ways_to_complete
from muster.state.node_table import BoolColumn, IntColumn, NodeRows, RowIndex
from muster.state.resource_columns import Amounts
from muster.state.world import World

# A pod that asks for nothing fits this often.
UNBOUNDED = 1_000_000

# Of more signatures in one gang than this, the bounds look at the first only.
_MAX_SIGNATURES = 8


# -- by node -----------------------------------------------------------------------------------------------------------------------


class CapacityView(Enum):
    """Which capacity counts: what is free now, what will be once the releases under way are done, or all there is."""

    NOW = "now"
    AFTER_RELEASES = "after releases"
    ALLOCATABLE = "empty"


CAPACITY_FOR = {
    Purpose.ALLOCATE: CapacityView.NOW,
    Purpose.NOMINATE: CapacityView.AFTER_RELEASES,
    Purpose.EVICT: CapacityView.AFTER_RELEASES,
    Purpose.ENQUEUE: CapacityView.ALLOCATABLE,
}


def _count_fits_in(s: Session, pod: Pod, view: CapacityView, index: RowIndex | None) -> IntColumn:
    columns = s.node_scores(pod, after_releases=view is not CapacityView.NOW)
    value = columns.base if view is CapacityView.ALLOCATABLE else columns.value
    found = count_fits(_free(NodeRows(s.world.table, index, after_releases=columns.after_releases), view), s.world.request(pod))
    found[(value if index is None else value[index]) == REFUSED] = 0
    return found


_FIT_COUNTS: Derived[IntColumn] = Derived("fit counts of a pod signature", *COLUMNS.depends, follows=Topic.NODE_ROWS)
_MOUNTING_FIT_COUNTS: Derived[IntColumn] = Derived(
    "fit counts of a pod signature with volumes", *MOUNTING_COLUMNS.depends, follows=Topic.NODE_ROWS
)


def fit_counts(s: Session, pod: Pod, view: CapacityView) -> IntColumn:
    """How many further pods like this one each node could take, by its amounts alone. Never write into it."""
    derived = _MOUNTING_FIT_COUNTS if pod.signature.volume_claims else _FIT_COUNTS
    return derived.of(
        s.world,
        lambda: _count_fits_in(s, pod, view, None),
        key=(s.policy, pod.signature.without_inter_pod_terms(), view),
        update=lambda column, changed: _update(s, pod, view, column, changed),
        topics=s.policy.score_topics,
    )


def _update(s: Session, pod: Pod, view: CapacityView, column: IntColumn, changed: list[int]) -> None:
    index: RowIndex = np.array(sorted(set(changed)), dtype=np.intp)
    column[index] = _count_fits_in(s, pod, view, index)


def _free(rows: NodeRows, view: CapacityView) -> Amounts:
    return rows.allocatable if view is CapacityView.ALLOCATABLE else rows.free


def count_fits(free: Amounts, request: Amounts) -> IntColumn:
    """How often a request fits into each row of free amounts."""
    # Column by column: many rows of few columns are slow to combine row by row.
    found = np.full(len(free), UNBOUNDED, dtype=np.int64)
    for column in np.flatnonzero(request).tolist():
        np.minimum(found, free[:, column] // request[column], out=found)
    return np.maximum(found, 0, out=found)


# -- by domain ---------------------------------------------------------------------------------------------------------------------


class DomainSums:
    """Sums of columns by domain."""

    def __init__(self, domains: Sequence[Domain]) -> None:
        self._count = len(domains)
        rows = [domain.rows for domain in domains if domain.rows is not None and len(domain.rows)]
        self._listed: RowIndex = np.array([at for at, d in enumerate(domains) if d.rows is not None and len(d.rows)], dtype=np.intp)
        self._whole: RowIndex = np.array([at for at, domain in enumerate(domains) if domain.rows is None], dtype=np.intp)
        self._flat: RowIndex = np.concatenate(rows) if rows else np.zeros(0, dtype=np.intp)
        self._starts: RowIndex = np.cumsum([0, *(len(some) for some in rows[:-1])])

    def sums(self, column: Amounts) -> Amounts:
        """The sum over each domain's nodes, of a column or of several side by side."""
        total: Amounts = np.zeros((self._count, *column.shape[1:]), dtype=np.int64)
        if len(self._listed):
            total[self._listed] = np.add.reduceat(column[self._flat], self._starts, axis=0)
        if len(self._whole):
            total[self._whole] = column.sum(axis=0)
        return total


class CapacitySource(Protocol):
    """What bounds are counted from: how many pods like one fit on each node, and what is free there."""

    def fit_counts(self, pod: Pod) -> IntColumn: ...

    def free(self) -> Amounts: ...


@dataclass(frozen=True, slots=True)
class CapacityAfterEvictions:
    """These free amounts. What a node refuses for its labels or taints it still refuses after evictions."""

    s: Session
    amounts: Amounts

    def fit_counts(self, pod: Pod) -> IntColumn:
        return np.where(self.s.match(pod), count_fits(self.amounts, self.s.world.request(pod)), 0)

    def free(self) -> Amounts:
        return self.amounts


@dataclass(frozen=True, slots=True)
class CurrentCapacity:
    """Fit counts as they are now, for one view of capacity."""

    s: Session
    view: CapacityView

    def fit_counts(self, pod: Pod) -> IntColumn:
        return fit_counts(self.s, pod, self.view)

    def free(self) -> Amounts:
        return _free(NodeRows(self.s.world.table, after_releases=self.view is not CapacityView.NOW), self.view)


@dataclass(frozen=True, slots=True)
class DomainBounds:
    """For each domain: `most` members of the ask that could fit, and whether the gang could have its minimum there."""

    most: IntColumn
    feasible: BoolColumn


def domain_bounds(s: Session, ask: Ask, domains: Sequence[Domain], capacity: CapacitySource) -> DomainBounds:
    """What could be placed in each domain at best."""
    spans, nobody = DomainSums(domains), np.zeros(len(domains), dtype=np.int64)
    by_role: dict[str, IntColumn] = {}
    by_signature: dict[PodSignature, IntColumn] = {}
    counts: dict[PodSignature, int] = {}
    found = equal_members(s.world, ask.pods)
    for batch in found:
        signature = batch.pod.signature
        if signature not in by_signature:
            by_signature[signature] = (
                spans.sums(capacity.fit_counts(batch.pod)) if len(by_signature) < _MAX_SIGNATURES else nobody + UNBOUNDED
            )
        counts[signature] = counts.get(signature, 0) + batch.count
        by_role[batch.role] = by_role.get(batch.role, nobody) + np.minimum(by_signature[signature], batch.count)
    most = nobody
    for signature, wanted in counts.items():
        most = most + np.minimum(by_signature[signature], wanted)
    if len(by_signature) > 1:
        most = np.minimum(most, _most_by_total(s.world, found, spans, capacity.free()))
    missing = missing_members(s.world, ask)
    feasible: BoolColumn = most >= missing.total
    for role, need in missing.roles.items():
        feasible &= by_role.get(role, nobody) >= need
    return DomainBounds(most, feasible)


def _most_by_total(world: World, found: Sequence[EqualMembers], spans: DomainSums, free: Amounts) -> IntColumn:
    """How many of different pods could share what is free in each domain, were it all on one node: the smallest go first."""
    width = len(world.columns.names)
    requests = np.array([world.request(batch.pod) for batch in found], dtype=np.int64).reshape(len(found), width)
    each = np.repeat(requests, [batch.count for batch in found], axis=0)
    view = spans.sums(np.maximum(free, 0))
    most = np.full(len(view), len(each), dtype=np.int64)
    for column in np.flatnonzero(each.any(axis=0)).tolist():
        needed = np.cumsum(np.sort(each[:, column]))
        most = np.minimum(most, np.searchsorted(needed, view[:, column], side="right"))
    return most


# -- what is requested -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EqualMembers:
    """Equal members of one role."""

    pod: Pod
    role: str
    count: int


def equal_members(world: World, pods: Sequence[Pod]) -> list[EqualMembers]:
    counts: dict[tuple[str, PodSignature], int] = {}
    first: dict[tuple[str, PodSignature], Pod] = {}
    for pod in pods:
        key = (world.facts.members[pod.uid].role, pod.signature)
        counts[key] = counts.get(key, 0) + 1
        first.setdefault(key, pod)
    return [EqualMembers(first[key], key[0], found) for key, found in counts.items()]


@dataclass(frozen=True, slots=True)
class MissingMembers:
    """What a gang misses for its minimum: by role, and in all."""

    roles: Mapping[str, int]
    total: int


def missing_members(world: World, ask: Ask) -> MissingMembers:
    """What the ask must bring so that the gang has its minimum. An ask that does not say needs all of its pods."""
    if ask.subgroup is not None:
        pool = {pod.uid: place for place, pod in enumerate(ask.pods)}
        added = next(ways_to_complete(ask.subgroup, counted_members(world, ask), pool), None)
        return MissingMembers({}, UNBOUNDED if added is None else len(added))
    if ask.needed is None:
        counted: dict[str, int] = {}
        for pod in ask.pods:
            role = world.facts.members[pod.uid].role
            counted[role] = counted.get(role, 0) + 1
        return MissingMembers(counted, len(ask.pods))
    gang = ask.gang
    if ask.needed == 0 or (gang.match_policy is MatchPolicy.ONCE_SATISFIED and is_running(world, gang)):
        return MissingMembers({}, 0)
    phases = phases_that_count(world, gang, PLACED if ask.purpose is Purpose.ALLOCATE else PLACED_OR_NOMINATED)
    have = {role.name: count(world, role, phases) + role.succeeded for role in gang.roles}
    roles = {role.name: role.min - have[role.name] for role in gang.roles if role.min > have[role.name]}
    return MissingMembers(roles, gang.min - sum(have.values()))


def counted_members(world: World, ask: Ask) -> CountsMember:
    """Who counts in the subgroups of an ask: members that have a node or are nominated, and those that a plan places after these,
    one signature after the other: it counts only if all fit."""
    placed = in_phases(world)
    if ask.purpose is Purpose.ALLOCATE:
        return placed
    requested = {pod.uid for pod in ask.pods}
    return lambda uid: placed(uid) or (uid not in requested and uid not in world.placements.by_uid)
