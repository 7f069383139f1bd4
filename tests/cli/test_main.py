from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commands import SMALL_SCENARIO, muster, process

from muster import __version__
from muster.cli import BUG, run, sim


def test_the_version_is_printed() -> None:
    result = process("--version")
    assert (result.code, result.out) == (0, f"muster {__version__}\n")


def test_help_names_every_command() -> None:
    result = process("--help")
    assert result.code == 0
    for command in ("sim", "replay", "check", "bench"):
        assert f"\n  {command} " in result.out


def test_help_answers_at_once_because_it_loads_little() -> None:
    """Modules are counted, not seconds: 150 of them take half a second on any machine of today."""
    script = "import sys; from muster.cli import run; run(['--help']); print('loaded', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()[1:]
    assert not [name for name in loaded if name.startswith("muster.") and not name.startswith("muster.cli")]
    assert "numpy" not in loaded
    assert "rich.console" not in loaded
    assert len(loaded) < 250


def test_without_a_command_there_is_help() -> None:
    result = muster()
    assert "Usage: muster" in result.out + result.err


@pytest.mark.parametrize("command", ["sim", "replay", "check", "bench"])
def test_every_command_has_help(command: str) -> None:
    result = muster(command, "--help")
    assert result.code == 0
    assert "--json" in result.out


def test_completion_is_offered() -> None:
    assert "--install-completion" in muster("--help").out


def test_a_bug_is_one_line_and_how_to_report_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sim, "_scenarios", None)
    assert run(["sim", "x.yaml"]) == BUG
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("muster: internal error (a bug in Muster): TypeError: 'NoneType' object is not callable (sim.py:")
    assert second == "Please report it with the input and the output of: muster --debug sim x.yaml"
    with pytest.raises(TypeError):
        run(["sim", "x.yaml", "--debug"])


def test_a_plugin_that_fails_is_its_authors(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "class Mine:\n    name = 'mine'\n    def gang_key(self, s, gang):\n        return gang.nothing\n"
    )
    (tmp_path / "policy.yaml").write_text("plugins: [fit, './mine.py:Mine']\n")
    (tmp_path / "small.yaml").write_text(SMALL_SCENARIO)
    result = muster("sim", "small.yaml", "--policy", "policy.yaml", cwd=tmp_path)
    assert result.code == 2
    assert result.err.startswith(
        "muster: a plugin failed in gang_key: AttributeError: 'Gang' object has no attribute 'nothing' (mine.py:4)"
    )
    assert "--debug sim small.yaml" in result.err


def test_ctrl_c_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(sim, "simulate", interrupted)
    assert run(["sim", "x.yaml"]) == 130


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = f"{sys.executable} -m muster sim --generate nodes=5,gangs=5,events=5 --json | head -n 1"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=100)
    assert done.stdout == "{\n"
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.parametrize("form", ["wide", "json"])
def test_a_reader_that_closes_our_output_is_no_failure(tmp_path: Path, form: str) -> None:
    (tmp_path / "small.yaml").write_text(SMALL_SCENARIO)
    command = [sys.executable, "-m", "muster", "gangs", "-c", "small.yaml", "-o", form]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        complaint = running.stderr.read()
    assert (running.returncode, complaint) == (0, b"")
