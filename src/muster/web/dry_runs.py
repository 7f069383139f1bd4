"""Questions that take a cycle to answer (why, plan, starts), in processes of their own: a dry run of a large cluster takes seconds,
which the scheduler must not share. Bounded in number, time, processor time and memory.

One process has read the cluster and decided a cycle; each question is answered by a fork of it, and so within a fraction of a
second. While the API is asked it is replaced by one that has read the cluster again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

MAX_RUNNING: Final = 2
MAX_QUEUED: Final = 8
TIMEOUT_S: Final = 60.0
MAX_JOB_BYTES: Final = 2**20
FRESH_S: Final = 5.0
"""For so long a cluster that was read is not read again."""
STALE_S: Final = 30.0
"""For so long questions are answered about it while it is read again."""
KEEP_S: Final = 300.0
"""For so long after the last question its process is kept, which has the memory of a scheduler."""

OK, BAD_QUESTION, NOT_FOUND, TOO_MANY, TIMED_OUT, FAILED = 200, 400, 404, 429, 504, 500
READ_CLUSTER, ANSWER = b"c", b"a"
_MODULE = "muster.web.dry_run_worker"
# One thread each: a question must not take all cores from the scheduler.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

StateSource = Callable[[], Awaitable[bytes]]
"""The cluster as it is now, encoded; the same object where nothing changed."""


@dataclass(frozen=True, slots=True)
class DryRunAnswer:
    """`status` is that of the HTTP response; `cpu_s` is what the answer took of a processor."""

    status: int
    body: dict[str, Any]
    cpu_s: float = 0.0


class DryRuns:
    """Belongs to one event loop. `close` it there, or end the process."""

    def __init__(self, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._running = asyncio.Semaphore(MAX_RUNNING)
        self._asked = 0
        self._first: _Process | None = None
        """Has imported what a dry run needs, and nothing else."""
        self._newest: _ReadCluster | None = None
        self._reading: asyncio.Task[_ReadCluster] | None = None
        self._ending: asyncio.TimerHandle | None = None

    async def ask(self, question: dict[str, Any], state: StateSource) -> DryRunAnswer:
        if self._asked >= MAX_RUNNING + MAX_QUEUED:
            return _error(TOO_MANY, f"{self._asked} questions are being answered already: ask again in a few seconds")
        self._asked += 1
        self._close_later()
        try:
            async with self._running, asyncio.timeout(self._timeout_s):
                return await self._answer(question, state)
        except TimeoutError:
            return _error(TIMED_OUT, f"no answer within {self._timeout_s:g} s")
        finally:
            self._asked -= 1
            self._close_later()

    def _close_later(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        self._ending = None if self._asked else asyncio.get_running_loop().call_later(KEEP_S, self.close)

    def close(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        if self._reading is not None:
            self._reading.cancel()
        for process in (self._newest, self._first):
            if process is not None:
                process.close()
        self._newest = self._first = None

    async def _answer(self, question: dict[str, Any], state: StateSource) -> DryRunAnswer:
        known = self._newest
        cluster = await self._cluster(state, max_age_s=STALE_S)
        answer = await cluster.ask(question)
        if cluster is known and (answer is None or answer.status == NOT_FOUND):
            # The process is gone, or the gang has come since.
            newer = await self._cluster(state, max_age_s=0.0)
            answer = await newer.ask(question) if newer is not cluster or answer is None else answer
        return answer or _error(FAILED, "the dry run failed; `muster plan` and `muster why` ask the same of the cluster itself")

    async def _cluster(self, state: StateSource, *, max_age_s: float) -> _ReadCluster:
        newest = self._newest
        age_s = STALE_S if newest is None or newest.is_gone else time.monotonic() - newest.read_at
        if newest is None or age_s >= min(FRESH_S, max_age_s):
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read(state))
                self._reading.add_done_callback(_look_at_error)
            if newest is None or age_s >= max_age_s:
                return await asyncio.shield(self._reading)
        return newest

    async def _read(self, state: StateSource) -> _ReadCluster:
        began, encoded, newest = time.monotonic(), await state(), self._newest
        if newest is not None and newest.state is encoded and not newest.is_gone:
            newest.read_at = began
            return newest
        if self._first is None or self._first.is_gone:
            self._first = _Process()
        made = _ReadCluster(encoded, read_at=began, timeout_s=self._timeout_s)
        await made.begin(self._first)
        if newest is not None:
            newest.close()
        self._newest = made
        return made


class _Process:
    """The one that all others are forked from."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._popen = subprocess.Popen(
                (sys.executable, "-m", _MODULE, str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_ENVIRONMENT},
            )

    @property
    def is_gone(self) -> bool:
        return self._popen.poll() is not None

    def fork(self, kind: bytes, connection: socket.socket) -> None:
        socket.send_fds(self._control, [kind], [connection.fileno()])

    def close(self) -> None:
        self._control.close()
        self._popen.kill()
        self._popen.wait()


class _ReadCluster:
    """A process that has read a cluster, as long as `close` is not called; its forks end when they have answered."""

    def __init__(self, state: bytes, *, read_at: float, timeout_s: float) -> None:
        self.state = state
        self.read_at = read_at
        self.is_gone = False
        self._timeout_s = timeout_s
        self._control, self._theirs = socket.socketpair()
        self._control.setblocking(False)

    async def begin(self, first: _Process) -> None:
        loop = asyncio.get_running_loop()
        try:
            with self._theirs:
                first.fork(READ_CLUSTER, self._theirs)
            await loop.sock_sendall(self._control, _header(self._timeout_s, len(self.state)))
            await loop.sock_sendall(self._control, self.state)
            self.is_gone = not await loop.sock_recv(self._control, 1)
        except OSError:
            self.is_gone = True
        except asyncio.CancelledError:
            self.close()
            raise

    async def ask(self, question: dict[str, Any]) -> DryRunAnswer | None:
        """None where there is no answer."""
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            with theirs:
                socket.send_fds(self._control, [ANSWER], [theirs.fileno()])
            writer.write(msgspec.json.encode(question) + b"\n")
            # Closed before the answer, the connection ends the process at its other end.
            return msgspec.json.decode(await reader.read(), type=DryRunAnswer)
        except OSError:
            self.is_gone = True
        except msgspec.DecodeError:
            pass
        finally:
            writer.close()
        return None

    def close(self) -> None:
        self.is_gone = True
        self._control.close()


def _header(timeout_s: float, length: int) -> bytes:
    return msgspec.json.encode([timeout_s, length]) + b"\n"


def _look_at_error(task: asyncio.Task[_ReadCluster]) -> None:
    """Whoever waits for it sees it; perhaps nobody does."""
    if not task.cancelled():
        task.exception()


def _error(status: int, message: str) -> DryRunAnswer:
    return DryRunAnswer(status, {"error": message})
