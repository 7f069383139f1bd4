"""What comes in: an object was observed or deleted, or an effect failed. Events are facts; they carry no decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.model.budget import Budget
from muster.model.gang import CompositePodGroup, PodGroup
from muster.model.node import Inventory, Node
from muster.model.pod import Pod, Problem, no_labels
from muster.model.queue import Queue
from muster.model.saved_state import SavedHistory, SavedPlan
from muster.model.topology_spec import DomainSpec
from muster.model.volume import CsiNode, PersistentVolume, StorageClass, VolumeClaim


@dataclass(frozen=True, slots=True)
class PriorityClass:
    name: str
    value: int
    version: int = 0
    is_default: bool = False
    never_preempts: bool = False
    run_s: float | None = None
    """For how long its pods run that do not declare it themselves."""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Namespace:
    name: str
    version: int = 0
    labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    problems: tuple[Problem, ...] = ()


ClusterObject = (
    Pod | Node | PodGroup | CompositePodGroup | Queue | PriorityClass | Namespace | DomainSpec | Budget
    | PersistentVolume | VolumeClaim | StorageClass | CsiNode | Inventory | SavedPlan | SavedHistory
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Upsert:
    """An object exists, with this content."""

    obj: ClusterObject


@dataclass(frozen=True, slots=True)
class Delete:
    """An object exists no more. `kind` is its class in the model, `key` its UID for pods, its key or name otherwise."""

    kind: str
    key: str
    version: int = 0


@dataclass(frozen=True, slots=True)
class BindFailed:
    uid: str
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class EvictFailed:
    """`refused_by` names the disruption budget that refused it, or is empty."""

    uid: str
    why: str
    refused_by: str = ""


@dataclass(frozen=True, slots=True)
class SaveFailed:
    """A Plan or a History could not be written. `kind` is its class in the model, `key` the gang of a Plan or the namespace of a
    History."""

    kind: str
    key: str
    why: str


@dataclass(frozen=True, slots=True)
class ReservationFailed:
    """A reservation could not be written, so a restart would lose it. `since` is the reservation's own."""

    uid: str
    node: str
    since: float
    why: str


def event_subject(obj: ClusterObject) -> tuple[str, str]:
    """Which object it is, as a `Delete` says it: its class, and its UID, key or name."""
    if isinstance(obj, Pod):
        return "Pod", obj.uid
    key: str = getattr(obj, "key", "") or obj.name
    return type(obj).__name__, key


Event = Upsert | Delete | BindFailed | EvictFailed | ReservationFailed | SaveFailed
