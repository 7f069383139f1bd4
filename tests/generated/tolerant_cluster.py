"""A simulated cluster in which a user's change of an object that has gone meanwhile changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.kube.read.object_references import Manifest
from muster.sim.cluster import SimCluster
from muster.sim.object_store import NotFound


class TolerantCluster(SimCluster):
    def patch(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Manifest:
        try:
            return super().patch(kind, namespace, name, patch)
        except NotFound:
            return {}

    def delete(self, kind: str, namespace: str, name: str, *, permanently: bool = False) -> None:
        try:
            super().delete(kind, namespace, name, permanently=permanently)
        except NotFound:
            return
