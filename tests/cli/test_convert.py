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
    assert f"{conf}:5: plugin sla has no counterpart: a long wait does not change the order" in result.err
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
