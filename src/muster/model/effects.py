"""What comes out of a cycle: effects, each with its reason, and verdicts on the gangs that were not scheduled."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.model.device import DeviceGrant, DeviceSlot
from muster.model.saved_state import SavedHistory, SavedPlan
from muster.model.topics import TopicKey
from muster.model.volume import VolumeChoice


@dataclass(frozen=True, slots=True)
class PodDecision:
    """What was decided about one pod and a node, and why."""

    uid: str
    pod: str
    node: str
    gang: str
    why: str
    cause: str


@dataclass(frozen=True, slots=True)
class Bind(PodDecision):
    cause: str = "fits"
    devices: tuple[DeviceSlot, ...] = ()
    volumes: tuple[VolumeChoice, ...] = ()
    """What its PersistentVolumeClaims that wait for a node get: written first, because the pod cannot run without them."""
    grants: tuple[DeviceGrant, ...] = ()
    """Its device slots as the device plugins read them: written with the bind, because those look for them at once."""


@dataclass(frozen=True, slots=True)
class Reserve(PodDecision):
    """Keep free capacity on a node for a pod whose gang is not complete yet."""

    since: float = 0.0
    devices: tuple[DeviceSlot, ...] = ()


@dataclass(frozen=True, slots=True)
class Nominate(PodDecision):
    """Nominate a pod to a node where capacity is being released. `evicts`: pods are evicted for its plan."""

    since: float = 0.0
    plan: str = ""
    evicts: bool = False
    devices: tuple[DeviceSlot, ...] = ()


@dataclass(frozen=True, slots=True)
class Release(PodDecision):
    """A reservation or nomination ends without a bind. `timed_out`: the pod is marked, and its gang is not scheduled while it
    is."""

    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Evict:
    """`for_gang` is the beneficiary; `method` one of delete, evict, soft."""

    uid: str
    pod: str
    node: str
    gang: str
    for_gang: str
    why: str
    cause: str
    method: str = "delete"


@dataclass(frozen=True, slots=True)
class CancelEviction(PodDecision):
    """A soft eviction is cancelled: the pod's mark is removed."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A sentence for the owner of an object: on a gang (its PodGroups and waiting members) or on another object."""

    subject: str
    """What the sentence is about: `gang`, `queue`, `node`, `domain` or `pod`."""
    key: str
    ok: bool
    code: str
    why: str
    gang_key: str = ""
    """Of a gang: its key. Gangs of several APIs may have one name, and a pod the name of a PodGroup."""

    @property
    def object_key(self) -> str:
        """Names the objects that it is about, and no others."""
        return self.gang_key or self.key


@dataclass(frozen=True, slots=True)
class PodGroupStatus:
    """The status of a PodGroup as it should read now."""

    group: str
    phase: str
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: float | None = None


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """What the status of a queue or quota should read now. Deeper values join their keys with dots: ("allocated.cpu", "4")."""

    key: str
    fields: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SavePlan:
    """Keep this for a scheduler that starts later: written before anything else of the plan is."""

    plan: SavedPlan


@dataclass(frozen=True, slots=True)
class DeletePlan:
    """The plan has ended, and nobody is being evicted for it any more."""

    gang: str
    name: str


@dataclass(frozen=True, slots=True)
class SaveHistory:
    history: SavedHistory


PodEffect = Bind | Reserve | Nominate | Release | Evict | CancelEviction
"""What is done to a pod."""
StatusEffect = Condition | PodGroupStatus | QueueStatus
"""What is reported on an object."""
StateEffect = SavePlan | DeletePlan | SaveHistory
"""What is kept in objects of the scheduler's own."""
Effect = PodEffect | StatusEffect | StateEffect


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes, or no with a sentence that has numbers in it and a code for machines.

    `curable`: evicting somebody could change the answer. `topics` name what can change it, `at` from when on time alone can.
    """

    ok: bool
    why: str = ""
    code: str = ""
    curable: bool = False
    topics: tuple[TopicKey, ...] = ()
    at: float | None = None


YES = Verdict(ok=True)


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that one cycle decided. `verdicts` has one for each gang whose verdict changed, by its full name; those
    of the others are as before."""

    cycle: int
    now: float
    effects: tuple[Effect, ...] = ()
    verdicts: tuple[tuple[str, Verdict], ...] = ()
    stats: tuple[tuple[str, int], ...] = field(default=())
