"""One picture of the cluster: facts, placements and memory, and how to know what changed.

Facts change between cycles, by the store alone. Placements change by `Placements.move` alone, and memory by journaled writes: a
trial undoes both. Derived values are kept in `derived` and can be thrown away at any time.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from muster.model.gang import Gang
from muster.model.pod import UNPLACED, Phase, Placement, Pod
from muster.state.changes import Changes
from muster.state.derived_values import DerivedValues
from muster.state.facts import Facts
from muster.state.ledger import Ledger
from muster.state.memory import Memory
from muster.state.node_table import NodeTable
from muster.state.placements import Placements
from muster.state.resource_columns import Amounts, Columns


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.changes = Changes()
        self.facts = Facts()
        self.derived = DerivedValues()
        self.placements = Placements(self.changes, self.derived, self.facts.members)
        self.memory = Memory(self.placements.journal, self.changes)
        # Shortcuts to what nearly everybody reads.
        self.table: NodeTable = self.placements.table
        self.ledger: Ledger = self.placements.ledger
        self.columns: Columns = self.placements.columns

    def copied(self) -> World:
        """To read while this one changes, in another thread too: what was observed, where the pods are, and why gangs wait.
        Nothing can be decided on it."""
        made = copy(self)
        facts = self.facts
        made.facts = replace(
            facts, nodes=facts.nodes.copy(), pods=facts.pods.copy(), gangs=facts.gangs.copy(), members=facts.members.copy()
        )
        made.columns = copy(self.columns)
        made.columns.names = self.columns.names.copy()
        made.placements, made.memory = self.placements.copied(), self.memory.copied()
        made.table = made.placements.table
        return made

    def placement(self, pod: Pod) -> Placement:
        return self.placements.by_uid.get(pod.uid, UNPLACED)

    def phase(self, pod: Pod) -> Phase:
        placement = self.placements.by_uid.get(pod.uid)
        return Phase.PENDING if placement is None else placement.phase

    def request(self, pod: Pod) -> Amounts:
        return self.columns.vector(pod.signature.request)

    def gang_of(self, pod: Pod) -> Gang | None:
        member = self.facts.members.get(pod.uid)
        return None if member is None else self.facts.gangs.get(member.gang)
