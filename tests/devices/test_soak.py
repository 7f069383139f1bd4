"""Generated worlds in which every GPU is a device with an index: nodes fail, gangs come and go, and no invariant is violated."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
import yaml
from tests.checks import run_checks

from muster.config import DEFAULT_POLICY
from muster.scenario import run
from muster.scenario.loader import from_document
from muster.scenario.scenario_generator import generate_document

SEEDS = max(8, int(os.environ.get("MUSTER_SEEDS", "200")) // 25)
EVENTS = 120
FLAVOURS = ("vgpu", "gpushare", "koordinator")
PLUGINS = yaml.safe_load(DEFAULT_POLICY)["plugins"]
SPREADING = {"plugins": [{"devices": {"strategy": "spread"}} if plugin == "devices" else plugin for plugin in PLUGINS]}


def with_devices(made: dict[str, Any], api_flavour: str, chance: Random) -> dict[str, Any]:
    """The same scenario, in the form of an API flavour: nodes say which GPUs they have, and gangs ask for parts of them."""
    for node in _nodes(made):
        count = node.pop("gpu", 0)
        if count:
            groups = {"deviceGroup": "a"}, {"deviceGroup": "b"}
            node["devices"] = [
                {"count": max(1, count // 4), "memory": "8Gi", "apiFlavour": api_flavour, **group} for group in groups
            ]
    for gang in _gangs(made):
        for role in gang.get("roles", [gang]):
            if role["requests"].pop("gpu", 0):
                role["requests"] |= _ask(api_flavour, chance)
    return made


def _nodes(made: dict[str, Any]) -> list[dict[str, Any]]:
    added = [step["node"]["add"] for step in made["steps"] if "add" in step.get("node", {})]
    return [*made["nodes"], *added]


def _gangs(made: dict[str, Any]) -> list[dict[str, Any]]:
    submitted = [step["submit"] for step in made["steps"] if "submit" in step]
    return [*made["gangs"], *(gang for some in submitted for gang in (some if isinstance(some, list) else [some]))]


def _ask(api_flavour: str, chance: Random) -> dict[str, int]:
    memory = chance.choice((1024, 3000, 4096, 8192))
    if api_flavour == "gpushare":
        return {"volcano.sh/gpu-memory": memory} if chance.random() < 0.7 else {"volcano.sh/gpu-number": chance.choice((1, 2))}
    if api_flavour == "koordinator":
        shared = chance.random() < 0.7
        return {"koordinator.sh/gpu": chance.choice((25, 40, 50))} if shared else {"nvidia.com/gpu": chance.choice((1, 2))}
    whole = {"volcano.sh/vgpu-number": chance.choice((1, 2))}
    if chance.random() < 0.3:
        return whole
    return whole | {"volcano.sh/vgpu-memory": memory, "volcano.sh/vgpu-cores": chance.choice((0, 10, 50, 100))}


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_invariant_is_violated_where_pods_share_devices(seed: int) -> None:
    api_flavour = FLAVOURS[seed % 3]
    made = generate_document(nodes=5 + seed % 7, gangs=40, seed=seed, events=EVENTS, policy=SPREADING if seed % 2 else None)
    report = run(from_document(with_devices(made, api_flavour, Random(seed))), checks=run_checks())
    assert report.ok, f"\n{report.name} ({api_flavour})\n{report.explain()}"
