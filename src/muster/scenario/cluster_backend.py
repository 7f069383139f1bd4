"""Where a scenario is played: a cluster that can be told what happens in it, with virtual time.

The embedded cluster is one. Anything that keeps these promises is another, so that the same scenario shows that both are alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from muster.model.effects import Effect
from muster.model.events import Event
from muster.sim.executor import Write

Manifest = dict[str, Any]


class ClusterBackend(Protocol):
    """After each call the cluster is at rest: nothing more happens in it before time passes or somebody does something."""

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

    def next_event_at(self) -> float | None: ...

    # -- what a scheduler sees and does ------------------------------------------------------------------------------------------

    @property
    def writes(self) -> list[Write]: ...

    def events(self) -> list[Event]: ...

    def relist(self) -> list[Event]: ...

    def list_events(self) -> list[Event]: ...

    def execute(self, effects: Iterable[Effect], *, max_writes: int | None = None) -> None: ...
