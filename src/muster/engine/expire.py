"""Expire: what time ended, and claims that can no longer be redeemed."""

from __future__ import annotations

from muster.engine.session import Session
from muster.model.pod import CLAIMS, Phase, Placement, Pod

OVERDUE_AFTER_S = 60.0


def expire(s: Session) -> None:
    _mark_overdue(s)
    _end_lost_claims(s)


def _mark_overdue(s: Session) -> None:
    """A pod that should have left long ago still fills its node, but nobody counts on its going any more."""
    world = s.world
    late = [
        world.pods[uid]
        for uid in world.going
        if world.placements[uid].phase is Phase.LEAVING and s.now >= world.placements[uid].since + OVERDUE_AFTER_S
    ]
    for pod in late:
        with s.trial("still there long after it was told to go", cause="Overdue") as trial:
            trial.turn(pod, phase=Phase.OVERDUE)
            trial.commit()


def _end_lost_claims(s: Session) -> None:
    """A claim on a node that is gone or no longer takes the pod is no claim."""
    for uid in list(s.world.claims):
        pod = s.world.pods[uid]
        why = _why_lost(s, pod, s.world.placements[uid])
        if why:
            with s.trial(why, cause="ClaimLost") as trial:
                trial.release(pod)
                trial.commit()


def _why_lost(s: Session, pod: Pod, placement: Placement) -> str:
    assert placement.phase in CLAIMS
    row = s.world.table.row.get(placement.node or "")
    if row is None:
        return f"node {placement.node} is gone"
    if not s.columns(pod, soon=True).match[row]:
        return f"node {placement.node} no longer takes the pod"
    return ""
