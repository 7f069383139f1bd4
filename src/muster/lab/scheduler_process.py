"""`muster run` as a child process: starts it, reads its log and stops it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

LogRecord = dict[str, Any]

_STOP_TIMEOUT_S: Final = 20.0


class SchedulerProcessEnded(Exception):
    """The process exited, or did not log an expected event in time. The message has its last log events."""


class SchedulerProcess:
    """A context manager: the process never outlives the block. `lines` is its log so far."""

    log_timeout_s: ClassVar[float] = 60.0
    """How long to wait for a log event."""

    def __init__(self, kubeconfig: Path, *options: str, address: str = "", environment: Mapping[str, str] | None = None) -> None:
        self.lines: list[LogRecord] = []
        self._line_arrived = threading.Condition()
        command = [sys.executable, "-m", "muster", "run", "--kubeconfig", str(kubeconfig), "--bind-address", address, *options]
        # A session of its own: Ctrl-C is for the parent, which stops it in order.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()

    def log_events(self, event: str) -> list[LogRecord]:
        return [line for line in self.lines if line.get("event") == event]

    def wait_for_log(self, event: str, *, timeout_s: float | None = None) -> LogRecord:
        """Wait for the first log line of this event, and return it."""
        with self._line_arrived:
            log_timeout_s = self.log_timeout_s if timeout_s is None else timeout_s
            self._line_arrived.wait_for(lambda: self.log_events(event) or not self._reader.is_alive(), timeout=log_timeout_s)
            found = self.log_events(event)
            if not found:
                raise SchedulerProcessEnded(f"`muster run` did not log {event!r}: {self.log_tail()}")
        return found[0]

    def check(self) -> None:
        """Raises SchedulerProcessEnded if it is not running any more."""
        if (code := self.process.poll()) is not None:
            raise SchedulerProcessEnded(f"`muster run` exited with code {code}: {self.log_tail()}")

    def log_tail(self) -> str:
        return "; ".join(str(line.get("event")) for line in self.lines[-5:]) or "its log is empty"

    def stop(self) -> int:
        """Send SIGTERM, wait, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.exit_code()

    def exit_code(self, *, timeout_s: float = _STOP_TIMEOUT_S) -> int:
        """Wait for its end and return the exit code."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise SchedulerProcessEnded(f"`muster run` did not exit within {timeout_s:.0f} s: {self.log_tail()}") from None
        self._reader.join()
        return code

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for raw in stream:
                with self._line_arrived:
                    self.lines.append(_parse_line(raw))
                    self._line_arrived.notify_all()
        with self._line_arrived:
            self._line_arrived.notify_all()


def _parse_line(raw: bytes) -> LogRecord:
    try:
        line: LogRecord = json.loads(raw)
    except ValueError:
        return {"event": raw.decode(errors="replace").rstrip()}
    return line
