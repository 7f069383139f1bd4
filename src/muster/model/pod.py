"""A pod as the scheduler sees it, its signature, and its placement.

Pods are identified by UID: a pod re-created under the same name is a new pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from functools import lru_cache

from muster.model.device import DeviceRequest, DeviceSlot, DeviceSlotNote
from muster.model.pod_constraints import (
    NO_NODE_AFFINITY,
    NO_POD_AFFINITY,
    HostPort,
    NodeAffinity,
    PodAffinity,
    SpreadConstraint,
    Toleration,
)
from muster.model.resource_amounts import NOTHING, Resources


class Phase(IntEnum):
    """How a pod relates to its node. The only thing a cycle changes about a pod."""

    PENDING = 0
    NOMINATED = 1
    """Nominated to a node where capacity is still being released."""
    RESERVED = 2
    """A node with free capacity is reserved, until its gang is complete."""
    BINDING = 3
    BOUND = 4
    TERMINATING = 5
    OVERDUE = 6
    """Should have terminated long ago: still uses its node, but its capacity is not expected back."""
    MOVING = 7
    """Of a reserve pod alone: capacity kept for a pod that was moved, until its controller has created it anew."""


PREEMPTABLE = "volcano.sh/preemptable"
"""Annotation or label: may the pod be evicted?"""

RESERVATIONS = frozenset({Phase.NOMINATED, Phase.RESERVED})
PLACED = frozenset({Phase.RESERVED, Phase.BINDING, Phase.BOUND})
PLACED_OR_NOMINATED = PLACED | {Phase.NOMINATED}
UNBOUND = frozenset({Phase.PENDING, Phase.NOMINATED, Phase.RESERVED})
RELEASING = frozenset({Phase.TERMINATING, Phase.OVERDUE})


@dataclass(frozen=True, slots=True)
class Placement:
    """`since` is when the pod entered this phase; `plan` names the plan that a nomination belongs to."""

    phase: Phase
    node: str | None = None
    since: float = 0.0
    devices: tuple[DeviceSlot, ...] = ()
    plan: str = ""


UNPLACED = Placement(Phase.PENDING)


class _CachedHash:
    """A place for a hash that is worked out once; no field, so that it is neither compared nor written anywhere."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True)
class PodSignature(_CachedHash):
    """All that decides where a pod may be placed, apart from its own labels. Pods of one signature are interchangeable."""

    request: Resources = NOTHING
    node_selector: tuple[tuple[str, str], ...] = ()
    node_affinity: NodeAffinity = NO_NODE_AFFINITY
    tolerations: tuple[Toleration, ...] = ()
    ports: tuple[HostPort, ...] = ()
    affinity: PodAffinity = NO_POD_AFFINITY
    anti_affinity: PodAffinity = NO_POD_AFFINITY
    spread: tuple[SpreadConstraint, ...] = ()
    volume_claims: tuple[str, ...] = ()
    """Names of the PersistentVolumeClaims it mounts, in its own namespace."""
    namespace: str = ""
    """Only where one of the fields above depends on it, so that plain pods of all namespaces have one signature."""
    devices: tuple[DeviceRequest, ...] = ()
    """What it asks of devices with indices, beside the amounts in its request."""

    def __hash__(self) -> int:
        # Signatures are looked up for every pod, and those of many gangs differ in their affinity only.
        try:
            return self._hash
        except AttributeError:
            nodes = (self.node_selector, self.node_affinity, self.tolerations, self.ports)
            others = (self.affinity, self.anti_affinity, self.spread)
            found = hash((self.request, nodes, others, self.volume_claims, self.namespace, self.devices))
            object.__setattr__(self, "_hash", found)
            return found

    def without_inter_pod_terms(self) -> PodSignature:
        """The signature without its inter-pod terms."""
        if not self.spread and self.affinity == self.anti_affinity == NO_POD_AFFINITY:
            return self
        return _without_inter_pod_terms(self)


@lru_cache(maxsize=4096)
def _without_inter_pod_terms(signature: PodSignature) -> PodSignature:
    namespace = signature.namespace if signature.volume_claims else ""
    return replace(signature, affinity=NO_POD_AFFINITY, anti_affinity=NO_POD_AFFINITY, spread=(), namespace=namespace)


class PodStatusPhase(Enum):
    """The pod's own phase, as the kubelet reports it."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Problem:
    """Bad input: which field, what is wrong, and the nearest valid value. It concerns its object and nothing else."""

    field: str
    text: str
    lost: bool = False
    """True where nothing of the value could be used: its field counts as not written."""
    unsupported: bool = False
    """True where a pod asks for what the scheduler does not honour: it gets no node."""


class ApiFlavour(Enum):
    """Who declared a gang. Later ones lose where a pod declares itself in several."""

    VOLCANO = "volcano"
    KOORDINATOR = "koordinator"
    SIGS = "sigs"
    NATIVE = "native"
    ANNOTATION = "annotation"
    SINGLE_POD = "lone"  # saved histories have losses of single pods under it

    @property
    def family(self) -> str:
        """Flavours of one family share their names: an annotation and a PodGroup can declare the same gang."""
        return "koordinator" if self is ApiFlavour.ANNOTATION else self.value


@dataclass(frozen=True, slots=True)
class Declared:
    """What annotations declare about a gang, on its pods or on its PodGroup. None: not declared."""

    min: int | None = None
    total: int | None = None
    wait_s: float | None = None
    mode: str | None = None
    match_policy: str | None = None
    groups: tuple[str, ...] | None = None
    must_gather: str | None = None
    """Name of the topology tier in which the whole gang must lie."""
    prefer_gather: str | None = None
    """Name of the topology tier in which the gang would rather lie."""


NOT_DECLARED = Declared()


@dataclass(frozen=True, slots=True)
class Membership:
    """The gang that a pod declares. `needs_group`: the gang waits for a PodGroup object of that name."""

    flavour: ApiFlavour
    name: str
    role: str = ""
    needs_group: bool = True
    declared: Declared = NOT_DECLARED


_NO_LABELS: Mapping[str, str] = {}


def no_labels() -> Mapping[str, str]:
    return _NO_LABELS


@dataclass(frozen=True, slots=True)
class Pod:
    uid: str
    namespace: str
    name: str
    signature: PodSignature
    created: float = 0.0
    version: int = 0
    ours: bool = True
    """True when its schedulerName is one of ours."""
    scheduler: str = ""
    """The scheduler that it names, where that is another one."""
    priority: int = 0
    priority_class: str = ""
    never_preempts: bool = False
    controller: str = ""
    """UID of the object that controls it, or empty."""
    protected: str = ""
    """Why it may never be a victim (a DaemonSet or mirror pod, a critical class, a system namespace), or empty."""
    labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    annotations: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """Only those that the scheduler reads or writes."""
    membership: Membership | None = None
    queue: str = ""
    """The queue that the pod itself names, or empty."""
    gates: tuple[str, ...] = ()
    node: str | None = None
    status_phase: PodStatusPhase = PodStatusPhase.PENDING
    started: float | None = None
    deleted_at: float | None = None
    """Its deletionTimestamp: when it should have terminated, grace period included. None while it is not being deleted."""
    nominated_node: str | None = None
    pipelined_node: str = ""
    """The node that Volcano's annotations of a nomination name, or empty."""
    device_slots: tuple[DeviceSlotNote, ...] = ()
    """Which devices it has, where somebody wrote that onto it."""
    eviction_marked_at: float | None = None
    """When it was marked for soft eviction: another controller removes it. None while it is not marked."""
    timed_out: bool = False
    checkpoint: float | None = None
    """Its last checkpoint, where declared."""
    restart_s: float = 0.0
    """How long a restart takes, where declared."""
    run_s: float | None = None
    """For how long it runs at most, where declared."""
    movable: bool | None = None
    """May it be moved to another node, where declared?"""
    problems: tuple[Problem, ...] = ()

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def gang_key(self) -> str:
        """Of the gang that the pod itself declares: `volcano:ns/name`, or `pod:uid` for a single pod."""
        if self.membership is None:
            return f"pod:{self.uid}"
        return f"{self.membership.flavour.family}:{self.namespace}/{self.membership.name}"

    @property
    def finished(self) -> bool:
        return self.status_phase is PodStatusPhase.SUCCEEDED or self.status_phase is PodStatusPhase.FAILED

    def saved_at(self, since: float) -> float:
        """When it last saved its work: at its last checkpoint, else when it started; `since` where its node has not said so yet."""
        if self.checkpoint is not None:
            return self.checkpoint
        return self.started if self.started is not None else since

    def hours_lost(self, *, since: float, now: float) -> float:
        """The work that its eviction loses, and its restart."""
        return (max(0.0, now - self.saved_at(since)) + self.restart_s) / 3600.0
