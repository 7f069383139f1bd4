"""Volumes as the scheduler sees them: PersistentVolumes, their claims and classes, and what drivers can attach to nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.model.pod import Problem, no_labels
from muster.model.pod_constraints import LabelSelector, NodeTerm

ONE_POD = "ReadWriteOncePod"
MANY_NODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
NO_PROVISIONER = "kubernetes.io/no-provisioner"


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """`node_terms` is a choice: a node that one of them matches can reach the volume. None: every node can."""

    name: str
    uid: str = ""
    version: int = 0
    labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    capacity: int = 0
    access_modes: tuple[str, ...] = ()
    mode: str = "Filesystem"
    storage_class: str = ""
    claim: str = ""
    """Key of the claim that it is bound to or kept for, or empty; `claim_uid` says which of that name, where that is known."""
    claim_uid: str = ""
    available: bool = True
    """False for one that was released, failed, or is being deleted: nobody new gets it."""
    node_terms: tuple[NodeTerm, ...] | None = None
    driver: str = ""
    """The CSI driver that attaches it, or empty; `handle` is what the driver calls it."""
    handle: str = ""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """`volume` names the volume it is bound to, or is empty. `storage_class` None: whatever class is the default."""

    namespace: str
    name: str
    uid: str = ""
    version: int = 0
    volume: str = ""
    storage_class: str | None = None
    request: int = 0
    access_modes: tuple[str, ...] = ()
    mode: str = "Filesystem"
    selector: LabelSelector | None = None
    """Which volumes it takes, by their labels. None: any."""
    selected_node: str = ""
    """The node for which a volume is being made, or empty."""
    deleted: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class StorageClass:
    """`waits`: a claim of this class is bound only when its first pod has a node (WaitForFirstConsumer)."""

    name: str
    version: int = 0
    provisioner: str = NO_PROVISIONER
    waits: bool = False
    topologies: tuple[NodeTerm, ...] | None = None
    """Where volumes of this class can be made: a choice of terms. None: everywhere."""
    is_default: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def makes_volumes(self) -> bool:
        return self.provisioner not in ("", NO_PROVISIONER)


@dataclass(frozen=True, slots=True)
class CsiNode:
    """How many volumes each CSI driver can attach to the node of this name; a driver that is not named has no limit."""

    name: str
    version: int = 0
    limits: tuple[tuple[str, int], ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class VolumeChoice:
    """What has to be written before a pod can run on its node: the claim gets this volume, or (empty) one made for that node."""

    claim: str
    volume: str = ""
