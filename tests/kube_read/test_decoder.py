"""Which objects are read, which are nobody's business, and which are refused."""

from __future__ import annotations

import msgspec
import pytest
from tests.kube_read.manifests import Manifest, as_json, pod_manifest

from muster.kube.read.decoder import BadObject, Decoder
from muster.model.pod import Pod

NOT_READ = [
    ("v1", "ConfigMap"),
    ("apps/v1", "Pod"),
    ("example.com/v1", "PodGroup"),
    ("batch.volcano.sh/v1alpha1", "Job"),
    ("v1", "Queue"),
]


@pytest.mark.parametrize(("api", "kind"), NOT_READ)
def test_kinds_that_the_scheduler_does_not_read_are_ignored(api: str, kind: str) -> None:
    assert Decoder().decode({"apiVersion": api, "kind": kind}) is None
    assert Decoder().decode(as_json({"apiVersion": api, "kind": kind})) is None


def test_an_item_of_a_list_is_what_its_reader_says_it_is() -> None:
    item = {"metadata": {"name": "p"}}
    decoder = Decoder()
    found = [decoder.decode_as(("", "Pod"), each) for each in (item, as_json(item))]
    assert [isinstance(one, Pod) for one in found] == [True, True]


NO_IDENTITY: tuple[object, ...] = (
    {},
    {"kind": ""},
    {"kind": 5},
    {"kind": ["Pod"]},
    {"kind": "Pod"},
    {"kind": "Pod", "metadata": None},
    {"kind": "Pod", "metadata": {}},
    {"kind": "Pod", "metadata": {"name": ""}},
    {"kind": "Pod", "metadata": {"name": None}},
    {"kind": "Pod", "metadata": {"name": {}}},
    {"kind": "Pod", "metadata": {"generateName": "p-"}},
    {"kind": "Pod", "metadata": []},
)


@pytest.mark.parametrize("manifest", NO_IDENTITY)
def test_an_object_without_an_identity_is_refused(manifest: Manifest) -> None:
    for form in (manifest, as_json(manifest)):
        with pytest.raises(BadObject, match=r"kind|metadata\.name"):
            Decoder().decode(form)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"5", b'"Pod"', b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(text: bytes) -> None:
    for form in (text, msgspec.Raw(text)):
        with pytest.raises(BadObject):
            Decoder().decode(form)


def test_part_of_a_message_need_not_be_copied_to_be_read() -> None:
    event = msgspec.json.decode(as_json({"type": "ADDED", "object": pod_manifest()}), type=dict[str, msgspec.Raw])
    assert Decoder().decode(event["object"]) == Decoder().decode(pod_manifest())


def test_a_pod_of_any_version_is_a_pod() -> None:
    assert isinstance(Decoder().decode(pod_manifest() | {"apiVersion": None}), Pod)
