"""The tool that makes faults finds the code that decides, whatever became of its modules, and is not misled by a copy that dies."""

import os
from pathlib import Path

import pytest
from tools.mutants import survey
from tools.mutants.faults import PARTS, SOURCE, files, sampled
from tools.mutants.reach import Reach
from tools.mutants.run import FAST_TESTS, ROOT, in_copy
from tools.mutants.survey import ENDLESS, Survey


def test_the_files_and_tests_that_it_names_exist() -> None:
    named: list[Path] = [*files(), *(SOURCE / part for part in PARTS), *(ROOT / test for test in FAST_TESTS)]
    assert [path for path in named if not path.exists()] == []


def test_a_copy_that_dies_says_nothing() -> None:
    def dies() -> str:
        os._exit(3)

    assert in_copy(dies, most_s=20) is None
    assert in_copy(lambda: "said", most_s=20) == "said"


@pytest.mark.parametrize("passes_without", [True, False])
def test_tests_that_die_without_a_fault_notice_nothing(
    passes_without: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fault,) = sampled(size=1, seed=1, only="engine/quota.py")
    said = iter([None, "" if passes_without else None])
    monkeypatch.setattr(survey, "in_copy", lambda *_, **__: next(said))
    monkeypatch.setattr(survey, "loaded_functions", dict)
    tried = Survey(Reach(), tmp_path / "noticed.json", seconds=1.0)
    if passes_without:
        tried.try_all([fault], {})
        assert tried.results == {fault: ENDLESS}
    else:
        with pytest.raises(SystemExit, match="without a fault"):
            tried.try_all([fault], {})
