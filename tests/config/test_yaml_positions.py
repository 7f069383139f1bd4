"""YAML with positions: what is read, what is refused, and how an error looks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.yaml_positions import InputError, InputFault, InputFaults, YamlValue, nearest, yaml_value
from muster.yaml_reader import read_yaml, read_yaml_documents


def errors_of(text: str) -> list[str]:
    with pytest.raises(InputError) as raised:
        read_yaml(text, file="f.yaml")
    return [str(fault) for fault in raised.value.faults]


def test_every_value_and_every_key_knows_its_line_and_column() -> None:
    root = read_yaml("a: 1\nlist:\n- x\n- {deep: [true]}\n", file="f.yaml")
    assert (root.line, root.column) == (1, 1)
    assert (root.keys["list"].line, root.keys["list"].column) == (2, 1)
    deep = root.mapping["list"].items[1].mapping["deep"]
    assert (deep.line, deep.column, deep.width) == (4, 10, 6)
    assert root.plain() == {"a": 1, "list": ["x", {"deep": [True]}]}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("1_000", 1000),
        ("0x1F", 31),
        ("0b11", 3),
        ("010", 8),
        ("08", "08"),
        ("2.5", 2.5),
        ("1e3", 1000.0),
        ("-.5e-2", -0.005),
        (".inf", float("inf")),
        ("1:30", "1:30"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("1.2.3", "1.2.3"),
        ("4Gi", "4Gi"),
        ("no", False),
        ("'no'", "no"),
        ('"1e3"', "1e3"),
        ("~", None),
        ("", None),
        ("|\n  two\n  lines", "two\nlines"),
        ("!!str 12", "12"),
    ],
)
def test_scalars_are_what_kubernetes_tools_read(written: str, value: object) -> None:
    assert read_yaml(f"key: {written}", file="f.yaml").mapping["key"].value == value


def test_a_number_remembers_how_it_was_written() -> None:
    assert read_yaml("version: 1.10", file="f.yaml").mapping["version"].text == "1.10"


def test_anchors_aliases_and_merges_are_followed() -> None:
    root = read_yaml("base: &base {x: 1, y: 2}\nother: {<<: *base, y: 3}\nboth: {<<: [*base, {z: 4}]}\n", file="f.yaml")
    assert root.mapping["other"].plain() == {"x": 1, "y": 3}
    assert root.mapping["both"].plain() == {"x": 1, "y": 2, "z": 4}
    assert root.mapping["other"].keys["x"].line == 1


def test_all_bad_keys_are_reported_at_once() -> None:
    assert errors_of("a: 1\na: 2\non: 3\n? [x]\n: 4\n~: 5\n") == [
        "f.yaml:2: key 'a' is given twice, first on line 1",
        "f.yaml:3: YAML reads the key on as a boolean: write it in quotes, 'on'",
        "f.yaml:4: a key must be a text, not a list",
        "f.yaml:6: a key must be a text, not nothing",
    ]


def test_a_quoted_key_is_a_text_whatever_it_says() -> None:
    assert read_yaml("'on': 1\n\"no\": 2\n", file="f.yaml").plain() == {"on": 1, "no": 2}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: &x [*x]", "f.yaml:1: an alias may not contain itself"),
        ("a: *nowhere", "f.yaml:1: no anchor &nowhere comes before this alias"),
        ("a: {<<: 3}", "f.yaml:1: `<<` takes a mapping, not the number 3"),
        ("a: 1\n---\nb: 2\n", "f.yaml:3: only one YAML document is read here"),
        ("a: !!int many", "f.yaml:1: 'many' is not what its tag int says"),
        ("[" * 100_000, "f.yaml:1: nested more than 100 levels deep"),
        ("a: b: c", "f.yaml:1: this is no YAML: mapping values are not allowed in this context"),
        ("a\n\0", "f.yaml:2: this is no YAML: control characters are not allowed"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text: str, fault: str) -> None:
    assert errors_of(text) == [fault]


def test_aliases_cannot_blow_a_small_file_up() -> None:
    lines = ["a0: &a0 [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert errors_of("\n".join(lines)) == ["f.yaml:7: more than 2000000 values once all aliases are followed"]


def test_a_stream_of_documents_leaves_out_the_empty_ones() -> None:
    assert [document.plain() for document in read_yaml_documents("---\n---\na: 1\n---\n# nothing\n---\nb: 2\n", file="f")] == [
        {"a": 1},
        {"b": 2},
    ]
    assert read_yaml("", file="f").value is None


def test_an_error_shows_two_lines_and_a_caret_line() -> None:
    source = "policy:\n  plugins:\n  - proportions: {overcommit: 1.2}\n"
    root = read_yaml(source, file="policy.yaml")
    faults = InputFaults("policy.yaml")
    [item] = root.mapping["policy"].mapping["plugins"].items
    faults.unknown(item.keys["proportions"], "plugin", ["proportion", "priority"], field="plugins[0]")
    with pytest.raises(InputError) as raised:
        faults.raise_any()
    error = raised.value
    assert error.render(source) == (
        "policy.yaml:3: unknown plugin 'proportions'. Did you mean 'proportion'?\n"
        "   2 |   plugins:\n"
        "   3 |   - proportions: {overcommit: 1.2}\n"
        "     |     ^^^^^^^^^^^"
    )
    (fault,) = error.faults
    assert (fault.file, fault.line, fault.column) == ("policy.yaml", 3, 5)
    assert (fault.field, fault.value, fault.suggestion) == ("plugins[0]", "proportions", "proportion")
    assert fault.message == "unknown plugin 'proportions'"


def test_without_a_source_an_error_is_one_line() -> None:
    assert InputFault("wrong", file="f", line=7).render() == "f:7: wrong"


def test_a_value_over_several_lines_is_underlined_to_the_end_of_its_first() -> None:
    source = "a:\n  b: [1,\n    2]\n"
    where = read_yaml(source, file="f").mapping["a"].mapping["b"]
    faults = InputFaults("f")
    faults.add(where, "wrong")
    assert next(iter(faults)).render(source).splitlines()[-1] == "     |      ^^^"


def test_errors_are_reported_in_the_order_of_the_file() -> None:
    faults = InputFaults("f")
    faults.add(YamlValue("b", 9, 1), "later")
    faults.add(YamlValue("a", 2, 5), "sooner")
    with pytest.raises(InputError) as raised:
        faults.raise_any()
    assert [fault.message for fault in raised.value.faults] == ["sooner", "later"]


def test_no_faults_raise_nothing() -> None:
    faults = InputFaults("f")
    faults.raise_any()
    assert len(faults) == 0


@pytest.mark.parametrize(
    ("word", "meant"), [("proportions", "proportion"), ("minRuntime", "min-runtime"), ("FIT", "fit"), ("zzz", ""), ("", "")]
)
def test_the_nearest_word_is_found_whatever_its_spelling(word: str, meant: str) -> None:
    assert nearest(word, ["proportion", "min-runtime", "fit"]) == meant


def test_a_word_like_no_other_is_answered_with_all_that_are_known() -> None:
    faults = InputFaults("f")
    faults.unknown(YamlValue("zzz", text="zzz"), "action", ["expire", "allocate"])
    assert [fault.message for fault in faults] == ["unknown action 'zzz'; known: allocate, expire"]


def test_plain_data_can_be_read_like_a_file() -> None:
    data = {"a": [1, {"b": None}], "c": True}
    assert yaml_value(data).plain() == data
    with pytest.raises(TypeError, match="set is nothing that YAML could hold"):
        yaml_value({"a": {1, 2}})


@given(st.text(alphabet="ab:-[]{},&*!|>'\"#%@?~ \n\t\r\u2028é😀\0", max_size=40))
@settings(max_examples=300, deadline=None)
def test_whatever_is_written_it_is_read_or_refused_with_a_line_that_exists(text: str) -> None:
    try:
        read_yaml(text, file="f.yaml").plain()
    except InputError as error:
        for fault in error.faults:
            assert 1 <= fault.line <= text.count("\n") + text.count("\r") + text.count("\u2028") + 1
            assert fault.render(text).startswith(f"f.yaml:{fault.line}: ")
