"""Who mounts which claim, and where. Follows the moves of the world; what a claim is bound to is looked up in the storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from muster.model.pod import Placement, Pod
from muster.model.topics import Topic
from muster.state.derived.placement_counters import (
    NOMINATED,
    OVERDUE,
    PLACED,
    PRESENCES,
    TERMINATING,
    PlacementCounter,
    presence_of,
)
from muster.state.node_table import IntColumn
from muster.state.storage import Storage
from muster.state.world import World

K = TypeVar("K")
V = TypeVar("V")
Volume = tuple[str, str]
"""A CSI driver, and what it calls the volume."""


def claim_keys(pod: Pod) -> tuple[str, ...]:
    return tuple([f"{pod.namespace}/{name}" for name in pod.signature.volume_claims])


def csi_volume(storage: Storage, key: str) -> Volume | None:
    """The CSI volume behind a claim, or None. One that is not made yet counts for the driver that will make it."""
    claim = storage.claims.get(key)
    if claim is None:
        return None
    if claim.volume:
        volume = storage.volumes.get(claim.volume)
        return (volume.driver, volume.handle) if volume is not None and volume.driver else None
    storage_class = storage.class_of(claim)
    return (storage_class.provisioner, f"claim {key}") if storage_class is not None and storage_class.makes_volumes else None


@dataclass(frozen=True, slots=True)
class _Mount:
    claims: tuple[str, ...]
    node: str
    presence: int
    since: float


class Mounts(PlacementCounter[_Mount]):
    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        """Grows with every change."""
        self._users: dict[str, dict[str, list[int]]] = {}
        """By claim, by node: how many pods mount it, by standing."""
        self._here: dict[str, dict[str, list[int]]] = {}
        """The same lists, by node first."""
        self._stays: dict[str, dict[tuple[float, str], int]] = {}
        """By claim: since when pods that stay mount it, and on which node."""
        self._attached = _Attached()

    def is_used(self, claim: str, *, after_releases: bool) -> bool:
        return any(_stands(counts, after_releases=after_releases) for counts in self._users.get(claim, {}).values())

    def stays(self) -> Iterator[tuple[str, float, list[str]]]:
        """Claims that pods who stay mount: since when the first of them does, and on which nodes they are."""
        for claim, uses in self._stays.items():
            yield claim, min(since for since, _ in uses), sorted({node for _, node in uses})

    def nodes_of(self, claim: str) -> list[str]:
        """The nodes of the pods that mount it and stay."""
        return sorted({node for _, node in self._stays.get(claim, {})})

    def attached(self, world: World, driver: str, *, after_releases: bool) -> IntColumn:
        """How many different volumes of this driver the pods of each node mount."""
        return self._attached.column(world, self, driver, after_releases=after_releases)

    def volumes_on(self, storage: Storage, node: str, *, after_releases: bool) -> set[Volume]:
        here = (claim for claim, counts in self._here.get(node, {}).items() if _stands(counts, after_releases=after_releases))
        return {volume for claim in here if (volume := csi_volume(storage, claim)) is not None}

    def entry(self, pod: Pod, node: str, placement: Placement) -> _Mount | None:
        if not pod.signature.volume_claims:
            return None
        return _Mount(claim_keys(pod), node, presence_of(placement), placement.since)

    def count(self, entry: _Mount, *, by: int) -> None:
        self.changes += 1
        self._attached.touched(entry.node)
        for claim in entry.claims:
            counts = self._users.setdefault(claim, {}).setdefault(entry.node, [0] * PRESENCES)
            self._here.setdefault(entry.node, {})[claim] = counts
            counts[entry.presence] += by
            if not any(counts):
                _drop(self._users, claim, entry.node)
                _drop(self._here, entry.node, claim)
            if entry.presence in (PLACED, NOMINATED):
                uses = self._stays.setdefault(claim, {})
                at = (entry.since, entry.node)
                uses[at] = uses.get(at, 0) + by
                if not uses[at]:
                    _drop(self._stays, claim, at)

    def clear(self) -> None:
        self.changes += 1
        self._users.clear()
        self._here.clear()
        self._stays.clear()
        self._attached = _Attached()

    def figures(self) -> dict[object, object]:
        return {"users": self._users, "here": self._here, "stays": self._stays}


def _drop(outer: dict[str, dict[K, V]], first: str, second: K) -> None:
    del outer[first][second]
    if not outer[first]:
        del outer[first]


def _stands(counts: list[int], *, after_releases: bool) -> bool:
    return bool(counts[PLACED] or counts[NOMINATED] or counts[OVERDUE] or (counts[TERMINATING] and not after_releases))


_COUNTED_BY = (Topic.NODE_LAYOUT, Topic.STORAGE)


class _Attached:
    """Columns of how many volumes a driver has to attach, kept up node by node."""

    def __init__(self) -> None:
        self._stamp: tuple[int, ...] = ()
        self._columns: dict[tuple[str, bool], IntColumn] = {}
        self._stale: dict[tuple[str, bool], dict[str, None]] = {}

    def touched(self, node: str) -> None:
        for stale in self._stale.values():
            stale[node] = None

    def column(self, world: World, mounts: Mounts, driver: str, *, after_releases: bool) -> IntColumn:
        stamp = world.changes.stamp(_COUNTED_BY)
        if stamp != self._stamp:
            self._stamp = stamp
            self._columns.clear()
            self._stale.clear()
        key = (driver, after_releases)
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = np.zeros(len(world.table), dtype=np.int64)
            self._stale[key] = dict.fromkeys(mounts._here)
        for node in self._stale[key]:
            row = world.table.row.get(node)
            if row is not None:
                column[row] = sum(
                    volume[0] == driver for volume in mounts.volumes_on(world.facts.storage, node, after_releases=after_releases)
                )
        self._stale[key] = {}
        return column
