"""The page in a real browser: what it shows is what the API says, whatever the cluster is and whatever its objects are called."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import muster
from tests.web.axe import HOW as HOW_AXE
from tests.web.axe import find_axe
from tests.web.chromium import HOW, find_chromium
from tests.web.page_speed import MOMENTS, NODES, large_views, measured, opened_browser
from tests.web.served import BUSY, ask, scenario, serving
from tests.web.shown_page import Shown
from tests.web.test_tenants import FakeReviews

from muster.cli.view import read_views
from muster.config import default_policy
from muster.web.api_access import TokenAccess
from muster.web.cluster_view import ClusterView
from muster.web.recorded_views import RecordedViews, at_one_moment
from muster.web.report_file import report_html

MAP_MS, TIME_LINE_MS = 8.0, 12.0
"""Of a processor for one frame; 60 a second leave 16.7 ms."""
HOSTILE = "<script>window.pwned=1</script><img src=x onerror='window.pwned=1'> \x1b[31mred \u202eder \u2028 </script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("selenium.webdriver", reason=HOW)
    if find_chromium() is None:
        pytest.skip(HOW)
    with opened_browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> RecordedViews:
    return read_views(scenario(tmp_path_factory.mktemp("page")))


@pytest.fixture(scope="module")
def page(views: RecordedViews) -> Iterator[str]:
    with serving(views) as address:
        yield address


class ChangedViews:
    """Others' views with something else in them."""

    def __init__(self, views: RecordedViews, change: Callable[[ClusterView], None]) -> None:
        self._views = views
        self._change = change

    async def view(self, at: float | None = None) -> ClusterView:
        found = replace(copy.deepcopy(await self._views.view(at)), encoded={})
        self._change(found)
        return found

    def entries(self, gang: str) -> list[dict[str, Any]]:
        return self._views.entries(gang)

    async def question_state(self) -> bytes:
        return await self._views.question_state()


def test_the_views_show_what_the_api_says(browser: Any, page: str) -> None:
    cluster = ask(f"{page}/api/v1/cluster")[1]
    summary = cluster["summary"]
    shown = Shown(browser, f"{page}/#/")
    assert f"{summary['used']} of {summary['allocatable']} GPU in use" in shown.text("#headline")
    waiting = next(row for row in cluster["gangs"] if row["stage"] == "waiting")
    assert waiting["gang"] in shown.text("main")
    assert waiting["why"] in shown.text("main")
    assert [name in shown.text("main") for name in ("prod", "research", "rack a", "by queue")] == [True, True, False, False]
    assert shown.run("return document.querySelector('canvas').width") > 400

    shown.run("location.hash = '#/gangs'")
    shown.until(lambda: all(row["gang"] in shown.text("main") for row in cluster["gangs"] if row["stage"] != "finished"))
    shown.run("const f = document.getElementById('filter'); f.value = 'huge'; f.dispatchEvent(new Event('input'))")
    assert "1 gang" in shown.text("main")
    assert "prod/xl" not in shown.text("main tbody")

    shown.run("location.hash = '#/evictions'")
    row = cluster["evictions"][0]
    shown.until(lambda: row["gang"] in shown.text("main") and f"{row['lostGpuHours']:.1f}" in shown.text("main"))
    assert shown.errors() == []


def test_a_gang_says_what_was_decided_and_what_would_be(browser: Any, page: str) -> None:
    shown = Shown(browser, f"{page}/#/gang/research%2Fhuge")
    shown.until(lambda: "waiting" in shown.text("main") and "waits" in shown.text("main"))
    shown.run("document.querySelector('main button').click()")
    shown.until(lambda: "cannot run" in shown.text("main") and "1 of 1 in its queue" in shown.text("main"))
    assert shown.errors() == []


def test_a_job_is_planned_and_drawn(browser: Any, page: str) -> None:
    shown = Shown(browser, f"{page}/#/plan")
    shown.run("document.getElementById('job').value = '{name: new, namespace: prod, queue: prod, pods: 1, requests: {gpu: 1}}'")
    shown.run("document.querySelector('main form button').click()")
    shown.until(lambda: "prod/new can run now" in shown.text("main"))
    assert "1 node: b2" in shown.text("main")
    assert shown.run("return [...state.marked]") == ["b2"]


def test_the_past_is_one_key_away(browser: Any, page: str) -> None:
    shown = Shown(browser, f"{page}/#/")
    shown.run("const m = document.getElementById('moment'); m.dispatchEvent(new KeyboardEvent('keydown', {key: 'Home'}))")
    shown.until(lambda: "before the newest" in shown.text("#moment-text"))
    assert "prod/xl" not in shown.text("main")
    assert "Nobody was evicted." in shown.text("main")


def test_the_map_can_be_read_without_a_mouse(browser: Any, page: str) -> None:
    shown = Shown(browser, f"{page}/#/")
    key = "document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}))"
    shown.run(key)
    first = shown.run("return document.getElementById('map-said').textContent")
    shown.run(key)
    second = shown.run("return document.getElementById('map-said').textContent")
    assert (first.split(",")[0], second.split(",")[0]) == ("a1", "a2")
    assert "of 8 GPU, ready: " in first
    unnamed = (
        "return [...document.querySelectorAll('input, select, textarea, canvas, button')].filter((e) => e.checkVisibility() && "
    )
    unnamed += "!(e.labels && e.labels.length) && !e.ariaLabel && !e.textContent).length"
    for view in ("", "gangs", "plan"):
        shown.run(f"location.hash = '#/{view}'")
        time.sleep(0.1)
        assert shown.run(unnamed) == 0


def test_text_of_others_is_shown_as_text(browser: Any, views: RecordedViews) -> None:
    def change(view: ClusterView) -> None:
        for row in view.gangs:
            row.update(gang=f"{row['gang']}{HOSTILE}", why=HOSTILE, stage="waiting")
        for node in view.nodes:
            node.update(node=f"{node['node']}{HOSTILE}", state=HOSTILE, domain=HOSTILE)
        for domain in view.domains:
            domain.update(domain=HOSTILE, title=HOSTILE)
        for queue in view.queues:
            queue["queue"] += HOSTILE
        for row in view.evictions:
            row.update(gang=HOSTILE, why=HOSTILE, cause=HOSTILE)

    with serving(ChangedViews(views, change)) as address:
        for view in ("", "gangs", "evictions", "plan"):
            shown = Shown(browser, f"{address}/#/{view}")
            if view != "plan":
                assert "<script>window.pwned=1</script>" in shown.text("main")
                assert "\\u001b[31mred \\u202eder" in shown.text("main")
            assert shown.run("return document.querySelectorAll('main script, main img').length") == 0
            assert shown.run("return window.pwned === undefined")
            assert shown.errors() == []


def test_five_thousand_nodes_are_drawn_at_once_and_dragged_smoothly(browser: Any, tmp_path: Path) -> None:
    """In CPU time of the page's own thread, since the machines of tests are busy; `page_speed` prints all that it measures."""
    found = measured(browser, tmp_path)
    assert browser.execute_script("return state.cluster.nodes.length") == NODES
    assert (found.over_map.cpu_ms < MAP_MS, found.over_time.cpu_ms < TIME_LINE_MS) == (True, True), found


AXE = """
const done = arguments[arguments.length - 1];
axe.run(document, { resultTypes: ["violations"] }).then((found) => done(found.violations.filter((each) =>
  ["serious", "critical"].includes(each.impact)).map((each) => each.id + ": " + each.nodes.map((node) => node.html).join(" "))));
"""


def test_a_gang_that_waits_says_when_it_starts_and_what_would_make_it_run(browser: Any, tmp_path: Path) -> None:
    """A queue's limit keeps it from starting; another gang starts when the one before it ends."""
    text = """
name: one waits for another, one for its limit
nodes: [{name: "n[1-2]", gpu: 8}]
queues: [{name: free}, {name: small, limit: {gpu: 8}}]
gangs:
- {name: runs, queue: free, pods: 2, requests: {gpu: 8}, age: 10m, runningOn: "n[1-2]", spec: {activeDeadlineSeconds: 3600}}
- {name: next, queue: free, pods: 1, requests: {gpu: 8}, age: 5m, spec: {activeDeadlineSeconds: 3600}}
- {name: large, queue: small, pods: 2, requests: {gpu: 8}, age: 5m}
steps:
- run: {for: 1m, every: 30s}
"""
    views = read_views(scenario(tmp_path, text))
    with serving(views) as address:
        (start,) = [row for row in ask(f"{address}/api/v1/starts")[1]["starts"] if row["gang"] == "default/next"]
        assert start["expectedSeconds"] is not None
        shown = Shown(browser, f"{address}/#/gangs")
        at = time.strftime("%H:%M", time.gmtime(views.times[-1] + start["expectedSeconds"]))
        row = "[...document.querySelectorAll('tr')].find((e) => e.dataset.gang === 'default/next').innerText"
        shown.until(lambda: at in str(shown.run(f"return {row}")))
        shown.run("location.hash = '#/gang/default%2Fnext'")
        shown.until(lambda: "expected start" in shown.text("main") and at in shown.text("main"))
        shown.run("location.hash = '#/gang/default%2Flarge'")
        shown.until(lambda: "not as it is" in shown.text("main"))
        shown.run("document.querySelector('main button').click()")
        remedies = ask(f"{address}/api/v1/why/default/large?outlook=true")[1]["forecast"]["remedies"]
        assert remedies
        shown.until(lambda: all(each["what"] in shown.text(".remedies") for each in remedies))
        shown.until(lambda: all(each["command"] in shown.text(".remedies") for each in remedies))
        assert shown.errors() == []


def test_the_nodes_of_a_gang_that_is_pointed_at_light_up(browser: Any, views: RecordedViews) -> None:
    def change(view: ClusterView) -> None:
        next(row for row in view.gangs if row["gang"] == "research/llm")["stage"] = "waiting-on-permit"
        view.nodes[0]["gangs"] = [{"gang": "research/llm", "queue": "queue/research", "state": "reserved", "amount": 8}]

    with serving(ChangedViews(views, change)) as address:
        shown = Shown(browser, f"{address}/#/")
        row = "[...document.querySelectorAll('tr')].find((e) => e.dataset.gang === 'research/llm')"
        shown.run(f"{row}.querySelector('a').focus()")
        assert "a1" in shown.run("return [...state.marked]")
        # A newer picture replaces the rows; who reads with the keyboard stays where she is.
        shown.run("state.view.update(state.cluster)")
        assert shown.run("return document.activeElement.textContent") == "research/llm"
        assert "a1" in shown.run("return [...state.marked]")
        shown.run("document.querySelector('nav a').focus()")
        assert shown.run("return state.marked.size") == 0


def test_a_plan_draws_who_would_be_evicted_for_it(browser: Any, tmp_path: Path) -> None:
    text = """
name: a plan that evicts
nodes: [{name: "n[1-2]", gpu: 8}]
queues: [{name: all}]
gangs: [{name: low, queue: all, pods: 2, requests: {gpu: 8}, age: 10m, runningOn: "n[1-2]", priority: 1}]
steps: [cycle: 1]
"""
    with serving(read_views(scenario(tmp_path, text))) as address:
        shown = Shown(browser, f"{address}/#/plan")
        job = "{name: high, queue: all, pods: 1, requests: {gpu: 8}, priority: 100}"
        shown.run(f"document.getElementById('job').value = '{job}'; document.querySelector('main form button').click()")
        shown.until(lambda: "can run after evictions" in shown.text("main"))
        assert shown.run("return [state.marked.size, [...state.leaving].sort().join(' ')]") == [1, "n1 n2"]
        shown.run("location.hash = '#/'")
        shown.until(lambda: shown.run("return state.leaving.size") == 0)


def test_a_reader_without_a_token_is_asked_for_one(browser: Any, views: RecordedViews) -> None:
    with serving(views, TokenAccess(FakeReviews())) as address:
        browser.get(f"{address}/#/")
        browser.execute_script("sessionStorage.clear()")
        browser.get("about:blank")
        browser.get(f"{address}/#/")
        shown = Shown.__new__(Shown)
        shown.driver = browser
        shown.until(lambda: shown.run("return document.getElementById('token-form').checkVisibility()"))
        assert axe_violations(browser) == []
        shown.run("document.getElementById('token').value = 'researcher'; document.querySelector('#token-form button').click()")
        shown.until(lambda: "research/huge" in shown.text("main"))
        assert "prod/" not in shown.text("body")
        shown.run("sessionStorage.clear()")


def axe_violations(browser: Any) -> list[str]:
    axe = find_axe()
    if axe is None:
        pytest.skip(HOW_AXE)
    browser.execute_script(axe)
    found: list[str] = browser.execute_async_script(AXE)
    return found


@contextmanager
def in_scheme(browser: Any, scheme: str) -> Iterator[None]:
    """Without transitions, in the middle of which a colour is none of the page's."""
    features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    features_as_rows = [{"name": name, "value": value} for name, value in features.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features_as_rows})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


OPENED = {
    "the tip of a node": (
        "",
        "document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}))",
        ".tip",
    ),
    "domains as a table": ("", "document.querySelector('details').open = true", "details table"),
    "an answer with remedies": ("gang/research%2Fhuge", "document.querySelector('main button').click()", ".remedies"),
    "a plan": ("plan", "document.querySelector('main form button').click()", "main .answer"),
    "an error of a plan": (
        "plan",
        "document.getElementById('job').value = '[[['; document.querySelector('main form button').click()",
        "main .bad",
    ),
    "trouble": ("", "trouble('No figures: nothing answers')", "#trouble"),
    "the past": ("", "goTo(0)", "#moment-text"),
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_what_opens(browser: Any, page: str, scheme: str) -> None:
    with in_scheme(browser, scheme):
        for what, (view, opens, opened) in OPENED.items():
            shown = Shown(browser, f"{page}/#/{view}")
            shown.run(opens)
            shown.until(partial(shown.text, opened))
            assert axe_violations(browser) == [], what


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_any_view(browser: Any, page: str, scheme: str) -> None:
    with in_scheme(browser, scheme):
        for view in ("", "gangs", "evictions", "plan", "gang/research%2Fhuge", "gang/prod%2Fxl"):
            Shown(browser, f"{page}/#/{view}")
            assert axe_violations(browser) == [], view


def test_an_empty_cluster_is_a_page_too(browser: Any) -> None:
    with serving(at_one_moment(default_policy(), [], now=0.0)) as address:
        shown = Shown(browser, f"{address}/#/")
        shown.until(lambda: "No gang waits." in shown.text("main"))
        assert "There are no nodes." in shown.text("main")
        assert "no gangs" in shown.text("#headline")
        assert shown.errors() == []


def test_a_scheduler_that_stops_is_noticed_and_its_figures_stay(browser: Any, views: RecordedViews) -> None:
    with serving(views) as address:
        shown = Shown(browser, f"{address}/#/")
        shown.until(lambda: "research/huge" in shown.text("main"))
        shown.driver.set_network_conditions(offline=True, latency=0, download_throughput=0, upload_throughput=0)
    try:
        shown.until(lambda: "The connection is lost" in shown.text("#trouble"))
        assert "research/huge" in shown.text("main")
    finally:
        shown.driver.delete_network_conditions()


def test_a_scheduler_that_starts_again_is_followed_again(browser: Any, views: RecordedViews) -> None:
    def later(view: ClusterView) -> None:
        view.summary["used"] = 7

    with serving(views) as address:
        shown = Shown(browser, f"{address}/#/")
        shown.run("ApiData.RETRY_MS = 100")
    shown.until(lambda: "The connection is lost: these are the figures of 20" in shown.text("#trouble"))
    with serving(ChangedViews(views, later), port=int(address.rpartition(":")[2])):
        shown.until(lambda: "7 of 32 GPU in use" in shown.text("#headline"))
        assert shown.text("#trouble") == ""


def test_a_connection_on_which_nothing_comes_any_more_is_lost(browser: Any, page: str) -> None:
    """A machine that is gone, or the way to it, ends no connection."""
    shown = Shown(browser, f"{page}/#/")
    shown.run("ApiData.SILENT_MS = 50; data.follow(() => undefined, failed)")
    shown.until(lambda: "The connection is lost" in shown.text("#trouble"))


def test_a_token_that_ends_while_the_page_is_open_is_asked_for_again(browser: Any, views: RecordedViews) -> None:
    ended: set[str] = set()

    class Reviews(FakeReviews):
        async def __call__(self, path: str, manifest: dict[str, Any]) -> bytes:
            if manifest["spec"].get("token") in ended:
                manifest["spec"]["token"] = "ended"
            return await super().__call__(path, manifest)

    now = [0.0]
    with serving(views, TokenAccess(Reviews(), clock=lambda: now[0])) as address:
        browser.get(f"{address}/style.css")
        browser.execute_script("sessionStorage.setItem('token', 'researcher')")
        shown = Shown(browser, f"{address}/#/gangs")
        ended.add("researcher")
        now[0] = 100.0
        shown.run("ApiData.RETRY_MS = 100; data.follow(() => undefined, failed)")
        shown.until(lambda: shown.run("return document.getElementById('token-form').checkVisibility()"))
        assert "does not know this token" in shown.text("#trouble")
        assert "research/huge" in shown.text("main")
        shown.run("document.getElementById('token').value = 'operator'; document.querySelector('#token-form button').click()")
        shown.until(lambda: "prod/xl" in shown.text("main") and not shown.text("#trouble"))
        shown.run("sessionStorage.clear()")


def test_a_link_leads_to_what_was_looked_at(browser: Any, page: str, views: RecordedViews) -> None:
    """View, filters and moment; back goes from view to view."""
    shown = Shown(browser, f"{page}/#/gangs?stage=waiting&filter=huge&queue=queue%2Fresearch&at={views.times[1]}")
    shown.until(lambda: "before the newest" in shown.text("#moment-text"))
    assert "1 gang" in shown.text("main")
    assert shown.run("return ['filter', 'stage', 'queue'].map((id) => document.getElementById(id).value)") == [
        *("huge", "waiting", "queue/research"),
    ]
    shown.run("document.querySelector('main tbody a').click()")
    shown.until(lambda: "minimum" in shown.text("main"))
    assert "before the newest" in shown.text("#moment-text")
    shown.run("history.back()")
    shown.until(lambda: shown.run("return !!document.getElementById('filter')"))
    assert shown.run("return document.getElementById('filter').value") == "huge"
    # What is chosen stands in the address.
    chosen = "const s = document.getElementById('stage'); s.value = '*'; s.dispatchEvent(new Event('change')); goTo(0)"
    shown.run(chosen)
    shown.until(lambda: f"at={views.times[0]:.0f}" in shown.run("return location.hash"))
    assert "stage=*" in shown.run("return location.hash")
    shown.run("goTo(1e9)")
    shown.until(lambda: "at=" not in shown.run("return location.hash"))
    assert shown.errors() == []


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("#/nonsense", "There is no view nonsense."),
        ("#/constructor", "There is no view constructor."),
        ("#/gang/", "4 gangs"),
        ("#/gang/%E0%A4%A", "there is no /api/v1/gangs/"),
        ("#/gang/research/none", "there is no gang research/none in the cluster"),
        ("#/gang/..%2F..%2Fsummary", "there is no"),
        ("#/?at=yesterday", "Gangs that wait"),
        ("#main", "There is no view ain."),
    ],
)
def test_a_link_that_leads_nowhere_says_so(browser: Any, page: str, link: str, said: str) -> None:
    shown = Shown(browser, f"{page}/{link}")
    shown.until(lambda: said in shown.text("main"))
    assert "undefined" not in shown.text("main")
    assert [line for line in shown.errors() if "404" not in line] == []


def test_an_error_of_several_lines_has_several_lines(browser: Any, page: str) -> None:
    shown = Shown(browser, f"{page}/#/plan")
    shown.run("document.getElementById('job').value = 'kind: Job\\nkind: Pod\\nname: a\\nname: b'")
    shown.run("document.querySelector('main form button').click()")
    shown.until(lambda: "given twice" in shown.text("main .bad"))
    assert shown.run("return document.querySelectorAll('main .bad .line').length") == 2
    assert "\\u" not in shown.text("main .bad")


@pytest.mark.parametrize("view", ["", "gangs", "evictions", "plan", "gang/research/huge"])
def test_a_narrow_screen_cuts_nothing_off(browser: Any, views: RecordedViews, view: str) -> None:
    def change(found: ClusterView) -> None:
        for row in found.queues:
            row["queue"] += "-of-a-department-that-likes-long-words-and-has-many-of-them" * 2
        for gang in found.gangs:
            gang["queue"] += "-of-a-department-that-likes-long-words-and-has-many-of-them" * 2
            gang["why"] = "x" * 200

    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    )
    try:
        with serving(ChangedViews(views, change)) as address:
            shown = Shown(browser, f"{address}/#/{view}")
            time.sleep(0.3)
            assert shown.run("return document.documentElement.scrollWidth") <= 360
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_paper_is_white_at_night_too(browser: Any, page: str) -> None:
    colours = "return ['empty', 'text', 'panel'].map((each) => scheme.colour(each))"
    with in_scheme(browser, "dark"):
        shown = Shown(browser, f"{page}/#/")
        night = shown.run(colours)
        features = [{"name": "prefers-color-scheme", "value": "dark"}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
        shown.until(lambda: shown.run(colours) == ["#eee", "#000", "#fff"])
        assert night != ["#eee", "#000", "#fff"]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})
        shown.until(lambda: shown.run(colours) == night)


def test_ten_thousand_queues_are_a_page_too(browser: Any, views: RecordedViews) -> None:
    def change(view: ClusterView) -> None:
        row = view.queues[-1]
        view.queues.extend({**row, "queue": f"queue/q{number}", "waiting": number % 2} for number in range(10_000))

    with serving(ChangedViews(views, change)) as address:
        shown = Shown(browser, f"{address}/#/")
        assert shown.run("return document.querySelectorAll('.queue').length") == 200
        assert "more" in shown.text("main [role=list]")
        assert shown.errors() == []


PICTURES = """
const marks = [new Set(), new Set()], once = new ClusterMap(), found = [];
document.body.append(once.node);
for (const colour of ["use", "queue", "gang", "released"]) {
  for (let at = 0; at < state.cluster.timeline.times.length; at += 1) {
    const cluster = data.moments[at], again = new ClusterMap();
    document.body.append(again.node);
    for (const map of [once, again]) map.show(cluster, colour, ...marks);
    found.push(once.canvas.toDataURL() === again.canvas.toDataURL());
    again.node.remove();
  }
}
return found;
"""


def test_what_is_drawn_of_a_moment_is_what_a_new_picture_has(browser: Any, tmp_path: Path) -> None:
    """Only nodes that changed are drawn anew."""
    views = large_views(tmp_path)
    (tmp_path / "report.html").write_text(report_html(views), encoding="utf-8")
    shown = Shown(browser, (tmp_path / "report.html").as_uri())
    titles = "const map = new ClusterMap(); document.body.append(map.node); map.show(state.cluster, 'use', new Set(), new Set());"
    racks = shown.run(f"{titles} return map.titles.map((each) => each.text)")
    assert (racks[0], racks[-1], len(set(racks))) == ("r000", "r312", 313)
    drawn = shown.run(PICTURES)
    assert len(drawn) == 4 * MOMENTS
    assert all(drawn)


def test_a_report_opens_from_a_file_and_shows_the_same(browser: Any, views: RecordedViews, tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(BUSY.replace("two racks", "two racks </script><script>window.pwned=1</script>"))
    ran = muster("sim", "-q", str(tmp_path / "scenario.yaml"), "--html", str(tmp_path / "report.html"))
    assert ran.code == 0, ran.err
    shown = Shown(browser, (tmp_path / "report.html").as_uri())
    rows = views.frame(len(views.times) - 1).gangs
    assert [row["gang"] for row in rows] == shown.run("return state.cluster.gangs.map((row) => row.gang)")
    shown.until(lambda: shown.run("return [...state.starts.rows.keys()]") == ["research/huge"])
    assert next(row["why"] for row in rows if row["gang"] == "research/huge") in shown.text("main")
    shown.run("const m = document.getElementById('moment'); m.dispatchEvent(new KeyboardEvent('keydown', {key: 'Home'}))")
    shown.until(lambda: "before the newest" in shown.text("#moment-text"))
    assert "prod/xl" not in shown.text("main")
    shown.run("location.hash = '#/gang/research%2Fllm'")
    shown.until(lambda: "on 2 nodes" in shown.text("main"))
    shown.run("const m = document.getElementById('moment'); m.dispatchEvent(new KeyboardEvent('keydown', {key: 'End'}))")
    shown.run("location.hash = '#/gang/research%2Fhuge'")
    shown.until(lambda: "It would run if" in shown.text("main"))
    assert shown.run("return window.pwned === undefined")
    assert shown.errors() == []
