from __future__ import annotations

from pathlib import Path

from tests.cli.commands import muster

GOOD = """\
schedulerNames: [muster, other]
actions: [expire, allocate, gang-preempt]
plugins:
- priority
- fit
- binpack: {weight: 2}
settings: {defaultPermitWaitSeconds: 90}
"""


def test_a_policy_is_shown_on_one_screen(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    result = muster("check", "good.yaml", cwd=tmp_path)
    assert result.code == 0
    assert result.out.startswith("good.yaml: OK\n")
    assert "pods whose schedulerName is muster, other" in result.out
    assert "3.  gang-preempt  Evicts for a gang that did not fit" in result.out
    assert " binpack   score          Fill nodes up before opening new ones" in result.out
    assert "weight: 2, resources: {cpu: 1" in result.out
    assert "defaultPermitWaitSeconds: 90" in result.out
    assert len(result.out.splitlines()) < 40


def test_a_filter_that_is_left_out_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    result = muster("check", "good.yaml", cwd=tmp_path)
    assert " warning   the plugin unschedulable is left out: cordoned nodes are used\n" in result.out
    assert " warning   the plugin taints is left out: NoSchedule and NoExecute taints are ignored\n" in result.out
    (policy,) = muster("check", "good.yaml", "--json", cwd=tmp_path).document["policies"]
    assert "the plugin selectors is left out: node selectors and required node affinity are ignored" in policy["warnings"]


def test_without_a_file_the_default_policy_is_shown() -> None:
    result = muster("check")
    assert result.code == 0
    assert result.out.startswith("the default policy: OK\n")
    assert "warning" not in result.out


def test_all_errors_are_reported_and_valid_files_beside_them_too(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text("plugins:\n- priority\n- proportions: {strict: true}\nactons: [allocate]\n")
    result = muster("check", "bad.yaml", "good.yaml", "nowhere.yaml", cwd=tmp_path)
    assert result.code == 2
    assert "good.yaml: OK" in result.out
    assert (
        "bad.yaml:3: unknown plugin 'proportions'. Did you mean 'proportion'?\n"
        "   2 | - priority\n"
        "   3 | - proportions: {strict: true}\n"
        "     |   ^^^^^^^^^^^\n"
    ) in result.err
    assert "bad.yaml:4: unknown key 'actons'. Did you mean 'actions'?" in result.err
    assert "nowhere.yaml: no such file" in result.err


def test_a_scenario_is_not_a_policy(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text("name: a\nnodes: []\nsteps: []\n")
    result = muster("check", "scenario.yaml", cwd=tmp_path)
    assert result.code == 2
    assert "this is a scenario, not a policy: try `muster sim scenario.yaml`" in result.err


def test_json_has_the_policy_or_the_errors(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text("plugins: [fits]\n")
    document = muster("check", "good.yaml", "--json", cwd=tmp_path).document
    assert document["ok"] is True
    (policy,) = document["policies"]
    assert policy["actions"] == ["expire", "allocate", "gang-preempt"]
    assert policy["plugins"][2]["options"]["weight"] == 2
    assert policy["settings"]["defaultPermitWaitSeconds"] == 90
    bad = muster("check", "bad.yaml", "--json", cwd=tmp_path)
    assert bad.code == 2
    assert bad.document["errors"][0]["suggestion"] == "fit"
