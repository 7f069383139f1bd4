"""`muster run` as a process of its own: started, listened to, weighed, and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final

Line = dict[str, Any]

_PATIENCE_S: Final = 60.0
_STOP_S: Final = 20.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Ended(Exception):
    """The process ended, or did not say in time what was waited for. The message has the last that it said."""


class Running:
    """A context manager: whatever happens, the process is gone at the end. `lines` is its log so far."""

    def __init__(self, kubeconfig: Path, *options: str) -> None:
        self.lines: list[Line] = []
        self.began_s = time.monotonic()
        self._arrived = threading.Condition()
        command = [sys.executable, "-m", "muster", "run", "--kubeconfig", str(kubeconfig), "--bind-address", "", *options]
        # A session of its own: an interrupt from the keyboard is for us, and we stop it in order.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()

    def until_said(self, event: str, *, timeout_s: float = _PATIENCE_S) -> float:
        """Seconds from the start of the process until it said so."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._has_said(event) or not self._reader.is_alive(), timeout=timeout_s)
            if not self._has_said(event):
                raise Ended(f"`muster run` did not say {event!r}: {self.last_words()}")
        return time.monotonic() - self.began_s

    def _has_said(self, event: str) -> bool:
        return any(line.get("event") == event for line in self.lines)

    def check(self) -> None:
        """Raises Ended if it does not run any more."""
        if (code := self._process.poll()) is not None:
            raise Ended(f"`muster run` ended with code {code}: {self.last_words()}")

    def last_words(self) -> str:
        return "; ".join(str(line.get("event")) for line in self.lines[-5:]) or "it said nothing at all"

    def stop(self) -> int:
        """Ask it to end, and wait; how it ended."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            raise Ended(f"`muster run` did not end within {_STOP_S:.0f} s: {self.last_words()}") from None

    # -- how heavy it is -------------------------------------------------------------------------------------------------------

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * _PAGE

    def cpu_s(self) -> float:
        """Processor time that it took so far, all threads together."""
        # The name stands in brackets, and may have spaces in it.
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for raw in stream:
                self._note(_line(raw))
        with self._arrived:
            self._arrived.notify_all()

    def _note(self, line: Line) -> None:
        with self._arrived:
            self.lines.append(line)
            self._arrived.notify_all()


def _line(raw: bytes) -> Line:
    try:
        line: Line = json.loads(raw)
    except ValueError:
        return {"event": raw.decode(errors="replace").rstrip()}
    return line
