"""Members whose place depends on other pods: affinity, spread, volumes, devices.

Each check that a member is tied up in is asked anew after every move. Equal members in a row go together all the same, where every
such check can follow them with a gate: the outcome is the same as one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from muster.engine.columns import REFUSED
from muster.engine.gates import Gate
from muster.engine.hooks import Domain, Entangles
from muster.engine.session import Session
from muster.model.pod import Phase, Pod
from muster.state.table import BoolColumn, FloatColumn, Rows
from muster.state.trial import Trial


@dataclass(frozen=True, slots=True)
class Ties:
    """The checks over other pods that a pod is entangled in. Pods of one kind with equal ties are interchangeable; `stamps` None
    says that this pod is like no other."""

    plugins: tuple[Entangles, ...]
    stamps: tuple[object, ...] | None

    def __contains__(self, plugin: object) -> bool:
        return any(plugin is one for one in self.plugins)


FREE = Ties((), ())


def ties_of(s: Session, pod: Pod, *, alone: bool = False) -> Ties:
    """`alone`: nobody asks who else is like this pod."""
    plugins = [plugin for plugin in s.policy.entangles if plugin.entangled(s, pod)]
    if not plugins:
        return FREE
    ties = Ties(tuple(plugins), None)
    if alone:
        return ties
    stamps = [plugin.stamp(s, pod) for plugin in s.policy.gates if plugin in ties]
    return Ties(ties.plugins, tuple(stamps)) if len(stamps) == len(plugins) else ties


class Seats(Protocol):
    """The values of further seats on rows."""

    def open(self, rows: list[int], *, left: int) -> None: ...

    def after_taking(self, row: int) -> float: ...


def place_one(s: Session, trial: Trial, pod: Pod, ties: Ties, domain: Domain, phase: Phase) -> int:
    soon, table = phase is Phase.NOMINATED, s.world.table
    value = s.columns(pod, soon=soon).value
    inside = value if domain.rows is None else value[domain.rows]
    candidates = np.flatnonzero(inside > REFUSED) if domain.rows is None else domain.rows[inside > REFUSED]
    for plugin in ties.plugins:
        candidates = candidates[plugin.fit_among(s, pod, Rows(table, candidates, soon=soon))]
    if not len(candidates):
        return 0
    total = value[candidates]
    # What a score is measured against are the nodes that are left to choose from.
    rows = Rows(table, candidates, soon=soon)
    for scorer in s.policy.scores_among:
        if scorer in ties:
            total += scorer.weight * scorer.score_among(s, pod, rows)
    put(s, trial, pod, table.names[candidates[int(total.argmax())]], phase=phase)
    return 1


def put(s: Session, trial: Trial, pod: Pod, node: str, *, phase: Phase) -> None:
    """Place one pod, with the slots of devices that it takes there."""
    slots = s.slots(pod, (node,), soon=phase is Phase.NOMINATED)
    trial.place(pod, node, phase=phase, devices=slots[0] if slots is not None else ())


def pick(s: Session, pod: Pod, ties: Ties, value: FloatColumn, seats: Seats, *, wanted: int, soon: bool) -> list[int]:
    """The rows that `wanted` pods like this one take one after the other. `value` is what the first seat on each row is worth."""
    rows = Rows(s.world.table, soon=soon)
    scorers = [plugin for plugin in s.policy.scores_among if plugin in ties]
    weights = {id(scorer): scorer.weight for scorer in scorers}
    gates = [(plugin.gate(s, pod, rows), weights.get(id(plugin), 0.0)) for plugin in s.policy.gates if plugin in ties]
    choice = _Choice(value, gates)
    picked: list[int] = []
    while len(picked) < wanted:
        choice.look_again(seats, left=wanted - len(picked))
        row = choice.best()
        if row is None:
            break
        picked.append(row)
        choice.take(row)
    return picked


class _Choice:
    """Every row: what its next seat is worth, and whether the gates are open. A seat is valued only when its row is open: most rows
    that took one pod are closed to the next."""

    def __init__(self, value: FloatColumn, gates: Sequence[tuple[Gate, float]]) -> None:
        self._value = value
        self._gates = gates
        self._unvalued: BoolColumn = np.zeros(len(value), dtype=np.bool_)
        self._asked: set[int] = set()
        self._open = self._find_open()

    def look_again(self, seats: Seats, *, left: int) -> None:
        """Value the next seats of rows that took a pod and are open."""
        if not self._unvalued.any():
            return
        again = np.flatnonzero(self._unvalued & self._open).tolist()
        seats.open([row for row in again if row not in self._asked], left=left)
        self._asked.update(again)
        for row in again:
            self._value[row] = seats.after_taking(row)
            self._unvalued[row] = False

    def best(self) -> int | None:
        candidates = np.flatnonzero(self._open & (self._value > REFUSED))
        if not len(candidates):
            return None
        total = self._value[candidates]
        for gate, weight in self._gates:
            score = gate.score(candidates)
            if score is not None:
                total += weight * score
        return int(candidates[int(total.argmax())])

    def take(self, row: int) -> None:
        for gate, _ in self._gates:
            gate.take(row)
        self._value[row] = REFUSED
        self._unvalued[row] = True
        self._open = self._find_open()

    def _find_open(self) -> BoolColumn:
        found = np.ones(len(self._value), dtype=np.bool_)
        for gate, _ in self._gates:
            opened = gate.open()
            if opened is not None:
                found &= opened
        return found
