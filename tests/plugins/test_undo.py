"""A trial that is not committed leaves no trace, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plugins.labelled_worlds import Case, MadeWorld, cases, make_world

from muster.engine.hooks import WHOLE_CLUSTER
from muster.engine.place import place
from muster.model.device import DeviceSlot
from muster.model.pod import Phase, Placement, Pod
from muster.model.queue import DEFAULT_QUEUE, ROOT_QUEUE
from muster.state.resource_columns import Amounts
from muster.state.trial import Trial
from muster.state.world import World

PHASES = st.sampled_from([Phase.NOMINATED, Phase.RESERVED, Phase.BINDING, Phase.BOUND, Phase.TERMINATING])


@dataclass(frozen=True)
class WorldState:
    """All that a move can change, copied."""

    used: bytes
    taken: bytes
    allocatable: bytes
    figures: tuple[tuple[str, tuple[bytes, ...]], ...]
    placements: dict[str, Placement]
    on_node: dict[str, dict[str, Pod]]
    reservations: dict[str, None]
    releasing: dict[str, None]
    unplaced_members: dict[str, int]
    steps: int


def world_state(world: World) -> WorldState:
    queues = [key for key in (ROOT_QUEUE, DEFAULT_QUEUE, *world.facts.queues) if key in world.ledger]
    figures = tuple((queue, tuple(amounts.tobytes() for amounts in _ledger_amounts(world, queue))) for queue in queues)
    table = world.table
    return WorldState(
        table.used.tobytes(),
        table.planned.tobytes(),
        table.allocatable.tobytes(),
        figures,
        dict(world.placements.by_uid),
        {node: dict(pods) for node, pods in world.placements.on_node.items()},
        dict(world.placements.reservations),
        dict(world.placements.releasing),
        dict(world.placements.unplaced_members),
        len(world.placements.journal),
    )


def _ledger_amounts(world: World, queue: str) -> Iterator[Amounts]:
    ledger = world.ledger
    yield from (ledger.releasing(queue), ledger.nominated(queue))
    for preemptible in (True, False):
        for part in (ledger.used_part, ledger.planned_part, ledger.requested_part):
            yield part(queue, preemptible=preemptible)


def act(made: MadeWorld, trial: Trial, data: st.DataObject) -> None:
    """One thing that the engine may do inside a trial."""
    world = made.world
    pods = [pod for pod in (*made.wanted, *made.placed_pods) if pod.uid in world.facts.pods]
    seated = [pod for pod in pods if world.placement(pod).node is not None]
    unplaced_members = [pod for pod in pods if world.placement(pod).node is None]
    names = world.table.names
    choices = (
        ["place"] * bool(unplaced_members and names)
        + ["many"] * bool(unplaced_members and names)
        + ["turn", "evict", "release", "restore"] * bool(seated)
    )
    if not choices:
        return
    match data.draw(st.sampled_from(choices)):
        case "place":
            devices = data.draw(st.sampled_from([(), (DeviceSlot(0, memory=4),)]))
            trial.place(
                data.draw(st.sampled_from(unplaced_members)),
                data.draw(st.sampled_from(names)),
                phase=data.draw(PHASES),
                devices=devices,
            )
        case "many":
            place(
                made.s,
                trial,
                unplaced_members,
                domain=WHOLE_CLUSTER,
                phase=data.draw(st.sampled_from([Phase.NOMINATED, Phase.RESERVED, Phase.BINDING])),
            )
        case "turn":
            trial.change_phase(data.draw(st.sampled_from(seated)), phase=data.draw(PHASES))
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
def test_whatever_was_tried_the_rolled_back_world_equals_the_one_before(case: Case, data: st.DataObject) -> None:
    made = make_world(case)
    before = world_state(made.world)
    with made.s.trial("try", cause="Test") as trial:
        for _ in range(data.draw(st.integers(0, 6))):
            act(made, trial, data)
    assert world_state(made.world) == before


@given(cases(plain=True), st.data())
@settings(max_examples=100, deadline=None)
def test_a_trial_can_be_undone_to_any_mark_and_a_nested_one_on_its_own(case: Case, data: st.DataObject) -> None:
    made = make_world(case)
    pictures = [world_state(made.world)]
    with made.s.trial("try", cause="Test") as trial:
        marks = [trial.mark()]
        for _ in range(data.draw(st.integers(1, 4))):
            act(made, trial, data)
            marks.append(trial.mark())
            pictures.append(world_state(made.world))
            with made.s.trial("nested", cause="Test") as nested:
                act(made, nested, data)
            assert world_state(made.world) == pictures[-1]
        to = data.draw(st.integers(0, len(marks) - 1))
        trial.undo_to(marks[to])
        assert world_state(made.world) == pictures[to]
    assert world_state(made.world) == pictures[0]


@given(cases(plain=True))
@settings(max_examples=60, deadline=None)
def test_the_ledger_and_the_table_are_sums_over_the_placements_after_a_commit(case: Case) -> None:
    made = make_world(case)
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
