"""Checks of a scheduler that tests add to a scenario's run: a second scheduler, a rolled-back trial, a crash after every write, and
oracles that judge every eviction."""

from __future__ import annotations

from tests.checks.eviction_rules import EvictionJudge
from tests.checks.rollback_check import RollbackCheck
from tests.checks.scheduler_twin import SchedulerTwin

from muster.scenario.run_check import RunCheck


def run_checks(*, twin: bool = True) -> tuple[RunCheck, ...]:
    """New checks for one run. Every eviction of every run is judged."""
    checks = (RollbackCheck(), EvictionJudge())
    return (*checks, SchedulerTwin()) if twin else checks


__all__ = ["run_checks"]
