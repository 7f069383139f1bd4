"""The corpus: every case ends as it does in Volcano, or otherwise for a reason that is written down."""

from __future__ import annotations

import os

import pytest
from tests.conformance.corpus import FOLDER_VARIABLE, Case, folder, load
from tests.conformance.judge import Judgement, Mark, describe, judge

pytestmark = pytest.mark.conformance

CASES = load(folder())
ABSENT = pytest.mark.skip(reason=f"there is no corpus in {folder()}; it is no part of the project")


@pytest.mark.parametrize("case", CASES or [pytest.param(None, marks=ABSENT)], ids=lambda case: case.id if case else "none")
def test_a_case_ends_as_in_volcano_or_for_a_reason_as_it_does(case: Case, judged: list[Judgement]) -> None:
    try:
        judgement = judge(case)
    except Exception as error:
        judged.append(Judgement(case, Mark.DIFFER, differences=(f"ends in {error!r}",)))
        raise
    judged.append(judgement)
    if judgement.mark is Mark.NOT_APPLICABLE:
        pytest.skip(judgement.why)
    assert judgement.mark is not Mark.DIFFER, "\n".join(describe(judgement))


@pytest.mark.skipif(not os.environ.get(FOLDER_VARIABLE), reason="no folder was named")
def test_a_folder_that_was_named_has_cases_in_it() -> None:
    assert CASES, f"there is no case in {folder()}"
