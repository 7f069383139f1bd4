"""What a tenant is shown of a view: her own namespaces by name, all others as amounts.

The sentences on her own gangs stay as they are: the scheduler writes the same ones onto her PodGroups.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from muster.model.queue import ROOT_QUEUE
from muster.web.cluster_view import ClusterView, JsonRow

_BUDGET = re.compile(r"disruption budget (\S+)")

VisibleNamespaces = Collection[str] | None
"""Those whose pods somebody may list; None: all."""


def is_visible(name: str, namespaces: VisibleNamespaces) -> bool:
    """`name` has its namespace in front."""
    return namespaces is None or name.partition("/")[0] in namespaces


def visible_view(view: ClusterView, namespaces: VisibleNamespaces) -> ClusterView:
    if namespaces is None:
        return view
    gangs = [row for row in view.gangs if is_visible(row["gang"], namespaces)]
    named = _named_queues(view, {row["queue"] for row in gangs})
    return replace(
        view,
        queues=_queues(view.queues, named),
        gangs=gangs,
        nodes=[{**node, "gangs": [_node_gang(each, namespaces) for each in node["gangs"]]} for node in view.nodes],
        evictions=[
            _eviction(row, namespaces)
            for row in view.evictions
            if is_visible(row["gang"], namespaces) or is_visible(row["forGang"], namespaces)
        ],
        encoded={},
    )


def visible_entries(entries: list[JsonRow], namespaces: VisibleNamespaces) -> list[JsonRow]:
    """The history of her gang, without the names of those who lost or gained by it."""
    if namespaces is None:
        return entries
    found = []
    for entry in entries:
        others = [entry[key] for key in ("for_gang", "victim") if not is_visible(entry.get(key, "") or "/", (*namespaces, ""))]
        hidden = ("for_gang", "victim", "victims", "why") if others else ()
        found.append({key: value for key, value in entry.items() if key not in hidden})
    return found


def visible_answer(answer: JsonRow, namespaces: VisibleNamespaces) -> JsonRow:
    """Of why or plan: the same keys, without the names of others."""
    return answer if namespaces is None else {key: _visible_value(key, value, namespaces) for key, value in answer.items()}


def _visible_value(key: str, value: Any, namespaces: Collection[str]) -> Any:
    match key, value:
        case "ahead" | "evictedGangs", list():
            return [row if is_visible(row["gang"], namespaces) else {**row, **_without_names(row)} for row in value]
        case "alternatives", list():
            return [{**row, "evicts": [], "why": "" if row["evicts"] else row["why"]} for row in value]
        case "budgets", list():
            return [name for name in value if is_visible(name, namespaces)]
        case "remedies", list():
            return _without_budgets_of_others(value, namespaces)
        case "gangs", list():
            return [visible_answer(row, namespaces) for row in value]
        case "forecast", dict():
            return visible_answer(value, namespaces)
    return value


def _without_budgets_of_others(remedies: list[JsonRow], namespaces: Collection[str]) -> list[JsonRow]:
    return [row for row in remedies if all(is_visible(name, namespaces) for name in _BUDGET.findall(row["what"]))]


def _without_names(row: JsonRow) -> JsonRow:
    return {key: [] if isinstance(row[key], list) else "" for key in ("gang", "queue", "nodes", "pods", "budgets") if key in row}


def _named_queues(view: ClusterView, own: set[str]) -> set[str]:
    """Hers, and those above them."""
    parents = {row["queue"]: row["parent"] for row in view.queues}
    named = {ROOT_QUEUE}
    for queue in own:
        while queue and queue not in named:
            named.add(queue)
            queue = parents.get(queue, "")
    return named


def _queues(rows: list[JsonRow], named: set[str]) -> list[JsonRow]:
    shown = {row["queue"]: row["queue"] if row["queue"] in named else f"other-{number}" for number, row in enumerate(rows)}
    return [{**row, "queue": shown[row["queue"]], "parent": shown.get(row["parent"], "")} for row in rows]


def _node_gang(row: JsonRow, namespaces: Collection[str]) -> JsonRow:
    return row if is_visible(row["gang"], namespaces) else {**row, "gang": "", "queue": ""}


def _eviction(row: JsonRow, namespaces: Collection[str]) -> JsonRow:
    hidden: JsonRow = {}
    for gang, queue in (("gang", "queue"), ("forGang", "forQueue")):
        if not is_visible(row[gang], namespaces):
            hidden |= {gang: "", queue: "", "why": ""}
    return {**row, **hidden}
