"""Assembles gangs out of pods, PodGroups and annotations, whatever the order in which they arrive.

A *group key* is where pods of one declared name belong: `volcano:ns/name`, or `pod:uid` for a single pod. A gang is made of one
group key, or of several where they declare each other as a GangGroup. Only gangs that changed are assembled again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
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


def group_key_of_pod(pod: Pod) -> str:
    if pod.membership is None:
        return f"pod:{pod.uid}"
    return f"{pod.membership.flavour.family}:{pod.namespace}/{pod.membership.name}"


@dataclass(frozen=True, slots=True)
class _GangPart:
    """What one group key contributes to its gang."""

    group_key: str
    full_name: str
    roles: tuple[Role, ...]
    subgroups: tuple[Subgroup, ...]
    topology: TopologyConstraint | None
    declared: Declared
    group: PodGroup | None
    flavour: ApiFlavour
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
        self._group_key_of: dict[str, str] = {}
        self._gang_of_group: dict[str, str] = {}
        self._groups_of_gang: dict[str, tuple[str, ...]] = {}
        self._siblings_of: dict[str, tuple[str, ...]] = {}
        """The other group keys that one declares as its GangGroup, for those that declare any."""
        self._named_as_sibling_by: dict[str, dict[str, None]] = {}
        self._changed: dict[str, None] = {}
        self._replaced: dict[str, dict[str, Pod]] = {}
        """By group key, members whose objects changed in what their gang does not depend on: most updates are of this kind."""

    # -- facts -----------------------------------------------------------------------------------------------------------------

    def put_pod(self, pod: Pod) -> None:
        group_key = group_key_of_pod(pod)
        before = self._group_key_of.get(pod.uid)
        if before is not None and before != group_key:
            self.drop_pod(pod.uid)
        self._group_key_of[pod.uid] = group_key
        pods = self._pods.setdefault(group_key, {})
        known = pods.get(pod.uid)
        pods[pod.uid] = pod
        if known is not None and pod.deleted_at is None and _MEMBER(pod) == _MEMBER(known):
            self._replaced.setdefault(group_key, {})[pod.uid] = pod
        else:
            self._changed[group_key] = None

    def drop_pod(self, uid: str) -> None:
        group_key = self._group_key_of.pop(uid, None)
        if group_key is None:
            return
        pods = self._pods[group_key]
        del pods[uid]
        if not pods:
            del self._pods[group_key]
        self._changed[group_key] = None

    def put_group(self, group: PodGroup) -> None:
        group_key = group.key
        known = self.groups.get(group_key)
        self.groups[group_key] = group
        # An event that only echoes a status that was written changes nothing.
        if known is None or _as_declared(group) != _as_declared(known):
            self._changed[group_key] = None

    def gang_of(self, group_key: str) -> str | None:
        """The gang that a PodGroup belongs to, as it was last assembled."""
        return self._gang_of_group.get(group_key)

    def drop_group(self, group_key: str) -> None:
        if self.groups.pop(group_key, None) is not None:
            self._changed[group_key] = None

    def put_class(self, found: PriorityClass) -> None:
        self.classes[found.name] = found
        self._mark_all_changed()

    def drop_class(self, name: str) -> None:
        if self.classes.pop(name, None) is not None:
            self._mark_all_changed()

    def _mark_all_changed(self) -> None:
        for group_key in (*self._pods, *self.groups):
            self._changed[group_key] = None

    # -- gangs -----------------------------------------------------------------------------------------------------------------

    def assemble(self) -> tuple[dict[str, Gang], list[str]]:
        """The gangs that changed, assembled anew, and the keys of those that are no more."""
        if not self._changed:
            return {}, []
        for group_key in self._changed:
            self._replaced.pop(group_key, None)
        stale, parts = self._stale_gangs()
        made: dict[str, Gang] = {}
        for group_key in sorted(parts):
            part = parts[group_key]
            if part is not None and group_key not in self._gang_of_group:
                gang = self._gang(part, parts)
                made[gang.key] = gang
        return made, [key for key in stale if key not in made]

    def replaced_members(self) -> dict[str, dict[str, Pod]]:
        """By gang, the members whose objects changed although the gang did not. For gangs that were not just assembled anew."""
        found: dict[str, dict[str, Pod]] = {}
        for group_key, pods in self._replaced.items():
            key = self._gang_of_group.get(group_key)
            if key is not None:
                found.setdefault(key, {}).update(pods)
        self._replaced = {}
        return found

    def _stale_gangs(self) -> tuple[list[str], dict[str, _GangPart | None]]:
        """Keys of the gangs to assemble anew, and their parts: those of changed group keys, and of all that they name or that name
        them, before or now. Who belongs together must not depend on who came first."""
        stale: dict[str, None] = {}
        parts: dict[str, _GangPart | None] = {}
        todo, self._changed = list(self._changed), {}
        while todo:
            group_key = todo.pop()
            if group_key in parts:
                continue
            part = parts[group_key] = self._part(group_key)
            todo.extend(self._siblings_of.get(group_key, ()))
            self._set_siblings(group_key, () if part is None else _siblings(part))
            todo.extend((*self._siblings_of.get(group_key, ()), *self._named_as_sibling_by.get(group_key, ())))
            key = self._gang_of_group.pop(group_key, None)
            if key is not None:
                stale[key] = None
                todo.extend(self._groups_of_gang.pop(key, ()))
        return list(stale), parts

    def _set_siblings(self, group_key: str, siblings: tuple[str, ...]) -> None:
        """Remember which other group keys this one declares as its GangGroup."""
        for other in self._siblings_of.pop(group_key, ()):
            self._named_as_sibling_by[other].pop(group_key)
            if not self._named_as_sibling_by[other]:
                del self._named_as_sibling_by[other]
        for other in siblings:
            self._named_as_sibling_by.setdefault(other, {})[group_key] = None
        if siblings:
            self._siblings_of[group_key] = siblings

    def _gang(self, part: _GangPart, parts: Mapping[str, _GangPart | None]) -> Gang:
        together = self._connected(part, parts)
        missing = {
            other: parts[other] for group_key in together for other in self._siblings_of.get(group_key, ()) if other not in together
        }
        gang = _join(
            sorted(together.values(), key=lambda p: p.full_name),
            missing=[(group_key, missing[group_key] is not None) for group_key in sorted(missing)],
            default_wait_s=self.default_wait_s,
        )
        self._groups_of_gang[gang.key] = tuple(together)
        for group_key in together:
            self._gang_of_group[group_key] = gang.key
        return gang

    def _connected(self, part: _GangPart, parts: Mapping[str, _GangPart | None]) -> dict[str, _GangPart]:
        """The part and all that are in one GangGroup with it. Both must declare it: nobody is added to a group by others alone."""
        together = {part.group_key: part}
        todo = [part.group_key]
        while todo:
            group_key = todo.pop()
            for other in self._siblings_of.get(group_key, ()):
                found = parts[other]
                if found is not None and other not in together and group_key in self._siblings_of.get(other, ()):
                    together[other] = found
                    todo.append(other)
        return together

    def _part(self, group_key: str) -> _GangPart | None:
        pods = list(self._pods.get(group_key, {}).values())
        group = self.groups.get(group_key)
        if not pods:
            return None if group is None else _empty_part(group_key, group)
        unfinished = [pod for pod in pods if not pod.finished]
        oldest = min(unfinished or pods, key=_age)
        membership = oldest.membership
        if membership is None:
            return _single_pod(group_key, oldest)
        declared, problems = _declared(pods, oldest, group)
        return _GangPart(
            group_key=group_key,
            full_name=f"{oldest.namespace}/{membership.name}",
            roles=_roles(group_key, pods, group, declared),
            subgroups=subgroups_of(group, pods),
            topology=_topology(group, declared),
            declared=declared,
            group=group,
            flavour=membership.flavour if group is None else group.flavour,
            created=group.created if group is not None else oldest.created,
            priority=self._priority(unfinished, group),
            never_preempts=oldest.never_preempts or self._never_preempts(group),
            needs_group=membership.needs_group and group is None,
            problems=problems,
            invalid_because=_unreadable_minimum(oldest, group, declared),
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
        """The PodGroup itself may declare it, or its priority class."""
        if group is None:
            return False
        named = self.classes.get(group.priority_class)
        return group.never_preempts or (named is not None and named.never_preempts)


def _as_declared(group: PodGroup) -> PodGroup:
    """The group without what only its status says."""
    return replace(group, version=0, phase="", started=None, status={})


def _siblings(part: _GangPart) -> tuple[str, ...]:
    """Keys of the other PodGroups of the same GangGroup, as this one declares them."""
    if not part.declared.groups:
        return ()
    family = part.group_key.split(":", 1)[0]
    wanted = (f"{family}:{name}" for name in sorted(set(part.declared.groups)))
    return tuple(group_key for group_key in wanted if group_key != part.group_key)


def _age(pod: Pod) -> tuple[float, str, str]:
    return (pod.created, pod.name, pod.uid)


def member_order(pod: Pod) -> tuple[int, str, int, float, str]:
    """Members of a role: higher priority first, then by name with its number read as a number, then by age."""
    stem, number = _numbered(pod.name)
    return (-pod.priority, stem, number, pod.created, pod.uid)


@lru_cache(maxsize=100_000)
def _numbered(name: str) -> tuple[str, int]:
    found = _LAST_NUMBER.match(name)
    return (found.group(1), int(found.group(2))) if found else (name, -1)


def _single_pod(group_key: str, pod: Pod) -> _GangPart:
    role = _role("", [pod], group_key="", group=None, declared=NOT_DECLARED, minimum=1, total=0)
    return _GangPart(
        group_key, pod.full_name, (role,), (), None, NOT_DECLARED, None, ApiFlavour.SINGLE_POD, pod.created, pod.priority,
        pod.never_preempts, needs_group=False, problems=pod.problems,
    )  # fmt: skip


def _empty_part(group_key: str, group: PodGroup) -> _GangPart:
    roles = _roles(group_key, [], group, group.declared)
    return _GangPart(
        group_key, group.full_name, roles, (), group.topology, group.declared, group, group.flavour, group.created, group.priority
        or 0, group.never_preempts, needs_group=False, problems=group.problems,
    )  # fmt: skip


_VALUES = attrgetter(*(field.name for field in fields(Declared)))


def _declared(pods: list[Pod], oldest: Pod, group: PodGroup | None) -> tuple[Declared, tuple[Problem, ...]]:
    """Annotations of the oldest live pod win over the PodGroup's; pods that declare other values get a problem."""
    own = _declared_by(oldest)
    base = group.declared if group is not None else NOT_DECLARED
    merged = Declared(*(mine if mine is not None else theirs for mine, theirs in zip(_VALUES(own), _VALUES(base), strict=True)))
    problems = list(group.problems if group is not None else ())
    for pod in sorted((pod for pod in pods if pod.problems or _declared_by(pod) != own), key=_age):
        problems.extend(Problem(f"{pod.full_name}: {problem.field}", problem.text) for problem in pod.problems)
        if not pod.finished and _declared_by(pod) != own:
            text = f"pod {pod.full_name} declares other values than the oldest pod {oldest.full_name}, whose values count"
            problems.append(Problem("metadata.annotations", text))
    return merged, tuple(problems)


def _declared_by(pod: Pod) -> Declared:
    return pod.membership.declared if pod.membership is not None else NOT_DECLARED


def _unreadable_minimum(oldest: Pod, group: PodGroup | None, declared: Declared) -> str:
    """Which minimum cannot be read, where nothing else declares how many members the gang needs."""
    problems = oldest.problems if group is None else group.problems
    for problem in problems if declared.min is None else ():
        if problem.lost and any(where in problem.field for where in (_POD_MINIMUMS if group is None else _GROUP_MINIMUMS)):
            return f"{problem.field}: {problem.text}"
    return ""


def _roles(group_key: str, pods: list[Pod], group: PodGroup | None, declared: Declared) -> tuple[Role, ...]:
    """The roles of one group key: by task name where there are several, one for all otherwise."""
    mins = {r.role: r.min for r in group.role_mins} if group is not None else {}
    by_role: dict[str, list[Pod]] = {name: [] for name in mins}
    for pod in pods:
        by_role.setdefault(pod.membership.role if pod.membership is not None else "", []).append(pod)
    if not by_role:
        by_role[""] = []
    total = declared.total or 0 if len(by_role) == 1 else 0
    return tuple(
        _role(name, by_role[name], group_key=group_key, group=group, declared=declared, minimum=mins.get(name, 0), total=total)
        for name in sorted(by_role)
    )


def _role(
    name: str, pods: list[Pod], *, group_key: str, group: PodGroup | None, declared: Declared, minimum: int, total: int
) -> Role:
    unfinished = [pod for pod in pods if not pod.finished]
    ended = [pod.status_phase for pod in pods if pod.finished] if len(unfinished) < len(pods) else []
    live = [pod for pod in unfinished if pod.deleted_at is None]
    ready = sorted((pod for pod in live if not pod.gates), key=member_order)
    return Role(
        name=name,
        min=minimum,
        pods=tuple(ready),
        total=max(minimum, total),
        has_declared_total=total > 0,
        named_queue=(group.queue if group is not None else "") or _queue_named_by(pods),
        mode=Mode.NON_STRICT if declared.mode == Mode.NON_STRICT.value else Mode.STRICT,
        group=group_key if group is not None else "",
        succeeded=ended.count(PodStatusPhase.SUCCEEDED),
        failed=ended.count(PodStatusPhase.FAILED),
        terminating=tuple(pod for pod in unfinished if pod.deleted_at is not None and pod.node is not None),
        gated=len(live) - len(ready),
    )


def _queue_named_by(pods: list[Pod]) -> str:
    """The queue of the oldest live pod that names one; terminating pods count last."""
    named = [pod for pod in pods if pod.queue]
    oldest = min(named, key=lambda pod: (pod.finished, pod.deleted_at is not None, _age(pod)), default=None)
    return oldest.queue if oldest is not None else ""


def _min_members(part: _GangPart) -> int:
    """How many members the part needs in all."""
    if part.flavour is ApiFlavour.SINGLE_POD:
        return 1
    if part.declared.min is not None:
        return part.declared.min
    return part.group.min_member if part.group is not None else 1


def _roles_with_minimums(part: _GangPart, *, in_group: bool) -> tuple[Role, ...]:
    """Role minimums bind only where they fit under the gang's own: a smaller `minMember` makes the gang elastic."""
    minimum = _min_members(part)
    if in_group:
        whole = _merged(part.roles)
        return (replace(whole, name=part.full_name, min=minimum, total=max(whole.total, minimum)),)
    if len(part.roles) == 1:
        only = part.roles[0]
        if only.min == minimum and only.total >= minimum:
            return part.roles
        return (changed(only, min=minimum, total=max(only.total, minimum)),)
    if minimum < sum(role.min for role in part.roles):
        return tuple(replace(role, min=0) for role in part.roles)
    return part.roles


def _topology(group: PodGroup | None, declared: Declared) -> TopologyConstraint | None:
    """Annotations win over the PodGroup."""
    if declared.must_gather is not None:
        return TopologyConstraint(hard=True, highest_tier_name=declared.must_gather)
    if declared.prefer_gather is not None:
        return TopologyConstraint(hard=False, highest_tier_name=declared.prefer_gather)
    return group.topology if group is not None else None


def _subgroups(part: _GangPart, *, in_group: bool) -> tuple[Subgroup, ...]:
    """The subgroups of one part. In a GangGroup a PodGroup's topology constraint is about its own members: they are a subgroup."""
    if not in_group or part.topology is None or part.subgroups:
        return part.subgroups
    members = frozenset(pod.uid for role in part.roles for pod in role.pods)
    return (Subgroup(part.full_name, members, topology=part.topology),)


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


def _join(parts: list[_GangPart], *, missing: list[tuple[str, bool]], default_wait_s: float) -> Gang:
    """One gang out of the parts of a GangGroup, or out of the one part there is."""
    in_group = len(parts) > 1
    roles = tuple(role for part in parts for role in _roles_with_minimums(part, in_group=in_group))
    first = parts[0]
    strict = any(role.mode is Mode.STRICT for role in roles)
    groups = [part.group for part in parts if part.group is not None]
    return Gang(
        key=",".join(part.group_key for part in parts),
        full_name="+".join(part.full_name for part in parts),
        roles=roles,
        min=sum(_min_members(part) for part in parts),
        priority=max(part.priority for part in parts),
        created=min(part.created for part in parts),
        flavour=first.flavour,
        mode=Mode.STRICT if strict else Mode.NON_STRICT,
        match_policy=_match_policy(first),
        wait_s=min(_wait_s(part, default_wait_s) for part in parts),
        topology=None if in_group else first.topology,
        subgroups=tuple(subgroup for part in parts for subgroup in _subgroups(part, in_group=in_group)),
        subgroup_mins=tuple(minimum for part in parts for minimum in subgroup_mins_of(part.group)),
        min_resources=groups[0].min_resources if len(groups) == 1 else NOTHING,
        never_preempts=any(part.never_preempts for part in parts),
        started=min((group.started for group in groups if group.started is not None), default=None),
        waiting_for=_waiting_for(parts, missing),
        invalid_because=next((part.invalid_because for part in parts if part.invalid_because), ""),
        problems=tuple(problem for part in parts for problem in part.problems),
    )


def _waiting_for(parts: list[_GangPart], missing: list[tuple[str, bool]]) -> str:
    """What must exist before the gang can be attempted, or nothing."""
    absent = [part.full_name for part in parts if part.needs_group]
    if absent:
        return f"PodGroup {absent[0]} does not exist yet"
    if not missing:
        return ""
    (group_key, exists), *_ = missing
    lacks = "does not name it in its own group" if exists else "does not exist yet"
    return f"gang {group_key.split(':', 1)[1]} of its group {lacks}"


def _wait_s(part: _GangPart, default_wait_s: float) -> float:
    if part.declared.wait_s is not None:
        return part.declared.wait_s
    declared = part.group.wait_s if part.group is not None else None
    return default_wait_s if declared is None else declared


def _match_policy(part: _GangPart) -> MatchPolicy:
    if part.declared.match_policy is not None:
        return MatchPolicy(part.declared.match_policy)
    return MatchPolicy.WAITING_AND_RUNNING if part.flavour in _RUNNING_COUNTS else MatchPolicy.ONCE_SATISFIED
