"""Decodes the PodGroups of all four API groups."""

from __future__ import annotations

from muster.kube.read import names, wire
from muster.kube.read.decoding_problems import Problems
from muster.kube.read.flavours import queue_of, read_declaration
from muster.kube.read.selector_decoding import label_selector
from muster.kube.read.text_values import BadText, epoch_s, flatten_status, read_resources, read_time, read_version
from muster.model.gang import PodGroup, RoleMin, SubgroupPolicy
from muster.model.pod import ApiFlavour, Declared
from muster.model.pod_constraints import EVERYTHING
from muster.model.topology_spec import TopologyConstraint

FLAVOUR_OF_API_GROUP = {
    names.VOLCANO_GROUP: ApiFlavour.VOLCANO,
    names.SIGS_GROUP: ApiFlavour.KOORDINATOR,
    names.X_K8S_GROUP: ApiFlavour.SIGS,
    names.NATIVE_GROUP: ApiFlavour.NATIVE,
}
"""The API flavour of the PodGroups of each API group."""


def read_pod_group(written: wire.WirePodGroup, *, flavour: ApiFlavour, problems: Problems) -> PodGroup:
    meta, spec = written.metadata, written.spec
    declared = read_declaration(meta.labels, meta.annotations, problems=problems)
    status = flatten_status(written.status)
    return PodGroup(
        flavour=flavour,
        namespace=meta.namespace or "default",
        name=meta.name,
        uid=meta.uid,
        created=epoch_s(meta.creation_timestamp) or 0.0,
        version=read_version(meta.resource_version),
        min_member=_min_member(spec, flavour=flavour, problems=problems),
        role_mins=_role_mins(spec, problems=problems),
        min_resources=read_resources(spec.min_resources, field="spec.minResources", problems=problems),
        priority_class=spec.priority_class_name,
        priority=spec.priority,
        never_preempts=spec.preemption_policy == "Never",
        queue=f"queue/{spec.queue}" if spec.queue else queue_of(meta.labels, meta.annotations, problems=problems),
        topology=_topology(spec, declared=declared, problems=problems),
        sub_groups=tuple(
            _sub_group(each, field=f"spec.subGroupPolicy[{i}]", problems=problems) for i, each in enumerate(spec.sub_group_policy)
        ),
        wait_s=_wait_s(spec, problems=problems),
        declared=declared,
        phase=status.get("phase", ""),
        started=_started(status.get("scheduleStartTime", "")),
        status=status,
        problems=problems.all(),
    )


def _started(text: str) -> float | None:
    """An invalid time is ignored and overwritten."""
    try:
        return read_time(text) if text else None
    except BadText:
        return None


def _min_member(spec: wire.PodGroupSpec, *, flavour: ApiFlavour, problems: Problems) -> int:
    """Absent or zero is one: the members of such a gang are scheduled one by one."""
    field, written = "spec.minMember", spec.min_member
    if flavour is ApiFlavour.NATIVE:
        gang = spec.scheduling_policy.gang if spec.scheduling_policy is not None else None
        field, written = "spec.schedulingPolicy.gang.minCount", gang.min_count if gang is not None else None
    return _at_least(1, written, field=field, problems=problems)


def _role_mins(spec: wire.PodGroupSpec, *, problems: Problems) -> tuple[RoleMin, ...]:
    return tuple(
        RoleMin(role, _at_least(0, least, field=f"spec.minTaskMember[{role}]", problems=problems))
        for role, least in sorted(spec.min_task_member.items())
    )


def _at_least(floor: int, written: int | None, *, field: str, problems: Problems) -> int:
    if written is not None and written < 0:
        problems.add(field, value=written, advice=f"is negative; {floor} is used")
    return max(floor, written or 0)


def _topology(spec: wire.PodGroupSpec, *, declared: Declared, problems: Problems) -> TopologyConstraint | None:
    if spec.network_topology is not None:
        return _network_topology(spec.network_topology, field="spec.networkTopology", problems=problems)
    constraints = spec.scheduling_constraints.topology if spec.scheduling_constraints is not None else ()
    if constraints:
        # Kubernetes names a node label; nodes with one value of it are one domain.
        return TopologyConstraint(hard=True, highest_tier_name=constraints[0].key)
    if declared.must_gather is not None:
        return TopologyConstraint(hard=True, highest_tier_name=declared.must_gather)
    if declared.prefer_gather is not None:
        return TopologyConstraint(hard=False, highest_tier_name=declared.prefer_gather)
    return None


def _network_topology(written: wire.NetworkTopology, *, field: str, problems: Problems) -> TopologyConstraint:
    if written.mode not in ("hard", "soft", ""):
        problems.add(f"{field}.mode", value=written.mode, advice="is unknown, so hard is used; write hard or soft")
    tier = written.highest_tier_allowed
    if tier is not None and tier < 0:
        problems.add(f"{field}.highestTierAllowed", value=tier, advice="is negative; 0 is used")
    return TopologyConstraint(
        hard=written.mode != "soft",
        highest_tier=None if tier is None else max(0, tier),
        highest_tier_name=written.highest_tier_name,
    )


def _sub_group(written: wire.SubGroupPolicy, *, field: str, problems: Problems) -> SubgroupPolicy:
    """A policy without a selector applies to the role of its name."""
    topology = written.network_topology
    bare = written.label_selector is None and not written.match_label_keys
    return SubgroupPolicy(
        name=written.name,
        role=written.name if bare else "",
        selector=label_selector(written.label_selector, field=f"{field}.labelSelector", problems=problems) or EVERYTHING,
        label_keys=written.match_label_keys,
        size=_at_least(1, written.sub_group_size, field=f"{field}.subGroupSize", problems=problems),
        min_subgroups=_at_least(0, written.min_sub_groups, field=f"{field}.minSubGroups", problems=problems),
        topology=None if topology is None else _network_topology(topology, field=f"{field}.networkTopology", problems=problems),
    )


def _wait_s(spec: wire.PodGroupSpec, *, problems: Problems) -> float | None:
    """Zero is the same as absent."""
    seconds = spec.schedule_timeout_seconds
    if seconds is not None and seconds < 0:
        problems.add("spec.scheduleTimeoutSeconds", value=seconds, advice="is negative and was ignored; write 600")
    return float(seconds) if seconds is not None and seconds > 0 else None
