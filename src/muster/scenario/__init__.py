"""Scenarios: given, when, then. One language for tests, the simulator and benchmarks.

`load` reads a file, `run` plays a scenario on a simulated cluster in virtual time and reports, `generate` makes one out of a seed.
"""

from __future__ import annotations

from muster.scenario.generate import generate, generate_from
from muster.scenario.load import load, parse
from muster.scenario.play import run
from muster.scenario.report import Observer, Report
from muster.scenario.story import Scenario

__all__ = ["Observer", "Report", "Scenario", "generate", "generate_from", "load", "parse", "run"]
