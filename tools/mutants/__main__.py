"""`python -m tools.mutants`: how many faults of a sample the tests notice, and which they do not."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from muster.lab.assets import cache_folder
from tools.mutants.faults import Fault, sampled
from tools.mutants.reach import Reach
from tools.mutants.run import ROOT, collect
from tools.mutants.survey import ENDLESS, Survey

HARMLESS = Path(__file__).with_name("harmless.yaml")
KEPT = cache_folder() / "mutants"


def main() -> int:
    args = _arguments()
    os.chdir(ROOT)
    KEPT.mkdir(parents=True, exist_ok=True)
    commits = subprocess.run(["git", "rev-list", "HEAD"], check=True, capture_output=True, text=True).stdout.split()
    measured = [KEPT / f"reach-{commit}.json" for commit in commits]
    faults = sampled(size=args.sample, seed=args.seed, only=args.only)
    print(f"{len(faults)} faults, seed {args.seed}", flush=True)
    reach = Reach.read(next((file for file in measured if file.exists()), measured[0]))
    survey = Survey(reach, KEPT / "noticed.json", seconds=args.seconds)

    def use(items: dict[str, pytest.Item]) -> None:
        reach.measure(items, measured[0])
        survey.try_all(faults, items)

    collect(use)
    return _summary(faults, survey.results, least=args.least)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=400, help="how many faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a module, or a module and a function: 'engine/quota.py admit'")
    parser.add_argument("--seconds", type=float, default=20.0, help="time of the tests that are run for one fault")
    parser.add_argument("--least", type=float, default=90.0, help="percent that must be noticed")
    return parser.parse_args()


def _summary(faults: list[Fault], results: dict[Fault, str], *, least: float) -> int:
    harmless = {entry["fault"] for entry in yaml.safe_load(HARMLESS.read_text(encoding="utf-8"))}
    left = [fault for fault in faults if not results[fault]]
    survived = [fault for fault in left if fault.key not in harmless]
    endless = sum(result == ENDLESS for result in results.values())
    percent = 100 * (len(faults) - len(left)) / len(faults)
    print(f"\n{len(faults)} faults: {len(faults) - len(left)} noticed ({percent:.1f} %), {endless} of them by no end, ", end="")
    print(f"{len(left) - len(survived)} harmless, {len(survived)} survived")
    for fault in survived:
        print(f"  {fault.path.relative_to(ROOT)}:{fault.line} {fault.function}\n    - {fault.before}\n    + {fault.after}")
    return 1 if percent < least or survived else 0


if __name__ == "__main__":
    sys.exit(main())
