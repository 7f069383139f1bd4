"""A plugin of your own for domains: a gang is placed in one zone, and pods are evicted for it in one zone only.

Use it in a policy as `./one_zone.py:OneZone`, or as `one_zone:OneZone` if its folder is on the Python path.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.engine.hooks import Ask, Domain, Purpose
from muster.engine.session import Session
from muster.model.effects import Verdict
from muster.model.topics import Topic


@dataclass(frozen=True)
class OneZone:
    """Every gang of at least two is placed in one zone: nodes with one value of `label`."""

    label: str = "topology.kubernetes.io/zone"
    most: int = 2
    name: str = "one-zone"

    def domains(self, s: Session, ask: Ask) -> Sequence[Domain] | Verdict | None:
        if ask.gang.size < 2:
            return None  # No opinion: the next plugin is called, and in the end it is the whole cluster.
        codes, values = s.world.table.label_codes(self.label)
        zones = [Domain(str(value), np.flatnonzero(codes == code)) for code, value in enumerate(values)]
        if not zones:
            return Verdict(
                ok=False,
                why=f"no node has the label {self.label}",
                code="NoZone",
                topics=(Topic.NODE_LABELS.any, Topic.NODE_LAYOUT.any),
            )
        # Allocate tries them all. Eviction takes the first that works, so the largest come first, and only a few.
        zones.sort(key=lambda zone: (-len(zone.rows) if zone.rows is not None else 0, zone.name))
        return zones[: self.most] if ask.purpose is Purpose.EVICT else zones
