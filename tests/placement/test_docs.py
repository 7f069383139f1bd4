"""What docs/placement.md shows is so."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.checks.counter_drift import drifted_counters
from tests.placement.placement_worlds import Case, make_world, node, pod

from muster.model.pod import Phase, Placement, Pod
from muster.plugins import PLUGINS
from muster.state.derived.placement_counters import PlacementCounter, counter_of

PAGE = (Path(__file__).parents[2] / "docs" / "placement.md").read_text(encoding="utf-8")


def test_the_plugins_of_the_page_exist() -> None:
    table = re.findall(r"^\| `([\w-]+)` \|", PAGE, flags=re.MULTILINE)
    assert table == ["ports", "pod-affinity", "pod-affinity-preference", "spread-constraints", "volumes", "best-fit", "fgd"]
    assert set(table) <= set(PLUGINS)


def test_the_example_counts_and_leaves_no_trace() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names = {"PlacementCounter": PlacementCounter, "Counter": Counter, "Pod": Pod, "Placement": Placement}
    exec(compile(source, "docs/placement.md", "exec", dont_inherit=True), names)
    team_pods: type[PlacementCounter[tuple[str, str]]] = names["TeamPods"]
    old, new = pod("old", labels={"team": "a"}), pod("new", gang="g", labels={"team": "a"})
    here = make_world(Case(nodes=(node("n1"), node("n2")), placed=((old, "n1", Phase.BOUND),), pending_pods=(new,)))
    assert counter_of(here.world, team_pods).figures() == {("a", "n1"): 1}
    with here.s.trial("try", cause="Test") as trial:
        trial.place(new, "n1", phase=Phase.BINDING)
        trial.release(old)
        trial.place(old, "n2", phase=Phase.BINDING)
        assert counter_of(here.world, team_pods).figures() == {("a", "n1"): 1, ("a", "n2"): 1}
    assert counter_of(here.world, team_pods).figures() == {("a", "n1"): 1}
    assert drifted_counters(here.world) == []
