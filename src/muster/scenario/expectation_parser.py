"""Parses `expect` into values that can be compared with the state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from muster.literals import is_range
from muster.model.gang import Stage
from muster.model.resource_amounts import amount
from muster.scenario.field_reader import Field, FieldReader, parse_run_span
from muster.scenario.key_tables import KEY_TABLES
from muster.scenario.symbol_table import SymbolTable
from muster.scenario.syntax_tree import Check, ExpectStep, Wanted

STAGES = (*(stage.value for stage in Stage), "deleted")
WRITE_VERBS = ("bind", "patch", "delete", "evict", "save")


def parse_expect(at: Field, symbols: SymbolTable, line: int) -> ExpectStep:
    FieldReader(at, table="expect")
    if at.at.is_mapping and not at.at.mapping:
        at.report("expects nothing")
    checks: list[Check] = []
    for key, value in at.at.mapping.items():
        if key in _PARSERS:
            checks.append(_PARSERS[key](key, at.child(value, key), symbols))
    # What is expected now is checked before time passes.
    return ExpectStep(line, tuple(sorted(checks, key=lambda check: check.key == "stable")))


# -- one subject after the other ---------------------------------------------------------------------------------------------------


def _parse_pods(key: str, at: Field, symbols: SymbolTable) -> Check:
    """A list is exact: these pods and no others. A mapping is about the named ones: their number, or their nodes."""
    if at.at.is_mapping:
        return _parse_by_subject(_parse_number_or_nodes, key, at, symbols)
    found = [(symbols.target(word, name), name.at.line) for word, name in at.names()]
    return Check(key, at.at.line, tuple(Wanted(target, line) for target, line in found if target is not None), exact=True)


def _parse_number_or_nodes(value: Field, symbols: SymbolTable) -> Wanted:
    if value.at.is_scalar and isinstance(value.at.value, int) and not isinstance(value.at.value, bool):
        return Wanted("", 0, count=value.count())
    alone = value.at.is_scalar and not is_range(value.at.text)
    # One node for a gang means that node for each of its members.
    return Wanted("", 0, nodes=_parse_nodes(value, symbols), texts=("all",) if alone else ())


def _parse_nodes(value: Field, symbols: SymbolTable) -> tuple[str, ...]:
    return tuple(word for word, name in value.names() if symbols.has_node(word, name))


def _parse_texts(value: Field, symbols: SymbolTable) -> Wanted:  # noqa: ARG001
    for item in value.items():
        if not item.at.is_scalar or item.at.value is None:
            value.report(f"takes a text, not {item.at.type_text}")
    return Wanted("", 0, texts=tuple(item.at.text for item in value.items() if item.at.is_scalar))


def _parse_codes(value: Field, symbols: SymbolTable) -> Wanted:
    for item in value.items():
        item.report_retired("code")
    return _parse_texts(value, symbols)


def _parse_by_subject(read: Callable[[Field, SymbolTable], Wanted], key: str, at: Field, symbols: SymbolTable) -> Check:
    find = symbols.target_or_object if key == "conditions" else symbols.target
    wanted: list[Wanted] = []
    for subject, value in at.entries():
        for word, name in subject.names():
            target, made = find(word, name), read(value, symbols)
            if target is not None:
                wanted.append(replace(made, target=target, line=name.at.line))
    return Check(key, at.at.line, tuple(wanted))


# -- amounts, counts and time ------------------------------------------------------------------------------------------------------


def _parse_queues(key: str, at: Field, symbols: SymbolTable) -> Check:
    wanted: list[Wanted] = []
    for queue, value in at.entries():
        queue.require_known(queue.at.text, "queue", symbols.queues)
        fields = FieldReader(value, table="queue amounts")
        amounts = tuple(
            (column, {name: amount(name, text) for name, text in fields[column].amounts()})
            for column in KEY_TABLES["queue amounts"]
            if column in fields
        )
        wanted.append(Wanted(queue.at.text, queue.at.line, amounts=amounts))
    return Check(key, at.at.line, tuple(wanted))


def _parse_writes(key: str, at: Field, symbols: SymbolTable) -> Check:
    if not at.at.is_mapping:
        return _parse_count(key, at, symbols)
    wanted: list[Wanted] = []
    for verb, value in at.entries():
        verb.require_known(verb.at.text, "verb", WRITE_VERBS)
        wanted.append(Wanted(verb.at.text, verb.at.line, count=value.count()))
    return Check(key, at.at.line, tuple(wanted))


def _parse_count(key: str, at: Field, symbols: SymbolTable) -> Check:  # noqa: ARG001
    return Check(key, at.at.line, count=at.count())


def _parse_stable(key: str, at: Field, symbols: SymbolTable) -> Check:  # noqa: ARG001
    if not at.at.is_mapping:
        return Check(key, at.at.line, count=at.count(1, least=1))
    seconds, every_s = parse_run_span(at)
    return Check(key, at.at.line, seconds=seconds, every_s=every_s)


_PARSERS: dict[str, Callable[[str, Field, SymbolTable], Check]] = {
    **dict.fromkeys(("bound", "reserved", "nominated", "pending", "finished", "evicted", "released", "bindOrder"), _parse_pods),
    **dict.fromkeys(("why", "conditions"), partial(_parse_by_subject, _parse_texts)),
    "code": partial(_parse_by_subject, _parse_codes),
    "nodes": partial(
        _parse_by_subject, lambda value, symbols: Wanted("", 0, nodes=tuple(sorted(set(_parse_nodes(value, symbols)))))
    ),
    "devices": partial(_parse_by_subject, lambda value, _: Wanted("", 0, texts=tuple(str(item.count()) for item in value.items()))),
    "stage": partial(_parse_by_subject, lambda value, _: Wanted("", 0, texts=(value.choice(STAGES, what="stage"),))),
    "attempts": partial(_parse_by_subject, lambda value, _: Wanted("", 0, count=value.count())),
    "queues": _parse_queues,
    "cycles": _parse_count,
    "writes": _parse_writes,
    "stable": _parse_stable,
}
