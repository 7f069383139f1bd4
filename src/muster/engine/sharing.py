"""Sharing a total out down a tree of queues, level by level: deserved shares, fair shares and runtime quotas all come from here.

One resource at a time, in integers. Each queue gets its minimum as far as it requests it; the rest is shared by weight, and what
one does not need is shared among the others. Fractions of a unit are added to the largest remainders, ties by name. Nothing is
lost to rounding, and the parts never exceed the total; only minimums can, where they are not scaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from muster.engine.quota import BY_QUEUE
from muster.state.derived_values import Derived
from muster.state.ledger import LedgerRows
from muster.state.resource_columns import Amounts
from muster.state.world import World


@dataclass(frozen=True, slots=True)
class Claims:
    """What each queue is to get: rows as in the ledger. `request`: its own and those of its branch, within what it may have."""

    request: Amounts
    weight: Amounts
    minimum: Amounts
    kept: Amounts
    """What it keeps of its minimum even if it requests less."""
    is_scaled: bool = True
    """Minimums that do not fit into their parent's part are scaled down together."""


@dataclass(frozen=True, slots=True)
class Branches:
    """A tree of queues as rows of the ledger, parents first. The root is row 0."""

    siblings: tuple[tuple[int, tuple[int, ...]], ...]
    """A parent and its children by name."""
    levels: tuple[tuple[LedgerRows, LedgerRows], ...]
    """The queues of each level and their parents."""

    @property
    def rows(self) -> LedgerRows:
        return np.concatenate([rows for rows, _ in self.levels]) if self.levels else np.zeros(0, dtype=np.intp)


_BRANCHES: Derived[Branches] = Derived("branches of the tree of queues", *BY_QUEUE)


def branches(world: World, tops: tuple[str, ...]) -> Branches:
    """These children of the root, and all below them."""
    return _BRANCHES.of(world, lambda: _compute_branches(world, tops), key=tops)


def _compute_branches(world: World, tops: tuple[str, ...]) -> Branches:
    row, children = world.ledger.row, world.facts.tree.children
    siblings: list[tuple[int, tuple[int, ...]]] = []
    levels: list[tuple[LedgerRows, LedgerRows]] = []
    level: list[tuple[int, Sequence[str]]] = [(0, tops)]
    while any(below for _, below in level):
        found = [(parent, tuple(row[key] for key in below)) for parent, below in level if below]
        siblings += found
        rows = [(child, parent) for parent, below in found for child in below]
        levels.append((np.array([r for r, _ in rows], dtype=np.intp), np.array([p for _, p in rows], dtype=np.intp)))
        level = [(row[key], children.get(key, ())) for _, below in level for key in below]
    return Branches(tuple(siblings), tuple(levels))


def requests_up_tree(tree: Branches, requested: Amounts, kept: Amounts, most: Amounts) -> tuple[Amounts, Amounts]:
    """What each branch requests, and so much of it as it may have. `requested` includes everything below a queue; it is added up
    anew, since a branch requests no more than each of its queues may have, and at least what they keep."""
    asked = requested.copy()
    for rows, parents in tree.levels:
        np.subtract.at(asked, parents, requested[rows])
    limited = asked.copy()
    for rows, parents in reversed(tree.levels):
        asked[rows] = np.maximum(asked[rows], kept[rows])
        limited[rows] = np.minimum(asked[rows], most[rows])
        np.add.at(asked, parents, limited[rows])
    return asked, limited


def of_branches(tree: Branches, rows: Amounts) -> Amounts:
    """Where a queue has nothing of its own, what its children have together."""
    found = rows.copy()
    for level, parents in reversed(tree.levels):
        below = np.zeros_like(found)
        np.add.at(below, parents, found[level])
        found[parents] = np.where(found[parents] > 0, found[parents], below[parents])
    return found


def share_out(total: Amounts, tree: Branches, claims: Claims, columns: Iterable[int]) -> Amounts:
    """The part of each queue: the total shared out among the root's children, what each of them got among its own, and so on."""
    parts = np.zeros_like(claims.request)
    amounts = (claims.weight, claims.minimum, claims.kept, claims.request)
    for column in columns:
        weight, minimum, kept, request = (rows[:, column].tolist() for rows in amounts)
        part = [0] * len(request)
        part[0] = int(total[column])
        for parent, rows in tree.siblings:
            least = [minimum[row] for row in rows]
            if claims.is_scaled:
                least = scale_minimums(part[parent], least)
            found = share_level(
                part[parent],
                least,
                weight=[weight[row] for row in rows],
                request=[request[row] for row in rows],
                kept=[kept[row] for row in rows],
            )
            for row, own in zip(rows, found, strict=True):
                part[row] = own
        part[0] = 0
        parts[:, column] = part
    return parts


def scale_minimums(total: int, minimum: list[int]) -> list[int]:
    """The minimums, scaled down in proportion where the total does not suffice."""
    required = sum(minimum)
    return minimum if required <= total else [max(0, total) * value // required for value in minimum]


def share_level(
    total: int, minimum: Sequence[int], *, weight: Sequence[int], request: Sequence[int], kept: Sequence[int]
) -> list[int]:
    """The parts of siblings: their minimums as far as they are requested or kept, and by weight what is left."""
    part = [max(min(asks, own), min(keeps, own)) for own, asks, keeps in zip(minimum, request, kept, strict=True)]
    _pour(total - sum(part), part, weight, request)
    return part


def _pour(left: int, part: list[int], weight: Sequence[int], request: Sequence[int]) -> None:
    """Adds what is left to the parts. Who needs less than its part by weight gets its request, and the others share the rest."""
    unsatisfied = [at for at, own in enumerate(part) if request[at] > own and weight[at] > 0]
    while left > 0 and unsatisfied:
        weights = sum([weight[at] for at in unsatisfied])
        satisfied = [at for at in unsatisfied if (request[at] - part[at]) * weights <= left * weight[at]]
        if not satisfied:
            # No part reaches its request any more: only now are fractions rounded, once.
            for at, more in zip(unsatisfied, split_by_weight(left, [weight[at] for at in unsatisfied]), strict=True):
                part[at] += more
            return
        for at in satisfied:
            left -= request[at] - part[at]
            part[at] = request[at]
        unsatisfied = [at for at in unsatisfied if part[at] < request[at]]


def split_by_weight(amount: int, weights: Sequence[int]) -> list[int]:
    """The whole amount split in proportion to the weights, which are positive; the first of equals gets an odd unit."""
    total = sum(weights)
    parts = [amount * weight // total for weight in weights]
    remainders = sorted(range(len(weights)), key=lambda at: (-(amount * weights[at] % total), at))
    for at in remainders[: amount - sum(parts)]:
        parts[at] += 1
    return parts
