"""A report: the page and everything that it shows in one file, which opens anywhere and loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from muster.model.printable_text import printable_json
from muster.web.api_server import SCRIPTS, static_text
from muster.web.cluster_view import ClusterView, JsonRow
from muster.web.recorded_views import RecordedViews

MAX_REPORT_FRAMES: Final = 100
_MAX_CYCLES: Final = 100
"""For which the cluster is run on, to say when gangs are expected to start."""
_MAX_REMEDIED: Final = 10
_MAX_TRIES: Final = 30
"""For so many gangs that wait so many changes are tried."""
_ROWS: Final = (("gangs", "gang"), ("nodes", "node"), ("domains", "domain"))


def report_html(views: RecordedViews) -> str:
    style, scripts = static_text("style.css"), {name: static_text(name) for name in SCRIPTS}
    # Inside a script element no text may look like its end.
    document = printable_json(msgspec.json.encode(_document(views))).decode().replace("<", "\\u003c")
    hashes = " ".join(map(_hash_of, scripts.values()))
    policy = f"default-src 'none'; script-src {hashes}; style-src {_hash_of(style)}; img-src data:; base-uri 'none'"
    page = static_text("index.html")
    for before, after in (
        ('<meta charset="utf-8">', f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        ('<link rel="stylesheet" href="style.css">', f"<style>{style}</style>"),
        ("<noscript>", f'<script type="application/json" id="report">{document}</script>\n<noscript>'),
        *((f'<script src="{name}"></script>', f"<script>{script}</script>") for name, script in scripts.items()),
    ):
        if before not in page:
            raise AssertionError(f"{before} is not in index.html")
        page = page.replace(before, after)
    return page


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _document(views: RecordedViews) -> dict[str, Any]:
    """Each frame as what differs from the one before it."""
    frames, before, view = [], None, views.frame(0)
    for at in range(len(views.times)):
        view = views.frame(at)
        frames.append(_frame(view, before))
        before = view
    return {
        "times": views.times,
        "frames": frames,
        "evictions": view.evictions,
        "samples": view.timeline["samples"],
        "starts": views.starts(may_go_on=_cycles(_MAX_CYCLES)),
        "remedies": views.remedies(most=_MAX_REMEDIED, limit=lambda: _cycles(_MAX_TRIES)),
        "history": {row["gang"]: entries for row in view.gangs if (entries := views.entries(row["gang"]))},
    }


def _cycles(most: int) -> Callable[[], bool]:
    """A number of cycles and not a time: the same run makes the same report."""
    left = iter(range(most))
    return lambda: next(left, None) is not None


def _frame(view: ClusterView, before: ClusterView | None) -> JsonRow:
    found: JsonRow = {"cycle": view.cycle, "summary": view.summary, "queues": view.queues}
    for part, key in _ROWS:
        known = {row[key]: row for row in getattr(before, part)} if before is not None else {}
        rows = {row[key]: row for row in getattr(view, part)}
        found[part] = {
            "changed": [row for name, row in rows.items() if known.get(name) != row],
            "gone": [name for name in known if name not in rows],
        }
    return found
