"""What a tenant is shown of a view: her own namespaces by name, all others as amounts, in sentences too."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

from muster.model.queue import ROOT_QUEUE
from muster.web.cluster_view import ClusterView, JsonRow

_FULL_NAME = re.compile(r"(?<![\w.-])([a-z0-9][a-z0-9-]*)/[\w.-]*\w")
_NO_NAME = re.compile(r"\d+/(\d+|TCP|UDP|SCTP)")
"""3 of 4 members, and ports."""
_QUEUE = re.compile(r"(?<=\bqueue )[^\s,;:()'\"]*[^\s,;:()'\".]")
_QUEUE_KEY = re.compile(r"(?<![\w.-])\w+/[\w.-]*\w")
_SUGGESTION = re.compile(r"[.;]? did you mean [^?]*\?", re.IGNORECASE)
_KNOWN = re.compile(r"(there is no [^;\n]*); known: [^\n]*")
_BUDGET = re.compile(r"disruption budget (\S+)")

VisibleNamespaces = Collection[str] | None
"""Those whose pods somebody may list; None: all."""


HideNames = Callable[[str], str]
"""A sentence -> the same without names of others."""


def is_visible(name: str, namespaces: VisibleNamespaces) -> bool:
    """`name` has its namespace in front."""
    return namespaces is None or name.partition("/")[0] in namespaces


def visible_view(view: ClusterView, namespaces: VisibleNamespaces) -> ClusterView:
    if namespaces is None:
        return view
    gangs = [row for row in view.gangs if is_visible(row["gang"], namespaces)]
    hide = hidden_names(view, namespaces)
    return replace(
        view,
        queues=_queues(view.queues, _shown_queues(view, namespaces)),
        gangs=[{**row, "why": hide(row["why"])} for row in gangs],
        nodes=[{**node, "gangs": [_node_gang(each, namespaces) for each in node["gangs"]]} for node in view.nodes],
        evictions=[
            _eviction(row, namespaces)
            for row in view.evictions
            if is_visible(row["gang"], namespaces) or is_visible(row["forGang"], namespaces)
        ],
        encoded={},
    )


def hidden_names(view: ClusterView, namespaces: VisibleNamespaces) -> HideNames:
    """For sentences about this cluster. Whatever looks like a name is hidden that is not known to be hers or nobody's: a sentence
    of the past may name a gang whose namespace has nothing in the cluster any more."""
    if namespaces is None:
        return str
    shown_queues = _shown_queues(view, namespaces)
    queues = {name: shown for name, shown in shown_queues.items() if name != shown}
    queues |= {name.partition("/")[2]: shown for name, shown in queues.items() if "/" in name}
    known = {row["domain"].partition(":")[2] for row in view.domains}.union(*_written(shown_queues.keys() - queues.keys()))

    def may_stay(found: re.Match[str]) -> bool:
        return found[1] in namespaces or found[0] in known or _NO_NAME.fullmatch(found[0]) is not None

    def hide(text: str) -> str:
        found = _KNOWN.sub(r"\1", _SUGGESTION.sub("", text))
        found = _QUEUE.sub(lambda each: queues.get(each[0], each[0]), found)
        found = _QUEUE_KEY.sub(lambda each: queues.get(each[0], each[0]), found)
        return _FULL_NAME.sub(lambda each: each[0] if may_stay(each) else "another tenant's", found)

    return hide


def named_namespaces(text: str) -> set[str]:
    """Of whatever looks like a name in it."""
    return {found[1] for found in _FULL_NAME.finditer(text)}


def _written(queues: Collection[str]) -> Iterator[set[str]]:
    """How queues are named in sentences: with and without their kind."""
    return ({key, key.partition("/")[2]} for key in queues)


def visible_entries(entries: list[JsonRow], namespaces: VisibleNamespaces, hide: HideNames) -> list[JsonRow]:
    """The history of her gang, without the names of those who lost or gained by it."""
    if namespaces is None:
        return entries
    found = []
    for entry in entries:
        others = [entry[key] for key in ("for_gang", "victim") if not is_visible(entry.get(key, "") or "/", (*namespaces, ""))]
        hidden = ("for_gang", "victim", "victims", "why") if others else ()
        found.append({key: _without_hidden(value, hide) for key, value in entry.items() if key not in hidden})
    return found


def visible_answer(answer: JsonRow, namespaces: VisibleNamespaces, hide: HideNames) -> JsonRow:
    """Of why or plan: the same keys, without the names of others."""
    if namespaces is None:
        return answer
    found: JsonRow = _without_hidden(_visible_fields(answer, namespaces), hide)
    return found


def _visible_fields(answer: JsonRow, namespaces: Collection[str]) -> JsonRow:
    return {key: _visible_value(key, value, namespaces) for key, value in answer.items()}


def _without_hidden(value: Any, hide: HideNames) -> Any:
    match value:
        case str():
            return hide(value)
        case list():
            return [_without_hidden(each, hide) for each in value]
        case dict():
            return {key: _without_hidden(each, hide) for key, each in value.items()}
    return value


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
            return [_visible_fields(row, namespaces) for row in value]
        case "forecast", dict():
            return _visible_fields(value, namespaces)
    return value


def _without_budgets_of_others(remedies: list[JsonRow], namespaces: Collection[str]) -> list[JsonRow]:
    return [row for row in remedies if all(is_visible(name, namespaces) for name in _BUDGET.findall(row["what"]))]


def _without_names(row: JsonRow) -> JsonRow:
    return {key: [] if isinstance(row[key], list) else "" for key in ("gang", "queue", "nodes", "pods", "budgets") if key in row}


def _shown_queues(view: ClusterView, namespaces: Collection[str]) -> dict[str, str]:
    """What each queue is called: those of her gangs, and those above them, as they are."""
    parents = {row["queue"]: row["parent"] for row in view.queues}
    named = {ROOT_QUEUE}
    for queue in {row["queue"] for row in view.gangs if is_visible(row["gang"], namespaces)}:
        above = queue
        while above and above not in named:
            named.add(above)
            above = parents.get(above, "")
    return {queue: queue if queue in named else f"other-{number}" for number, queue in enumerate(parents)}


def _queues(rows: list[JsonRow], shown: dict[str, str]) -> list[JsonRow]:
    return [{**row, "queue": shown[row["queue"]], "parent": shown.get(row["parent"], "")} for row in rows]


def _node_gang(row: JsonRow, namespaces: Collection[str]) -> JsonRow:
    return row if is_visible(row["gang"], namespaces) else {**row, "gang": "", "queue": ""}


def _eviction(row: JsonRow, namespaces: Collection[str]) -> JsonRow:
    hidden: JsonRow = {}
    for gang, queue in (("gang", "queue"), ("forGang", "forQueue")):
        if not is_visible(row[gang], namespaces):
            hidden |= {gang: "", queue: "", "why": ""}
    return {**row, **hidden}
