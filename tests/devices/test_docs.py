"""The examples of the manual hold."""

from __future__ import annotations

import re
from pathlib import Path

from muster.scenario import parse, run

MANUAL = Path(__file__).parents[2] / "docs" / "devices.md"


def test_every_example_comes_out_as_it_says() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", MANUAL.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert examples
    for example in examples:
        for scenario in parse(example, file=MANUAL.name):
            report = run(scenario)
            assert report.ok, report.explain()
