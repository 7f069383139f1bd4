"""The scheduling signature of a pod: all fields that decide on which nodes it fits. Pods of one template share one signature.

Building a signature costs far more than the rest of a pod, and a cluster has many pods of few templates. So the fields of the
signature are encoded as bytes, and signatures are cached by those.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from muster.kube.read import wire
from muster.kube.read.decoding_problems import Problems
from muster.kube.read.device_flavours import device_requests
from muster.kube.read.interning import Interner
from muster.kube.read.pod_requests import ALWAYS, pod_request
from muster.kube.read.selector_decoding import node_affinity, pod_affinity, spread_constraint, tolerations
from muster.model.pod import PodSignature, Problem
from muster.model.pod_constraints import HostPort, NodeAffinity, PodAffinity

_NO_NODE_AFFINITY = NodeAffinity()
_NO_POD_AFFINITY = PodAffinity()
_MAX_PORT = 65535
MAX_SPEC_KEY_BYTES = 8192
"""A spec of more bytes than this is not cached: it is hardly the template of many pods."""

_CachedSignature = tuple[PodSignature, tuple[Problem, ...]]


class PodSignatureCache:
    """Equal signatures are one object for as long as they are cached."""

    def __init__(self) -> None:
        self._by_spec: Interner[tuple[bytes, str], _CachedSignature] = Interner()
        self._by_value: Interner[tuple[object, ...], PodSignature] = Interner()
        self._encoder = msgspec.msgpack.Encoder()

    def signature_of(self, spec: wire.PodSpec, *, namespace: str, pod: str, problems: Problems) -> PodSignature:
        claims = _volume_claims(spec.volumes, pod=pod) if spec.volumes else ()
        local = namespace if claims or _has_inter_pod_constraints(spec) else ""
        key = (self._encoder.encode(_signature_fields(spec, claims=claims)), local)
        found = self._by_spec.get(key)
        if found is None:
            found = self._build(spec, claims=claims, namespace=local)
            if len(key[0]) <= MAX_SPEC_KEY_BYTES:
                self._by_spec.put(key, found)
        if found[1]:
            problems.extend(found[1])
        return found[0]

    def _build(self, spec: wire.PodSpec, *, claims: tuple[str, ...], namespace: str) -> _CachedSignature:
        problems = Problems()
        signature = _signature(spec, claims=claims, namespace=namespace, problems=problems)
        return self._by_value.intern(_signature_key(signature), signature), problems.all()


def _has_inter_pod_constraints(spec: wire.PodSpec) -> bool:
    """Whether other pods, by default those of its namespace, decide on which nodes it fits."""
    if spec.topology_spread_constraints:
        return True
    both = (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity) if spec.affinity else ()
    return any(
        terms.required_during_scheduling_ignored_during_execution or terms.preferred_during_scheduling_ignored_during_execution
        for terms in both
        if terms is not None
    )


def _signature_fields(spec: wire.PodSpec, *, claims: tuple[str, ...]) -> tuple[object, ...]:
    return (
        spec.containers,
        spec.init_containers,
        spec.overhead,
        spec.resources,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.topology_spread_constraints,
        spec.host_network,
        claims,
    )


def _signature_key(signature: PodSignature) -> tuple[object, ...]:
    """The hash of a signature is too coarse for thousands of them that differ in their affinity only."""
    return (
        signature.request,
        signature.node_selector,
        signature.node_affinity,
        signature.tolerations,
        signature.ports,
        signature.affinity,
        signature.anti_affinity,
        signature.spread,
        signature.volume_claims,
        signature.namespace,
        signature.devices,
    )


def _signature(spec: wire.PodSpec, *, claims: tuple[str, ...], namespace: str, problems: Problems) -> PodSignature:
    affinity = spec.affinity or wire.Affinity()
    pod_affinity_terms, anti_affinity_terms = affinity.pod_affinity, affinity.pod_anti_affinity
    request = pod_request(spec, problems=problems)
    return PodSignature(
        request=request,
        node_selector=tuple(sorted(spec.node_selector.items())),
        node_affinity=_node_affinity(affinity.node_affinity, problems=problems),
        tolerations=tolerations(spec.tolerations, problems=problems),
        ports=_ports(spec, problems=problems),
        affinity=_pod_affinity(pod_affinity_terms, field="spec.affinity.podAffinity", problems=problems),
        anti_affinity=_pod_affinity(anti_affinity_terms, field="spec.affinity.podAntiAffinity", problems=problems),
        spread=tuple(
            spread_constraint(one, field=f"spec.topologySpreadConstraints[{i}]", problems=problems)
            for i, one in enumerate(spec.topology_spread_constraints)
        ),
        volume_claims=claims,
        namespace=namespace,
        devices=device_requests(spec, request, problems=problems),
    )


def _node_affinity(written: wire.WireNodeAffinity | None, *, problems: Problems) -> NodeAffinity:
    if written is None:
        return _NO_NODE_AFFINITY
    return node_affinity(written, field="spec.affinity.nodeAffinity", problems=problems)


def _pod_affinity(written: wire.WirePodAffinity | None, *, field: str, problems: Problems) -> PodAffinity:
    return _NO_POD_AFFINITY if written is None else pod_affinity(written, field=field, problems=problems)


def _volume_claims(volumes: tuple[wire.WireVolume, ...], *, pod: str) -> tuple[str, ...]:
    """Names of the claims that the pod mounts. An ephemeral volume's claim is named after the pod and the volume."""
    named = {volume.persistent_volume_claim.claim_name for volume in volumes if volume.persistent_volume_claim}
    made = {f"{pod}-{volume.name}" for volume in volumes if volume.ephemeral}
    return tuple(sorted((named | made) - {""}))


def _ports(spec: wire.PodSpec, *, problems: Problems) -> tuple[HostPort, ...]:
    ports = {
        HostPort(number, port.protocol or "TCP", port.host_ip or "0.0.0.0")
        for container in _concurrent_containers(spec)
        for port in container.ports
        if (number := port.host_port or (port.container_port if spec.host_network else 0)) and _is_port(number, problems=problems)
    }
    return tuple(sorted(ports, key=lambda port: (port.port, port.protocol, port.ip)))


def _concurrent_containers(spec: wire.PodSpec) -> Iterator[wire.Container]:
    yield from spec.containers
    yield from (container for container in spec.init_containers if container.restart_policy == ALWAYS)


def _is_port(number: int, *, problems: Problems) -> bool:
    if not 0 < number <= _MAX_PORT:
        problems.add("spec.containers.ports.hostPort", value=number, advice=f"is not from 1 to {_MAX_PORT}")
    return 0 < number <= _MAX_PORT
