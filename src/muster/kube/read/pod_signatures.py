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
from muster.kube.read.pod_requests import ALWAYS, AllocatedResources, allocated_resources, pod_request
from muster.kube.read.selector_decoding import node_affinity, pod_affinity, spread_constraint, tolerations
from muster.model.pod import PodSignature, Problem
from muster.model.pod_constraints import HostPort
from muster.model.resource_amounts import Resources

_MAX_PORT = 65535
MAX_SPREAD_CONSTRAINTS = 16
MAX_SPEC_KEY_BYTES = 8192
"""A spec of more bytes than this is not cached: it is hardly the template of many pods."""

_NO_RESOURCE_CLAIMS = (
    "ResourceClaims are not read yet, so the pod gets no node; request devices as resources of its containers, "
    "or name another scheduler"
)

_CachedSignature = tuple[PodSignature, tuple[Problem, ...]]


class PodSignatureCache:
    """Equal signatures are one object for as long as they are cached."""

    def __init__(self) -> None:
        self._by_spec: Interner[tuple[bytes, str], _CachedSignature] = Interner()
        self._by_value: Interner[PodSignature, PodSignature] = Interner()
        self._encoder = msgspec.msgpack.Encoder()

    def signature_of(
        self, spec: wire.PodSpec, status: wire.PodStatus, *, namespace: str, pod: str, problems: Problems
    ) -> PodSignature:
        claims = _volume_claims(spec.volumes, pod=pod) if spec.volumes else ()
        local = namespace if claims or _has_inter_pod_constraints(spec) else ""
        allocated = allocated_resources(spec, status) if status.container_statuses else {}
        key = (self._encoder.encode(_signature_fields(spec, allocated, claims=claims)), local)
        found = self._by_spec.get(key)
        if found is None:
            found = self._build(spec, allocated, claims=claims, namespace=local)
            if len(key[0]) <= MAX_SPEC_KEY_BYTES:
                self._by_spec.put(key, found)
        if found[1]:
            problems.extend(found[1])
        if spec.resource_claims:
            problems.at("spec.resourceClaims").add_unsupported(_NO_RESOURCE_CLAIMS)
        return found[0]

    def _build(
        self, spec: wire.PodSpec, allocated: AllocatedResources, *, claims: tuple[str, ...], namespace: str
    ) -> _CachedSignature:
        problems = Problems()
        request = pod_request(spec, allocated, problems=problems)
        signature = _signature(spec, request, claims=claims, namespace=namespace, problems=problems)
        return self._by_value.intern(signature, signature), problems.all()


def _has_inter_pod_constraints(spec: wire.PodSpec) -> bool:
    """Whether other pods, by default those of its namespace, decide on which nodes it fits."""
    if spec.topology_spread_constraints:
        return True
    both = (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity)
    return any(terms.required or terms.preferred for terms in both)


def _signature_fields(spec: wire.PodSpec, allocated: AllocatedResources, *, claims: tuple[str, ...]) -> tuple[object, ...]:
    return (
        allocated,
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


def _signature(
    spec: wire.PodSpec, request: Resources, *, claims: tuple[str, ...], namespace: str, problems: Problems
) -> PodSignature:
    affinity = spec.affinity
    spread_field = "spec.topologySpreadConstraints"
    constraints = problems.at(spread_field).at_most(MAX_SPREAD_CONSTRAINTS, spec.topology_spread_constraints)
    spread = problems.each(spread_field, constraints)
    return PodSignature(
        request=request,
        node_selector=tuple(sorted(spec.node_selector.items())),
        node_affinity=node_affinity(affinity.node_affinity, problems=problems.at("spec.affinity.nodeAffinity")),
        tolerations=tolerations(spec.tolerations, problems=problems),
        ports=_ports(spec, problems=problems),
        affinity=pod_affinity(affinity.pod_affinity, problems=problems.at("spec.affinity.podAffinity")),
        anti_affinity=pod_affinity(affinity.pod_anti_affinity, problems=problems.at("spec.affinity.podAntiAffinity")),
        spread=tuple(spread_constraint(one, problems=place) for one, place in spread),
        volume_claims=claims,
        namespace=namespace,
        devices=device_requests(spec, request, problems=problems),
    )


def _volume_claims(volumes: tuple[wire.WireVolume, ...], *, pod: str) -> tuple[str, ...]:
    """Names of the claims that the pod mounts. An ephemeral volume's claim is named after the pod and the volume."""
    named = {volume.persistent_volume_claim.claim_name for volume in volumes}
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
        problems.at("spec.containers.ports.hostPort").add(number, advice=f"is not from 1 to {_MAX_PORT}")
    return 0 < number <= _MAX_PORT
