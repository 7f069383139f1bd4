"""Volumes, claims, classes and what drivers can attach: the facts, as they were seen. The store changes them between cycles."""

from __future__ import annotations

from muster.model.volume import CsiNode, PersistentVolume, StorageClass, VolumeClaim


class Storage:
    def __init__(self) -> None:
        self.volumes: dict[str, PersistentVolume] = {}
        self.claims: dict[str, VolumeClaim] = {}
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CsiNode] = {}

    def class_of(self, claim: VolumeClaim) -> StorageClass | None:
        """The claim's class; that of a claim which names none is the default class."""
        if claim.storage_class is not None:
            return self.classes.get(claim.storage_class)
        defaults = sorted((one for one in self.classes.values() if one.is_default), key=lambda one: one.name)
        return defaults[0] if defaults else None
