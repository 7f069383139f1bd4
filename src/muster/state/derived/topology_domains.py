"""The tree of domains: nodes that are close to each other, tier above tier, and the whole cluster above them all.

Made from HyperNodes and, for the nodes that are in none, from node labels; a node that is in neither is a domain of its own.
Derived and never stored: when a HyperNode or a node changes, there is another tree. What is wrong with a HyperNode is written down
beside the tree, and only the bad part of it is left out.

Every node has at most one domain of each tier. Where HyperNodes claim a node twice, the lower tier keeps it, then the older.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from muster.model.pod import Problem
from muster.model.topics import Topic
from muster.model.topology_spec import DomainSpec
from muster.state.derived.hypernode_members import NodeNames, Owners, owners
from muster.state.derived_values import Derived
from muster.state.node_table import BoolColumn, NodeTable, RowIndex
from muster.state.world import World

NODE_TIER = "node"
"""What the tier of single nodes is called; its number is 0."""

LabelTiers = tuple[tuple[str, str], ...]
"""Names of tiers and the node labels that they follow, the lowest first."""


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """Nodes within which a gang must fit. `rows` None: every node."""

    name: str
    rows: RowIndex | None = None
    tier: int | None = None
    tier_name: str = ""

    @property
    def title(self) -> str:
        """What a person calls it: `rack r1`."""
        return f"{self.tier_name} {self.name}" if self.tier_name else self.name

    def mask(self, size: int) -> BoolColumn:
        """A column over all nodes: which of them are inside."""
        inside = np.full(size, self.rows is None)
        if self.rows is not None:
            inside[self.rows] = True
        return inside


WHOLE_CLUSTER = Domain("the whole cluster")


@dataclass(frozen=True, slots=True)
class _Part:
    """A domain in the making."""

    name: str
    tier: int
    rows: RowIndex


class DomainTree:
    """`domains` are sorted by tier and name, single nodes (tier 0) first, the whole cluster not among them."""

    def __init__(
        self,
        parts: Sequence[_Part],
        *,
        size: int,
        singles: Sequence[_Part] = (),
        names: Mapping[str, int],
        problems: Mapping[str, tuple[Problem, ...]] | None = None,
    ) -> None:
        self.tier_numbers = dict(names)
        """The tiers that have names, and their numbers."""
        self.problems = dict(problems or {})
        """What is wrong with HyperNodes, by their names."""
        self._titles = {number: name for name, number in reversed(self.tier_numbers.items())}
        self.lowest = min((part.tier for part in parts), default=None)
        """The lowest tier of those that are made of HyperNodes or labels."""
        parts = sorted([*parts, *singles], key=lambda part: (part.tier, part.name))
        self.domains = tuple(Domain(part.name, part.rows, part.tier, self._titles.get(part.tier, "")) for part in parts)
        self.tiers = tuple(sorted({part.tier for part in parts}))
        self.top_tier = max((tier for tier in self.tiers if tier), default=1) + 1
        """The tier of the whole cluster: the first that no domain has."""
        self.whole = Domain(WHOLE_CLUSTER.name, None, self.top_tier)
        self._home = self._homes(size)
        self._up_to: dict[int, tuple[Domain, ...]] = {}

    def _homes(self, size: int) -> npt.NDArray[np.int32]:
        """For each tier and row the domain that the row is in, or -1."""
        home = np.full((len(self.tiers), size), -1, dtype=np.int32)
        level = {tier: i for i, tier in enumerate(self.tiers)}
        for at, domain in enumerate(self.domains):
            home[level[domain.tier or 0], domain.rows] = at
        return home

    def containing(self, rows: Sequence[int]) -> list[Domain]:
        """The domains in which all these rows lie, the narrowest first; the whole cluster is always the last."""
        if not len(rows):
            return [*self.domains, self.whole]
        home = self._home[:, np.asarray(rows, dtype=np.intp)]
        shared = (home == home[:, :1]).all(axis=1) & (home[:, 0] >= 0)
        return [*(self.domains[at] for at in home[shared, 0].tolist()), self.whole]

    def up_to(self, tier: int) -> tuple[Domain, ...]:
        """All domains at or below that tier, the narrowest first."""
        found = self._up_to.get(tier)
        if found is None:
            count = bisect_right([domain.tier or 0 for domain in self.domains], tier)
            found = (*self.domains[:count], *([self.whole] if self.top_tier <= tier else []))
            self._up_to[tier] = found
        return found

    def lowest_common(self, rows: Sequence[int]) -> Domain:
        """The narrowest domain in which all these rows lie."""
        return self.containing(rows)[0] if len(rows) else self.whole

    def parts_of(self, domain: Domain) -> list[Domain]:
        """The widest domains inside this one: where its members go when they cannot all be in one narrower domain."""
        tier = self.top_tier if domain.tier is None else domain.tier
        below = [i for i, each in enumerate(self.tiers) if each < tier]
        rows = np.arange(self._home.shape[1]) if domain.rows is None else domain.rows
        found = np.full(len(rows), -1, dtype=np.int32)
        for level in below:
            home = self._home[level, rows]
            found = np.where(home >= 0, home, found)
        return [self.domains[at] for at in np.unique(found[found >= 0]).tolist()]

    def show_tier(self, number: int) -> str:
        """`1 (rack)`, or the bare number where the tier has no name."""
        name = self._titles.get(number)
        return f"{number} ({name})" if name else str(number)

    def noun(self, number: int) -> str:
        """What one domain of that tier is called."""
        return self._titles.get(number) or f"domain of tier {number}"


_TREES: Derived[DomainTree] = Derived("domain trees", Topic.NODE_LAYOUT, Topic.NODE_LABELS, Topic.DOMAINS)
_LABEL_TREES: Derived[DomainTree | None] = Derived("trees of one label", Topic.NODE_LAYOUT, Topic.NODE_LABELS)
_NODE_TREE: Derived[DomainTree] = Derived("tree of single nodes", Topic.NODE_LAYOUT)
_NODE_NAMES: Derived[NodeNames] = Derived("nodes by name and pattern")


def domain_tree(world: World, tiers: LabelTiers = ()) -> DomainTree:
    """The tree as HyperNodes, nodes and these labels make it now."""
    names = _NODE_NAMES.of(world, NodeNames)
    return _TREES.of(world, lambda: build_tree(world.facts.domains, world.table, tiers, names), key=tiers)


def label_tree(world: World, label: str) -> DomainTree | None:
    """A tree of one tier: nodes with the same value of a label are one domain. None where no node has the label."""

    def build() -> DomainTree | None:
        parts = _label_parts(world.table, ((label, label),), np.ones(len(world.table), dtype=np.bool_))
        return DomainTree(parts, size=len(world.table), names={label: 1}) if parts else None

    return _LABEL_TREES.of(world, build, key=label)


def node_tree(world: World) -> DomainTree:
    """The tree in which every node is a domain of its own."""

    def build() -> DomainTree:
        parts = _single_nodes(world.table, range(len(world.table)))
        return DomainTree((), size=len(world.table), singles=parts, names={NODE_TIER: 0})

    return _NODE_TREE.of(world, build)


def build_tree(specs: Mapping[str, DomainSpec], table: NodeTable, tiers: LabelTiers, names: NodeNames) -> DomainTree:
    owned = owners(specs, table, names)
    labelled = _label_parts(table, tiers, owned.loose)
    loose = owned.loose.copy()
    for part in labelled:
        loose[part.rows] = False
    singles = _single_nodes(table, np.flatnonzero(loose).tolist())
    problems = {name: (*specs[name].problems, *found) for name, found in owned.problems.items()}
    return DomainTree(
        [*_hypernode_parts(specs, owned), *labelled],
        size=len(table),
        singles=singles,
        names={**_tier_numbers(tiers), **owned.tier_numbers},
        problems={name: found for name, found in problems.items() if found},
    )


def _hypernode_parts(specs: Mapping[str, DomainSpec], owned: Owners) -> list[_Part]:
    """What a HyperNode has itself and what its parts have. Parts have lower tiers: they come first."""
    parts: list[_Part] = []
    inside: dict[str, list[RowIndex]] = {name: [rows] for name, rows in owned.rows.items()}
    for spec in sorted(specs.values(), key=lambda spec: spec.tier):
        rows = np.sort(np.concatenate(inside[spec.name]))
        if len(rows):
            parts.append(_Part(spec.name, spec.tier, rows))
            inside.setdefault(owned.parent.get(spec.name, ""), []).append(rows)
    return parts


def _tier_numbers(tiers: LabelTiers) -> dict[str, int]:
    """A tier made of labels answers to its own name and to that of its label."""
    numbers = {label: number for number, (_, label) in enumerate(tiers, start=1)}
    return numbers | {name: number for number, (name, _) in enumerate(tiers, start=1)}


def _label_parts(table: NodeTable, tiers: LabelTiers, open_rows: npt.NDArray[np.bool_]) -> list[_Part]:
    """Nodes with the same values of a tier's label and of all labels above it are one domain, named by these values."""
    if not tiers:
        return []
    found = [table.label_codes(label) for _, label in tiers]
    codes = np.stack([column for column, _ in found])
    values = [list(known) for _, known in found]
    parts: list[_Part] = []
    for level in range(len(tiers)):
        rows = np.flatnonzero(open_rows & (codes[level] >= 0))
        if not len(rows):
            continue
        paths, which = np.unique(codes[level:, rows], axis=1, return_inverse=True)
        order = np.argsort(which, kind="stable")
        cuts = np.searchsorted(which[order], np.arange(1, paths.shape[1]))
        for path, members in zip(paths.T.tolist(), np.split(rows[order], cuts), strict=True):
            written = [values[level + up][code] for up, code in enumerate(path) if code >= 0]
            parts.append(_Part("/".join(reversed(written)), level + 1, members))
    return parts


def _single_nodes(table: NodeTable, rows: Iterable[int]) -> list[_Part]:
    return [_Part(table.names[row], 0, np.array([row], dtype=np.intp)) for row in rows]
