"""A rehearsal: a trial that does many things to the world, is undone, and must leave no trace. Run between cycles.

What it does is drawn from a seed, so that a run is the same every time. It also asks whether the columns that the engine remembers
say what fresh ones would.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from muster.engine.hooks import Policy
from muster.engine.node_scores import NodeScores
from muster.engine.session import Session
from muster.model.device import DeviceSlot
from muster.model.pod import UNPLACED, Phase, Placement, Pod
from muster.state.derived.placement_counters import drifted_counters
from muster.state.trial import Trial
from muster.state.world import World

MOVES_PER_TRIAL = 5
_PHASES = (Phase.NOMINATED, Phase.RESERVED, Phase.BINDING, Phase.TERMINATING)


@dataclass(frozen=True, slots=True)
class WorldFingerprint:
    """Every figure of the world that a trial could touch."""

    parts: dict[str, object]

    def differences(self, other: WorldFingerprint) -> Iterator[str]:
        for name, value in self.parts.items():
            if value != other.parts[name]:
                yield name


def check_rollback(world: World, policy: Policy, *, seed: str) -> list[str]:
    """What a rolled-back trial changed: nothing, or something is wrong."""
    chance = random.Random(seed)
    before = fingerprint(world)
    with Trial(world, why="rehearsal", cause="Rehearsal") as trial:
        _random_moves(trial, world, chance, depth=0)
    found = [f"{name} is not what it was" for name in before.differences(fingerprint(world))]
    found += [f"{name} does not count what a new one would" for name in drifted_counters(world)]
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
            "taken of the nodes": world.table.planned.tobytes(),
            "the ledger": ledger_amounts,
            "the placements": dict(world.placements.by_uid),
            "who stands where": {node: frozenset(here) for node, here in world.placements.on_node.items()},
            "the index of claims": frozenset(world.placements.reservations),
            "the index of holds": frozenset(world.placements.reserved),
            "the index of those who go": frozenset(world.placements.releasing),
            "the count of members without a seat": dict(world.placements.unplaced_members),
            "the settled changes": world.changes.settled(),
            "the memory": world.memory.contents(),
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
            with Trial(world, why="rehearsal within a rehearsal", cause="Rehearsal") as inner:
                _random_moves(inner, world, chance, depth=depth + 1)
                if chance.random() < 0.5:
                    inner.commit()
    _place_many(trial, world, chance)


def _random_move(trial: Trial, world: World, pod: Pod, chance: random.Random) -> None:
    now = world.placement(pod)
    if now.node is None:
        trial.place(
            pod, chance.choice(world.table.names), phase=chance.choice(_PHASES), devices=_random_slots(chance), plan="rehearsal"
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
    """Equal members of one role that nobody placed, all at once."""
    for key in sorted(world.facts.gangs)[:20]:
        for role in world.facts.gangs[key].roles:
            waiting = [pod for pod in role.pods if world.placements.by_uid.get(pod.uid, UNPLACED) is UNPLACED]
            alike = [pod for pod in waiting if pod.signature == waiting[0].signature]
            if len(alike) > 1:
                nodes = [chance.choice(world.table.names) for _ in alike]
                trial.place_many(alike, nodes, phase=chance.choice((Phase.RESERVED, Phase.BINDING, Phase.NOMINATED)))
                return


def _stale_columns(world: World, policy: Policy, chance: random.Random) -> Iterator[Pod]:
    """Pods of whose kind the engine remembers something else than the plugins say now."""
    if not world.facts.pods:
        return
    s = Session(world, policy)
    s.prepare()
    for uid in chance.sample(sorted(world.facts.pods), min(1, len(world.facts.pods))):
        pod, after_releases = world.facts.pods[uid], chance.random() < 0.5
        remembered, fresh = s.node_scores(pod, after_releases=after_releases), NodeScores(s, pod, after_releases=after_releases)
        if not (np.array_equal(remembered.match, fresh.match) and np.array_equal(remembered.value, fresh.value)):
            yield pod
