"""Who mounts which claim, and where. Follows the moves of the world; what a claim is bound to is looked up in the storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from muster.model.pod import Placement, Pod
from muster.model.topics import Topic
from muster.state.derived.placement_counters import (
    NOMINATED,
    PLACED,
    PRESENCES,
    PlacementCounter,
    any_present,
    counter_of,
    presence_of,
)
from muster.state.derived_values import Derived
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

    def is_used(self, claim: str, *, after_releases: bool) -> bool:
        return any(any_present(counts, after_releases=after_releases) for counts in self._users.get(claim, {}).values())

    def stays(self) -> Iterator[tuple[str, float, list[str]]]:
        """Claims that pods who stay mount: since when the first of them does, and on which nodes they are."""
        for claim, uses in self._stays.items():
            yield claim, min(since for since, _ in uses), sorted({node for _, node in uses})

    def nodes_of(self, claim: str) -> list[str]:
        """The nodes of the pods that mount it and stay."""
        return sorted({node for _, node in self._stays.get(claim, {})})

    def nodes(self) -> Iterable[str]:
        return self._here

    def volumes_on(self, storage: Storage, node: str, *, after_releases: bool) -> set[Volume]:
        here = (claim for claim, counts in self._here.get(node, {}).items() if any_present(counts, after_releases=after_releases))
        return {volume for claim in here if (volume := csi_volume(storage, claim)) is not None}

    def entry(self, pod: Pod, node: str, placement: Placement) -> _Mount | None:
        if not pod.signature.volume_claims:
            return None
        return _Mount(claim_keys(pod), node, presence_of(placement), placement.since)

    def count(self, entry: _Mount, *, by: int) -> None:
        self.changes += 1
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

    def figures(self) -> dict[object, object]:
        return {"users": self._users, "here": self._here, "stays": self._stays}


def _drop(outer: dict[str, dict[K, V]], first: str, second: K) -> None:
    del outer[first][second]
    if not outer[first]:
        del outer[first]


_ATTACHED: Derived[IntColumn] = Derived("volumes to attach", Topic.NODE_LAYOUT, Topic.STORAGE, follows=Topic.NODE_ROWS)


def attached(world: World, driver: str, *, after_releases: bool) -> IntColumn:
    """All rows: how many different volumes of this driver the pods of a node mount."""
    mounts, table = counter_of(world, Mounts), world.table

    def count(column: IntColumn, rows: Iterable[int]) -> None:
        for row in set(rows):
            volumes = mounts.volumes_on(world.facts.storage, table.names[row], after_releases=after_releases)
            column[row] = sum(volume[0] == driver for volume in volumes)

    def build() -> IntColumn:
        column = np.zeros(len(table), dtype=np.int64)
        count(column, [table.row[node] for node in mounts.nodes() if node in table.row])
        return column

    return _ATTACHED.of(world, build, key=(driver, after_releases), update=count)
