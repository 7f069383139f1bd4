"""A gang: the unit that is placed whole or not at all. A single pod is a gang of one; a GangGroup is one whose roles are PodGroups.

`PodGroup` is a PodGroup object of any API flavour as it was declared; `Gang` is what the scheduler makes of groups, annotations and
pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from muster.model.pod import NOT_DECLARED, ApiFlavour, Declared, Pod, Problem
from muster.model.pod_constraints import EVERYTHING, LabelSelector
from muster.model.resource_amounts import NOTHING, Resources
from muster.model.topology_spec import TopologyConstraint

T = TypeVar("T", "Role", "Gang")


class Mode(Enum):
    STRICT = "Strict"
    NON_STRICT = "NonStrict"


class MatchPolicy(Enum):
    ONCE_SATISFIED = "once-satisfied"
    WAITING_AND_RUNNING = "waiting-and-running"
    ONLY_WAITING = "only-waiting"


class Stage(Enum):
    """How far a gang is. Derived from its children every time, never stored."""

    WAITING_FOR_PODS = "waiting-for-pods"
    WAITING = "waiting"
    WAITING_ON_PERMIT = "waiting-on-permit"
    PREEMPTING = "preempting"
    RUNNING = "running"
    TIMED_OUT = "timed-out"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class RoleMin:
    role: str
    min: int


@dataclass(frozen=True, slots=True)
class SubgroupPolicy:
    """Some members of a PodGroup, as declared: those of a role, or that the selector selects, grouped by the values of labels.

    Those with the same values are one subgroup, of which `size` members at least belong together; `min_subgroups` are needed.
    """

    name: str
    role: str = ""
    """Only members of this role, unless empty."""
    selector: LabelSelector = EVERYTHING
    label_keys: tuple[str, ...] = ()
    size: int = 1
    min_subgroups: int = 0
    topology: TopologyConstraint | None = None


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A PodGroup as declared. Its key has the family of its API flavour: families do not share names."""

    flavour: ApiFlavour
    namespace: str
    name: str
    uid: str = ""
    controller: str = ""
    """UID of the object that controls it, or empty."""
    created: float = 0.0
    version: int = 0
    min_member: int = 1
    role_mins: tuple[RoleMin, ...] = ()
    min_resources: Resources = NOTHING
    priority_class: str = ""
    priority: int | None = None
    never_preempts: bool = False
    queue: str = ""
    topology: TopologyConstraint | None = None
    parent: str = ""
    """The name of the CompositePodGroup that it is a part of, or empty."""
    sub_groups: tuple[SubgroupPolicy, ...] = ()
    wait_s: float | None = None
    stale_s: float | None = None
    declared: Declared = NOT_DECLARED
    phase: str = ""
    started: float | None = None
    """When its gang was first attempted, as the object's status says."""
    status: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What the object's status says now, flattened: nothing unchanged is written again."""
    problems: tuple[Problem, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.flavour.family}:{self.namespace}/{self.name}"

    @property
    def parent_key(self) -> str:
        """Key of the CompositePodGroup that it is a part of, or empty."""
        return f"{COMPOSITE_FAMILY}:{self.namespace}/{self.parent}" if self.parent else ""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class CompositePodGroup:
    """A CompositePodGroup of Kubernetes: a group of PodGroups, or of such groups."""

    namespace: str
    name: str
    uid: str = ""
    created: float = 0.0
    version: int = 0
    parent: str = ""
    """The name of the group that it is a part of, or empty."""
    min_groups: int = 0
    """How many of its groups belong together; 0 where they are scheduled independently (policy `basic`)."""
    topology: TopologyConstraint | None = None
    priority_class: str = ""
    priority: int | None = None
    status: Mapping[str, str] = field(default_factory=dict, hash=False)
    problems: tuple[Problem, ...] = ()

    @property
    def key(self) -> str:
        return f"{COMPOSITE_FAMILY}:{self.namespace}/{self.name}"

    @property
    def parent_key(self) -> str:
        """Key of the CompositePodGroup that it is a part of, or empty."""
        return f"{COMPOSITE_FAMILY}:{self.namespace}/{self.parent}" if self.parent else ""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


COMPOSITE_FAMILY: Final = "composite"
"""Stands before the names of CompositePodGroups in the key of a gang."""

VOLCANO_PHASES: Final = {
    "Pending": "Pending",
    "PreScheduling": "Inqueue",
    "Scheduling": "Inqueue",
    "Scheduled": "Running",
    "Running": "Running",
    "Finished": "Completed",
    "Failed": "Completed",
}
"""Volcano's definition knows no others than these and Unknown. There a gang runs when its minimum has nodes, and completed means
ended, whether it succeeded or not."""


def phase_in(flavour: ApiFlavour, phase: str, *, scheduled: int) -> str:
    """A PodGroup's phase as its own API names it: others are refused, and Volcano's controllers look for theirs. `scheduled` of
    its members have a node."""
    if flavour is not ApiFlavour.VOLCANO:
        return phase
    # Too few are left of a gang that failed, while some run on: Volcano waits for their controller.
    return "Unknown" if phase == "Failed" and scheduled else VOLCANO_PHASES[phase]


def changed(thing: T, **fields: object) -> T:
    """The same with some fields changed. What `dataclasses.replace` does, without asking each class anew what it consists of: gangs
    are made by the ten thousand."""
    made = object.__new__(type(thing))
    for name in type(thing).__slots__:
        object.__setattr__(made, name, fields[name] if name in fields else getattr(thing, name))
    return made


@dataclass(frozen=True, slots=True)
class Role:
    """Members that do the same work. `pods` are the live ones, in the order in which they are placed."""

    name: str
    min: int
    pods: tuple[Pod, ...] = ()
    total: int = 0
    """The expected size: what was declared, never less than `min`."""
    has_declared_total: bool = False
    """True where the expected size was declared: one cycle tries no more than that."""
    named_queue: str = ""
    """The queue that was named for it, as it was named, or empty."""
    queue: str = ""
    """The queue that it is charged to. It follows from the name and from the queues there are."""
    mode: Mode = Mode.STRICT
    group: str = ""
    """Key of the PodGroup that declares it, or empty."""
    succeeded: int = 0
    failed: int = 0
    terminating: tuple[Pod, ...] = ()
    """Members that are terminating: they use their nodes and queues, and count for nothing else."""
    gated: int = 0
    """Members with scheduling gates."""


@dataclass(frozen=True, slots=True)
class Subgroup:
    """A part of a gang that has a minimum and a topology constraint of its own; its parts are subgroups again.

    It is complete with `min` of its members and `min_subgroups` of its own subgroups; one that would not be complete is not placed.
    """

    title: str
    members: frozenset[str]
    """UIDs of those that live, those of its subgroups included."""
    min: int = 0
    succeeded: int = 0
    topology: TopologyConstraint | None = None
    subgroups: tuple[Subgroup, ...] = ()
    min_subgroups: int = 0


@dataclass(frozen=True, slots=True)
class Gang:
    """`key` is unique for ever; `full_name` is what a person calls it; `min` counts members of all roles together."""

    key: str
    full_name: str
    roles: tuple[Role, ...]
    min: int
    priority: int = 0
    created: float = 0.0
    flavour: ApiFlavour = ApiFlavour.SINGLE_POD
    mode: Mode = Mode.STRICT
    match_policy: MatchPolicy = MatchPolicy.WAITING_AND_RUNNING
    wait_s: float = 600.0
    run_s: float | None = None
    """For how long members run that do not declare it, as their priority class says."""
    stale_s: float | None = None
    """How long it may be below its minimum before it counts as stale, where its PodGroup says so."""
    topology: TopologyConstraint | None = None
    subgroups: tuple[Subgroup, ...] = ()
    min_subgroups: int = 0
    """How many of the subgroups must be complete."""
    min_resources: Resources = NOTHING
    never_preempts: bool = False
    parent: str = ""
    """Key of the CompositePodGroup that its PodGroup is a part of, or empty."""
    siblings: tuple[str, ...] = ()
    """Names of the other PodGroups that it declares as its GangGroup, sorted; empty once they are joined."""
    started: float | None = None
    """When it was first attempted, as its PodGroups say: a restarted scheduler does not count from then on."""
    waiting_for: str = ""
    """What is still missing before the gang can be judged at all (its PodGroup, a sibling), or empty."""
    invalid_because: str = ""
    """Why its minimum cannot be read, or empty: it must not start with fewer members than were meant."""
    min_is_known: bool = True
    """False while its PodGroup is gone or its minimum cannot be read: then all of its members are its minimum."""
    problems: tuple[Problem, ...] = ()

    @property
    def queue(self) -> str:
        """The queue in which the gang is ordered: its first role's."""
        return self.roles[0].queue if self.roles else ""

    @property
    def is_single_pod(self) -> bool:
        """A pod that nobody declared to be part of anything."""
        return self.flavour is ApiFlavour.SINGLE_POD

    @property
    def size(self) -> int:
        roles = self.roles
        return len(roles[0].pods) if len(roles) == 1 else sum([len(role.pods) for role in roles])

    def pods(self) -> tuple[Pod, ...]:
        if len(self.roles) == 1:
            return self.roles[0].pods
        return tuple(pod for role in self.roles for pod in role.pods)
