"""A queue: one node of the tree in which gangs wait, whoever declared it.

A Volcano Queue and an ElasticQuota fill the same fields. `limit`, `deserved` and `guarantee` name only the dimensions that were
configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from muster.model.pod import Problem
from muster.model.resources import NOTHING, Resources

ROOT_QUEUE = "root"
DEFAULT_QUEUE = "queue/default"


class QueueState(Enum):
    OPEN = "Open"
    CLOSED = "Closed"
    CLOSING = "Closing"


@dataclass(frozen=True, slots=True)
class Queue:
    """`key` is `queue/<name>` or `quota/<namespace>/<name>`; `parent` is a key, or empty for the root's children."""

    key: str
    uid: str = ""
    created: float = 0.0
    version: int = 0
    parent: str = ""
    weight: int = 1
    weights: Resources = NOTHING
    """Shared weight by resource (ElasticQuota); empty where one weight serves all."""
    limit: Resources = NOTHING
    deserved: Resources = NOTHING
    guarantee: Resources = NOTHING
    reclaimable: bool = True
    priority: int = 0
    state: QueueState = QueueState.OPEN
    lends: bool = True
    is_parent: bool = False
    tree: str = ""
    namespaces: tuple[str, ...] = ()
    status: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What the object's status says now, as written: nothing unchanged is written again."""
    problems: tuple[Problem, ...] = ()

    @property
    def is_quota(self) -> bool:
        return self.key.startswith("quota/")

    @property
    def title(self) -> str:
        return self.key.split("/", 1)[-1]
