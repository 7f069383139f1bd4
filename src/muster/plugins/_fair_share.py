"""Sharing out an amount: pure functions of integers. Nothing is lost to rounding and nothing is given twice.

One resource at a time. Whoever asks gets what is theirs at least; the rest goes by weight, and what somebody does not need goes on
to the others. Fractions of a unit go to the largest remainders, ties by name, so that the order of the input means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sharer:
    """Somebody who wants a part. `minimum` is theirs before anybody shares; who does not lend keeps it even when not wanting it."""

    name: str
    weight: int
    request: int
    minimum: int = 0
    lends: bool = True


def split_by_weight(amount: int, weights: Mapping[str, int]) -> dict[str, int]:
    """The whole amount split in proportion to the weights. Whoever weighs nothing gets nothing."""
    total = sum(weights.values())
    if total <= 0 or amount <= 0:
        return dict.fromkeys(weights, 0)
    parts = {name: amount * weight // total for name, weight in weights.items()}
    remainders = sorted(weights, key=lambda name: (-(amount * weights[name] % total), name))
    for name in remainders[: amount - sum(parts.values())]:
        parts[name] += 1
    return parts


def scale_minimums(total: int, minimum: Mapping[str, int]) -> dict[str, int]:
    """What is theirs at least, cut down in proportion where there is not enough for all of it."""
    promised = sum(minimum.values())
    if promised <= total:
        return dict(minimum)
    return {name: max(0, total) * value // promised for name, value in minimum.items()}


def fair_shares(total: int, sharers: Sequence[Sharer]) -> dict[str, int]:
    """Everybody's part. Only what is theirs at least can add up to more than the total: see `scale_minimums`."""
    part = {s.name: min(s.request, s.minimum) if s.lends else s.minimum for s in sharers}
    hungry = [s for s in sharers if s.request > s.minimum]
    left = total - sum(part.values())
    while left > 0 and (weights := sum(s.weight for s in hungry)):
        sated = [s for s in hungry if (s.request - part[s.name]) * weights <= left * s.weight]
        if not sated:
            # Nobody is given more than is wanted any more: only now are fractions rounded, once.
            for name, more in split_by_weight(left, {s.name: s.weight for s in hungry}).items():
                part[name] += more
            break
        for sharer in sated:
            left -= sharer.request - part[sharer.name]
            part[sharer.name] = sharer.request
        hungry = [s for s in hungry if part[s.name] < s.request]
    return part


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
    """What each branch wants: its own and what its children want, `limited` to what it may have."""
    order = list(tops)
    for key in order:
        order.extend(children.get(key, ()))
    wants: dict[str, int] = {}
    for key in reversed(order):
        wants[key] = limited(key, own(key) + sum(wants[child] for child in children.get(key, ())))
    return wants
