"""Servers as child processes that never outlive whoever started them, however that ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

_STOP_TIMEOUT_S = 5.0
_LOG_TAIL_LINES = 25

# Reads the PIDs of those that it answers for. When the other end of the pipe is closed, which the system does for a process that
# was killed, it ends them and clears away their folder.
_WATCHDOG_SCRIPT = (
    'pids=; while read -r pid; do pids="$pids $pid"; done; [ -z "$pids" ] || kill -KILL $pids 2>/dev/null; rm -rf "$1"'
)


class ServerDied(Exception):
    """A server ended, or did not come up. The message has the end of its log."""


class Watchdog:
    """Ends the servers and removes their folder when this process dies."""

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
        with log.open("ab") as out:
            # A session of its own: an interrupt from the keyboard is for us, and we stop the servers in order.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        watchdog.watch_pid(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises ServerDied if it does not run any more."""
        if (code := self._process.poll()) is not None:
            raise ServerDied(f"{self.name} ended with code {code}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LOG_TAIL_LINES:])

    def stop(self) -> None:
        """Nothing that it keeps is worth waiting for, but a server that stops by itself leaves no half-written answer."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now. All are taken at once, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def write_private_file(path: Path, content: bytes) -> Path:
    """A file that only this user can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(content)
    return path
