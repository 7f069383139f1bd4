"""Short ways to write, read and run a scenario inside a test."""

from __future__ import annotations

from textwrap import dedent

import pytest
from tests.checks import run_checks

from muster.scenario import Report, Scenario, parse, run
from muster.yaml_positions import InputError

FILE = "scenario.yaml"


def parse_one(text: str) -> Scenario:
    """The one scenario of a text; `name` may be left out."""
    text = dedent(text).lstrip("\n")
    (found,) = parse(text if text.startswith("name:") else f"name: a scenario\n{text}", file=FILE)
    return found


def run_one(text: str) -> Report:
    return run(parse_one(text), checks=run_checks(twin=False))


def load_error(text: str) -> InputError:
    """What is said of a text that is no scenario. Lines count from the first line of the text."""
    with pytest.raises(InputError) as caught:
        parse(dedent(text).lstrip("\n"), file=FILE)
    return caught.value
