"""Room: a pod goes only where every resource that it asks for is free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.resources import short_name
from muster.state.table import BoolColumn, Rows


@dataclass(frozen=True)
class Fit:
    name: str = "fit"

    def fit(self, s: Session, pod: Pod, rows: Rows) -> BoolColumn:
        need = s.world.request(pod)
        asked = np.flatnonzero(need)
        return np.asarray((rows.free[:, asked] >= need[asked]).all(axis=1), dtype=np.bool_)

    def blame(self, s: Session, pod: Pod, rows: Rows) -> str:
        need = s.world.request(pod)
        lacking = ((rows.free < need) & (need > 0)).any(axis=0)
        names = [short_name(s.world.columns.names[i]) for i in np.flatnonzero(lacking)]
        return f"{nodes(len(rows))} full ({', '.join(names)})"
