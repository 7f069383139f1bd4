"""Volumes as Kubernetes documents them, in plain loops. Shares nothing with the code under test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tests.placement import placement_twin
from tests.placement.placement_worlds import NOW, Case

from muster.model.node import Node
from muster.model.pod import Phase, Pod
from muster.model.volume import CsiNode, PersistentVolume, StorageClass, VolumeClaim

KEEPS_VOLUMES = (Phase.RESERVED, Phase.BINDING, Phase.BOUND, Phase.NOMINATED)


@dataclass
class Facts:
    volumes: dict[str, PersistentVolume]
    claims: dict[str, VolumeClaim]
    classes: dict[str, StorageClass]
    limits: dict[tuple[str, str], int]


def facts_of(case: Case) -> Facts:
    facts = Facts({}, {}, {}, {})
    for thing in case.things:
        if isinstance(thing, PersistentVolume):
            facts.volumes[thing.name] = thing
        elif isinstance(thing, VolumeClaim):
            facts.claims[f"{thing.namespace}/{thing.name}"] = thing
        elif isinstance(thing, StorageClass):
            facts.classes[thing.name] = thing
        elif isinstance(thing, CsiNode):
            for driver, limit in thing.limits:
                facts.limits[thing.name, driver] = limit
    return facts


def place(case: Case) -> dict[str, str]:
    world, facts, found = placement_twin.twin_of(case), facts_of(case), {}
    since = {pod.uid: NOW - 50.0 for pod, _, _ in case.placed}
    for pod in case.pending_pods:
        allowed = [
            name
            for name in sorted(world.nodes)
            if placement_twin.fits_resources(world, pod, world.nodes[name], case.phase)
            and volumes(world, facts, since, pod, name, case.phase)
        ]
        if allowed:
            best = max(
                allowed, key=lambda name: (placement_twin.fullness(world, pod, world.nodes[name]), placement_twin._reversed(name))
            )
            world.placed.append((pod, best, case.phase))
            since[pod.uid] = NOW
            found[pod.uid] = best
    return found


def volumes(world: placement_twin.TwinWorld, facts: Facts, since: dict[str, float], pod: Pod, name: str, phase: Phase) -> bool:
    node, keys = world.nodes[name], [f"{pod.namespace}/{claim}" for claim in pod.signature.volume_claims]
    if not all(_exists_on(facts, key, node) for key in keys):
        return False
    in_the_way = [*placement_twin.BLOCKS_LATER, *([] if phase is Phase.NOMINATED else placement_twin.BLOCKS_NOW)]
    for key in keys:
        if "ReadWriteOncePod" in facts.claims[key].access_modes:
            if any(key in keys_of(other) for other, _, other_phase in world.placed if other_phase in in_the_way):
                return False
    if not _attachable(world, facts, keys, name, in_the_way):
        return False
    return _chosen(world, facts, since, keys, name)


def keys_of(pod: Pod) -> list[str]:
    return [f"{pod.namespace}/{claim}" for claim in pod.signature.volume_claims]


def class_of(facts: Facts, claim: VolumeClaim) -> StorageClass | None:
    if claim.storage_class is not None:
        return facts.classes.get(claim.storage_class)
    for name in sorted(facts.classes):
        if facts.classes[name].is_default:
            return facts.classes[name]
    return None


def _exists_on(facts: Facts, key: str, node: Node) -> bool:
    claim = facts.claims.get(key)
    if claim is None or claim.deleted:
        return False
    if claim.volume:
        volume = facts.volumes.get(claim.volume)
        return volume is not None and _reaches(volume, node)
    found = class_of(facts, claim)
    return found is not None and found.waits


def _reaches(volume: PersistentVolume, node: Node) -> bool:
    return volume.node_terms is None or any(placement_twin.node_term(term, node) for term in volume.node_terms)


def _attachable(world: placement_twin.TwinWorld, facts: Facts, keys: Sequence[str], name: str, in_the_way: Sequence[Phase]) -> bool:
    there = {
        _attaches(facts, key) for other, at, placed in world.placed if at == name and placed in in_the_way for key in keys_of(other)
    } - {None}
    new = {_attaches(facts, key) for key in keys} - there - {None}
    for driver in {volume[0] for volume in new if volume is not None}:
        count = sum(volume is not None and volume[0] == driver for volume in (*there, *new))
        if (name, driver) in facts.limits and count > facts.limits[name, driver]:
            return False
    return True


def _attaches(facts: Facts, key: str) -> tuple[str, str] | None:
    claim = facts.claims.get(key)
    if claim is None:
        return None
    if claim.volume:
        volume = facts.volumes.get(claim.volume)
        return (volume.driver, volume.handle) if volume is not None and volume.driver else None
    found = class_of(facts, claim)
    return None if found is None or found.provisioner == "kubernetes.io/no-provisioner" else (found.provisioner, key)


# -- claims that wait for their first pod ---------------------------------------------------------------------------------------


def waits(facts: Facts, key: str) -> bool:
    claim = facts.claims.get(key)
    found = None if claim is None or claim.volume or claim.deleted else class_of(facts, claim)
    return found is not None and found.waits


def _chosen(world: placement_twin.TwinWorld, facts: Facts, since: dict[str, float], keys: Sequence[str], name: str) -> bool:
    waiting = [key for key in keys if waits(facts, key)]
    uses: dict[str, tuple[float, list[str]]] = {}
    for other, at, placed in world.placed:
        for key in keys_of(other):
            if placed in KEEPS_VOLUMES and waits(facts, key):
                first, nodes = uses.get(key, (since[other.uid], []))
                uses[key] = (min(first, since[other.uid]), [*nodes, at])
    for key in waiting:
        many = {"ReadWriteMany", "ReadOnlyMany"} & set(facts.claims[key].access_modes)
        if key in uses and not many and name not in uses[key][1]:
            return False
    earlier = _assign_earlier(world, facts, uses)
    settled = {volume for volume in earlier.values() if volume}
    now = {key: nodes for key, (first, nodes) in uses.items() if first >= NOW}
    needs: dict[str, list[str]] = {}
    for key, nodes in now.items():
        if not _provisioned_at(world, facts, key, nodes) and _options(world, facts, key, nodes):
            needs[key] = _options(world, facts, key, nodes)
    for key in waiting:
        if key in earlier:
            volume = facts.volumes.get(earlier[key])
            if not (_provisioned_at(world, facts, key, [name]) if volume is None else _reaches(volume, world.nodes[name])):
                return False
        elif not _provisioned_at(world, facts, key, [name]):
            needs[key] = _options(world, facts, key, [*uses.get(key, (0.0, []))[1], name])
    return any(True for _ in _pairings(sorted(needs), needs, settled))


def _assign_earlier(world: placement_twin.TwinWorld, facts: Facts, uses: dict[str, tuple[float, list[str]]]) -> dict[str, str]:
    """What the claims of earlier cycles have, cycle by cycle; nothing where a volume is made."""
    settled: set[str] = set()
    found: dict[str, str] = {}
    earlier = sorted((first, key) for key, (first, _) in uses.items() if first < NOW)
    for _, cohort in groupby(earlier, key=lambda each: each[0]):
        options = {key: _options(world, facts, key, uses[key][1]) for _, key in cohort}
        must = [key for key in sorted(options) if not _provisioned_at(world, facts, key, uses[key][1])]
        best = _best_assignment(must, options, settled)
        settled |= set(best.values())
        for key in sorted(options):
            if key not in must:
                left = [volume for volume in options[key] if volume not in settled]
                settled |= set(left[:1])
                best[key] = left[0] if left else ""
        found.update({key: best.get(key, "") for key in options})
    return found


def _best_assignment(must: list[str], options: dict[str, list[str]], settled: set[str]) -> dict[str, str]:
    """Serve them in order; one that cannot be served with those before it goes without."""
    served: list[str] = []
    found: dict[str, str] = {}
    for key in must:
        pairing = next(_pairings([*served, key], options, settled), None)
        if pairing is not None:
            served.append(key)
            found = pairing
    return found


def _pairings(keys: Sequence[str], options: dict[str, list[str]], taken: set[str]) -> Iterator[dict[str, str]]:
    if not keys:
        yield {}
        return
    for volume in options[keys[0]]:
        if volume not in taken:
            for rest in _pairings(keys[1:], options, taken | {volume}):
                yield {keys[0]: volume, **rest}


def _provisioned_at(world: placement_twin.TwinWorld, facts: Facts, key: str, nodes: Sequence[str]) -> bool:
    claim = facts.claims[key]
    found = class_of(facts, claim)
    assert found is not None
    if found.provisioner == "kubernetes.io/no-provisioner":
        return False
    for name in nodes:
        node = world.nodes.get(name)
        if node is None:
            continue
        if found.topologies is not None and not any(placement_twin.node_term(term, node) for term in found.topologies):
            return False
        if claim.selected_node and claim.selected_node != name:
            return False
    return True


def _options(world: placement_twin.TwinWorld, facts: Facts, key: str, nodes: Sequence[str]) -> list[str]:
    """The volumes that suit the claim and that all these nodes reach, smallest first, one that is kept for it before all."""
    claim = facts.claims[key]
    found = class_of(facts, claim)
    assert found is not None
    if claim.selected_node:
        return []
    suits = [volume for volume in facts.volumes.values() if _suits(volume, claim, found, key)]
    reached = [
        volume
        for volume in suits
        if volume.node_terms is None or all(name in world.nodes and _reaches(volume, world.nodes[name]) for name in nodes)
    ]
    return [volume.name for volume in sorted(reached, key=lambda one: (one.claim == "", one.capacity, one.name))]


def _suits(volume: PersistentVolume, claim: VolumeClaim, found: StorageClass, key: str) -> bool:
    return (
        volume.available
        and volume.claim in ("", key)
        and volume.storage_class == found.name
        and volume.capacity >= claim.request
        and volume.mode == claim.mode
        and all(mode in volume.access_modes for mode in claim.access_modes)
        and (claim.selector is None or placement_twin.selects(claim.selector, volume.labels))
    )
