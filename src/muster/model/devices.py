"""Devices with indices that pods share, and the slots that a placement takes of them.

A count of free GPUs is not devices: a slot says which device and how much of it, so that taking a pod away and putting it back
restores the same slots.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """One indexed device of a node. `island` names the devices that are close to each other (NVLink, PCIe)."""

    index: int
    kind: str
    memory: int = 0
    cores: int = 100
    uuid: str = ""
    island: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """What one placement takes of one device."""

    index: int
    memory: int = 0
    cores: int = 100
