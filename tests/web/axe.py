"""Finds axe-core, which looks for faults that keep people from using a page; fetches it from the npm registry once."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

VERSION = "4.10.3"
HOW = f"no axe-core {VERSION}: npm has to be there, and the npm registry to be reached once"
_TIMEOUT_S = 60.0


def find_axe() -> str | None:
    """Its script."""
    cache = Path(os.environ.get("MUSTER_CACHE") or Path.home() / ".cache" / "muster")
    kept = cache / f"axe-core-{VERSION}.js"
    if not kept.exists() and (found := _fetched()) is not None:
        cache.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(found)
    return kept.read_text(encoding="utf-8") if kept.exists() else None


def _fetched() -> bytes | None:
    npm = shutil.which("npm")
    if npm is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        try:
            command = (npm, "pack", "--silent", f"axe-core@{VERSION}")
            subprocess.run(command, cwd=folder, capture_output=True, timeout=_TIMEOUT_S, check=True)
            (packed,) = Path(folder).glob("*.tgz")
        except (OSError, subprocess.SubprocessError, ValueError):
            return None
        with tarfile.open(fileobj=io.BytesIO(packed.read_bytes())) as files:
            script = files.extractfile("package/axe.min.js")
            return script.read() if script is not None else None
