"""`muster replay`: run a decision log again and prove that every decision is the same, or show the first that is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
from rich.console import Console
from rich.status import Status

from muster.cli import FAILED, OK
from muster.cli.errors import InvalidFiles, UserError
from muster.cli.json_output import write_json
from muster.cli.screen import BAD, BOLD, DIM, ERROR, GOOD, TextLine, to_stdout
from muster.cli.text_format import count
from muster.config import load_policy
from muster.decision_log import BadDecisionLog
from muster.replay import CycleDifference, ReplayResult, replay
from muster.yaml_positions import InputError

_STATUS_EVERY = 20


def replay_log(log: Path, *, policy: Path | None, json: bool) -> int:
    result = _replay(log, policy)
    if not result.cycles:
        raise UserError(f"{log}: there is no cycle in this log")
    difference = result.difference
    if json:
        told = None if difference is None else _document(difference)
        write_json("replay", ok=difference is None, log=str(log), cycles=result.cycles, events=result.events, difference=told)
        return OK if difference is None else FAILED
    screen = to_stdout()
    ran = f"{count(result.cycles, 'cycle')}, {count(result.events, 'event')}"
    if difference is None:
        restarts = f" ({count(result.starts, 'start')} of a scheduler)" if result.starts > 1 else ""
        screen.print_line(TextLine.of(f"{ran}: ", ("identical", GOOD), restarts))
        return OK
    screen.print_lines(list(_difference_lines(log, difference)))
    screen.print_line(f"{ran} until there; the {count(result.cycles - 1, 'cycle')} before it came out identical.")
    return FAILED


def _replay(log: Path, policy: Path | None) -> ReplayResult:
    console = Console(stderr=True)
    status = Status("replaying", console=console)
    seen = 0

    def on_cycle(cycles: int) -> None:
        nonlocal seen
        seen = cycles
        if cycles % _STATUS_EVERY == 0:
            status.update(f"replaying, {cycles} cycles identical")

    try:
        file: IO[bytes] = log.open("rb")
        with file:
            chosen = load_policy(policy) if policy is not None else None
            if console.is_terminal:
                status.start()
            return replay(_complete_lines(file), file=str(log), policy=chosen, on_cycle=on_cycle)
    except OSError as error:
        raise UserError(f"{log}: {(error.strerror or str(error)).lower()}") from None
    except BadDecisionLog as error:
        before = f" ({count(seen, 'cycle')} before it: identical)" if seen else ""
        raise UserError(f"{log}: {error}{before}") from None
    except InputError as error:
        if policy is not None:
            raise InvalidFiles(error.faults) from None
        hint = "put the log beside the file that the policy stood in, or name a policy file with --policy"
        raise UserError(f"{log}: the policy in this log cannot be loaded here ({error.faults[0].message}); {hint}") from None
    finally:
        status.stop()


def _complete_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Every line of a log ends; one that does not was cut off."""
    for number, line in enumerate(file, start=1):
        if not line.endswith(b"\n"):
            try:
                msgspec.json.decode(line)
            except msgspec.DecodeError:
                if number > 1:
                    raise BadDecisionLog(f"line {number} is cut off: the log ends in the middle of it") from None
        yield line


# -- where two decisions part ------------------------------------------------------------------------------------------------------


def _difference_lines(log: Path, difference: CycleDifference) -> Iterator[TextLine]:
    told = _document(difference)
    yield TextLine.of((f"{log}:{difference.line}: ", ERROR), f"cycle {difference.cycle} comes out otherwise: {told['what']}")
    for word, style in (("logged", GOOD), ("decided", BAD)):
        yield TextLine.of((f"    {word:8}  ", DIM), (_effect_text(told[word]), style))
    if told["fields"]:
        yield TextLine.of(("    differ in  ", DIM), (", ".join(told["fields"]), BOLD))


def _document(difference: CycleDifference) -> dict[str, Any]:
    """The first effect, verdict or figure that differs, both ways."""
    logged, decided = (msgspec.json.decode(text) for text in (difference.logged, difference.decided))
    where = {"line": difference.line, "cycle": difference.cycle}
    for part, word in (("effects", "effect"), ("verdicts", "verdict"), ("stats", "figure")):
        ours, theirs = decided[part], logged[part]
        for i in range(max(len(ours), len(theirs))):
            one = theirs[i] if i < len(theirs) else None
            other = ours[i] if i < len(ours) else None
            if one != other:
                what = f"{word} {i + 1} of {len(theirs)} logged, {len(ours)} decided"
                return {**where, "what": what, "logged": one, "decided": other, "fields": _fields(one, other)}
    return {**where, "what": "the bytes differ", "logged": None, "decided": None, "fields": []}


def _fields(one: object, other: object) -> list[str]:
    """Names of the fields in which two effects of one kind differ."""
    if not (isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys()):
        return []
    found: list[str] = []
    for key, value in one.items():
        theirs = other[key]
        if isinstance(value, dict) and isinstance(theirs, dict):
            found.extend(name for name in value if value[name] != theirs.get(name))
    return found


def _effect_text(said: object) -> str:
    """An effect as `Bind pod=... node=...`; nothing for nothing."""
    if said is None:
        return "nothing"
    if isinstance(said, dict) and len(said) == 1:
        kind, fields = next(iter(said.items()))
        if isinstance(fields, dict):
            return " ".join(
                [kind, *(f"{name}={_value_text(value)}" for name, value in fields.items() if value not in ("", [], None))]
            )
    return _value_text(said)


def _value_text(value: object) -> str:
    if isinstance(value, str) and " " not in value:
        return value
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else f"{text[:117]}..."
