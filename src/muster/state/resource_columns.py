"""Which resource is counted in which column. One index serves the node table and the queue ledger."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from muster.model.resource_amounts import CPU, MEMORY, PODS, Resources

Amounts = npt.NDArray[np.int64]


class Columns:
    """Resource names in a fixed order; a new name adds a column everywhere."""

    def __init__(self) -> None:
        self.names: list[str] = [CPU, MEMORY, PODS]
        self.position: dict[str, int] = {name: i for i, name in enumerate(self.names)}
        self._vectors: dict[Resources, Amounts] = {}
        self._widen: list[Callable[[int], None]] = []

    def on_widen(self, widen: Callable[[int], None]) -> None:
        """`widen(width)` is called whenever there are more columns than before."""
        self._widen.append(widen)

    def require(self, resources: Resources) -> None:
        """Make sure that every name in `resources` has a column."""
        missing = [name for name in resources if name not in self.position]
        if not missing:
            return
        for name in missing:
            self.position[name] = len(self.names)
            self.names.append(name)
        self._vectors.clear()
        for widen in self._widen:
            widen(len(self.names))

    def vector(self, resources: Resources) -> Amounts:
        """The amounts as one row of columns. Shared between callers: never write into it."""
        found = self._vectors.get(resources)
        if found is None:
            self.require(resources)
            found = np.zeros(len(self.names), dtype=np.int64)
            for name, value in resources.items:
                found[self.position[name]] = value
            found.flags.writeable = False
            self._vectors[resources] = found
        return found


def widened(array: Amounts, width: int) -> Amounts:
    """The same amounts with zero columns added on the right."""
    grown = np.zeros((*array.shape[:-1], width), dtype=np.int64)
    grown[..., : array.shape[-1]] = array
    return grown
