"""`muster convert`: the policy on one stream, what there is to know about it on the other."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commands import muster

CONF = """\
actions: "allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: sla
"""


def test_what_is_printed_is_a_policy_and_nothing_else(tmp_path: Path) -> None:
    conf, policy = tmp_path / "volcano-scheduler.conf", tmp_path / "policy.yaml"
    conf.write_text(CONF)
    result = muster("convert", conf)
    assert result.code == 0
    assert result.out.startswith("# Made from volcano-scheduler.conf.")
    policy.write_text(result.out)
    assert muster("check", policy).code == 0
    assert f"{conf}:5: plugin sla has no counterpart: a long wait does not change the order; nodes are kept" in result.err
    assert f"{conf}:1: action backfill was left out" in result.err


def test_a_file_that_is_no_configuration_is_shown_with_what_is_wrong(tmp_path: Path) -> None:
    conf = tmp_path / "volcano-scheduler.conf"
    conf.write_text("actions: allocate\ntier: []\n")
    result = muster("convert", conf)
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[0] == f"{conf}:2: unknown key 'tier'. Did you mean 'tiers'?"
    assert "   2 | tier: []" in result.err


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    result = muster("convert", tmp_path / "volcano-sheduler.conf")
    assert result.code == 2
    assert "no such file" in result.err


def test_notes_are_ranked_and_stand_in_the_policy_and_strict_fails_where_a_decision_changes(tmp_path: Path) -> None:
    conf = tmp_path / "volcano-scheduler.conf"
    conf.write_text(CONF)
    result = muster("convert", conf, "--strict")
    assert result.code == 1
    lines = result.err.splitlines()
    assert lines[0] == "Changes decisions:"
    assert lines.index("The same by another name:") > lines.index(
        f"{conf}:5: plugin sla has no counterpart: "
        "a long wait does not change the order; nodes are kept for a gang after reserveAfterSeconds"
    )
    assert "# - line 5: plugin sla has no counterpart" in result.out


def test_the_configuration_is_found_in_a_list_and_in_helm_values_with_its_lines(tmp_path: Path) -> None:
    inside = "".join(f"        {line}\n" for line in CONF.splitlines())
    for name, text in (
        ("values.yaml", f"basic: {{}}\ncustom:\n  scheduler_config_override: |\n{inside}"),
        ("list.yaml", f"kind: List\nitems:\n- kind: ConfigMap\n  data:\n    volcano-scheduler.conf: |\n{inside}"),
    ):
        (tmp_path / name).write_text(text)
        result = muster("convert", name, cwd=tmp_path)
        line = text.splitlines().index("          - name: sla") + 1
        assert result.code == 0, result.err
        assert f"{name}:{line}: plugin sla has no counterpart" in result.err
