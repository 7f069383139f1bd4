"""Which volume each claim gets that waits for its first pod to have a node. It follows from who is placed where; nothing is stored.

Claims of pods that were placed earlier choose first, and what they chose stays theirs; those of one cycle choose together, so that
none is left without where all could have one. The smallest volume that suits is taken. A claim whose class makes volumes takes one
that is left over, else one is made for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from muster.model.pod import Pod
from muster.model.topics import Topic
from muster.model.volume import MANY_NODES, PersistentVolume, StorageClass, VolumeChoice, VolumeClaim
from muster.state.derived.node_term_matches import matching_column, matching_rows
from muster.state.derived.placement_counters import counter_of
from muster.state.derived.volume_mounts import Mounts, claim_keys
from muster.state.derived_values import Derived
from muster.state.node_table import BoolColumn
from muster.state.storage import Storage
from muster.state.world import World


def unbound_claim(storage: Storage, key: str) -> tuple[VolumeClaim, StorageClass] | None:
    """A claim that gets its volume when its first pod has a node, and its class; None for all others."""
    claim = storage.claims.get(key)
    if claim is None or claim.volume or claim.deleted:
        return None
    storage_class = storage.class_of(claim)
    return (claim, storage_class) if storage_class is not None and storage_class.waits else None


def choices(world: World, pod: Pod) -> tuple[VolumeChoice, ...]:
    """What the waiting claims of a placed pod get."""
    waiting = [key for key in claim_keys(pod) if unbound_claim(world.facts.storage, key) is not None]
    chosen = _plan(world).chosen if waiting else {}
    return tuple(VolumeChoice(key, chosen.get(key, "")) for key in waiting)


def matching_volumes(storage: Storage, claim: VolumeClaim, storage_class: StorageClass) -> list[PersistentVolume]:
    """The volumes that are there for such a claim, smallest first, wherever they are."""
    found = [
        volume
        for volume in storage.volumes.values()
        if volume.available
        and volume.claim in ("", claim.key)
        and volume.claim_uid in ("", claim.uid)
        and volume.storage_class == storage_class.name
        and volume.capacity >= claim.request
        and volume.mode == claim.mode
        and set(claim.access_modes) <= set(volume.access_modes)
        and (claim.selector is None or claim.selector.selects(volume.labels))
    ]
    return sorted(found, key=lambda volume: (volume.claim == "", volume.capacity, volume.name))


def can_be_provisioned(world: World, claim: VolumeClaim, storage_class: StorageClass) -> BoolColumn:
    """All rows: where the class can make a volume for the claim."""
    if not storage_class.makes_volumes:
        return np.zeros(len(world.table), dtype=np.bool_)
    column = matching_column(world, storage_class.topologies)
    if claim.selected_node:
        column &= np.array([name == claim.selected_node for name in world.table.names], dtype=np.bool_)
    return column


def is_available(world: World, claim: VolumeClaim, storage_class: StorageClass) -> BoolColumn:
    """All rows: where the claim can get a volume, made for it or there already, were nobody else after it."""
    column = can_be_provisioned(world, claim, storage_class)
    if not claim.selected_node:
        for volume in matching_volumes(world.facts.storage, claim, storage_class):
            column |= matching_column(world, volume.node_terms)
    return column


def volumes_suffice(world: World, pod: Pod) -> BoolColumn:
    """All rows: where the waiting claims of the pod get their volumes, while all who are placed keep theirs."""
    plan, column = _plan(world), np.ones(len(world.table), dtype=np.bool_)
    needs: list[_Need] = []
    for key in claim_keys(pod):
        found = unbound_claim(world.facts.storage, key)
        if found is None:
            continue
        users = counter_of(world, Mounts).nodes_of(key)
        if users and not MANY_NODES & set(found[0].access_modes):
            column &= np.array([name in users for name in world.table.names], dtype=np.bool_)
        if key in plan.fixed:
            volume = world.facts.storage.volumes.get(plan.fixed[key])
            column &= can_be_provisioned(world, *found) if volume is None else matching_column(world, volume.node_terms)
        else:
            needs.append(_Need(world, *found, beside=users))
    answers: dict[tuple[tuple[str, ...] | None, ...], bool] = {}
    for row in np.flatnonzero(column).tolist():
        asked = tuple([need.at(row) for need in needs])
        if asked not in answers:
            answers[asked] = plan.suffices([(need.key, at) for need, at in zip(needs, asked, strict=True) if at is not None])
        column[row] = answers[asked]
    return column


class _Need:
    """A waiting claim of a pod that looks for a node: which volumes would do on which row."""

    def __init__(self, world: World, claim: VolumeClaim, storage_class: StorageClass, *, beside: Sequence[str]) -> None:
        self.key = claim.key
        self._made = can_be_provisioned(world, claim, storage_class)
        self._anywhere: list[str] = []
        self._by_row: dict[int, list[str]] = {}
        for volume in matching_volumes(world.facts.storage, claim, storage_class) if not claim.selected_node else ():
            if not _reaches_all(world, volume, beside):
                continue
            if volume.node_terms is None:
                self._anywhere.append(volume.name)
            for row in matching_rows(world, volume.node_terms or ()):
                self._by_row.setdefault(row, []).append(volume.name)

    def at(self, row: int) -> tuple[str, ...] | None:
        """The volumes that would do on this row, or None where one can be made."""
        return None if self._made[row] else (*self._by_row.get(row, ()), *self._anywhere)


def _reaches_all(world: World, volume: PersistentVolume, nodes: Iterable[str]) -> bool:
    if volume.node_terms is None:
        return True
    rows = matching_rows(world, volume.node_terms)
    return all(world.table.row.get(node) in rows for node in nodes)


@dataclass(slots=True)
class _Plan:
    """Who gets what. `now` is the part that is still open: claims placed in this cycle may yet swap among themselves."""

    chosen: dict[str, str]
    fixed: dict[str, str]
    """What claims of earlier cycles chose; empty where one is made."""
    now: _Matching

    def suffices(self, wanted: Sequence[tuple[str, tuple[str, ...]]]) -> bool:
        if not wanted:
            return True
        if len(wanted) == 1 and wanted[0][0] not in self.now.chosen and any(name not in self.now.holder for name in wanted[0][1]):
            return True
        trial = self.now.copy()
        for claim, _ in wanted:
            trial.drop(claim)
        return all(trial.add(claim, volumes) for claim, volumes in wanted)


class _Matching:
    """Claims and volumes paired off, each once. Adding a claim may make others move over, and never leaves one without."""

    def __init__(self, settled: set[str]) -> None:
        self._settled = settled
        self._options: dict[str, tuple[str, ...]] = {}
        self.holder: dict[str, str] = dict.fromkeys(settled, "")
        self.chosen: dict[str, str] = {}

    def copy(self) -> _Matching:
        twin = _Matching(self._settled)
        twin._options, twin.holder, twin.chosen = dict(self._options), dict(self.holder), dict(self.chosen)
        return twin

    def drop(self, claim: str) -> None:
        if claim in self.chosen:
            del self.holder[self.chosen.pop(claim)]

    def add(self, claim: str, volumes: tuple[str, ...]) -> bool:
        """Give the claim one of these, smallest first, if that can be done."""
        self._options[claim] = volumes
        came: dict[str, str] = {}
        queue = [claim]
        for asking in queue:
            for volume in self._options[asking]:
                if volume in came or volume in self._settled:
                    continue
                came[volume] = asking
                if volume not in self.holder:
                    self._shift(volume, came, first=claim)
                    return True
                queue.append(self.holder[volume])
        return False

    def _shift(self, volume: str, came: dict[str, str], *, first: str) -> None:
        """Everybody on the way takes what was found for them, and leaves what they had to the one before."""
        while True:
            claim = came[volume]
            had = self.chosen.get(claim)
            self.holder[volume], self.chosen[claim] = claim, volume
            if claim == first or had is None:
                return
            volume = had


_CHOICES: Derived[_Plan] = Derived("volume choices", Topic.CYCLE, Topic.STORAGE, Topic.NODE_LAYOUT, Topic.NODE_LABELS, most=2)


def _plan(world: World) -> _Plan:
    mounts = counter_of(world, Mounts)
    return _CHOICES.of(world, lambda: _make_plan(world, mounts), key=(mounts, mounts.changes))


def _make_plan(world: World, mounts: Mounts) -> _Plan:
    waiting = [
        (since, claim, nodes, *found)
        for claim, since, nodes in mounts.stays()
        if (found := unbound_claim(world.facts.storage, claim)) is not None
    ]
    waiting.sort(key=lambda each: each[:2])
    chosen: dict[str, str] = {}
    fixed: dict[str, str] = {}
    now = _Matching(set())
    for since, cohort in groupby(waiting, key=lambda each: each[0]):
        members = list(cohort)
        matching = _Matching(set(fixed.values()) - {""})
        provisionable: list[tuple[str, tuple[str, ...]]] = []
        for _, key, nodes, claim, storage_class in members:
            volumes = _volumes_at(world, claim, storage_class, nodes)
            if _made_at(world, claim, storage_class, nodes):
                provisionable.append((key, volumes))
            else:
                matching.add(key, volumes)
        if since >= world.now:
            now = matching.copy()
        for key, volumes in provisionable:
            matching.add(key, volumes)
        chosen.update(matching.chosen)
        if since < world.now:
            fixed.update({key: matching.chosen.get(key, "") for _, key, *_ in members})
            now = _Matching(set(fixed.values()) - {""})
    return _Plan(chosen, fixed, now)


def _volumes_at(world: World, claim: VolumeClaim, storage_class: StorageClass, nodes: Sequence[str]) -> tuple[str, ...]:
    if claim.selected_node:
        return ()
    return tuple(v.name for v in matching_volumes(world.facts.storage, claim, storage_class) if _reaches_all(world, v, nodes))


def _made_at(world: World, claim: VolumeClaim, storage_class: StorageClass, nodes: Sequence[str]) -> bool:
    made = can_be_provisioned(world, claim, storage_class)
    rows = [world.table.row[node] for node in nodes if node in world.table.row]
    return all(bool(made[row]) for row in rows)
