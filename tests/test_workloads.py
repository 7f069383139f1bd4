"""The table of workloads: how many pods each kind makes, and what of them must start together."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from muster.jobs.training_runtimes import with_runtime
from muster.jobs.workload_kinds import KINDS, BadWorkload, kind_of
from muster.jobs.workloads import WorkloadOptions, expand

POD = "{spec: {containers: [{name: m, resources: {limits: {nvidia.com/gpu: 8}}}]}}"
RAY = f"{{headGroupSpec: {{template: {POD}}}, workerGroupSpecs: [{{groupName: w, replicas: 4, minReplicas: 2, template: {POD}}}]}}"
JOB = f"{{parallelism: 4, completions: 3, template: {POD}}}"
ROLES = f"{{Master: {{replicas: 1, template: {POD}}}, Worker: {{replicas: 3, template: {POD}}}}}"
POLICY = "runPolicy: {schedulingPolicy: {minAvailable: 3, queue: q, priorityClass: high}}"
LWS = f"{{replicas: 2, leaderWorkerTemplate: {{size: 4, workerTemplate: {POD}}}}}"
SPARK = "{driver: {cores: 2, memory: 2g}, executor: {instances: 3, cores: 4, memory: 8g, gpu: {name: nvidia.com/gpu, quantity: 1}}}"
DYNAMIC_SPARK = "{dynamicAllocation: {enabled: true, initialExecutors: 2, minExecutors: 5}, driver: {}, executor: {cores: 4}}"

PARTITIONED = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: train}
spec:
  minAvailable: 4
  networkTopology: {mode: hard, highestTierAllowed: 2}
  tasks:
  - name: worker
    replicas: 6
    minAvailable: 4
    partitionPolicy: {totalPartitions: 3, partitionSize: 2, minPartitions: 2, networkTopology: {highestTierAllowed: 1}}
    template: {spec: {containers: [{name: main}]}}
"""


def test_the_partitions_of_a_volcano_job_are_subgroups_of_its_pod_group() -> None:
    manifest = yaml.safe_load(PARTITIONED)
    kind = kind_of(manifest)
    assert kind is not None
    group, *pods = expand(kind, manifest, WorkloadOptions()).objects
    assert group["spec"]["networkTopology"] == {"mode": "hard", "highestTierAllowed": 2}
    [policy] = group["spec"]["subGroupPolicy"]
    assert (policy["subGroupSize"], policy["minSubGroups"], policy["networkTopology"]) == (2, 2, {"highestTierAllowed": 1})
    assert [pod["metadata"]["labels"]["volcano.sh/partition-id"] for pod in pods] == ["0", "0", "1", "1", "2", "2"]


# What is written, how many pods, and the minimum of each gang.
EXAMPLES = [
    ("batch/v1", "Job", JOB, 3, []),
    ("batch/v1", "Job", f"{{completionMode: Indexed, {JOB[1:]}", 3, [3]),
    ("batch/v1", "CronJob", f"{{jobTemplate: {{spec: {JOB}}}}}", 3, []),
    ("apps/v1", "Deployment", f"{{replicas: 3, template: {POD}}}", 3, []),
    ("apps/v1", "StatefulSet", f"{{template: {POD}}}", 1, []),
    ("apps/v1", "ReplicaSet", f"{{replicas: 0, template: {POD}}}", 0, []),
    (
        "batch.volcano.sh/v1alpha1",
        "Job",
        f"{{minAvailable: 3, tasks: [{{name: a, template: {POD}}}, {{name: b, replicas: 3, template: {POD}}}]}}",
        4,
        [3],
    ),
    ("jobset.x-k8s.io/v1alpha2", "JobSet", f"{{replicatedJobs: [{{name: w, replicas: 2, template: {{spec: {JOB}}}}}]}}", 6, [6]),
    ("kubeflow.org/v1", "PyTorchJob", f"{{{POLICY}, pytorchReplicaSpecs: {ROLES}}}", 4, [3]),
    ("kubeflow.org/v1", "TFJob", f"{{tfReplicaSpecs: {ROLES}}}", 4, [4]),
    ("kubeflow.org/v2beta1", "MPIJob", f"{{mpiReplicaSpecs: {ROLES}}}", 4, [4]),
    ("kubeflow.org/v1", "XGBoostJob", f"{{xgbReplicaSpecs: {ROLES}}}", 4, [4]),
    ("kubeflow.org/v1", "PaddleJob", f"{{paddleReplicaSpecs: {ROLES}}}", 4, [4]),
    ("kubeflow.org/v1", "JAXJob", f"{{jaxReplicaSpecs: {ROLES}}}", 4, [4]),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob", "{trainer: {numNodes: 4, resourcesPerNode: {requests: {cpu: 8}}}}", 4, [4]),
    ("ray.io/v1", "RayCluster", RAY, 5, [5]),
    ("ray.io/v1", "RayCluster", f"{{enableInTreeAutoscaling: true, {RAY[1:]}", 5, [3]),
    ("ray.io/v1", "RayCluster", RAY.replace("replicas: 4, minReplicas: 2", "replicas: 1, minReplicas: 3"), 4, [4]),
    ("ray.io/v1", "RayCluster", RAY.replace("replicas: 4, minReplicas: 2, ", ""), 1, [1]),
    (
        "ray.io/v1",
        "RayCluster",
        f"{{enableInTreeAutoscaling: true, {RAY[1:].replace('replicas', 'numOfHosts: 2, replicas')}",
        9,
        [5],
    ),
    ("ray.io/v1", "RayJob", f"{{rayClusterSpec: {RAY}}}", 5, [5]),
    ("ray.io/v1", "RayService", f"{{rayClusterConfig: {RAY}}}", 5, [5]),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", LWS, 8, [4, 4]),
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication", SPARK, 4, [4]),
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication", DYNAMIC_SPARK, 6, [6]),
    ("v1", "Pod", "{containers: []}", 1, []),
]


def written(version: str, kind: str, spec: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": yaml.safe_load(spec)}


@pytest.mark.parametrize(
    ("version", "kind", "spec", "pods", "minimums"), EXAMPLES, ids=[f"{each[1]} {each[4]}" for each in EXAMPLES]
)
def test_a_workload_becomes_the_pods_that_its_controller_would_make(
    version: str, kind: str, spec: str, pods: int, minimums: list[int]
) -> None:
    manifest = written(version, kind, spec)
    known = kind_of(manifest)
    assert known is not None
    made = expand(known, manifest, WorkloadOptions())
    names = [each["metadata"]["name"] for each in made.objects if each["kind"] == "Pod"]
    assert len(names) == len(set(names)) == pods
    assert [each["spec"]["minMember"] for each in made.objects if each["kind"] == "PodGroup"] == minimums
    assert any("schedulerName muster" in text for text in made.assumed)


def test_every_kind_of_the_table_has_an_example() -> None:
    shown = {(version.rpartition("/")[0], kind) for version, kind, *_ in EXAMPLES}
    assert {(kind.group, kind.kind) for kind in KINDS} == shown


def test_queue_and_priority_come_from_the_workload_unless_they_are_set() -> None:
    manifest = written("kubeflow.org/v1", "PyTorchJob", f"{{{POLICY}, pytorchReplicaSpecs: {ROLES}}}")
    known = kind_of(manifest)
    assert known is not None
    group = expand(known, manifest, WorkloadOptions()).objects[0]
    assert (group["spec"]["queue"], group["spec"]["priorityClassName"]) == ("q", "high")
    group = expand(known, manifest, WorkloadOptions(queue="other", priority="low", minimum=1)).objects[0]
    assert group["spec"] == {"minMember": 1, "queue": "other", "priorityClassName": "low"}


def test_a_spark_executor_has_the_memory_of_its_jvm_and_its_overhead() -> None:
    manifest = written("sparkoperator.k8s.io/v1beta2", "SparkApplication", SPARK)
    known = kind_of(manifest)
    assert known is not None
    last = expand(known, manifest, WorkloadOptions()).objects[-1]
    requests = last["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": 4, "memory": (8 << 30) + (8 << 30) // 10, "nvidia.com/gpu": 1}


@pytest.mark.parametrize(
    ("more", "part"), [("type: Python, ", 0.4), ("type: Scala, ", 0.1), ("memoryOverheadFactor: '0.25', ", 0.25)]
)
def test_the_overhead_of_a_spark_executor_is_what_the_language_needs_unless_it_is_written(more: str, part: float) -> None:
    manifest = written("sparkoperator.k8s.io/v1beta2", "SparkApplication", f"{{{more}{SPARK[1:]}")
    known = kind_of(manifest)
    assert known is not None
    last = expand(known, manifest, WorkloadOptions()).objects[-1]
    assert last["spec"]["containers"][0]["resources"]["requests"]["memory"] == (8 << 30) + int((8 << 30) * part)


def test_a_ray_cluster_names_its_queue_and_priority_in_labels() -> None:
    manifest = written("ray.io/v1", "RayCluster", RAY)
    manifest["metadata"]["labels"] = {"volcano.sh/queue-name": "q", "ray.io/priority-class-name": "high"}
    known = kind_of(manifest)
    assert known is not None
    group = expand(known, manifest, WorkloadOptions()).objects[0]
    assert (group["spec"]["queue"], group["spec"]["priorityClassName"]) == ("q", "high")


RUNTIME = f"""
kind: ClusterTrainingRuntime
metadata: {{name: torch}}
spec:
  mlPolicy: {{numNodes: 3}}
  template:
    spec:
      replicatedJobs:
      - name: dataset-initializer
        template:
          metadata: {{labels: {{trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer}}}}
          spec: {{template: {POD}}}
      - name: node
        template: {{spec: {{template: {POD}}}}}
"""


@pytest.mark.parametrize(
    ("trainer", "pods", "gpu"), [("{}", 3, 8), ("{numNodes: 2, resourcesPerNode: {limits: {nvidia.com/gpu: 4}}}", 2, 4)]
)
def test_a_train_job_takes_from_its_runtime_what_it_leaves_open(trainer: str, pods: int, gpu: int) -> None:
    manifest = written("trainer.kubeflow.org/v1alpha1", "TrainJob", f"{{runtimeRef: {{name: torch}}, trainer: {trainer}}}")
    known = kind_of(manifest)
    assert known is not None
    kind, made = with_runtime(known, manifest, {"torch": yaml.safe_load(RUNTIME)})
    group, *found = expand(kind, made, WorkloadOptions()).objects
    assert len(found) == group["spec"]["minMember"] == pods
    assert {pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] for pod in found} == {gpu}


def test_a_train_job_whose_pods_nobody_can_know_says_what_to_write() -> None:
    manifest = written("trainer.kubeflow.org/v1alpha1", "TrainJob", "{runtimeRef: {name: torch}, trainer: {numNodes: 2}}")
    known = kind_of(manifest)
    assert known is not None
    with pytest.raises(BadWorkload, match="resourcesPerNode: there is none, and its runtime torch is not in what was read"):
        with_runtime(known, manifest, {})


def test_volumes_that_a_stateful_set_makes_are_said_not_to_be_looked_at() -> None:
    manifest = written("apps/v1", "StatefulSet", f"{{template: {POD}, volumeClaimTemplates: [{{metadata: {{name: data}}}}]}}")
    known = kind_of(manifest)
    assert known is not None
    assert "its volumes are not looked at (spec.volumeClaimTemplates)" in expand(known, manifest, WorkloadOptions()).assumed


def test_pods_that_name_a_gang_stay_in_it() -> None:
    template = "{metadata: {annotations: {scheduling.k8s.io/group-name: mine}}, " + POD[1:]
    manifest = written("apps/v1", "Deployment", f"{{replicas: 2, template: {template}}}")
    known = kind_of(manifest)
    assert known is not None
    assert [each["kind"] for each in expand(known, manifest, WorkloadOptions()).objects] == ["Pod", "Pod"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (f"{{replicas: many, template: {POD}}}", "spec.replicas: 'many' is no number of pods"),
        ("{replicas: 1}", "spec.template: there is no pod template"),
        (f"{{replicas: 10000000, template: {POD}}}", "spec.replicas: 10,000,000 pods are more than Muster plans for"),
    ],
)
def test_what_cannot_be_read_is_named(spec: str, message: str) -> None:
    manifest = written("apps/v1", "Deployment", spec)
    known = kind_of(manifest)
    assert known is not None
    with pytest.raises(BadWorkload, match=message):
        expand(known, manifest, WorkloadOptions())
