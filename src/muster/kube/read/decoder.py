"""Decodes Kubernetes objects into model values.

An object is the bytes of its JSON or a mapping from a YAML file. It is decoded in one pass where it fits its struct, field by field
where it does not: invalid fields become Problems of the value, and only an object without an identity is refused. No clock and no
network here; all that is kept between objects are interned values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial

import msgspec

from muster.kube.read import names, wire
from muster.kube.read.composite_group_decoding import WireCompositePodGroup, read_composite_pod_group
from muster.kube.read.decoding_problems import Problems, excerpt
from muster.kube.read.device_flavours import WireDevice, read_inventory
from muster.kube.read.lenient_decoding import DECODE_ERRORS, decode_leniently
from muster.kube.read.node_decoding import WireHyperNode, WireNode, read_hypernode, read_node
from muster.kube.read.object_references import GroupKind
from muster.kube.read.pod_decoding import PodDecoder
from muster.kube.read.pod_group_decoding import FLAVOUR_OF_API_GROUP, WirePodGroup, read_pod_group
from muster.kube.read.queue_decoding import WireElasticQuota, WireQueue, read_queue, read_quota
from muster.kube.read.saved_objects import HISTORY, PLAN, WireHistory, WirePlan, read_history, read_plan
from muster.kube.read.selector_decoding import label_selector
from muster.kube.read.text_values import read_annotation, read_seconds, read_version
from muster.kube.read.volume_decoding import (
    WireCSINode,
    WirePersistentVolume,
    WirePersistentVolumeClaim,
    WireStorageClass,
    read_csi_node,
    read_storage_class,
    read_volume,
    read_volume_claim,
)
from muster.model.budget import Budget
from muster.model.events import ClusterObject, Namespace, PriorityClass

RawObject = Mapping[str, object] | bytes | msgspec.Raw


class BadObject(ValueError):
    """An object that cannot be identified: no kind, no name, or no JSON at all."""


class Decoder:
    """Decodes objects of all kinds and interns what they have in common."""

    def __init__(self, scheduler_names: Collection[str] = ("muster",)) -> None:
        self._kind_decoders = _kind_decoders(PodDecoder(scheduler_names))

    def decode(self, obj: RawObject) -> ClusterObject | None:
        """The model value of an object, or None for a kind that the scheduler does not read."""
        return self.decode_as(_group_kind(obj if isinstance(obj, Mapping) else _load_json(obj)), obj)

    def decode_as(self, kind: GroupKind, obj: RawObject) -> ClusterObject | None:
        """The same for an object whose API group and kind are known, such as an item of a list, which has neither."""
        decoder = self._kind_decoders.get(kind)
        return None if decoder is None else decoder.decode(obj)


class WireNamespace(wire.WireObject, frozen=True):
    """Only its metadata is read."""


class WirePriorityClass(wire.WireObject, frozen=True):
    value: wire.Int32 = 0
    global_default: bool = False
    preemption_policy: str = ""


class PodDisruptionBudgetSpec(wire.WireStruct, frozen=True):
    selector: wire.WireLabelSelector | None = None


class PodDisruptionBudgetStatus(wire.WireStruct, frozen=True):
    disruptions_allowed: wire.Int32 = 0


class WirePodDisruptionBudget(wire.WireObject, frozen=True):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


@cache
def struct_types() -> Mapping[GroupKind, type[wire.WireObject]]:
    """By kind, the struct with the fields that are read."""
    return {kind: one.struct_type for kind, one in _kind_decoders(PodDecoder(())).items()}


class _KindDecoder:
    """One kind of object: its struct, and the function that turns it into a model value."""

    def __init__(self, struct_type: type[wire.WireObject], read: Callable[..., ClusterObject]) -> None:
        self._kind = struct_type.__name__.removeprefix("Wire")
        self.struct_type = struct_type
        self._read = read
        self._decoder = msgspec.json.Decoder(struct_type)

    def decode(self, obj: RawObject) -> ClusterObject:
        problems = Problems()
        decoded = self._to_struct(obj, problems=problems)
        if not decoded.metadata.name:
            raise BadObject(f"{self._kind}: metadata.name is missing, so the object cannot be identified")
        try:
            return self._read(decoded, problems=problems)
        except UnicodeEncodeError:
            raise BadObject(f"{self._kind} {excerpt(decoded.metadata.name)}: holds text that is not Unicode") from None

    def _to_struct(self, obj: RawObject, *, problems: Problems) -> wire.WireObject:
        try:
            if isinstance(obj, Mapping):
                return msgspec.convert(obj, self.struct_type)
            return self._decoder.decode(obj)
        except DECODE_ERRORS:
            whole = obj if isinstance(obj, Mapping) else _load_json(obj)
            return decode_leniently(whole, wanted=self.struct_type, problems=problems)


def _kind_decoders(pods: PodDecoder) -> dict[GroupKind, _KindDecoder]:
    decoders = {
        (names.CORE_GROUP, "Pod"): _KindDecoder(wire.WirePod, pods.read),
        (names.CORE_GROUP, "Node"): _KindDecoder(WireNode, read_node),
        (names.CORE_GROUP, "Namespace"): _KindDecoder(WireNamespace, _read_namespace),
        (names.NATIVE_GROUP, "CompositePodGroup"): _KindDecoder(WireCompositePodGroup, read_composite_pod_group),
        (names.NATIVE_GROUP, "PriorityClass"): _KindDecoder(WirePriorityClass, _read_priority_class),
        (names.POLICY_GROUP, "PodDisruptionBudget"): _KindDecoder(WirePodDisruptionBudget, _read_budget),
        (names.VOLCANO_GROUP, "Queue"): _KindDecoder(WireQueue, read_queue),
        (names.VOLCANO_TOPOLOGY_GROUP, "HyperNode"): _KindDecoder(WireHyperNode, read_hypernode),
        (names.CORE_GROUP, "PersistentVolume"): _KindDecoder(WirePersistentVolume, read_volume),
        (names.CORE_GROUP, "PersistentVolumeClaim"): _KindDecoder(WirePersistentVolumeClaim, read_volume_claim),
        (names.STORAGE_GROUP, "StorageClass"): _KindDecoder(WireStorageClass, read_storage_class),
        (names.STORAGE_GROUP, "CSINode"): _KindDecoder(WireCSINode, read_csi_node),
        (names.KOORDINATOR_GROUP, "Device"): _KindDecoder(WireDevice, read_inventory),
        PLAN: _KindDecoder(WirePlan, read_plan),
        HISTORY: _KindDecoder(WireHistory, read_history),
    }
    for group, flavour in FLAVOUR_OF_API_GROUP.items():
        decoders[group, "PodGroup"] = _KindDecoder(WirePodGroup, partial(read_pod_group, flavour=flavour))
    for group in (names.SIGS_GROUP, names.X_K8S_GROUP):
        decoders[group, "ElasticQuota"] = _KindDecoder(WireElasticQuota, partial(read_quota, group=group))
    # The documents of Koordinator write `apiVersion: v1alpha1` for these two, without a group.
    for kind in ("PodGroup", "ElasticQuota"):
        decoders["", kind] = decoders[names.SIGS_GROUP, kind]
    return decoders


def _read_namespace(written: WireNamespace, *, problems: Problems) -> Namespace:
    meta = written.metadata
    return Namespace(meta.name, read_version(meta.resource_version), meta.labels, problems.all())


def _read_budget(written: WirePodDisruptionBudget, *, problems: Problems) -> Budget:
    meta = written.metadata
    selector = label_selector(written.spec.selector, problems=problems, field="spec.selector")
    return Budget(
        namespace=meta.namespace or "default",
        name=meta.name,
        uid=meta.uid,
        version=read_version(meta.resource_version),
        selector=selector,
        allowed=written.status.disruptions_allowed,
        problems=problems.all(),
    )


def _read_priority_class(written: WirePriorityClass, *, problems: Problems) -> PriorityClass:
    return PriorityClass(
        name=written.metadata.name,
        value=written.value,
        version=read_version(written.metadata.resource_version),
        is_default=written.global_default,
        never_preempts=written.preemption_policy == "Never",
        run_s=read_annotation(written.metadata.annotations, names.RUN_SECONDS, read_seconds, problems=problems),
        problems=problems.all(),
    )


def _group_kind(obj: Mapping[str, object]) -> GroupKind:
    """API group and kind. The versions of a group do not differ in the fields that are read."""
    version, kind = obj.get("apiVersion"), obj.get("kind")
    if not isinstance(kind, str) or not kind:
        raise BadObject(f"kind: {excerpt('' if kind is None else kind)} is no kind; write for example Pod")
    return version.rpartition("/")[0] if isinstance(version, str) else "", kind


def _load_json(obj: bytes | msgspec.Raw) -> Mapping[str, object]:
    """By a more lenient JSON decoder: one NaN must not lose the object."""
    text = bytes(obj)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as bad:
        raise BadObject(f"{excerpt(text[:100])} is no JSON: {bad}") from None
    if not isinstance(found, dict):
        raise BadObject(f"{excerpt(found)} is no object; write for example {{}}")
    return found
