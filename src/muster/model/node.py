"""A node as the scheduler sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.model.device import Device
from muster.model.pod import Problem, no_labels
from muster.model.pod_constraints import Taint
from muster.model.resource_amounts import NOTHING, Resources


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    uid: str = ""
    created: float = 0.0
    version: int = 0
    allocatable: Resources = NOTHING
    labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    devices: tuple[Device, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Inventory:
    """The devices of a node, declared by an object of their own that is named after it."""

    name: str
    version: int = 0
    devices: tuple[Device, ...] = ()
    problems: tuple[Problem, ...] = ()
