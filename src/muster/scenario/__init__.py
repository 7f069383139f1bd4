"""Scenarios: given, when, then. One language for tests, the simulator and benchmarks.

`load` reads a file, `run` plays a scenario on a simulated cluster in virtual time and reports, `generate` makes one out of a seed.
"""

from __future__ import annotations

from muster.scenario.loader import load, parse
from muster.scenario.run_report import Observer, Report
from muster.scenario.scenario_generator import generate, generate_from_text
from muster.scenario.scenario_runner import run
from muster.scenario.syntax_tree import Scenario

__all__ = ["Observer", "Report", "Scenario", "generate", "generate_from_text", "load", "parse", "run"]
