"""Short ways to write, read and run a scenario inside a test."""

from __future__ import annotations

from textwrap import dedent

import pytest

from muster.scenario import Report, Scenario, parse, run
from muster.yaml_marks import InputError

FILE = "story.yaml"


def story(text: str) -> Scenario:
    """The one scenario of a text; `name` may be left out."""
    text = dedent(text).lstrip("\n")
    (found,) = parse(text if text.startswith("name:") else f"name: a story\n{text}", file=FILE)
    return found


def played(text: str) -> Report:
    return run(story(text))


def refused(text: str) -> InputError:
    """What is said of a text that is no scenario. Lines count from the first line of the text."""
    with pytest.raises(InputError) as caught:
        parse(dedent(text).lstrip("\n"), file=FILE)
    return caught.value
