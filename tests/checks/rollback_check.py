"""A trial of random moves between two cycles that is rolled back and must leave no trace.

The moves are drawn from a seed, so that a run is the same every time. Kept counters and node scores are compared with new ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tests.checks.counter_drift import drifted_counters

from muster.engine.hooks import Policy
from muster.engine.node_scores import NodeScores, base_column
from muster.engine.session import Session
from muster.model.device import DeviceSlot
from muster.model.events import Event
from muster.model.pod import UNPLACED, Phase, Placement, Pod
from muster.scenario.invariants import Violation
from muster.scenario.run_check import FinishedCycle
from muster.state.journaled_dict import JournaledDict
from muster.state.trial import Trial
from muster.state.world import World

NO_TRACE = "a rolled-back trial leaves no trace"
MOVES_PER_TRIAL = 5
_PHASES = (Phase.NOMINATED, Phase.RESERVED, Phase.BINDING, Phase.TERMINATING)


@dataclass(frozen=True, slots=True)
class WorldFingerprint:
    """Every part of the world that a trial could change."""

    parts: dict[str, object]

    def differences(self, other: WorldFingerprint) -> Iterator[str]:
        for name, value in self.parts.items():
            if value != other.parts[name]:
                yield name


class RollbackCheck:
    """A `RunCheck`. A world with a violation is not tried, nor one in which nothing happened since the last trial."""

    def start(self, policy: Policy, events: Sequence[Event]) -> None:
        """It keeps nothing from cycle to cycle."""

    def on_step(self, name: str, world: World) -> None:
        """It looks at finished cycles only."""

    def check_cycle(self, finished: FinishedCycle) -> Iterator[Violation]:
        outcome = finished.outcome
        if finished.ok and (finished.events or outcome.effects):
            for text in check_rollback(finished.world, finished.policy, seed=f"{outcome.cycle} {outcome.now:g}"):
                yield Violation(NO_TRACE, outcome.cycle, outcome.now, text)


def check_rollback(world: World, policy: Policy, *, seed: str) -> list[str]:
    """What a rolled-back trial changed: nothing, or something is wrong."""
    chance = random.Random(seed)
    before = fingerprint(world)
    with Trial(world, why="rollback check", cause="RollbackCheck") as trial:
        _random_moves(trial, world, chance, depth=0)
    found = [f"{name} has changed" for name in before.differences(fingerprint(world))]
    found += [f"{name} differs from a new one" for name in drifted_counters(world)]
    return found + [f"the columns of {pod.full_name} are stale" for pod in _stale_columns(world, policy, chance)]


def fingerprint(world: World) -> WorldFingerprint:
    ledger = world.ledger
    ledger_amounts = {
        (queue, preemptible): (
            ledger.used_part(queue, preemptible=preemptible).tobytes(),
            ledger.planned_part(queue, preemptible=preemptible).tobytes(),
            ledger.requested_part(queue, preemptible=preemptible).tobytes(),
        )
        for queue in ledger.names
        for preemptible in (True, False)
    }
    return WorldFingerprint(
        {
            "used of the nodes": world.table.used.tobytes(),
            "planned of the nodes": world.table.planned.tobytes(),
            "the ledger": ledger_amounts,
            "the placements": dict(world.placements.by_uid),
            "pods by node": {node: frozenset(here) for node, here in world.placements.on_node.items()},
            "the index of reservations and nominations": frozenset(world.placements.reservations),
            "the index of reserved pods": frozenset(world.placements.reserved),
            "the index of terminating pods": frozenset(world.placements.releasing),
            "the count of unplaced members": dict(world.placements.unplaced_members),
            "the settled changes": world.changes.settled(),
            "the memory": {name: dict(t.items()) for name, t in vars(world.memory).items() if isinstance(t, JournaledDict)},
            "the journal": len(world.placements.journal),
        }
    )


def _random_moves(trial: Trial, world: World, chance: random.Random, *, depth: int) -> None:
    pods = sorted(world.facts.pods)
    if not pods or not world.table.names:
        return
    for _ in range(MOVES_PER_TRIAL):
        _random_move(trial, world, world.facts.pods[chance.choice(pods)], chance)
        if chance.random() < 0.2:
            mark = trial.mark()
            _random_move(trial, world, world.facts.pods[chance.choice(pods)], chance)
            trial.undo_to(mark)
        if depth < 2 and chance.random() < 0.06:
            with Trial(world, why="trial within a rollback check", cause="RollbackCheck") as inner:
                _random_moves(inner, world, chance, depth=depth + 1)
                if chance.random() < 0.5:
                    inner.commit()
    _place_many(trial, world, chance)


def _random_move(trial: Trial, world: World, pod: Pod, chance: random.Random) -> None:
    now = world.placement(pod)
    if now.node is None:
        trial.place(
            pod,
            chance.choice(world.table.names),
            phase=chance.choice(_PHASES),
            devices=_random_slots(chance),
            plan="rollback check",
        )
        return
    match chance.randrange(4):
        case 0:
            trial.evict(pod)
        case 1:
            trial.release(pod)
        case 2:
            trial.change_phase(pod, phase=chance.choice(_PHASES))
        case 3:
            trial.release(pod)
            trial.restore(pod, Placement(now.phase, now.node, now.since, now.devices, now.plan))


def _random_slots(chance: random.Random) -> tuple[DeviceSlot, ...]:
    return tuple(DeviceSlot(index, memory=chance.randrange(8)) for index in range(chance.randrange(3)))


def _place_many(trial: Trial, world: World, chance: random.Random) -> None:
    """Equal unplaced members of one role, all at once."""
    for key in sorted(world.facts.gangs)[:20]:
        for role in world.facts.gangs[key].roles:
            waiting = [pod for pod in role.pods if world.placements.by_uid.get(pod.uid, UNPLACED) is UNPLACED]
            members = world.facts.members
            alike = [
                pod
                for pod in waiting
                if pod.signature == waiting[0].signature and members.get(pod.uid) == members.get(waiting[0].uid)
            ]
            if len(alike) > 1:
                nodes = [chance.choice(world.table.names) for _ in alike]
                trial.place_many(alike, nodes, phase=chance.choice((Phase.RESERVED, Phase.BINDING, Phase.NOMINATED)))
                return


def _stale_columns(world: World, policy: Policy, chance: random.Random) -> Iterator[Pod]:
    """Pods whose kept node scores differ from new ones."""
    if not world.facts.pods:
        return
    s = Session(world, policy)
    s.prepare()
    for uid in chance.sample(sorted(world.facts.pods), min(1, len(world.facts.pods))):
        pod, after_releases = world.facts.pods[uid], chance.random() < 0.5
        remembered = s.node_scores(pod, after_releases=after_releases)
        fresh = NodeScores(s, pod, base_column(s, pod), after_releases=after_releases)
        if not (np.array_equal(remembered.base, fresh.base) and np.array_equal(remembered.value, fresh.value)):
            yield pod
