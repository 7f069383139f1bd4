"""What all tests share: properties that give the same answer twice, and a run without the real API server says so loudly."""

import os

import pytest
from hypothesis import settings

# One commit, one answer: whoever changes a line hears of that line, not of what a die happened to find. `make hunt` throws it.
settings.register_profile("steady", derandomize=True)
settings.register_profile("hunt", derandomize=False)
settings.load_profile(os.environ.get("MUSTER_PROPERTIES", "steady"))

LOUD = "NO KUBE-APISERVER: "


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Skips are one letter in a long line. A run without the real server must not look like one with it."""
    said = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", []) if isinstance(report.longrepr, tuple)]
    reasons = [text.partition(LOUD)[2] for text in said if LOUD in text]
    if reasons:
        terminalreporter.section("tests on a real kube-apiserver did not run", sep="!", red=True, bold=True)
        for reason in dict.fromkeys(reasons):
            terminalreporter.line(f"{reasons.count(reason)} tests were skipped: {reason}")
