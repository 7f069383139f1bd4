"""After a run in one process: the table of the corpus, and what there is to say of the cases that do not simply agree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import pytest
from tests.conformance.judge import Judgement, Mark, describe, table

_JUDGED = pytest.StashKey[list[Judgement]]()


@pytest.fixture
def judged(request: pytest.FixtureRequest) -> list[Judgement]:
    """Where the judgements on the corpus are gathered for the summary."""
    return request.config.stash.setdefault(_JUDGED, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    judgements = config.stash.get(_JUDGED, [])
    if judgements:
        terminalreporter.section("conformance")
        for line in (*_differing(judgements), *_by_reason(judgements), "", *table(judgements)):
            terminalreporter.write_line(line)


def _differing(judgements: list[Judgement]) -> Iterator[str]:
    for each in judgements:
        if each.mark is Mark.DIFFER:
            yield from describe(each)


def _by_reason(judgements: list[Judgement]) -> Iterator[str]:
    """Each reason once, with all cases that it speaks of."""
    for mark in (Mark.EXPLAINED, Mark.NOT_APPLICABLE):
        mine = sorted((each for each in judgements if each.mark is mark), key=lambda each: each.why)
        for why, cases in groupby(mine, key=lambda each: each.why):
            yield f"{mark.value:9} {why}"
            yield from (f"            {each.case.id}" for each in cases)
