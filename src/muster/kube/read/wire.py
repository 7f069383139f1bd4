"""Structs of API objects with the fields that the scheduler reads, under their Kubernetes names.

Typed structs, so that decoding is one pass in C; unknown fields are skipped. Every field has a default, because any of them may be
absent. The other modules of this package turn these structs into model values.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""All integers that are read here are 32-bit integers of the API."""
Quantity = str | Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | float
ResourceList = dict[str, Quantity]
StringDict = dict[str, str]


class WireStruct(msgspec.Struct, rename="camel", frozen=True, gc=False, omit_defaults=True):
    """Base of all structs. They form no cycles, so the garbage collector need not track them."""


class TypeMeta(WireStruct, frozen=True):
    """Untyped: the decoder checks the values."""

    api_version: Any = None
    kind: Any = None


class OwnerReference(WireStruct, frozen=True):
    kind: str = ""


class ObjectMeta(WireStruct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: StringDict = {}
    annotations: StringDict = {}
    owner_references: tuple[OwnerReference, ...] = ()


# --- Selectors --------------------------------------------------------------------------------------------------------


class SelectorRequirement(WireStruct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class WireLabelSelector(WireStruct, frozen=True):
    match_labels: StringDict = {}
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
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodeTerm, ...] = ()


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
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(WireStruct, frozen=True):
    node_affinity: WireNodeAffinity | None = None
    pod_affinity: WirePodAffinity | None = None
    pod_anti_affinity: WirePodAffinity | None = None


class WireToleration(WireStruct, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


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
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class VolumeClaimSource(WireStruct, frozen=True):
    claim_name: str = ""


class EphemeralVolumeSource(WireStruct, frozen=True):
    """Its claim is created from a template and is named after pod and volume."""


class WireVolume(WireStruct, frozen=True):
    name: str = ""
    persistent_volume_claim: VolumeClaimSource | None = None
    ephemeral: EphemeralVolumeSource | None = None


class SchedulingGate(WireStruct, frozen=True):
    name: str = ""


class SchedulingGroup(WireStruct, frozen=True):
    pod_group_name: str = ""


class PodSpec(WireStruct, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: ResourceList = {}
    resources: ResourceRequirements | None = None
    node_selector: StringDict = {}
    affinity: Affinity | None = None
    tolerations: tuple[WireToleration, ...] = ()
    topology_spread_constraints: tuple[WireSpreadConstraint, ...] = ()
    host_network: bool = False
    volumes: tuple[WireVolume, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduling_group: SchedulingGroup | None = None


class PodStatus(WireStruct, frozen=True):
    phase: str = ""
    start_time: datetime | None = None
    nominated_node_name: str = ""


class WirePod(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# --- Node, Namespace, PriorityClass -----------------------------------------------------------------------------------


class WireTaint(WireStruct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(WireStruct, frozen=True):
    unschedulable: bool = False
    taints: tuple[WireTaint, ...] = ()


class NodeStatus(WireStruct, frozen=True):
    allocatable: ResourceList | None = None
    capacity: ResourceList = {}


class WireNode(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class WireNamespace(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class WirePriorityClass(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str = ""


# --- PodDisruptionBudget ----------------------------------------------------------------------------------------------


class PodDisruptionBudgetSpec(WireStruct, frozen=True):
    selector: WireLabelSelector | None = None


class PodDisruptionBudgetStatus(WireStruct, frozen=True):
    disruptions_allowed: Int32 = 0


class WirePodDisruptionBudget(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


# --- PodGroup, one shape for all four groups --------------------------------------------------------------------------


class NetworkTopology(WireStruct, frozen=True):
    mode: str = "hard"
    highest_tier_allowed: Int32 | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(WireStruct, frozen=True):
    name: str = ""
    label_selector: WireLabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    sub_group_size: Int32 | None = None
    min_sub_groups: Int32 | None = None
    network_topology: NetworkTopology | None = None


class GangPolicy(WireStruct, frozen=True):
    min_count: Int32 | None = None


class SchedulingPolicy(WireStruct, frozen=True):
    """`basic`, the other choice, is the absence of `gang`."""

    gang: GangPolicy | None = None


class WireTopologyConstraint(WireStruct, frozen=True):
    key: str = ""


class SchedulingConstraints(WireStruct, frozen=True):
    topology: tuple[WireTopologyConstraint, ...] = ()


class PodGroupSpec(WireStruct, frozen=True):
    min_member: Int32 | None = None
    min_task_member: dict[str, Int32] = {}
    min_resources: ResourceList = {}
    queue: str = ""
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] = ()
    schedule_timeout_seconds: Int32 | None = None
    scheduling_policy: SchedulingPolicy | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""


class WirePodGroup(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: dict[str, Any] = {}


# --- Queue and ElasticQuota -------------------------------------------------------------------------------------------


class Guarantee(WireStruct, frozen=True):
    resource: ResourceList = {}


class QueueSpec(WireStruct, frozen=True):
    parent: str = ""
    weight: Int32 = 1
    capability: ResourceList = {}
    deserved: ResourceList = {}
    guarantee: Guarantee = Guarantee()
    reclaimable: bool = True
    priority: Int32 = 0


class WireQueue(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: QueueSpec = QueueSpec()
    status: dict[str, Any] = {}


class ElasticQuotaSpec(WireStruct, frozen=True):
    max: ResourceList = {}
    min: ResourceList = {}


class WireElasticQuota(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: dict[str, Any] = {}


# --- HyperNode --------------------------------------------------------------------------------------------------------


class ExactMatch(WireStruct, frozen=True):
    name: str = ""


class RegexMatch(WireStruct, frozen=True):
    pattern: str = ""


class HyperNodeMemberSelector(WireStruct, frozen=True):
    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: WireLabelSelector | None = None


class HyperNodeMember(WireStruct, frozen=True):
    type: str = "Node"
    selector: HyperNodeMemberSelector = HyperNodeMemberSelector()


class HyperNodeSpec(WireStruct, frozen=True):
    tier: Int32 = 1
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()


class WireHyperNode(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: HyperNodeSpec = HyperNodeSpec()


# --- Volumes ----------------------------------------------------------------------------------------------------------


class ObjectReference(WireStruct, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(WireStruct, frozen=True):
    required: NodeSelector | None = None


class CsiVolumeSource(WireStruct, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(WireStruct, frozen=True):
    capacity: ResourceList = {}
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiVolumeSource | None = None


class PersistentVolumeStatus(WireStruct, frozen=True):
    phase: str = ""


class WirePersistentVolume(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class PersistentVolumeClaimSpec(WireStruct, frozen=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    resources: ResourceRequirements = ResourceRequirements()
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    selector: WireLabelSelector | None = None


class WirePersistentVolumeClaim(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class TopologyExpression(WireStruct, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(WireStruct, frozen=True):
    match_label_expressions: tuple[TopologyExpression, ...] = ()


class WireStorageClass(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class DriverAllocatable(WireStruct, frozen=True):
    count: Int32 | None = None


class CsiDriver(WireStruct, frozen=True):
    name: str = ""
    allocatable: DriverAllocatable | None = None


class CsiNodeSpec(WireStruct, frozen=True):
    drivers: tuple[CsiDriver, ...] = ()


class WireCSINode(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CsiNodeSpec = CsiNodeSpec()


# --- Devices (Koordinator) --------------------------------------------------------------------------------------------


class DeviceTopology(WireStruct, frozen=True):
    node_id: Int32 = msgspec.field(default=0, name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")


class DeviceEntry(WireStruct, frozen=True):
    type: str = ""
    id: str = ""
    minor: Int32 | None = None
    health: bool = False
    resources: ResourceList = {}
    topology: DeviceTopology | None = None


class WireDeviceSpec(WireStruct, frozen=True):
    devices: tuple[DeviceEntry, ...] = ()


class WireDevice(WireStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: WireDeviceSpec = WireDeviceSpec()


WireObject = (
    WirePod
    | WireNode
    | WireNamespace
    | WirePriorityClass
    | WirePodDisruptionBudget
    | WirePodGroup
    | WireQueue
    | WireElasticQuota
    | WireHyperNode
    | WirePersistentVolume
    | WirePersistentVolumeClaim
    | WireStorageClass
    | WireCSINode
    | WireDevice
)
