"""One gang out of the PodGroups below a CompositePodGroup: each of them is a subgroup, and so is each CompositePodGroup between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from muster.model.events import PriorityClass
from muster.model.gang import COMPOSITE_FAMILY, CompositePodGroup, Gang, Subgroup
from muster.model.pod import Problem
from muster.state.gangs.gang_groups import joined

MOST_LEVELS: Final = 4
"""Levels of groups, the PodGroups included, as in Kubernetes."""


class CompositeGroups:
    """The CompositePodGroups as they were observed, and what is below each. A group is known by its key, a PodGroup by its gang
    key."""

    def __init__(self) -> None:
        self.groups: dict[str, CompositePodGroup] = {}
        self._below: dict[str, dict[str, None]] = {}
        self._parent: dict[str, str] = {}

    def put(self, group: CompositePodGroup) -> None:
        self.groups[group.key] = group
        self.set_parent(group.key, group.parent_key)

    def drop(self, key: str) -> CompositePodGroup | None:
        self.set_parent(key, "")
        return self.groups.pop(key, None)

    def set_parent(self, key: str, parent: str) -> None:
        before = self._parent.pop(key, "")
        if before:
            del self._below[before][key]
        if parent:
            self._parent[key] = parent
            self._below.setdefault(parent, {})[key] = None

    def root_of(self, key: str) -> str:
        """The topmost group above a PodGroup or a group, or empty. Children of a `basic` group at the top are scheduled
        independently; of groups that contain each other the first is their root."""
        path: list[str] = []
        while (key := self._parent.get(key, "")) and key not in path:
            path.append(key)
        if key:
            return min(path[path.index(key) :])
        top = self.groups.get(path[-1]) if path else None
        independent = top is not None and not top.min_groups and top.topology is None
        return path[-1 - independent] if len(path) > independent else ""

    def leaves(self, key: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        """The PodGroups below a group, or the PodGroup itself."""
        if key in self._below and key not in seen:
            for child in self._below[key]:
                yield from self.leaves(child, seen | {key})
        elif key in self._parent and not key.startswith(f"{COMPOSITE_FAMILY}:"):
            yield key

    def related(self, key: str) -> list[str]:
        """The PodGroups below all that are above a PodGroup or a group, and those below itself."""
        top, seen = key, {key}
        while (parent := self._parent.get(top, "")) and parent not in seen:
            seen.add(parent)
            top = parent
        return list(dict.fromkeys(self.leaves(top)))

    def subgroup(self, key: str, parts: Mapping[str, Gang], seen: frozenset[str] = frozenset()) -> Subgroup:
        """The subgroup that a PodGroup or a group is."""
        if key in parts:
            return _leaf(parts[key])
        group = self.groups.get(key)
        keys = sorted(each for each in self._below.get(key, {}) if each not in seen and any(self.leaves(each)))
        children = tuple(self.subgroup(each, parts, seen | {key}) for each in keys)
        return Subgroup(
            title=key.partition(":")[2] if group is None else group.full_name,
            members=frozenset().union(*(child.members for child in children)),
            succeeded=sum(child.succeeded for child in children),
            topology=None if group is None else group.topology,
            subgroups=children,
            min_subgroups=0 if group is None else group.min_groups,
        )

    def problem(self, root: str, leaves: Sequence[str]) -> tuple[str, str]:
        """What is still missing of the groups between these PodGroups and their root, and what is wrong with them."""
        for leaf in leaves:
            path, key = [leaf], self._parent.get(leaf, "")
            while key and key not in path:
                if key not in self.groups:
                    return f"CompositePodGroup {key.partition(':')[2]} does not exist yet", ""
                path.append(key)
                if key == root and not self._is_circle(root):
                    break
                key = self._parent.get(key, "")
            name = root.partition(":")[2]
            if self._is_circle(root):
                return "", f"CompositePodGroup {name}: it is below itself; remove a parentCompositePodGroupName of the circle"
            if len(path) > MOST_LEVELS:
                return (
                    "",
                    f"CompositePodGroup {name}: there are {len(path)} levels of groups below it; at most {MOST_LEVELS} are allowed",
                )
        return "", ""

    def _is_circle(self, root: str) -> bool:
        seen: list[str] = []
        key = self._parent.get(root, "")
        while key and key != root and key not in seen:
            seen.append(key)
            key = self._parent.get(key, "")
        return key == root

    def between(self, root: str, leaves: Sequence[str]) -> list[str]:
        """The groups that exist above these PodGroups, their root included."""
        found: dict[str, None] = {}
        for leaf in leaves:
            key = self._parent.get(leaf, "")
            while key and key not in found and (key == root or self.root_of(key) == root):
                if key in self.groups:
                    found[key] = None
                key = self._parent.get(key, "") if key != root else ""
        return sorted(found)


def composed(composites: CompositeGroups, root: str, parts: Sequence[Gang], classes: Mapping[str, PriorityClass]) -> Gang:
    """One gang out of all PodGroups below this root. Their own minimums count within their subgroups."""
    gang, group = joined(parts, missing=None), composites.groups.get(root)
    by_key = {part.key: part for part in parts}
    waiting_for, invalid = composites.problem(root, list(by_key))
    above = composites.between(root, list(by_key))
    problems = tuple(
        Problem(f"CompositePodGroup {name}: {problem.field}", problem.text, problem.lost)
        for name in above
        for problem in composites.groups[name].problems
    )
    if group is None or invalid:
        return replace(gang, waiting_for=gang.waiting_for or waiting_for, invalid_because=gang.invalid_because or invalid)
    whole = composites.subgroup(root, by_key)
    return replace(
        gang,
        key=",".join((gang.key, *above)),
        full_name=group.full_name,
        roles=tuple(replace(role, min=0) for role in gang.roles),
        min=max(1, _least(whole)),
        priority=_priority(group, classes, gang.priority),
        created=group.created,
        topology=group.topology,
        subgroups=whole.subgroups,
        min_subgroups=whole.min_subgroups,
        parent=root,
        waiting_for=gang.waiting_for or waiting_for,
        problems=gang.problems + problems,
    )


def _leaf(part: Gang) -> Subgroup:
    return Subgroup(
        title=part.full_name,
        members=frozenset(pod.uid for pod in part.pods()),
        min=part.min,
        succeeded=sum(role.succeeded for role in part.roles),
        topology=part.topology,
        subgroups=part.subgroups,
        min_subgroups=part.min_subgroups,
    )


def _least(subgroup: Subgroup) -> int:
    """The fewest members with which it can be complete."""
    return max(subgroup.min, sum(sorted(map(_least, subgroup.subgroups))[: subgroup.min_subgroups]))


def _priority(group: CompositePodGroup, classes: Mapping[str, PriorityClass], otherwise: int) -> int:
    if group.priority is not None:
        return group.priority
    found = classes.get(group.priority_class)
    return otherwise if found is None else found.value
