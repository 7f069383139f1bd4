"""`muster run` as processes that start at once: one interpreter has imported everything, and forks for each of them.

What runs is the command itself, in a process of its own that can be killed like any other; only the seconds that its imports take
are saved, hundreds of times. As a script this file is that interpreter: it reads orders from its input, a line of JSON each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from http.client import HTTPConnection, HTTPException
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NoReturn

LogLine = dict[str, Any]

SENT_AT = "Sent-At"
"""The header in which a scheduler says when it sent a request, by its own clock: a proxy on a busy machine receives it later."""


class SchedulerProcess:
    """One scheduler. Its log is a file."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self.log = log
        self._address = ""

    @property
    def is_alive(self) -> bool:
        """Dead ones are kept as zombies until their nursery ends, so the number is nobody else's."""
        status = Path(f"/proc/{self.pid}/stat").read_text()
        return status.rpartition(")")[2].split()[0] not in "ZX"

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def lines(self) -> list[LogLine]:
        return [_line(raw) for raw in self.log.read_bytes().splitlines()]

    def log_events(self, event: str) -> list[LogLine]:
        return [line for line in self.lines() if line["event"] == event]

    @property
    def is_ready(self) -> bool:
        return bool(self.log_events("ready"))

    def metrics(self, *wanted: str) -> dict[str, float]:
        """Sums over all labels."""
        self._address = self._address or self.log_events("serving")[0]["address"]
        lines = _page(self._address, "/metrics").splitlines()
        found = dict.fromkeys(wanted, 0.0)
        for line in lines:
            name = line.partition("{")[0].partition(" ")[0]
            if name in found:
                found[name] += float(line.rpartition(" ")[2])
        return found


def _page(address: str, path: str) -> str:
    """Raises OSError where nobody answers, or not to the end."""
    with closing(HTTPConnection(address, timeout=30)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except HTTPException as error:
            raise ConnectionError(str(error)) from error


def _line(raw: bytes) -> LogLine:
    try:
        found: LogLine = json.loads(raw)
    except ValueError:
        return {"event": raw.decode(errors="replace")}
    return found


class ForkServer:
    """A context manager. All children are dead at its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = 0

    def __enter__(self) -> ForkServer:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        assert self._out.readline() == b"ready\n"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._in.close()
        self._out.close()
        self._process.wait()

    def start(self, *arguments: str) -> SchedulerProcess:
        self._started += 1
        log = self._folder / f"scheduler-{self._started}.log"
        log.touch()
        order = {"arguments": ["run", "--bind-address", "127.0.0.1:0", *arguments], "log": str(log)}
        self._in.write(json.dumps(order).encode() + b"\n")
        self._in.flush()
        return SchedulerProcess(int(self._out.readline()), log)


# -- the interpreter that forks --------------------------------------------------------------------------------------------------


def _serve() -> None:
    # Taken before the module of the same name is there.
    from muster.cli import run

    _import_everything()
    processes: list[int] = []
    print("ready", flush=True)
    for order in sys.stdin.buffer:
        asked = json.loads(order)
        pid = os.fork()
        if not pid:
            _run_child(partial(run, asked["arguments"]), log=asked["log"])
        processes.append(pid)
        print(pid, flush=True)
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    for pid in processes:
        os.waitpid(pid, 0)


def _import_everything() -> None:
    for module in ("kubernetes.aio.client", "kubernetes.aio.config", "muster.cli.app", "muster.cli.run"):
        import_module(module)
    # Whoever asks for a figure here wants to know how it is now; in a large cluster it may be some seconds old.
    vars(import_module("muster.service.scheduling_loop"))["_METRICS_INTERVAL_S"] = 0.0
    session = import_module("aiohttp").ClientSession
    session._request = _with_sent_at(session._request)
    # Plugins are imported by the policies that name them.
    import_module("muster.config").default_policy()


def _with_sent_at(send: Callable[..., Any]) -> Callable[..., Any]:
    async def stamped(*arguments: Any, headers: list[tuple[str, str]], **more: Any) -> Any:
        return await send(*arguments, headers=[*headers, (SENT_AT, repr(time.monotonic()))], **more)

    return stamped


def _run_child(live: Callable[[], int], *, log: str) -> NoReturn:
    out, nothing = os.open(log, os.O_WRONLY | os.O_APPEND), os.open(os.devnull, os.O_RDWR)
    for number, target in ((0, nothing), (1, nothing), (2, out)):
        os.dup2(target, number)
    code = 1
    try:
        code = live()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
