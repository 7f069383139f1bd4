"""Servers as child processes that never outlive their parent, even where that is killed."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from muster.private_file import open_private

_STOP_TIMEOUT_S = 5.0
_LOG_TAIL_LINES = 25

# Reads PIDs from its standard input. When the other end of the pipe is closed, which the kernel does for a killed process, it kills
# them and removes their folder.
_WATCHDOG_SCRIPT = (
    'pids=; while read -r pid; do pids="$pids $pid"; done; [ -z "$pids" ] || kill -KILL $pids 2>/dev/null; rm -rf "$1"'
)


class ServerDied(Exception):
    """A server exited, or did not become ready. The message has the end of its log."""


class Watchdog:
    """Kills the servers and removes their folder when this process dies."""

    def __init__(self, folder: Path) -> None:
        command = ["/bin/sh", "-c", _WATCHDOG_SCRIPT, "muster-lab-watchdog", str(folder)]
        self._shell = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def watch_pid(self, pid: int) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{pid}\n".encode())
        self._shell.stdin.flush()

    def close(self) -> None:
        self._shell.kill()
        self._shell.wait()
        assert self._shell.stdin is not None
        self._shell.stdin.close()


class Server:
    """One child process, with its log in a file."""

    def __init__(self, command: Sequence[str], *, log: Path, watchdog: Watchdog) -> None:
        self.name = Path(command[0]).name
        self._log = log
        with open_private(log, "ab") as out:
            # A session of its own: Ctrl-C is for the parent, which stops the servers in order.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        watchdog.watch_pid(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises ServerDied if it is not running any more."""
        if (code := self._process.poll()) is not None:
            raise ServerDied(f"{self.name} exited with code {code}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LOG_TAIL_LINES:])

    def stop(self) -> None:
        """Stop it in order, so that no response is cut off; kill it after a timeout."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_ports(count: int) -> list[int]:
    """Free ports on loopback, allocated together so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def write_private_file(path: Path, content: bytes) -> Path:
    """A file that only this user can read."""
    with open_private(path, "wb") as out:
        out.write(content)
    return path
