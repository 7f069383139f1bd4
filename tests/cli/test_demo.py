from __future__ import annotations

import pytest
from tests.cli.commands import muster

from muster.cli import demo
from muster.lab.assets import NoServerBinaries


def test_the_demo_alone_is_the_one_of_the_simulator() -> None:
    result = muster("demo")
    assert result.code == 0
    assert result.out.splitlines()[0].split("   ")[0] == muster("sim", "scenarios/demo.yaml").out.splitlines()[0].split("   ")[0]


def test_without_servers_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        def __enter__(self) -> None:
            raise NoServerBinaries("go is not here")

        def __exit__(self, *_: object) -> None:
            return None

    monkeypatch.setattr(demo, "Servers", Missing)
    result = muster("demo", "--kube")
    assert result.code == 2
    assert "no API server available: go is not here; set KUBEBUILDER_ASSETS to a folder with etcd" in result.err


def test_the_demo_runs_in_real_time() -> None:
    result = muster("demo", "--kube", "--seconds", "0")
    assert result.code == 2
    assert "--seconds: must be above 0" in result.err
