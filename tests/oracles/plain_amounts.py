"""Named amounts as plain dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.model.pod import Pod
from muster.model.resource_amounts import PODS

Amounts = dict[str, int]


def request_of(pod: Pod) -> Amounts:
    return {name: value for name, value in pod.signature.request.items if value}


def shared_request_of(pod: Pod) -> Amounts:
    """What it requests of the dimensions in which shares are counted: all but the number of pods."""
    return {name: value for name, value in request_of(pod).items() if name != PODS}


def total(parts: Iterable[Mapping[str, int]]) -> Amounts:
    found: Amounts = {}
    for part in parts:
        for name, value in part.items():
            found[name] = found.get(name, 0) + value
    return found


def minus(whole: Mapping[str, int], part: Mapping[str, int]) -> Amounts:
    return {name: whole.get(name, 0) - part.get(name, 0) for name in sorted({*whole, *part})}


def plus(whole: Mapping[str, int], part: Mapping[str, int]) -> Amounts:
    return total((whole, part))


def fits(need: Mapping[str, int], free: Mapping[str, int]) -> bool:
    return all(value <= free.get(name, 0) for name, value in need.items() if value)
