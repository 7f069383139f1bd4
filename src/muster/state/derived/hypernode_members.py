"""From HyperNodes as they were declared to the nodes and domains that each of them really has.

Every node belongs to one HyperNode at most, and every HyperNode to one other: of several the lower tier has it, then the
older, then the first by name. What is invalid in a HyperNode is a problem on that object and stops nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt

from muster.model.pod import Problem
from muster.model.topology_spec import DomainMember, DomainSpec
from muster.state.node_table import BoolColumn, NodeTable, RowIndex
from muster.state.patterns import BadPattern, matching

# So many names are written into a sentence; the rest is a number.
_SHOWN = 3
_LONGEST_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Owners:
    """`rows`: the nodes that each HyperNode itself has; `parent`: the HyperNode that it lies in; `loose`: nodes without one."""

    rows: Mapping[str, RowIndex]
    parent: Mapping[str, str]
    loose: BoolColumn
    tier_numbers: Mapping[str, int]
    problems: Mapping[str, list[Problem]]


class NodeNames:
    """Which node names match which regular expression, kept between calls: nodes change one by one, patterns hardly ever."""

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._names: list[str] = []
        self._matching: dict[str, frozenset[str]] = {}
        self._bad: dict[str, BadPattern] = {}

    def set_names(self, names: list[str], patterns: Set[str]) -> None:
        """The nodes as they are now. Of the patterns only these are still in use."""
        for found in (self._matching, self._bad):
            for stale in found.keys() - patterns:
                del found[stale]
        if names is self._names:
            return
        now = frozenset(names)
        fresh = sorted(now - self._known)
        self._known, self._names = now, names
        for pattern, found_before in list(self._matching.items()):
            self._match(pattern, fresh, besides=found_before & now)

    def matching(self, pattern: str) -> frozenset[str]:
        """Raises BadPattern."""
        if pattern not in self._matching and pattern not in self._bad:
            self._match(pattern, self._names)
        if pattern in self._bad:
            raise self._bad[pattern]
        return self._matching[pattern]

    def _match(self, pattern: str, names: Sequence[str], *, besides: frozenset[str] = frozenset()) -> None:
        try:
            self._matching[pattern] = besides | matching(pattern, names)
        except BadPattern as bad:
            self._matching.pop(pattern, None)
            self._bad[pattern] = bad


def owners(specs: Mapping[str, DomainSpec], table: NodeTable, names: NodeNames) -> Owners:
    patterns = {member.regex for spec in specs.values() for member in spec.members if member.regex}
    names.set_names(table.names, patterns)
    assignment = _Assignment(specs, table, names)
    parent = assignment.link()
    rows, loose = assignment.assign_nodes(parent)
    return Owners(rows, parent, loose, assignment.name_tiers(), assignment.problems)


class _Assignment:
    def __init__(self, specs: Mapping[str, DomainSpec], table: NodeTable, names: NodeNames) -> None:
        self.specs, self.table, self.names = specs, table, names
        self.oldest_first = sorted(specs.values(), key=lambda spec: (spec.created, spec.name))
        self.problems: dict[str, list[Problem]] = {name: [] for name in specs}

    def _add_problem(self, spec: DomainSpec, field: str, text: str) -> None:
        self.problems[spec.name].append(Problem(field, text))

    # -- HyperNodes in HyperNodes ----------------------------------------------------------------------------------------------

    def link(self) -> dict[str, str]:
        """Which HyperNode lies in which."""
        parent: dict[str, str] = {}
        for spec in self.oldest_first:
            for field, member in _members(spec, is_node=False):
                wrong = self._wrong_child(spec, member, parent)
                if wrong:
                    self._add_problem(spec, field, wrong)
                else:
                    parent[member.exact] = spec.name
        return parent

    def _wrong_child(self, spec: DomainSpec, member: DomainMember, parent: Mapping[str, str]) -> str:
        child = self.specs.get(member.exact)
        if not member.exact:
            return "HyperNodes can only be named exactly: this member is ignored; write exactMatch"
        if child is None:
            near = get_close_matches(member.exact, self.specs, n=1)
            return f"there is no HyperNode {member.exact!r}" + (f"; did you mean {near[0]!r}?" if near else "")
        if member.exact == spec.name or self._contains(child, spec):
            return f"HyperNode {child.name} contains {spec.name} itself: it is not taken as a part of it"
        if child.tier >= spec.tier:
            return f"HyperNode {child.name} has tier {child.tier}, which is not below tier {spec.tier}: it is not taken as a part"
        other = parent.get(child.name)
        if other is not None and other != spec.name:
            return f"HyperNode {child.name} lies in {other} already and stays there: a HyperNode has one parent"
        return ""

    def _contains(self, spec: DomainSpec, other: DomainSpec) -> bool:
        """Does one HyperNode, as they are written, contain the other?"""
        seen: set[str] = set()
        todo = [spec.name]
        while todo:
            name = todo.pop()
            if name in seen or name not in self.specs:
                continue
            seen.add(name)
            todo.extend(member.exact for _, member in _members(self.specs[name], is_node=False) if member.exact)
        return other.name in seen

    # -- nodes in HyperNodes ---------------------------------------------------------------------------------------------------

    def assign_nodes(self, parent: Mapping[str, str]) -> tuple[dict[str, RowIndex], BoolColumn]:
        """The nodes of each HyperNode, and those without one. The lower tier comes first, then the older."""
        order = sorted(self.oldest_first, key=lambda spec: spec.tier)
        owner = np.full(len(self.table), -1, dtype=np.int32)
        for number, spec in enumerate(order):
            selected = self._selected_rows(spec)
            self._report_disputed(spec, selected, owner, order, parent)
            owner[selected[owner[selected] < 0]] = number
        return {spec.name: np.flatnonzero(owner == number) for number, spec in enumerate(order)}, owner < 0

    def _selected_rows(self, spec: DomainSpec) -> RowIndex:
        """The rows of all nodes that a HyperNode selects; what is invalid or missing becomes a problem."""
        row = self.table.row
        rows: set[int] = set()
        missing: list[str] = []
        for field, member in _members(spec, is_node=True):
            found, lacks = self._selected(spec, field, member)
            rows.update(row[name] for name in found)
            missing.extend(lacks)
        if missing:
            self._add_problem(spec, "spec.members", f"there is no node {_some(missing)}")
        return np.array(sorted(rows), dtype=np.intp)

    def _selected(self, spec: DomainSpec, field: str, member: DomainMember) -> tuple[list[str], list[str]]:
        """Names of the nodes that one member selects, and those that it names and that do not exist."""
        if member.exact:
            return ([member.exact], []) if member.exact in self.table.row else ([], [member.exact])
        if member.regex:
            return self._matching(spec, field, member.regex), []
        if member.labels is not None:
            return [node.name for node in self.table.nodes if member.labels.selects(node.labels)], []
        self._add_problem(spec, field, "selects nothing; write exactMatch, regexMatch or labelMatch")
        return [], []

    def _matching(self, spec: DomainSpec, field: str, pattern: str) -> list[str]:
        try:
            return sorted(self.names.matching(pattern))
        except BadPattern as error:
            advice = "write for example ^gpu-[0-9]+$"
            text = f"{_short(pattern)} is no regular expression ({error}); {advice}"
            self._add_problem(spec, f"{field}.selector.regexMatch.pattern", text)
            return []

    def _report_disputed(
        self,
        spec: DomainSpec,
        selected: RowIndex,
        owner: npt.NDArray[np.int32],
        order: Sequence[DomainSpec],
        parent: Mapping[str, str],
    ) -> None:
        """Nodes that another HyperNode has already, unless that is a part of this one anyway."""
        taken = owner[selected]
        for number in np.unique(taken[taken >= 0]).tolist():
            other = order[number]
            if spec.name in _above(other.name, parent):
                continue
            names = [self.table.names[row] for row in selected[taken == number].tolist()]
            verb, stay = ("is", "stays") if len(names) == 1 else ("are", "stay")
            why = f"of the same tier {spec.tier}" if other.tier == spec.tier else f"of tier {other.tier}"
            self._add_problem(spec, "spec.members", f"{_some(names)} {verb} in HyperNode {other.name} {why} too and {stay} there")

    # -- tiers -----------------------------------------------------------------------------------------------------------------

    def name_tiers(self) -> dict[str, int]:
        """What the tiers are called; a name means the tier of the oldest HyperNode that uses it."""
        numbers: dict[str, int] = {}
        for spec in self.oldest_first:
            if not spec.tier_name:
                continue
            number = numbers.setdefault(spec.tier_name, spec.tier)
            if number != spec.tier:
                text = f"{spec.tier_name!r} is the name of tier {number}, not of tier {spec.tier}; use another name for this tier"
                self._add_problem(spec, "spec.tierName", text)
        return numbers


def _members(spec: DomainSpec, *, is_node: bool) -> Iterator[tuple[str, DomainMember]]:
    for i, member in enumerate(spec.members):
        if member.is_node is is_node:
            yield f"spec.members[{i}]", member


def _above(name: str, parent: Mapping[str, str]) -> set[str]:
    """All HyperNodes that this one lies in."""
    found: set[str] = set()
    while (above := parent.get(name)) is not None and above not in found:
        found.add(above)
        name = above
    return found


def _short(pattern: str) -> str:
    return repr(pattern if len(pattern) <= _LONGEST_SHOWN else f"{pattern[:_LONGEST_SHOWN]}...")


def _some(names: Sequence[str]) -> str:
    """A few names and how many more there are."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
