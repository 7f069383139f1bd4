"""`muster run` as a child process, for tests: its probes, its metrics, and a kill."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from muster.lab import scheduler_process

PATIENCE_S = 120.0


class RunProcess(scheduler_process.SchedulerProcess):
    """Serves its probes on a free port; a socket that is left open is an error."""

    log_timeout_s = PATIENCE_S

    def __init__(self, kubeconfig: Path, *options: str | Path, election: bool = False) -> None:
        alone = [] if election else ["--no-leader-election"]
        strict = {"PYTHONWARNINGS": "error::ResourceWarning"}
        super().__init__(kubeconfig, *alone, *map(str, options), address="127.0.0.1:0", environment=strict)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        if error is not None:
            print("\n".join(map(str, self.lines[-60:])))

    def wait_until_ready(self) -> None:
        self.wait_for_log("ready")

    def get(self, page: str) -> tuple[int, str]:
        """Status and text of an endpoint."""
        address = self.wait_for_log("serving")["address"]
        try:
            with urllib.request.urlopen(f"http://{address}{page}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        """The sum of a metric over all labels that `name` leaves open: `muster_leader`, `muster_binds_total{result="ok"}`."""
        wanted, _, labels = name.rstrip("}").partition("{")
        return sum(
            float(line.rpartition(" ")[2])
            for line in self.get("/metrics")[1].splitlines()
            if line.partition("{")[0].partition(" ")[0] == wanted and all(label in line for label in labels.split(","))
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def eventually(check: Any, *, timeout_s: float = PATIENCE_S) -> Any:
    """The value of `check` as soon as it is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := check()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return found
