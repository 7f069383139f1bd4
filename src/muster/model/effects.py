"""What comes out: the deeds a cycle decided on, each with its reason, and the verdicts on those who were not served."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.model.device import DeviceGrant, DeviceSlot
from muster.model.topics import TopicKey
from muster.model.volume import VolumeChoice


@dataclass(frozen=True, slots=True)
class Bind:
    uid: str
    pod: str
    node: str
    gang: str
    why: str
    cause: str = "fits"
    devices: tuple[DeviceSlot, ...] = ()
    volumes: tuple[VolumeChoice, ...] = ()
    """What its claims that wait for a node get: to be written first, because the pod cannot run without them."""
    grants: tuple[DeviceGrant, ...] = ()
    """Its slots in the words of the device plugins: to be written with the bind, because those look for them at once."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """Keep free room on a node for a pod whose gang is not complete yet."""

    uid: str
    pod: str
    node: str
    gang: str
    why: str
    cause: str
    since: float = 0.0
    devices: tuple[DeviceSlot, ...] = ()


@dataclass(frozen=True, slots=True)
class Nominate:
    """Promise a node to a pod: others are leaving it. `victims` are UIDs, `size` the number of claims of the plan."""

    uid: str
    pod: str
    node: str
    gang: str
    why: str
    cause: str
    since: float = 0.0
    plan: str = ""
    size: int = 0
    victims: tuple[str, ...] = ()
    devices: tuple[DeviceSlot, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """A claim ends without a bind. `timed_out`: the pod is marked, and its gang is not scheduled while it lives so marked."""

    uid: str
    pod: str
    node: str
    gang: str
    why: str
    cause: str
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Evict:
    """`for_gang` is the beneficiary; `manner` one of delete, evict, soft."""

    uid: str
    pod: str
    node: str
    gang: str
    for_gang: str
    why: str
    cause: str
    method: str = "delete"


@dataclass(frozen=True, slots=True)
class CancelEviction:
    """A pod that was only asked to leave may stay: its mark is removed."""

    uid: str
    pod: str
    node: str
    gang: str
    why: str
    cause: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A sentence for the owner of an object: on a gang (its PodGroups and waiting members) or on another object."""

    subject: str
    """What the sentence is about: `gang`, `queue`, `node`, `domain` or `pod`."""
    key: str
    ok: bool
    code: str
    why: str


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


PodEffect = Bind | Reserve | Nominate | Release | Evict | CancelEviction
"""What is done to a pod."""
StatusEffect = Condition | PodGroupStatus | QueueStatus
"""What an object is to say."""
Effect = PodEffect | StatusEffect


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
    """All that one cycle decided. `verdicts` holds one for each gang that is judged otherwise than before, by its title; those
    of the others still hold."""

    cycle: int
    now: float
    effects: tuple[Effect, ...] = ()
    verdicts: tuple[tuple[str, Verdict], ...] = ()
    stats: tuple[tuple[str, int], ...] = field(default=())
