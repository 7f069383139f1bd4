"""Shadow mode: looks beside another scheduler, and a report at the end of each period, in the log, in a file and as metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import structlog

from muster.engine.hooks import Policy
from muster.forecast.shadow_comparison import LATER, SOONER, WOULD_EVICT, WOULD_START, ShadowComparison, ShadowReport
from muster.json_values import to_json
from muster.model.effects import Outcome
from muster.model.printable_text import printable_json
from muster.private_file import open_private
from muster.scheduler import Scheduler
from muster.state.world import World

log = structlog.get_logger(__name__)

DEFAULT_PERIOD_S: Final = 3600.0
_LOGGED: Final = 10
"""Differences in the log; all are in the file."""
_SAID: Final = {
    SOONER: "started it later than Muster would have",
    LATER: "started it, and Muster would not have yet",
    WOULD_START: "waits, and Muster would have started it",
    WOULD_EVICT: "waits, and Muster would have had others evicted for it",
}


@dataclass(frozen=True, slots=True)
class ShadowSettings:
    period_s: float = DEFAULT_PERIOD_S
    report: Path | None = None
    """A line of JSON is added here for each period."""


def shadow_policy(policy: Policy, *, scheduler_names: tuple[str, ...]) -> Policy:
    """To decide about the pods of these schedulers, else of those that the policy names. What another one keeps free is free."""
    settings = replace(policy.settings, scheduler_names=scheduler_names or policy.settings.scheduler_names, adopt_volcano=False)
    return Policy(policy.plugins, policy.actions, settings=settings, source=policy.source)


class Shadow:
    """Belongs to the thread of the scheduling loop. `on_report` is called with each report."""

    def __init__(self, settings: ShadowSettings, *, on_report: Callable[[ShadowReport], None]) -> None:
        self._settings = settings
        self._on_report = on_report
        self._comparison = ShadowComparison()
        self._began: float | None = None

    def look(self, scheduler: Scheduler, now: float, *, on_step: Callable[[str], None]) -> Outcome:
        """What is decided now. Its effects are nobody's: pods stay where they are."""
        outcome = self._comparison.look(scheduler.observe(now), scheduler.policy, on_step=on_step)
        if self._began is None:
            self._began = now
        elif now - self._began >= self._settings.period_s:
            self.report(scheduler.world)
        return replace(outcome, effects=())

    def report(self, world: World) -> None:
        """On the period that ends here."""
        if self._began is None or world.now <= self._began:
            return
        found = self._comparison.report(world)
        self._began = found.end
        figures = to_json(replace(found, differences=()))
        log.info("shadow report", **{key: _rounded(value) for key, value in figures.items() if key != "differences"})
        for each in found.differences[:_LOGGED]:
            log.info("shadow difference", **{**to_json(each), "hours": _rounded(each.hours), "what": _SAID[each.what]})
        self._on_report(found)
        self._append(found)

    def _append(self, found: ShadowReport) -> None:
        if self._settings.report is None:
            return
        try:
            with open_private(self._settings.report, "ab") as file:
                file.write(printable_json(msgspec.json.encode(to_json(found))) + b"\n")
        except OSError as error:
            log.error("the report cannot be written", file=str(self._settings.report), error=str(error))


def _rounded(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value
