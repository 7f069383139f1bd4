"""The gang and the queue that an object names, and the gang settings in its annotations.

Several schedulers have APIs to declare gangs. Where a pod uses two of these flavours the first in this order counts, and the pod
gets a Problem that names both:

1. Volcano: annotation `scheduling.k8s.io/group-name`;
2. Koordinator: label `pod-group.scheduling.sigs.k8s.io`;
3. the scheduler-plugins of the Kubernetes SIGs: label `scheduling.x-k8s.io/pod-group`;
4. annotations alone: label `pod-group.scheduling.sigs.k8s.io/name`, then annotation `gang.scheduling.koordinator.sh/name`;
5. Kubernetes itself: `spec.schedulingGroup.podGroupName`.

The second and the fourth are one family: they share names, and to name one gang twice is no conflict.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from muster.kube.read import names
from muster.kube.read.decoding_problems import Problems, excerpt
from muster.kube.read.text_values import BadText, check_name, read_count, read_duration, read_json, read_list
from muster.model.gang import MatchPolicy, Mode
from muster.model.pod import NOT_DECLARED, ApiFlavour, Declared, Membership

StringMap = Mapping[str, str]
T = TypeVar("T")

NATIVE_FIELD = "spec.schedulingGroup.podGroupName"
_GANG_KEYS = frozenset(
    {
        names.GANG_MIN_AVAILABLE,
        names.GANG_TOTAL_NUMBER,
        names.GANG_WAITING_TIME,
        names.GANG_MODE,
        names.GANG_GROUPS,
        names.GANG_GROUPS_ALIAS,
        names.GANG_MATCH_POLICY,
        names.GANG_MATCH_POLICY_ALIAS,
        names.GANG_TOPOLOGY,
    }
)
_MUST, _PREFER = "MustGather", "PreferGather"


@dataclass(frozen=True, slots=True)
class _GangReference:
    """One field in which a pod names its gang."""

    flavour: ApiFlavour
    name: str
    field: str

    def names_same_gang(self, other: _GangReference) -> bool:
        return self.flavour.family == other.flavour.family and self.name == other.name


def membership_of(labels: StringMap, annotations: StringMap, *, native: str, problems: Problems) -> Membership | None:
    """The gang that a pod names, or None for a single pod.

    An invalid name still makes a member: a pod of a gang must not be scheduled alone.
    """
    references = _gang_references(labels, annotations, native=native)
    if not references:
        return None
    first = references[0]
    _check_same_gang(references, problems=problems)
    try:
        check_name(first.name)
    except BadText as bad:
        problems.add(first.field, value=first.name, advice=str(bad))
    declared = read_declaration(labels, annotations, problems=problems)
    alone = first.flavour is ApiFlavour.ANNOTATION and declared.min is not None
    role = _first_of(names.VOLCANO_TASK, annotations, labels) if first.flavour is ApiFlavour.VOLCANO else ""
    return Membership(first.flavour, first.name, role, not alone, declared)


def queue_of(labels: StringMap, annotations: StringMap, *, problems: Problems) -> str:
    """Key of the queue that an object names, or empty. The namespace of a quota is not known here and written as `?`."""
    queue = _first_of(names.VOLCANO_QUEUE_NAME, annotations, labels)
    quota = labels.get(names.QUOTA_NAME, "")
    if queue and quota:
        advice = f"was ignored: {names.VOLCANO_QUEUE_NAME} names the queue {excerpt(queue)}; keep one of them"
        problems.add(label_field(names.QUOTA_NAME), value=quota, advice=advice)
    if queue:
        return f"queue/{queue}"
    return f"quota/?/{quota}" if quota else ""


def read_declaration(labels: StringMap, annotations: StringMap, *, problems: Problems) -> Declared:
    """The gang settings in the annotations of a pod or a PodGroup. An invalid one counts as absent."""
    if names.LIGHTWEIGHT_MIN_AVAILABLE not in labels and _GANG_KEYS.isdisjoint(annotations):
        return NOT_DECLARED
    read = _AnnotationReader(annotations, problems)
    must, prefer = read.value(names.GANG_TOPOLOGY, _read_gather_strategy) or (None, None)
    return Declared(
        min=_min(labels, read, problems=problems),
        total=read.value(names.GANG_TOTAL_NUMBER, read_count),
        wait_s=read.value(names.GANG_WAITING_TIME, read_duration),
        mode=_mode(read),
        match_policy=read.value_or_alias(names.GANG_MATCH_POLICY, names.GANG_MATCH_POLICY_ALIAS, _read_match_policy),
        groups=read.value_or_alias(names.GANG_GROUPS, names.GANG_GROUPS_ALIAS, _read_groups),
        must_gather=must,
        prefer_gather=prefer,
    )


def label_field(name: str) -> str:
    return f"metadata.labels[{name}]"


def annotation_field(name: str) -> str:
    return f"metadata.annotations[{name}]"


def _gang_references(labels: StringMap, annotations: StringMap, *, native: str) -> list[_GangReference]:
    """All fields in which the pod names its gang, the one that counts first."""
    places = (
        (ApiFlavour.VOLCANO, annotations, names.VOLCANO_GROUP_NAME, annotation_field),
        (ApiFlavour.VOLCANO, annotations, names.VOLCANO_GROUP_NAME_ALIAS, annotation_field),
        (ApiFlavour.KOORDINATOR, labels, names.SIGS_POD_GROUP, label_field),
        (ApiFlavour.SIGS, labels, names.X_K8S_POD_GROUP, label_field),
        (ApiFlavour.ANNOTATION, labels, names.LIGHTWEIGHT_GANG_NAME, label_field),
        (ApiFlavour.ANNOTATION, annotations, names.GANG_NAME, annotation_field),
    )
    references = [_GangReference(flavour, texts[key], field(key)) for flavour, texts, key, field in places if texts.get(key)]
    return [*references, _GangReference(ApiFlavour.NATIVE, native, NATIVE_FIELD)] if native else references


def _check_same_gang(references: list[_GangReference], *, problems: Problems) -> None:
    first = references[0]
    for other in references[1:]:
        if not first.names_same_gang(other):
            advice = (
                f"({other.flavour.value}) was ignored: {first.field} names {excerpt(first.name)} "
                f"({first.flavour.value}), which counts; keep one of them"
            )
            problems.add(other.field, value=other.name, advice=advice)


@dataclass(frozen=True, slots=True)
class _AnnotationReader:
    """Reads annotations one by one; an invalid one becomes a Problem and None."""

    annotations: StringMap
    problems: Problems

    def value(self, key: str, read: Callable[[str], T]) -> T | None:
        text = self.annotations.get(key)
        return None if text is None else parse_or_report(text, read, field=annotation_field(key), problems=self.problems)

    def value_or_alias(self, key: str, alias: str, read: Callable[[str], T]) -> T | None:
        return self.value(key if key in self.annotations else alias, read)


def parse_or_report(text: str, read: Callable[[str], T], *, field: str, problems: Problems) -> T | None:
    """The value of the text; an invalid text is a Problem and None."""
    try:
        return read(text)
    except BadText as bad:
        problems.add(field, value=text, advice=str(bad), lost=True)
        return None


def _min(labels: StringMap, read: _AnnotationReader, *, problems: Problems) -> int | None:
    label = labels.get(names.LIGHTWEIGHT_MIN_AVAILABLE)
    if label is not None:
        found = parse_or_report(label, read_count, field=label_field(names.LIGHTWEIGHT_MIN_AVAILABLE), problems=problems)
        if found is not None:
            return found
    return read.value(names.GANG_MIN_AVAILABLE, read_count)


def _mode(read: _AnnotationReader) -> str | None:
    """An invalid mode is Strict: that one reserves nothing and so cannot block other gangs."""
    found = read.value(names.GANG_MODE, _read_mode)
    return found or (Mode.STRICT.value if read.annotations.get(names.GANG_MODE) else None)


def _read_mode(text: str) -> str | None:
    if text and text not in (Mode.STRICT.value, Mode.NON_STRICT.value):
        nearest = Mode.NON_STRICT.value if text.lower().startswith("non") else Mode.STRICT.value
        raise BadText(f"is no mode, so Strict is used; write {nearest}")
    return text or None


def _read_match_policy(text: str) -> str | None:
    known = [policy.value for policy in MatchPolicy]
    if text and text not in known:
        raise BadText(f"is no match policy; write one of {', '.join(known)}")
    return text or None


def _read_groups(text: str) -> tuple[str, ...]:
    """Sorted, so that pods that list them in another order agree. Only the syntax is checked: a gang that does not exist is
    reported by the gangs that wait for it."""
    groups = read_list(text)
    for one in groups:
        if not re.fullmatch(r"[^/\s]+/[^/\s]+", one):
            raise BadText(f'was ignored: {excerpt(one)} is no namespace/name; write for example ["a/x", "b/y"]')
    return tuple(sorted(set(groups)))


def _read_gather_strategy(text: str) -> tuple[str | None, str | None]:
    """The lowest layer of MustGather, and the lowest of PreferGather; layers are listed from the highest on."""
    found = read_json(text) if text else {}
    layers = found.get("gatherStrategy", []) if isinstance(found, dict) else None
    if not isinstance(layers, list) or not all(map(_is_layer, layers)):
        raise BadText('is no strategy; write for example {"gatherStrategy":[{"layer":"rack","strategy":"MustGather"}]}')
    must = [layer["layer"] for layer in layers if layer["strategy"] == _MUST]
    prefer = [layer["layer"] for layer in layers if layer["strategy"] == _PREFER]
    return (must[-1] if must else None, prefer[-1] if prefer else None)


def _is_layer(layer: object) -> bool:
    if not isinstance(layer, dict) or layer.get("strategy") not in (_MUST, _PREFER):
        return False
    return isinstance(layer.get("layer"), str) and layer["layer"] != ""


def _first_of(key: str, first: StringMap, second: StringMap) -> str:
    return first.get(key) or second.get(key) or ""
