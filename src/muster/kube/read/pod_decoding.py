"""Decodes pods.

Labels, annotations, membership and queue nearly always come from a pod template, so they are cached together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from muster.kube.read import names, wire
from muster.kube.read.decoding_problems import Problems
from muster.kube.read.device_flavours import read_device_slots
from muster.kube.read.flavours import annotation_field, membership_of, parse_or_report, queue_of
from muster.kube.read.interning import Interner
from muster.kube.read.pod_signatures import PodSignatureCache
from muster.kube.read.reservation_annotation import MAX_ANNOTATION_LENGTH, read_reservation
from muster.kube.read.text_values import epoch_s, read_seconds, read_time, read_version
from muster.model.pod import Membership, Pod, PodStatusPhase, Problem, ReservationNote, no_labels

MAX_TEMPLATE_LENGTH = 4096
"""Templates with more text than this are not cached: they are hardly shared by many pods."""

_PHASES = {phase.value: phase for phase in PodStatusPhase} | {"": PodStatusPhase.PENDING, "Unknown": PodStatusPhase.RUNNING}
"""A pod of unknown phase is on a node that is unreachable: it still uses its request there."""

_Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _PodTemplate:
    """The common part of pods with equal labels and annotations."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    membership: Membership | None
    queue: str
    eviction_marked_at: float | None
    eviction_marked_for: str
    eviction_cancelled_at: float | None
    timed_out: bool
    never_preempts: bool
    checkpoint: float | None
    restart_s: float
    problems: tuple[Problem, ...]


class PodDecoder:
    """Decodes pods. It caches templates, never pods."""

    def __init__(self, scheduler_names: Collection[str]) -> None:
        self._ours = frozenset(scheduler_names)
        self._signatures = PodSignatureCache()
        self._templates: Interner[tuple[_Pairs, _Pairs, str], _PodTemplate] = Interner()
        self._strings: Interner[str, str] = Interner()
        self._labels: Interner[_Pairs, Mapping[str, str]] = Interner()
        self._memberships: Interner[Membership, Membership] = Interner()

    def read(self, written: wire.WirePod, *, problems: Problems) -> Pod:
        meta, spec, status = written.metadata, written.spec, written.status
        namespace = self._strings.intern(meta.namespace, meta.namespace) if meta.namespace else "default"
        uid = meta.uid or f"{namespace}/{meta.name}"
        template = self._template(meta, spec.scheduling_group, problems=problems)
        signature = self._signatures.signature_of(spec, namespace=namespace, pod=meta.name, problems=problems)
        note = template.annotations.get(names.RESERVATION)
        slots, bad_slots = (
            read_device_slots(template.annotations, signature.devices) if signature.devices and spec.node_name else ((), ())
        )
        problems.extend(bad_slots)
        scheduler = spec.scheduler_name or names.DEFAULT_SCHEDULER
        ours = scheduler in self._ours
        return Pod(
            uid=uid,
            namespace=namespace,
            name=meta.name,
            signature=signature,
            created=epoch_s(meta.creation_timestamp) or 0.0,
            version=read_version(meta.resource_version),
            ours=ours,
            scheduler="" if ours else self._strings.intern(scheduler, scheduler),
            priority=spec.priority or 0,
            priority_class=spec.priority_class_name,
            never_preempts=template.never_preempts or spec.preemption_policy == "Never",
            protected=_why_protected(written, namespace=namespace),
            labels=template.labels,
            annotations=template.annotations,
            membership=template.membership,
            queue=template.queue,
            gates=tuple(gate.name for gate in spec.scheduling_gates) if spec.scheduling_gates else (),
            node=self._strings.intern(spec.node_name, spec.node_name) if spec.node_name else None,
            status_phase=_status_phase(status.phase, problems=problems),
            started=epoch_s(status.start_time),
            deleted_at=epoch_s(meta.deletion_timestamp),
            nominated_node=status.nominated_node_name or None,
            reservation_note=_reservation(note, uid=uid, problems=problems) if note else None,
            device_slots=slots,
            eviction_marked_at=template.eviction_marked_at,
            eviction_marked_for=template.eviction_marked_for,
            eviction_cancelled_at=template.eviction_cancelled_at,
            timed_out=template.timed_out,
            checkpoint=template.checkpoint,
            restart_s=template.restart_s,
            problems=problems.all(),
        )

    def _template(self, meta: wire.ObjectMeta, group: wire.SchedulingGroup | None, *, problems: Problems) -> _PodTemplate:
        native = group.pod_group_name if group is not None else ""
        kept = tuple(pair for pair in meta.annotations.items() if pair[0] in names.KEPT_ANNOTATIONS) if meta.annotations else ()
        key = (tuple(meta.labels.items()), kept, native)
        found = self._templates.get(key)
        if found is None:
            found = self._new_template(meta.labels, dict(kept), native=native)
            if _is_shareable(key[0], kept):
                self._templates.put(key, found)
        if found.problems:
            problems.extend(found.problems)
        return found

    def _new_template(self, labels: Mapping[str, str], kept: dict[str, str], *, native: str) -> _PodTemplate:
        problems = Problems()
        annotations = _without_overlong(kept, problems=problems)
        membership = membership_of(labels, annotations, native=native, problems=problems)
        eviction_marked_at, eviction_marked_for = (
            _soft_eviction(annotations) if labels.get(names.SOFT_EVICTION) == "true" else (None, "")
        )
        return _PodTemplate(
            labels=self._labels.intern(tuple(labels.items()), labels) if labels else no_labels(),
            annotations=annotations or no_labels(),
            membership=None if membership is None else self._memberships.intern(membership, membership),
            queue=queue_of(labels, annotations, problems=problems),
            eviction_marked_at=eviction_marked_at,
            eviction_marked_for=eviction_marked_for,
            eviction_cancelled_at=_read_annotation(annotations, names.EVICTION_CANCELLED_AT, read_time, problems=problems),
            timed_out=annotations.get(names.GANG_TIMEOUT) == "true",
            never_preempts=labels.get(names.PREEMPTION_POLICY) == "Never",
            checkpoint=_read_annotation(annotations, names.LAST_CHECKPOINT, read_time, problems=problems),
            restart_s=_read_annotation(annotations, names.RESTART_SECONDS, read_seconds, problems=problems) or 0.0,
            problems=problems.all(),
        )


class _SoftEvictionMark(msgspec.Struct):
    """The annotation of a soft eviction, whichever scheduler wrote it."""

    timestamp: datetime | None = None
    preempt_job: str = msgspec.field(default="", name="preemptJob")


def _soft_eviction(annotations: Mapping[str, str]) -> tuple[float, str]:
    """Since when the pod is marked for soft eviction, and for which gang. The label decides; without a valid time it is the oldest
    possible."""
    try:
        mark = msgspec.json.decode(annotations.get(names.SOFT_EVICTION, "{}"), type=_SoftEvictionMark)
    except (msgspec.DecodeError, UnicodeError):
        mark = _SoftEvictionMark()
    return epoch_s(mark.timestamp) or 0.0, mark.preempt_job


def _without_overlong(kept: dict[str, str], *, problems: Problems) -> dict[str, str]:
    """The API refuses such annotations; a file may have them."""
    for key in [key for key, text in kept.items() if len(text) > MAX_ANNOTATION_LENGTH]:
        advice = f"and so on was ignored: it is longer than {MAX_ANNOTATION_LENGTH} characters"
        problems.add(annotation_field(key), value=kept.pop(key), advice=advice)
    return kept


def _read_annotation(annotations: Mapping[str, str], key: str, read: Callable[[str], float], *, problems: Problems) -> float | None:
    text = annotations.get(key)
    return None if text is None else parse_or_report(text, read, field=annotation_field(key), problems=problems)


def _is_shareable(labels: _Pairs, kept: _Pairs) -> bool:
    """A reservation and device slots belong to one pod, and long texts are not worth their memory."""
    if any(key == names.RESERVATION or key in names.DEVICE_ANNOTATIONS for key, _ in kept):
        return False
    return sum(len(text) for _, text in (*labels, *kept)) <= MAX_TEMPLATE_LENGTH


def _why_protected(pod: wire.WirePod, *, namespace: str) -> str:
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


def _status_phase(phase: str, *, problems: Problems) -> PodStatusPhase:
    known = _PHASES.get(phase)
    if known is None:
        problems.add("status.phase", value=phase, advice=f"is no phase; write one of {', '.join(filter(None, _PHASES))}")
        return PodStatusPhase.PENDING
    return known


def _reservation(text: str, *, uid: str, problems: Problems) -> ReservationNote | None:
    return parse_or_report(
        text, lambda written: read_reservation(written, uid=uid), field=annotation_field(names.RESERVATION), problems=problems
    )
