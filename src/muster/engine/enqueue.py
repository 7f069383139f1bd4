"""Enqueue: which gangs may be attempted at all, and why the others may not."""

from __future__ import annotations

from muster.engine.allocate import in_order, ready
from muster.engine.session import Session


def enqueue(s: Session) -> None:
    for gang in in_order(s):
        verdict = ready(s.world, gang)
        if not verdict.ok:
            s.judge(gang, verdict)
