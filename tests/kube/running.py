"""`muster run` as a process of its own, for tests: started, listened to, and ended one way or another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

Line = dict[str, Any]
PATIENCE_S = 40.0


class Running:
    """A context manager. Whatever happens, the process is gone at the end. `lines` is its log so far."""

    def __init__(self, kubeconfig: Path, *options: str | Path, election: bool = False) -> None:
        command = [sys.executable, "-m", "muster", "run", "--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1:0"]
        if not election:
            command.append("--no-leader-election")
        self.lines: list[Line] = []
        self._arrived = threading.Condition()
        self.process = subprocess.Popen(
            [*command, *map(str, options)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONWARNINGS": "error::ResourceWarning"},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        if error is not None:
            print("\n".join(map(str, self.lines[-60:])))

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for raw in stream:
                try:
                    line: Line = json.loads(raw)
                except ValueError:
                    line = {"event": raw.decode(errors="replace").rstrip()}
                with self._arrived:
                    self.lines.append(line)
                    self._arrived.notify_all()

    # -- listening -------------------------------------------------------------------------------------------------------------

    def said(self, event: str) -> list[Line]:
        return [line for line in self.lines if line["event"] == event]

    def until_said(self, event: str, *, times: int = 1, timeout_s: float = PATIENCE_S) -> Line:
        with self._arrived:
            ok = self._arrived.wait_for(lambda: len(self.said(event)) >= times or self._is_over(), timeout=timeout_s)
        found = self.said(event)
        assert ok, f"{event!r} was not said in time: {self.lines}"
        assert len(found) >= times, f"{event!r} was not said before the end: {self.lines}"
        return found[times - 1]

    def _is_over(self) -> bool:
        return not self._reader.is_alive()

    def until_ready(self) -> None:
        self.until_said("ready")

    def get(self, page: str) -> tuple[int, str]:
        """Status and text of a page that it serves."""
        address = self.until_said("serving")["address"]
        try:
            with urllib.request.urlopen(f"http://{address}{page}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def figure(self, name: str) -> float:
        """The sum of a metric over all labels that `name` leaves open: `muster_leader`, `muster_binds_total{result="ok"}`."""
        wanted, _, labels = name.rstrip("}").partition("{")
        return sum(
            float(line.rpartition(" ")[2])
            for line in self.get("/metrics")[1].splitlines()
            if line.partition("{")[0].partition(" ")[0] == wanted and all(label in line for label in labels.split(","))
        )

    # -- ending ----------------------------------------------------------------------------------------------------------------

    def stop(self, *, timeout_s: float = PATIENCE_S) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.ended(timeout_s=timeout_s)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def ended(self, *, timeout_s: float = PATIENCE_S) -> int:
        code = self.process.wait(timeout_s)
        self._reader.join()
        return code


def eventually(check: Any, *, timeout_s: float = PATIENCE_S) -> Any:
    """What `check` gives as soon as it is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := check()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return found
