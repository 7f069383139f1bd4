"""Checks of a scheduler that tests add to a scenario's run: a second scheduler, a rolled-back trial, a crash after every write."""

from __future__ import annotations

from tests.checks.rollback_check import RollbackCheck
from tests.checks.scheduler_twin import SchedulerTwin

from muster.scenario.run_check import RunCheck


def run_checks(*, twin: bool = True) -> tuple[RunCheck, ...]:
    """New checks for one run."""
    return (RollbackCheck(), SchedulerTwin()) if twin else (RollbackCheck(),)


__all__ = ["run_checks"]
