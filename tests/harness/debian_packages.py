"""Programs that some tests need, and that Debian has: installed once, where the tests run as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_TIMEOUT_S = 300.0


def installed(*programs: str, packages: tuple[str, ...]) -> bool:
    """Whether all of them are there now."""
    if all(map(shutil.which, programs)):
        return True
    tried = Path(tempfile.gettempdir()) / f"muster-tests-tried-{packages[0]}"
    if os.geteuid() == 0 and shutil.which("apt-get") and not tried.exists():
        tried.touch()
        for arguments in (("update", "-qq"), ("install", "-y", "-qq", "--no-install-recommends", *packages)):
            subprocess.run(("apt-get", *arguments), capture_output=True, timeout=_TIMEOUT_S, check=False)
    return all(map(shutil.which, programs))
