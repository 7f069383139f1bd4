"""What Volcano's controller makes of the topology of a Job and of the partitions of its tasks: fields of the PodGroup, and a label
that says which partition a pod is in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

PARTITION_ID: Final = "volcano.sh/partition-id"


def topology_fields(job: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the PodGroup's spec for the topology of a Job and for its tasks with a `partitionPolicy`."""
    spec = job.get("spec") or {}
    fields: dict[str, Any] = {"networkTopology": spec["networkTopology"]} if spec.get("networkTopology") else {}
    policies = [_sub_group_policy(str(task.get("name") or ""), policy) for task, policy in _partitioned(spec)]
    return {**fields, "subGroupPolicy": policies} if policies else fields


def partition_sizes(job: Mapping[str, Any]) -> dict[str, int]:
    """How many pods one partition of a task has, for tasks with partitions."""
    return {str(task.get("name") or ""): _size(policy) for task, policy in _partitioned(job.get("spec") or {})}


def partition_labels(sizes: Mapping[str, int], task: str, number: int) -> dict[str, str]:
    """What the pod with this number of a task is labelled with."""
    return {"volcano.sh/task-spec": task, PARTITION_ID: str(number // sizes[task])} if task in sizes else {}


def _partitioned(spec: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    tasks = spec.get("tasks")
    for task in tasks if isinstance(tasks, list) else ():
        policy = task.get("partitionPolicy") if isinstance(task, Mapping) else None
        if isinstance(policy, Mapping) and _size(policy):
            yield task, policy


def _size(policy: Mapping[str, Any]) -> int:
    size = policy.get("partitionSize")
    return size if isinstance(size, int) and size > 0 else 0


def _sub_group_policy(task: str, policy: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": task,
        "labelSelector": {"matchLabels": {"volcano.sh/task-spec": task}},
        "matchLabelKeys": [PARTITION_ID],
        "subGroupSize": _size(policy),
        "minSubGroups": policy.get("minPartitions") or 0,
    }
    if policy.get("networkTopology"):
        made["networkTopology"] = policy["networkTopology"]
    return made
