"""Volumes: a pod is placed only where every volume that it mounts is available."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from muster.engine.explain import reasons_in_order
from muster.engine.session import Session
from muster.model.pod import Pod
from muster.model.topics import Topic
from muster.model.volume import ONE_POD
from muster.state.derived.node_term_matches import matching_column
from muster.state.derived.placement_counters import counter_of
from muster.state.derived.volume_choice import is_available, unbound_claim, volumes_suffice
from muster.state.derived.volume_mounts import Mounts, Volume, attached, claim_keys, csi_volume
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
            column &= rows.pick(_reachable(s.world, key)[0])
        return column

    def has_inter_pod_constraints(self, s: Session, pod: Pod) -> bool:
        """Other pods count where a volume is still to be chosen, is for one pod only, or is attached by a driver with limits."""
        return any(_depends_on_other_pods(s.world, key) for key in claim_keys(pod))

    def fit_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        column = np.ones(len(rows.table), dtype=np.bool_)
        for feasible_rows, _ in _checks_with_other_pods(s.world, pod, after_releases=rows.after_releases):
            column &= feasible_rows
        return rows.pick(column)

    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str:
        reachable = (_reachable(s.world, key) for key in claim_keys(pod))
        checks = (*reachable, *_checks_with_other_pods(s.world, pod, after_releases=rows.after_releases))
        return reasons_in_order(rows, ((~feasible_rows, text) for feasible_rows, text in checks))


def _reachable(world: World, key: str) -> tuple[BoolColumn, str]:
    """All rows: where the claim's volume can be, if no other pod uses it, and the reason for the others."""
    storage, nowhere = world.facts.storage, np.zeros(len(world.table), dtype=np.bool_)
    claim, name = storage.claims.get(key), f"PersistentVolumeClaim {key}"
    if claim is None:
        return nowhere, f"refused because {name} does not exist"
    if claim.deleted:
        return nowhere, f"refused because {name} is being deleted"
    if claim.volume:
        volume = storage.volumes.get(claim.volume)
        if volume is None:
            return nowhere, f"refused because {name} is bound to volume {claim.volume}, which does not exist"
        return matching_column(world, volume.node_terms), f"out of reach of volume {claim.volume} of {name}"
    storage_class = storage.class_of(claim)
    if storage_class is None and claim.storage_class:
        return nowhere, f"refused because {name} requests storage class {claim.storage_class}, which does not exist"
    if storage_class is None or not storage_class.waits:
        return nowhere, f"refused because it waits for {name} to be bound"
    text = f"where {name} can get no volume of class {storage_class.name}"
    if claim.selected_node:
        text = f"refused because the volume of {name} is being provisioned for node {claim.selected_node}"
    return is_available(world, claim, storage_class), text


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
    there = attached(world, new[0][0], after_releases=after_releases)
    column: BoolColumn = there + len(new) <= limit
    # Near the limit: volumes that are attached already do not count twice.
    for row in np.flatnonzero(~column).tolist():
        here = mounts.volumes_on(world.facts.storage, world.table.names[row], after_releases=after_releases)
        missing = sum(volume not in here for volume in new)
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
