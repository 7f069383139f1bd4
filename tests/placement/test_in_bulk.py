"""Equal pods that go together go where they would go one by one, also where there are many of them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from tests.placement.worlds import HOST, ZONE, Case, all_plugins, made, node, pod, selecting

from muster.engine.hooks import Entangles, Plugin, ScoresAmong
from muster.engine.place import place
from muster.engine.session import Session
from muster.model.pod import Phase, Pod
from muster.model.resources import Resources
from muster.model.selectors import HostPort, PodAffinity, PodTerm, SpreadConstraint, WeightedPodTerm
from muster.state.table import BoolColumn, FloatColumn, Rows


@dataclass(frozen=True)
class WithoutGate:
    """The same check, asked anew after every move because it has no gate."""

    check: Entangles
    name: str = "without a gate"

    def entangled(self, s: Session, pod: Pod) -> bool:
        return self.check.entangled(s, pod)

    def fit_among(self, s: Session, pod: Pod, rows: Rows) -> BoolColumn:
        return self.check.fit_among(s, pod, rows)


@dataclass(frozen=True)
class ScoreWithoutGate(WithoutGate):
    weight: float = 1.0

    def score_among(self, s: Session, pod: Pod, rows: Rows) -> FloatColumn:
        assert isinstance(self.check, ScoresAmong)
        return self.check.score_among(s, pod, rows)


def one_by_one() -> list[Plugin]:
    return [_without_gate(plugin) for plugin in all_plugins()]


def _without_gate(plugin: Plugin) -> Plugin:
    if not isinstance(plugin, Entangles):
        return plugin
    weight = getattr(plugin, "weight", None)
    return WithoutGate(plugin) if weight is None else ScoreWithoutGate(plugin, weight=weight)


def term(key: str, app: str) -> PodTerm:
    return PodTerm(key, selecting(app=app))


SORTS: dict[str, dict[str, Any]] = {
    "apart by host": {"anti_affinity": PodAffinity((term(HOST, "x"),))},
    "apart by rack, for each revision": {
        "anti_affinity": PodAffinity((PodTerm("rack", selecting(app="x"), match_label_keys=("rev",)),))
    },
    "together in a zone": {"affinity": PodAffinity((term(ZONE, "x"),))},
    "together in a zone, apart by host": {
        "affinity": PodAffinity((term(ZONE, "x"),)),
        "anti_affinity": PodAffinity((term(HOST, "x"),)),
    },
    "spread over zones": {"spread": (SpreadConstraint(1, ZONE, True, selecting(app="x")),)},
    "spread over zones and hosts": {
        "spread": (SpreadConstraint(2, ZONE, True, selecting(app="x")), SpreadConstraint(1, HOST, True, selecting(app="x")))
    },
    "rather spread": {
        "spread": (SpreadConstraint(1, ZONE, False, selecting(app="x")), SpreadConstraint(2, HOST, False, selecting(app="x")))
    },
    "rather together": {"affinity": PodAffinity((), (WeightedPodTerm(10, term(ZONE, "x")),))},
    "rather apart": {"anti_affinity": PodAffinity((), (WeightedPodTerm(10, term("rack", "x")),))},
    "with a host port": {"ports": (HostPort(80),)},
    "spread, with a host port": {"ports": (HostPort(80),), "spread": (SpreadConstraint(1, ZONE, True, selecting(app="x")),)},
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
    standing = tuple(
        (pod(f"old-{i}", labels={"app": "x"}, **kind), chance.choice(nodes).name, chance.choice([Phase.BOUND, Phase.NOMINATED]))
        for i in range(4)
    )
    wanting = tuple(
        pod(f"new-{i}", labels={"app": "x", "rev": str(i // 30), **({"index": str(i)} if numbered else {})}, gang="g", **kind)
        for i in range(60)
    )
    return Case(nodes, standing=standing, wanting=wanting, phase=chance.choice([Phase.BINDING, Phase.NOMINATED]))


def places(case: Case, plugins: list[Plugin]) -> dict[str, str | None]:
    here = made(case, plugins)
    with here.s.trial("try", cause="Test") as trial:
        placed = place(here.s, trial, case.wanting, domain=here.domain, phase=case.phase)
        found = {each.uid: here.world.placement(each).node for each in case.wanting}
        assert placed.count == sum(where is not None for where in found.values())
        return found


@pytest.mark.parametrize("numbered", [False, True], ids=["of one look", "each with its number"])
@pytest.mark.parametrize("sort", SORTS)
def test_pods_go_where_they_would_go_one_by_one(sort: str, numbered: bool) -> None:
    for seed in range(3):
        case = many(SORTS[sort], seed=seed, numbered=numbered)
        assert places(case, all_plugins()) == places(case, one_by_one())
