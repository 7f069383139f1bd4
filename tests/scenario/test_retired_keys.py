"""A retired key or value is reported with the present one and its line."""

from __future__ import annotations

import pytest
from tests.scenario.inline_scenarios import load_error

from muster.scenario.key_tables import KEY_TABLES, RETIRED_KEYS, RETIRED_VALUES

TEMPLATES = {
    "scenario": "name: a\n{key}: []\n",
    "node": "name: a\nnodes: [{{name: n1, {key}: x}}]\n",
    "device": "name: a\nnodes: [{{name: n1, devices: [{{{key}: x}}]}}]\n",
    "priority class": "name: a\npriorityClasses: [{{name: high, value: 1, {key}: x}}]\n",
    "gang": "name: a\ngangs: [{{name: g, {key}: x}}]\n",
    "role": "name: a\ngangs: [{{name: g, roles: [{{name: r, {key}: x}}]}}]\n",
    "faults": "name: a\nfaults: {{{key}: 0.5}}\n",
    "step": "name: a\nsteps: [{{{key}: {{}}}}]\n",
    "node step": "name: a\nsteps: [{{node: {{{key}: n1}}}}]\n",
    "patch": "name: a\nsteps: [{{patch: {{object: Queue/q, {key}: {{}}}}}}]\n",
    "expect": "name: a\nsteps: [{{expect: {{{key}: x}}}}]\n",
    "queue amounts": "name: a\nqueues: [{{name: q}}]\nsteps: [{{expect: {{queues: {{q: {{{key}: {{}}}}}}}}}}]\n",
}
RETIRED = [(table, old, new) for table, keys in RETIRED_KEYS.items() for old, new in keys.items() if new in KEY_TABLES[table]]


@pytest.mark.parametrize(("table", "old", "new"), RETIRED, ids=[f"{table}: {old}" for table, old, _ in RETIRED])
def test_a_retired_key_is_told_its_present_name(table: str, old: str, new: str) -> None:
    text = TEMPLATES[table].format(key=old)
    (fault,) = [fault for fault in load_error(text).faults if fault.value == old]
    assert fault.message == f"{old!r} is now {new!r}"
    assert fault.suggestion == new
    assert fault.line == next(number for number, line in enumerate(text.splitlines(), start=1) if old in line)


VALUES = {
    "apiFlavour": "name: a\ngangs: [{{name: g, apiFlavour: {value}}}]\n",
    "code": "name: a\ngangs: [{{name: g}}]\nsteps: [{{expect: {{code: {{g: {value}}}}}}}]\n",
    "preemptionPolicy": "name: a\npriorityClasses: [{{name: high, value: 1, preemptionPolicy: {value}}}]\n",
    "stage": "name: a\ngangs: [{{name: g}}]\nsteps: [{{expect: {{stage: {{g: {value}}}}}}}]\n",
}
RETIRED_OF_KEY = [(key, old, new) for key, values in RETIRED_VALUES.items() for old, new in values.items()]


@pytest.mark.parametrize(("key", "old", "new"), RETIRED_OF_KEY)
def test_a_retired_value_is_told_its_present_form(key: str, old: str, new: str) -> None:
    (fault,) = load_error(VALUES[key].format(value=old)).faults
    assert fault.message.endswith(f"{old!r} is now {new!r}")
    assert fault.suggestion == new


@pytest.mark.parametrize(("old", "new"), [("hard", "mode: hard"), ("soft", "mode: soft")])
def test_a_retired_topology_is_told_its_present_form(old: str, new: str) -> None:
    faults = load_error(f"name: a\ngangs: [{{name: g, networkTopology: {{{old}: 1}}}}]\n").faults
    assert [fault.message for fault in faults] == [f"{old!r} is now {new!r}"]


def test_a_present_key_is_never_a_retired_one_of_its_table() -> None:
    for table, retired in RETIRED_KEYS.items():
        assert not set(KEY_TABLES[table]) & set(retired)
