"""Volumes, claims, classes and CSINodes as Kubernetes writes them, and as they stand in a decision log."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO

import pytest

from muster.decision_log import DecisionLogWriter, read_decision_log
from muster.kube.read.decoder import Decoder
from muster.model.events import ClusterObject, Upsert
from muster.model.pod_constraints import LabelSelector, NodeTerm, Operator, Requirement
from muster.model.volume import CsiNode, PersistentVolume, StorageClass, VolumeClaim

VOLUME = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "disk-1", "uid": "u1", "resourceVersion": "7", "labels": {"tier": "hot"}},
    "spec": {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "volumeMode": "Block",
        "claimRef": {"namespace": "team", "name": "data", "uid": "u2"},
        "nodeAffinity": {
            "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
        },
        "csi": {"driver": "disks.example.com", "volumeHandle": "vol-1"},
    },
    "status": {"phase": "Bound"},
}
VOLUME_CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {
        "name": "data",
        "namespace": "team",
        "resourceVersion": "8",
        "annotations": {"volume.kubernetes.io/selected-node": "n1"},
    },
    "spec": {
        "accessModes": ["ReadWriteOncePod"],
        "resources": {"requests": {"storage": "1Gi"}},
        "selector": {"matchLabels": {"tier": "hot"}},
    },
}
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "disks.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}],
}
CSI_NODE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSINode",
    "metadata": {"name": "n1"},
    "spec": {
        "drivers": [
            {"name": "disks.example.com", "nodeID": "n1", "allocatable": {"count": 25}},
            {"name": "files.example.com", "nodeID": "n1"},
        ]
    },
}


def zone(*values: str) -> NodeTerm:
    return NodeTerm((Requirement("zone", Operator.IN, values),))


READ: list[tuple[Mapping[str, object], ClusterObject]] = [
    (
        VOLUME,
        PersistentVolume(
            "disk-1",
            uid="u1",
            version=7,
            labels={"tier": "hot"},
            capacity=10 * 2**30,
            access_modes=("ReadWriteOnce",),
            mode="Block",
            storage_class="fast",
            claim="team/data",
            claim_uid="u2",
            node_terms=(zone("a"),),
            driver="disks.example.com",
            handle="vol-1",
        ),
    ),
    (
        VOLUME_CLAIM,
        VolumeClaim(
            "team",
            "data",
            version=8,
            request=2**30,
            access_modes=("ReadWriteOncePod",),
            selector=LabelSelector((Requirement("tier", Operator.IN, ("hot",)),)),
            selected_node="n1",
        ),
    ),
    (CLASS, StorageClass("fast", provisioner="disks.example.com", waits=True, topologies=(zone("a", "b"),), is_default=True)),
    (CSI_NODE, CsiNode("n1", limits=(("disks.example.com", 25),))),
]


@pytest.mark.parametrize(("manifest", "thing"), READ, ids=lambda each: type(each).__name__)
def test_a_manifest_is_decoded(manifest: Mapping[str, object], thing: ClusterObject) -> None:
    assert Decoder().decode(manifest) == thing


@pytest.mark.parametrize("thing", [thing for _, thing in READ], ids=lambda each: type(each).__name__)
def test_it_is_in_a_decision_log_as_it_was(thing: ClusterObject) -> None:
    log = BytesIO()
    DecisionLogWriter(log).events([Upsert(thing)])
    assert [entry for _, entry, _ in read_decision_log(log.getvalue().splitlines())] == [Upsert(thing)]


def decoded(manifest: Mapping[str, object], **spec: object) -> ClusterObject | None:
    return Decoder().decode({**manifest, **spec})


def test_a_released_volume_is_available_to_nobody() -> None:
    released, going = (
        decoded(VOLUME, status={"phase": "Released"}),
        decoded(VOLUME, metadata={"name": "disk-1", "deletionTimestamp": "2026-03-01T12:00:00Z"}),
    )
    assert isinstance(released, PersistentVolume)
    assert isinstance(going, PersistentVolume)
    assert not released.available
    assert not going.available


def test_the_class_in_the_old_annotation_counts() -> None:
    metadata = {"name": "data", "namespace": "team", "annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}
    claim = decoded(VOLUME_CLAIM, metadata=metadata, spec={"storageClassName": "new"})
    assert isinstance(claim, VolumeClaim)
    assert claim.storage_class == "old"


def test_a_volume_claim_without_a_class_differs_from_one_of_no_class() -> None:
    none, empty = decoded(VOLUME_CLAIM, spec={}), decoded(VOLUME_CLAIM, spec={"storageClassName": ""})
    assert isinstance(none, VolumeClaim)
    assert isinstance(empty, VolumeClaim)
    assert (none.storage_class, empty.storage_class) == (None, "")


def test_bad_fields_are_named_and_cost_nothing_else() -> None:
    volume = decoded(VOLUME, spec={"capacity": {"storage": "lots"}, "storageClassName": "fast"})
    storage_class = decoded(CLASS, volumeBindingMode="Later")
    csi_node = decoded(CSI_NODE, spec={"drivers": [{"name": "d", "allocatable": {"count": -3}}]})
    assert isinstance(volume, PersistentVolume)
    assert isinstance(storage_class, StorageClass)
    assert isinstance(csi_node, CsiNode)
    assert (volume.storage_class, [problem.field for problem in volume.problems]) == ("fast", ["spec.capacity[storage]"])
    assert (storage_class.waits, [problem.field for problem in storage_class.problems]) == (False, ["volumeBindingMode"])
    assert csi_node.limits == (("d", 0),)
    assert [problem.field for problem in csi_node.problems] == ["spec.drivers[0].allocatable.count"]
