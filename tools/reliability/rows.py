"""The rows: each tries one way in which schedulers fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import cast

from tests.checks import run_checks
from tests.checks.crash_matrix import run_to_end
from tests.generated.everything import run_everything
from tests.test_crash_matrix import SCENARIOS, differences

from muster.scenario import Scenario, load, run
from tools.reliability.hostile_objects import fuzz
from tools.reliability.measured import Measured, Row
from tools.reliability.page import ROOT
from tools.reliability.virtual_soak import soak

_EVENTS = 500
_TWIN_EVERY = 8
_LEADER_TESTS = 3


def _histories(amount: int) -> Measured:
    faults: list[str] = []
    for seed in range(amount):
        try:
            report = run_everything(seed, events=_EVENTS, checks=run_checks(twin=seed % _TWIN_EVERY == 0))
        except Exception as error:
            faults.append(f"seed {seed}: {type(error).__name__}: {error}")
            continue
        if not report.ok:
            faults.append(f"seed {seed}: {report.explain()}")
    return Measured(f"{amount:,} seeds of {_EVENTS} events", tuple(faults))


def _crashes(amount: int) -> Measured:
    """Evenly spread over all files; every write of each."""
    step = max(1, len(SCENARIOS) // amount)
    chosen, faults, points = SCENARIOS[::step][:amount], [], 0
    for each in chosen:
        scenario = cast(Scenario, each.values[0])
        undisturbed = run_to_end(scenario)
        for after in range(undisturbed.writes + 1):
            points += 1
            said = differences(undisturbed, run_to_end(scenario, crash_after=after))
            faults += [f"{each.id}, after write {after}: {one}" for one in said]
    return Measured(f"{len(chosen)} of {len(SCENARIOS)} scenarios, {points:,} crashes", tuple(faults))


def _peers(_: int) -> Measured:
    scenarios = [scenario for file in sorted((ROOT / "scenarios" / "peers").glob("*.yaml")) for scenario in load(file)]
    reports = [run(scenario, checks=run_checks()) for scenario in scenarios]
    faults = tuple(f"{report.name}: {report.explain()}" for report in reports if not report.ok)
    return Measured(f"{len(reports)} scenarios", faults)


def _sigkill(amount: int) -> Measured:
    """`amount` moments of each scenario; two for each write is all."""
    return _tests("tests/kube/test_crashes.py", {"MUSTER_CRASH_POINTS": str(amount)}, f"up to {amount} moments of each scenario")


def _faults(amount: int) -> Measured:
    return _tests("tests/kube/test_faults.py", {"MUSTER_FAULT_STEPS": str(amount)}, f"{amount:,} steps")


def _leaders(amount: int) -> Measured:
    rounds = max(1, amount // _LEADER_TESTS)
    made = [_tests("tests/kube/test_leader_failover.py", {}, "") for _ in range(rounds)]
    faults = tuple(fault for each in made for fault in each.faults)
    return Measured(f"{rounds * _LEADER_TESTS} changes of leader: killed, cut off, asked to stop", faults)


def _tests(path: str, settings: Mapping[str, str], reached: str) -> Measured:
    command = [sys.executable, "-m", "pytest", "-n", "0", "--timeout", "0", path]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    failed = re.findall(r"^(?:FAILED|ERROR) (tests/.*)$", done.stdout, re.MULTILINE)
    if done.returncode and not failed:
        failed = [(done.stdout + done.stderr)[-300:]]
    passed = re.search(r"(\d+) passed", done.stdout)
    return Measured(f"{reached} ({passed[1] if passed else 0} tests passed)", tuple(failed))


ROWS: Mapping[str, Row] = {
    "histories": Row("generated histories, every fault and edit", "10,000 seeds", 10_000, _histories),
    "crashes": Row("the scheduler dies after each write of a scenario", "all scenarios", len(SCENARIOS), _crashes),
    "sigkill": Row("SIGKILL before and after writes, real API server", "every write", 10_000, _sigkill),
    "faults": Row("409, 429, 500, lost replies, cut, late and stale watches, real API server", "100,000 steps", 100_000, _faults),
    "leaders": Row("changes of leader under load, real API server", "200 changes", 200, _leaders),
    "soak": Row("pods that come, run and end, in virtual time", "1,000,000 pods", 1_000_000, soak),
    "hostile": Row("objects drawn from the OpenAPI schemas, some against them", "100,000 objects", 100_000, fuzz),
    "peers": Row("known bugs of other schedulers", "all scenarios", 0, _peers),
}
