"""Amounts of resources: exact integers, and how Kubernetes writes them.

CPU is counted in thousandths, everything else in its own unit (bytes, devices, pods). Amounts never hold a float, so that what is
added can be taken away again exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
GPU = "nvidia.com/gpu"

# One amount may not pass this bound, so that a column of 64-bit integers can add up any cluster without overflow.
LARGEST_AMOUNT = 2**52

_QUANTITY = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?$")
_FACTOR: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


class BadQuantity(ValueError):
    """A text that is no Kubernetes quantity, or one that no cluster can have."""


@lru_cache(maxsize=65536)
def parse_quantity(text: str) -> Fraction:
    """The exact value of a Kubernetes quantity such as `1500m`, `2Gi`, `1e3` or `0.5`."""
    # The length first: a million digits would keep the pattern busy for hours.
    found = _QUANTITY.match(text.strip()) if len(text) <= 64 else None
    if found is None:
        raise BadQuantity(f"{text[:64]!r} is not a quantity (write for example 500m, 2, 1.5, 4Gi)")
    digits, exponent, suffix = found.groups()
    if exponent and abs(int(exponent[1:])) > 30:
        raise BadQuantity(f"{text!r} has an exponent beyond 30")
    return Fraction(digits + (exponent or "")) * _FACTOR.get(suffix or "", Fraction(1))


@lru_cache(maxsize=65536)
def amount(resource: str, text: str) -> int:
    """A quantity in the unit that this resource is counted in, rounded up as Kubernetes does."""
    value = parse_quantity(text) * (1000 if resource == CPU else 1)
    if value < 0:
        raise BadQuantity(f"{resource}: {text} is negative")
    if value > LARGEST_AMOUNT:
        raise BadQuantity(f"{resource}: {text} is more than any machine has")
    return -(-value.numerator // value.denominator)


@dataclass(frozen=True, slots=True)
class Resources:
    """Named amounts, sorted by name, without zeros unless they were written on purpose."""

    items: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(amounts: Mapping[str, int] | Iterable[tuple[str, int]]) -> Resources:
        pairs = amounts.items() if isinstance(amounts, Mapping) else amounts
        return Resources(tuple(sorted(pairs)))

    @staticmethod
    def parse(written: Mapping[str, object]) -> Resources:
        """From a Kubernetes resource list, whose values may be texts or numbers."""
        return Resources.of({name: amount(name, str(value)) for name, value in written.items()})

    def get(self, name: str) -> int | None:
        for key, value in self.items:
            if key == name:
                return value
        return None

    def __getitem__(self, name: str) -> int:
        return self.get(name) or 0

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.items)

    def __bool__(self) -> bool:
        return any(value for _, value in self.items)

    def plus(self, other: Resources) -> Resources:
        total = dict(self.items)
        for name, value in other.items:
            total[name] = total.get(name, 0) + value
        return Resources.of(total)

    def times(self, count: int) -> Resources:
        return Resources(tuple((name, value * count) for name, value in self.items))


NOTHING = Resources()


_BINARY = (("Ei", 2**60), ("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def show_amount(resource: str, value: int) -> str:
    """An amount as a person would write it: `1.5` CPU, `4Gi` of memory, `8` GPUs."""
    if resource == CPU:
        return f"{value // 1000}" if value % 1000 == 0 else f"{value / 1000:g}"
    if resource == MEMORY or resource.endswith("storage") or resource.startswith("hugepages-"):
        for suffix, size in _BINARY:
            if value and abs(value) >= size:
                return f"{value // size}{suffix}" if value % size == 0 else f"{value / size:.1f}{suffix}"
    return str(value)


def written(resource: str, value: int) -> str:
    """An amount as Kubernetes writes it, exactly: `1500m`, `2`, `4294967296`."""
    if resource != CPU:
        return str(value)
    return f"{value // 1000}" if value % 1000 == 0 else f"{value}m"


def short_name(resource: str) -> str:
    """As scenarios and messages write it: `gpu` is `nvidia.com/gpu`, all others keep the names that tell their vendors apart."""
    return "gpu" if resource == GPU else resource


def is_resource_name(text: str) -> bool:
    """Resources of Kubernetes itself have plain names; all others have a domain before theirs."""
    return text in (CPU, MEMORY, PODS, "ephemeral-storage") or "/" in text or text.startswith("hugepages-")


def show(resources: Resources) -> str:
    return ", ".join(f"{short_name(name)} {show_amount(name, value)}" for name, value in resources.items) or "nothing"
