"""Large gangs: hundreds of equal members on many nodes, placed together as if one by one, with few questions to the plugins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest
from tests.plugins import twins
from tests.plugins.labelled_worlds import GIB, Case, MadeWorld, PlacedPod, make_world

from muster.engine.hooks import WHOLE_CLUSTER, Plugin, Policy
from muster.engine.node_scores import PluginError
from muster.engine.place import place
from muster.engine.session import Session
from muster.model.node import Node
from muster.model.pod import Phase, Pod, PodSignature
from muster.model.resource_amounts import CPU, GPU, MEMORY, PODS, Resources
from muster.plugins.fit import Fit
from muster.state.node_table import BoolColumn, FloatColumn, NodeRows

STRATEGIES = {
    "binpack": (("binpack", 1.0, ((CPU, 1.0), (MEMORY, 1.0), (GPU, 10.0))),),
    "spread": (("spread", 2.0, ((CPU, 1.0), (MEMORY, 0.5))),),
    "both": (("binpack", 1.0, ((GPU, 1.0),)), ("spread", 0.7, ((CPU, 1.0),))),
    "none": (),
}


def large_case(seed: int, strategy: str) -> Case:
    """Sixty nodes of three sizes, some of them partly full, and runs of up to two hundred equal members."""
    chance = Random(seed)
    nodes = []
    for i in range(60):
        cpu, gpu = chance.choice([(8, 0), (32, 4), (64, 8)])
        amounts = {CPU: cpu * 1000, MEMORY: cpu * 4 * GIB, PODS: chance.choice([5, 110]), GPU: gpu}
        nodes.append(Node(f"n{i:02d}", version=1, allocatable=Resources.of(amounts)))
    signatures = [
        PodSignature(request=Resources.of({CPU: 500, MEMORY: GIB, PODS: 1})),
        PodSignature(request=Resources.of({CPU: 3000, MEMORY: 9 * GIB, PODS: 1})),
        PodSignature(request=Resources.of({CPU: 1000, MEMORY: GIB, PODS: 1, GPU: 1})),
    ]
    phases = [Phase.BOUND, Phase.RESERVED, Phase.NOMINATED, Phase.TERMINATING]
    placed_pods = [PlacedPod(chance.choice(signatures), chance.choice(nodes).name, chance.choice(phases)) for _ in range(80)]
    wanted = [(chance.choice(signatures), chance.choice([3, 40, 200])) for _ in range(3)]
    runs = tuple((kind, None) for kind, count in wanted for _ in range(count))
    return Case(tuple(nodes), tuple(placed_pods), runs, twins.Weights(packing=STRATEGIES[strategy]))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_equal_members_go_where_they_would_go_one_by_one(seed: int, strategy: str) -> None:
    case = large_case(seed, strategy)
    phase = Phase.NOMINATED if seed == 2 else Phase.BINDING
    made = make_world(case)
    expected = twins.place_one_by_one(made.world, made.wanted, case.weights, phase=phase)
    with made.s.trial("try", cause="Test") as trial:
        place(made.s, trial, made.wanted, domain=WHOLE_CLUSTER, phase=phase)
        assert [made.world.placement(pod).node for pod in made.wanted] == expected


@dataclass(frozen=True)
class RecordingScore:
    """A score that writes down how many rows it was asked about at a time."""

    sizes: list[int]
    weight: float = 1.0
    name: str = "asked"

    def score(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:  # noqa: ARG002
        self.sizes.append(len(rows))
        return np.zeros(len(rows), dtype=np.float64)


@pytest.mark.parametrize("strategy", ["binpack", "spread"])
def test_two_hundred_equal_members_do_not_cost_two_hundred_questions(strategy: str) -> None:
    case = replace(large_case(0, strategy), wanted=((PodSignature(request=Resources.of({CPU: 500, PODS: 1})), None),) * 200)
    made, sizes = make_world(case), list[int]()
    s = Session(made.world, Policy([*made.s.policy.plugins, RecordingScore(sizes)], ["allocate"]))
    with s.trial("try", cause="Test") as trial:
        assert place(s, trial, made.wanted, domain=WHOLE_CLUSTER, phase=Phase.BINDING).count == 200
    assert len(sizes) < 40


# -- plugins that answer nonsense --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FixedAnswer:
    """A plugin from somewhere that answers what it was told to answer."""

    hook: str
    answer: object
    weight: float = 1.0
    name: str = "says"

    def score(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:  # noqa: ARG002
        return self._answer("score", np.zeros(len(rows), dtype=np.float64))  # type: ignore[return-value]

    def prefer(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn:  # noqa: ARG002
        return self._answer("prefer", np.zeros(len(rows), dtype=np.float64))  # type: ignore[return-value]

    def fit(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:  # noqa: ARG002
        return self._answer("fit", np.ones(len(rows), dtype=np.bool_))  # type: ignore[return-value]

    def match(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn:  # noqa: ARG002
        return self._answer("match", np.ones(len(rows), dtype=np.bool_))  # type: ignore[return-value]

    def _answer(self, hook: str, harmless: object) -> object:
        return self.answer if hook == self.hook else harmless


@pytest.mark.parametrize(
    ("hook", "answer", "complaint"),
    [
        ("score", [1.0, 1.0], "says.score must answer a column of 2 rows, not list"),
        ("score", np.zeros(3), "says.score must answer a column of 2 rows, not an array of shape (3,)"),
        ("score", np.zeros(2, dtype=np.int64), "says.score must answer a column of float64, not of int64"),
        ("score", np.array([0.5, 7.0]), "says.score must answer scores from 0 to 1, not from 0.5 to 7"),
        ("prefer", np.array([0.5, np.nan]), "says.prefer must answer scores from 0 to 1, not from nan to nan"),
        ("prefer", np.zeros((2, 1)), "says.prefer must answer a column of 2 rows, not an array of shape (2, 1)"),
        ("fit", np.zeros(2), "says.fit must answer a column of bool, not of float64"),
        ("match", True, "says.match must answer a column of 2 rows, not bool"),
        ("match", None, "says.match must answer a column of 2 rows, not NoneType"),
    ],
)
def test_a_plugin_with_an_invalid_answer_is_named_with_its_hook(hook: str, answer: object, complaint: str) -> None:
    made = two_node_case()
    s = Session(made.world, Policy(plugins_with(FixedAnswer(hook, answer)), ["allocate"]))
    with pytest.raises(PluginError) as raised:
        s.node_scores(made.wanted[0], after_releases=False)
    assert str(raised.value) == complaint


def two_node_case() -> MadeWorld:
    nodes = tuple(Node(name, version=1, allocatable=Resources.of({CPU: 1000, PODS: 9})) for name in ("a", "b"))
    return make_world(Case(nodes, (), ((PodSignature(request=Resources.of({CPU: 1, PODS: 1})), None),), twins.Weights()))


def plugins_with(plugin: Plugin) -> list[Plugin]:
    return [Fit(), plugin]
