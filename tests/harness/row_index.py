"""Rows of the node table by the names of nodes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from muster.state.node_table import NodeTable, RowIndex


def rows_of(table: NodeTable, names: Iterable[str]) -> RowIndex:
    """The rows of these nodes, those that exist, in row order."""
    return np.array(sorted(table.row[name] for name in names if name in table.row), dtype=np.intp)
