"""What a user installs: the wheel alone, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from contextlib import chdir
from pathlib import Path

import pytest
from hatchling.build import build_wheel

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    with chdir(ROOT):
        return folder / build_wheel(str(folder))


def test_the_distribution_is_muster_scheduler_and_the_commands_are_muster_and_kubectl_muster(wheel: Path) -> None:
    assert wheel.name.startswith("muster_scheduler-")
    with zipfile.ZipFile(wheel) as archive:
        (entry_points,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        lines = archive.read(entry_points).decode().splitlines()
    assert lines == ["[console_scripts]", "kubectl-muster = muster.cli:main", "muster = muster.cli:main"]


def test_the_demo_and_the_generator_run_from_the_wheel_in_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    installed, empty = tmp_path / "installed", tmp_path / "empty"
    empty.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    for arguments, begins in (
        (["demo"], " two hours on 512 GPUs"),
        (["sim", "--generate", "nodes=5,gangs=3,events=5,seed=7", "--no-timeline"], " "),
        (["check"], ""),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "muster", *arguments],
            cwd=empty,
            env={**os.environ, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(begins)
    assert not list(empty.iterdir())
