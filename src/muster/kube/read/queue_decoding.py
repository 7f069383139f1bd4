"""Decodes Volcano's Queue and both ElasticQuotas into queues of one tree."""

from __future__ import annotations

from typing import Any

from muster.kube.read import names, wire
from muster.kube.read.decoding_problems import Problems
from muster.kube.read.text_values import (
    BadText,
    epoch_s,
    read_annotation,
    read_json,
    read_list,
    read_resources,
    read_seconds,
    read_version,
    status_texts,
)
from muster.model.queue import Queue, QueueState
from muster.model.resource_amounts import Resources, show_amount

_STATE = {state.value: state for state in QueueState} | {"": QueueState.OPEN, "Unknown": QueueState.OPEN}


class Guarantee(wire.WireStruct, frozen=True):
    resource: wire.ResourceList = {}


class QueueSpec(wire.WireStruct, frozen=True):
    parent: str = ""
    weight: wire.Int32 = 1
    capability: wire.ResourceList = {}
    deserved: wire.ResourceList = {}
    guarantee: Guarantee = Guarantee()
    reclaimable: bool = True
    priority: wire.Int32 = 0


class WireQueue(wire.WireObject, frozen=True):
    spec: QueueSpec = QueueSpec()
    status: dict[str, Any] = {}


class ElasticQuotaSpec(wire.WireStruct, frozen=True):
    max: wire.ResourceList = {}
    min: wire.ResourceList = {}


class WireElasticQuota(wire.WireObject, frozen=True):
    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: dict[str, Any] = {}


def read_queue(written: WireQueue, *, problems: Problems) -> Queue:
    meta, spec = written.metadata, written.spec
    status = status_texts(written.status)
    deserved = read_resources(spec.deserved, problems=problems, field="spec.deserved")
    limit = read_resources(spec.capability, problems=problems, field="spec.capability")
    guarantee = read_resources(spec.guarantee.resource, problems=problems, field="spec.guarantee.resource")
    return Queue(
        key=f"queue/{meta.name}",
        uid=meta.uid,
        created=epoch_s(meta.creation_timestamp) or 0.0,
        version=read_version(meta.resource_version),
        parent=f"queue/{spec.parent}" if spec.parent not in ("", names.ROOT_VOLCANO_QUEUE) else "",
        weight=_weight(spec.weight, problems=problems),
        limit=_within_borrowing_limit(meta, limit, deserved, problems=problems),
        deserved=deserved,
        guarantee=_beyond_lending_limit(meta, guarantee, deserved, problems=problems),
        reclaimable=spec.reclaimable,
        priority=spec.priority,
        state=_state(status.get("state", ""), problems=problems),
        preempt_within_parent=_preempt_within_parent(meta, problems=problems),
        run_s=read_annotation(meta.annotations, names.RUN_SECONDS, read_seconds, problems=problems),
        only_for=_only_for(meta, problems=problems),
        status=status,
        problems=problems.all(),
    )


def read_quota(written: WireElasticQuota, *, group: str, problems: Problems) -> Queue:
    meta, spec = written.metadata, written.spec
    namespace = meta.namespace or "default"
    limit = read_resources(spec.max, problems=problems, field="spec.max")
    deserved = read_resources(spec.min, problems=problems, field="spec.min")
    _check_min_below_max(deserved, limit, problems=problems)
    parent = meta.labels.get(names.QUOTA_PARENT, "")
    return Queue(
        key=f"quota/{namespace}/{meta.name}",
        uid=meta.uid,
        created=epoch_s(meta.creation_timestamp) or 0.0,
        version=read_version(meta.resource_version),
        parent=f"quota/?/{parent}" if parent not in ("", names.ROOT_QUOTA) else "",
        weights=_weights(meta, limit=limit, problems=problems),
        limit=_within_borrowing_limit(meta, limit, deserved, problems=problems),
        deserved=deserved,
        guarantee=_beyond_lending_limit(meta, Resources(), deserved, problems=problems),
        lends=meta.labels.get(names.QUOTA_ALLOW_LENT_RESOURCE) != "false",
        is_parent=meta.labels.get(names.QUOTA_IS_PARENT) == "true",
        tree=meta.labels.get(names.QUOTA_TREE, ""),
        namespaces=_namespaces(meta, own=namespace if group == names.X_K8S_GROUP else "", problems=problems),
        preempt_within_parent=_preempt_within_parent(meta, problems=problems),
        run_s=read_annotation(meta.annotations, names.RUN_SECONDS, read_seconds, problems=problems),
        only_for=_only_for(meta, problems=problems),
        status=status_texts(written.status),
        problems=problems.all(),
    )


def _within_borrowing_limit(meta: wire.ObjectMeta, limit: Resources, deserved: Resources, *, problems: Problems) -> Resources:
    """Who may borrow no more than this beyond what it deserves has a limit there."""
    found = dict(limit.items)
    for name, value in _read_limit(meta, names.QUEUE_BORROWING_LIMIT, problems=problems).items:
        found[name] = min(found.get(name, deserved[name] + value), deserved[name] + value)
    return Resources.of(found)


def _beyond_lending_limit(meta: wire.ObjectMeta, guarantee: Resources, deserved: Resources, *, problems: Problems) -> Resources:
    """What it deserves and does not lend is guaranteed to it."""
    found = dict(guarantee.items)
    for name, value in _read_limit(meta, names.QUEUE_LENDING_LIMIT, problems=problems).items:
        if deserved[name] > value:
            found[name] = max(found.get(name, 0), deserved[name] - value)
    return Resources.of(found)


def _read_limit(meta: wire.ObjectMeta, annotation: str, *, problems: Problems) -> Resources:
    """A list that cannot be read limits nothing."""
    written = read_annotation(meta.annotations, annotation, _read_amounts, problems=problems)
    return read_resources(written or {}, problems=problems, field=f"metadata.annotations[{annotation}]")


def _read_amounts(text: str) -> wire.ResourceList:
    return read_json(text, dict[str, str | int | float], advice='is no resource list; write for example {"nvidia.com/gpu": 4}')


def _preempt_within_parent(meta: wire.ObjectMeta, *, problems: Problems) -> str:
    return read_annotation(meta.annotations, names.QUEUE_PREEMPT_WITHIN_PARENT, _within_parent, problems=problems) or ""


def _within_parent(text: str) -> str:
    if text not in ("LowerPriority", "Never"):
        raise BadText("is unknown and was ignored; write LowerPriority or Never")
    return text


def _weight(written: int, *, problems: Problems) -> int:
    if written < 1:
        problems.at("spec.weight").add(written, advice="is below 1; 1 is used")
    return max(1, written)


def _state(written: str, *, problems: Problems) -> QueueState:
    state = _STATE.get(written)
    if state is None:
        problems.at("status.state").add(written, advice="is unknown, so Open is used; write Open, Closed or Closing")
    return state or QueueState.OPEN


def _check_min_below_max(least: Resources, most: Resources, *, problems: Problems) -> None:
    for name, value in least.items:
        bound = most.get(name)
        if bound is not None and value > bound:
            advice = f"is more than spec.max[{name}]; write at most {show_amount(name, bound)}"
            problems.at("spec.min").key(name).add(show_amount(name, value), advice=advice)


def _weights(meta: wire.ObjectMeta, *, limit: Resources, problems: Problems) -> Resources:
    """Without weights, or with zeros only, the limit is the weight."""
    written = read_annotation(meta.annotations, names.QUOTA_SHARED_WEIGHT, _read_weights, problems=problems)
    return read_resources(written or {}, problems=problems, field=f"metadata.annotations[{names.QUOTA_SHARED_WEIGHT}]") or limit


def _read_weights(text: str) -> wire.ResourceList:
    advice = 'is no resource list, so spec.max is used; write for example {"cpu": 40, "memory": "80Gi"}'
    return read_json(text, dict[str, str | int | float], advice=advice) if text else {}


def _namespaces(meta: wire.ObjectMeta, *, own: str, problems: Problems) -> tuple[str, ...]:
    """The namespaces whose pods belong to the quota without naming it; a quota of scheduling.x-k8s.io has its own."""
    if own:
        return (own,)
    found = read_annotation(meta.annotations, names.QUOTA_NAMESPACES, read_list, problems=problems)
    return tuple(sorted(set(found or ())))


def _only_for(meta: wire.ObjectMeta, *, problems: Problems) -> tuple[str, ...] | None:
    """A list that cannot be read is one of nobody."""
    if names.QUEUE_NAMESPACES not in meta.annotations:
        return None
    found = read_annotation(meta.annotations, names.QUEUE_NAMESPACES, read_list, problems=problems)
    return tuple(sorted(set(found or ())))
