"""Muster as a new user runs it: what it prints, what it complains about, and its exit code.

Most tests run it within their own process, because starting Python again takes longer than all the rest; `process` is the real
thing.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from muster.cli import run

ROOT = Path(__file__).parents[2]
ESCAPE = "\x1b"
# What a shell may have set and a test must not depend on.
_UNWANTED = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "PYTHONIOENCODING")


@dataclass(frozen=True, slots=True)
class CommandResult:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def muster(*arguments: str | Path, cwd: Path = ROOT, encoding: str = "utf-8", **environment: str) -> CommandResult:
    """Run the command with its output piped, and check that it prints no traceback and no escape code."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    plain = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    with mock.patch.dict(os.environ, plain | environment, clear=True), chdir(cwd), redirect_stdout(out), redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    return _checked(CommandResult(code, _text(out), _text(err)), environment)


def process(*arguments: str | Path, cwd: Path = ROOT, **environment: str) -> CommandResult:
    """The same in a process of its own."""
    plain = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    done = subprocess.run(
        [sys.executable, "-m", "muster", *map(str, arguments)],
        cwd=cwd,
        env=plain | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=110,
    )
    return _checked(CommandResult(done.returncode, done.stdout, done.stderr), environment)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


def _checked(result: CommandResult, environment: dict[str, str]) -> CommandResult:
    assert "Traceback" not in result.err, result.err
    if "FORCE_COLOR" not in environment:
        assert ESCAPE not in result.out + result.err
    return result


SMALL_SCENARIO = """\
name: a small gang waits until a big one is done
nodes:  [{name: "n[1-4]", gpu: 8}]
queues: [{name: research}]
gangs:
- {name: big, queue: research, pods: 4, requests: {gpu: 8}, runDuration: 10m, age: 1m}
steps:
- submit: {name: small, queue: research, pods: 2, requests: {gpu: 4}, runDuration: 50m}
- cycle: 1
- expect: {bound: {big: "n[1-4]"}, pending: [small], why: {small: "4 nodes full (gpu)"}}
- run: {for: 11m, every: 30s}
- expect: {finished: {big: 4}, bound: {small: 2}, evicted: []}
"""

FAILING_SCENARIO = """\
name: a pod that fits nowhere is bound
nodes: [{name: n1, gpu: 1}]
steps:
- submit: {name: train, requests: {gpu: 2}}
- cycle
- expect:
    bound: [train]
"""

RESTARTING_SCENARIO = """\
name: a scheduler that starts anew goes on
nodes: [{name: "n[1-2]", gpu: 8}]
steps:
- submit: {name: low, pods: 2, requests: {gpu: 8}, priority: 1, controller: recreate}
- run: 1m
- restart
- submit: {name: high, pods: 2, requests: {gpu: 8}, priority: 9}
- crash: 1
- run: 5m
- expect: {bound: [high]}
"""
