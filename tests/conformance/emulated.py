"""Plugins that exist in Volcano's tests alone, where a case says all that they do."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.conformance.corpus import Case, Json

from muster.engine.hooks import Ask, Purpose
from muster.engine.session import Session
from muster.model.effects import YES, Verdict

_REJECTER = "test-rejecter"


@dataclass(frozen=True)
class Rejecter:
    """Does not let one PodGroup in."""

    podgroup: str
    name: str = _REJECTER

    def admit(self, s: Session, ask: Ask) -> Verdict:  # noqa: ARG002
        if ask.purpose is not Purpose.ENQUEUE or ask.gang.full_name.rpartition("/")[2] != self.podgroup:
            return YES
        return Verdict(ok=False, why="a plugin of the test rejects it", code="Rejected")


def emulated_plugins(case: Case) -> list[Json]:
    """As entries of a policy."""
    return [{f"{__name__}:{Rejecter.__name__}": {"podgroup": name}} for name in _rejected(case)]


def not_emulated(case: Case) -> list[str]:
    """The plugins of the case's own that nothing here stands for."""
    custom = (case.written.get("custom") or {}).get("plugins") or ()
    return [name for name in custom if name != _REJECTER or not _rejected(case)]


def _rejected(case: Case) -> list[str]:
    """Which PodGroup the plugin rejects, stands in the name of the case."""
    if not any(plugin["name"] == _REJECTER for plugin in case.plugins):
        return []
    return re.findall(r"rejecter blocks (\w+)", case.written.get("name") or "")
