"""A trial that is not committed leaves no trace, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plugins.worlds import Case, Given, cases, given_world

from muster.engine.hooks import WHOLE_CLUSTER
from muster.engine.place import place
from muster.model.devices import Slot
from muster.model.pod import Phase, Placement, Pod
from muster.model.queue import DEFAULT_QUEUE, ROOT_QUEUE
from muster.state.columns import Amounts
from muster.state.trial import Trial
from muster.state.world import World

PHASES = st.sampled_from([Phase.NOMINATED, Phase.HELD, Phase.BINDING, Phase.BOUND, Phase.LEAVING])


@dataclass(frozen=True)
class Picture:
    """All that a move can change, copied."""

    used: bytes
    taken: bytes
    allocatable: bytes
    figures: tuple[tuple[str, tuple[bytes, ...]], ...]
    placements: dict[str, Placement]
    on_node: dict[str, dict[str, Pod]]
    claims: dict[str, None]
    going: dict[str, None]
    unseated: dict[str, int]
    steps: int


def picture(world: World) -> Picture:
    queues = [key for key in (ROOT_QUEUE, DEFAULT_QUEUE, *world.facts.queues) if key in world.ledger]
    figures = tuple((queue, tuple(amounts.tobytes() for amounts in _figures(world, queue))) for queue in queues)
    table = world.table
    return Picture(
        table.used.tobytes(),
        table.taken.tobytes(),
        table.allocatable.tobytes(),
        figures,
        dict(world.placements.by_uid),
        {node: dict(pods) for node, pods in world.placements.on_node.items()},
        dict(world.placements.claims),
        dict(world.placements.going),
        dict(world.placements.unseated),
        len(world.placements.journal),
    )


def _figures(world: World, queue: str) -> Iterator[Amounts]:
    ledger = world.ledger
    yield from (ledger.leaving(queue), ledger.promised(queue))
    for preemptible in (True, False):
        for part in (ledger.used_part, ledger.taken_part, ledger.requested_part):
            yield part(queue, preemptible=preemptible)


def act(made: Given, trial: Trial, data: st.DataObject) -> None:
    """One thing that the engine may do inside a trial."""
    world = made.world
    pods = [pod for pod in (*made.wanted, *made.stands) if pod.uid in world.facts.pods]
    seated = [pod for pod in pods if world.placement(pod).node is not None]
    unseated = [pod for pod in pods if world.placement(pod).node is None]
    names = world.table.names
    choices = (
        ["place"] * bool(unseated and names)
        + ["many"] * bool(unseated and names)
        + ["turn", "evict", "release", "restore"] * bool(seated)
    )
    if not choices:
        return
    match data.draw(st.sampled_from(choices)):
        case "place":
            devices = data.draw(st.sampled_from([(), (Slot(0, memory=4),)]))
            trial.place(
                data.draw(st.sampled_from(unseated)), data.draw(st.sampled_from(names)), phase=data.draw(PHASES), devices=devices
            )
        case "many":
            place(
                made.s,
                trial,
                unseated,
                domain=WHOLE_CLUSTER,
                phase=data.draw(st.sampled_from([Phase.NOMINATED, Phase.HELD, Phase.BINDING])),
            )
        case "turn":
            trial.turn(data.draw(st.sampled_from(seated)), phase=data.draw(PHASES))
        case "evict":
            trial.evict(data.draw(st.sampled_from(seated)))
        case "release":
            trial.release(data.draw(st.sampled_from(seated)))
        case "restore":
            where = (
                Placement(data.draw(PHASES), data.draw(st.sampled_from(names)), 5.0, plan="p")
                if names
                else Placement(Phase.PENDING)
            )
            trial.restore(data.draw(st.sampled_from(seated)), where)


@given(cases(plain=True), st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_was_tried_the_undone_world_equals_the_one_before(case: Case, data: st.DataObject) -> None:
    made = given_world(case)
    before = picture(made.world)
    with made.s.trial("try", cause="Test") as trial:
        for _ in range(data.draw(st.integers(0, 6))):
            act(made, trial, data)
    assert picture(made.world) == before


@given(cases(plain=True), st.data())
@settings(max_examples=100, deadline=None)
def test_a_trial_can_be_undone_to_any_mark_and_a_nested_one_on_its_own(case: Case, data: st.DataObject) -> None:
    made = given_world(case)
    pictures = [picture(made.world)]
    with made.s.trial("try", cause="Test") as trial:
        marks = [trial.mark()]
        for _ in range(data.draw(st.integers(1, 4))):
            act(made, trial, data)
            marks.append(trial.mark())
            pictures.append(picture(made.world))
            with made.s.trial("nested", cause="Test") as nested:
                act(made, nested, data)
            assert picture(made.world) == pictures[-1]
        to = data.draw(st.integers(0, len(marks) - 1))
        trial.undo_to(marks[to])
        assert picture(made.world) == pictures[to]
    assert picture(made.world) == pictures[0]


@given(cases(plain=True))
@settings(max_examples=60, deadline=None)
def test_the_ledger_and_the_table_are_sums_over_the_placements_after_a_commit(case: Case) -> None:
    made = given_world(case)
    with made.s.trial("try", cause="Test") as trial:
        place(made.s, trial, made.wanted, domain=WHOLE_CLUSTER, phase=Phase.BINDING)
        trial.commit()
    world = made.world
    for row, name in enumerate(world.table.names):
        used = sum(
            (
                world.request(pod)
                for uid, pod in world.placements.on_node.get(name, {}).items()
                if world.placements.by_uid[uid].phase is not Phase.NOMINATED
            ),
            start=world.columns.vector(world.facts.nodes[name].allocatable) * 0,
        )
        assert world.table.used[row].tolist() == used.tolist()
    for queue in {world.facts.members[pod.uid].queue for pod in made.wanted}:
        placed = [world.request(pod) for pod in made.wanted if world.phase(pod) is Phase.BINDING]
        assert world.ledger.used(queue).tolist() == sum(placed, start=world.ledger.used(queue) * 0).tolist()
