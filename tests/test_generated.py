"""Generated worlds: many seeds, hundreds of events each, and not one invariant broken.

MUSTER_SEEDS says how many seeds run of each generator: that of `muster sim --generate`, and the one of `tests/generated` that tries
everything. Every eighth seed has a second scheduler beside it that must decide the same.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import partial

import pytest
import yaml
from tests.checks import run_checks
from tests.generated.everything import everything_document, run_everything

from muster.config import DEFAULT_POLICY
from muster.scenario import Report, generate, generate_from_text, run
from muster.scenario.loader import from_document
from muster.scenario.scenario_generator import generate_document
from muster.yaml_positions import InputError

SEEDS = int(os.environ.get("MUSTER_SEEDS", "60"))
SEEDS_PER_RUN = 5
EVENTS = 300


SHARES = ("capacity", "proportion", "drf")
OTHERS = [plugin for plugin in yaml.safe_load(DEFAULT_POLICY)["plugins"] if plugin not in SHARES]
POLICIES = (None, *({"plugins": [share, *OTHERS]} for share in SHARES))


def generated_scenario(seed: int) -> Report:
    """A small cluster, so that everything is scarce; the default policy, and others."""
    policy = POLICIES[seed // 4 % len(POLICIES)]
    return run(
        generate(nodes=8 + seed % 23, gangs=60, seed=seed, events=EVENTS, policy=policy), checks=run_checks(twin=seed % 8 == 0)
    )


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_RUN))
def test_no_invariant_is_violated_in_a_generated_scenario(first: int) -> None:
    for seed in range(first, min(first + SEEDS_PER_RUN, SEEDS)):
        report = generated_scenario(seed)
        assert report.ok, f"\n{report.name}\n{report.explain()}"
        assert report.cycles > EVENTS / 2


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_RUN))
def test_no_invariant_is_violated_whatever_happens(first: int) -> None:
    for seed in range(first, min(first + SEEDS_PER_RUN, SEEDS)):
        report = run_everything(seed, events=EVENTS, checks=run_checks(twin=seed % 8 == 0))
        assert report.ok, f"\n{report.name}\n{report.explain()}"
        assert report.cycles > EVENTS / 2


def test_what_happens_follows_from_the_seed() -> None:
    assert everything_document(7, events=60) == everything_document(7, events=60)
    assert everything_document(7, events=60) != everything_document(8, events=60)


def test_the_same_seed_gives_the_same_run() -> None:
    document = partial(generate_document, nodes=20, gangs=30, events=60)
    assert document(seed=7) == document(seed=7)
    assert document(seed=7) != document(seed=8)


def test_a_generated_scenario_is_like_any_other() -> None:
    made = generate_document(nodes=10, gangs=20, seed=3, events=50)
    first, second = run(from_document(made)), run(from_document(made))
    assert first.decided_effects == second.decided_effects
    assert first.ok, first.explain()


def test_a_generated_scenario_has_the_requested_sizes() -> None:
    found = generate_from_text("nodes=12,gangs=8,seed=5,events=0")
    assert len(found.nodes) == 12
    assert len(found.gangs) == 2
    assert found.name == "generated: 12 nodes, 8 gangs, 0 events, seed 5"


@pytest.mark.parametrize(
    ("text", "message", "suggestion"),
    [
        ("node=5", "unknown option 'node'", "nodes"),
        ("nodes=many", "'many' is no whole number", ""),
        ("gangs=0", "'0' is no whole number from 1", ""),
        ("seed", "'' is no whole number", ""),
    ],
)
def test_an_invalid_size_is_reported(text: str, message: str, suggestion: str) -> None:
    with pytest.raises(InputError) as caught:
        generate_from_text(text)
    assert message in caught.value.faults[0].message
    assert caught.value.faults[0].suggestion == suggestion


DECIDE = """
import hashlib, sys
from muster.scenario import generate, run
digest = hashlib.sha256()
for seed in (1, 2, 3):
    report = run(generate(nodes=12, gangs=30, seed=seed, events=120))
    digest.update(repr(report.decided_effects).encode())
print(digest.hexdigest())
"""


def test_the_order_of_sets_decides_nothing() -> None:
    """Python orders sets of texts by chance, anew in each process: two processes must decide the same."""
    answers = set()
    for chance in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-c", DECIDE], env={**os.environ, "PYTHONHASHSEED": chance}, capture_output=True, text=True, check=True
        )
        answers.add(found.stdout)
    assert len(answers) == 1
    assert len(answers.pop().strip()) == len(hashlib.sha256().hexdigest())
