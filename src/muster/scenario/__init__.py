"""Scenarios: given, when, then. One language for tests, the simulator and benchmarks.

`load` reads a file, `run` runs a scenario on a simulated cluster in virtual time, `generate` makes one from a seed.

May be changed here: a new key has a row in key_tables.py and in docs/scenarios.md, a parser and, in `expect`, a check. Must not:
nothing here decides anything for the scheduler; checks for tests alone are passed to `run`. Tests: tests/scenario, every file below
scenarios/ (tests/test_scenarios.py), tests/test_generated.py.
"""

from __future__ import annotations

from muster.scenario.loader import load, parse
from muster.scenario.run_report import Observer, Report
from muster.scenario.scenario_generator import generate, generate_from_text
from muster.scenario.scenario_runner import run
from muster.scenario.syntax_tree import Scenario

__all__ = ["Observer", "Report", "Scenario", "generate", "generate_from_text", "load", "parse", "run"]
