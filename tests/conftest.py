"""What all tests share: the end of a run says it loudly if the real API server was left out."""

import pytest

LOUD = "NO KUBE-APISERVER: "


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Skips are one letter in a long line. A run without the real server must not look like one with it."""
    said = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", []) if isinstance(report.longrepr, tuple)]
    reasons = [text.partition(LOUD)[2] for text in said if LOUD in text]
    if reasons:
        terminalreporter.section("tests on a real kube-apiserver did not run", sep="!", red=True, bold=True)
        for reason in dict.fromkeys(reasons):
            terminalreporter.line(f"{reasons.count(reason)} tests were skipped: {reason}")
