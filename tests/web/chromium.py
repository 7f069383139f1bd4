"""Finds a browser for the tests of the page, and installs one where it may: as root, with Debian's packages, once."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PACKAGES = ("chromium", "chromium-driver")
HOW = "no browser: apt-get install chromium chromium-driver, and pip install selenium"
_TRIED = Path(tempfile.gettempdir()) / "muster-tests-chromium-tried"


def find_chromium() -> tuple[str, str] | None:
    """The browser and its driver."""
    found = _found()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get") and not _TRIED.exists():
        _TRIED.touch()
        for arguments in (("update", "-qq"), ("install", "-y", "-qq", "--no-install-recommends", *PACKAGES)):
            subprocess.run(("apt-get", *arguments), capture_output=True, timeout=300, check=False)
        found = _found()
    return found


def _found() -> tuple[str, str] | None:
    browser = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None
