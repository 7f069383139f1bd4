"""The tool that makes faults finds the code that decides, whatever became of its modules."""

from pathlib import Path

from tools.mutants.faults import PARTS, SOURCE, files
from tools.mutants.run import FAST_TESTS, ROOT


def test_the_files_and_tests_that_it_names_exist() -> None:
    named: list[Path] = [*files(), *(SOURCE / part for part in PARTS), *(ROOT / test for test in FAST_TESTS)]
    assert [path for path in named if not path.exists()] == []
