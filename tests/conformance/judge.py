"""One case, one judgement: agree, differ, explained, or not applicable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

import yaml
from tests.conformance.applicability import why_not_applicable
from tests.conformance.compare import differences
from tests.conformance.corpus import Case
from tests.conformance.facts import Facts
from tests.conformance.outcome import run
from tests.conformance.probes import probe
from tests.conformance.reasons import REASONS, DifferingCase

FILE = Path(__file__).with_name("differences.yaml")


class Mark(Enum):
    AGREE = "agree"
    DIFFER = "differ"
    EXPLAINED = "explained"
    NOT_APPLICABLE = "n. a."


@dataclass(frozen=True, slots=True)
class Judgement:
    case: Case
    mark: Mark
    why: str = ""
    """The reason that explains it, or why it does not apply."""
    differences: tuple[str, ...] = ()
    reason: str = ""
    """The name of the check that explains it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One reason of differences.yaml."""

    when: str
    why: str
    cases: str = "*"


@lru_cache(maxsize=1)
def entries() -> tuple[Entry, ...]:
    found = yaml.safe_load(FILE.read_text(encoding="utf-8")) or []
    return tuple(Entry(each["when"], " ".join(each["why"].split()), each.get("cases", "*")) for each in found)


def judge(case: Case) -> Judgement:
    why = why_not_applicable(case)
    if why:
        return Judgement(case, Mark.NOT_APPLICABLE, why)
    return _judge_probe(case) if case.is_probe else _judge_session(case)


def _judge_probe(case: Case) -> Judgement:
    probe_result = probe(case)
    if probe_result.differences:
        return Judgement(case, Mark.DIFFER, differences=tuple(probe_result.differences))
    if not probe_result.compared:
        return Judgement(case, Mark.NOT_APPLICABLE, "no two places to compare")
    return Judgement(case, Mark.AGREE)


def _judge_session(case: Case) -> Judgement:
    result = run(case)
    found = tuple(differences(case, result))
    if not found:
        return Judgement(case, Mark.AGREE)
    differing = DifferingCase(case, result, found, Facts(case))
    if not differing.is_complete:
        return Judgement(case, Mark.DIFFER, differences=found)
    for entry in entries():
        if fnmatchcase(case.id, entry.cases) and REASONS[entry.when](differing):
            return Judgement(case, Mark.EXPLAINED, entry.why, found, entry.when)
    return Judgement(case, Mark.DIFFER, differences=found)


def table(judgements: Sequence[Judgement]) -> list[str]:
    """How many of each, file by file."""
    files = list(dict.fromkeys(each.case.file for each in judgements))
    width = max([len("all files"), *map(len, files)], default=0)
    lines = [f"{'':{width}}  {'  '.join(f'{mark.value:>9}' for mark in Mark)}"]
    for file in [*files, ""]:
        mine = [each for each in judgements if not file or each.case.file == file]
        counts = [sum(each.mark is mark for each in mine) for mark in Mark]
        lines.append(f"{file or 'all files':{width}}  {'  '.join(f'{count or chr(46):>9}' for count in counts)}")
    return lines


def describe(judgement: Judgement) -> list[str]:
    """What there is to say of a case that does not simply agree."""
    if judgement.mark is Mark.AGREE:
        return []
    name = judgement.case.written.get("name") or ""
    lines = [f"{judgement.mark.value:9} {judgement.case.id}{f' ({name})' if name else ''}"]
    lines += [f"          {sentence}" for sentence in judgement.differences]
    return [*lines, f"          {judgement.why}"] if judgement.why else lines
