"""From the objects that people write (a Job, a RayCluster, a Deployment) to the pods that their controllers would make.

What a workload leaves open is assumed and said. Nothing here talks to a cluster or decides anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from muster.jobs.volcano_partitions import partition_labels, partition_sizes, topology_fields
from muster.jobs.workload_kinds import BadWorkload, PodTemplatePath, WorkloadKind, find
from muster.kube.read import names
from muster.kube.read.object_references import Manifest

_GANG_KEYS: Final = (
    names.VOLCANO_GROUP_NAME,
    names.VOLCANO_GROUP_NAME_ALIAS,
    names.SIGS_POD_GROUP,
    names.LIGHTWEIGHT_GANG_NAME,
    names.X_K8S_POD_GROUP,
    names.GANG_NAME,
)
_KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_RAY_QUEUE: Final = "volcano.sh/queue-name"
_RAY_PRIORITY_CLASS: Final = "ray.io/priority-class-name"
_MAX_PODS: Final = 100_000


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """What a person says where the workload is silent, or in its place."""

    namespace: str = ""
    scheduler_names: tuple[str, ...] = ("muster",)
    minimum: int | None = None
    queue: str = ""
    priority: str = ""


@dataclass(frozen=True, slots=True)
class ExpandedWorkload:
    """The objects that the controller of a workload would make; one gang, several, or single pods."""

    name: str
    uid: str
    objects: tuple[Manifest, ...]
    is_gang: bool
    declared: bool
    """Its pods say themselves to which gang they belong."""
    names_queue: bool
    assumed: tuple[str, ...]


@dataclass(slots=True)
class _PodRole:
    name: str
    template: Manifest
    count: int
    min: int | None


@dataclass(slots=True)
class _Draft:
    """A workload while it is expanded."""

    kind: WorkloadKind
    manifest: Mapping[str, Any]
    options: WorkloadOptions
    roles: list[_PodRole]
    assumed: list[str] = field(default_factory=list)

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.manifest.get("metadata") or {}

    def value(self, path: str) -> Any:
        return find(self.manifest, path) if path else None


def expand(kind: WorkloadKind, manifest: Mapping[str, Any], options: WorkloadOptions) -> ExpandedWorkload:
    """The pods of a workload, and the PodGroups that it needs to be a gang."""
    draft = _Draft(kind, manifest, options, list(_roles(kind, manifest)))
    name, namespace = _name(draft.metadata), str(draft.metadata.get("namespace") or options.namespace or "default")
    declared = any(_declares_gang(role.template) for role in draft.roles)
    is_gang = not declared and (options.minimum is not None or kind.is_gang or _is_gang_by_field(draft))
    _assume(draft, starts_singly=not is_gang and not declared)
    objects = list(_objects(draft, name, namespace, is_gang=is_gang))
    return ExpandedWorkload(
        name=f"{namespace}/{name}",
        uid=str(draft.metadata.get("uid") or ""),
        objects=tuple(objects),
        is_gang=is_gang,
        declared=declared,
        names_queue=bool(_queue(draft)) or declared,
        assumed=tuple(dict.fromkeys(draft.assumed)),
    )


def _assume(draft: _Draft, *, starts_singly: bool) -> None:
    """Say what the workload leaves open, or is not read."""
    if draft.value(draft.kind.suspend) is True:
        draft.assumed.append(f"it is suspended ({draft.kind.suspend}): this is what would happen once it is resumed")
    if draft.kind.note:
        draft.assumed.append(draft.kind.note)
    if draft.value(draft.kind.unread):
        draft.assumed.append(f"its volumes are not looked at ({draft.kind.unread})")
    if starts_singly and sum(role.count for role in draft.roles) > 1:
        draft.assumed.append("each pod starts by itself, because nothing makes them a gang (--min N does)")


def _objects(draft: _Draft, name: str, namespace: str, *, is_gang: bool) -> Iterator[Manifest]:
    copies = draft.kind.copies
    for copy in range(_number(draft.manifest, copies, default=1) if copies else 1):
        title = f"{name}-{copy}" if copies else name
        if is_gang:
            yield _pod_group(draft, title, namespace)
        yield from _pods(draft, title, namespace, group=title if is_gang else "")


def _name(metadata: Mapping[str, Any]) -> str:
    if name := metadata.get("name") or f"{metadata.get('generateName', '')}".rstrip("-"):
        return str(name)
    raise BadWorkload("metadata.name: there is none; write for example {name: train}")


def _roles(kind: WorkloadKind, manifest: Mapping[str, Any]) -> Iterator[_PodRole]:
    elastic = not kind.elastic_if or find(manifest, kind.elastic_if) is True
    for rule in kind.roles:
        for name, item in _items(rule, manifest):
            template = find(item, rule.template) if rule.template else item
            if not isinstance(template, Mapping):
                raise BadWorkload(f"{rule.template}: there is no pod template")
            count = max(0, _count(rule, item) - rule.fewer)
            least = _least(rule, item, count) if rule.min and elastic else None
            yield _PodRole(name, rule.build(template, manifest) if rule.build else dict(template), count, least)


def _items(rule: PodTemplatePath, manifest: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not rule.each:
        yield rule.name, manifest
        return
    found = find(manifest, rule.each) or {}
    if isinstance(found, Mapping):
        yield from ((str(key).lower(), item) for key, item in found.items())
        return
    yield from ((str(find(item, rule.name) or number), item) for number, item in enumerate(found))


def _count(rule: PodTemplatePath, item: Mapping[str, Any]) -> int:
    number = _number(item, rule.counts[0], default=1) if rule.counts else 1
    if rule.at_most:
        number = min(number, _number(item, rule.at_most, default=number))
    number = max(number, *(_number(item, path, default=0) for path in rule.at_least), 0)
    number *= _others(rule, item)
    if number > _MAX_PODS:
        raise BadWorkload(f"{rule.counts[0]}: {number:,} pods are more than Muster plans for ({_MAX_PODS:,})")
    return number


def _least(rule: PodTemplatePath, item: Mapping[str, Any], count: int) -> int:
    is_written = find(item, rule.min.partition("=")[0]) is not None or "=" in rule.min
    return _number(item, rule.min, default=0) * _others(rule, item) if is_written else count


def _others(rule: PodTemplatePath, item: Mapping[str, Any]) -> int:
    """The product of all counts but the first."""
    return prod(_number(item, path, default=1) for path in rule.counts[1:])


def _number(item: Mapping[str, Any], path: str, *, default: int) -> int:
    path, _, otherwise = path.partition("=")
    value = find(item, path)
    if value is None:
        return int(otherwise or default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadWorkload(f"{path}: {value!r} is no number of pods; write for example 4")
    return value


def _is_gang_by_field(draft: _Draft) -> bool:
    path, _, wanted = draft.kind.gang_if.partition("=")
    return bool(path) and draft.value(path) == wanted


def _declares_gang(template: Mapping[str, Any]) -> bool:
    metadata = template.get("metadata") or {}
    keys = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return any(key in keys for key in _GANG_KEYS) or "schedulingGroup" in (template.get("spec") or {})


def _pod_group(draft: _Draft, name: str, namespace: str) -> Manifest:
    spec: Manifest = {"minMember": _minimum(draft)}
    if queue := _queue(draft):
        spec["queue"] = queue
    if priority := _priority_class(draft):
        spec["priorityClassName"] = priority
    mins = {role.name: role.min for role in draft.roles if role.name and role.min is not None}
    if mins and draft.options.minimum is None:
        spec["minTaskMember"] = mins
    if draft.kind.group == "batch.volcano.sh":
        spec.update(topology_fields(draft.manifest))
    annotations = draft.metadata.get("annotations") or {}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations)},
        "spec": spec,
    }


def _minimum(draft: _Draft) -> int:
    total = sum(role.count for role in draft.roles)
    if draft.options.minimum is not None:
        return draft.options.minimum
    if draft.kind.minimum and (written := _number(draft.manifest, draft.kind.minimum, default=0)):
        return written
    if any(role.min is not None for role in draft.roles):
        return sum(role.count if role.min is None else role.min for role in draft.roles)
    draft.assumed.append(f"a gang that needs {'its one pod' if total == 1 else f'all of its {total} pods'} (--min)")
    return total


def _queue(draft: _Draft) -> str:
    named = {**(draft.metadata.get("annotations") or {}), **(draft.metadata.get("labels") or {})}
    written = (named.get(key) for key in (names.VOLCANO_QUEUE_NAME, _RAY_QUEUE, _KUEUE_QUEUE))
    choices = (draft.options.queue, draft.value(draft.kind.queue), *written)
    return next((str(choice) for choice in choices if choice), "")


def _priority_class(draft: _Draft) -> str:
    if draft.options.priority:
        return draft.options.priority
    if named := draft.value(draft.kind.priority) or (draft.metadata.get("labels") or {}).get(_RAY_PRIORITY_CLASS):
        return str(named)
    classes = (str((role.template.get("spec") or {}).get("priorityClassName") or "") for role in draft.roles)
    return next((each for each in classes if each), "")


def _pods(draft: _Draft, title: str, namespace: str, *, group: str) -> Iterator[Manifest]:
    queue, priority = _queue(draft), _priority_class(draft)
    partitions = partition_sizes(draft.manifest) if draft.kind.group == "batch.volcano.sh" else {}
    for role in draft.roles:
        template = role.template
        metadata, spec = template.get("metadata") or {}, dict(template.get("spec") or {})
        annotations = dict(metadata.get("annotations") or {})
        if group:
            annotations[names.VOLCANO_GROUP_NAME] = group
            if role.name:
                annotations[names.VOLCANO_TASK] = role.name
        if queue:
            annotations.setdefault(names.VOLCANO_QUEUE_NAME, queue)
        if priority:
            if draft.options.priority:
                spec.pop("priority", None)
                spec["priorityClassName"] = priority
            spec.setdefault("priorityClassName", priority)
        _set_scheduler(draft, spec)
        stem = f"{title}-{role.name}" if role.name else title
        for number in range(role.count):
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": title if draft.kind.kind == "Pod" else f"{stem}-{number}",
                    "namespace": namespace,
                    "labels": {**(metadata.get("labels") or {}), **partition_labels(partitions, role.name, number)},
                    "annotations": annotations,
                },
                "spec": spec,
            }


def _set_scheduler(draft: _Draft, spec: Manifest) -> None:
    ours = draft.options.scheduler_names
    named = str(spec.get("schedulerName") or draft.value(draft.kind.scheduler) or "")
    if named not in ours:
        said = f"it names {named}" if named else "it names none"
        draft.assumed.append(f"schedulerName {ours[0]} ({said})")
        named = ours[0]
    spec["schedulerName"] = named
