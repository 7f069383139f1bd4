"""A plugin of your own whose score follows the workload: small pods spread until a pod needs a whole node, and pack from then on.

Use it in a policy as `./by_workload.py:ByWorkload`, or as `by_workload:ByWorkload` if its folder is on the Python path.
"""

from dataclasses import dataclass

import numpy as np

from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.resource_amounts import GPU
from muster.model.topics import Topic
from muster.state.node_table import FloatColumn, NodeRows


@dataclass(frozen=True)
class ByWorkload:
    """Spreads pods over nodes of `gpus` GPUs, and packs them as soon as a pod requests a whole node."""

    gpus: int = 8
    weight: float = 1.0
    name: str = "by-workload"
    # The score depends on more than the rows: it is called again for all nodes when a gang is submitted, changes or ends.
    depends = (Topic.GANGS,)

    def score(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        packs = any(each.signature.request[GPU] >= self.gpus for each in s.world.facts.pods.values())
        free = np.clip(rows.free[:, s.world.columns.position[GPU]] / self.gpus, 0.0, 1.0)
        return 1.0 - free if packs else free
