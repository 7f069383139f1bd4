"""What can change: the one list of topics that mutators bump, derived values depend on and verdicts name.

Two sorts. *Followed* topics keep a log of keys and count every move, those of undone trials included: derived values follow them.
All others are *settled*: they count what was observed and what a cycle decided, never what it tried, so a verdict may name them.
"""

from __future__ import annotations

from enum import Enum


class Topic(Enum):
    # Followed: a log of keys, undone trials included.
    NODE_ROWS = "node rows"
    """Rows of the node table whose amounts changed. Key: the row."""
    PLACEMENTS = "placements"
    """Pods whose placement, labels or protection changed. Key: the UID."""
    LEDGER = "ledger"
    """Queues whose own amounts, or the gangs in them, changed. Key: the queue."""
    GANGS = "gangs"
    """Gangs that were assembled, changed or disbanded. Key: the gang."""

    # Settled, about nodes.
    NODE_LAYOUT = "node layout"
    """Nodes came or went, or a resource was seen for the first time: rows and columns of the node table moved."""
    NODE_LABELS = "node labels"
    NODE_TAINTS = "node taints"
    """Taints, and whether a node is unschedulable."""
    NODE_DEVICES = "node devices"
    ALLOCATABLE = "allocatable"
    FREE_CAPACITY = "free capacity"
    """Capacity became free on a node, or a node came or changed."""
    RELEASING = "releasing"
    """A pod is terminating: capacity will become free."""
    RESERVATIONS = "reservations"
    """A node was reserved for a gang that is not complete."""
    POD_PLACED = "pod placed"
    """A pod got a node: somebody may have waited for it to be there."""
    FOREIGN_PODS = "foreign pods"
    """A pod of another scheduler came, changed or is leaving."""
    EVICTABLE = "evictable"
    """Who may be evicted changed: the protection of a placed pod, or the gang, queue, priority or minimum that it counts in."""

    # Settled, about queues.
    QUEUES = "queues"
    """The definition of a queue, and so the tree of queues, changed."""
    QUEUE_CAPACITY = "queue capacity"
    """A queue's usage fell, or its definition changed. Key: the queue; its ancestors are bumped with it."""
    QUEUE_USAGE = "queue usage"
    """What is used in a queue grew."""
    LEDGER_LAYOUT = "ledger layout"
    """Rows or columns of the ledger moved."""
    DEMAND = "demand"
    """What gangs request changed: shares follow from it."""

    # Settled, about other objects.
    NAMESPACES = "namespaces"
    DOMAINS = "domains"
    STORAGE = "storage"
    BUDGETS = "budgets"

    CYCLE = "cycle"
    """A cycle began: what is worked out once a cycle is worked out anew."""

    @property
    def any(self) -> TopicKey:
        """The whole topic, whatever the key."""
        return self, ""

    def of(self, key: str) -> TopicKey:
        return self, key

    # Identity, as for every enum, but hashed without a call into Python: topics are looked up in the innermost loops.
    __hash__ = object.__hash__


FOLLOWED = frozenset({Topic.NODE_ROWS, Topic.PLACEMENTS, Topic.LEDGER, Topic.GANGS})

TopicKey = tuple[Topic, str]
"""A topic, and the key in it that matters; an empty key stands for the whole topic."""
