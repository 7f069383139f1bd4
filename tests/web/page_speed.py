"""How fast the page is with 5,000 nodes, from the server to the screen: `.venv/bin/python -m tests.web.page_speed`.

Measured are the time from the first request to the first picture, and how many frames there are in a second while a pointer is
dragged over the map, and while the time line of a report is dragged. Beside each stands the CPU time of the page's own thread:
on a machine that does other things, too, that is what the page itself takes; 16.7 ms are 60 frames a second.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.web.chromium import HOW, find_chromium
from tests.web.served import scenario, serving

from muster.cli.view import read_views
from muster.web.cluster_view import ClusterView
from muster.web.recorded_views import RecordedViews
from muster.web.report_file import report_html

NODES, RACK, MOMENTS = 5000, 16, 20
FRAME_MS = 1000 / 60
_SECONDS = 3.0

_DRAG = """
const done = arguments[arguments.length - 1], began = performance.now(), seconds = arguments[0];
let frames = 0;
const step = () => {
  if (performance.now() - began > 1000 * seconds) { done([frames, performance.now() - began]); return; }
  frames += 1;
  %s
  requestAnimationFrame(step);
};
requestAnimationFrame(step);
"""
_OVER_MAP = """
  const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect();
  const at = { clientX: box.left + frames * 7 % box.width, clientY: box.top + frames * 3 % box.height, bubbles: true };
  canvas.dispatchEvent(new PointerEvent("pointermove", at));
"""
_OVER_TIME = """
  const bar = document.getElementById("moment");
  bar.value = 500 + 500 * Math.sin(frames / 40);
  bar.dispatchEvent(new Event("input"));
"""


@dataclass(frozen=True, slots=True)
class Drag:
    frames_a_second: float
    cpu_ms: float
    """Of the page's thread, for each frame."""


@contextmanager
def opened_browser() -> Iterator[Any]:
    from selenium import webdriver

    if (found := find_chromium()) is None:
        raise SystemExit(HOW)
    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1440,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(found[1]))
    try:
        yield driver
    finally:
        driver.quit()


class LargeViews(RecordedViews):
    """A few moments of a cluster of 5,000 nodes, full of gangs, some of which come and go."""

    def _frame(self, at: int) -> ClusterView:
        view = super()._frame(len(self._frames) - 1)
        first = view.nodes[0]
        nodes = [
            {**first, "node": f"n{number:04}", "domain": f"1:r{number // RACK:03}", "gangs": [_holder(number, at)]}
            for number in range(NODES)
        ]
        rack = {**view.domains[0], "parent": "", "nodes": RACK}
        domains = [{**rack, "domain": f"1:r{number:03}", "title": f"rack r{number:03}"} for number in range(-(-NODES // RACK))]
        gang = view.gangs[0]
        gangs = [*view.gangs, *({**gang, "gang": f"team/g{number}", "why": ""} for number in range(NODES // 8))]
        self.times = [self.times[-1] + 60 * number for number in range(MOMENTS)]
        view.timeline["times"] = self.times
        return replace(view, nodes=nodes, domains=domains, gangs=gangs, time=self.times[at], encoded={})


def _holder(number: int, moment: int) -> dict[str, object]:
    turn = moment if number % 10 == 0 else 0
    return {"gang": f"team/g{number // 8 + turn}", "queue": f"queue/q{number % 7}", "state": "running", "amount": 8}


def large_views(folder: Path) -> LargeViews:
    few = read_views(scenario(folder))
    views = LargeViews(few._frames, history=few._history, objects=few._objects, policy=few._policy)
    views.times = [few.times[-1] + 60 * number for number in range(MOMENTS)]
    return views


def first_picture_ms(driver: Any, address: str) -> float:
    """From the first request to when the map is drawn for the first time."""
    driver.get(f"{address}/#/")
    script = """
const done = arguments[0], look = () => {
  const found = performance.getEntriesByName("first picture");
  if (found.length) done(found[0].startTime); else requestAnimationFrame(look);
};
look();"""
    return float(driver.execute_async_script(script))


def drag(driver: Any, step: str) -> Drag:
    driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    before = _task_s(driver)
    frames, took_ms = driver.execute_async_script(_DRAG % step, _SECONDS)
    return Drag(1000 * frames / took_ms, 1000 * (_task_s(driver) - before) / frames)


def _task_s(driver: Any) -> float:
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


@dataclass(frozen=True, slots=True)
class PageSpeed:
    first_picture_ms: float
    over_map: Drag
    over_time: Drag


def measured(driver: Any, folder: Path) -> PageSpeed:
    views = large_views(folder)
    with serving(views) as address:
        first_picture_ms(driver, address)
        first = first_picture_ms(driver, f"{address}/?again")
        over_map = drag(driver, _OVER_MAP)
    report = folder / "report.html"
    report.write_text(report_html(views), encoding="utf-8")
    driver.get(report.as_uri())
    return PageSpeed(first, over_map, drag(driver, _OVER_TIME))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, opened_browser() as driver:
        found = measured(driver, Path(folder))
    print(f"{NODES:,} nodes: first picture after {found.first_picture_ms:.0f} ms (1,000)")
    for what, each in (("over the map", found.over_map), ("the time line of a report", found.over_time)):
        print(
            f"dragging {what}: {each.frames_a_second:.0f} frames a second (60), {each.cpu_ms:.1f} ms of CPU each ({FRAME_MS:.1f})"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
