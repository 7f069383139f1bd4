"""The cluster that a scenario runs on, with virtual time.

The simulated cluster is one. Another one with this interface can run the same scenarios, which shows that both behave alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from muster.kube.read.object_references import Manifest
from muster.model.effects import Effect
from muster.model.events import Event
from muster.sim.executor import Write


class ClusterBackend(Protocol):
    """After each call the cluster is settled: nothing changes before time passes or the next call."""

    # -- what users do -----------------------------------------------------------------------------------------------------------

    def apply(self, manifest: Mapping[str, Any]) -> Manifest: ...

    def patch(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Manifest: ...

    def delete(self, kind: str, namespace: str, name: str, *, permanently: bool = False) -> None: ...

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None: ...

    def listed(self, kind: str) -> list[Manifest]: ...

    # -- what befalls it ---------------------------------------------------------------------------------------------------------

    def fail_node(self, name: str, *, gone: bool = False, pods_stuck: bool = False) -> None: ...

    def recover_node(self, name: str) -> None: ...

    def fail_bind(self, pod: str, *, times: int = 1) -> None: ...

    def fail_evict(self, pod: str, *, times: int = 1) -> None: ...

    @property
    def now(self) -> float: ...

    def advance(self, seconds: float) -> None: ...

    # -- what a scheduler sees and does ------------------------------------------------------------------------------------------

    @property
    def writes(self) -> list[Write]: ...

    def events(self) -> list[Event]: ...

    def relist(self) -> list[Event]: ...

    def list_events(self) -> list[Event]: ...

    def execute(self, effects: Iterable[Effect], *, max_writes: int | None = None) -> None: ...
