"""What was observed: the objects of the cluster as model values. Only the store changes them, between cycles."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.model.budget import Budget
from muster.model.events import Namespace
from muster.model.gang import CompositePodGroup, Gang, PodGroup
from muster.model.node import Node
from muster.model.pod import Pod, PodSignature
from muster.model.queue import Queue
from muster.model.saved_state import SavedHistory, SavedPlan
from muster.model.topology_spec import DomainSpec
from muster.state.gangs.succeeded_members import SucceededMembers
from muster.state.queue_tree import QueueTree
from muster.state.storage import Storage


@dataclass(frozen=True, slots=True)
class Member:
    """How a pod takes part: in which gang and role, charged to which queue."""

    gang: str
    role: str
    queue: str
    preemptible: bool = True


@dataclass(slots=True)
class Facts:
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    """Live pods: ours, and others' that have a node. Finished pods are no longer here."""
    gpu_pods: dict[PodSignature, int] = field(default_factory=dict)
    """How many of ours ask for GPUs, or parts of them, by signature."""
    gangs: dict[str, Gang] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    groups: dict[str, PodGroup] = field(default_factory=dict)
    composites: dict[str, CompositePodGroup] = field(default_factory=dict)
    without_pods: dict[str, None] = field(default_factory=dict)
    """Gangs of which only the PodGroup exists so far."""
    succeeded: SucceededMembers = field(default_factory=SucceededMembers)
    queues: dict[str, Queue] = field(default_factory=dict)
    tree: QueueTree = field(default_factory=lambda: QueueTree({}))
    gangs_in_queue: dict[str, dict[str, None]] = field(default_factory=dict)
    """The gangs with a role in each queue that has any."""
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    domains: dict[str, DomainSpec] = field(default_factory=dict)
    storage: Storage = field(default_factory=Storage)
    budgets: dict[str, Budget] = field(default_factory=dict)
    saved_plans: dict[str, SavedPlan] = field(default_factory=dict)
    """By name: what the first cycle recovers."""
    saved_histories: dict[str, SavedHistory] = field(default_factory=dict)
    """By namespace: what the first cycle recovers."""
    node_problems: dict[str, dict[str, str]] = field(default_factory=dict)
    """What is wrong with a node's own fields and with its list of devices, where something is."""
