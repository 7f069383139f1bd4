"""The resource request of a pod, computed as Kubernetes does it.

Containers run at the same time, so their requests add up. Ordinary init containers run one after the other before them, besides the
sidecars (restartable init containers) that were started earlier; sidecars go on. The larger of the two sums is used. Pod-level
resources replace that sum for the resources they name; the overhead is added. While a pod is resized, the larger counts of what it
asks for and what its status says is allocated.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.kube.read import wire
from muster.kube.read.decoding_problems import Problems
from muster.kube.read.text_values import read_amounts
from muster.model.resource_amounts import CPU, LARGEST_AMOUNT, MEMORY, PODS, Resources

HUGE_PAGES = "hugepages-"
ALWAYS = "Always"

_Totals = dict[str, int]


AllocatedResources = dict[str, tuple[wire.ResourceList, ...]]
"""What the status of a pod says of its containers, by their names, where it is not what they request."""


def allocated_resources(spec: wire.PodSpec, status: wire.PodStatus) -> AllocatedResources:
    found: AllocatedResources = {}
    requested = {container.name: container.resources.requests for container in (*spec.containers, *spec.init_containers)}
    for one in (*status.container_statuses, *status.init_container_statuses):
        both = (one.allocated_resources, one.resources.requests)
        if other := tuple(amounts for amounts in both if amounts and amounts != requested.get(one.name)):
            found[one.name] = other
    return found


def pod_request(spec: wire.PodSpec, allocated: AllocatedResources, *, problems: Problems) -> Resources:
    """The request of the whole pod, without zeros and with one of `pods`."""
    total = _sum_containers(spec, allocated, problems=problems)
    total |= _pod_level(spec.resources, containers=total, problems=problems)
    _add(total, read_amounts(spec.overhead, problems=problems, field="spec.overhead"))
    total[PODS] = 1
    return Resources.of((name, _bounded(name, value, problems=problems)) for name, value in total.items() if value)


def _sum_containers(spec: wire.PodSpec, allocated: AllocatedResources, *, problems: Problems) -> _Totals:
    total: _Totals = {}
    for container, place in problems.each("spec.containers", spec.containers):
        _add(total, _container_request(container, allocated, problems=place))
    if spec.init_containers:
        _add_init_containers(total, spec.init_containers, allocated, problems=problems)
    return total


def _add_init_containers(
    total: _Totals, containers: tuple[wire.Container, ...], allocated: AllocatedResources, *, problems: Problems
) -> None:
    sidecars: _Totals = {}
    peak: _Totals = {}
    for container, place in problems.each("spec.initContainers", containers):
        own = _container_request(container, allocated, problems=place)
        if container.restart_policy == ALWAYS:
            _add(total, own)
            _add(sidecars, own)
            _raise_to_max(peak, sidecars)
        else:
            _add(own, sidecars)
            _raise_to_max(peak, own)
    _raise_to_max(total, peak)


def _container_request(container: wire.Container, allocated: AllocatedResources, *, problems: Problems) -> _Totals:
    """A container's requests; where it gives only a limit, that is its request. More than that while it is resized."""
    resources = container.resources
    missing = {name: limit for name, limit in resources.limits.items() if name not in resources.requests}
    own = read_amounts(resources.requests, problems=problems, field="resources.requests")
    own |= read_amounts(missing, problems=problems, field="resources.limits")
    for amounts in allocated.get(container.name, ()):
        _raise_to_max(own, read_amounts(amounts, problems=problems, field="status"))
    return own


def _pod_level(resources: wire.ResourceRequirements, *, containers: _Totals, problems: Problems) -> _Totals:
    """Pod-level resources. A limit without a request is used only where no container requests the resource; huge pages cannot be
    overcommitted, so there it is always used."""
    level = read_amounts(resources.requests, problems=problems, field="spec.resources.requests")
    for name, limit in read_amounts(resources.limits, problems=problems, field="spec.resources.limits").items():
        if name not in resources.requests and (name not in containers or name.startswith(HUGE_PAGES)):
            level[name] = limit
    return {name: value for name, value in level.items() if _may_be_pod_level(name, problems=problems)}


def _may_be_pod_level(name: str, *, problems: Problems) -> bool:
    allowed = name in (CPU, MEMORY) or name.startswith(HUGE_PAGES)
    if not allowed:
        problems.at("spec.resources").add(name, advice="was ignored: a pod may only request cpu, memory and hugepages-*")
    return allowed


def _bounded(name: str, value: int, *, problems: Problems) -> int:
    """The amount of each container is within the bound, but their sum need not be. A larger one fits no node anyway."""
    if value > LARGEST_AMOUNT:
        problems.at("spec.containers").add(value, advice=f"of {name} in all is more than any machine has")
    return min(value, LARGEST_AMOUNT)


def _add(total: _Totals, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to_max(total: _Totals, floor: Mapping[str, int]) -> None:
    for name, value in floor.items():
        total[name] = max(total.get(name, 0), value)
