"""Decodes the CompositePodGroups of Kubernetes 1.37: groups of PodGroups, and of such groups."""

from __future__ import annotations

from typing import Any

from muster.kube.read import wire
from muster.kube.read.decoding_problems import Problems
from muster.kube.read.pod_group_decoding import SchedulingConstraints, at_least
from muster.kube.read.text_values import epoch_s, read_version, status_texts
from muster.model.gang import CompositePodGroup
from muster.model.topology_spec import TopologyConstraint


class CompositeGangPolicy(wire.WireStruct, frozen=True):
    min_group_count: wire.Int32 | None = None


class CompositeSchedulingPolicy(wire.WireStruct, frozen=True):
    gang: CompositeGangPolicy | None = None  # Absent where the other choice, `basic`, was made.


class CompositePodGroupSpec(wire.WireStruct, frozen=True):
    parent_composite_pod_group_name: str = ""
    scheduling_policy: CompositeSchedulingPolicy = CompositeSchedulingPolicy()
    scheduling_constraints: SchedulingConstraints = SchedulingConstraints()
    priority: wire.Int32 | None = None
    priority_class_name: str = ""


class WireCompositePodGroup(wire.WireObject, frozen=True):
    spec: CompositePodGroupSpec = CompositePodGroupSpec()
    status: dict[str, Any] = {}


def read_composite_pod_group(written: WireCompositePodGroup, *, problems: Problems) -> CompositePodGroup:
    meta, spec = written.metadata, written.spec
    gang, topology = spec.scheduling_policy.gang, spec.scheduling_constraints.topology
    field = "spec.schedulingPolicy.gang.minGroupCount"
    return CompositePodGroup(
        namespace=meta.namespace or "default",
        name=meta.name,
        uid=meta.uid,
        created=epoch_s(meta.creation_timestamp) or 0.0,
        version=read_version(meta.resource_version),
        parent=spec.parent_composite_pod_group_name,
        min_groups=0 if gang is None else at_least(1, gang.min_group_count, problems=problems, field=field),
        topology=TopologyConstraint(hard=True, highest_tier_name=topology[0].key) if topology else None,
        priority_class=spec.priority_class_name,
        priority=spec.priority,
        status=status_texts(written.status),
        problems=problems.all(),
    )
