"""The job that `muster plan` is asked about: manifests of any workload, in a file, a folder or on standard input, or a gang in
scenario syntax. What the cluster has of it already is asked about as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any, Protocol

from muster.engine.hooks import Policy
from muster.forecast.dry_run import Forecast, joined
from muster.forecast.remedies import PLANNED
from muster.jobs.training_runtimes import RUNTIME_KINDS, with_runtime
from muster.jobs.workload_kinds import BadWorkload, WorkloadKind, has_path, kind_of, kind_with_paths, template_paths
from muster.jobs.workloads import ExpandedWorkload, WorkloadOptions, expand
from muster.json_values import to_json
from muster.kube.read.object_references import POD, Manifest
from muster.model.events import ClusterObject, PriorityClass, Upsert
from muster.model.gang import PodGroup
from muster.model.node import Node
from muster.model.pod import Pod
from muster.model.queue import Queue
from muster.scenario import manifest_builder
from muster.scenario.field_reader import Field
from muster.scenario.object_parser import parse_gang
from muster.scenario.step_parser import parse_manifest
from muster.scenario.symbol_table import SymbolTable, is_manifest
from muster.scenario.syntax_tree import GangSpec
from muster.sim.api_kinds import KINDS, BadManifest, ref_of
from muster.sim.cluster import SimCluster
from muster.yaml_positions import InputFaults, YamlValue, yaml_value
from muster.yaml_reader import read_yaml_documents

_SCENARIO_KEYS = ("nodes", "gangs", "steps")
_FIRST_KINDS = ("Namespace", "PriorityClass", "Queue", "PodGroup")


class BadJob(ValueError):
    """The text is no job, or one that an API server would refuse."""


class SeenCluster(Protocol):
    """What a job is read against."""

    @property
    def objects(self) -> Sequence[ClusterObject]: ...
    @property
    def now(self) -> float: ...
    @property
    def policy(self) -> Policy: ...


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How a workload is read. A priority is the name of a class, or a number."""

    workload: WorkloadOptions = field(default_factory=WorkloadOptions)
    pods: str = ""
    """Path of the pod template of a kind that is not known, and of its number of pods: `spec.replicas`, if that is there."""
    replicas: str = ""


@dataclass(slots=True)
class Job:
    """`objects` are new to the cluster; `uids` are those of its pods, which may be there already."""

    objects: list[ClusterObject] = field(default_factory=list)
    uids: set[str] = field(default_factory=set)
    workloads: list[ExpandedWorkload] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Manifests:
    """What was read, before it is decoded."""

    known: list[Manifest] = field(default_factory=list)
    unexpanded: list[tuple[Field, WorkloadKind]] = field(default_factory=list)
    workloads: list[ExpandedWorkload] = field(default_factory=list)
    ignored: dict[str, Manifest] = field(default_factory=dict)
    runtimes: dict[str, Manifest] = field(default_factory=dict)
    """Of TrainJobs, by name."""


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """What a dry run says of one gang of a job, or of all its pods that start by themselves. `assumed`: how it was read."""

    forecast: Forecast
    assumed: tuple[str, ...] = ()


def read_job(texts: Iterable[tuple[str, str]], state: SeenCluster, options: JobOptions, *, name: str) -> Job:
    """`texts`: names of files, and what is in them; `name`: of all of them, in errors."""
    priority, classes = _priority_class(options.workload.priority)
    options = replace(options, workload=replace(options.workload, priority=priority))
    found = _Manifests()
    for file, text in texts:
        _read(file, text, found, state, options)
    # Pods keep their names, and workloads whose pods would have the same get others.
    for at, kind in sorted(found.unexpanded, key=lambda each: each[1].kind != "Pod"):
        _expand(at, kind, found, options)
        at.faults.raise_any()
    if not found.known and not found.workloads:
        raise BadJob(_nothing_found(name, found.ignored, options))
    found.known.extend(classes)
    return _Admission(state).admit(found)


def _read(file: str, text: str, found: _Manifests, state: SeenCluster, options: JobOptions) -> None:
    faults = InputFaults(file)
    items = [item for document in read_yaml_documents(text, file=file) for item in (document.items or (document,))]
    symbols = _symbol_table(items, state)
    for item in list_items(items):
        if any(key in item.mapping for key in _SCENARIO_KEYS) and not is_manifest(item):
            raise BadJob(f"{file}: this is a scenario, not a job: pass it as --cluster")
        at = Field(item, "job", faults)
        _check_namespace(at, options.workload.namespace)
        if is_manifest(item):
            _read_manifest(at, found, options)
        else:
            for gang in parse_gang(at, symbols):
                found.known.extend(manifest_builder.gang_manifests(_as_asked(gang, item, options.workload), now=state.now))
    faults.raise_any()


def _as_asked(gang: GangSpec, written: YamlValue, options: WorkloadOptions) -> GangSpec:
    """With what a person says in place of what the gang does."""
    namespace = options.namespace if options.namespace and "namespace" not in written.mapping else gang.namespace
    gang = replace(gang, scheduler_name=options.scheduler_names[0], queue=options.queue or gang.queue, namespace=namespace)
    if options.priority:
        gang = replace(gang, priority=None, priority_class_name=options.priority, priority_class=None)
    if options.minimum is not None:
        roles = gang.roles if gang.roles[0].name else (replace(gang.roles[0], min=options.minimum),)
        gang = replace(gang, min=options.minimum, roles=roles)
    return gang


def list_items(documents: Sequence[YamlValue]) -> Iterator[YamlValue]:
    """The objects, those in lists included."""
    for document in documents:
        items = document.mapping.get("items")
        if items is not None and str(document.mapping.get("kind", yaml_value("")).value).endswith("List"):
            yield from items.items
        else:
            yield document


def _read_manifest(at: Field, found: _Manifests, options: JobOptions) -> None:
    plain = at.at.plain()
    assert isinstance(plain, dict)
    kind = kind_of(plain)
    if kind is None and _is_unknown(plain) and options.pods and has_path(plain, options.pods):
        if options.replicas and not has_path(plain, options.replicas):
            at.report(f"{_title(plain)} has no {options.replicas} (--replicas)")
        kind = kind_with_paths(options.pods, options.replicas)
    if kind is not None:
        found.unexpanded.append((at, kind))
    elif not _is_unknown(plain):
        found.known.extend(_in_namespace(source.manifest, options.workload.namespace) for source in parse_manifest(at))
    elif plain.get("kind") in RUNTIME_KINDS:
        found.runtimes[str((plain.get("metadata") or {}).get("name"))] = plain
    else:
        found.ignored.setdefault(str(plain.get("kind")), plain)


def _check_namespace(at: Field, asked: str) -> None:
    """kubectl refuses this, too: one of the two is a mistake, and a queue or a budget may depend on it."""
    metadata = at.at.mapping.get("metadata", yaml_value({})) if is_manifest(at.at) else at.at
    written = metadata.mapping.get("namespace")
    if asked and written is not None and written.value not in (None, "", asked):
        replace(at, at=written).report(f"its namespace is {written.value}, but {asked} was asked for (--namespace)")


def _in_namespace(manifest: Manifest, asked: str) -> Manifest:
    """Where it names none."""
    metadata = manifest.get("metadata")
    if not asked or not isinstance(metadata, dict) or metadata.get("namespace") or not ref_of(manifest).namespace:
        return manifest
    return {**manifest, "metadata": {**metadata, "namespace": asked}}


def _expand(at: Field, kind: WorkloadKind, found: _Manifests, options: JobOptions) -> None:
    plain: Any = at.at.plain()
    try:
        kind, plain = with_runtime(kind, plain, found.runtimes)
        workload = expand(kind, plain, options.workload)
        taken = {_key(each) for each in (*found.known, *(each for other in found.workloads for each in other.objects))}
        names = {other.name for other in found.workloads}
        if workload.name in names or not taken.isdisjoint(map(_key, workload.objects)):
            plain["metadata"]["name"] = f"{plain['metadata']['name']}-{str(plain.get('kind')).lower()}"
            workload = expand(kind, plain, options.workload)
        found.workloads.append(workload)
    except BadWorkload as bad:
        _deepest(at, str(bad).partition(":")[0]).report(f"{_title(plain)}: {bad}")


def _key(manifest: Manifest) -> tuple[object, ...]:
    metadata = manifest.get("metadata") or {}
    return manifest.get("kind"), metadata.get("namespace") or "default", metadata.get("name")


def _is_unknown(manifest: Manifest) -> bool:
    return (str(manifest.get("apiVersion", "")).rpartition("/")[0], manifest.get("kind")) not in KINDS


def _title(manifest: Manifest) -> str:
    metadata = manifest.get("metadata")
    return f"{manifest.get('kind')} {metadata.get('name', '') if isinstance(metadata, dict) else ''}".rstrip()


def _deepest(at: Field, path: str) -> Field:
    """The value at a dotted path, or as near to it as there is one."""
    found = at.at
    for key in path.split("."):
        found = found.mapping.get(key, found)
    return replace(at, at=found)


def _nothing_found(argument: str, ignored: dict[str, Manifest], options: JobOptions) -> str:
    if not ignored:
        return f"{argument}: no job in this file"
    if None in (manifest.get("kind") for manifest in ignored.values()):
        return f"{argument}: an object has no kind; write for example kind: Job"
    for kind, manifest in ignored.items():
        if path := next(template_paths(manifest), ""):
            named = f"{kind} has no pod template at {options.pods}" if options.pods else f"the kind {kind} is not known"
            return f"{argument}: {named}; name where its pods are: --pods {quote(path)} --replicas spec.replicas"
    return (
        f"{argument}: no job in this file: {', '.join(ignored)} make no pods that are known. Where a kind has pods, name the paths "
        "of their template and number, such as --pods spec.template --replicas spec.size"
    )


def _symbol_table(items: Sequence[YamlValue], state: SeenCluster) -> SymbolTable:
    """The names that a job may use: those of the cluster and its own."""
    symbols = SymbolTable(YamlValue({"gangs": YamlValue(tuple(items))}))
    for known, kind in ((symbols.queues, Queue), (symbols.classes, PriorityClass), (symbols.nodes, Node)):
        known.update(dict.fromkeys(obj.name for obj in state.objects if isinstance(obj, kind)))
    return symbols


class _Admission:
    """Gives the objects of a job the defaults that an API server would, with the priority classes of the cluster."""

    def __init__(self, state: SeenCluster) -> None:
        self._cluster = SimCluster(scheduler_names=state.policy.settings.scheduler_names, starts_at=state.now)
        self._seeded: set[str] = set()
        self._pods: dict[str, Pod] = {}
        self._groups: set[str] = set()
        for obj in state.objects:
            if isinstance(obj, PriorityClass):
                self._seed(obj)
            elif isinstance(obj, Pod):
                self._pods[obj.full_name] = obj
            elif isinstance(obj, PodGroup):
                self._groups.add(obj.key)

    def _seed(self, found: PriorityClass) -> None:
        self._seeded.add(found.name)
        preempts = not found.never_preempts
        self._cluster.apply(
            manifest_builder.priority_class(found.name, value=found.value, is_default=found.is_default, preempts=preempts)
        )

    def admit(self, found: _Manifests) -> Job:
        job = Job(workloads=[each for each in found.workloads if not self._is_running(each)])
        for each in found.workloads:
            if each not in job.workloads:
                job.uids.update(self._pods_of(each))
                job.notes.append(f"{each.name} is in the cluster already: this is about its pods as they are")
        made = [manifest for each in job.workloads for manifest in each.objects]
        self._apply(sorted([*found.known, *made], key=_creation_order), job)
        for event in self._cluster.list_events():
            obj = event.obj if isinstance(event, Upsert) else None
            if obj is None or (isinstance(obj, PriorityClass) and obj.name in self._seeded):
                continue
            if isinstance(obj, PodGroup) and obj.key in self._groups:
                continue
            self._report(obj, job)
            job.objects.append(obj)
            if isinstance(obj, Pod):
                job.uids.add(obj.uid)
        return job

    def _report(self, obj: ClusterObject, job: Job) -> None:
        """An API server refuses what it cannot read of a spec. Annotations it takes as they are."""
        for problem in obj.problems if isinstance(obj, Pod | PodGroup) else ():
            text = f"{type(obj).__name__} {obj.name}: {problem.field}: {problem.text}"
            if problem.field.startswith("spec.") and not problem.unsupported:
                raise BadJob(text.replace(" was ignored: ", ": "))
            if text not in job.notes:
                job.notes.append(text)

    def _apply(self, manifests: Iterable[Manifest], job: Job) -> None:
        for manifest in manifests:
            try:
                ref = ref_of(manifest)
                if ref[:2] == POD and (existing := self._pods.get(ref.full_name)) is not None:
                    job.uids.add(existing.uid)
                elif ref.kind != "PriorityClass" or ref.name not in self._seeded:
                    uid = f"{PLANNED}{ref.kind}-{ref.full_name}"
                    self._cluster.apply({**manifest, "metadata": {**manifest["metadata"], "uid": uid}})
            except BadManifest as bad:
                raise BadJob(f"{manifest.get('kind')} {(manifest.get('metadata') or {}).get('name', '')}: {bad}") from None

    def _is_running(self, workload: ExpandedWorkload) -> bool:
        return bool(self._pods_of(workload))

    def _pods_of(self, workload: ExpandedWorkload) -> list[str]:
        if not workload.uid:
            return []
        return [pod.uid for pod in self._pods.values() if pod.controller == workload.uid and not pod.finished]


def _creation_order(manifest: Manifest) -> int:
    kind: Any = manifest.get("kind")
    return _FIRST_KINDS.index(kind) if kind in _FIRST_KINDS else len(_FIRST_KINDS)


def _priority_class(priority: str) -> tuple[str, list[Manifest]]:
    """The name of the class that a person named, or of one for the number that stands in its place."""
    if not priority.lstrip("-").isdigit():
        return priority, []
    made = manifest_builder.priority_class_for(int(priority))
    return str(made["metadata"]["name"]), [made]


# -- what was found ----------------------------------------------------------------------------------------------------------------


def plan_answers(forecasts: Sequence[Forecast], job: Job) -> Iterator[PlanAnswer]:
    """One for each gang, and one for all pods of a workload that start by themselves."""
    workload_of = {
        f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}": workload
        for workload in job.workloads
        for manifest in workload.objects
        if manifest["kind"] == ("PodGroup" if workload.is_gang else "Pod")
    }
    by_itself: dict[str, list[Forecast]] = {}
    for each in forecasts:
        workload = workload_of.get(each.gang)
        if workload is None:
            loose = dict.fromkeys(text for one in job.workloads if one.declared for text in one.assumed)
            yield PlanAnswer(each, tuple(loose))
        elif workload.is_gang:
            yield PlanAnswer(each, _assumed(workload, each))
        else:
            by_itself.setdefault(workload.name, []).append(each)
    for workload in job.workloads:
        if found := by_itself.get(workload.name):
            one = joined(found, name=workload.name)
            yield PlanAnswer(one, _assumed(workload, one))


def _assumed(workload: ExpandedWorkload, found: Forecast) -> tuple[str, ...]:
    queue = () if workload.names_queue else (f"queue {found.queue.partition('/')[2] or found.queue} (--queue)",)
    return (*workload.assumed, *queue)


def plan_document(answer: PlanAnswer) -> dict[str, Any]:
    return {**to_json(answer.forecast), "gpuHours": answer.forecast.gpu_hours, "assumed": list(answer.assumed)}
