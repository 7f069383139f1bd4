"""What docs/placement.md shows is so."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.placement.worlds import Case, made, node, pod

from muster.model.pod import Phase, Placement, Pod
from muster.plugins import PLUGINS
from muster.state.follow import Follower, drifted, following

PAGE = (Path(__file__).parents[2] / "docs" / "placement.md").read_text(encoding="utf-8")


def test_the_plugins_of_the_page_exist() -> None:
    table = re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)
    assert table == ["ports", "pod_affinity", "pod_affinity_preference", "spread_constraints", "volumes"]
    assert set(table) <= set(PLUGINS)


def test_the_example_counts_and_leaves_no_trace() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names = {"Follower": Follower, "Counter": Counter, "Pod": Pod, "Placement": Placement}
    exec(compile(source, "docs/placement.md", "exec", dont_inherit=True), names)
    crowd: type[Follower[tuple[str, str]]] = names["Crowd"]
    old, new = pod("old", labels={"team": "a"}), pod("new", gang="g", labels={"team": "a"})
    here = made(Case(nodes=(node("n1"), node("n2")), standing=((old, "n1", Phase.BOUND),), wanting=(new,)))
    assert following(here.world, crowd).figures() == {("a", "n1"): 1}
    with here.s.trial("try", cause="Test") as trial:
        trial.place(new, "n1", phase=Phase.BINDING)
        trial.release(old)
        trial.place(old, "n2", phase=Phase.BINDING)
        assert following(here.world, crowd).figures() == {("a", "n1"): 1, ("a", "n2"): 1}
    assert following(here.world, crowd).figures() == {("a", "n1"): 1}
    assert drifted(here.world) == []
