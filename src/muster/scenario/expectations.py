"""Reading `expect`: what must be true, as values that can be compared with what is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from muster.model.gang import Stage
from muster.model.resources import amount
from muster.scenario.cast import is_object_name
from muster.scenario.fields import Fields, amounts_of, count_of, known_word, read_span, words_of
from muster.scenario.gangs import Reading
from muster.scenario.keys import names
from muster.scenario.story import Check, Expect, ObjectRef, Wanted, Who
from muster.scenario.words import is_range
from muster.yaml_marks import Marked

STAGES = (*(stage.value for stage in Stage), "gone")
VERBS = ("bind", "patch", "delete", "evict")


def read_expect(at: Marked, path: str, reading: Reading, line: int) -> Expect:
    Fields(at, table="expect", path=path, faults=reading.faults)
    if at.is_mapping and not at.mapping:
        reading.faults.add(at, f"{path}: expects nothing", field=path)
    checks: list[Check] = []
    for key, value in at.mapping.items():
        if key in _READERS:
            checks.append(_READERS[key](key, value, f"{path}.{key}", reading))
    # What is true now is looked at before time goes on.
    return Expect(line, tuple(sorted(checks, key=lambda check: check.key == "stable")))


def _who(key: str, at: Marked, path: str, reading: Reading) -> Check:
    """A list is exact: these and no others. A mapping speaks of those it names: how many of them, or where."""
    if at.is_mapping:
        wanted = [_counted(at.keys[text], value, f"{path}.{text}", reading) for text, value in at.mapping.items()]
        return Check(key, at.line, tuple(each for some in wanted for each in some))
    items = at.items if at.is_list else (at,)
    words = [word for item in items for word in words_of(item, field=path, faults=reading.faults)]
    found = [(_look_up(word, mark, path, reading), mark) for word, mark in words]
    return Check(key, at.line, tuple(Wanted(who, mark.line) for who, mark in found if who is not None), exact=True)


def _counted(key: Marked, value: Marked, path: str, reading: Reading) -> Iterator[Wanted]:
    for word, mark in words_of(key, field=path, faults=reading.faults):
        who = _look_up(word, mark, path, reading)
        if who is None:
            continue
        if value.is_scalar and isinstance(value.value, int) and not isinstance(value.value, bool):
            yield Wanted(who, mark.line, count=count_of(value, field=path, faults=reading.faults))
        else:
            nodes = _nodes(value, path, reading)
            alone = value.is_scalar and not is_range(value.text)
            # One node for a gang means that node for each of its members.
            yield Wanted(who, mark.line, nodes=nodes, texts=("all",) if alone else ())


def _where(key: str, at: Marked, path: str, reading: Reading) -> Check:
    return _by_subject(key, at, path, reading, lambda value, place: _made(nodes=tuple(sorted(set(_nodes(value, place, reading))))))


def _nodes(value: Marked, path: str, reading: Reading) -> tuple[str, ...]:
    items = value.items if value.is_list else (value,)
    words = [word for item in items for word in words_of(item, field=path, faults=reading.faults)]
    return tuple(word for word, mark in words if reading.cast.node(word, mark, field=path, faults=reading.faults))


def _devices(key: str, at: Marked, path: str, reading: Reading) -> Check:
    def read(value: Marked, place: str) -> Wanted:
        items = value.items if value.is_list else (value,)
        return _made(texts=tuple(str(count_of(item, field=place, faults=reading.faults)) for item in items))

    return _by_subject(key, at, path, reading, read)


def _texts(key: str, at: Marked, path: str, reading: Reading) -> Check:
    return _by_subject(key, at, path, reading, lambda value, place: _made(texts=_listed(value, place, reading)))


def _stage(key: str, at: Marked, path: str, reading: Reading) -> Check:
    def read(value: Marked, place: str) -> Wanted:
        known_word(value, value.text, "stage", STAGES, field=place, faults=reading.faults)
        return _made(texts=(value.text,))

    return _by_subject(key, at, path, reading, read)


def _attempts(key: str, at: Marked, path: str, reading: Reading) -> Check:
    return _by_subject(
        key, at, path, reading, lambda value, place: _made(count=count_of(value, field=place, faults=reading.faults))
    )


def _made(*, count: int | None = None, nodes: tuple[str, ...] | None = None, texts: tuple[str, ...] = ()) -> Wanted:
    """What is wanted, before it is known of whom."""
    return Wanted("", 0, count, nodes, texts)


def _queue(key: str, at: Marked, path: str, reading: Reading) -> Check:
    wanted: list[Wanted] = []
    for name, value in at.mapping.items():
        place, mark = f"{path}.{name}", at.keys[name]
        known_word(mark, name, "queue", reading.cast.queues, field=path, faults=reading.faults)
        fields = Fields(value, table="figures", path=place, faults=reading.faults)
        figures = [(figure, fields.get(figure)) for figure in names("figures")]
        amounts = tuple(
            (figure, {name: amount(name, text) for name, text in amounts_of(found, field=place, faults=reading.faults)})
            for figure, found in figures
            if found is not None
        )
        wanted.append(Wanted(name, mark.line, amounts=amounts))
    return Check(key, at.line, tuple(wanted))


def _writes(key: str, at: Marked, path: str, reading: Reading) -> Check:
    if not at.is_mapping:
        return _count(key, at, path, reading)
    wanted: list[Wanted] = []
    for name, value in at.mapping.items():
        known_word(at.keys[name], name, "verb", VERBS, field=path, faults=reading.faults)
        wanted.append(Wanted(name, at.keys[name].line, count=count_of(value, field=f"{path}.{name}", faults=reading.faults)))
    return Check(key, at.line, tuple(wanted))


def _count(key: str, at: Marked, path: str, reading: Reading) -> Check:
    return Check(key, at.line, count=count_of(at, field=path, faults=reading.faults))


def _stable(key: str, at: Marked, path: str, reading: Reading) -> Check:
    if not at.is_mapping:
        return Check(key, at.line, count=count_of(at, field=path, faults=reading.faults, least=1, default=1))
    seconds, every = read_span(at, path=path, faults=reading.faults)
    return Check(key, at.line, seconds=seconds, every_s=every)


def _by_subject(key: str, at: Marked, path: str, reading: Reading, read: Callable[[Marked, str], Wanted]) -> Check:
    if not at.is_mapping:
        reading.faults.add(at, f"{path}: takes a mapping, not {at.shape}", field=path)
    wanted: list[Wanted] = []
    for text, value in at.mapping.items():
        for word, mark in words_of(at.keys[text], field=path, faults=reading.faults):
            who = _subject(word, mark, path, reading, objects=key == "condition")
            made = read(value, f"{path}.{text}")
            if who is not None:
                wanted.append(replace(made, who=who, line=mark.line))
    return Check(key, at.line, tuple(wanted))


def _subject(word: str, mark: Marked, path: str, reading: Reading, *, objects: bool) -> Who | ObjectRef | None:
    if objects and is_object_name(word):
        return reading.cast.object(word, mark, field=path, faults=reading.faults)
    return _look_up(word, mark, path, reading)


def _look_up(word: str, mark: Marked, path: str, reading: Reading) -> Who | None:
    return reading.cast.who(word, mark, field=path, faults=reading.faults)


def _listed(value: Marked, path: str, reading: Reading) -> tuple[str, ...]:
    items = value.items if value.is_list else (value,)
    for item in items:
        if not item.is_scalar or item.value is None:
            reading.faults.add(item, f"{path}: takes a text, not {item.shape}", field=path)
    return tuple(item.text for item in items if item.is_scalar)


_READERS: dict[str, Callable[[str, Marked, str, Reading], Check]] = {
    **dict.fromkeys(("bound", "held", "nominated", "pending", "finished", "evicted", "released", "order"), _who),
    **dict.fromkeys(("why", "code", "condition"), _texts),
    "where": _where,
    "devices": _devices,
    "stage": _stage,
    "queue": _queue,
    "attempts": _attempts,
    "cycles": _count,
    "writes": _writes,
    "stable": _stable,
}
