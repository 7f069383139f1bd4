"""Where views come from: the running scheduler, or what was read from a file."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any, Protocol

from muster.model.events import ClusterObject
from muster.web.cluster_view import ClusterView


class NotReady(Exception):
    """There is nothing to show yet: the text says why."""


class ViewSource(Protocol):
    """All of it may be called in the event loop: nothing waits for a cycle there."""

    async def view(self, at: float | None = None) -> ClusterView:
        """The newest one, or that at a time in the past. Raises NotReady."""
        ...

    def entries(self, gang: str) -> list[dict[str, Any]]:
        """What was decided about a gang, the oldest first."""
        ...

    async def question_state(self) -> bytes:
        """The cluster for `dry_runs`, encoded. Raises NotReady."""
        ...


def encode_state(objects: Iterable[ClusterObject], *, now: float, policy: str) -> bytes:
    """`policy`: the text of the policy file. Only a process of our own reads this."""
    return pickle.dumps((list(objects), now, policy), protocol=5)
