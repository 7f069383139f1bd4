"""From a column over all nodes to the rows that a hook was called with."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from muster.state.node_table import NodeRows

T = TypeVar("T", bound=np.generic)


def select_rows(rows: NodeRows, column: npt.NDArray[T]) -> npt.NDArray[T]:
    return column if rows.index is None else column[rows.index]
