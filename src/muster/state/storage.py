"""Volumes, claims, classes and what drivers can attach: the facts, as they were seen. The store changes them between cycles."""

from __future__ import annotations

from dataclasses import replace

from muster.model.volume import CsiNode, PersistentVolume, StorageClass, VolumeClaim, VolumeThing


class Storage:
    def __init__(self) -> None:
        self.volumes: dict[str, PersistentVolume] = {}
        self.claims: dict[str, VolumeClaim] = {}
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CsiNode] = {}

    def put(self, thing: VolumeThing) -> bool:
        """Take a fact over. True if anything but its version is new."""
        match thing:
            case PersistentVolume():
                volume = self.volumes.get(thing.name)
                self.volumes[thing.name] = thing
                return volume is None or replace(volume, version=thing.version) != thing
            case VolumeClaim():
                claim = self.claims.get(thing.key)
                self.claims[thing.key] = thing
                return claim is None or replace(claim, version=thing.version) != thing
            case StorageClass():
                storage_class = self.classes.get(thing.name)
                self.classes[thing.name] = thing
                return storage_class is None or replace(storage_class, version=thing.version) != thing
            case CsiNode():
                node = self.csi_nodes.get(thing.name)
                self.csi_nodes[thing.name] = thing
                return node is None or replace(node, version=thing.version) != thing

    def drop(self, what: str, key: str) -> bool:
        """Forget a fact. True if it was known."""
        match what:
            case "PersistentVolume":
                return self.volumes.pop(key, None) is not None
            case "VolumeClaim":
                return self.claims.pop(key, None) is not None
            case "StorageClass":
                return self.classes.pop(key, None) is not None
            case "CsiNode":
                return self.csi_nodes.pop(key, None) is not None
        return False

    def class_of(self, claim: VolumeClaim) -> StorageClass | None:
        """The claim's class; that of a claim which names none is the default class."""
        if claim.storage_class is not None:
            return self.classes.get(claim.storage_class)
        defaults = sorted((one for one in self.classes.values() if one.is_default), key=lambda one: one.name)
        return defaults[0] if defaults else None
