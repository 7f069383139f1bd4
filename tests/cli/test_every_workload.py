"""Each kind of workload that people own is planned from the file that they have."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import muster

JOBS = Path(__file__).parent / "jobs"
CLUSTER = """\
name: room for all
nodes: [{name: "n[1-8]", gpu: 8}]
queues: [{name: research}]
"""
MEMBERS = {
    "deployment": [("research/serve", 3, 1)],
    "job": [("research/train", 4, 1)],
    "jobset": [("research/train", 8, 8)],
    "lws": [("research/serve-0", 4, 4), ("research/serve-1", 4, 4)],
    "mpijob": [("research/train", 5, 5)],
    "pods": [("research/train", 2, 2)],
    "pytorchjob": [("research/train", 4, 4)],
    "raycluster": [("research/ray", 5, 5)],
    "sts": [("research/serve", 3, 1)],
    "trainjob": [("research/train", 4, 4)],
    "vcjob": [("research/train", 4, 4)],
}


def test_every_file_is_asked_about() -> None:
    assert {path.stem for path in JOBS.iterdir()} == set(MEMBERS)


@pytest.mark.parametrize("kind", MEMBERS)
def test_a_workload_is_read_with_its_members_and_its_minimum(kind: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    result = muster("plan", str(JOBS / f"{kind}.yaml"), "-c", "cluster.yaml", "--json", cwd=tmp_path)
    assert result.code == 0, result.err
    assert [(gang["gang"], gang["members"], gang["min"]) for gang in result.document["gangs"]] == MEMBERS[kind]
