"""Finds a browser for the tests of the page, and installs one where it may: as root, with Debian's packages, once."""

from __future__ import annotations

import shutil

from tests.harness.debian_packages import installed

HOW = "no browser: apt-get install chromium chromium-driver, and pip install selenium"


def find_chromium() -> tuple[str, str] | None:
    """The browser and its driver."""
    found = _found()
    if found is None and installed("chromium", "chromedriver", packages=("chromium", "chromium-driver")):
        found = _found()
    return found


def _found() -> tuple[str, str] | None:
    browser = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None
