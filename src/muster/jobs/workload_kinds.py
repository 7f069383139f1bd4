"""The workloads that are known: for each kind where its pod templates, counts, minimum, queue and priority are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster.kube.read import names
from muster.kube.read.object_references import Manifest

_ITEM: Final = "[]."


class BadWorkload(ValueError):
    """A workload whose pods cannot be told. The message names the field."""


@dataclass(frozen=True, slots=True)
class PodTemplatePath:
    """Where the pods of one role are. Paths are dotted; of alternatives (`a|b`) the first that is there counts.

    With `each`, every item of that list or mapping is a role, and the other paths are within it.
    """

    template: str
    counts: tuple[str, ...] = ()
    """The number of pods is their product; what is absent counts 1, or what stands behind a `=`."""
    each: str = ""
    name: str = ""
    """Path of the role's name; the key counts in a mapping."""
    min: str = ""
    """Path of what takes the place of the first count, for the least number that must start."""
    at_least: tuple[str, ...] = ()
    at_most: str = ""
    """Paths of the bounds of the first count."""
    fewer: int = 0
    """So many less than the counts say."""
    build: Callable[[Mapping[str, Any], Mapping[str, Any]], Manifest] | None = None
    """Makes the template of what stands at its path, where that is none, and of the whole workload."""


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    group: str
    kind: str
    roles: tuple[PodTemplatePath, ...]
    is_gang: bool = True
    """False where each pod starts by itself."""
    gang_if: str = ""
    """Path=value with which it is a gang all the same."""
    copies: str = ""
    """Path of the number of gangs."""
    minimum: str = ""
    elastic_if: str = ""
    """Path of what must be true for the minimums of roles to count."""
    queue: str = ""
    priority: str = ""
    scheduler: str = ""
    suspend: str = "spec.suspend"
    """Path of what is true while it has no pods, until somebody resumes it."""
    note: str = ""
    unread: str = ""
    """Path of what its controller makes of it and nobody looks at here."""


def _resources_template(requests: Mapping[str, Any], _: Mapping[str, Any]) -> Manifest:
    return {"spec": {"containers": [{"name": "main", "resources": dict(requests)}]}}


def _spark_template(pod: Mapping[str, Any], application: Mapping[str, Any]) -> Manifest:
    """A driver or an executor: cores, and the memory of its JVM with the overhead that Spark adds."""
    written = pod.get("template") or {}
    amounts: dict[str, Any] = {"cpu": pod.get("coreRequest") or pod.get("cores") or 1}
    heap = _jvm_bytes(pod.get("memory") or "1g")
    overhead = _jvm_bytes(pod["memoryOverhead"]) if pod.get("memoryOverhead") else _spark_overhead(heap, application)
    amounts["memory"] = heap + overhead
    if gpu := pod.get("gpu"):
        amounts[str(gpu.get("name") or names.NVIDIA_GPU)] = gpu.get("quantity", 1)
    spec = {
        key: pod[key] for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "schedulerName") if key in pod
    }
    metadata = {key: pod[key] for key in ("labels", "annotations") if key in pod}
    container = {"name": "spark", "resources": {"requests": amounts}}
    return {"metadata": metadata, "spec": {**spec, **(written.get("spec") or {}), "containers": [container]}}


def _spark_overhead(heap: int, application: Mapping[str, Any]) -> int:
    part = find(application, "spec.memoryOverheadFactor") or (0.4 if find(application, "spec.type") in ("Python", "R") else 0.1)
    try:
        return max(int(heap * float(part)), 384 << 20)
    except ValueError:
        raise BadWorkload(f"spec.memoryOverheadFactor: {part!r} is no number; write for example '0.4'") from None


def _jvm_bytes(text: object) -> int:
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", str(text).strip().lower())
    if found is None:
        raise BadWorkload(f"{text!r} is no amount of memory; write for example 4g")
    return int(found[1]) << 10 * (" kmgt".index(found[2] or "m"))


def _replicated(*, template: str = "spec.template", count: str = "spec.replicas") -> tuple[PodTemplatePath, ...]:
    return (PodTemplatePath(template, (count,)),)


def _kubeflow(kind: str, specs: str) -> WorkloadKind:
    role = PodTemplatePath("template", ("replicas",), each=f"spec.{specs}")
    policy = "spec.runPolicy.schedulingPolicy"
    return WorkloadKind(
        "kubeflow.org",
        kind,
        (role,),
        minimum=f"{policy}.minAvailable",
        queue=f"{policy}.queue",
        priority=f"{policy}.priorityClass",
        suspend="spec.runPolicy.suspend",
    )


def _ray(kind: str, at: str) -> WorkloadKind:
    worker = PodTemplatePath(
        "template",
        ("replicas=0", "numOfHosts"),
        each=f"{at}.workerGroupSpecs",
        name="groupName",
        min="minReplicas=0",
        at_least=("minReplicas",),
    )
    head = PodTemplatePath(f"{at}.headGroupSpec.template", name="head")
    return WorkloadKind("ray.io", kind, (head, worker), elastic_if=f"{at}.enableInTreeAutoscaling")


_JOB = PodTemplatePath("spec.template", ("spec.parallelism",), at_most="spec.completions")
JOBSET_ROLE: Final = PodTemplatePath(
    "template.spec.template",
    ("template.spec.parallelism", "replicas"),
    each="spec.replicatedJobs",
    name="name",
    at_most="template.spec.completions",
)
_LWS = "spec.leaderWorkerTemplate"

KINDS: Final = (
    WorkloadKind("batch", "Job", (_JOB,), is_gang=False, gang_if="spec.completionMode=Indexed"),
    WorkloadKind(
        "batch",
        "CronJob",
        (
            PodTemplatePath(
                "spec.jobTemplate.spec.template",
                ("spec.jobTemplate.spec.parallelism",),
                at_most="spec.jobTemplate.spec.completions",
            ),
        ),
        is_gang=False,
    ),
    WorkloadKind("apps", "Deployment", _replicated(), is_gang=False),
    WorkloadKind("apps", "StatefulSet", _replicated(), is_gang=False, unread="spec.volumeClaimTemplates"),
    WorkloadKind("apps", "ReplicaSet", _replicated(), is_gang=False),
    WorkloadKind(
        "batch.volcano.sh",
        "Job",
        (PodTemplatePath("template", ("replicas",), each="spec.tasks", name="name", min="minAvailable"),),
        minimum="spec.minAvailable",
        queue="spec.queue",
        priority="spec.priorityClassName",
        scheduler="spec.schedulerName",
    ),
    WorkloadKind("jobset.x-k8s.io", "JobSet", (JOBSET_ROLE,)),
    _kubeflow("PyTorchJob", "pytorchReplicaSpecs"),
    _kubeflow("TFJob", "tfReplicaSpecs"),
    _kubeflow("MPIJob", "mpiReplicaSpecs"),
    _kubeflow("XGBoostJob", "xgbReplicaSpecs"),
    _kubeflow("PaddleJob", "paddleReplicaSpecs"),
    _kubeflow("JAXJob", "jaxReplicaSpecs"),
    WorkloadKind(
        "trainer.kubeflow.org",
        "TrainJob",
        (PodTemplatePath("spec.trainer.resourcesPerNode", ("spec.trainer.numNodes",), build=_resources_template),),
        note="its runtime is not read: numNodes pods with resourcesPerNode each",
    ),
    _ray("RayCluster", "spec"),
    _ray("RayJob", "spec.rayClusterSpec"),
    _ray("RayService", "spec.rayClusterConfig"),
    WorkloadKind(
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        (
            PodTemplatePath(f"{_LWS}.leaderTemplate|{_LWS}.workerTemplate", name="leader"),
            PodTemplatePath(f"{_LWS}.workerTemplate", (f"{_LWS}.size",), name="worker", fewer=1),
        ),
        copies="spec.replicas",
    ),
    WorkloadKind(
        "sparkoperator.k8s.io",
        "SparkApplication",
        (
            PodTemplatePath("spec.driver", name="driver", build=_spark_template),
            PodTemplatePath(
                "spec.executor",
                ("spec.executor.instances",),
                name="executor",
                at_least=("spec.dynamicAllocation.initialExecutors", "spec.dynamicAllocation.minExecutors"),
                build=_spark_template,
            ),
        ),
        queue="spec.batchSchedulerOptions.queue",
        priority="spec.batchSchedulerOptions.priorityClassName",
    ),
    WorkloadKind("", "Pod", (PodTemplatePath("", ()),), is_gang=False),
)
_BY_KIND = {(kind.group, kind.kind): kind for kind in KINDS}


def kind_of(manifest: Mapping[str, Any]) -> WorkloadKind | None:
    return _BY_KIND.get((str(manifest.get("apiVersion", "")).rpartition("/")[0], str(manifest.get("kind", ""))))


def kind_with_paths(pods: str, replicas: str) -> WorkloadKind:
    """A kind that is not in the table, by the paths that a person named. `spec.groups[].template`: each item is a role."""
    each, in_list, template = pods.partition(_ITEM)
    if not in_list:
        return WorkloadKind("", "", _replicated(template=pods, count=replicas or "spec.replicas"))
    counted = replicas.removeprefix(f"{each}{_ITEM}") or "replicas"
    return WorkloadKind("", "", (PodTemplatePath(template, (counted,), each=each, name="name"),))


def has_path(manifest: object, path: str) -> bool:
    each, in_list, rest = path.partition(_ITEM)
    if not in_list:
        return find(manifest, path) is not None
    items = find(manifest, each)
    return isinstance(items, list) and any(find(item, rest) is not None for item in items)


def template_paths(manifest: object, path: str = "") -> Iterator[str]:
    """Where pod templates seem to be: everything with `spec.containers`."""
    if isinstance(manifest, Mapping):
        if isinstance(manifest.get("spec"), Mapping) and manifest["spec"].get("containers"):
            yield path
        for key, value in manifest.items():
            yield from template_paths(value, f"{path}.{key}" if path else str(key))
    elif isinstance(manifest, list):
        for item in manifest[:1]:
            yield from template_paths(item, f"{path}[]")


def find(item: object, path: str) -> Any:
    """The value at a dotted path, None where there is none. Of alternatives the first that is there."""
    for alternative in path.split("|"):
        found = item
        for key in alternative.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        if found is not None:
            return found
    return None
