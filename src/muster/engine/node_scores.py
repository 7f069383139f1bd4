"""Feasibility and scores of every node for pods of one signature, kept between pods and cycles and updated row by row.

Matches and preferences are computed once per layout of the table; fit and score only for the rows whose amounts changed since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from muster.engine.hooks import Plugin
from muster.model.pod import Pod
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.node_table import BoolColumn, FloatColumn, NodeRows, RowIndex

if TYPE_CHECKING:
    from muster.engine.session import Session

REFUSED = -np.inf


class PluginError(Exception):
    """A plugin answered something that is no answer to its hook."""


class NodeScores:
    """`value` is the score of each node, or REFUSED where the pod cannot go. `base` is the part of it that stays: what the pod
    prefers of labels and taints, or REFUSED where they do not match."""

    def __init__(self, s: Session, pod: Pod, base: FloatColumn, *, after_releases: bool) -> None:
        self.base, self.after_releases = base, after_releases
        self.value: FloatColumn = score_column(s, pod, NodeRows(s.world.table, after_releases=after_releases), base, check=True)

    def update(self, s: Session, pod: Pod, changed: list[int]) -> None:
        table = s.world.table
        if len(changed) > len(table) // 2:
            self.value = score_column(s, pod, NodeRows(table, after_releases=self.after_releases), self.base)
            return
        index: RowIndex = np.array(sorted(set(changed)), dtype=np.intp)
        self.value[index] = score_column(s, pod, NodeRows(table, index, after_releases=self.after_releases), self.base)


_NODE_ATTRIBUTES = (Topic.NODE_LAYOUT, Topic.NODE_LABELS, Topic.NODE_TAINTS, Topic.NODE_DEVICES)

COLUMNS: Derived[NodeScores] = Derived("node scores of a pod signature", *_NODE_ATTRIBUTES, follows=Topic.NODE_ROWS)
MOUNTING_COLUMNS: Derived[NodeScores] = Derived(
    "node scores of a pod signature with volumes", *_NODE_ATTRIBUTES, Topic.STORAGE, follows=Topic.NODE_ROWS
)
"""At 5,000 nodes each takes some 80 KB."""
BASE: Derived[FloatColumn] = Derived("preferences and matches of a pod signature", *_NODE_ATTRIBUTES)
MOUNTING_BASE: Derived[FloatColumn] = Derived(
    "preferences and matches of a pod signature with volumes", *_NODE_ATTRIBUTES, Topic.STORAGE
)


def base_column(s: Session, pod: Pod) -> FloatColumn:
    """The weighted preferences, and REFUSED where a plugin does not match."""
    rows = NodeRows(s.world.table, after_releases=False)
    total = np.zeros(len(rows), dtype=np.float64)
    for prefers in s.policy.prefers:
        column = prefers.prefer(s, pod, rows)
        _check_score(prefers, "prefer", column, rows)
        total += prefers.weight * column
    for matches in s.policy.matches:
        answer = matches.match(s, pod, rows)
        _check_bools(matches, "match", answer, rows)
        _refuse(total, answer)
    return total


def score_column(s: Session, pod: Pod, rows: NodeRows, base: FloatColumn, *, check: bool = False) -> FloatColumn:
    """The base, the scores and the fit together. All follow from the rows' own amounts, so rows with hypothetical pods on them
    may be scored too. `check` makes sure that the plugins return what the hooks promise."""
    total = base.copy() if rows.index is None else base[rows.index]
    for scores in s.policy.scores:
        column = scores.score(s, pod, rows)
        if check:
            _check_score(scores, "score", column, rows)
        total += column if scores.weight == 1.0 else scores.weight * column
    for fits, picky in zip(s.policy.fits, s.policy.applies_to, strict=True):
        if picky is not None and not picky.applies_to(s, pod):
            continue
        answer = fits.fit(s, pod, rows)
        if check:
            _check_bools(fits, "fit", answer, rows)
        _refuse(total, answer)
    return total


def _refuse(total: FloatColumn, answer: BoolColumn) -> None:
    """Most plugins let a pod onto every node."""
    if not answer.all():
        total[~answer] = REFUSED


def _check_bools(plugin: Plugin, hook: str, column: object, rows: NodeRows) -> None:
    answer = _column(plugin, hook, column, rows)
    if answer.dtype != np.bool_:
        raise PluginError(f"{plugin.name}.{hook} must answer a column of bool, not of {answer.dtype}")


def _check_score(plugin: Plugin, hook: str, column: object, rows: NodeRows) -> None:
    answer = _column(plugin, hook, column, rows)
    if answer.dtype != np.float64:
        raise PluginError(f"{plugin.name}.{hook} must answer a column of float64, not of {answer.dtype}")
    least, most = (float(answer.min()), float(answer.max())) if len(answer) else (0.0, 1.0)
    # Both fail for NaN too.
    if not least >= 0.0 or not most <= 1.0:
        raise PluginError(f"{plugin.name}.{hook} must answer scores from 0 to 1, not from {least:g} to {most:g}")


def _column(plugin: Plugin, hook: str, column: object, rows: NodeRows) -> npt.NDArray[np.generic]:
    """Plugins may come from anywhere: what they return may not be what their types say."""
    if isinstance(column, np.ndarray) and column.shape == (len(rows),):
        return column
    got = f"an array of shape {column.shape}" if isinstance(column, np.ndarray) else type(column).__name__
    raise PluginError(f"{plugin.name}.{hook} must answer a column of {len(rows)} rows, not {got}")
