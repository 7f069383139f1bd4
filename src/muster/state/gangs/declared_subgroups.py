"""The subgroups that a PodGroup declares: one for each subgroup policy, and in that one for each set of equal label values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from muster.model.gang import PodGroup, Subgroup, SubgroupPolicy
from muster.model.pod import Pod, PodStatusPhase


@dataclass(slots=True)
class _Counted:
    live: list[str]
    succeeded: int = 0


def subgroups_of(group: PodGroup | None, pods: Iterable[Pod]) -> tuple[Subgroup, ...]:
    """The subgroups of one PodGroup; it needs them all. A pod is in the first policy that selects it and whose labels it has."""
    if group is None or not group.sub_groups:
        return ()
    counted: list[dict[tuple[str, ...], _Counted]] = [{} for _ in group.sub_groups]
    for pod in sorted(pods, key=lambda pod: (pod.created, pod.name, pod.uid)):
        found = _policy_of(group.sub_groups, pod)
        if found is None:
            continue
        at, values = found
        subgroup = counted[at].setdefault(values, _Counted([]))
        if pod.status_phase is PodStatusPhase.SUCCEEDED:
            subgroup.succeeded += 1
        elif not pod.finished and pod.deleted_at is None and not pod.gates:
            subgroup.live.append(pod.uid)
    return tuple(_subgroup(policy, parts) for policy, parts in zip(group.sub_groups, counted, strict=True))


def _policy_of(sub_groups: Sequence[SubgroupPolicy], pod: Pod) -> tuple[int, tuple[str, ...]] | None:
    for at, policy in enumerate(sub_groups):
        if policy.role and (pod.membership is None or pod.membership.role != policy.role):
            continue
        if policy.selector.selects(pod.labels) and all(key in pod.labels for key in policy.label_keys):
            return at, tuple(pod.labels[key] for key in policy.label_keys)
    return None


def _subgroup(policy: SubgroupPolicy, parts: dict[tuple[str, ...], _Counted]) -> Subgroup:
    """All that a policy selects. Its parts have the minimum and the topology."""
    subgroups = tuple(
        Subgroup(
            title="-".join((policy.name, *values)),
            members=frozenset(counted.live),
            min=policy.size,
            succeeded=counted.succeeded,
            topology=policy.topology,
        )
        for values, counted in sorted(parts.items())
    )
    return Subgroup(
        title=policy.name,
        members=frozenset().union(*(each.members for each in subgroups)),
        succeeded=sum(each.succeeded for each in subgroups),
        subgroups=subgroups,
        min_subgroups=policy.min_subgroups,
    )
