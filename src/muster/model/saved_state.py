"""What a scheduler keeps in the API server for the one that starts after it: the custom resources Plan and History.

They are in the scheduler's own namespace, where nobody else may write. What stands on pods and PodGroups was written by anybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from muster.model.device import DeviceSlot
from muster.model.pod import Phase, Problem

UNKNOWN = -1
"""The version of an object of which the last write failed."""


@dataclass(frozen=True, slots=True)
class SavedMember:
    """A node that is kept for a pod, since when, and by which plan, if it is a nomination."""

    uid: str
    pod: str
    node: str
    phase: Phase
    since: float
    plan: str = ""
    devices: tuple[DeviceSlot, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedEvictions:
    """The victims of one plan, by UID, and the action that chose them."""

    plan: str
    action: str
    since: float
    victims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedMove:
    """A node that is kept for the successor of a pod that was moved: who that was, and whose successor it is. `uid` is that of the
    successor, once it is known."""

    victim: str
    pod: str
    gang: str
    role: str
    owner: str
    queue: str
    preemptible: bool
    priority: int
    node: str
    since: float
    plan: str
    request: tuple[tuple[str, int], ...] = ()
    devices: tuple[DeviceSlot, ...] = ()
    uid: str = ""


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """All that one gang has reserved, is nominated to, and has evicted. `cancelled` are victims whose soft eviction is being
    cancelled; `moves` the nodes that are kept for pods that were moved for it."""

    gang: str
    members: tuple[SavedMember, ...] = ()
    evictions: tuple[SavedEvictions, ...] = ()
    cancelled: tuple[str, ...] = ()
    moves: tuple[SavedMove, ...] = ()
    name: str = ""
    version: int = 0
    problems: tuple[Problem, ...] = ()
    parts: tuple[str, ...] = ()
    """The names of other objects with the rest of it, where it is too large for one."""
    part_of: str = ""
    """Of such a rest: the name of the first object."""

    @property
    def is_empty(self) -> bool:
        return not (self.members or self.evictions or self.cancelled or self.moves)

    def with_rest(self, rest: Iterable[SavedPlan]) -> SavedPlan:
        """The whole plan. Victims of one eviction may be in several objects."""
        pieces = (self, *rest)
        entries: dict[str, SavedEvictions] = {}
        for entry in (entry for piece in pieces for entry in piece.evictions):
            known = entries.get(entry.plan)
            entries[entry.plan] = entry if known is None else replace(known, victims=known.victims + entry.victims)
        return replace(
            self,
            members=tuple(member for piece in pieces for member in piece.members),
            evictions=tuple(entries.values()),
            cancelled=tuple(uid for piece in pieces for uid in piece.cancelled),
            moves=tuple(move for piece in pieces for move in piece.moves),
            parts=(),
        )


def saved_plan_name(gang: str) -> str:
    """The name of a gang's Plan: the name of the gang as far as an object may have it, and what makes it unique."""
    readable = "".join(each if each.isascii() and each.isalnum() else "-" for each in gang.partition(":")[2].lower())
    return f"{readable.strip('-')[:40].strip('-')}-{blake2b(gang.encode(), digest_size=8).hexdigest()}".lstrip("-")


@dataclass(frozen=True, slots=True)
class Losses:
    """What a gang lost by evictions: how often it was evicted, and how often by reclaim, when last, and the hours of work that each
    member lost."""

    namespace: str = ""
    evictions: float = 0.0
    evicted_at: float = 0.0
    reclaims: float = 0.0
    reclaimed_at: float = 0.0
    hours: float = 0.0
    crossings: tuple[tuple[str, int], ...] = ()
    """By the history key of another gang, in how many of its plans this one lost pods that brought a queue below its share."""
    plans: tuple[str, ...] = ()
    """The last plans that are counted in this."""
    moved_at: float = 0.0
    """When members of it were last moved."""

    @property
    def last_at(self) -> float:
        return max(self.evicted_at, self.reclaimed_at, self.moved_at)


NO_LOSSES = Losses()


@dataclass(frozen=True, slots=True)
class CancelledEviction:
    """When the soft eviction of a pod was last cancelled, and how often it was: the pod did not leave before that."""

    at: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class SavedMembers:
    """Names of succeeded members of one role that one controller made."""

    role: str
    controller: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SavedSuccess:
    """Which members of a gang succeeded. `owner`: the UID of its PodGroup, or empty where it has none."""

    group: str
    owner: str
    members: tuple[SavedMembers, ...]
    count: int = 0


@dataclass(frozen=True, slots=True)
class SavedWait:
    """Since when a gang waits for capacity, and what is kept for it: see `BackfillReservation`."""

    at: float
    nodes: tuple[str, ...] = ()
    starts_at: float | None = None
    since: float = 0.0
    moves: int = 0


@dataclass(frozen=True, slots=True)
class PastUse:
    """What a queue uses since a time, and what it used on average before, by resource: see `usageHalfLifeSeconds`."""

    at: float
    used: tuple[tuple[str, int], ...] = ()
    average: tuple[tuple[str, float], ...] = ()


QUEUES_HISTORY = "muster.queues"
"""The name of the history of the queues: no namespace can have it."""


@dataclass(frozen=True, slots=True)
class SavedHistory:
    """What is remembered about the gangs and pods of one namespace, whose name it has, or about the queues."""

    name: str
    losses: dict[str, Losses] = field(default_factory=dict, hash=False)
    """By the controller of a gang, or its name."""
    below_min_since: dict[str, float] = field(default_factory=dict, hash=False)
    """By gang."""
    cancelled_evictions: dict[str, CancelledEviction] = field(default_factory=dict, hash=False)
    """By UID of the pod."""
    waits: dict[str, SavedWait] = field(default_factory=dict, hash=False)
    """By gang, of those for which nodes, or capacity in their queues, are kept."""
    succeeded: dict[str, SavedSuccess] = field(default_factory=dict, hash=False)
    """By PodGroup, or by the name that the pods declare."""
    past_use: dict[str, PastUse] = field(default_factory=dict, hash=False)
    """By queue, in the history of the queues."""
    version: int = 0
    problems: tuple[Problem, ...] = ()

    @property
    def is_empty(self) -> bool:
        kept = (self.losses, self.below_min_since, self.cancelled_evictions, self.waits, self.succeeded, self.past_use)
        return not any(kept)
