"""Decodes the PodGroups of all four API groups."""

from __future__ import annotations

from typing import Any

from muster.kube.read import names, wire
from muster.kube.read.decoding_problems import Problems
from muster.kube.read.flavours import queue_of, read_declaration
from muster.kube.read.selector_decoding import label_selector
from muster.kube.read.text_values import (
    BadText,
    epoch_s,
    read_annotation,
    read_resources,
    read_seconds,
    read_time,
    read_version,
    status_texts,
)
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
MAX_STALE_S = 86_400.0


class NetworkTopology(wire.WireStruct, frozen=True):
    mode: str = "hard"
    highest_tier_allowed: wire.Int32 | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(wire.WireStruct, frozen=True):
    name: str = ""
    label_selector: wire.WireLabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    sub_group_size: wire.Int32 | None = None
    min_sub_groups: wire.Int32 | None = None
    network_topology: NetworkTopology | None = None


class GangPolicy(wire.WireStruct, frozen=True):
    min_count: wire.Int32 | None = None


class SchedulingPolicy(wire.WireStruct, frozen=True):
    gang: GangPolicy = GangPolicy()  # Absent where the other choice, `basic`, was made.


class WireTopologyConstraint(wire.WireStruct, frozen=True):
    key: str = ""


class SchedulingConstraints(wire.WireStruct, frozen=True):
    topology: tuple[WireTopologyConstraint, ...] = ()


class PodGroupSpec(wire.WireStruct, frozen=True):
    min_member: wire.Int32 | None = None
    min_task_member: dict[str, wire.Int32] = {}
    min_resources: wire.ResourceList = {}
    queue: str = ""
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] = ()
    schedule_timeout_seconds: wire.Int32 | None = None
    parent_composite_pod_group_name: str = ""
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints = SchedulingConstraints()
    priority: wire.Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""


class WirePodGroup(wire.WireObject, frozen=True):
    spec: PodGroupSpec = PodGroupSpec()
    status: dict[str, Any] = {}


def read_pod_group(written: WirePodGroup, *, flavour: ApiFlavour, problems: Problems) -> PodGroup:
    meta, spec = written.metadata, written.spec
    declared = read_declaration(meta.labels, meta.annotations, problems=problems)
    status = status_texts(written.status)
    _check_sub_groups(spec, problems=problems)
    return PodGroup(
        flavour=flavour,
        namespace=meta.namespace or "default",
        name=meta.name,
        uid=meta.uid,
        controller=meta.controller,
        created=epoch_s(meta.creation_timestamp) or 0.0,
        version=read_version(meta.resource_version),
        min_member=_min_member(spec, flavour=flavour, problems=problems),
        role_mins=_role_mins(spec, problems=problems),
        min_resources=read_resources(spec.min_resources, problems=problems, field="spec.minResources"),
        priority_class=spec.priority_class_name,
        priority=spec.priority,
        never_preempts=spec.preemption_policy == "Never",
        queue=f"queue/{spec.queue}" if spec.queue else queue_of(meta.labels, meta.annotations, problems=problems),
        topology=_topology(spec, declared=declared, problems=problems),
        parent=spec.parent_composite_pod_group_name if flavour is ApiFlavour.NATIVE else "",
        sub_groups=tuple(
            _sub_group(each, problems=place) for each, place in problems.each("spec.subGroupPolicy", spec.sub_group_policy)
        ),
        wait_s=_wait_s(spec, problems=problems),
        stale_s=read_annotation(meta.annotations, names.STALE_SECONDS, _read_stale, problems=problems),
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


def _min_member(spec: PodGroupSpec, *, flavour: ApiFlavour, problems: Problems) -> int:
    """Absent or zero is one: the members of such a gang are scheduled one by one."""
    field, written = "spec.minMember", spec.min_member
    if flavour is ApiFlavour.NATIVE:
        field, written = "spec.schedulingPolicy.gang.minCount", spec.scheduling_policy.gang.min_count
    return at_least(1, written, problems=problems, field=field)


def _role_mins(spec: PodGroupSpec, *, problems: Problems) -> tuple[RoleMin, ...]:
    return tuple(
        RoleMin(role, at_least(0, least, problems=problems, field=f"spec.minTaskMember[{role}]"))
        for role, least in sorted(spec.min_task_member.items())
    )


def at_least(floor: int, written: int | None, *, problems: Problems, field: str) -> int:
    if written is not None and written < 0:
        problems.at(field).add(written, advice=f"is negative; {floor} is used")
    return max(floor, written or 0)


def _topology(spec: PodGroupSpec, *, declared: Declared, problems: Problems) -> TopologyConstraint | None:
    if spec.network_topology is not None:
        return _network_topology(spec.network_topology, problems=problems.at("spec.networkTopology"))
    if constraints := spec.scheduling_constraints.topology:
        # Kubernetes names a node label; nodes with one value of it are one domain.
        return TopologyConstraint(hard=True, highest_tier_name=constraints[0].key)
    if declared.must_gather is not None:
        return TopologyConstraint(hard=True, highest_tier_name=declared.must_gather)
    if declared.prefer_gather is not None:
        return TopologyConstraint(hard=False, highest_tier_name=declared.prefer_gather)
    return None


def _network_topology(written: NetworkTopology, *, problems: Problems) -> TopologyConstraint:
    if written.mode not in ("hard", "soft", ""):
        problems.at("mode").add(written.mode, advice="is unknown, so hard is used; write hard or soft")
    tier = written.highest_tier_allowed
    if tier is not None and tier < 0:
        problems.at("highestTierAllowed").add(tier, advice="is negative; 0 is used")
    return TopologyConstraint(
        hard=written.mode != "soft",
        highest_tier=None if tier is None else max(0, tier),
        highest_tier_name=written.highest_tier_name,
    )


def _sub_group(written: SubGroupPolicy, *, problems: Problems) -> SubgroupPolicy:
    """A policy without a selector applies to the role of its name."""
    topology = written.network_topology
    bare = written.label_selector is None and not written.match_label_keys
    return SubgroupPolicy(
        name=written.name,
        role=written.name if bare else "",
        selector=label_selector(written.label_selector, problems=problems, field="labelSelector") or EVERYTHING,
        label_keys=written.match_label_keys,
        size=at_least(1, written.sub_group_size, problems=problems, field="subGroupSize"),
        min_subgroups=at_least(0, written.min_sub_groups, problems=problems, field="minSubGroups"),
        topology=None if topology is None else _network_topology(topology, problems=problems.at("networkTopology")),
    )


def _read_stale(text: str) -> float:
    """Who declares more than anybody needs would keep nodes from others that are of no use to her."""
    if (seconds := read_seconds(text)) > MAX_STALE_S:
        raise BadText(f"is more than a day; write at most {MAX_STALE_S:.0f}")
    return seconds


def _check_sub_groups(spec: PodGroupSpec, *, problems: Problems) -> None:
    """A policy that nothing distinguishes from another, or that allows more than the PodGroup does."""
    seen: set[str] = set()
    highest = _hard_tier(spec.network_topology)
    for each, place in problems.each("spec.subGroupPolicy", spec.sub_group_policy):
        if each.name in seen:
            place.at("name").add(each.name, advice="is the name of two policies; give each its own")
        seen.add(each.name)
        tier = _hard_tier(each.network_topology)
        if tier is not None and highest is not None and tier > highest:
            place.at("networkTopology.highestTierAllowed").add(tier, advice=f"is above the PodGroup's own {highest}, which counts")


def _hard_tier(topology: NetworkTopology | None) -> int | None:
    return None if topology is None or topology.mode == "soft" else topology.highest_tier_allowed


def _wait_s(spec: PodGroupSpec, *, problems: Problems) -> float | None:
    """Zero is the same as absent."""
    seconds = spec.schedule_timeout_seconds
    if seconds is not None and seconds < 0:
        problems.at("spec.scheduleTimeoutSeconds").add(seconds, advice="is negative and was ignored; write 600")
    return float(seconds) if seconds is not None and seconds > 0 else None
