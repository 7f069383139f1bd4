"""The resource request of a pod, computed as Kubernetes does it.

Containers run at the same time, so their requests add up. Ordinary init containers run one after the other before them, besides the
sidecars (restartable init containers) that were started earlier; sidecars go on. The larger of the two sums is used. Pod-level
resources replace that sum for the resources they name; the overhead is added.
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


def pod_request(spec: wire.PodSpec, *, problems: Problems) -> Resources:
    """The request of the whole pod, without zeros and with one of `pods`."""
    total = _sum_containers(spec, problems=problems)
    if spec.resources is not None:
        total |= _pod_level(spec.resources, containers=total, problems=problems)
    _add(total, read_amounts(spec.overhead, field="spec.overhead", problems=problems))
    total[PODS] = 1
    return Resources.of((name, _bounded(name, value, problems=problems)) for name, value in total.items() if value)


def _sum_containers(spec: wire.PodSpec, *, problems: Problems) -> _Totals:
    total: _Totals = {}
    for i, container in enumerate(spec.containers):
        _add(total, _container_request(container, field=f"spec.containers[{i}]", problems=problems))
    if spec.init_containers:
        _add_init_containers(total, spec.init_containers, problems=problems)
    return total


def _add_init_containers(total: _Totals, containers: tuple[wire.Container, ...], *, problems: Problems) -> None:
    sidecars: _Totals = {}
    peak: _Totals = {}
    for i, container in enumerate(containers):
        own = _container_request(container, field=f"spec.initContainers[{i}]", problems=problems)
        if container.restart_policy == ALWAYS:
            _add(total, own)
            _add(sidecars, own)
            _raise_to_max(peak, sidecars)
        else:
            _add(own, sidecars)
            _raise_to_max(peak, own)
    _raise_to_max(total, peak)


def _container_request(container: wire.Container, *, field: str, problems: Problems) -> _Totals:
    """A container's requests; where it gives only a limit, that is its request."""
    resources = container.resources
    missing = {name: limit for name, limit in resources.limits.items() if name not in resources.requests}
    own = read_amounts(resources.requests, field=f"{field}.resources.requests", problems=problems)
    return own | read_amounts(missing, field=f"{field}.resources.limits", problems=problems)


def _pod_level(resources: wire.ResourceRequirements, *, containers: _Totals, problems: Problems) -> _Totals:
    """Pod-level resources. A limit without a request is used only where no container requests the resource; huge pages cannot be
    overcommitted, so there it is always used."""
    level = read_amounts(resources.requests, field="spec.resources.requests", problems=problems)
    for name, limit in read_amounts(resources.limits, field="spec.resources.limits", problems=problems).items():
        if name not in resources.requests and (name not in containers or name.startswith(HUGE_PAGES)):
            level[name] = limit
    return {name: value for name, value in level.items() if _may_be_pod_level(name, problems=problems)}


def _may_be_pod_level(name: str, *, problems: Problems) -> bool:
    allowed = name in (CPU, MEMORY) or name.startswith(HUGE_PAGES)
    if not allowed:
        problems.add("spec.resources", value=name, advice="was ignored: a pod may only request cpu, memory and hugepages-*")
    return allowed


def _bounded(name: str, value: int, *, problems: Problems) -> int:
    """The amount of each container is within the bound, but their sum need not be. A larger one fits no node anyway."""
    if value > LARGEST_AMOUNT:
        problems.add("spec.containers", value=value, advice=f"of {name} in all is more than any machine has")
    return min(value, LARGEST_AMOUNT)


def _add(total: _Totals, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to_max(total: _Totals, floor: Mapping[str, int]) -> None:
    for name, value in floor.items():
        total[name] = max(total.get(name, 0), value)
