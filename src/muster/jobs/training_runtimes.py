"""What a TrainJob takes from its TrainingRuntime: the jobs of a JobSet, with the nodes and the resources that it names itself."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from muster.jobs.workload_kinds import JOBSET_ROLE, BadWorkload, WorkloadKind, find
from muster.kube.read.object_references import Manifest

RUNTIME_KINDS: Final = ("TrainingRuntime", "ClusterTrainingRuntime")
_TRAIN_JOB: Final = "TrainJob"
_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_BEFORE: Final = ("dataset-initializer", "model-initializer")
"""Steps that have ended before the nodes start."""
_NODE: Final = "node"


def with_runtime(kind: WorkloadKind, manifest: Manifest, runtimes: Mapping[str, Manifest]) -> tuple[WorkloadKind, Manifest]:
    """A TrainJob as the JobSet that its controller makes of it, where the runtime is known; all else as it is."""
    if kind.kind != _TRAIN_JOB:
        return kind, manifest
    name = str(find(manifest, "spec.runtimeRef.name") or "")
    runtime = runtimes.get(name)
    if runtime is None:
        if find(manifest, "spec.trainer.resourcesPerNode") is None:
            raise BadWorkload(
                f"spec.trainer.resourcesPerNode: there is none, and its runtime {name} is not in what was read; "
                "write it, or plan a folder that has the runtime, too"
            )
        return kind, manifest
    spec = {**(manifest.get("spec") or {}), "replicatedJobs": _jobs(runtime, find(manifest, "spec.trainer") or {})}
    return replace(kind, roles=(JOBSET_ROLE,), note=f"with the runtime {name}"), {**manifest, "spec": spec}


def _jobs(runtime: Manifest, trainer: Mapping[str, Any]) -> list[dict[str, Any]]:
    jobs = [deepcopy(job) for job in find(runtime, "spec.template.spec.replicatedJobs") or () if _step(job) not in _BEFORE]
    nodes = [job for job in jobs if job.get("name") == _NODE] or [job for job in jobs if _step(job) == "trainer"]
    for job in nodes:
        _change(job, trainer, nodes=find(runtime, "spec.mlPolicy.numNodes"))
    return jobs


def _step(job: Mapping[str, Any]) -> str:
    return str((find(job, "template.metadata.labels") or {}).get(_STEP, ""))


def _change(job: dict[str, Any], trainer: Mapping[str, Any], *, nodes: object) -> None:
    spec = find(job, "template.spec") or {}
    number = trainer.get("numNodes") or nodes
    if number is not None:
        spec.update(parallelism=number, completions=number)
    containers = find(spec, "template.spec.containers") or []
    named = [each for each in containers if each.get("name") == _NODE] or containers[:1]
    for container in named:
        if trainer.get("resourcesPerNode") is not None:
            container["resources"] = trainer["resourcesPerNode"]
