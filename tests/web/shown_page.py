"""What a browser shows of the page."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class Shown:
    """What the browser shows."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver = driver
        driver.get("about:blank")
        # What ended before is not this page's.
        driver.get_log("browser")
        driver.get(url)
        self.until(lambda: "in use" in self.text("#headline"))

    def until(self, check: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 40
        while not (found := check()):
            assert time.monotonic() < deadline, self.text("body")
            time.sleep(0.05)
        return found

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def text(self, selector: str) -> str:
        return str(self.run(f"const e = document.querySelector({selector!r}); return e ? e.innerText : ''"))

    def errors(self) -> list[str]:
        return [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]
