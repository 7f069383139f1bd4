"""A queue: one node of the tree in which gangs wait, whoever declared it.

A Volcano Queue and an ElasticQuota fill the same fields. `limit`, `deserved` and `guarantee` name only the dimensions that were
configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from muster.model.pod import Problem
from muster.model.resource_amounts import NOTHING, Resources

ROOT_QUEUE = "root"
DEFAULT_QUEUE = "queue/default"

# Koordinator's built-in quotas: the root above all others, and two that take no part in sharing.
ROOT_QUOTA = "koordinator-root-quota"
DEFAULT_QUOTA = "koordinator-default-quota"
SYSTEM_QUOTA = "koordinator-system-quota"

ANY_NAMESPACE = "quota/?/"
"""How a quota is named where its namespace is not known."""

PREEMPTIBLE_LABEL = "quota.scheduling.koordinator.sh/preemptible"
"""On a pod: "false" keeps it within its quota's minimum and safe from eviction."""


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
    """Those whose pods belong to it without naming it."""
    preempt_within_parent: str = ""
    """`LowerPriority` or `Never`: whether its gangs take what siblings borrow. Empty: as the policy says."""
    run_s: float | None = None
    """For how long its pods run, and those below it, that do not declare it themselves."""
    only_for: tuple[str, ...] | None = None
    """The namespaces whose pods may be in it or below; None: all."""
    status: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What the object's status says now, as written: nothing unchanged is written again."""
    problems: tuple[Problem, ...] = ()

    @property
    def is_quota(self) -> bool:
        return self.key.startswith("quota/")

    @property
    def title(self) -> str:
        return self.key.split("/", 1)[-1]

    @property
    def name(self) -> str:
        return self.key.rsplit("/", 1)[-1]


def show_queue(key: str) -> str:
    """A queue as a person names it: `queue research`, `quota team-a/train`."""
    kind, _, title = key.replace(ANY_NAMESPACE, "quota/", 1).partition("/")
    return f"{kind} {title}" if title else f"queue {kind}"
