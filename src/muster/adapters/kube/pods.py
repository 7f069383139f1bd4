"""Pods of the API as pods of the model.

Labels, annotations, membership and queue come from a template nearly always, so they are remembered together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from muster.adapters.kube import names, wire
from muster.adapters.kube.claims import LONGEST_CLAIM, read_claim
from muster.adapters.kube.devices import slot_notes
from muster.adapters.kube.dialects import annotation, membership_of, parsed, queue_of
from muster.adapters.kube.kinds import Kinds
from muster.adapters.kube.pool import Pool
from muster.adapters.kube.problems import Problems
from muster.adapters.kube.values import epoch, read_seconds, read_time, read_version
from muster.model.pod import ClaimNote, Membership, Pod, Problem, Running, no_labels

LONGEST_TEMPLATE = 4096
"""Texts longer than this in all are no template of many pods, and are not remembered."""

_RUNNING = {running.value: running for running in Running} | {"": Running.PENDING, "Unknown": Running.RUNNING}
"""A pod of unknown phase is on a node that does not answer: it still has its place there."""

_Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Template:
    """What pods with equal labels and equal annotations have in common."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    membership: Membership | None
    queue: str
    told_at: float | None
    told_for: str
    spared_at: float | None
    timed_out: bool
    never_preempts: bool
    checkpoint: float | None
    restart_s: float
    problems: tuple[Problem, ...]


class Pods:
    """Reads pods. It remembers templates, never pods."""

    def __init__(self, scheduler_names: Collection[str]) -> None:
        self._ours = frozenset(scheduler_names)
        self._kinds = Kinds()
        self._templates: Pool[tuple[_Pairs, _Pairs, str], _Template] = Pool()
        self._words: Pool[str, str] = Pool()
        self._labels: Pool[_Pairs, Mapping[str, str]] = Pool()
        self._memberships: Pool[Membership, Membership] = Pool()

    def read(self, written: wire.Pod, *, problems: Problems) -> Pod:
        meta, spec, status = written.metadata, written.spec, written.status
        namespace = self._words.share(meta.namespace, meta.namespace) if meta.namespace else "default"
        uid = meta.uid or f"{namespace}/{meta.name}"
        shared = self._template(meta, spec.scheduling_group, problems=problems)
        kind = self._kinds.kind_of(spec, namespace=namespace, pod=meta.name, problems=problems)
        note = shared.annotations.get(names.CLAIM)
        slots, bad_slots = slot_notes(shared.annotations, kind.devices) if kind.devices and spec.node_name else ((), ())
        problems.extend(bad_slots)
        scheduler = spec.scheduler_name or names.DEFAULT_SCHEDULER
        ours = scheduler in self._ours
        return Pod(
            uid=uid,
            namespace=namespace,
            name=meta.name,
            kind=kind,
            created=epoch(meta.creation_timestamp) or 0.0,
            version=read_version(meta.resource_version),
            ours=ours,
            scheduler="" if ours else self._words.share(scheduler, scheduler),
            priority=spec.priority or 0,
            priority_class=spec.priority_class_name,
            never_preempts=shared.never_preempts or spec.preemption_policy == "Never",
            protected=_protection(written, namespace=namespace),
            labels=shared.labels,
            annotations=shared.annotations,
            membership=shared.membership,
            queue=shared.queue,
            gates=tuple(gate.name for gate in spec.scheduling_gates) if spec.scheduling_gates else (),
            node=self._words.share(spec.node_name, spec.node_name) if spec.node_name else None,
            running=_running(status.phase, problems=problems),
            started=epoch(status.start_time),
            deleted_at=epoch(meta.deletion_timestamp),
            nominated_node=status.nominated_node_name or None,
            claim=_claim(note, uid=uid, problems=problems) if note else None,
            slots=slots,
            told_at=shared.told_at,
            told_for=shared.told_for,
            spared_at=shared.spared_at,
            timed_out=shared.timed_out,
            checkpoint=shared.checkpoint,
            restart_s=shared.restart_s,
            problems=problems.all(),
        )

    def _template(self, meta: wire.ObjectMeta, group: wire.SchedulingGroup | None, *, problems: Problems) -> _Template:
        native = group.pod_group_name if group is not None else ""
        kept = tuple(pair for pair in meta.annotations.items() if pair[0] in names.KEPT) if meta.annotations else ()
        key = (tuple(meta.labels.items()), kept, native)
        found = self._templates.get(key)
        if found is None:
            found = self._new_template(meta.labels, dict(kept), native=native)
            if _is_common(key[0], kept):
                self._templates.put(key, found)
        if found.problems:
            problems.extend(found.problems)
        return found

    def _new_template(self, labels: Mapping[str, str], kept: dict[str, str], *, native: str) -> _Template:
        problems = Problems()
        annotations = _of_bearable_length(kept, problems=problems)
        membership = membership_of(labels, annotations, native=native, problems=problems)
        told_at, told_for = _told(annotations) if labels.get(names.SOFT_EVICTION) == "true" else (None, "")
        return _Template(
            labels=self._labels.share(tuple(labels.items()), labels) if labels else no_labels(),
            annotations=annotations or no_labels(),
            membership=None if membership is None else self._memberships.share(membership, membership),
            queue=queue_of(labels, annotations, problems=problems),
            told_at=told_at,
            told_for=told_for,
            spared_at=_noted(annotations, names.SPARED_AT, read_time, problems=problems),
            timed_out=annotations.get(names.GANG_TIMEOUT) == "true",
            never_preempts=labels.get(names.PREEMPTION_POLICY) == "Never",
            checkpoint=_noted(annotations, names.LAST_CHECKPOINT, read_time, problems=problems),
            restart_s=_noted(annotations, names.RESTART_SECONDS, read_seconds, problems=problems) or 0.0,
            problems=problems.all(),
        )


class _Mark(msgspec.Struct):
    """What the annotation of a soft eviction says, whoever wrote it."""

    timestamp: datetime | None = None
    preempt_job: str = msgspec.field(default="", name="preemptJob")


def _told(annotations: Mapping[str, str]) -> tuple[float, str]:
    """Since when the pod is marked for soft eviction, and for which gang. The label decides; a mark without a readable time is as
    old as can be."""
    try:
        mark = msgspec.json.decode(annotations.get(names.SOFT_EVICTION, "{}"), type=_Mark)
    except (msgspec.DecodeError, UnicodeError):
        mark = _Mark()
    return epoch(mark.timestamp) or 0.0, mark.preempt_job


def _of_bearable_length(kept: dict[str, str], *, problems: Problems) -> dict[str, str]:
    """The API refuses such annotations; a file may hold them."""
    for key in [key for key, text in kept.items() if len(text) > LONGEST_CLAIM]:
        advice = f"and so on was ignored: it is longer than {LONGEST_CLAIM} characters"
        problems.add(annotation(key), value=kept.pop(key), advice=advice)
    return kept


def _noted(annotations: Mapping[str, str], key: str, read: Callable[[str], float], *, problems: Problems) -> float | None:
    text = annotations.get(key)
    return None if text is None else parsed(text, read, field=annotation(key), problems=problems)


def _is_common(labels: _Pairs, kept: _Pairs) -> bool:
    """A claim and slots belong to one pod, and long texts are not worth their memory."""
    if any(key == names.CLAIM or key in names.SLOT_NOTES for key, _ in kept):
        return False
    return sum(len(text) for _, text in (*labels, *kept)) <= LONGEST_TEMPLATE


def _protection(pod: wire.Pod, *, namespace: str) -> str:
    """Why the pod may never be evicted, or nothing."""
    meta, class_name = pod.metadata, pod.spec.priority_class_name
    if namespace == names.SYSTEM_NAMESPACE:
        return f"it is in namespace {names.SYSTEM_NAMESPACE}"
    if class_name.startswith("system-") and class_name.endswith("-critical"):
        return f"its priority class is {class_name}"
    if names.MIRROR_POD in meta.annotations:
        return "it mirrors a static pod"
    if any(owner.kind == "DaemonSet" for owner in meta.owner_references):
        return "it belongs to a DaemonSet"
    if meta.labels.get(names.DISABLE_PREEMPTIBLE) == "true":
        return f"its label {names.DISABLE_PREEMPTIBLE} is true"
    return ""


def _running(phase: str, *, problems: Problems) -> Running:
    running = _RUNNING.get(phase)
    if running is None:
        problems.add("status.phase", value=phase, advice=f"is no phase; write one of {', '.join(filter(None, _RUNNING))}")
        return Running.PENDING
    return running


def _claim(text: str, *, uid: str, problems: Problems) -> ClaimNote | None:
    return parsed(text, lambda written: read_claim(written, uid=uid), field=annotation(names.CLAIM), problems=problems)
