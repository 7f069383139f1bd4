"""Each invariant notices its own kind of bug: the code is broken on purpose, and the invariant fires. Unbroken, none does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pytest
from tests.checks.rollback_check import NO_TRACE
from tests.checks.scheduler_twin import SAME_DECISION
from tests.scenario.running_scenarios import BUSY, run_steps, violated_invariants

from muster.engine import cycle, domain_placement, explain
from muster.engine.commit import collect_effects
from muster.engine.consolidate import consolidate, movable_pods
from muster.engine.hooks import Ask, QuotaFit
from muster.engine.kept_capacity import KeptCapacity
from muster.engine.session import Refusals, Session
from muster.model.device import Device, DeviceSlot
from muster.model.effects import YES, Bind, Effect, Outcome, Verdict
from muster.model.gang import Gang
from muster.model.pod import Phase, Placement, Pod
from muster.plugins.fit import Fit
from muster.plugins.topology import Topology
from muster.scenario.invariants import INVARIANTS, InvariantChecker
from muster.state.ledger import Ledger
from muster.state.memory import ActivePlan
from muster.state.node_table import BoolColumn, NodeRows, NodeTable
from muster.state.placements import NetChange, Placements
from muster.state.reserve_pods import Move
from muster.state.resource_columns import Amounts
from muster.state.trial import Trial

Patch = pytest.MonkeyPatch
Violated = set[str]

EVICTING = """
policy: {actions: [expire, enqueue, allocate, gang-preempt]}
nodes: [{name: "n[1-4]", gpu: 1}]
gangs:
- {name: low, pods: 4, min: 1, requests: {gpu: 1}, runningOn: "n[1-4]", terminationDuration: 0s, controller: recreate}
steps:
- submit: {name: high, priority: 9, pods: 1, requests: {gpu: 2}}
"""
SUBGROUPS = """
nodes: [{name: "n[1-3]", gpu: 1}]
steps:
- submit:
    name: g
    min: 1
    requests: {gpu: 1}
    roles: [{name: a, pods: 2, min: 0, labels: {part: a}}, {name: b, pods: 2, min: 0, labels: {part: b}}]
- patch:
    object: PodGroup/default/g
    merge: {spec: {minMember: 1, subGroupPolicy: [{name: part, matchLabelKeys: [part], subGroupSize: 2}]}}
"""
KEPT = """
policy: {settings: {reserveAfterSeconds: 60}}
nodes: [{name: "n[1-2]", gpu: 8}]
gangs:
- {name: runs, requests: {gpu: 8}, runningOn: n2, age: 1h}
- {name: big, pods: 2, requests: {gpu: 8}, age: 1m}
steps:
- run: 2m
- submit: {name: later, requests: {gpu: 8}}
"""
TOO_LARGE = """
nodes: [{name: "n[1-2]", gpu: 1}]
steps:
- submit: {name: large, pods: 3, requests: {gpu: 1}}
"""
DOMAINS = """
nodes: [{name: "n[1-4]", gpu: 1}]
objects:
- apiVersion: topology.volcano.sh/v1alpha1
  kind: HyperNode
  metadata: {name: rack-1}
  spec: {tier: 1, members: [{type: Node, selector: {regexMatch: {pattern: "^n[12]$"}}}]}
- apiVersion: topology.volcano.sh/v1alpha1
  kind: HyperNode
  metadata: {name: rack-2}
  spec: {tier: 1, members: [{type: Node, selector: {regexMatch: {pattern: "^n[34]$"}}}]}
- apiVersion: topology.volcano.sh/v1alpha1
  kind: HyperNode
  metadata: {name: block}
  spec: {tier: 2, members: [{type: HyperNode, selector: {regexMatch: {pattern: "^rack-.$"}}}]}
steps:
- submit: {name: close, pods: 3, requests: {gpu: 1}, networkTopology: {mode: hard, highestTierAllowed: 1}}
"""

IN_PIECES = """
policy: {actions: [expire, enqueue, allocate, consolidate]}
nodes: [{name: "n[1-4]", gpu: 8}]
gangs:
- {name: a, requests: {gpu: 4}, runningOn: n1, age: 1h, controller: recreate, annotations: {muster.dev/movable: "true"}}
- {name: b, requests: {gpu: 4}, runningOn: n2, age: 2h, controller: recreate, annotations: {muster.dev/movable: "true"}}
- {name: c, requests: {gpu: 4}, runningOn: n3, age: 1h, controller: recreate}
- {name: d, requests: {gpu: 4}, runningOn: n4, age: 1h, controller: recreate}
steps:
- submit: {name: first, requests: {gpu: 8}, priority: 5}
"""
IN_PIECES_AGAIN = f"{IN_PIECES}- run: {{for: 10m, every: 5s}}\n- submit: {{name: second, requests: {{gpu: 8}}, priority: 5}}\n"


def test_correct_code_violates_no_invariant() -> None:
    for text in (BUSY, EVICTING, DOMAINS):
        assert violated_invariants(run_steps(text, twin=True)) == set()


# -- bugs --------------------------------------------------------------------------------------------------------------------------


def every_node_fits(patch: Patch) -> Violated:
    def fit(_self: Fit, _s: Session, _pod: Pod, rows: NodeRows) -> BoolColumn:
        return np.ones(len(rows), dtype=np.bool_)

    patch.setattr(Fit, "fit", fit)
    return violated_invariants(run_steps())


def device_slots_are_assigned_twice(_patch: Patch) -> Violated:
    found = run_steps()
    found.cycle()
    world = found.world
    pods = [world.facts.pods[uid] for uid in world.facts.members if world.placements.by_uid.get(uid) is None][:2]
    node = world.facts.nodes["n4"]
    object.__setattr__(node, "devices", (Device(0, "gpu", memory=8),))
    with Trial(world, why="a bug", cause="Bug") as trial:
        for pod in pods:
            trial.place(pod, "n4", phase=Phase.BINDING, devices=(DeviceSlot(0, memory=8, cores=50),))
        trial.commit()
    world.placements.journal.clear()
    binds = tuple(Bind(pod.uid, pod.full_name, "n4", "", "a bug", "Bug", (DeviceSlot(0, 8, 50),)) for pod in pods)
    return {violation.invariant for violation in InvariantChecker(found.policy).check_cycle(world, Outcome(9, world.now, binds))}


def subgroups_are_placed_in_part(patch: Patch) -> Violated:
    patch.setattr(domain_placement, "is_complete", lambda _subgroup, _counts: True)
    return violated_invariants(run_steps(SUBGROUPS))


def bulk_is_not_counted(patch: Patch) -> Violated:
    def add_many(_self: NodeTable, _rows: object, _amounts: Amounts, *, phase: Phase) -> None:
        assert phase is not None

    patch.setattr(NodeTable, "add_many", add_many)
    return violated_invariants(run_steps())


def ancestors_are_forgotten(patch: Patch) -> Violated:
    charge = Ledger.charge

    def only_below(self: Ledger, queue: str, amounts: Amounts, *, phase: Phase, preemptible: bool, count: int) -> None:
        if queue != "queue/below":
            charge(self, queue, amounts, phase=phase, preemptible=preemptible, count=count)

    patch.setattr(Ledger, "charge", only_below)
    return violated_invariants(run_steps())


def released_pods_stay_on_their_node(patch: Patch) -> Violated:
    found = run_steps()
    found.cycle()
    world = found.world
    uid = next(uid for uid, placement in world.placements.by_uid.items() if placement.phase is Phase.BOUND)
    world.placements.on_node.setdefault("n4" if world.placements.by_uid[uid].node != "n4" else "n3", {})[uid] = world.facts.pods[
        uid
    ]
    patch.setattr(Placements, "_index_phase", lambda *_: None)
    return violated_invariants(found)


def binds_are_sent_again(patch: Patch) -> Violated:
    sent: list[Effect] = []

    def again(s: Session, changes: Sequence[NetChange]) -> tuple[Effect, ...]:
        made = collect_effects(s, changes)
        sent.extend(effect for effect in made if isinstance(effect, Bind))
        return (*made, *sent)

    patch.setattr("muster.engine.cycle.collect_effects", again)
    return violated_invariants(run_steps())


def nothing_is_undone(patch: Patch) -> Violated:
    patch.setattr(Trial, "undo_to", lambda _self, _mark: None)
    return violated_invariants(run_steps(TOO_LARGE))


def refusals_are_silent(patch: Patch) -> Violated:
    patch.setattr(explain, "no_node_fits", lambda *_, **__: Verdict(ok=False))
    return violated_invariants(run_steps(BUSY))


def topology_constraints_are_ignored(patch: Patch) -> Violated:
    def anywhere(_self: Topology, s: Session, ask: Ask) -> None:
        """No opinion, whatever the gang may use."""

    patch.setattr(Topology, "domains", anywhere)
    return violated_invariants(run_steps(DOMAINS))


def _evicting(patch: Patch, evict: Callable[[Session], Iterator[tuple[Pod, str]]], *, cycles: int = 3) -> Violated:
    """An eviction action that evicts what it is given, right or wrong."""

    def action(s: Session, _refusals: Refusals) -> None:
        for pod, gang in evict(s):
            with s.trial("a bug", cause="Bug", for_gang=gang) as trial:
                trial.evict(pod)
                trial.commit()

    patch.setitem(cycle.ACTIONS, "gang-preempt", action)
    found = run_steps(EVICTING)
    for _ in range(cycles):
        found.cycle()
    return {violation.invariant for violation in found.violations}


def _placed_pods(s: Session) -> list[Pod]:
    return [s.world.facts.pods[uid] for uid, placement in s.world.placements.by_uid.items() if placement.phase is Phase.BOUND]


def evicted_for_nothing(patch: Patch) -> Violated:
    return _evicting(patch, lambda s: ((pod, "default/high") for pod in _placed_pods(s)[:1]))


def evicted_and_placed(patch: Patch) -> Violated:
    """Of a gang that was given a node in this cycle, another member is evicted."""

    def evict(s: Session) -> Iterator[tuple[Pod, str]]:
        if any(placement.phase is Phase.BINDING for placement in s.world.placements.by_uid.values()):
            yield _placed_pods(s)[0], "default/high"
        elif s.world.memory.cycle == 1:
            yield _placed_pods(s)[-1], "default/high"

    return _evicting(patch, evict, cycles=4)


def _nominate(s: Session) -> Gang:
    """A nomination for `high`, as if somebody had been evicted for it."""
    gang = next(gang for gang in s.world.facts.gangs.values() if gang.full_name == "default/high")
    pod = gang.pods()[0]
    if s.world.phase(pod) is not Phase.NOMINATED:
        s.world.memory.plans.set("p", ActivePlan(gang.key, (), s.now))
        with s.trial("a bug", cause="Bug") as trial:
            trial.restore(pod, Placement(Phase.NOMINATED, "n1", s.now, plan="p"))
            trial.commit()
    return gang


def nominated_and_still_evicting(patch: Patch) -> Violated:
    def evict(s: Session) -> Iterator[tuple[Pod, str]]:
        yield _placed_pods(s)[0], _nominate(s).full_name

    return _evicting(patch, evict)


def evicting_for_ever(patch: Patch) -> Violated:
    """Everybody is made anew at once, and evicted again."""
    return _evicting(patch, lambda s: ((pod, "default/high") for pod in _placed_pods(s)), cycles=40)


def a_release_gives_back_too_little(patch: Patch) -> Violated:
    change_phase = Ledger.change_phase

    def stingy(self: Ledger, queue: str, amounts: Amounts, *, before: Phase, now: Phase, preemptible: bool) -> None:
        less = amounts - 1 if before is Phase.NOMINATED else amounts
        change_phase(self, queue, less, before=before, now=now, preemptible=preemptible)

    patch.setattr(Ledger, "change_phase", stingy)
    return violated_invariants(run_steps())


def the_order_is_random(patch: Patch) -> Violated:
    chance = random.Random(1)

    def shuffled(_: Session, gangs: list[Gang]) -> list[Gang]:
        return chance.sample(gangs, len(gangs))

    patch.setattr("muster.engine.allocate.order_gangs", shuffled)
    submit = ", ".join(f"{{name: g{number}, pods: 2, requests: {{gpu: 1}}}}" for number in range(8))
    return violated_invariants(run_steps(f"nodes: [{{name: n1, gpu: 4}}]\nsteps: [{{submit: [{submit}]}}]\n", twin=True))


def limits_are_ignored(patch: Patch) -> Violated:
    patch.setattr(Session, "admit", lambda _self, _ask: YES)
    patch.setattr(Session, "quota_fit", lambda _self, _pod, *, count, phase: QuotaFit(count if phase else 0))
    return violated_invariants(
        run_steps(
            """
            nodes: [{name: n1, gpu: 8}]
            queues: [{name: q, limit: {gpu: 2}}]
            steps: [{submit: {name: g, queue: q, pods: 3, requests: {gpu: 1}}}]
            """
        )
    )


def moved_pods_have_no_other_node(patch: Patch) -> Violated:
    patch.setattr(consolidate, "_keep", lambda *_args, **_keywords: True)
    return violated_invariants(run_steps(IN_PIECES))


def everybody_may_be_moved(patch: Patch) -> Violated:
    patch.setattr(movable_pods, "is_declared", lambda _s, _pod: True)
    return violated_invariants(run_steps(IN_PIECES.replace('"true"', '"false"')))


def earlier_moves_are_forgotten(patch: Patch) -> Violated:
    patch.setattr(movable_pods, "_leave_out_moved", lambda _s, _choice: None)
    return violated_invariants(run_steps(IN_PIECES_AGAIN))


def moves_are_closed_when_they_begin(patch: Patch) -> Violated:
    patch.setattr(consolidate, "Move", partial(Move, successor="nobody"))
    return violated_invariants(run_steps(IN_PIECES))


def kept_nodes_are_open(patch: Patch) -> Violated:
    patch.setattr(KeptCapacity, "closed_to", lambda *_args, **_keywords: [])
    return violated_invariants(run_steps(KEPT))


BUGS: dict[str, Callable[[Patch], Violated]] = {
    "no node over capacity": every_node_fits,
    "no device over capacity": device_slots_are_assigned_twice,
    "node columns are sums": bulk_is_not_counted,
    "the ledger is a sum": ancestors_are_forgotten,
    "no queue over its limit": limits_are_ignored,
    "no pod twice": released_pods_stay_on_their_node,
    "no effect twice": binds_are_sent_again,
    "a strict gang is placed whole or not at all": nothing_is_undone,
    "a subgroup is placed only when it is complete": subgroups_are_placed_in_part,
    "every effect and every wait says why": refusals_are_silent,
    "hard topology holds": topology_constraints_are_ignored,
    "an eviction has a beneficiary": evicted_for_nothing,
    "a gang placed in a cycle is not a victim in it": evicted_and_placed,
    "a gang whose nominations all stand evicts nobody": nominated_and_still_evicting,
    "evictions come to an end": evicting_for_ever,
    "a moved pod has a place": moved_pods_have_no_other_node,
    "only movable pods are moved": everybody_may_be_moved,
    "nobody is moved twice in a while": earlier_moves_are_forgotten,
    "what is kept belongs to a move": moves_are_closed_when_they_begin,
    "kept nodes stay closed": kept_nodes_are_open,
    NO_TRACE: a_release_gives_back_too_little,
    SAME_DECISION: the_order_is_random,
}


@pytest.mark.parametrize("invariant", BUGS)
def test_the_invariant_notices_its_bug(invariant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert invariant in BUGS[invariant](monkeypatch)


def test_every_invariant_has_a_bug_that_shows_it_firing() -> None:
    assert set(BUGS) == {*INVARIANTS, NO_TRACE, SAME_DECISION}


def test_every_invariant_is_documented() -> None:
    assert all(invariant.__doc__ for invariant in INVARIANTS.values())
