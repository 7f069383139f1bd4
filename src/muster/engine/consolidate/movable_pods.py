"""Who may be moved for a gang, at what price, and why others may not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from muster.engine.evict.eviction_history import gang_losses, gangs_by_history
from muster.engine.evict.victims import VictimTable, is_protected, mask_of, victim_table_of
from muster.engine.explain import plural
from muster.engine.hooks import Ask, DelaysEviction, ExplainsProtection, FiltersVictims, Purpose
from muster.engine.session import Session
from muster.model.gang import Gang
from muster.model.pod import PLACED, Phase, Pod
from muster.model.topics import Topic
from muster.state.derived_values import Derived
from muster.state.gangs.gang_stage import has_minimum
from muster.state.node_table import BoolColumn, FloatColumn, RowIndex

CONSOLIDATE = "consolidate"
MOVE_ENDED = "MoveEnded"


@dataclass(frozen=True, slots=True)
class MovablePods:
    """Pods that may be moved, as rows of the victim table. `price` is what each loses; see `GangPrice` for what their gangs do."""

    at: RowIndex
    price: FloatColumn
    barred: tuple[str, ...]
    """How many others may not, and why."""
    others: int
    """How many these are."""
    movable_at: float
    """When the first of these may that time alone keeps."""


@dataclass(frozen=True, slots=True)
class GangPrice:
    """`surplus` members can be moved at their own price; with one more the gang is below its minimum for a while, and all of it
    loses its work: `whole`."""

    surplus: int
    whole: float


@dataclass(slots=True)
class _Choice:
    """Those that are left, and who was left out for which reason."""

    table: VictimTable
    at: RowIndex
    barred: list[str] = field(default_factory=list)
    movable_at: float = np.inf

    def keep(self, allowed: BoolColumn, why: str) -> None:
        left_out = int(np.count_nonzero(~allowed))
        if left_out:
            self.barred.append(f"{plural(left_out, 'pod', 'pods')} {why}")
        self.at = self.at[allowed]


def movable_pods(s: Session, ask: Ask, *, is_continued: bool = False) -> MovablePods:
    """For a gang: pods of gangs of its priority or below, that somebody creates anew and that may be moved. Everybody else that is
    placed is counted by the first reason that bars him. `is_continued`: what this cycle changed is what an earlier one decided."""
    table = victim_table_of(s.world)
    choice = _Choice(table, _placed_elsewhere(table, ask.gang))
    placed = len(choice.at)
    static = _STATIC.of(s.world, lambda: _static_reasons(s, table), key=(s.policy, table.generation))
    reasons = np.array([static.get(table.pods[at].uid, "") for at in choice.at.tolist()], dtype=object)
    for why in _REASONS:
        kept = reasons != why
        choice.keep(kept, why)
        reasons = reasons[kept]
    if not is_continued:
        choice.keep(~_in_motion(s, table)[table.gang[choice.at]], _IN_MOTION)
    choice.keep(table.gang_priority[table.gang[choice.at]] <= ask.gang.priority, "of a higher priority")
    _leave_out_moved(s, choice)
    for plugin in s.policy.filters_victims:
        _leave_out_vetoed(s, ask, plugin, choice)
    # Which row of the table a pod has decides nothing.
    choice.at = np.array(sorted(choice.at.tolist(), key=lambda at: table.pods[at].full_name), dtype=np.intp)
    return MovablePods(choice.at, _prices(s, table, choice.at), tuple(choice.barred), placed - len(choice.at), choice.movable_at)


def _placed_elsewhere(table: VictimTable, asker: Gang) -> RowIndex:
    used = len(table.pods)
    bound = table.alive[:used] & (table.phase[:used] == Phase.BOUND) & (table.row[:used] >= 0)
    own = table.gang_number.get(asker.key, -1)
    return np.flatnonzero(bound & (table.gang[:used] != own))


# -- what does not depend on the gang that asks -----------------------------------------------------------------------------------

_UNDECLARED = "not declared as movable"
_UNCONTROLLED = "without a controller that creates them anew"
_PROTECTED = "protected from eviction"
_CONSTRAINED = "with host ports, volumes or constraints with other pods"
_IN_MOTION = "of gangs that are not whole, or are changing nodes"
_SOFT = "of quotas that mark pods instead of evicting them"
_SUBGROUPS = "of gangs whose sub-groups have a topology"
_REASONS = (_UNDECLARED, _UNCONTROLLED, _PROTECTED, _CONSTRAINED, _SUBGROUPS, _SOFT, _IN_MOTION)

_STATIC: Derived[dict[str, str]] = Derived("why pods may not be moved", Topic.CYCLE)
"""By UID, of those that may not. What a cycle itself changes is checked once more when a plan is tried."""


def _static_reasons(s: Session, table: VictimTable) -> dict[str, str]:
    in_motion = {key for key, gang in s.world.facts.gangs.items() if not _is_settled(s, gang)}
    found: dict[str, str] = {}
    for uid, at in table.index.items():
        if table.phase[at] == Phase.BOUND and (why := _why_not(s, table, at, in_motion)):
            found[uid] = why
    return found


def _why_not(s: Session, table: VictimTable, at: int, in_motion: set[str]) -> str:
    pod, member = table.pods[at], s.world.facts.members[table.pods[at].uid]
    if not is_declared(s, pod):
        return _UNDECLARED
    if not pod.controller or not pod.ours:
        return _UNCONTROLLED
    if table.not_evictable[at] or table.non_preemptible[at]:
        return _PROTECTED
    if pod.signature.volume_claims or pod.signature.ports or s.has_inter_pod_constraints(pod):
        return _CONSTRAINED
    if any(subgroup.topology is not None for subgroup in s.world.facts.gangs[member.gang].subgroups):
        return _SUBGROUPS
    if s.policy.manner(CONSOLIDATE, queue=member.queue) == "soft":
        return _SOFT
    return _IN_MOTION if member.gang in in_motion else ""


def is_declared(s: Session, pod: Pod) -> bool:
    """Does the pod say that it may be moved, or does the policy of its queue, and the pod does not deny it?"""
    if pod.movable is not None:
        return pod.movable
    queues = s.policy.settings.movable_queues
    path = s.world.ledger.path(s.world.facts.members[pod.uid].queue) if queues else ()
    return any(queue in queues or queue.partition("/")[2] in queues for queue in path)


def _is_settled(s: Session, gang: Gang) -> bool:
    """Is the gang whole, with nobody on the way to a node or from one?"""
    phases = {s.world.phase(pod) for pod in gang.pods()}
    if any(role.terminating for role in gang.roles) or not phases <= {Phase.BOUND, Phase.PENDING}:
        return False
    return has_minimum(s.world, gang, PLACED)


# -- what does ---------------------------------------------------------------------------------------------------------------------


def _in_motion(s: Session, table: VictimTable) -> BoolColumn:
    """Gangs that this very cycle changed, and those of which pods are being moved."""
    members, moves = s.world.facts.members, s.world.memory.moves
    changed = {members[step.pod.uid].gang for step in s.world.placements.steps() if step.pod.uid in members}
    gangs = gangs_by_history(s) if len(moves) else {}
    for move in moves.values():
        changed |= gangs.get(move.reserve.owner, set())
    return mask_of([table.gang_number[key] for key in changed if key in table.gang_number], len(table.gangs))


def _leave_out_moved(s: Session, choice: _Choice) -> None:
    every_s = s.policy.settings.move_every_s
    until = np.full(len(choice.table.gangs), -np.inf)
    for number, losses in gang_losses(s, choice.table):
        if losses.moved_at:
            until[number] = losses.moved_at + every_s
    own = until[choice.table.gang[choice.at]]
    later = own[own > s.now]
    choice.movable_at = min(choice.movable_at, float(later.min(initial=np.inf)))
    choice.keep(own <= s.now, f"moved within the last {every_s:.0f} s")


def _leave_out_vetoed(s: Session, ask: Ask, plugin: FiltersVictims, choice: _Choice) -> None:
    allowed = plugin.evictable(s, ask, choice.table, choice.at)
    if allowed.all():
        return
    if isinstance(plugin, DelaysEviction):
        ends = plugin.evictable_at(s, ask, choice.table, choice.at)[~allowed]
        choice.movable_at = min(choice.movable_at, float(ends[ends > s.now].min(initial=np.inf)))
    pods = [choice.table.pods[at] for at in choice.at[~allowed].tolist()]
    why = plugin.why_protected(s, pods) if isinstance(plugin, ExplainsProtection) else f"protected by the plugin {plugin.name}"
    choice.keep(allowed, why)


def movable_now(s: Session, ask: Ask, victims: Sequence[Pod]) -> set[str]:
    """The UIDs of those victims that are still placed and may be moved now for this gang, judged before any of them left. Of a gang
    of which some left already the rest follows, unless it is protected."""
    left = {pod.uid for pod in victims if s.world.phase(pod) is Phase.BOUND}
    begun = {s.world.facts.members[pod.uid].gang for pod in victims if pod.uid not in left and pod.uid in s.world.facts.members}
    with s.trial("judged before any of them left", cause="") as trial:
        for pod in victims:
            if s.world.phase(pod) is Phase.TERMINATING:
                trial.change_phase(pod, phase=Phase.BOUND)
        table = victim_table_of(s.world)
        movable = {table.pods[at].uid for at in movable_pods(s, ask, is_continued=True).at.tolist()}
        follow = {pod.uid for pod in victims if s.world.facts.members[pod.uid].gang in begun and not is_protected(pod)}
    return left & (movable | follow)


def move_ask(gang: Gang, pods: Sequence[Pod]) -> Ask:
    return Ask(gang, tuple(pods), Purpose.NOMINATE, CONSOLIDATE)


# -- prices ------------------------------------------------------------------------------------------------------------------------


def _prices(s: Session, table: VictimTable, at: RowIndex) -> FloatColumn:
    """Lost work: the pod's part of the cluster, times one and the hours that it loses."""
    total = np.maximum(s.world.table.allocatable.sum(axis=0), 1)
    hours = np.zeros(len(at))
    for plugin in s.policy.counts_lost_hours:
        hours += plugin.lost_hours(s, table, at)
    share = (table.request[at] / total).max(axis=1, initial=0.0)
    prices: FloatColumn = np.round(share * (1.0 + hours), 12)
    return prices


def gang_prices(s: Session, gangs: Sequence[int]) -> dict[int, GangPrice]:
    """By number in the victim table."""
    table = victim_table_of(s.world)
    used = len(table.pods)
    bound = np.flatnonzero(table.alive[:used] & (table.phase[:used] == Phase.BOUND))
    return {number: GangPrice(*found) for number, found in _gang_prices(s, table, bound, gangs)}


def _gang_prices(s: Session, table: VictimTable, bound: RowIndex, gangs: Sequence[int]) -> Iterator[tuple[int, tuple[int, float]]]:
    wanted = np.zeros(len(table.gangs) + 1, dtype=np.bool_)
    wanted[list(gangs)] = True
    members = bound[wanted[table.gang[bound]]]
    prices, of = _prices(s, table, members), table.gang[members]
    whole = np.bincount(of, weights=prices, minlength=len(table.gangs))
    count = np.bincount(of, minlength=len(table.gangs)) + table.gang_succeeded[: len(table.gangs)]
    for number in gangs:
        gang = table.gangs[number]
        surplus = gang.size if table.gang_per_pod[number] else max(0, int(count[number] - table.gang_min[number]))
        yield number, (surplus, round(float(whole[number]), 12))
