"""The shape of API objects: only the fields that the scheduler needs, as Kubernetes writes them.

Typed structs, so that decoding is one pass in C; unknown fields are skipped. Every field has a default, because any of
them may be absent. These shapes carry no meaning: the readers beside this file turn them into model values. Disruption
budgets and volumes will stand here too.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""Every whole number that is read here is one of the API's 32-bit numbers, or should be."""
Quantity = str | Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | float
Amounts = dict[str, Quantity]
Labels = dict[str, str]


class Wire(msgspec.Struct, rename="camel", frozen=True, gc=False, omit_defaults=True):
    """Base of all shapes. They form no cycles, so the garbage collector need not know them."""


class TypeMeta(Wire, frozen=True):
    """What an object says it is. Anything may stand here; the decoder looks at it before it believes it."""

    api_version: Any = None
    kind: Any = None


class OwnerReference(Wire, frozen=True):
    kind: str = ""


class ObjectMeta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: Labels = {}
    annotations: Labels = {}
    owner_references: tuple[OwnerReference, ...] = ()


# --- Selectors --------------------------------------------------------------------------------------------------------


class Expression(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    match_labels: Labels = {}
    match_expressions: tuple[Expression, ...] = ()


class NodeSelectorTerm(Wire, frozen=True):
    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


class NodeSelector(Wire, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNodeTerm(Wire, frozen=True):
    weight: Int32 = 1
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Wire, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodeTerm, ...] = ()


class PodAffinityTerm(Wire, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Wire, frozen=True):
    weight: Int32 = 1
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Wire, frozen=True):
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SpreadConstraint(Wire, frozen=True):
    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


# --- Pod --------------------------------------------------------------------------------------------------------------


class ResourceRequirements(Wire, frozen=True):
    requests: Amounts = {}
    limits: Amounts = {}


class Port(Wire, frozen=True):
    container_port: Int32 = 0
    host_port: Int32 = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(Wire, frozen=True):
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[Port, ...] = ()
    restart_policy: str = ""


class ClaimSource(Wire, frozen=True):
    claim_name: str = ""


class EphemeralSource(Wire, frozen=True):
    """Its claim is made from a template and is named after pod and volume."""


class Volume(Wire, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None


class SchedulingGate(Wire, frozen=True):
    name: str = ""


class SchedulingGroup(Wire, frozen=True):
    pod_group_name: str = ""


class PodSpec(Wire, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Amounts = {}
    resources: ResourceRequirements | None = None
    node_selector: Labels = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    host_network: bool = False
    volumes: tuple[Volume, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduling_group: SchedulingGroup | None = None


class PodStatus(Wire, frozen=True):
    phase: str = ""
    start_time: datetime | None = None
    nominated_node_name: str = ""


class Pod(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# --- Node, Namespace, PriorityClass -----------------------------------------------------------------------------------


class Taint(Wire, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Wire, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Wire, frozen=True):
    allocatable: Amounts | None = None
    capacity: Amounts = {}


class Node(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class PriorityClass(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str = ""


# --- PodDisruptionBudget ----------------------------------------------------------------------------------------------


class PodDisruptionBudgetSpec(Wire, frozen=True):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True):
    disruptions_allowed: Int32 = 0


class PodDisruptionBudget(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


# --- PodGroup, one shape for all four groups --------------------------------------------------------------------------


class NetworkTopology(Wire, frozen=True):
    mode: str = "hard"
    highest_tier_allowed: Int32 | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(Wire, frozen=True):
    name: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    sub_group_size: Int32 | None = None
    min_sub_groups: Int32 | None = None
    network_topology: NetworkTopology | None = None


class GangPolicy(Wire, frozen=True):
    min_count: Int32 | None = None


class SchedulingPolicy(Wire, frozen=True):
    """`basic`, the other choice, asks for nothing: it is the absence of `gang`."""

    gang: GangPolicy | None = None


class TopologyConstraint(Wire, frozen=True):
    key: str = ""


class SchedulingConstraints(Wire, frozen=True):
    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupSpec(Wire, frozen=True):
    min_member: Int32 | None = None
    min_task_member: dict[str, Int32] = {}
    min_resources: Amounts = {}
    queue: str = ""
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] = ()
    schedule_timeout_seconds: Int32 | None = None
    scheduling_policy: SchedulingPolicy | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""


class PodGroup(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: dict[str, Any] = {}


# --- Queue and ElasticQuota -------------------------------------------------------------------------------------------


class Guarantee(Wire, frozen=True):
    resource: Amounts = {}


class QueueSpec(Wire, frozen=True):
    parent: str = ""
    weight: Int32 = 1
    capability: Amounts = {}
    deserved: Amounts = {}
    guarantee: Guarantee = Guarantee()
    reclaimable: bool = True
    priority: Int32 = 0


class Queue(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: QueueSpec = QueueSpec()
    status: dict[str, Any] = {}


class QuotaSpec(Wire, frozen=True):
    max: Amounts = {}
    min: Amounts = {}


class ElasticQuota(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: QuotaSpec = QuotaSpec()
    status: dict[str, Any] = {}


# --- HyperNode --------------------------------------------------------------------------------------------------------


class ExactMatch(Wire, frozen=True):
    name: str = ""


class RegexMatch(Wire, frozen=True):
    pattern: str = ""


class MemberSelector(Wire, frozen=True):
    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: LabelSelector | None = None


class HyperNodeMember(Wire, frozen=True):
    type: str = "Node"
    selector: MemberSelector = MemberSelector()


class HyperNodeSpec(Wire, frozen=True):
    tier: Int32 = 1
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()


class HyperNode(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: HyperNodeSpec = HyperNodeSpec()


# --- Volumes ----------------------------------------------------------------------------------------------------------


class ObjectReference(Wire, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class CsiSource(Wire, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(Wire, frozen=True):
    capacity: Amounts = {}
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None


class VolumeStatus(Wire, frozen=True):
    phase: str = ""


class PersistentVolume(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: VolumeStatus = VolumeStatus()


class PersistentVolumeClaimSpec(Wire, frozen=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    resources: ResourceRequirements = ResourceRequirements()
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    selector: LabelSelector | None = None


class PersistentVolumeClaim(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class TopologyExpression(Wire, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Wire, frozen=True):
    match_label_expressions: tuple[TopologyExpression, ...] = ()


class StorageClass(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class DriverAllocatable(Wire, frozen=True):
    count: Int32 | None = None


class CsiDriver(Wire, frozen=True):
    name: str = ""
    allocatable: DriverAllocatable | None = None


class CsiNodeSpec(Wire, frozen=True):
    drivers: tuple[CsiDriver, ...] = ()


class CSINode(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CsiNodeSpec = CsiNodeSpec()


# --- Devices (Koordinator) --------------------------------------------------------------------------------------------


class DeviceTopology(Wire, frozen=True):
    node_id: Int32 = msgspec.field(default=0, name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")


class DeviceEntry(Wire, frozen=True):
    type: str = ""
    id: str = ""
    minor: Int32 | None = None
    health: bool = False
    resources: Amounts = {}
    topology: DeviceTopology | None = None


class DeviceSpec(Wire, frozen=True):
    devices: tuple[DeviceEntry, ...] = ()


class Device(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceSpec = DeviceSpec()


Shape = (
    Pod
    | Node
    | Namespace
    | PriorityClass
    | PodDisruptionBudget
    | PodGroup
    | Queue
    | ElasticQuota
    | HyperNode
    | PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CSINode
    | Device
)
