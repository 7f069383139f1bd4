"""Nodes, and the HyperNodes that group them into domains."""

from __future__ import annotations

import re2

from muster.kube.read import wire
from muster.kube.read.decoding_problems import Problems
from muster.kube.read.device_flavours import node_devices
from muster.kube.read.selector_decoding import label_selector, taints
from muster.kube.read.text_values import epoch_s, read_resources, read_version
from muster.model.node import Node
from muster.model.topology_spec import DomainMember, DomainSpec

MAX_PATTERN_LENGTH = 1000


class NodeSpec(wire.WireStruct, frozen=True):
    unschedulable: bool = False
    taints: tuple[wire.WireTaint, ...] = ()


class NodeStatus(wire.WireStruct, frozen=True):
    allocatable: wire.ResourceList | None = None
    capacity: wire.ResourceList = {}


class WireNode(wire.WireObject, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class RegexMatch(wire.WireStruct, frozen=True):
    pattern: str = ""


class HyperNodeMemberSelector(wire.WireStruct, frozen=True):
    exact_match: wire.LocalObjectReference = wire.LocalObjectReference()
    regex_match: RegexMatch = RegexMatch()
    label_match: wire.WireLabelSelector | None = None


class HyperNodeMember(wire.WireStruct, frozen=True):
    type: str = "Node"
    selector: HyperNodeMemberSelector = HyperNodeMemberSelector()


class HyperNodeSpec(wire.WireStruct, frozen=True):
    tier: wire.Int32 = 1
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()


class WireHyperNode(wire.WireObject, frozen=True):
    spec: HyperNodeSpec = HyperNodeSpec()


def read_node(written: WireNode, *, problems: Problems) -> Node:
    meta, status = written.metadata, written.status
    amounts, field = status.allocatable, "status.allocatable"
    if amounts is None:
        amounts, field = status.capacity, "status.capacity"
    return Node(
        name=meta.name,
        uid=meta.uid,
        created=epoch_s(meta.creation_timestamp) or 0.0,
        version=read_version(meta.resource_version),
        allocatable=read_resources(amounts, problems=problems, field=field),
        labels=meta.labels,
        taints=taints(written.spec.taints, problems=problems),
        unschedulable=written.spec.unschedulable,
        devices=node_devices(meta.annotations, status.capacity or amounts, problems=problems),
        problems=problems.all(),
    )


def read_hypernode(written: WireHyperNode, *, problems: Problems) -> DomainSpec:
    meta, spec = written.metadata, written.spec
    if spec.tier < 0:
        problems.at("spec.tier").add(spec.tier, advice="is negative; 0 is used")
    members = (_member(one, problems=place) for one, place in problems.each("spec.members", spec.members))
    return DomainSpec(
        name=meta.name,
        uid=meta.uid,
        created=epoch_s(meta.creation_timestamp) or 0.0,
        version=read_version(meta.resource_version),
        tier=max(0, spec.tier),
        tier_name=spec.tier_name,
        members=tuple(member for member in members if member is not None),
        problems=problems.all(),
    )


def _member(written: HyperNodeMember, *, problems: Problems) -> DomainMember | None:
    if written.type not in ("Node", "HyperNode"):
        problems.at("type").add(written.type, advice="is unknown, so it was ignored; write Node or HyperNode")
        return None
    selector = written.selector
    pattern = selector.regex_match.pattern
    if pattern and not _is_pattern(pattern, problems=problems.at("selector.regexMatch.pattern")):
        return None
    return DomainMember(
        is_node=written.type == "Node",
        exact=selector.exact_match.name,
        regex=pattern,
        labels=label_selector(selector.label_match, problems=problems, field="selector.labelMatch"),
    )


def _is_pattern(pattern: str, *, problems: Problems) -> bool:
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern[: MAX_PATTERN_LENGTH + 1], options)
        fits = len(pattern) <= MAX_PATTERN_LENGTH
    except re2.error:
        fits = False
    if not fits:
        problems.add(pattern, advice="is no regular expression; write for example ^gpu-[0-9]+$")
    return fits
