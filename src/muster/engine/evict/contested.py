"""The contested part of an ask: the dimensions for which evictions are needed at all.

A dimension is contested if in it alone the missing members can be packed into no domain that they may use, or if they would break
a limit of their queues in it; where there is none, all that is requested. Who may be evicted for whom, and what an eviction costs,
is measured in these: so nobody loses GPUs for using many CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.engine import quota
from muster.engine.fit_counts import EqualMembers, equal_members
from muster.engine.hooks import WHOLE_CLUSTER, Ask, Domain
from muster.engine.place import without_rows
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.resource_amounts import PODS
from muster.state.node_table import BoolColumn, IntColumn
from muster.state.resource_columns import Amounts

Contested = dict[str, BoolColumn]
"""For each queue of the ask: which columns are contested for its members."""


def contested(s: Session, ask: Ask, domains: Sequence[Domain]) -> Contested:
    """`domains`: all that the ask may use, whatever is free there."""
    by_queue: dict[str, list[Pod]] = {}
    for pod in ask.pods:
        by_queue.setdefault(s.world.facts.members[pod.uid].queue, []).append(pod)
    return {queue: _contested_in(s, queue, pods, domains) for queue, pods in by_queue.items()}


def total_need(s: Session, pods: Sequence[Pod]) -> Amounts:
    """What these pods request together; the number of pods is no dimension that is shared."""
    return _need_of(s, equal_members(s.world, pods))


def _need_of(s: Session, members: Sequence[EqualMembers]) -> Amounts:
    need = np.zeros(len(s.world.columns.names), dtype=np.int64)
    for batch in members:
        need += batch.count * s.world.request(batch.pod)
    need[s.world.columns.position[PODS]] = 0
    return need


def _contested_in(s: Session, queue: str, pods: Sequence[Pod], domains: Sequence[Domain]) -> BoolColumn:
    members = equal_members(s.world, pods)
    need = _need_of(s, members)
    requested = need > 0
    found = _breaks_limit(s, queue, need)
    if len(pods) == 1:
        found |= requested & ~_fits_somewhere(s, pods[0], domains)
        return found if found.any() else requested
    free = s.world.table.allocatable - s.world.table.planned
    for column in np.flatnonzero(requested & ~found).tolist():
        found[column] = not any(_packs(s, members, column, free[:, column], domain) for domain in domains)
    return found if found.any() else requested


def _fits_somewhere(s: Session, pod: Pod, domains: Sequence[Domain]) -> BoolColumn:
    """In which columns some node alone has enough for one pod."""
    match, table = s.match(pod), s.world.table
    if not any(domain.rows is None for domain in domains):
        match = match & np.asarray(np.logical_or.reduce([domain.mask(len(match)) for domain in domains]), dtype=np.bool_)
    enough = table.planned + s.world.request(pod) <= table.allocatable
    return np.asarray((enough & match[:, np.newaxis]).any(axis=0), dtype=np.bool_)


def _breaks_limit(s: Session, queue: str, need: Amounts) -> BoolColumn:
    bounds = quota.limits(s.world)
    if not bounds.is_limited or queue not in s.world.ledger:
        return np.zeros(len(need), dtype=np.bool_)
    rows = s.world.ledger.rows_up(queue)
    over = (s.world.ledger.planned_in(rows) + need > bounds.rows.take(rows, axis=0)).any(axis=0) & (need > 0)
    return np.asarray(over, dtype=np.bool_)


def _packs(s: Session, members: Sequence[EqualMembers], column: int, free: IntColumn, domain: Domain) -> bool:
    """Do these members fit into the domain, were this the only dimension? The largest are packed first."""
    requests = {at: int(s.world.request(batch.pod)[column]) for at, batch in enumerate(members)}
    left = free if len(members) == 1 else free.copy()
    for at in sorted(requests, key=lambda at: (-requests[at], at)):
        batch, request = members[at], requests[at]
        if not request:
            continue
        match = s.match(batch.pod)
        counts = np.where(match, np.maximum(left, 0) // request, 0)
        if domain.rows is not None:
            counts = counts * domain.mask(len(counts))
        ends = np.minimum(np.cumsum(counts), batch.count)
        if not len(ends) or ends[-1] < batch.count:
            return False
        if len(members) > 1:
            left -= np.diff(ends, prepend=0) * request
    return True


def usable_domains(s: Session, ask: Ask) -> Sequence[Domain]:
    """All domains that the ask may use, whatever is free there."""
    usable: Sequence[Domain] = (WHOLE_CLUSTER,)
    if ask.gang.topology is not None or ask.within is not None:
        usable = s.where(Ask(ask.gang, (), ask.purpose, ask.action)).domains or usable
    return without_rows(usable, s.left_out) or usable
