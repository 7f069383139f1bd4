"""The pictures of README: `.venv/bin/python -m tests.web.pictures docs/images`. The demo, as production takes its nodes back."""

from __future__ import annotations

import base64
import sys
import time
from pathlib import Path
from typing import Any, Final

from tests.cli.commands import ROOT
from tests.web.page_speed import opened_browser
from tests.web.served import serving_file

from muster.cli.cluster_state import ClusterOptions

WIDTH: Final = 1240
_RECLAIMS_S: Final = 48 * 60
_PICTURES: Final = (
    ("cluster", 860, "light", "", "released", "return state.cluster.summary.releasing > 0"),
    ("gang", 960, "dark", "gang/research/llm-13b", "gang", "return document.querySelector('.remedies') !== null"),
    ("evictions", 650, "light", "evictions", "use", "return document.querySelectorAll('tbody tr').length > 3"),
)
"""File, height, colours, view, what the map shows, and when all is there. The first one is of the past."""
_ASK = "const ask = document.querySelector('main button'); if (ask) ask.click()"


def main() -> int:
    folder = Path(sys.argv[1])
    demo = ClusterOptions(str(ROOT / "scenarios" / "demo.yaml"), quiet=True)
    with serving_file(demo) as address, opened_browser() as browser:
        browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        for number, (name, height, scheme, view, colour, is_there) in enumerate(_PICTURES):
            size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            browser.get("about:blank")
            browser.get(f"{address}/#/{view}")
            _wait(browser, "return state.cluster !== null")
            if number == 0:
                began = browser.execute_script("return state.cluster.timeline.times[0]")
                browser.execute_script(f"state.at = {began + _RECLAIMS_S}; refresh()")
            browser.execute_script(f"state.colour = '{colour}'; route()")
            browser.execute_script(_ASK)
            _wait(browser, is_there)
            shown = browser.execute_cdp_cmd("Page.captureScreenshot", {})
            (folder / f"{name}.png").write_bytes(base64.b64decode(shown["data"]))
    return 0


def _wait(browser: Any, check: str) -> None:
    deadline = time.monotonic() + 120
    while not browser.execute_script(check):
        if time.monotonic() > deadline:
            raise SystemExit(f"not within 2 min: {check}")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
