"""`muster replay`: replay a decision log and verify that every decision is identical, or show the first that differs.

With another policy it goes on: the jobs of the log are played again with both, and compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

import msgspec
from rich.console import Console
from rich.status import Status
from rich.text import Text

from muster.cli import FAILED, OK
from muster.cli.compare import (
    ComparedPolicies,
    CompareOptions,
    comparison_document,
    has_jobs,
    print_comparison,
    run_comparison,
)
from muster.cli.errors import UserError, file_error
from muster.cli.json_output import write_json
from muster.cli.screen import BAD, BOLD, DIM, ERROR, GOOD, styled, to_stdout
from muster.cli.text_format import count
from muster.config import load_policy
from muster.decision_log import BadDecisionLog, LogHeader, read_decision_log
from muster.replay import CycleDifference, ReplayResult, replay
from muster.trace.sweep import PolicyText
from muster.yaml_positions import InputError

_STATUS_EVERY = 20


def replay_log(log: Path, *, policy: Path | None, json: bool) -> int:
    result = _replay(log, policy)
    if not result.cycles:
        raise UserError(f"{log}: no cycle in this log")
    difference = result.difference
    compared = _backtest(log, policy) if policy is not None and difference is not None else None
    if json:
        document = None if difference is None else _document(difference)
        played = {} if compared is None else {"comparison": comparison_document(compared)}
        counts = {"cycles": result.cycles, "events": result.events}
        write_json("replay", ok=difference is None, log=str(log), **counts, difference=document, **played)
        return OK if difference is None else FAILED
    screen = to_stdout()
    replayed = f"{count(result.cycles, 'cycle')}, {count(result.events, 'event')}"
    if difference is None:
        restarts = f" ({count(result.starts, 'start')} of a scheduler)" if result.starts > 1 else ""
        screen.print_line(styled(f"{replayed}: ", ("identical", GOOD), restarts))
        return OK
    screen.print_lines(_difference_lines(log, difference))
    screen.print_line(f"{replayed} replayed; the {count(result.cycles - 1, 'cycle')} before it: identical.")
    if compared is not None:
        screen.print_line("")
        print_comparison(screen, compared)
    return FAILED


def _backtest(log: Path, policy: Path) -> ComparedPolicies | None:
    """The jobs of the log played again, with its own policy and with the other; None where none of them ran."""
    with log.open("rb") as file:
        first = next((entry for _, entry, _ in read_decision_log(file) if isinstance(entry, LogHeader)), None)
    logged = PolicyText("logged", first.policy if first is not None else "", str(log))
    options = CompareOptions(log, policies=[str(policy)], logged=logged)
    return run_comparison(options) if has_jobs(options) else None


def _replay(log: Path, policy: Path | None) -> ReplayResult:
    console = Console(stderr=True)
    status = Status("replaying", console=console)
    identical = 0

    def on_cycle(cycles: int) -> None:
        nonlocal identical
        identical = cycles
        if cycles % _STATUS_EVERY == 0:
            status.update(f"replaying, {cycles} cycles identical")

    try:
        file: IO[bytes] = log.open("rb")
        with file:
            loaded = load_policy(policy) if policy is not None else None
            if console.is_terminal:
                status.start()
            return replay(file, file=str(log), policy=loaded, on_cycle=on_cycle)
    except OSError as error:
        raise file_error(log, error) from None
    except BadDecisionLog as error:
        before = f" ({count(identical, 'cycle')} before it: identical)" if identical else ""
        raise UserError(f"{log}: {error}{before}") from None
    except InputError as error:
        if policy is not None:
            raise
        hint = "move the log to the folder of the policy file, or name a policy file with --policy"
        raise UserError(f"{log}: the policy in this log cannot be loaded here ({error.faults[0].message}); {hint}") from None
    finally:
        status.stop()


# -- the first difference ----------------------------------------------------------------------------------------------------------


def _difference_lines(log: Path, difference: CycleDifference) -> Iterator[Text]:
    document = _document(difference)
    yield styled((f"{log}:{difference.line}: ", ERROR), f"cycle {difference.cycle} differs: {document['what']}")
    for side, style in (("logged", GOOD), ("decided", BAD)):
        yield styled((f"    {side:8}  ", DIM), (_effect_text(document[side]), style))
    if document["fields"]:
        yield styled(("    differ in  ", DIM), (", ".join(document["fields"]), BOLD))


def _document(difference: CycleDifference) -> dict[str, Any]:
    """The first effect, verdict or stat that differs: as logged and as decided now."""
    logged, decided = (msgspec.json.decode(text) for text in (difference.logged, difference.decided))
    where = {"line": difference.line, "cycle": difference.cycle}
    for part, kind in (("effects", "effect"), ("verdicts", "verdict"), ("stats", "stat")):
        old, new = logged[part], decided[part]
        for number, (before, after) in enumerate(zip_longest(old, new), start=1):
            if before != after:
                what = f"{kind} {number} of {len(old)} logged, {len(new)} decided"
                return {**where, "what": what, "logged": before, "decided": after, "fields": _fields(before, after)}
    return {**where, "what": "the bytes differ", "logged": None, "decided": None, "fields": []}


def _fields(before: object, after: object) -> list[str]:
    """Names of the fields in which two effects of one kind differ."""
    if not (isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys()):
        return []
    names: list[str] = []
    for key, old in before.items():
        new = after[key]
        if isinstance(old, dict) and isinstance(new, dict):
            names.extend(name for name in old if old[name] != new.get(name))
    return names


def _effect_text(logged: object) -> str:
    """An effect as `Bind pod=... node=...`."""
    if logged is None:
        return "nothing"
    if isinstance(logged, dict) and len(logged) == 1:
        kind, fields = next(iter(logged.items()))
        if isinstance(fields, dict):
            return " ".join(
                [kind, *(f"{name}={_value_text(value)}" for name, value in fields.items() if value not in ("", [], None))]
            )
    return _value_text(logged)


def _value_text(value: object) -> str:
    if isinstance(value, str) and " " not in value:
        return value
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else f"{text[:117]}..."
