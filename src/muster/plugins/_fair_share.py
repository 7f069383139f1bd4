"""Sharing an amount out: pure functions of integers. Nothing is lost to rounding, and the parts never exceed the total.

One resource at a time. Each sharer gets its minimum as far as it requests it; the rest is shared by weight, and what one does not
need is shared among the others. Fractions of a unit are added to the largest remainders, ties by name: the order of the input does
not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sharer:
    """One that takes a part. `minimum` is its own before sharing; one that does not `lends` keeps it even if it requests less."""

    name: str
    weight: int
    request: int
    minimum: int = 0
    lends: bool = True


def split_by_weight(amount: int, weights: Mapping[str, int]) -> dict[str, int]:
    """The whole amount split in proportion to the weights. A weight of zero gets nothing."""
    total = sum(weights.values())
    if total <= 0 or amount <= 0:
        return dict.fromkeys(weights, 0)
    parts = {name: amount * weight // total for name, weight in weights.items()}
    remainders = sorted(weights, key=lambda name: (-(amount * weights[name] % total), name))
    for name in remainders[: amount - sum(parts.values())]:
        parts[name] += 1
    return parts


def scale_minimums(total: int, minimum: Mapping[str, int]) -> dict[str, int]:
    """The minimums, scaled down in proportion where the total does not suffice."""
    required = sum(minimum.values())
    if required <= total:
        return dict(minimum)
    return {name: max(0, total) * value // required for name, value in minimum.items()}


def fair_shares(total: int, sharers: Sequence[Sharer]) -> dict[str, int]:
    """The part of each. Only minimums can add up to more than the total: see `scale_minimums`."""
    part = {s.name: min(s.request, s.minimum) if s.lends else s.minimum for s in sharers}
    left = total - sum(part.values())
    if left > 0:
        _share_rest(left, part, [s for s in sharers if s.request > s.minimum])
    return part


def _share_rest(left: int, part: dict[str, int], unsatisfied: list[Sharer]) -> None:
    """Adds what is left to the parts, by weight. Who needs less than that gets its request, and the others share the rest."""
    while left > 0 and (weights := sum(s.weight for s in unsatisfied)):
        satisfied = [s for s in unsatisfied if (s.request - part[s.name]) * weights <= left * s.weight]
        if not satisfied:
            # No part reaches its request any more: only now are fractions rounded, once.
            for name, more in split_by_weight(left, {s.name: s.weight for s in unsatisfied}).items():
                part[name] += more
            return
        for sharer in satisfied:
            left -= sharer.request - part[sharer.name]
            part[sharer.name] = sharer.request
        unsatisfied = [s for s in unsatisfied if part[s.name] < s.request]


def share_down_tree(
    total: int, children: Mapping[str, Sequence[str]], sharer: Callable[[str], Sharer], *, scale: bool = True, root: str = ""
) -> dict[str, int]:
    """Share a total among the children of the root, then what each of them got among its own, and so on down."""
    parts: dict[str, int] = {}
    branches = [(root, total)]
    while branches:
        key, amount = branches.pop()
        sharers = [sharer(child) for child in children.get(key, ())]
        minimum = scale_minimums(amount, {s.name: s.minimum for s in sharers}) if scale else {s.name: s.minimum for s in sharers}
        found = fair_shares(amount, [Sharer(s.name, s.weight, s.request, minimum[s.name], s.lends) for s in sharers])
        parts.update(found)
        branches.extend(found.items())
    return parts


def requests_up_tree(
    children: Mapping[str, Sequence[str]],
    own: Callable[[str], int],
    limited: Callable[[str, int], int],
    *,
    tops: Sequence[str],
) -> dict[str, int]:
    """What each branch requests: its own and those of its children, `limited` to what it may have."""
    order = list(tops)
    for key in order:
        order.extend(children.get(key, ()))
    requests: dict[str, int] = {}
    for key in reversed(order):
        requests[key] = limited(key, own(key) + sum(requests[child] for child in children.get(key, ())))
    return requests
