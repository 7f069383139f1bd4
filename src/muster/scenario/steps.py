"""Reading steps: what happens in a scenario, one thing after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from muster.adapters.sim.manifests import BadManifest, ref_of
from muster.scenario.cast import is_manifest, is_object_name
from muster.scenario.expectations import read_expect
from muster.scenario.fields import EVERY_S, Fields, amounts_of, count_of, duration_of, read_span, words_of
from muster.scenario.gangs import Reading, read_gang, read_node, taint_of
from muster.scenario.keys import names
from muster.scenario.story import (
    Advance,
    Crash,
    Cycle,
    Delete,
    Edit,
    Fail,
    GangSpec,
    Manifest,
    NodeStep,
    ObjectRef,
    Restart,
    Run,
    Scale,
    Step,
    Submit,
    Who,
    Written,
)
from muster.yaml_marks import Faults, Marked

BARE = ("cycle", "restart")
"""Steps that may stand as a word alone."""


def read_step(at: Marked, *, path: str, reading: Reading) -> Step | None:
    if at.is_scalar and at.text in BARE:
        at = Marked({at.text: Marked(None, at.line, at.column)}, at.line, at.column, keys={at.text: at})
    if not at.is_mapping or len(at.mapping) != 1:
        what = f"{len(at.mapping)} keys" if at.is_mapping else at.shape
        reading.faults.add(at, f"{path}: a step has one key, such as cycle or expect, not {what}", field=path)
        return None
    (key,) = at.mapping
    if key not in names("step"):
        reading.faults.unknown(at.keys[key], "step", names("step"), field=path)
        return None
    return _READERS[key](at.mapping[key], f"{path}.{key}", reading, at.keys[key].line)


def _submit(at: Marked, path: str, reading: Reading, line: int) -> Submit:
    gangs: list[GangSpec] = []
    objects: list[Written] = []
    for i, item in enumerate(at.items if at.is_list else (at,)):
        place = f"{path}[{i}]" if at.is_list else path
        if is_manifest(item):
            objects.extend(read_object(item, path=place, faults=reading.faults))
        else:
            gangs.extend(read_gang(item, path=place, reading=reading))
    return Submit(line, tuple(gangs), tuple(objects))


def read_object(at: Marked, *, path: str, faults: Faults) -> Iterator[Written]:
    """A manifest, with annotations as texts. Only what no API server would take is a fault; the rest is the scheduler's concern."""
    plain = at.plain()
    if not isinstance(plain, dict):
        faults.add(at, f"{path}: takes a Kubernetes manifest, not {at.shape}", field=path)
        return
    try:
        ref_of(plain)
    except BadManifest as bad:
        faults.add(at, f"{path}: {bad}", field=path)
        return
    metadata = at.mapping["metadata"]
    annotations = metadata.mapping.get("annotations")
    if annotations is not None and annotations.is_mapping:
        plain["metadata"]["annotations"] = {key: _text(value) for key, value in annotations.mapping.items()}
    yield Written(plain, at.line)


def _text(value: Marked) -> str:
    if isinstance(value.value, str):
        return value.value
    if isinstance(value.value, int | float) and not isinstance(value.value, bool):
        return value.text
    return json.dumps(value.plain())


def _delete(at: Marked, path: str, reading: Reading, line: int) -> Delete:
    targets: list[Who | ObjectRef] = []
    for item in at.items if at.is_list else (at,):
        for word, mark in words_of(item, field=path, faults=reading.faults):
            found = target_of(word, mark, path, reading)
            if found is not None:
                targets.append(found)
    return Delete(line, tuple(targets))


def target_of(word: str, at: Marked, path: str, reading: Reading) -> Who | ObjectRef | None:
    look_up = reading.cast.object if is_object_name(word) else reading.cast.who
    return look_up(word, at, field=path, faults=reading.faults)


def _scale(at: Marked, path: str, reading: Reading, line: int) -> Scale:
    if not at.is_mapping:
        reading.faults.add(at, f"{path}: takes gang: count, not {at.shape}", field=path)
    to: list[tuple[Who, int]] = []
    for text, value in at.mapping.items():
        who = reading.cast.who(text, at.keys[text], field=path, faults=reading.faults)
        count = count_of(value, field=f"{path}.{text}", faults=reading.faults)
        if who is not None and who.pod:
            reading.faults.add(at.keys[text], f"{path}: {text!r} is one pod, not a gang", field=path)
        elif who is not None:
            to.append((who, count))
    return Scale(line, tuple(to))


def _cycle(at: Marked, path: str, reading: Reading, line: int) -> Cycle:
    return Cycle(line, 1 if at.value is None else count_of(at, field=path, faults=reading.faults, least=1, default=1))


def _advance(at: Marked, path: str, reading: Reading, line: int) -> Advance:
    return Advance(line, duration_of(at, field=path, faults=reading.faults, default=0.0))


def _run(at: Marked, path: str, reading: Reading, line: int) -> Run:
    if at.is_scalar:
        return Run(line, duration_of(at, field=path, faults=reading.faults, default=0.0), EVERY_S)
    return Run(line, *read_span(at, path=path, faults=reading.faults))


def _node(at: Marked, path: str, reading: Reading, line: int) -> NodeStep | None:
    fields = Fields(at, table="node step", path=path, faults=reading.faults)
    verbs = [verb for verb in names("node step") if verb in fields]
    if len(verbs) != 1:
        reading.faults.add(at, f"{path}: takes one of {', '.join(names('node step'))}", field=path)
        return None
    verb = verbs[0]
    if verb == "add":
        added = (read_node(item, path=place, reading=reading) for place, item in fields.items("add"))
        return NodeStep(line, verb, nodes=tuple(node for nodes in added for node in nodes))
    if verb in ("taint", "label", "resize"):
        return NodeStep(line, verb, changes=tuple(_changes(fields, verb, reading)))
    known = [word for word, mark in fields.words(verb) if _is_node(word, mark, fields.field(verb), reading)]
    return NodeStep(line, verb, names=tuple(known))


def _changes(fields: Fields, verb: str, reading: Reading) -> Iterator[tuple[str, Manifest]]:
    for key, value in fields.entries(verb):
        place = f"{fields.field(verb)}.{key.text}"
        change = _change(verb, value, place, reading)
        for word, mark in words_of(key, field=place, faults=reading.faults):
            if _is_node(word, mark, place, reading):
                yield word, change


def _change(verb: str, value: Marked, place: str, reading: Reading) -> Manifest:
    """A merge patch of the Node."""
    if verb == "taint":
        items = value.items if value.is_list else () if value.value is None else (value,)
        return {"spec": {"taints": [taint for item in items for taint in taint_of(item, field=place, faults=reading.faults)]}}
    if verb == "resize":
        room = dict(amounts_of(value, field=place, faults=reading.faults))
        return {"status": {"allocatable": room, "capacity": room}}
    if not value.is_mapping:
        reading.faults.add(value, f"{place}: takes a mapping of labels, not {value.shape}", field=place)
    labels = {key: None if label.value is None else label.text for key, label in value.mapping.items()}
    return {"metadata": {"labels": labels}}


def _is_node(word: str, mark: Marked, field: str, reading: Reading) -> bool:
    return reading.cast.node(word, mark, field=field, faults=reading.faults)


def _fail(at: Marked, path: str, reading: Reading, line: int) -> Fail:
    fields = Fields(at, table="fail step", path=path, faults=reading.faults)
    if "bind" not in fields and "evict" not in fields:
        reading.faults.add(at, f"{path}: takes bind or evict, with gangs or members", field=path)
    found = {key: [_who(word, mark, fields.field(key), reading) for word, mark in fields.words(key)] for key in ("bind", "evict")}
    bind, evict = (tuple(who for who in found[key] if who is not None) for key in ("bind", "evict"))
    return Fail(line, bind, evict, fields.count("times", 1, least=1))


def _who(word: str, mark: Marked, path: str, reading: Reading) -> Who | None:
    return reading.cast.who(word, mark, field=path, faults=reading.faults)


def _restart(at: Marked, path: str, reading: Reading, line: int) -> Restart:
    if at.value is not None and not (at.is_mapping and not at.mapping):
        reading.faults.add(at, f"{path}: takes nothing", field=path)
    return Restart(line)


def _crash(at: Marked, path: str, reading: Reading, line: int) -> Crash:
    return Crash(line, count_of(at, field=path, faults=reading.faults))


def _edit(at: Marked, path: str, reading: Reading, line: int) -> Edit | None:
    fields = Fields(at, table="edit", path=path, faults=reading.faults)
    for key in ("object", "patch"):
        if key not in fields:
            fields.lacks(key)
    mark = fields.get("object")
    found = None if mark is None else reading.cast.object(mark.text, mark, field=fields.field("object"), faults=reading.faults)
    return None if found is None else Edit(line, found, fields.mapping("patch"))


_READERS: dict[str, Callable[[Marked, str, Reading, int], Step | None]] = {
    "submit": _submit,
    "delete": _delete,
    "scale": _scale,
    "cycle": _cycle,
    "advance": _advance,
    "run": _run,
    "node": _node,
    "fail": _fail,
    "restart": _restart,
    "crash": _crash,
    "edit": _edit,
    "expect": read_expect,
}
