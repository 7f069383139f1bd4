"""Equal pods that go together go where they would go one by one, also where there are many of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from tests.placement.placement_worlds import HOST, ZONE, Case, all_plugins, make_world, node, pod, selector_of

from muster.engine.hooks import InterPodFits, InterPodScores, Plugin
from muster.engine.place import place
from muster.engine.session import Session
from muster.model.pod import Phase, Pod
from muster.model.pod_constraints import HostPort, PodAffinity, PodTerm, SpreadConstraint, WeightedPodTerm
from muster.model.resource_amounts import Resources
from muster.state.node_table import BoolColumn, FloatColumn, NodeRows


@dataclass(frozen=True)
class WithoutBulkState:
    """The same check, asked anew after every move because it has no gate."""

    check: InterPodFits
    name: str = "without a gate"

    def has_inter_pod_constraints(self, s: Session, pod: Pod) -> bool:
        return self.check.has_inter_pod_constraints(s, pod)

    def fit_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:
        return self.check.fit_inter_pod(s, pod, rows)


@dataclass(frozen=True)
class ScoreWithoutBulkState(WithoutBulkState):
    weight: float = 1.0

    def score_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:
        assert isinstance(self.check, InterPodScores)
        return self.check.score_inter_pod(s, pod, rows)


def one_by_one() -> list[Plugin]:
    return [_without_bulk_state(plugin) for plugin in all_plugins()]


def _without_bulk_state(plugin: Plugin) -> Plugin:
    if not isinstance(plugin, InterPodFits):
        return plugin
    weight = getattr(plugin, "weight", None)
    return WithoutBulkState(plugin) if weight is None else ScoreWithoutBulkState(plugin, weight=weight)


def term(key: str, app: str) -> PodTerm:
    return PodTerm(key, selector_of(app=app))


CONSTRAINTS: dict[str, dict[str, Any]] = {
    "apart by host": {"anti_affinity": PodAffinity((term(HOST, "x"),))},
    "apart by rack, for each revision": {
        "anti_affinity": PodAffinity((PodTerm("rack", selector_of(app="x"), match_label_keys=("rev",)),))
    },
    "together in a zone": {"affinity": PodAffinity((term(ZONE, "x"),))},
    "together in a zone, apart by host": {
        "affinity": PodAffinity((term(ZONE, "x"),)),
        "anti_affinity": PodAffinity((term(HOST, "x"),)),
    },
    "spread over zones": {"spread": (SpreadConstraint(1, ZONE, True, selector_of(app="x")),)},
    "spread over zones and hosts": {
        "spread": (SpreadConstraint(2, ZONE, True, selector_of(app="x")), SpreadConstraint(1, HOST, True, selector_of(app="x")))
    },
    "rather spread": {
        "spread": (SpreadConstraint(1, ZONE, False, selector_of(app="x")), SpreadConstraint(2, HOST, False, selector_of(app="x")))
    },
    "rather together": {"affinity": PodAffinity((), (WeightedPodTerm(10, term(ZONE, "x")),))},
    "rather apart": {"anti_affinity": PodAffinity((), (WeightedPodTerm(10, term("rack", "x")),))},
    "with a host port": {"ports": (HostPort(80),)},
    "spread, with a host port": {"ports": (HostPort(80),), "spread": (SpreadConstraint(1, ZONE, True, selector_of(app="x")),)},
}


def many(sort: dict[str, Any], *, seed: int, numbered: bool) -> Case:
    """Fifty nodes of all sizes, a few pods that are there, and sixty that want a node."""
    chance = Random(seed)
    nodes = tuple(
        node(
            f"n{number:02}",
            cpu=chance.choice([1000, 2000, 4000, 6000]),
            labels={ZONE: chance.choice("abc"), "rack": f"r{chance.randrange(30)}"} if chance.random() < 0.95 else {},
        )
        for number in range(50)
    )
    kind: dict[str, Any] = {"request": Resources.of({"cpu": 500}), **sort}
    placed = tuple(
        (pod(f"old-{i}", labels={"app": "x"}, **kind), chance.choice(nodes).name, chance.choice([Phase.BOUND, Phase.NOMINATED]))
        for i in range(4)
    )
    pending_pods = tuple(
        pod(f"new-{i}", labels={"app": "x", "rev": str(i // 30), **({"index": str(i)} if numbered else {})}, gang="g", **kind)
        for i in range(60)
    )
    return Case(nodes, placed=placed, pending_pods=pending_pods, phase=chance.choice([Phase.BINDING, Phase.NOMINATED]))


def places(case: Case, plugins: list[Plugin]) -> dict[str, str | None]:
    here = make_world(case, plugins)
    with here.s.trial("try", cause="Test") as trial:
        placed = place(here.s, trial, case.pending_pods, domain=here.domain, phase=case.phase)
        found = {each.uid: here.world.placement(each).node for each in case.pending_pods}
        assert placed.count == sum(where is not None for where in found.values())
        return found


@pytest.mark.parametrize("numbered", [False, True], ids=["of one look", "each with its number"])
@pytest.mark.parametrize("sort", CONSTRAINTS)
def test_pods_go_where_they_would_go_one_by_one(sort: str, numbered: bool) -> None:
    for seed in range(3):
        case = many(CONSTRAINTS[sort], seed=seed, numbered=numbered)
        assert places(case, all_plugins()) == places(case, one_by_one())


@dataclass(frozen=True)
class NotesWhoIsAsked(WithoutBulkState):
    asked: list[str] = field(default_factory=list)

    def has_inter_pod_constraints(self, s: Session, pod: Pod) -> bool:
        self.asked.append(pod.uid)
        return super().has_inter_pod_constraints(s, pod)


@pytest.mark.parametrize(("numbered", "times"), [(False, 2), (True, 60)], ids=["two revisions", "each with its number"])
def test_plugins_are_asked_once_about_members_that_look_alike(numbered: bool, times: int) -> None:
    notes = NotesWhoIsAsked(next(plugin for plugin in all_plugins() if isinstance(plugin, InterPodFits)))
    places(many({}, seed=0, numbered=numbered), [*all_plugins(), notes])
    assert len(notes.asked) == times
