"""Volumes: a pod is placed only where every volume that it mounts is available."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from muster.engine.explain import nodes
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.topics import Topic
from muster.model.volume import ONE_POD
from muster.plugins._select_rows import select_rows
from muster.state.derived.node_term_matches import matching_column
from muster.state.derived.placement_counters import counter_of
from muster.state.derived.volume_choice import is_available, unbound_claim, volumes_suffice
from muster.state.derived.volume_mounts import Mounts, Volume, claim_keys, csi_volume
from muster.state.derived_values import Derived
from muster.state.node_table import BoolColumn, IntColumn, NodeRows
from muster.state.world import World


@dataclass(frozen=True)
class Volumes:
    """A pod is placed only where the volumes of its PersistentVolumeClaims are accessible, provisionable and attachable.

    A claim must exist. A bound one limits the pod to the nodes that can access its volume. One that waits for its first consumer
    needs a matching volume, or a class that provisions one there; a volume is assigned once. Other unbound claims are waited for. A
    ReadWriteOncePod claim has one pod, and no driver attaches more volumes to a node than its CSINode allows.
    """

    name: str = "volumes"

    def match(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        column = np.ones(len(rows), dtype=np.bool_)
        for key in claim_keys(pod):
            column &= select_rows(rows, _reachable(s.world, key))
        return column

    def has_inter_pod_constraints(self, s: Session, pod: Pod) -> bool:
        """Other pods count where a volume is still to be chosen, is for one pod only, or is attached by a driver with limits."""
        return any(_depends_on_other_pods(s.world, key) for key in claim_keys(pod))

    def fit_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        column = np.ones(len(rows.table), dtype=np.bool_)
        for feasible_rows, _ in _checks_with_other_pods(s.world, pod, after_releases=rows.after_releases):
            column &= feasible_rows
        return select_rows(rows, column)

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        left = np.arange(len(rows.table)) if rows.index is None else rows.index
        reasons: list[str] = []
        reachable = ((_reachable(s.world, key), _why_unreachable(s.world, key)) for key in claim_keys(pod))
        for feasible_rows, text in (*reachable, *_checks_with_other_pods(s.world, pod, after_releases=rows.after_releases)):
            count = int((~feasible_rows[left]).sum())
            left = left[feasible_rows[left]]
            if count:
                reasons.append(f"{nodes(count)} {text}")
        return ", ".join(reasons)


def _reachable(world: World, key: str) -> BoolColumn:
    """All rows: where the claim's volume can be, if no other pod uses it."""
    storage = world.facts.storage
    claim = storage.claims.get(key)
    if claim is None or claim.deleted:
        return np.zeros(len(world.table), dtype=np.bool_)
    if claim.volume:
        volume = storage.volumes.get(claim.volume)
        return matching_column(world, volume.node_terms if volume is not None else ())
    unbound = unbound_claim(storage, key)
    return is_available(world, *unbound) if unbound is not None else np.zeros(len(world.table), dtype=np.bool_)


def _why_unreachable(world: World, key: str) -> str:
    storage = world.facts.storage
    claim = storage.claims.get(key)
    if claim is None:
        return f"refused because PersistentVolumeClaim {key} does not exist"
    if claim.deleted:
        return f"refused because PersistentVolumeClaim {key} is being deleted"
    if claim.volume:
        if claim.volume not in storage.volumes:
            return f"refused because PersistentVolumeClaim {key} is bound to volume {claim.volume}, which does not exist"
        return f"out of reach of volume {claim.volume} of PersistentVolumeClaim {key}"
    storage_class = storage.class_of(claim)
    if storage_class is None and claim.storage_class:
        return f"refused because PersistentVolumeClaim {key} requests storage class {claim.storage_class}, which does not exist"
    if storage_class is None or not storage_class.waits:
        return f"refused because it waits for PersistentVolumeClaim {key} to be bound"
    if claim.selected_node:
        return f"refused because the volume of PersistentVolumeClaim {key} is being provisioned for node {claim.selected_node}"
    return f"where PersistentVolumeClaim {key} can get no volume of class {storage_class.name}"


def _depends_on_other_pods(world: World, key: str) -> bool:
    claim = world.facts.storage.claims.get(key)
    if claim is None:
        return False
    if not claim.volume or ONE_POD in claim.access_modes:
        return True
    volume = csi_volume(world.facts.storage, key)
    return volume is not None and volume[0] in _attach_limits(world)


def _checks_with_other_pods(world: World, pod: Pod, *, after_releases: bool) -> Iterator[tuple[BoolColumn, str]]:
    """Checks that depend on other pods: the feasible ones of all rows, and the reason for the others."""
    mounts, keys = counter_of(world, Mounts), claim_keys(pod)
    for key in keys:
        claim = world.facts.storage.claims.get(key)
        if claim is not None and ONE_POD in claim.access_modes and mounts.is_used(key, after_releases=after_releases):
            yield (
                np.zeros(len(world.table), dtype=np.bool_),
                f"refused because PersistentVolumeClaim {key} is ReadWriteOncePod and another pod has it",
            )
    volumes = sorted({volume for key in keys if (volume := csi_volume(world.facts.storage, key)) is not None})
    for driver in dict.fromkeys(driver for driver, _ in volumes):
        limit = _attach_limits(world).get(driver)
        if limit is not None:
            new = [volume for volume in volumes if volume[0] == driver]
            text = f"to which {driver} can attach no more volumes"
            yield _attachable(world, mounts, limit, new, after_releases=after_releases), text
    unbound = [key for key in keys if unbound_claim(world.facts.storage, key) is not None]
    if unbound:
        yield volumes_suffice(world, pod), f"without a volume left for PersistentVolumeClaim {', '.join(unbound)}"


def _attachable(world: World, mounts: Mounts, limit: IntColumn, new: list[Volume], *, after_releases: bool) -> BoolColumn:
    there = mounts.attached(world, new[0][0], after_releases=after_releases)
    column: BoolColumn = there + len(new) <= limit
    # Near the limit: volumes that are attached already do not count twice.
    for row in np.flatnonzero(~column).tolist():
        attached = mounts.volumes_on(world.facts.storage, world.table.names[row], after_releases=after_releases)
        missing = sum(volume not in attached for volume in new)
        column[row] = not missing or there[row] + missing <= limit[row]
    return column


_LIMITS: Derived[dict[str, IntColumn]] = Derived("attach limits", Topic.NODE_LAYOUT, Topic.STORAGE)


def _attach_limits(world: World) -> dict[str, IntColumn]:
    """For each driver that has limits: how many volumes it can attach to each node."""

    def build() -> dict[str, IntColumn]:
        columns: dict[str, IntColumn] = {}
        for name, csi_node in world.facts.storage.csi_nodes.items():
            for driver, limit in csi_node.limits if name in world.table.row else ():
                column = columns.setdefault(driver, np.full(len(world.table), np.iinfo(np.int64).max))
                column[world.table.row[name]] = limit
        return columns

    return _LIMITS.of(world, build)
