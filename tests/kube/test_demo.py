"""The demo on a real API server, in fifteen seconds."""

from __future__ import annotations

import re

import pytest
from tests.cli.commands import process

from muster.lab.assets import Assets
from muster.lab.demo_timeline import GANGS


@pytest.mark.timeout(180)
def test_the_demo_shows_its_timeline_and_ends_with_a_summary(assets: Assets) -> None:
    ran = process("demo", "--kube", "--seconds", "15", KUBEBUILDER_ASSETS=str(assets.etcd.parent), COLUMNS="110")
    assert ran.code == 0, ran.out + ran.err
    timeline, _, summary = ran.out.partition(" on 16 nodes of a real API server")
    assert "pretrain is running on gpu-" in timeline
    assert "incident is submitted: 4 x 8 GPUs, priority urgent" in timeline
    assert " fails" in timeline
    rows = {line.split()[0]: line for line in summary.splitlines() if line.startswith(" ") and line.split()}
    assert [gang.name for gang in GANGS if gang.name not in rows] == []
    assert "% of the GPUs in use on average" in summary
    assert re.search(r"See it in the browser: http://127\.0\.0\.1:\d+/\n", timeline)
    assert ran.err == ""
