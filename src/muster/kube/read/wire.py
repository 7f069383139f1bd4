"""Structs of pods, and of what API objects have in common, with the fields that the scheduler reads, under their Kubernetes names.

Typed structs, so that decoding is one pass in C; unknown fields are skipped, except in the spec of a pod. Every field has a
default, because any of them may be absent. Other kinds have theirs beside the function that turns them into a model value.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""All integers that are read here are 32-bit integers of the API."""
Quantity = str | Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | float
ResourceList = dict[str, Quantity]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class WireStruct(msgspec.Struct, rename="camel", frozen=True, gc=False, omit_defaults=True):
    """Base of all structs. They form no cycles, so the garbage collector need not track them."""


class OwnerReference(WireStruct, frozen=True):
    kind: str = ""
    uid: str = ""
    controller: bool = False


class LocalObjectReference(WireStruct, frozen=True):
    name: str = ""


class ObjectMeta(WireStruct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: Int32 | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def controller(self) -> str:
        """UID of the object that controls this one, or empty."""
        return next((owner.uid for owner in self.owner_references if owner.controller), "")


class WireObject(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


# --- Selectors --------------------------------------------------------------------------------------------------------


class SelectorRequirement(WireStruct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class WireLabelSelector(WireStruct, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()


class NodeSelectorTerm(WireStruct, frozen=True):
    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(WireStruct, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNodeTerm(WireStruct, frozen=True):
    weight: Int32 = 1
    preference: NodeSelectorTerm = NodeSelectorTerm()


class WireNodeAffinity(WireStruct, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name=REQUIRED)
    preferred: tuple[PreferredNodeTerm, ...] = msgspec.field(default=(), name=PREFERRED)


class PodAffinityTerm(WireStruct, frozen=True):
    topology_key: str = ""
    label_selector: WireLabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: WireLabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(WireStruct, frozen=True):
    weight: Int32 = 1
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class WirePodAffinity(WireStruct, frozen=True):
    required: tuple[PodAffinityTerm, ...] = msgspec.field(default=(), name=REQUIRED)
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(default=(), name=PREFERRED)


class Affinity(WireStruct, frozen=True):
    node_affinity: WireNodeAffinity = WireNodeAffinity()
    pod_affinity: WirePodAffinity = WirePodAffinity()
    pod_anti_affinity: WirePodAffinity = WirePodAffinity()


class WireTaint(WireStruct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class WireToleration(WireTaint, frozen=True):
    operator: str = ""


class WireSpreadConstraint(WireStruct, frozen=True):
    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: WireLabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


# --- Pod --------------------------------------------------------------------------------------------------------------


class ResourceRequirements(WireStruct, frozen=True):
    requests: ResourceList = {}
    limits: ResourceList = {}


class ContainerPort(WireStruct, frozen=True):
    container_port: Int32 = 0
    host_port: Int32 = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(WireStruct, frozen=True):
    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class VolumeClaimSource(WireStruct, frozen=True):
    claim_name: str = ""


class EphemeralVolumeSource(WireStruct, frozen=True):
    """Its claim is created from a template and is named after pod and volume."""


class WireVolume(WireStruct, frozen=True):
    name: str = ""
    persistent_volume_claim: VolumeClaimSource = VolumeClaimSource()
    ephemeral: EphemeralVolumeSource | None = None


class SchedulingGroup(WireStruct, frozen=True):
    pod_group_name: str = ""


class UnconstrainingFields(WireStruct, frozen=True):
    """Fields of a pod's spec that say nothing about its node, or only what an admission plugin writes into other fields too."""

    automount_service_account_token: Any = None
    dns_config: Any = None
    dns_policy: Any = None
    enable_service_links: Any = None
    ephemeral_containers: Any = None
    host_aliases: Any = None
    host_ipc: Any = msgspec.field(default=None, name="hostIPC")
    host_pid: Any = msgspec.field(default=None, name="hostPID")
    host_users: Any = None
    hostname: Any = None
    hostname_override: Any = None
    image_pull_secrets: Any = None
    os: Any = None
    readiness_gates: Any = None
    restart_policy: Any = None
    runtime_class_name: Any = None
    security_context: Any = None
    service_account: Any = None
    service_account_name: Any = None
    set_hostname_as_fqdn: Any = msgspec.field(default=None, name="setHostnameAsFQDN")
    share_process_namespace: Any = None
    subdomain: Any = None
    termination_grace_period_seconds: Any = None


class PodSpec(UnconstrainingFields, frozen=True, forbid_unknown_fields=True):
    """Fields that are honoured, beside those that are no constraint. A pod with any other gets no node."""

    node_name: str = ""
    scheduler_name: str = ""
    active_deadline_seconds: int | None = None
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: ResourceList = {}
    resources: ResourceRequirements = ResourceRequirements()
    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    tolerations: tuple[WireToleration, ...] = ()
    topology_spread_constraints: tuple[WireSpreadConstraint, ...] = ()
    host_network: bool = False
    volumes: tuple[WireVolume, ...] = ()
    scheduling_gates: tuple[LocalObjectReference, ...] = ()
    scheduling_group: SchedulingGroup = SchedulingGroup()
    resource_claims: tuple[LocalObjectReference, ...] = ()


class ContainerStatus(WireStruct, frozen=True):
    """What the kubelet has allocated, and what the container runs with: both differ from the spec during a resize."""

    name: str = ""
    allocated_resources: ResourceList = {}
    resources: ResourceRequirements = ResourceRequirements()


class PodStatus(WireStruct, frozen=True):
    phase: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    start_time: datetime | None = None
    nominated_node_name: str = ""


class WirePod(WireObject, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
