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
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec

from muster.kube.read import names
from muster.kube.read.decoding_problems import Problems, excerpt
from muster.kube.read.text_values import (
    MAX_NAME_LENGTH,
    BadText,
    check_name,
    name_in_keys,
    read_annotation,
    read_count,
    read_duration,
    read_json,
    read_list,
    read_or_report,
)
from muster.model.gang import MatchPolicy, Mode
from muster.model.pod import NOT_DECLARED, ApiFlavour, Declared, Membership

StringMap = Mapping[str, str]

_GANG_NAMES = (
    (ApiFlavour.VOLCANO, False, names.VOLCANO_GROUP_NAME),
    (ApiFlavour.VOLCANO, False, names.VOLCANO_GROUP_NAME_ALIAS),
    (ApiFlavour.KOORDINATOR, True, names.SIGS_POD_GROUP),
    (ApiFlavour.SIGS, True, names.X_K8S_POD_GROUP),
    (ApiFlavour.ANNOTATION, True, names.LIGHTWEIGHT_GANG_NAME),
    (ApiFlavour.ANNOTATION, False, names.GANG_NAME),
)
"""The flavour of each label (True) or annotation (False) that names a gang."""
_SETTINGS = ("gang.scheduling.koordinator.sh/", names.GANG_MATCH_POLICY_ALIAS)
"""How the annotations with settings of a gang begin."""


MAX_GANG_GROUP = 128
"""Gangs in one gang group: each of them lists all others, so more would cost everybody."""


class _GangReference(NamedTuple):
    """One field in which a pod names its gang."""

    flavour: ApiFlavour
    name: str
    problems: Problems


def membership_of(labels: StringMap, annotations: StringMap, *, native: str, problems: Problems) -> Membership | None:
    """The gang that a pod names, or None for a single pod.

    An invalid name still makes a member: a pod of a gang must not be scheduled alone.
    """
    references = _gang_references(labels, annotations, native=native, problems=problems)
    if not references:
        return None
    first = references[0]
    _check_same_gang(references)
    try:
        check_name(first.name)
    except BadText as bad:
        first.problems.add(first.name, advice=str(bad))
    declared = read_declaration(labels, annotations, problems=problems)
    alone = first.flavour is ApiFlavour.ANNOTATION and declared.min is not None
    role = _first_of(names.VOLCANO_TASK, annotations, labels)[:MAX_NAME_LENGTH] if first.flavour is ApiFlavour.VOLCANO else ""
    return Membership(first.flavour, name_in_keys(first.name), role, not alone, declared)


def queue_of(labels: StringMap, annotations: StringMap, *, problems: Problems) -> str:
    """Key of the queue that an object names, or empty. The namespace of a quota is not known here and written as `?`."""
    queue = _first_of(names.VOLCANO_QUEUE_NAME, annotations, labels)
    quota = labels.get(names.QUOTA_NAME, "")
    if queue and quota:
        advice = f"was ignored: {names.VOLCANO_QUEUE_NAME} names the queue {excerpt(queue)}; keep one of them"
        problems.label(names.QUOTA_NAME).add(quota, advice=advice)
    if queue:
        return f"queue/{name_in_keys(queue)}"
    return f"quota/?/{quota}" if quota else ""


def read_declaration(labels: StringMap, annotations: StringMap, *, problems: Problems) -> Declared:
    """The gang settings in the annotations of a pod or a PodGroup. An invalid one counts as absent."""
    if names.LIGHTWEIGHT_MIN_AVAILABLE not in labels and not any(key.startswith(_SETTINGS) for key in annotations):
        return NOT_DECLARED
    policy = names.GANG_MATCH_POLICY if names.GANG_MATCH_POLICY in annotations else names.GANG_MATCH_POLICY_ALIAS
    groups = names.GANG_GROUPS if names.GANG_GROUPS in annotations else names.GANG_GROUPS_ALIAS
    must, prefer = read_annotation(annotations, names.GANG_TOPOLOGY, _read_gather_strategy, problems=problems) or (None, None)
    return Declared(
        min=_min(labels, annotations, problems=problems),
        total=read_annotation(annotations, names.GANG_TOTAL_NUMBER, read_count, problems=problems),
        wait_s=read_annotation(annotations, names.GANG_WAITING_TIME, read_duration, problems=problems),
        mode=_mode(annotations, problems=problems),
        match_policy=read_annotation(annotations, policy, _read_match_policy, problems=problems),
        groups=read_annotation(annotations, groups, _read_groups, problems=problems),
        must_gather=must,
        prefer_gather=prefer,
    )


def _gang_references(labels: StringMap, annotations: StringMap, *, native: str, problems: Problems) -> list[_GangReference]:
    """All fields in which the pod names its gang, the one that counts first."""
    found = []
    for flavour, is_label, key in _GANG_NAMES:
        if name := (labels if is_label else annotations).get(key):
            found.append(_GangReference(flavour, name, problems.label(key) if is_label else problems.annotation(key)))
    if native:
        found.append(_GangReference(ApiFlavour.NATIVE, native, problems.at("spec.schedulingGroup.podGroupName")))
    return found


def _check_same_gang(references: list[_GangReference]) -> None:
    first = references[0]
    for other in references[1:]:
        if (other.flavour.family, other.name) != (first.flavour.family, first.name):
            advice = (
                f"({other.flavour.value}) was ignored: {first.problems.field} names {excerpt(first.name)} "
                f"({first.flavour.value}), which counts; keep one of them"
            )
            other.problems.add(other.name, advice=advice)


def _min(labels: StringMap, annotations: StringMap, *, problems: Problems) -> int | None:
    label = labels.get(names.LIGHTWEIGHT_MIN_AVAILABLE)
    if label is not None:
        found = read_or_report(label, read_count, problems=problems.label(names.LIGHTWEIGHT_MIN_AVAILABLE))
        if found is not None:
            return found
    return read_annotation(annotations, names.GANG_MIN_AVAILABLE, read_count, problems=problems)


def _mode(annotations: StringMap, *, problems: Problems) -> str | None:
    """An invalid mode is Strict: that one reserves nothing and so cannot block other gangs."""
    found = read_annotation(annotations, names.GANG_MODE, _read_mode, problems=problems)
    return found or (Mode.STRICT.value if annotations.get(names.GANG_MODE) else None)


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
    if len(groups) > MAX_GANG_GROUP:
        raise BadText(f"was ignored: it lists {len(groups)} gangs; a gang group has at most {MAX_GANG_GROUP}")
    for one in groups:
        if not re.fullmatch(r"[^/\s]+/[^/\s]+", one):
            raise BadText(f'was ignored: {excerpt(one)} is no namespace/name; write for example ["a/x", "b/y"]')
    return tuple(sorted({"/".join(map(name_in_keys, one.split("/"))) for one in groups}))


class _Layer(msgspec.Struct):
    layer: Annotated[str, msgspec.Meta(min_length=1)]
    strategy: Literal["MustGather", "PreferGather"]


class _GatherStrategy(msgspec.Struct, rename="camel"):
    gather_strategy: tuple[_Layer, ...] = ()


def _read_gather_strategy(text: str) -> tuple[str | None, str | None]:
    """The lowest layer of MustGather, and the lowest of PreferGather; layers are listed from the highest on."""
    advice = 'is no strategy; write for example {"gatherStrategy":[{"layer":"rack","strategy":"MustGather"}]}'
    found = read_json(text, _GatherStrategy, advice=advice) if text else _GatherStrategy()
    lowest = {layer.strategy: layer.layer for layer in found.gather_strategy}
    return lowest.get("MustGather"), lowest.get("PreferGather")


def _first_of(key: str, first: StringMap, second: StringMap) -> str:
    return first.get(key) or second.get(key) or ""
