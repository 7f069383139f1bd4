"""Decodes pods.

Labels, annotations, membership and queue nearly always come from a pod template, so they are cached together.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from muster.kube.read import names, wire
from muster.kube.read.decoding_problems import Problems
from muster.kube.read.device_flavours import read_device_slots
from muster.kube.read.flavours import membership_of, queue_of
from muster.kube.read.interning import Interner
from muster.kube.read.pod_signatures import PodSignatureCache
from muster.kube.read.text_values import BadText, epoch_s, read_annotation, read_json, read_seconds, read_time, read_version
from muster.model.pod import Membership, Pod, PodStatusPhase, Problem, no_labels

MAX_ANNOTATION_LENGTH = 256 * 1024
MAX_TEMPLATE_LENGTH = 4096
"""Templates with more text than this are not cached: they are hardly shared by many pods."""

_SETTINGS = ("gang.scheduling.koordinator.sh/", "scheduling.volcano.sh/", "scheduling.k8s.io/", "volcano.sh/task-spec")
"""How the annotations begin in which pods declare their gang and queue."""
MAX_SETTING_LENGTH = 1024
MAX_RESTART_S = 24 * 3600.0
MAX_GRACE_S = 3600
"""Pods that are evicted have no more time to terminate. One that its owner deleted with more is still running: nobody waits for its
capacity, and it may be evicted."""

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
    pipelined_node: str
    timed_out: bool
    never_preempts: bool
    checkpoint: float | None
    restart_s: float
    run_s: float | None
    movable: bool | None
    problems: tuple[Problem, ...]


class PodDecoder:
    """Decodes pods. It caches templates, never pods."""

    def __init__(self, scheduler_names: Collection[str]) -> None:
        self._ours = frozenset(scheduler_names)
        self._signatures = PodSignatureCache()
        self._templates: Interner[tuple[_Pairs, _Pairs, str], _PodTemplate] = Interner()
        self._labels: Interner[_Pairs, Mapping[str, str]] = Interner()
        self._memberships: Interner[Membership, Membership] = Interner()

    def read(self, written: wire.WirePod, *, problems: Problems) -> Pod:
        meta, spec, status = written.metadata, written.spec, written.status
        namespace = sys.intern(meta.namespace) if meta.namespace else "default"
        uid = meta.uid or f"{namespace}/{meta.name}"
        template = self._template(meta, spec.scheduling_group.pod_group_name, problems=problems)
        signature = self._signatures.signature_of(spec, status, namespace=namespace, pod=meta.name, problems=problems)
        devices = signature.devices if spec.node_name else ()
        scheduler = spec.scheduler_name or names.DEFAULT_SCHEDULER
        ours = scheduler in self._ours
        created = epoch_s(meta.creation_timestamp) or 0.0
        started = _not_before(epoch_s(status.start_time), created)
        return Pod(
            uid=uid,
            namespace=namespace,
            name=meta.name,
            signature=signature,
            created=created,
            version=read_version(meta.resource_version),
            controller=sys.intern(meta.controller),
            ours=ours,
            scheduler="" if ours else sys.intern(scheduler),
            priority=spec.priority or 0,
            priority_class=spec.priority_class_name,
            never_preempts=template.never_preempts or spec.preemption_policy == "Never",
            protected=_why_protected(written, namespace=namespace),
            labels=template.labels,
            annotations=template.annotations,
            membership=template.membership,
            queue=template.queue,
            gates=tuple(gate.name for gate in spec.scheduling_gates) if spec.scheduling_gates else (),
            node=sys.intern(spec.node_name) if spec.node_name else None,
            status_phase=_status_phase(status.phase, problems=problems),
            started=started,
            deleted_at=_deleted_at(meta),
            nominated_node=status.nominated_node_name or None,
            pipelined_node=template.pipelined_node,
            device_slots=read_device_slots(template.annotations, devices, problems=problems) if devices else (),
            eviction_marked_at=template.eviction_marked_at,
            timed_out=template.timed_out,
            checkpoint=_not_before(template.checkpoint, created if started is None else started),
            restart_s=template.restart_s,
            run_s=_run_s(template.run_s, spec.active_deadline_seconds),
            movable=template.movable,
            problems=problems.all(),
        )

    def _template(self, meta: wire.ObjectMeta, native: str, *, problems: Problems) -> _PodTemplate:
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
        return _PodTemplate(
            labels=self._labels.intern(tuple(labels.items()), labels) if labels else no_labels(),
            annotations=_without_long_settings(annotations) or no_labels(),
            membership=None if membership is None else self._memberships.intern(membership, membership),
            queue=queue_of(labels, annotations, problems=problems),
            eviction_marked_at=_soft_eviction(annotations) if labels.get(names.SOFT_EVICTION) == "true" else None,
            pipelined_node=annotations.get(names.PIPELINED_NODE, "") if annotations.get(names.PIPELINED_STATUS) == "true" else "",
            timed_out=annotations.get(names.GANG_TIMEOUT) == "true",
            never_preempts=labels.get(names.PREEMPTION_POLICY) == "Never",
            checkpoint=read_annotation(annotations, names.LAST_CHECKPOINT, read_time, problems=problems),
            restart_s=read_annotation(annotations, names.RESTART_SECONDS, _read_restart, problems=problems) or 0.0,
            run_s=read_annotation(annotations, names.RUN_SECONDS, read_seconds, problems=problems),
            movable=read_annotation(annotations, names.MOVABLE, _read_movable, problems=problems),
            problems=problems.all(),
        )


def _not_before(when: float | None, earliest: float) -> float | None:
    """No work is lost from before a pod was there, whatever is declared: others would be evicted in its place."""
    return when if when is None else max(when, earliest)


def _read_restart(text: str) -> float:
    """Who declares more than anybody needs would have others evicted in her place."""
    if (seconds := read_seconds(text)) > MAX_RESTART_S:
        raise BadText(f"is more than a day; write at most {MAX_RESTART_S:.0f}")
    return seconds


def _read_movable(text: str) -> bool:
    if text not in ("true", "false"):
        raise BadText('is neither "true" nor "false"; write "true" where the pod may be moved')
    return text == "true"


def _run_s(declared: float | None, deadline: int | None) -> float | None:
    """The API server ends a pod at its deadline, whatever it declares."""
    known = [seconds for seconds in (declared, deadline) if seconds is not None]
    return min(known, default=None)


def _deleted_at(meta: wire.ObjectMeta) -> float | None:
    return epoch_s(meta.deletion_timestamp) if (meta.deletion_grace_period_seconds or 0) <= MAX_GRACE_S else None


class _SoftEvictionMark(msgspec.Struct):
    """The annotation of a soft eviction, whichever scheduler wrote it."""

    timestamp: datetime | None = None


def _soft_eviction(annotations: Mapping[str, str]) -> float:
    """Since when the pod is marked for soft eviction. The label decides; without a valid time it is the oldest possible."""
    try:
        return epoch_s(read_json(annotations.get(names.SOFT_EVICTION, "{}"), _SoftEvictionMark, advice="").timestamp) or 0.0
    except BadText:
        return 0.0


def _without_overlong(kept: dict[str, str], *, problems: Problems) -> dict[str, str]:
    """The API refuses such annotations; a file may have them."""
    for key in [key for key, text in kept.items() if len(text) > MAX_ANNOTATION_LENGTH]:
        advice = f"and so on was ignored: it is longer than {MAX_ANNOTATION_LENGTH} characters"
        problems.annotation(key).add(kept.pop(key), advice=advice)
    return kept


def _without_long_settings(annotations: dict[str, str]) -> dict[str, str]:
    """Settings are decoded above, and their text is not read again: long ones would be kept for each pod of a hostile namespace."""
    return {key: text for key, text in annotations.items() if len(text) <= MAX_SETTING_LENGTH or not key.startswith(_SETTINGS)}


def _is_shareable(labels: _Pairs, kept: _Pairs) -> bool:
    """Device slots belong to one pod, and long texts are not worth their memory."""
    if any(key in names.DEVICE_ANNOTATIONS for key, _ in kept):
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
        problems.at("status.phase").add(phase, advice=f"is no phase; write one of {', '.join(filter(None, _PHASES))}")
        return PodStatusPhase.PENDING
    return known
