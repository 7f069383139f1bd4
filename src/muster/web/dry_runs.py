"""Questions that take a cycle to answer (why, plan), each answered by a process of its own: a dry run of a large cluster takes
seconds, which the scheduler must not share. Bounded in number, time, processor time and memory."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Any, Final

import msgspec

MAX_RUNNING: Final = 2
MAX_QUEUED: Final = 8
TIMEOUT_S: Final = 60.0
MAX_JOB_BYTES: Final = 2**20

OK, BAD_QUESTION, NOT_FOUND, TOO_MANY, TIMED_OUT, FAILED = 200, 400, 404, 429, 504, 500
_MODULE = "muster.web.dry_run_worker"
# One thread each: a question must not take all cores from the scheduler.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class DryRunAnswer:
    """`status` is that of the HTTP response."""

    status: int
    body: dict[str, Any]


class DryRuns:
    def __init__(self, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._running = asyncio.Semaphore(MAX_RUNNING)
        self._asked = 0

    async def ask(self, question: dict[str, Any], state: bytes) -> DryRunAnswer:
        if self._asked >= MAX_RUNNING + MAX_QUEUED:
            return _error(TOO_MANY, f"{self._asked} questions are being answered already: ask again in a few seconds")
        self._asked += 1
        try:
            async with self._running:
                return await self._run(question, state)
        finally:
            self._asked -= 1

    async def _run(self, question: dict[str, Any], state: bytes) -> DryRunAnswer:
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _MODULE, str(int(self._timeout_s) + 1)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **_ENVIRONMENT},
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                output, _ = await worker.communicate(msgspec.json.encode(question) + b"\n" + state)
        except TimeoutError:
            return _error(TIMED_OUT, f"no answer within {self._timeout_s:g} s")
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
        try:
            return msgspec.json.decode(output, type=DryRunAnswer)
        except msgspec.DecodeError:
            return _error(FAILED, "the dry run failed; `muster plan` and `muster why` ask the same of the cluster itself")


def _error(status: int, message: str) -> DryRunAnswer:
    return DryRunAnswer(status, {"error": message})
