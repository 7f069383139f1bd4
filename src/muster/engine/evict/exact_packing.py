"""Members of different sizes packed onto nodes by trying: where placing one after the other fails, another arrangement may fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.engine.evict.member_demand import MemberDemand
from muster.model.pod import Pod
from muster.state.node_table import RowIndex
from muster.state.resource_columns import Amounts

# So many members are packed at most, in so many steps.
_MAX_MEMBERS = 16
_MAX_STEPS = 2000


def pack(demands: Sequence[MemberDemand], free: Amounts) -> list[tuple[Pod, int]] | None:
    """A node for each member, by the amounts alone; None where none was found, or where it is not worth trying."""
    members = [(demand, pod) for demand in demands for pod in demand.pods]
    if len(demands) < 2 or len(members) > _MAX_MEMBERS:
        return None
    search = _Packing(members, free.copy())
    return search.found if search.place(0) else None


class _Packing:
    def __init__(self, members: list[tuple[MemberDemand, Pod]], free: Amounts) -> None:
        self.members, self.free = members, free
        self.found: list[tuple[Pod, int]] = []
        self.steps = 0

    def place(self, at: int) -> bool:
        if at == len(self.members):
            return True
        demand, pod = self.members[at]
        for row in self._rows(demand):
            self.steps += 1
            if self.steps > _MAX_STEPS:
                return False
            self.free[row] -= demand.request
            self.found.append((pod, row))
            if self.place(at + 1):
                return True
            self.found.pop()
            self.free[row] += demand.request
        return False

    def _rows(self, demand: MemberDemand) -> list[int]:
        """Nodes that take the member, the fullest first; of nodes with the same left only one."""
        rows: RowIndex = demand.rows[(self.free[demand.rows][:, demand.requested] >= demand.request[demand.requested]).all(axis=1)]
        different: dict[bytes, int] = {}
        for row in rows.tolist():
            different.setdefault(self.free[row].tobytes(), row)
        kept = np.array(list(different.values()), dtype=np.intp)
        order: list[int] = kept[np.argsort(self.free[kept][:, demand.requested].sum(axis=1), kind="stable")].tolist()
        return order
