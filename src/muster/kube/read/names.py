"""Every name of the Kubernetes API that Muster reads or writes: groups, labels, annotations, well-known values.

Names only. Those that Muster itself writes are in `WRITTEN_ANNOTATIONS`.
"""

from __future__ import annotations

from typing import Final

from muster.model.pod import PREEMPTABLE

# --- API groups -------------------------------------------------------------------------------------------------------
CORE_GROUP: Final = ""
"""Pod, Node, Namespace, PersistentVolume, PersistentVolumeClaim."""
NATIVE_GROUP: Final = "scheduling.k8s.io"
"""PriorityClass, and since Kubernetes 1.36 a PodGroup of its own."""
VOLCANO_GROUP: Final = "scheduling.volcano.sh"
"""Volcano's PodGroup and Queue."""
VOLCANO_TOPOLOGY_GROUP: Final = "topology.volcano.sh"
"""Volcano's HyperNode."""
SIGS_GROUP: Final = "scheduling.sigs.k8s.io"
"""PodGroup and ElasticQuota as Koordinator uses them."""
POLICY_GROUP: Final = "policy"
"""PodDisruptionBudget."""
STORAGE_GROUP: Final = "storage.k8s.io"
"""StorageClass and CSINode."""
X_K8S_GROUP: Final = "scheduling.x-k8s.io"
"""PodGroup and ElasticQuota of the scheduler-plugins of the Kubernetes SIGs."""
KOORDINATOR_GROUP: Final = "scheduling.koordinator.sh"
"""Device: the devices of the node of the same name."""
MUSTER_GROUP: Final = "muster.dev"
"""Plan and History: what a scheduler keeps for the one that starts after it."""

# --- Volcano: annotations of pods (labels of the same name are accepted where the comment says so) ----------------------
VOLCANO_GROUP_NAME: Final = "scheduling.k8s.io/group-name"
"""Names the pod's PodGroup."""
VOLCANO_GROUP_NAME_ALIAS: Final = "scheduling.volcano.sh/group-name"
"""The same, read second."""
VOLCANO_QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
"""Names the pod's Queue; also a label."""
VOLCANO_TASK: Final = "volcano.sh/task-spec"
"""Names the pod's role in its job; also a label."""
VOLCANO_PREEMPTABLE: Final = PREEMPTABLE
""""false" protects the pod from every eviction; also a label."""
PIPELINED_STATUS: Final = "volcano.sh/pipelined-status"
"""Volcano's mark of a nominated pod."""
PIPELINED_NODE: Final = "volcano.sh/pipelined-node"
"""The node of a nomination."""
EVICTION_OCCURRED: Final = "volcano.sh/eviction-occurred"
""""true" on a nominated pod whose plan evicts pods."""

# --- Koordinator and the community: membership of a gang ----------------------------------------------------------------
SIGS_POD_GROUP: Final = "pod-group.scheduling.sigs.k8s.io"
"""Label: names the pod's PodGroup (of SIGS_GROUP)."""
LIGHTWEIGHT_GANG_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
"""Label: names a gang that needs no PodGroup."""
LIGHTWEIGHT_MIN_AVAILABLE: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
"""Label: the minimum of such a gang; read before the annotation."""
X_K8S_POD_GROUP: Final = "scheduling.x-k8s.io/pod-group"
"""Label: names the pod's PodGroup (of X_K8S_GROUP)."""

# --- Koordinator: annotations of pods and PodGroups ---------------------------------------------------------------------
GANG_NAME: Final = "gang.scheduling.koordinator.sh/name"
"""Names a gang that needs no PodGroup."""
GANG_MIN_AVAILABLE: Final = "gang.scheduling.koordinator.sh/min-available"
"""How many members must be placed together."""
GANG_TOTAL_NUMBER: Final = "gang.scheduling.koordinator.sh/total-number"
"""How many members are expected."""
GANG_WAITING_TIME: Final = "gang.scheduling.koordinator.sh/waiting-time"
"""How long reserved members wait for the rest, such as 1h30m."""
GANG_MODE: Final = "gang.scheduling.koordinator.sh/mode"
"""Strict or NonStrict."""
GANG_GROUPS: Final = "gang.scheduling.koordinator.sh/groups"
"""JSON list of the gangs (namespace/name) of a gang group."""
GANG_GROUPS_ALIAS: Final = "gang.scheduling.koordinator.sh/gang-groups"
"""The same, read second."""
GANG_MATCH_POLICY: Final = "gang.scheduling.koordinator.sh/match-policy"
"""Which members count towards the minimum."""
GANG_MATCH_POLICY_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"
"""The same, read second."""
GANG_TOPOLOGY: Final = "gang.scheduling.koordinator.sh/network-topology-spec"
"""JSON: the gather strategy of each topology layer."""
GANG_TIMEOUT: Final = "gang.scheduling.koordinator.sh/timeout"
""""true" on members of a gang that timed out; the gang is not scheduled while one of them exists."""

# --- Koordinator: preemption and quotas ---------------------------------------------------------------------------------
QUOTA_NAME: Final = "quota.scheduling.koordinator.sh/name"
"""Label of pods: names the ElasticQuota."""
SOFT_EVICTION: Final = "scheduling.koordinator.sh/soft-eviction"
"""Label and annotation of a pod that its owner is requested to delete."""
DISABLE_PREEMPTIBLE: Final = "scheduling.koordinator.sh/disable-preemptible"
"""Label of pods: "true" means never a victim."""
PREEMPTION_POLICY: Final = "scheduling.koordinator.sh/preemption-policy"
"""Label of pods: "Never" means that the pod causes no evictions."""
QUOTA_PARENT: Final = "quota.scheduling.koordinator.sh/parent"
"""Label of quotas: the name of the parent."""
QUOTA_IS_PARENT: Final = "quota.scheduling.koordinator.sh/is-parent"
"""Label of quotas: "true" if it has children."""
QUOTA_ALLOW_LENT_RESOURCE: Final = "quota.scheduling.koordinator.sh/allow-lent-resource"
"""Label of quotas: "false" means that unused capacity is not lent."""
QUOTA_TREE: Final = "quota.scheduling.koordinator.sh/tree-id"
"""Label of quotas: which tree it belongs to."""
QUOTA_SHARED_WEIGHT: Final = "quota.scheduling.koordinator.sh/shared-weight"
"""Annotation of quotas: JSON, weight by resource."""
QUOTA_NAMESPACES: Final = "quota.scheduling.koordinator.sh/namespaces"
"""Annotation of quotas: JSON list of the namespaces whose pods belong to it."""
ROOT_QUOTA: Final = "koordinator-root-quota"
"""Name of the root quota."""
ROOT_VOLCANO_QUEUE: Final = "root"
"""Name of the root queue."""

# --- Devices of nodes ---------------------------------------------------------------------------------------------------
VGPU_REGISTER: Final = "volcano.sh/node-vgpu-register"
"""Annotation of nodes: `uuid,shares,MiB,model,healthy,mode` for each GPU, separated by colons."""
VGPU_HANDSHAKE: Final = "volcano.sh/node-vgpu-handshake"
"""Annotation of nodes: `Deleted...` when these GPUs are not registered any more."""
UNHEALTHY_GPUS: Final = "volcano.sh/gpu-unhealthy-ids"
"""Annotation of nodes: indices of GPUs, separated by commas."""
DEVICE_GROUPS: Final = "muster.dev/device-groups"
"""Annotation of nodes, Muster's own: the device group of each device by index, separated by commas, such as a,a,b,b."""
RETIRED_DEVICE_GROUPS: Final = "muster.dev/device-islands"
"""What that was called before."""

# --- Device requests of pods (names of resources) -----------------------------------------------------------------------
VGPU_NUMBER: Final = "volcano.sh/vgpu-number"
VGPU_MEMORY: Final = "volcano.sh/vgpu-memory"
"""MiB of each."""
VGPU_MEMORY_PERCENTAGE: Final = "volcano.sh/vgpu-memory-percentage"
VGPU_CORES: Final = "volcano.sh/vgpu-cores"
"""Percent of each."""
GPU_SHARE_MEMORY: Final = "volcano.sh/gpu-memory"
"""MiB of one GPU."""
GPU_SHARE_NUMBER: Final = "volcano.sh/gpu-number"
"""Whole GPUs."""
KOORDINATOR_GPU: Final = "koordinator.sh/gpu"
"""Percent of a GPU, cores and memory alike; above 100 several whole ones."""
KOORDINATOR_GPU_SHARED: Final = "koordinator.sh/gpu.shared"
"""Among how many GPUs the other amounts are divided."""
KOORDINATOR_GPU_CORE: Final = "koordinator.sh/gpu-core"
KOORDINATOR_GPU_MEMORY: Final = "koordinator.sh/gpu-memory"
KOORDINATOR_GPU_RATIO: Final = "koordinator.sh/gpu-memory-ratio"
NVIDIA_GPU: Final = "nvidia.com/gpu"

# --- Devices of a pod, written with its bind ----------------------------------------------------------------------------
VGPU_IDS: Final = "volcano.sh/vgpu-ids-new"
"""`uuid,NVIDIA,MiB,cores:` for each slot of a container, containers separated by semicolons."""
VGPU_TO_ALLOCATE: Final = "volcano.sh/devices-to-allocate"
"""The same, until the device plugin has allocated them."""
VGPU_NODE: Final = "volcano.sh/vgpu-node"
VGPU_TIME: Final = "volcano.sh/vgpu-time"
"""Seconds since 1970: the order in which device plugins allocate."""
BIND_TIME: Final = "volcano.sh/bind-time"
BIND_PHASE: Final = "volcano.sh/bind-phase"
GPU_INDEX: Final = "volcano.sh/gpu-index"
"""Indices of GPUs, separated by commas."""
PREDICATE_TIME: Final = "volcano.sh/predicate-time"
"""Nanoseconds since 1970."""
DEVICE_ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
"""JSON: minor and resources of each device, by type."""
GPU_MINORS: Final = "scheduling.koordinator.sh/gpu-minors"
BIND_TIMESTAMP: Final = "scheduling.koordinator.sh/bind-timestamp"
"""Nanoseconds since 1970."""
DEVICE_SLOTS: Final = "muster.dev/devices"
"""Muster's own: [[index, memory, cores], ...] of a pod for whose devices no other scheduler has an annotation."""

# --- Kubernetes itself ----------------------------------------------------------------------------------------------------
MIRROR_POD: Final = "kubernetes.io/config.mirror"
"""Annotation of the mirror pod of a static pod."""
SYSTEM_NAMESPACE: Final = "kube-system"
MUSTER_NAMESPACE: Final = SYSTEM_NAMESPACE
"""The namespace of Plans and Histories, where no other is configured."""
DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The default of schedulerName."""

# --- Kubernetes itself: volumes -------------------------------------------------------------------------------------------
BETA_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
"""The class of a volume or a claim; overrides spec.storageClassName."""
DEFAULT_STORAGE_CLASS: Final = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
""""true" on the default class."""
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""On a claim: the node on which its volume is provisioned. Written by the scheduler."""
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
""""yes" on a volume that was bound by a controller. Written by the scheduler together with the volume's claimRef."""

# --- Annotations of Muster ------------------------------------------------------------------------------------------------
QUEUE_NAMESPACES: Final = "muster.dev/namespaces"
"""On a Queue or an ElasticQuota: JSON list of the namespaces whose pods may be in it; those of all others may not."""
QUEUE_LENDING_LIMIT: Final = "muster.dev/lending-limit"
QUEUE_BORROWING_LIMIT: Final = "muster.dev/borrowing-limit"
"""How much it lends and borrows at most: resource lists."""
QUEUE_PREEMPT_WITHIN_PARENT: Final = "muster.dev/preempt-within-parent"
"""On a Queue or an ElasticQuota: LowerPriority or Never."""
LAST_CHECKPOINT: Final = "muster.dev/last-checkpoint"
"""When the pod last wrote a checkpoint, such as 2026-03-01T12:00:00Z (RFC 3339)."""
RESTART_SECONDS: Final = "muster.dev/restart-seconds"
"""How long the pod takes to restart."""
RUN_SECONDS: Final = "muster.dev/run-seconds"
"""For how long the pod runs at most. On a Queue, an ElasticQuota or a PriorityClass: pods of theirs that do not say it."""
STALE_SECONDS: Final = "muster.dev/stale-seconds"
"""On a PodGroup: how long it may be below its minimum before it makes way for an earlier gang."""
MOVABLE: Final = "muster.dev/movable"
""""true" on a pod that the action consolidate may move to another node; "false" where its queue says so and the pod does not."""

ALL_KEYS: Final = frozenset(
    value for name, value in vars().items() if name.isupper() and isinstance(value, str) and "/" in value
).union(DEFAULT_STORAGE_CLASS)
"""All names above that a label or an annotation can have."""

DEVICE_ANNOTATIONS: Final = frozenset({VGPU_IDS, GPU_INDEX, DEVICE_ALLOCATED, DEVICE_SLOTS})
"""Annotations of pods that record their devices. They stay for as long as the pod exists."""
BIND_ANNOTATIONS: Final = frozenset(
    {VGPU_TO_ALLOCATE, VGPU_NODE, VGPU_TIME, BIND_TIME, BIND_PHASE, PREDICATE_TIME, GPU_MINORS, BIND_TIMESTAMP}
)
"""Annotations of pods that only device plugins read."""

WRITTEN_ANNOTATIONS: Final = (
    frozenset({PIPELINED_STATUS, PIPELINED_NODE, EVICTION_OCCURRED, GANG_TIMEOUT, SOFT_EVICTION})
    | DEVICE_ANNOTATIONS
    | BIND_ANNOTATIONS
)
"""Annotations of pods that the scheduler itself writes."""

KEPT_ANNOTATIONS: Final = ALL_KEYS - BIND_ANNOTATIONS
"""All annotations that a decoded pod keeps; the rest is dropped."""
