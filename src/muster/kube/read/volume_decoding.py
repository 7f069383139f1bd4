"""Decodes PersistentVolumes, PersistentVolumeClaims, StorageClasses and CSINodes."""

from __future__ import annotations

from muster.kube.read import names, wire
from muster.kube.read.decoding_problems import Problems
from muster.kube.read.selector_decoding import label_selector, node_terms
from muster.kube.read.text_values import read_amounts, read_version
from muster.model.pod_constraints import NodeTerm, Operator, Requirement
from muster.model.volume import CsiNode, PersistentVolume, StorageClass, VolumeClaim

_STORAGE = "storage"
_USABLE_PHASES = ("", "Pending", "Available", "Bound")
_WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"


class ObjectReference(wire.LocalObjectReference, frozen=True):
    namespace: str = ""
    uid: str = ""


class VolumeNodeAffinity(wire.WireStruct, frozen=True):
    required: wire.NodeSelector | None = None


class CsiVolumeSource(wire.WireStruct, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(wire.WireStruct, frozen=True):
    capacity: wire.ResourceList = {}
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    claim_ref: ObjectReference = ObjectReference()
    node_affinity: VolumeNodeAffinity = VolumeNodeAffinity()
    csi: CsiVolumeSource = CsiVolumeSource()


class PersistentVolumeStatus(wire.WireStruct, frozen=True):
    phase: str = ""


class WirePersistentVolume(wire.WireObject, frozen=True):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class PersistentVolumeClaimSpec(wire.WireStruct, frozen=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    resources: wire.ResourceRequirements = wire.ResourceRequirements()
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    selector: wire.WireLabelSelector | None = None


class WirePersistentVolumeClaim(wire.WireObject, frozen=True):
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class TopologyTerm(wire.WireStruct, frozen=True):
    match_label_expressions: tuple[wire.SelectorRequirement, ...] = ()


class WireStorageClass(wire.WireObject, frozen=True):
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class DriverAllocatable(wire.WireStruct, frozen=True):
    count: wire.Int32 | None = None


class CsiDriver(wire.WireStruct, frozen=True):
    name: str = ""
    allocatable: DriverAllocatable = DriverAllocatable()


class CsiNodeSpec(wire.WireStruct, frozen=True):
    drivers: tuple[CsiDriver, ...] = ()


class WireCSINode(wire.WireObject, frozen=True):
    spec: CsiNodeSpec = CsiNodeSpec()


def read_volume(written: WirePersistentVolume, *, problems: Problems) -> PersistentVolume:
    meta, spec = written.metadata, written.spec
    ref, required = spec.claim_ref, spec.node_affinity.required
    return PersistentVolume(
        name=meta.name,
        uid=meta.uid,
        version=read_version(meta.resource_version),
        labels=meta.labels,
        capacity=read_amounts(spec.capacity, problems=problems, field="spec.capacity").get(_STORAGE, 0),
        access_modes=spec.access_modes,
        mode=spec.volume_mode or "Filesystem",
        storage_class=meta.annotations.get(names.BETA_STORAGE_CLASS, spec.storage_class_name),
        claim=f"{ref.namespace or 'default'}/{ref.name}" if ref.name else "",
        claim_uid=ref.uid,
        available=written.status.phase in _USABLE_PHASES and meta.deletion_timestamp is None,
        node_terms=None if required is None else node_terms(required, problems=problems.at("spec.nodeAffinity.required")),
        driver=spec.csi.driver,
        handle=spec.csi.volume_handle,
        problems=problems.all(),
    )


def read_volume_claim(written: WirePersistentVolumeClaim, *, problems: Problems) -> VolumeClaim:
    meta, spec = written.metadata, written.spec
    return VolumeClaim(
        namespace=meta.namespace or "default",
        name=meta.name,
        uid=meta.uid,
        version=read_version(meta.resource_version),
        volume=spec.volume_name,
        storage_class=meta.annotations.get(names.BETA_STORAGE_CLASS, spec.storage_class_name),
        request=read_amounts(spec.resources.requests, problems=problems, field="spec.resources.requests").get(_STORAGE, 0),
        access_modes=spec.access_modes,
        mode=spec.volume_mode or "Filesystem",
        selector=label_selector(spec.selector, problems=problems, field="spec.selector"),
        selected_node=meta.annotations.get(names.SELECTED_NODE, ""),
        deleted=meta.deletion_timestamp is not None,
        problems=problems.all(),
    )


def read_storage_class(written: WireStorageClass, *, problems: Problems) -> StorageClass:
    meta, mode = written.metadata, written.volume_binding_mode
    if mode not in ("", "Immediate", _WAIT_FOR_FIRST_CONSUMER):
        advice = f"is unknown; write Immediate, which is used, or {_WAIT_FOR_FIRST_CONSUMER}"
        problems.at("volumeBindingMode").add(mode, advice=advice)
    terms = tuple(_topology(term) for term in written.allowed_topologies)
    return StorageClass(
        name=meta.name,
        version=read_version(meta.resource_version),
        provisioner=written.provisioner,
        waits=mode == _WAIT_FOR_FIRST_CONSUMER,
        topologies=terms or None,
        is_default=any(meta.annotations.get(key) == "true" for key in names.DEFAULT_STORAGE_CLASS),
        problems=problems.all(),
    )


def read_csi_node(written: WireCSINode, *, problems: Problems) -> CsiNode:
    limits: list[tuple[str, int]] = []
    for driver, place in problems.each("spec.drivers", written.spec.drivers):
        count = driver.allocatable.count
        if count is not None and count < 0:
            place.at("allocatable.count").add(count, advice="is negative; 0 is used")
        if count is not None and driver.name:
            limits.append((driver.name, max(0, count)))
    return CsiNode(written.metadata.name, read_version(written.metadata.resource_version), tuple(sorted(limits)), problems.all())


def _topology(written: TopologyTerm) -> NodeTerm:
    return NodeTerm(tuple(Requirement(one.key, Operator.IN, one.values) for one in written.match_label_expressions))
