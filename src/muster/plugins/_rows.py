"""From a column over all nodes to the rows that a hook was asked about."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from muster.state.table import Rows

T = TypeVar("T", bound=np.generic)


def of_rows(rows: Rows, column: npt.NDArray[T]) -> npt.NDArray[T]:
    return column if rows.index is None else column[rows.index]
