from __future__ import annotations

import pytest
from tests.cli.commands import muster

from muster.cli import demo
from muster.lab.assets import NoServers


def test_the_demo_alone_is_the_one_of_the_simulator() -> None:
    ran = muster("demo")
    assert ran.code == 0
    assert ran.out.splitlines()[0].split("   ")[0] == muster("sim", "scenarios/demo.yaml").out.splitlines()[0].split("   ")[0]


def test_without_servers_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        def __enter__(self) -> None:
            raise NoServers("go is not here")

        def __exit__(self, *_: object) -> None:
            return None

    monkeypatch.setattr(demo, "Servers", Missing)
    ran = muster("demo", "--kube")
    assert ran.code == 2
    assert "there is no API server to be had: go is not here; set KUBEBUILDER_ASSETS to a folder with etcd" in ran.err


def test_it_takes_some_time() -> None:
    ran = muster("demo", "--kube", "--seconds", "0")
    assert ran.code == 2
    assert "--seconds: write a number above 0" in ran.err
