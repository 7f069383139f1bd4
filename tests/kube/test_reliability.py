"""The short forms of what `python -m tools.reliability` measures and no other test does."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path

import pytest
from tests.harness.etcd_reset import ResettableServers as Servers
from tools.reliability import page
from tools.reliability.hostile_objects import fuzz_with, read_schemas
from tools.reliability.measured import Measured
from tools.reliability.page import write_row
from tools.reliability.rows import ROWS
from tools.reliability.virtual_soak import soak

KINDS = 15


def test_whatever_a_schema_lets_through_raises_nothing_and_delays_nobody(servers_with_kinds: Servers) -> None:
    schemas = asyncio.run(read_schemas(servers_with_kinds.kubeconfig()))
    assert len(schemas) >= KINDS
    assert fuzz_with(schemas, 500).faults == ()


def test_pods_that_come_and_end_are_all_bound() -> None:
    measured = soak(2000)
    assert measured.reached.startswith("2,000 pods in 0.0 virtual hours; ")
    assert [fault for fault in measured.faults if "were bound" in fault] == []


def test_a_row_that_is_measured_again_replaces_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "reliability.md"
    copy.write_text(page.PAGE.read_text())
    monkeypatch.setattr(page, "PAGE", copy)
    for reached in ("1 seed", "2 seeds"):
        write_row("histories", ROWS["histories"], Measured(reached, ("one | two\nthree",)), day=date(2026, 1, 2), minutes=3.4)
    (line,) = [line for line in copy.read_text().splitlines() if line.startswith("| `histories` |")]
    assert "| 10,000 seeds | 2 seeds | 1: one / two three | 2026-01-02, 3 min | `" in line
    assert copy.read_text().splitlines()[0] == page.PAGE.read_text().splitlines()[0]
