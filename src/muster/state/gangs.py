"""Gangs out of pods, PodGroups and annotations, whatever the order in which they arrive.

A *slot* is a place where pods of one declared name gather: `volcano:ns/name`, or `pod:uid` for a lone pod. A gang is made of one
slot, or of several where they declare each other as a group. Only gangs that something touched are assembled again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from muster.model.events import PriorityClass
from muster.model.gang import Gang, Group, MatchPolicy, Mode, Role
from muster.model.pod import NOT_DECLARED, Declared, Dialect, Pod, Problem, Running
from muster.model.queue import DEFAULT_QUEUE
from muster.model.resources import NOTHING

DEFAULT_WAIT_S = 600.0

_RUNNING_COUNTS = frozenset({Dialect.VOLCANO, Dialect.NATIVE, Dialect.LONE})
_LAST_NUMBER = re.compile(r"^(.*?)(\d{1,18})$")


def slot_of_pod(pod: Pod) -> str:
    if pod.membership is None:
        return f"pod:{pod.uid}"
    return f"{pod.membership.dialect.family}:{pod.namespace}/{pod.membership.name}"


@dataclass(frozen=True, slots=True)
class _Part:
    """What one slot contributes to its gang."""

    slot: str
    title: str
    roles: tuple[Role, ...]
    declared: Declared
    group: Group | None
    dialect: Dialect
    created: float
    priority: int
    never_preempts: bool
    needs_group: bool
    problems: tuple[Problem, ...]


class GangBook:
    def __init__(self, *, default_wait_s: float = DEFAULT_WAIT_S) -> None:
        self.default_wait_s = default_wait_s
        self.groups: dict[str, Group] = {}
        self.classes: dict[str, PriorityClass] = {}
        self._pods: dict[str, dict[str, Pod]] = {}
        self._slot_of: dict[str, str] = {}
        self._gang_of_slot: dict[str, str] = {}
        self._slots_of_gang: dict[str, tuple[str, ...]] = {}
        self._waiting_for: dict[str, set[str]] = {}
        self._dirty: dict[str, None] = {}

    # -- facts -----------------------------------------------------------------------------------------------------------------

    def put_pod(self, pod: Pod) -> None:
        slot = slot_of_pod(pod)
        before = self._slot_of.get(pod.uid)
        if before is not None and before != slot:
            self.drop_pod(pod.uid)
        self._slot_of[pod.uid] = slot
        self._pods.setdefault(slot, {})[pod.uid] = pod
        self._dirty[slot] = None

    def drop_pod(self, uid: str) -> None:
        slot = self._slot_of.pop(uid, None)
        if slot is None:
            return
        pods = self._pods[slot]
        del pods[uid]
        if not pods:
            del self._pods[slot]
        self._dirty[slot] = None

    def put_group(self, group: Group) -> None:
        slot = group.key
        self.groups[slot] = group
        self._dirty[slot] = None

    def drop_group(self, slot: str) -> None:
        if self.groups.pop(slot, None) is not None:
            self._dirty[slot] = None

    def put_class(self, found: PriorityClass) -> None:
        self.classes[found.name] = found
        self._touch_all()

    def drop_class(self, name: str) -> None:
        if self.classes.pop(name, None) is not None:
            self._touch_all()

    def _touch_all(self) -> None:
        for slot in (*self._pods, *self.groups):
            self._dirty[slot] = None

    # -- gangs -----------------------------------------------------------------------------------------------------------------

    def assemble(self) -> tuple[dict[str, Gang], list[str]]:
        """The gangs that were touched, made anew, and the keys of those that are no more."""
        if not self._dirty:
            return {}, []
        stale, slots = self._affected()
        made: dict[str, Gang] = {}
        for slot in slots:
            if slot in self._gang_of_slot:
                continue
            gang = self._gang(slot)
            if gang is not None:
                made[gang.key] = gang
        return made, [key for key in stale if key not in made]

    def _affected(self) -> tuple[list[str], list[str]]:
        """Keys of gangs to take apart, and all slots that must find a gang again."""
        stale: dict[str, None] = {}
        slots: dict[str, None] = {}
        todo = list(self._dirty)
        self._dirty = {}
        while todo:
            slot = todo.pop()
            if slot in slots:
                continue
            slots[slot] = None
            todo.extend(sorted(self._waiting_for.pop(slot, ())))
            key = self._gang_of_slot.pop(slot, None)
            if key is not None:
                stale[key] = None
                todo.extend(self._slots_of_gang.pop(key, ()))
        return list(stale), sorted(slots)

    def _gang(self, slot: str) -> Gang | None:
        part = self._part(slot)
        if part is None:
            return None
        parts = [part]
        missing: list[str] = []
        for sibling in self._siblings(part):
            other = self._part(sibling)
            if other is None:
                missing.append(sibling)
                self._waiting_for.setdefault(sibling, set()).add(slot)
            elif sibling not in self._gang_of_slot:
                parts.append(other)
        parts.sort(key=lambda p: p.title)
        gang = _join(parts, missing=missing, default_wait_s=self.default_wait_s)
        self._slots_of_gang[gang.key] = tuple(p.slot for p in parts)
        for each in parts:
            self._gang_of_slot[each.slot] = gang.key
        return gang

    def _siblings(self, part: _Part) -> list[str]:
        """Slots of the other gangs of the same GangGroup, as this one declares them."""
        if not part.declared.groups:
            return []
        family = part.slot.split(":", 1)[0]
        wanted = (f"{family}:{name}" for name in sorted(set(part.declared.groups)))
        return [slot for slot in wanted if slot != part.slot]

    def _part(self, slot: str) -> _Part | None:
        pods = list(self._pods.get(slot, {}).values())
        group = self.groups.get(slot)
        if not pods:
            return None if group is None else _empty_part(slot, group)
        oldest = min((p for p in pods if not p.finished), key=_age, default=min(pods, key=_age))
        membership = oldest.membership
        if membership is None:
            return _lone(slot, oldest)
        declared, problems = _declared(pods, oldest, group)
        return _Part(
            slot=slot,
            title=f"{oldest.namespace}/{membership.name}",
            roles=_roles(slot, pods, group, declared),
            declared=declared,
            group=group,
            dialect=membership.dialect if group is None else group.dialect,
            created=group.created if group is not None else oldest.created,
            priority=self._priority(pods, group),
            never_preempts=oldest.never_preempts or (group is not None and group.never_preempts),
            needs_group=membership.needs_group and group is None,
            problems=problems,
        )

    def _priority(self, pods: Iterable[Pod], group: Group | None) -> int:
        if group is not None:
            if group.priority is not None:
                return group.priority
            found = self.classes.get(group.priority_class)
            if found is not None:
                return found.value
        return max((pod.priority for pod in pods if not pod.finished), default=0)


def _age(pod: Pod) -> tuple[float, str, str]:
    return (pod.created, pod.name, pod.uid)


def member_order(pod: Pod) -> tuple[int, str, int, float, str]:
    """Members of a role: the more important first, then by name with its number read as a number, then by age."""
    found = _LAST_NUMBER.match(pod.name)
    stem, number = (found.group(1), int(found.group(2))) if found else (pod.name, -1)
    return (-pod.priority, stem, number, pod.created, pod.uid)


def _lone(slot: str, pod: Pod) -> _Part:
    role = _role("", [pod], slot="", group=None, declared=NOT_DECLARED, least=1, total=0)
    return _Part(
        slot, pod.title, (role,), NOT_DECLARED, None, Dialect.LONE, pod.created, pod.priority, pod.never_preempts,
        needs_group=False, problems=pod.problems,
    )  # fmt: skip


def _empty_part(slot: str, group: Group) -> _Part:
    roles = _roles(slot, [], group, group.declared)
    return _Part(
        slot, group.title, roles, group.declared, group, group.dialect, group.created, group.priority or 0,
        group.never_preempts, needs_group=False, problems=group.problems,
    )  # fmt: skip


def _declared(pods: list[Pod], oldest: Pod, group: Group | None) -> tuple[Declared, tuple[Problem, ...]]:
    """Annotations of the oldest live pod win over the PodGroup's; pods that say otherwise are told so."""
    own = oldest.membership.declared if oldest.membership is not None else NOT_DECLARED
    base = group.declared if group is not None else NOT_DECLARED
    merged = Declared(
        min=own.min if own.min is not None else base.min,
        total=own.total if own.total is not None else base.total,
        wait_s=own.wait_s if own.wait_s is not None else base.wait_s,
        mode=own.mode if own.mode is not None else base.mode,
        match_policy=own.match_policy if own.match_policy is not None else base.match_policy,
        groups=own.groups if own.groups is not None else base.groups,
    )
    problems = list(group.problems if group is not None else ())
    for pod in sorted(pods, key=_age):
        problems.extend(Problem(f"{pod.title}: {problem.field}", problem.text) for problem in pod.problems)
        said = pod.membership.declared if pod.membership is not None else NOT_DECLARED
        if not pod.finished and said != own:
            text = f"pod {pod.title} declares other values than the oldest pod {oldest.title}, whose values count"
            problems.append(Problem("metadata.annotations", text))
    return merged, tuple(problems)


def _roles(slot: str, pods: list[Pod], group: Group | None, declared: Declared) -> tuple[Role, ...]:
    """The roles of one slot: by task name where there are several, one for all otherwise."""
    mins = {r.role: r.min for r in group.role_mins} if group is not None else {}
    by_role: dict[str, list[Pod]] = {name: [] for name in mins}
    for pod in pods:
        by_role.setdefault(pod.membership.role if pod.membership is not None else "", []).append(pod)
    if not by_role:
        by_role[""] = []
    total = declared.total or 0 if len(by_role) == 1 else 0
    return tuple(
        _role(name, by_role[name], slot=slot, group=group, declared=declared, least=mins.get(name, 0), total=total)
        for name in sorted(by_role)
    )


def _role(name: str, pods: list[Pod], *, slot: str, group: Group | None, declared: Declared, least: int, total: int) -> Role:
    live = [pod for pod in pods if not pod.finished and pod.deleted_at is None]
    ready = sorted((pod for pod in live if not pod.gates), key=member_order)
    return Role(
        name=name,
        min=least,
        pods=tuple(ready),
        total=max(least, total),
        bounded=total > 0,
        queue=(group.queue if group is not None else "") or next((p.queue for p in ready if p.queue), DEFAULT_QUEUE),
        mode=Mode.NON_STRICT if declared.mode == Mode.NON_STRICT.value else Mode.STRICT,
        group=slot if group is not None else "",
        succeeded=sum(pod.running is Running.SUCCEEDED for pod in pods),
        failed=sum(pod.running is Running.FAILED for pod in pods),
        topology=dict(group.role_topology).get(name) if group is not None else None,
        leaving=tuple(pod for pod in pods if pod.deleted_at is not None and pod.node is not None and not pod.finished),
        gated=len(live) - len(ready),
    )


def _least(part: _Part) -> int:
    """How many members the slot needs in all."""
    if part.dialect is Dialect.LONE:
        return 1
    if part.declared.min is not None:
        return part.declared.min
    return part.group.min_member if part.group is not None else 1


def _settled_roles(part: _Part, *, in_group: bool) -> tuple[Role, ...]:
    """Role minimums bind only where they fit under the gang's own: a smaller `minMember` makes the gang elastic."""
    least = _least(part)
    if in_group:
        whole = _merged(part.roles)
        return (replace(whole, name=part.title, min=least, total=max(whole.total, least)),)
    if len(part.roles) == 1:
        only = part.roles[0]
        return (replace(only, min=least, total=max(only.total, least)),)
    if least < sum(role.min for role in part.roles):
        return tuple(replace(role, min=0) for role in part.roles)
    return part.roles


def _merged(roles: tuple[Role, ...]) -> Role:
    """The roles of one PodGroup as one: inside a GangGroup the PodGroup is the role."""
    return replace(
        roles[0],
        pods=tuple(pod for role in roles for pod in role.pods),
        leaving=tuple(pod for role in roles for pod in role.leaving),
        total=sum(role.total for role in roles),
        succeeded=sum(role.succeeded for role in roles),
        failed=sum(role.failed for role in roles),
        gated=sum(role.gated for role in roles),
    )


def _join(parts: list[_Part], *, missing: list[str], default_wait_s: float) -> Gang:
    """One gang out of the parts of a GangGroup, or out of the one part there is."""
    in_group = len(parts) > 1
    roles = tuple(role for part in parts for role in _settled_roles(part, in_group=in_group))
    first = parts[0]
    strict = any(role.mode is Mode.STRICT for role in roles)
    waits = [w for part in parts if (w := _wait_s(part)) is not None]
    absent = [part.title for part in parts if part.needs_group]
    waits_for = ""
    if absent:
        waits_for = f"PodGroup {absent[0]} does not exist yet"
    elif missing:
        waits_for = f"gang {missing[0].split(':', 1)[1]} of its group does not exist yet"
    groups = [part.group for part in parts if part.group is not None]
    return Gang(
        key=",".join(part.slot for part in parts),
        title="+".join(part.title for part in parts),
        roles=roles,
        min=sum(_least(part) for part in parts),
        priority=max(part.priority for part in parts),
        created=min(part.created for part in parts),
        dialect=first.dialect,
        mode=Mode.STRICT if strict else Mode.NON_STRICT,
        match=_match(first),
        wait_s=min(waits, default=default_wait_s),
        topology=groups[0].topology if groups else None,
        min_resources=groups[0].min_resources if len(groups) == 1 else NOTHING,
        never_preempts=any(part.never_preempts for part in parts),
        waits_for=waits_for,
        problems=tuple(problem for part in parts for problem in part.problems),
    )


def _wait_s(part: _Part) -> float | None:
    if part.declared.wait_s is not None:
        return part.declared.wait_s
    return part.group.wait_s if part.group is not None else None


def _match(part: _Part) -> MatchPolicy:
    if part.declared.match_policy is not None:
        return MatchPolicy(part.declared.match_policy)
    return MatchPolicy.WAITING_AND_RUNNING if part.dialect in _RUNNING_COUNTS else MatchPolicy.ONCE_SATISFIED
