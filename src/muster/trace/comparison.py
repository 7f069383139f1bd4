"""Sets policies beside each other: what the same histories came to with each, seed by seed, and the differences with their
confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from muster.trace.run_result import Curve, Figure, JobOutcome, RunResult

# Of Student's distribution, both sides 95 %, for 1, 2, ... differences less one.
_T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09)
_T_MANY = 1.96
_MOST_SHOWN = 10
_NEVER = 1e12


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A figure with its value for each policy and seed; `difference` is that of the last policy to the first, with what it may be
    off by; None where there is one policy."""

    figure: Figure
    values: tuple[tuple[float, ...], ...]
    difference: float | None = None
    margin: float | None = None
    """None: one seed says nothing about that."""

    @property
    def means(self) -> tuple[float, ...]:
        return tuple(sum(each) / len(each) for each in self.values)

    @property
    def verdict(self) -> str:
        if not self.difference or self.margin is None or abs(self.difference) <= self.margin or not self.figure.better:
            return ""
        return "better" if self.difference * self.figure.better > 0 else "worse"


@dataclass(frozen=True, slots=True)
class JobDifference:
    """A job that fares differently with the last policy than with the first."""

    first: JobOutcome
    last: JobOutcome

    @property
    def seconds(self) -> float:
        """How much later it ends; a job that never does ends after all others."""
        return _end(self.last) - _end(self.first)

    @property
    def worse(self) -> JobOutcome:
        """Where it ends later, which is where there is something to explain."""
        return self.last if self.seconds > 0 else self.first


@dataclass(frozen=True, slots=True)
class Comparison:
    rows: tuple[FigureRow, ...]
    jobs: tuple[JobDifference, ...]
    results: Mapping[tuple[int, int], RunResult]
    """By number of the policy and seed."""

    def curves(self, policy: int) -> dict[str, Curve]:
        """The mean over the seeds."""
        found: dict[str, list[Curve]] = {}
        for (number, _), result in self.results.items():
            for name, curve in result.curves.items() if number == policy else ():
                found.setdefault(name, []).append(curve)
        columns = {name: zip(*(each.values for each in curves), strict=True) for name, curves in found.items()}
        return {name: Curve(found[name][0].unit, tuple(sum(at) / len(at) for at in parts)) for name, parts in columns.items()}


def compare(results: Mapping[tuple[int, int], RunResult]) -> Comparison:
    """`results`: by number of the policy, from 0 on, and seed; the same seeds for each."""
    policies, seeds = sorted({number for number, _ in results}), sorted({seed for _, seed in results})
    found = [[results[number, seed].figures for seed in seeds] for number in policies]
    first, last = results[policies[0], seeds[0]].jobs, results[policies[-1], seeds[0]].jobs
    pairs = [JobDifference(one, other) for one, other in zip(first, last, strict=True)] if len(policies) > 1 else []
    differing = sorted((pair for pair in pairs if pair.seconds), key=lambda pair: (-abs(pair.seconds), pair.first.name))
    return Comparison(_rows(found), tuple(differing[:_MOST_SHOWN]), dict(sorted(results.items())))


def _rows(found: Sequence[Sequence[Sequence[Figure]]]) -> tuple[FigureRow, ...]:
    """A row for each figure that any run has; a run without it has 0 of it."""
    named: dict[str, Figure] = {}
    for of_policy in found:
        for run in of_policy:
            named.update({figure.name: figure for figure in run if figure.name not in named})
    by_name = [[{figure.name: figure.value for figure in run} for run in of_policy] for of_policy in found]
    return tuple(_row(figure, by_name) for figure in named.values())


def _row(figure: Figure, by_name: Sequence[Sequence[Mapping[str, float]]]) -> FigureRow:
    values = tuple(tuple(run.get(figure.name, 0.0) for run in of_policy) for of_policy in by_name)
    difference, margin = _difference(values[0], values[-1]) if len(values) > 1 else (None, None)
    return FigureRow(figure, values, difference, margin)


def _difference(first: Sequence[float], last: Sequence[float]) -> tuple[float, float | None]:
    """The mean difference, seed by seed, and half of its interval of confidence."""
    each = [b - a for a, b in zip(first, last, strict=True)]
    mean, count = sum(each) / len(each), len(each)
    if count < 2:
        return mean, None
    variance = sum((one - mean) ** 2 for one in each) / (count - 1)
    factor = _T_95[count - 2] if count - 2 < len(_T_95) else _T_MANY
    return mean, factor * sqrt(variance / count)


def _end(outcome: JobOutcome) -> float:
    return outcome.end_s if outcome.end_s is not None else _NEVER
