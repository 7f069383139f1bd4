"""What one group key makes of its pods, their annotations and its PodGroup: a gang that stands for itself.

`gang_groups` joins those that declare each other as a GangGroup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from muster.model.events import PriorityClass
from muster.model.gang import Gang, MatchPolicy, Mode, PodGroup, Role, changed
from muster.model.pod import NOT_DECLARED, ApiFlavour, Declared, Pod, PodStatusPhase
from muster.model.resource_amounts import NOTHING
from muster.model.topology_spec import TopologyConstraint
from muster.state.gangs.declared_subgroups import subgroups_of
from muster.state.gangs.declared_values import (
    Minimums,
    age,
    lacks_group,
    live_pods,
    merge_declared,
    minimums_of,
    unreadable_minimum,
)

_RUNNING_COUNTS = frozenset({ApiFlavour.VOLCANO, ApiFlavour.NATIVE, ApiFlavour.SINGLE_POD})
_LAST_NUMBER = re.compile(r"^(.*?)(\d{1,18})$")


def gang_of_pods(
    group_key: str,
    pods: list[Pod],
    group: PodGroup | None,
    classes: Mapping[str, PriorityClass],
    *,
    default_wait_s: float,
) -> Gang:
    live = live_pods(pods)
    oldest = min(live, key=age)
    membership = oldest.membership
    if membership is None:
        return _single_pod(group_key, oldest, classes, default_wait_s=default_wait_s)
    full_name = f"{oldest.namespace}/{membership.name}"
    declared, problems = merge_declared(pods, live, oldest, group)
    needs_group, unreadable = lacks_group(live, group), unreadable_minimum(oldest, group, declared)
    min_is_known = not (needs_group or unreadable)
    # A gang that runs stays whole while its minimum is not known.
    minimums = minimums_of(group, declared) if min_is_known else Minimums(len(live))
    return changed(
        _declared_gang(group_key, full_name, pods, group, declared, minimums, default_wait_s=default_wait_s),
        priority=_priority(live, group, classes),
        created=oldest.created if group is None else group.created,
        flavour=membership.flavour if group is None else group.flavour,
        match_policy=_match_policy(declared, membership.flavour if group is None else group.flavour),
        topology=_topology(group, declared),
        never_preempts=oldest.never_preempts or _never_preempts(group, classes),
        run_s=_run_s(oldest, group, classes),
        waiting_for=f"PodGroup {full_name} does not exist yet" if needs_group else "",
        invalid_because=unreadable,
        min_is_known=min_is_known,
        problems=problems,
    )


def gang_without_pods(group_key: str, group: PodGroup, *, default_wait_s: float) -> Gang:
    return changed(
        _declared_gang(
            group_key, group.full_name, [], group, group.declared, minimums_of(group, group.declared), default_wait_s=default_wait_s
        ),
        priority=group.priority or 0,
        created=group.created,
        flavour=group.flavour,
        match_policy=_match_policy(group.declared, group.flavour),
        topology=group.topology,
        never_preempts=group.never_preempts,
        problems=group.problems,
    )


def _single_pod(group_key: str, pod: Pod, classes: Mapping[str, PriorityClass], *, default_wait_s: float) -> Gang:
    role = _role("", [pod], group_key="", group=None, declared=NOT_DECLARED, minimum=1, total=0)
    return Gang(
        group_key, pod.full_name, (role,), 1, pod.priority, pod.created, wait_s=default_wait_s,
        never_preempts=pod.never_preempts, run_s=_run_s(pod, None, classes), problems=pod.problems,
    )  # fmt: skip


def _declared_gang(
    group_key: str,
    full_name: str,
    pods: list[Pod],
    group: PodGroup | None,
    declared: Declared,
    minimums: Minimums,
    *,
    default_wait_s: float,
) -> Gang:
    """With what both pods and a PodGroup can declare, and with what only a PodGroup can."""
    subgroups = subgroups_of(group, pods)
    return Gang(
        group_key,
        full_name,
        _with_minimum(_roles(group_key, pods, group, declared, minimums), minimums.members),
        minimums.members,
        mode=_mode(declared),
        wait_s=_wait_s(group, declared, default_wait_s),
        stale_s=None if group is None else group.stale_s,
        subgroups=subgroups,
        min_subgroups=len(subgroups),
        parent="" if group is None else group.parent_key,
        min_resources=NOTHING if group is None else group.min_resources,
        started=None if group is None else group.started,
        siblings=tuple(name for name in declared.groups or () if name != full_name),
    )


# -- what is declared ------------------------------------------------------------------------------------------------------------


def _mode(declared: Declared) -> Mode:
    return Mode.NON_STRICT if declared.mode == Mode.NON_STRICT.value else Mode.STRICT


def _match_policy(declared: Declared, flavour: ApiFlavour) -> MatchPolicy:
    if declared.match_policy is not None:
        return MatchPolicy(declared.match_policy)
    return MatchPolicy.WAITING_AND_RUNNING if flavour in _RUNNING_COUNTS else MatchPolicy.ONCE_SATISFIED


def _wait_s(group: PodGroup | None, declared: Declared, default_wait_s: float) -> float:
    if declared.wait_s is not None:
        return declared.wait_s
    return default_wait_s if group is None or group.wait_s is None else group.wait_s


def _topology(group: PodGroup | None, declared: Declared) -> TopologyConstraint | None:
    """Annotations win over the PodGroup."""
    if declared.must_gather is not None:
        return TopologyConstraint(hard=True, highest_tier_name=declared.must_gather)
    if declared.prefer_gather is not None:
        return TopologyConstraint(hard=False, highest_tier_name=declared.prefer_gather)
    return group.topology if group is not None else None


def _priority(unfinished: Iterable[Pod], group: PodGroup | None, classes: Mapping[str, PriorityClass]) -> int:
    if group is not None:
        if group.priority is not None:
            return group.priority
        found = classes.get(group.priority_class)
        if found is not None:
            return found.value
    return max((pod.priority for pod in unfinished), default=0)


def _never_preempts(group: PodGroup | None, classes: Mapping[str, PriorityClass]) -> bool:
    """The PodGroup itself may declare it, or its priority class."""
    if group is None:
        return False
    named = classes.get(group.priority_class)
    return group.never_preempts or (named is not None and named.never_preempts)


def _run_s(oldest: Pod, group: PodGroup | None, classes: Mapping[str, PriorityClass]) -> float | None:
    """As the class of the PodGroup says, or that of its pods: the smaller."""
    named = (classes.get(name) for name in (oldest.priority_class, "" if group is None else group.priority_class))
    return min((found.run_s for found in named if found is not None and found.run_s is not None), default=None)


# -- roles -----------------------------------------------------------------------------------------------------------------------


def _roles(group_key: str, pods: list[Pod], group: PodGroup | None, declared: Declared, minimums: Minimums) -> tuple[Role, ...]:
    """The roles of one group key: by task name where there are several, one for all otherwise."""
    mins = {role.role: role.min for role in minimums.roles}
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


def _with_minimum(roles: tuple[Role, ...], minimum: int) -> tuple[Role, ...]:
    """Role minimums bind only where they fit under the gang's own: a smaller `minMember` makes the gang elastic."""
    if len(roles) == 1:
        only = roles[0]
        if only.min == minimum and only.total >= minimum:
            return roles
        return (changed(only, min=minimum, total=max(only.total, minimum)),)
    if minimum < sum(role.min for role in roles):
        return tuple(replace(role, min=0) for role in roles)
    return roles


def _role(
    name: str, pods: list[Pod], *, group_key: str, group: PodGroup | None, declared: Declared, minimum: int, total: int
) -> Role:
    unfinished = [pod for pod in pods if not pod.finished]
    live = [pod for pod in unfinished if pod.deleted_at is None]
    ready = sorted([pod for pod in live if not pod.gates], key=member_order)
    succeeded = _succeeded(pods) if len(unfinished) < len(pods) else 0
    return Role(
        name=name,
        min=minimum,
        pods=tuple(ready),
        total=max(minimum, total),
        has_declared_total=total > 0,
        named_queue=(group.queue if group is not None else "") or _queue_named_by(pods),
        mode=_mode(declared),
        group=group_key if group is not None else "",
        succeeded=succeeded,
        failed=len(pods) - len(unfinished) - succeeded,
        terminating=_terminating(unfinished) if len(live) < len(unfinished) else (),
        gated=len(live) - len(ready),
    )


def _succeeded(pods: list[Pod]) -> int:
    return sum(pod.status_phase is PodStatusPhase.SUCCEEDED for pod in pods)


def _terminating(unfinished: list[Pod]) -> tuple[Pod, ...]:
    return tuple(pod for pod in unfinished if pod.deleted_at is not None and pod.node is not None)


def _queue_named_by(pods: list[Pod]) -> str:
    """The queue of the oldest live pod that names one; terminating pods count last."""
    named = [pod for pod in pods if pod.queue]
    oldest = min(named, key=lambda pod: (pod.finished, pod.deleted_at is not None, age(pod)), default=None)
    return oldest.queue if oldest is not None else ""


def member_order(pod: Pod) -> tuple[int, str, int, float, str]:
    """Members of a role: higher priority first, then by name with its number read as a number, then by age."""
    stem, number = _numbered(pod.name)
    return (-pod.priority, stem, number, pod.created, pod.uid)


@lru_cache(maxsize=16_384)
def _numbered(name: str) -> tuple[str, int]:
    found = _LAST_NUMBER.match(name)
    return (found.group(1), int(found.group(2))) if found else (name, -1)
