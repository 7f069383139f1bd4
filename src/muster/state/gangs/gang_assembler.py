"""Gangs out of pods, PodGroups and annotations, whatever the order in which they arrive.

A *slot* is a place where pods of one declared name gather: `volcano:ns/name`, or `pod:uid` for a lone pod. A gang is made of one
slot, or of several where they declare each other as a group. Only gangs that something touched are assembled again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter

from muster.model.events import PriorityClass
from muster.model.gang import Gang, MatchPolicy, Mode, PodGroup, Role, Subgroup, changed
from muster.model.pod import NOT_DECLARED, ApiFlavour, Declared, Pod, PodStatusPhase, Problem
from muster.model.resource_amounts import NOTHING
from muster.model.topology_spec import TopologyConstraint
from muster.state.gangs.subgroups import subgroup_mins_of, subgroups_of

DEFAULT_WAIT_S = 600.0

_RUNNING_COUNTS = frozenset({ApiFlavour.VOLCANO, ApiFlavour.NATIVE, ApiFlavour.SINGLE_POD})
_POD_MINIMUMS = ("min-available]",)
_GROUP_MINIMUMS = ("spec.minMember", "spec.minTaskMember", "spec.schedulingPolicy")
_LAST_NUMBER = re.compile(r"^(.*?)(\d{1,18})$")


def gang_slot_of_pod(pod: Pod) -> str:
    if pod.membership is None:
        return f"pod:{pod.uid}"
    return f"{pod.membership.flavour.family}:{pod.namespace}/{pod.membership.name}"


@dataclass(frozen=True, slots=True)
class _Part:
    """What one slot contributes to its gang."""

    slot: str
    title: str
    roles: tuple[Role, ...]
    subgroups: tuple[Subgroup, ...]
    topology: TopologyConstraint | None
    declared: Declared
    group: PodGroup | None
    dialect: ApiFlavour
    created: float
    priority: int
    never_preempts: bool
    needs_group: bool
    problems: tuple[Problem, ...]
    invalid_because: str = ""


# All of a pod that its gang is made of. Whether it has ended counts, whether it has started does not.
_MEMBER = attrgetter(
    "finished", "created", "name", "namespace", "signature", "membership", "priority", "never_preempts", "labels", "queue", "gates",
    "deleted_at", "problems",
)  # fmt: skip


class GangAssembler:
    def __init__(self, *, default_wait_s: float = DEFAULT_WAIT_S) -> None:
        self.default_wait_s = default_wait_s
        self.groups: dict[str, PodGroup] = {}
        self.classes: dict[str, PriorityClass] = {}
        self._pods: dict[str, dict[str, Pod]] = {}
        self._slot_of: dict[str, str] = {}
        self._gang_of_slot: dict[str, str] = {}
        self._slots_of_gang: dict[str, tuple[str, ...]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        """The other slots that a slot counts to its group, for those that name any."""
        self._named_by: dict[str, dict[str, None]] = {}
        self._dirty: dict[str, None] = {}
        self._swapped: dict[str, dict[str, Pod]] = {}
        """By slot, members of whom something is new that their gang does not follow from: most news is of this kind."""

    # -- facts -----------------------------------------------------------------------------------------------------------------

    def put_pod(self, pod: Pod) -> None:
        slot = gang_slot_of_pod(pod)
        before = self._slot_of.get(pod.uid)
        if before is not None and before != slot:
            self.drop_pod(pod.uid)
        self._slot_of[pod.uid] = slot
        pods = self._pods.setdefault(slot, {})
        known = pods.get(pod.uid)
        pods[pod.uid] = pod
        if known is not None and pod.deleted_at is None and _MEMBER(pod) == _MEMBER(known):
            self._swapped.setdefault(slot, {})[pod.uid] = pod
        else:
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

    def put_group(self, group: PodGroup) -> None:
        slot = group.key
        known = self.groups.get(slot)
        self.groups[slot] = group
        # What was written about it comes back as news of it, and changes nothing.
        if known is None or _as_declared(group) != _as_declared(known):
            self._dirty[slot] = None

    def gang_of(self, slot: str) -> str | None:
        """The gang that a PodGroup belongs to, as it was last assembled."""
        return self._gang_of_slot.get(slot)

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
        for slot in self._dirty:
            self._swapped.pop(slot, None)
        stale, parts = self._take_apart()
        made: dict[str, Gang] = {}
        for slot in sorted(parts):
            part = parts[slot]
            if part is not None and slot not in self._gang_of_slot:
                gang = self._gang(part, parts)
                made[gang.key] = gang
        return made, [key for key in stale if key not in made]

    def swapped(self) -> dict[str, dict[str, Pod]]:
        """By gang, the members of whom something is new although the gang is as it was. For gangs that were not just made anew."""
        found: dict[str, dict[str, Pod]] = {}
        for slot, pods in self._swapped.items():
            key = self._gang_of_slot.get(slot)
            if key is not None:
                found.setdefault(key, {}).update(pods)
        self._swapped = {}
        return found

    def _take_apart(self) -> tuple[list[str], dict[str, _Part | None]]:
        """Keys of the gangs that must be made anew, and their parts: those of touched slots, and of all that they name or that name
        them, before or now. Who belongs together must not depend on who came first."""
        stale: dict[str, None] = {}
        parts: dict[str, _Part | None] = {}
        todo, self._dirty = list(self._dirty), {}
        while todo:
            slot = todo.pop()
            if slot in parts:
                continue
            part = parts[slot] = self._part(slot)
            todo.extend(self._names.get(slot, ()))
            self._name(slot, () if part is None else _siblings(part))
            todo.extend((*self._names.get(slot, ()), *self._named_by.get(slot, ())))
            key = self._gang_of_slot.pop(slot, None)
            if key is not None:
                stale[key] = None
                todo.extend(self._slots_of_gang.pop(key, ()))
        return list(stale), parts

    def _name(self, slot: str, siblings: tuple[str, ...]) -> None:
        """Remember which other slots this one counts to its group."""
        for other in self._names.pop(slot, ()):
            self._named_by[other].pop(slot)
            if not self._named_by[other]:
                del self._named_by[other]
        for other in siblings:
            self._named_by.setdefault(other, {})[slot] = None
        if siblings:
            self._names[slot] = siblings

    def _gang(self, part: _Part, parts: Mapping[str, _Part | None]) -> Gang:
        together = self._together(part, parts)
        missing = {other: parts[other] for slot in together for other in self._names.get(slot, ()) if other not in together}
        gang = _join(
            sorted(together.values(), key=lambda p: p.title),
            missing=[(slot, missing[slot] is not None) for slot in sorted(missing)],
            default_wait_s=self.default_wait_s,
        )
        self._slots_of_gang[gang.key] = tuple(together)
        for slot in together:
            self._gang_of_slot[slot] = gang.key
        return gang

    def _together(self, part: _Part, parts: Mapping[str, _Part | None]) -> dict[str, _Part]:
        """The part and all that are in one group with it. Both must say so: nobody is drawn into a group by a stranger."""
        together = {part.slot: part}
        todo = [part.slot]
        while todo:
            slot = todo.pop()
            for other in self._names.get(slot, ()):
                found = parts[other]
                if found is not None and other not in together and slot in self._names.get(other, ()):
                    together[other] = found
                    todo.append(other)
        return together

    def _part(self, slot: str) -> _Part | None:
        pods = list(self._pods.get(slot, {}).values())
        group = self.groups.get(slot)
        if not pods:
            return None if group is None else _empty_part(slot, group)
        unfinished = [pod for pod in pods if not pod.finished]
        oldest = min(unfinished or pods, key=_age)
        membership = oldest.membership
        if membership is None:
            return _lone(slot, oldest)
        declared, problems = _declared(pods, oldest, group)
        return _Part(
            slot=slot,
            title=f"{oldest.namespace}/{membership.name}",
            roles=_roles(slot, pods, group, declared),
            subgroups=subgroups_of(group, pods),
            topology=_topology(group, declared),
            declared=declared,
            group=group,
            dialect=membership.flavour if group is None else group.flavour,
            created=group.created if group is not None else oldest.created,
            priority=self._priority(unfinished, group),
            never_preempts=oldest.never_preempts or self._never_preempts(group),
            needs_group=membership.needs_group and group is None,
            problems=problems,
            invalid_because=_unreadable(oldest, group, declared),
        )

    def _priority(self, unfinished: Iterable[Pod], group: PodGroup | None) -> int:
        if group is not None:
            if group.priority is not None:
                return group.priority
            found = self.classes.get(group.priority_class)
            if found is not None:
                return found.value
        return max((pod.priority for pod in unfinished), default=0)

    def _never_preempts(self, group: PodGroup | None) -> bool:
        """The PodGroup itself may say so, or the class that it names."""
        if group is None:
            return False
        named = self.classes.get(group.priority_class)
        return group.never_preempts or (named is not None and named.never_preempts)


def _as_declared(group: PodGroup) -> PodGroup:
    """The group without what only its status says."""
    return replace(group, version=0, phase="", started=None, status={})


def _siblings(part: _Part) -> tuple[str, ...]:
    """Slots of the other gangs of the same GangGroup, as this one declares them."""
    if not part.declared.groups:
        return ()
    family = part.slot.split(":", 1)[0]
    wanted = (f"{family}:{name}" for name in sorted(set(part.declared.groups)))
    return tuple(slot for slot in wanted if slot != part.slot)


def _age(pod: Pod) -> tuple[float, str, str]:
    return (pod.created, pod.name, pod.uid)


def member_order(pod: Pod) -> tuple[int, str, int, float, str]:
    """Members of a role: the more important first, then by name with its number read as a number, then by age."""
    stem, number = _numbered(pod.name)
    return (-pod.priority, stem, number, pod.created, pod.uid)


@lru_cache(maxsize=100_000)
def _numbered(name: str) -> tuple[str, int]:
    found = _LAST_NUMBER.match(name)
    return (found.group(1), int(found.group(2))) if found else (name, -1)


def _lone(slot: str, pod: Pod) -> _Part:
    role = _role("", [pod], slot="", group=None, declared=NOT_DECLARED, least=1, total=0)
    return _Part(
        slot, pod.full_name, (role,), (), None, NOT_DECLARED, None, ApiFlavour.SINGLE_POD, pod.created, pod.priority,
        pod.never_preempts, needs_group=False, problems=pod.problems,
    )  # fmt: skip


def _empty_part(slot: str, group: PodGroup) -> _Part:
    roles = _roles(slot, [], group, group.declared)
    return _Part(
        slot, group.full_name, roles, (), group.topology, group.declared, group, group.flavour, group.created, group.priority or 0,
        group.never_preempts, needs_group=False, problems=group.problems,
    )  # fmt: skip


def _declared(pods: list[Pod], oldest: Pod, group: PodGroup | None) -> tuple[Declared, tuple[Problem, ...]]:
    """Annotations of the oldest live pod win over the PodGroup's; pods that say otherwise are told so."""
    own = _says(oldest)
    base = group.declared if group is not None else NOT_DECLARED
    merged = Declared(
        min=own.min if own.min is not None else base.min,
        total=own.total if own.total is not None else base.total,
        wait_s=own.wait_s if own.wait_s is not None else base.wait_s,
        mode=own.mode if own.mode is not None else base.mode,
        match_policy=own.match_policy if own.match_policy is not None else base.match_policy,
        groups=own.groups if own.groups is not None else base.groups,
        must_gather=own.must_gather if own.must_gather is not None else base.must_gather,
        prefer_gather=own.prefer_gather if own.prefer_gather is not None else base.prefer_gather,
    )
    problems = list(group.problems if group is not None else ())
    for pod in sorted((pod for pod in pods if pod.problems or _says(pod) != own), key=_age):
        problems.extend(Problem(f"{pod.full_name}: {problem.field}", problem.text) for problem in pod.problems)
        if not pod.finished and _says(pod) != own:
            text = f"pod {pod.full_name} declares other values than the oldest pod {oldest.full_name}, whose values count"
            problems.append(Problem("metadata.annotations", text))
    return merged, tuple(problems)


def _says(pod: Pod) -> Declared:
    return pod.membership.declared if pod.membership is not None else NOT_DECLARED


def _unreadable(oldest: Pod, group: PodGroup | None, declared: Declared) -> str:
    """Which minimum was written and cannot be read, where nothing else says how many members the gang needs."""
    problems = oldest.problems if group is None else group.problems
    for problem in problems if declared.min is None else ():
        if problem.lost and any(where in problem.field for where in (_POD_MINIMUMS if group is None else _GROUP_MINIMUMS)):
            return f"{problem.field}: {problem.text}"
    return ""


def _roles(slot: str, pods: list[Pod], group: PodGroup | None, declared: Declared) -> tuple[Role, ...]:
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


def _role(name: str, pods: list[Pod], *, slot: str, group: PodGroup | None, declared: Declared, least: int, total: int) -> Role:
    unfinished = [pod for pod in pods if not pod.finished]
    ended = [pod.status_phase for pod in pods if pod.finished] if len(unfinished) < len(pods) else []
    live = [pod for pod in unfinished if pod.deleted_at is None]
    ready = sorted((pod for pod in live if not pod.gates), key=member_order)
    return Role(
        name=name,
        min=least,
        pods=tuple(ready),
        total=max(least, total),
        has_declared_total=total > 0,
        named_queue=(group.queue if group is not None else "") or _queue_named_by(pods),
        mode=Mode.NON_STRICT if declared.mode == Mode.NON_STRICT.value else Mode.STRICT,
        group=slot if group is not None else "",
        succeeded=ended.count(PodStatusPhase.SUCCEEDED),
        failed=ended.count(PodStatusPhase.FAILED),
        terminating=tuple(pod for pod in unfinished if pod.deleted_at is not None and pod.node is not None),
        gated=len(live) - len(ready),
    )


def _queue_named_by(pods: list[Pod]) -> str:
    """What the oldest live pod that names a queue says; those on their way out count last."""
    named = [pod for pod in pods if pod.queue]
    oldest = min(named, key=lambda pod: (pod.finished, pod.deleted_at is not None, _age(pod)), default=None)
    return oldest.queue if oldest is not None else ""


def _least(part: _Part) -> int:
    """How many members the slot needs in all."""
    if part.dialect is ApiFlavour.SINGLE_POD:
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
        if only.min == least and only.total >= least:
            return part.roles
        return (changed(only, min=least, total=max(only.total, least)),)
    if least < sum(role.min for role in part.roles):
        return tuple(replace(role, min=0) for role in part.roles)
    return part.roles


def _topology(group: PodGroup | None, declared: Declared) -> TopologyConstraint | None:
    """What annotations say goes before what the PodGroup says."""
    if declared.must_gather is not None:
        return TopologyConstraint(hard=True, highest_tier_name=declared.must_gather)
    if declared.prefer_gather is not None:
        return TopologyConstraint(hard=False, highest_tier_name=declared.prefer_gather)
    return group.topology if group is not None else None


def _cells(part: _Part, *, in_group: bool) -> tuple[Subgroup, ...]:
    """The cells of one slot. In a GangGroup what a PodGroup wishes holds for its own members: they are a cell."""
    if not in_group or part.topology is None or part.subgroups:
        return part.subgroups
    members = frozenset(pod.uid for role in part.roles for pod in role.pods)
    return (Subgroup(part.title, members, topology=part.topology),)


def _merged(roles: tuple[Role, ...]) -> Role:
    """The roles of one PodGroup as one: inside a GangGroup the PodGroup is the role."""
    return replace(
        roles[0],
        pods=tuple(pod for role in roles for pod in role.pods),
        terminating=tuple(pod for role in roles for pod in role.terminating),
        total=sum(role.total for role in roles),
        succeeded=sum(role.succeeded for role in roles),
        failed=sum(role.failed for role in roles),
        gated=sum(role.gated for role in roles),
    )


def _join(parts: list[_Part], *, missing: list[tuple[str, bool]], default_wait_s: float) -> Gang:
    """One gang out of the parts of a GangGroup, or out of the one part there is."""
    in_group = len(parts) > 1
    roles = tuple(role for part in parts for role in _settled_roles(part, in_group=in_group))
    first = parts[0]
    strict = any(role.mode is Mode.STRICT for role in roles)
    absent = [part.title for part in parts if part.needs_group]
    waiting_for = ""
    if absent:
        waiting_for = f"PodGroup {absent[0]} does not exist yet"
    elif missing:
        (slot, exists), *_ = missing
        lacks = "does not name it in its own group" if exists else "does not exist yet"
        waiting_for = f"gang {slot.split(':', 1)[1]} of its group {lacks}"
    groups = [part.group for part in parts if part.group is not None]
    return Gang(
        key=",".join(part.slot for part in parts),
        full_name="+".join(part.title for part in parts),
        roles=roles,
        min=sum(_least(part) for part in parts),
        priority=max(part.priority for part in parts),
        created=min(part.created for part in parts),
        flavour=first.dialect,
        mode=Mode.STRICT if strict else Mode.NON_STRICT,
        match_policy=_match(first),
        wait_s=min(_wait_s(part, default_wait_s) for part in parts),
        topology=None if in_group else first.topology,
        subgroups=tuple(cell for part in parts for cell in _cells(part, in_group=in_group)),
        subgroup_mins=tuple(least for part in parts for least in subgroup_mins_of(part.group)),
        min_resources=groups[0].min_resources if len(groups) == 1 else NOTHING,
        never_preempts=any(part.never_preempts for part in parts),
        started=min((group.started for group in groups if group.started is not None), default=None),
        waiting_for=waiting_for,
        invalid_because=next((part.invalid_because for part in parts if part.invalid_because), ""),
        problems=tuple(problem for part in parts for problem in part.problems),
    )


def _wait_s(part: _Part, default_wait_s: float) -> float:
    if part.declared.wait_s is not None:
        return part.declared.wait_s
    said = part.group.wait_s if part.group is not None else None
    return default_wait_s if said is None else said


def _match(part: _Part) -> MatchPolicy:
    if part.declared.match_policy is not None:
        return MatchPolicy(part.declared.match_policy)
    return MatchPolicy.WAITING_AND_RUNNING if part.dialect in _RUNNING_COUNTS else MatchPolicy.ONCE_SATISFIED
