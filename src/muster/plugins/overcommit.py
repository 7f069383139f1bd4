"""Overcommit: PodGroups are enqueued while all of them request at most so many times what the cluster has."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from muster.engine.hooks import Ask, Purpose
from muster.engine.option_field import option
from muster.engine.quota import may_evict
from muster.engine.session import Session
from muster.engine.shares import cluster_total
from muster.model.effects import YES, Verdict
from muster.model.resource_amounts import short_name, show_amount
from muster.model.topics import Topic
from muster.state.resource_columns import Amounts

OVERCOMMIT = "Overcommit"


@dataclass(frozen=True)
class Overcommit:
    """A PodGroup with minResources is enqueued when they fit `factor` times the cluster, beside what is used and inqueue.

    Of the inqueue gangs those of its namespace count. For a gang that may evict only these do: they cannot be evicted, running pods
    perhaps can.
    """

    factor: float = option(1.2, "How many times the cluster may be requested.", minimum=1)
    name: str = "overcommit"

    def admit(self, s: Session, ask: Ask) -> Verdict:
        if ask.purpose is not Purpose.ENQUEUE:
            return YES
        need = s.world.columns.vector(ask.gang.min_resources)
        used = np.zeros_like(need) if may_evict(s, ask.gang) else s.world.table.planned.sum(axis=0)
        inqueue_resources = s.inqueue_resources[0]
        most = _multiplied(cluster_total(s), self.factor)
        over = np.flatnonzero((need > 0) & (used + inqueue_resources + need > most))
        if not len(over):
            return YES
        parts = [self._shortage(s, int(column), used, inqueue_resources, need, most) for column in over]
        return Verdict(
            ok=False, why=f"the cluster: {', '.join(parts)}", code=OVERCOMMIT, topics=(Topic.FREE_CAPACITY.any, Topic.DEMAND.any)
        )

    def _shortage(self, s: Session, column: int, used: Amounts, inqueue_resources: Amounts, need: Amounts, most: Amounts) -> str:
        name = s.world.columns.names[column]
        parts = ((used, "used"), (inqueue_resources, "inqueue"), (need, "requested"))
        terms = " + ".join(f"{show_amount(name, int(amounts[column]))} {label}" for amounts, label in parts if amounts[column])
        total = show_amount(name, int(cluster_total(s)[column]))
        return f"{short_name(name)} {terms} > {show_amount(name, int(most[column]))} ({self.factor:g} times {total})"


def _multiplied(total: Amounts, factor: float) -> Amounts:
    """Exactly, and rounded down."""
    exact = Fraction(str(factor))
    return np.array([value * exact.numerator // exact.denominator for value in total.tolist()], dtype=np.int64)
