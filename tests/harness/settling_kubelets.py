"""Kubelets whose clock a test moves and whose quiescence it can await, with the controllers of budgets and volumes.

Optionally with the operator that deletes soft evictions.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
from tests.harness.heartbeat import Heartbeat

from muster.kube.read import names
from muster.kube.read.api_resources import resource_of
from muster.kube.read.object_references import BUDGET, NODE, POD, VOLUME, VOLUME_CLAIM, ApiObjectRef, GroupKind, ManifestView
from muster.kube.watch.client import Client
from muster.lab.kubelets import POLL_S, Kubelets, TimeSource
from muster.model.volume import VolumeChoice
from muster.sim import volume_controller
from muster.sim.disruption_budgets import DisruptionBudgets
from muster.sim.object_store import ChangeType, ObjectChange
from muster.sim.soft_eviction_operator import SoftEvictionOperator


class SettlingKubelets(Kubelets):
    """`soft_eviction_cleanup`: delete pods that are marked for soft eviction and have the annotation for it; `heartbeat_s`:
    interval of the heartbeats of a node, None: none."""

    watched = (NODE, volume_controller.STORAGE_CLASS, VOLUME, VOLUME_CLAIM, BUDGET, POD)

    def __init__(
        self,
        client: Client,
        *,
        now: TimeSource = time.time,
        soft_eviction_cleanup: bool = False,
        heartbeat_s: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(client, now=now, **settings)
        self._budgets = DisruptionBudgets(self._store)
        self._heartbeat: Heartbeat | None = None
        if heartbeat_s is not None:
            self._heartbeat = Heartbeat(client, now=now, interval_s=heartbeat_s, unreachable=self._kubelet.unreachable)
        self._operator = SoftEvictionOperator(self._store, self._timers) if soft_eviction_cleanup else None

    async def __aenter__(self) -> SettlingKubelets:
        await super().__aenter__()
        if self._heartbeat is not None:
            self._tasks.append(asyncio.create_task(self._heartbeat.run()))
        return self

    def wake(self) -> None:
        """The clock was moved."""
        self._wake_event.set()

    def next_at(self) -> float | None:
        """The time of the next timer, or None."""
        return self._timers.next_at()

    async def settle(self, *, timeout_s: float = 30.0) -> None:
        """Wait until the state of the server is observed, due timers have run, and their writes are acknowledged."""
        async with asyncio.timeout(timeout_s):
            while not (self.is_idle and await self._is_synced() and self.is_idle):
                self._raise_task_errors()
                await asyncio.sleep(POLL_S)

    @property
    def is_idle(self) -> bool:
        """All changes are processed, due timers have run, and no write is pending."""
        due = self._timers.next_at()
        is_due = due is not None and due <= self._now()
        return not self._wake_event.is_set() and self._store.is_idle and not self._store.has_changes() and not is_due

    async def _is_synced(self) -> bool:
        for kind in self.watched:
            listed = msgspec.json.decode(await self._client.request("GET", resource_of(*kind).path("v1")))
            if {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in listed["items"]} != self._versions(kind):
                return False
        return True

    def _versions(self, kind: GroupKind) -> dict[str, str]:
        """The resourceVersion of each observed object, by UID."""
        observed = (manifest["metadata"] for manifest in self._store.observed(kind))
        return {metadata["uid"]: metadata["resourceVersion"] for metadata in observed}

    def _run_next(self, now: float) -> bool:
        self._budgets.settle()
        return super()._run_next(now)

    def _react(self, change: ObjectChange) -> None:
        super()._react(change)
        what, ref, manifest = change
        if ref[:2] == BUDGET:
            self._budgets.on_change(ref)
        elif what is not ChangeType.DELETED and (choice := _volume_choice(ref, manifest)) is not None:
            volume_controller.bind(self._store, choice)

    def _react_to_node(self, what: ChangeType, ref: ApiObjectRef, manifest: ManifestView) -> None:
        super()._react_to_node(what, ref, manifest)
        if self._heartbeat is not None:
            self._heartbeat.on_change(ref.name, gone=what is ChangeType.DELETED)

    def _react_to_pod(self, what: ChangeType, ref: ApiObjectRef, manifest: ManifestView) -> None:
        super()._react_to_pod(what, ref, manifest)
        self._budgets.on_change(ref)
        if self._operator is not None:
            self._operator.on_change(what, ref, manifest)


def _volume_choice(ref: ApiObjectRef, manifest: ManifestView) -> VolumeChoice | None:
    """The scheduler's choice for an unbound claim: a volume that is reserved for it, or a node on which to provision one."""
    annotations, spec = manifest["metadata"].get("annotations") or {}, manifest.get("spec") or {}
    if ref[:2] == VOLUME_CLAIM and names.SELECTED_NODE in annotations and not spec.get("volumeName"):
        return VolumeChoice(claim=ref.full_name, volume="")
    claim = spec.get("claimRef")
    if ref[:2] == VOLUME and claim and names.BOUND_BY_CONTROLLER in annotations:
        return VolumeChoice(claim=f"{claim['namespace']}/{claim['name']}", volume=ref.name)
    return None
