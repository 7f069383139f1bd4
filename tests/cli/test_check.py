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
settings: {defaultWaitSeconds: 90}
"""


def test_a_policy_is_told_on_one_screen(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    ran = muster("check", "good.yaml", cwd=tmp_path)
    assert ran.code == 0
    assert ran.out.startswith("good.yaml: OK\n")
    assert "pods whose schedulerName is muster, other" in ran.out
    assert "3.  gang-preempt  make room for a whole gang" in ran.out
    assert " binpack   score         Fill nodes up before opening new ones" in ran.out
    assert "weight: 2, resources: {cpu: 1" in ran.out
    assert "defaultWaitSeconds: 90" in ran.out
    assert len(ran.out.splitlines()) < 40


def test_without_a_file_the_default_policy_is_shown() -> None:
    ran = muster("check")
    assert ran.code == 0
    assert ran.out.startswith("the default policy: OK\n")


def test_all_that_is_wrong_is_told_and_good_files_beside_it_too(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text("plugins:\n- priority\n- proportions: {strict: true}\nactons: [allocate]\n")
    ran = muster("check", "bad.yaml", "good.yaml", "nowhere.yaml", cwd=tmp_path)
    assert ran.code == 2
    assert "good.yaml: OK" in ran.out
    assert (
        "bad.yaml:3: unknown plugin 'proportions'. Did you mean 'proportion'?\n"
        "   2 | - priority\n"
        "   3 | - proportions: {strict: true}\n"
        "     |   ^^^^^^^^^^^\n"
    ) in ran.err
    assert "bad.yaml:4: unknown key 'actons'. Did you mean 'actions'?" in ran.err
    assert "nowhere.yaml: there is no such file" in ran.err


def test_a_scenario_is_not_a_policy(tmp_path: Path) -> None:
    (tmp_path / "story.yaml").write_text("name: a\nnodes: []\nsteps: []\n")
    ran = muster("check", "story.yaml", cwd=tmp_path)
    assert ran.code == 2
    assert "this is a scenario, not a policy: try `muster sim story.yaml`" in ran.err


def test_json_has_the_policy_or_the_errors(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text("plugins: [fits]\n")
    document = muster("check", "good.yaml", "--json", cwd=tmp_path).document
    assert document["ok"] is True
    (policy,) = document["policies"]
    assert policy["actions"] == ["expire", "allocate", "gang-preempt"]
    assert policy["plugins"][2]["options"]["weight"] == 2
    assert policy["settings"]["defaultWaitSeconds"] == 90
    bad = muster("check", "bad.yaml", "--json", cwd=tmp_path)
    assert bad.code == 2
    assert bad.document["errors"][0]["suggestion"] == "fit"
