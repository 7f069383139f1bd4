"""Reserve pods: each keeps capacity on a node for a pod that was moved, until its controller has created it anew.

They exist in the scheduler alone: in placements, where they count on their node and in their queue like nominated pods, and in the
Plan for which they were made. They are no facts and no members of a gang.
"""

from __future__ import annotations

from dataclasses import dataclass

from muster.model.device import DeviceSlot
from muster.model.pod import Phase, Placement, Pod
from muster.state.facts import Member

MOVED = "moved/"
"""Begins the UID of a reserve pod, before that of the pod that was moved. It is the name of the plan of whoever takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservePod(Pod):
    member: Member
    """Of the pod that was moved: who takes its place has the same role, in the same gang or in one of the same owner."""
    owner: str = ""
    """The controller of its gang, or the name of that: see `eviction_history`."""
    victim: str = ""
    """UID of the pod that was moved."""


@dataclass(frozen=True, slots=True)
class Move:
    """A pod that was evicted to be created anew on another node. `successor` is the UID of the pod that took its place."""

    reserve: ReservePod
    placement: Placement
    plan: str
    for_gang: str
    successor: str = ""

    @property
    def is_open(self) -> bool:
        return not self.successor


def reserve_pod_for(pod: Pod, member: Member, *, owner: str, priority: int) -> ReservePod:
    """What keeps capacity for the successor of this pod."""
    return ReservePod(
        uid=f"{MOVED}{pod.uid}",
        namespace=pod.namespace,
        name=pod.name,
        signature=pod.signature,
        priority=priority,
        member=member,
        owner=owner,
        victim=pod.uid,
    )


def kept_on(node: str, *, since: float, devices: tuple[DeviceSlot, ...]) -> Placement:
    return Placement(Phase.MOVING, node, since, devices)
