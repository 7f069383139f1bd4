"""Parses `expect` into values that can be compared with the state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from muster.model.gang import Stage
from muster.model.resource_amounts import amount
from muster.scenario.field_reader import (
    FieldReader,
    parse_amounts,
    parse_count,
    parse_names,
    parse_run_span,
    report_unknown_value,
    require_known_name,
)
from muster.scenario.key_tables import key_names
from muster.scenario.literals import is_range
from muster.scenario.object_parser import ParseScope
from muster.scenario.symbol_table import is_object_name
from muster.scenario.syntax_tree import Check, ExpectStep, NamedObject, PodTarget, Wanted
from muster.yaml_positions import YamlValue

STAGES = (*(stage.value for stage in Stage), "deleted")
WRITE_VERBS = ("bind", "patch", "delete", "evict")


def parse_expect(at: YamlValue, path: str, scope: ParseScope, line: int) -> ExpectStep:
    FieldReader(at, table="expect", path=path, faults=scope.faults)
    if at.is_mapping and not at.mapping:
        scope.faults.add(at, f"{path}: expects nothing", field=path)
    checks: list[Check] = []
    for key, value in at.mapping.items():
        if key in _PARSERS:
            checks.append(_PARSERS[key](key, value, f"{path}.{key}", scope))
    # What is expected now is checked before time passes.
    return ExpectStep(line, tuple(sorted(checks, key=lambda check: check.key == "stable")))


def _parse_pods(key: str, at: YamlValue, path: str, scope: ParseScope) -> Check:
    """A list is exact: these pods and no others. A mapping is about the named ones: their number, or their nodes."""
    if at.is_mapping:
        wanted = [_parse_counts(at.keys[text], value, f"{path}.{text}", scope) for text, value in at.mapping.items()]
        return Check(key, at.line, tuple(each for some in wanted for each in some))
    items = at.items if at.is_list else (at,)
    expanded_names = [word for item in items for word in parse_names(item, field=path, faults=scope.faults)]
    found = [(_pod_target(word, mark, path, scope), mark) for word, mark in expanded_names]
    return Check(key, at.line, tuple(Wanted(target, mark.line) for target, mark in found if target is not None), exact=True)


def _parse_counts(key: YamlValue, value: YamlValue, path: str, scope: ParseScope) -> Iterator[Wanted]:
    for word, mark in parse_names(key, field=path, faults=scope.faults):
        target = _pod_target(word, mark, path, scope)
        if target is None:
            continue
        if value.is_scalar and isinstance(value.value, int) and not isinstance(value.value, bool):
            yield Wanted(target, mark.line, count=parse_count(value, field=path, faults=scope.faults))
        else:
            nodes = _parse_nodes(value, path, scope)
            alone = value.is_scalar and not is_range(value.text)
            # One node for a gang means that node for each of its members.
            yield Wanted(target, mark.line, nodes=nodes, texts=("all",) if alone else ())


def _parse_nodes_by_gang(key: str, at: YamlValue, path: str, scope: ParseScope) -> Check:
    return _parse_by_subject(
        key, at, path, scope, lambda value, place: _wanted(nodes=tuple(sorted(set(_parse_nodes(value, place, scope)))))
    )


def _parse_nodes(value: YamlValue, path: str, scope: ParseScope) -> tuple[str, ...]:
    items = value.items if value.is_list else (value,)
    expanded_names = [word for item in items for word in parse_names(item, field=path, faults=scope.faults)]
    return tuple(word for word, mark in expanded_names if scope.symbols.has_node(word, mark, field=path, faults=scope.faults))


def _parse_devices(key: str, at: YamlValue, path: str, scope: ParseScope) -> Check:
    def read(value: YamlValue, place: str) -> Wanted:
        items = value.items if value.is_list else (value,)
        return _wanted(texts=tuple(str(parse_count(item, field=place, faults=scope.faults)) for item in items))

    return _parse_by_subject(key, at, path, scope, read)


def _parse_texts(key: str, at: YamlValue, path: str, scope: ParseScope) -> Check:
    return _parse_by_subject(key, at, path, scope, lambda value, place: _wanted(texts=_parse_text_list(value, place, scope)))


def _parse_stage(key: str, at: YamlValue, path: str, scope: ParseScope) -> Check:
    def read(value: YamlValue, place: str) -> Wanted:
        if value.text not in STAGES:
            report_unknown_value(value, "stage", STAGES, field=place, faults=scope.faults)
        return _wanted(texts=(value.text,))

    return _parse_by_subject(key, at, path, scope, read)


def _parse_attempts(key: str, at: YamlValue, path: str, scope: ParseScope) -> Check:
    return _parse_by_subject(
        key, at, path, scope, lambda value, place: _wanted(count=parse_count(value, field=place, faults=scope.faults))
    )


def _wanted(*, count: int | None = None, nodes: tuple[str, ...] | None = None, texts: tuple[str, ...] = ()) -> Wanted:
    """A wanted value without its target."""
    return Wanted("", 0, count, nodes, texts)


def _parse_queue(key: str, at: YamlValue, path: str, scope: ParseScope) -> Check:
    wanted: list[Wanted] = []
    for name, value in at.mapping.items():
        place, mark = f"{path}.{name}", at.keys[name]
        require_known_name(mark, name, "queue", scope.symbols.queues, field=path, faults=scope.faults)
        fields = FieldReader(value, table="queue amounts", path=place, faults=scope.faults)
        amounts_by_column = [(column, fields.get(column)) for column in key_names("queue amounts")]
        amounts = tuple(
            (column, {name: amount(name, text) for name, text in parse_amounts(found, field=place, faults=scope.faults)})
            for column, found in amounts_by_column
            if found is not None
        )
        wanted.append(Wanted(name, mark.line, amounts=amounts))
    return Check(key, at.line, tuple(wanted))


def _parse_writes(key: str, at: YamlValue, path: str, scope: ParseScope) -> Check:
    if not at.is_mapping:
        return _parse_count(key, at, path, scope)
    wanted: list[Wanted] = []
    for name, value in at.mapping.items():
        require_known_name(at.keys[name], name, "verb", WRITE_VERBS, field=path, faults=scope.faults)
        wanted.append(Wanted(name, at.keys[name].line, count=parse_count(value, field=f"{path}.{name}", faults=scope.faults)))
    return Check(key, at.line, tuple(wanted))


def _parse_count(key: str, at: YamlValue, path: str, scope: ParseScope) -> Check:
    return Check(key, at.line, count=parse_count(at, field=path, faults=scope.faults))


def _parse_stable(key: str, at: YamlValue, path: str, scope: ParseScope) -> Check:
    if not at.is_mapping:
        return Check(key, at.line, count=parse_count(at, field=path, faults=scope.faults, least=1, default=1))
    seconds, every = parse_run_span(at, path=path, faults=scope.faults)
    return Check(key, at.line, seconds=seconds, every_s=every)


def _parse_by_subject(key: str, at: YamlValue, path: str, scope: ParseScope, read: Callable[[YamlValue, str], Wanted]) -> Check:
    if not at.is_mapping:
        scope.faults.add(at, f"{path}: takes a mapping, not {at.type_text}", field=path)
    wanted: list[Wanted] = []
    for text, value in at.mapping.items():
        for word, mark in parse_names(at.keys[text], field=path, faults=scope.faults):
            target = _parse_subject(word, mark, path, scope, objects=key == "conditions")
            made = read(value, f"{path}.{text}")
            if target is not None:
                wanted.append(replace(made, target=target, line=mark.line))
    return Check(key, at.line, tuple(wanted))


def _parse_subject(word: str, mark: YamlValue, path: str, scope: ParseScope, *, objects: bool) -> PodTarget | NamedObject | None:
    if objects and is_object_name(word):
        return scope.symbols.named_object(word, mark, field=path, faults=scope.faults)
    return _pod_target(word, mark, path, scope)


def _pod_target(word: str, mark: YamlValue, path: str, scope: ParseScope) -> PodTarget | None:
    return scope.symbols.target(word, mark, field=path, faults=scope.faults)


def _parse_text_list(value: YamlValue, path: str, scope: ParseScope) -> tuple[str, ...]:
    items = value.items if value.is_list else (value,)
    for item in items:
        if not item.is_scalar or item.value is None:
            scope.faults.add(item, f"{path}: takes a text, not {item.type_text}", field=path)
    return tuple(item.text for item in items if item.is_scalar)


_PARSERS: dict[str, Callable[[str, YamlValue, str, ParseScope], Check]] = {
    **dict.fromkeys(("bound", "reserved", "nominated", "pending", "finished", "evicted", "released", "bindOrder"), _parse_pods),
    **dict.fromkeys(("why", "code", "conditions"), _parse_texts),
    "nodes": _parse_nodes_by_gang,
    "devices": _parse_devices,
    "stage": _parse_stage,
    "queues": _parse_queue,
    "attempts": _parse_attempts,
    "cycles": _parse_count,
    "writes": _parse_writes,
    "stable": _parse_stable,
}
