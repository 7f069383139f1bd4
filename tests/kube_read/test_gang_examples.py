"""The examples with which users are taught to declare gangs: each is read as it was meant."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from muster.kube.read.decoder import Decoder
from muster.model.gang import PodGroup
from muster.model.pod import ApiFlavour, Declared, Membership, Pod
from muster.model.resource_amounts import Resources

BASIC_GROUP = """
apiVersion: v1alpha1
kind: PodGroup
metadata:
  creationTimestamp: "2022-07-11T18:26:33Z"
  name: gang-a
  namespace: default
spec:
  minMember: 5
  minResources:
    cpu: "5"
    memory: "2048Mi"
  scheduleTimeoutSeconds: 600
"""

GROUP_OF_A_GANG_GROUP = """
apiVersion: v1alpha1
kind: PodGroup
metadata:
  creationTimestamp: "2022-07-11T18:26:33Z"
  name: gang-a
  namespace: namespaceA
  annotations:
    gang.scheduling.koordinator.sh/total-number: 5
    gang.scheduling.koordinator.sh/mode: Strict
    gang.scheduling.koordinator.sh/groups: ["namespaceA/gang-a", "namespaceB/gang-b"]
spec:
  minMember: 5
  minResources:
    cpu: "5"
    memory: "2048Mi"
  scheduleTimeoutSeconds: 600
"""

BASIC_POD = """
metadata:
   annotations:
    gang.scheduling.koordinator.sh/name: gang-a
    gang.scheduling.koordinator.sh/min-available: 5
"""

PODS_OF_ONE_GANG_GROUP = [
    f"""
metadata:
   annotations:
     gang.scheduling.koordinator.sh/name: {name}
     gang.scheduling.koordinator.sh/waiting-time: 3600s
     gang.scheduling.koordinator.sh/min-available: 5
     gang.scheduling.koordinator.sh/total-number: 5
     gang.scheduling.koordinator.sh/mode: Strict
     gang.scheduling.koordinator.sh/groups: ["namespaceA/gang-a", "namespaceB/gang-b"]
"""
    for name in ("gang-a", "gang-b")
]

PODS_OF_SEPARATE_GANGS = [
    f"""
metadata:
   annotations:
     gang.scheduling.koordinator.sh/name: {name}
     gang.scheduling.koordinator.sh/waiting-time: 3600s
     gang.scheduling.koordinator.sh/min-available: 5
     gang.scheduling.koordinator.sh/total-number: 5
     gang.scheduling.koordinator.sh/mode: Strict
     gang.scheduling.koordinator.sh/groups: ""
"""
    for name in ("gang-a", "gang-b")
]


def group(text: str) -> PodGroup:
    found = Decoder().decode(yaml.safe_load(text))
    assert isinstance(found, PodGroup)
    return found


def pod(text: str) -> Pod:
    """The examples show the metadata only; the rest of a pod does not matter here."""
    manifest: dict[str, Any] = yaml.safe_load(text)
    manifest["metadata"]["name"] = "p"
    found = Decoder().decode_as(("", "Pod"), manifest)
    assert isinstance(found, Pod)
    return found


def test_a_basic_podgroup() -> None:
    found = group(BASIC_GROUP)
    assert (found.key, found.min_member, found.wait_s) == ("koordinator:default/gang-a", 5, 600.0)
    assert found.min_resources == Resources.of({"cpu": 5000, "memory": 2 * 2**30})
    assert found.created == 1657563993.0
    assert found.problems == ()


def test_a_podgroup_that_is_one_role_of_a_gang_group() -> None:
    found = group(GROUP_OF_A_GANG_GROUP)
    assert found.declared == Declared(total=5, mode="Strict", groups=("namespaceA/gang-a", "namespaceB/gang-b"))
    assert found.problems == ()


def test_a_basic_pod() -> None:
    found = pod(BASIC_POD)
    assert found.membership == Membership(ApiFlavour.ANNOTATION, "gang-a", needs_group=False, declared=Declared(min=5))
    assert found.problems == ()


@pytest.mark.parametrize(("text", "name"), list(zip(PODS_OF_ONE_GANG_GROUP, ("gang-a", "gang-b"), strict=True)))
def test_pods_of_two_roles_of_one_gang_group(text: str, name: str) -> None:
    found = pod(text)
    declared = Declared(5, 5, 3600.0, "Strict", groups=("namespaceA/gang-a", "namespaceB/gang-b"))
    assert found.membership == Membership(ApiFlavour.ANNOTATION, name, needs_group=False, declared=declared)
    assert found.problems == ()


@pytest.mark.parametrize(("text", "name"), list(zip(PODS_OF_SEPARATE_GANGS, ("gang-a", "gang-b"), strict=True)))
def test_pods_of_two_gangs_that_do_not_wait_for_each_other(text: str, name: str) -> None:
    found = pod(text)
    assert found.membership == Membership(
        ApiFlavour.ANNOTATION, name, needs_group=False, declared=Declared(5, 5, 3600.0, "Strict", groups=())
    )
    assert found.problems == ()
