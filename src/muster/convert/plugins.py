"""Plugin by plugin: what of Volcano's there is of ours, and a sentence where there is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from muster.convert.conf import TheirConf, TheirPlugin
from muster.convert.draft import Draft
from muster.model.resources import CPU, MEMORY, PODS
from muster.yaml_marks import Marked, nearest, shown

EVEN: Mapping[str, float] = {CPU: 1.0, MEMORY: 1.0}

# Volcano's switches for its filters, and the plugin that does the same.
_FILTERS = {
    "predicate.NodeAffinityEnable": "selectors",
    "predicate.TaintTolerationEnable": "taints",
    "predicate.NodePortsEnable": "ports",
    "predicate.PodAffinityEnable": "pod_affinity",
    "predicate.PodTopologySpreadEnable": "spread_constraints",
    "predicate.VolumeBindingEnable": "volumes",
}
_OTHER_FILTERS = {
    "predicate.NodeVolumeLimitsEnable": "volumes looks at all that a volume needs of its node",
    "predicate.VolumeZoneEnable": "volumes looks at all that a volume needs of its node",
    "predicate.CacheEnable": "what is cached does not change a decision",
    "predicate.GPUSharingEnable": "name the plugin devices for devices that several pods share",
    "predicate.ProportionalEnable": "keeping room free in proportion has no counterpart",
    "predicate.DynamicResourceAllocationEnable": "ResourceClaims are not read",
}
_DEVICES = ("deviceshare.VGPUEnable", "deviceshare.GPUSharingEnable", "deviceshare.GPUNumberEnable")
_DEVICE_POLICY = "deviceshare.SchedulePolicy"
# The scores of nodeorder: Volcano's weight for each, and the plugin that does the same; none where there is no such plugin.
_SCORES = (
    ("nodeaffinity.weight", 2, "node_affinity_preference"),
    ("podaffinity.weight", 2, "pod_affinity_preference"),
    ("tainttoleration.weight", 3, "taint_preference"),
)
_NO_SCORES = (("balancedresource.weight", 1), ("imagelocality.weight", 1))

MISSING: Mapping[str, str] = {
    "extender": "an HTTP extender is not asked; write a plugin in Python instead",
    "nodegroup": "queues are not tied to groups of nodes; use node selectors, or taints and tolerations",
    "numaaware": "where on a node a pod's CPUs lie is left to the kubelet",
    "rescheduling": "nobody who runs is moved for the sake of balance",
    "resourcequota": "namespace quotas are enforced by the API server when pods are made; PodGroups do not wait for them",
    "sla": "who waited long does not go first for that",
    "task-topology": "roles are not drawn to each other; use pod affinity",
    "tdm": "nodes that are lent for a time of day are not known",
    "usage": "what nodes really use is not looked at, only what pods ask for",
}


def convert_plugins(conf: TheirConf, draft: Draft) -> None:
    draft.use("fit")
    for their in conf.plugins:
        _convert(their, draft)
    draft.use("nominated")
    if conf.plugin("gang") is None:
        draft.tell("plugin gang is not there: Volcano starts members one by one, but here a gang starts whole or not at all")
    _settle(conf, draft)


def _convert(their: TheirPlugin, draft: Draft) -> None:
    name = their.name.text
    if name in MISSING:
        draft.tell(f"plugin {name} has no counterpart: {MISSING[name]}", their.name)
        return
    rule = RULES.get(name)
    if rule is None:
        near = nearest(name, [*RULES, *MISSING])
        hint = f"; did you mean {near!r}?" if near else ""
        draft.tell(f"unknown plugin {shown(name)} was left out{hint}", their.name)
        return
    rule(their, draft)
    for flag, given in their.flags.items():
        if given.value is False and flag not in their.asked:
            draft.tell(f"{name}: {flag}: false has no counterpart and was left out", given)


# -- who goes first ----------------------------------------------------------------------------------------------------------------


def _priority(their: TheirPlugin, draft: Draft) -> None:
    if their.has("enableJobOrder"):
        draft.use("priority")
    else:
        draft.tell("priority: enableJobOrder is off, so gangs go by creation", their.name)
    if their.flags.get("enableTaskOrder", _ON).value is False:
        their.asked.add("enableTaskOrder")
        draft.tell("priority: enableTaskOrder: false: members of a gang still go by their priority", their.name)
    their.asked.update(_EVICTION_FLAGS)


def _gang(their: TheirPlugin, draft: Draft) -> None:
    draft.tell("plugin gang is no plugin here: gangs are what is scheduled, always whole", their.name)
    given = their.flags.get("enableJobReady", _ON)
    if given.value is False:
        draft.tell("gang: enableJobReady: false has no counterpart: a gang starts whole or not at all", given)
    their.asked.update((*_EVICTION_FLAGS, "enableJobReady"))


def _drf(their: TheirPlugin, draft: Draft) -> None:
    if their.has("enableHierarchy"):
        draft.use("drf")
        draft.tell("drf: queues form a tree by their spec.parent; the annotations volcano.sh/hierarchy are not read", their.name)
    else:
        why = "gangs of one queue go by priority and creation, whatever share each of them has"
        draft.tell(f"drf without enableHierarchy has no counterpart: {why}", their.name)
    their.asked.update((*_EVICTION_FLAGS, "enableJobOrder", "enableQueueOrder"))


def _proportion(their: TheirPlugin, draft: Draft) -> None:
    if not their.has_any(*_QUEUE_FLAGS):
        draft.tell("proportion was left out: all of it is switched off", their.name)
        return
    strict = their.has_any("enabledAllocatable", "enabledOverused")
    draft.use("proportion", **({"strict": True} if strict else {}))


def _capacity(their: TheirPlugin, draft: Draft) -> None:
    if not their.has_any(*_QUEUE_FLAGS):
        draft.tell("capacity was left out: all of it is switched off", their.name)
        return
    draft.use("capacity")
    their.asked.add("enableHierarchy")
    if their.arguments.number("ancestorReclaimLevel", 0):
        why = "two queues are always compared just below the ancestor that they have in common"
        draft.tell(f"capacity: ancestorReclaimLevel has no counterpart: {why}", their.arguments.at("ancestorReclaimLevel"))
    if "capacity.DynamicResourceAllocationEnable" in their.arguments:
        at = their.arguments.at("capacity.DynamicResourceAllocationEnable")
        draft.tell("capacity: quotas of device classes have no counterpart: ResourceClaims are not read", at)


def _overcommit(their: TheirPlugin, draft: Draft) -> None:
    if not their.has("enableJobEnqueued"):
        draft.tell("overcommit was left out: enableJobEnqueued is off", their.name)
        return
    factor = their.arguments.number("overcommit-factor", 1.2)
    if factor < 1:
        draft.tell(f"overcommit: a factor of {factor:g} is below 1; Volcano takes 1.2 instead, and so does this policy", their.name)
        factor = 1.2
    draft.use("overcommit", factor=factor)


# -- where they may go -------------------------------------------------------------------------------------------------------------


def _predicates(their: TheirPlugin, draft: Draft) -> None:
    if not their.has("enablePredicate"):
        draft.tell("predicates was left out: enablePredicate is off", their.name)
        return
    draft.use("unschedulable")
    for key, plugin in _FILTERS.items():
        if their.arguments.is_on(key, default=True):
            draft.use(plugin)
    for key in their.arguments:
        if key in _OTHER_FILTERS and _is_unusual(their, key):
            draft.tell(f"predicates: {key} has no counterpart: {_OTHER_FILTERS[key]}", their.arguments.at(key))
        elif key not in _FILTERS and key not in _OTHER_FILTERS:
            _unknown_argument(their, key, [*_FILTERS, *_OTHER_FILTERS], draft)
    their.asked.update(_EVICTION_FLAGS)


def _is_unusual(their: TheirPlugin, key: str) -> bool:
    """Worth a word: a filter that was switched off, or an extra that was switched on."""
    usually = key in ("predicate.NodeVolumeLimitsEnable", "predicate.VolumeZoneEnable")
    return their.arguments.is_on(key, default=usually) != usually


def _deviceshare(their: TheirPlugin, draft: Draft) -> None:
    """What of it is switched on counts what is left of each device, whatever the dialect."""
    given = their.arguments
    if not their.has("enablePredicate") or not [key for key in _DEVICES if given.is_on(key, default=False)]:
        draft.tell("deviceshare was left out: nothing of it that there is here is switched on", their.name)
        return
    spreads = given.get(_DEVICE_POLICY).text == "spread"
    draft.use("devices", **({"strategy": "spread"} if spreads else {}))
    for key in given:
        if key not in (*_DEVICES, _DEVICE_POLICY):
            draft.tell(f"deviceshare: {key} has no counterpart", given.at(key))


def _network_topology(their: TheirPlugin, draft: Draft) -> None:
    if not their.has_any("enabledHyperNodeGradient", "enabledHyperNodeOrder", "enableNodeOrder"):
        draft.tell("network-topology-aware was left out: all of it is switched off", their.name)
        return
    given = their.arguments
    draft.use("topology")
    weight = given.number("weight", 1)
    if weight > 0:
        draft.score("topology", weight, _weights(their, "hypernode.binpack", draft))
    else:
        draft.use("topology", weight=0)
    if "hypernode.gradient.evict.max-hypernodes" in given:
        draft.use("topology", evictDomains=max(1, int(given.number("hypernode.gradient.evict.max-hypernodes", 8))))
    if given.is_on("hypernode.binpack.normal-pod.enable", default=True):
        why = "pods that wish for no topology are placed without a look at HyperNodes"
        draft.tell(f"network-topology-aware: hypernode.binpack.normal-pod has no counterpart: {why}", their.name)


# -- which node is best ------------------------------------------------------------------------------------------------------------


def _nodeorder(their: TheirPlugin, draft: Draft) -> None:
    if not their.has("enableNodeOrder"):
        draft.tell("nodeorder was left out: enableNodeOrder is off", their.name)
        return
    given = their.arguments
    draft.score("spread", given.number("leastrequested.weight", 1), EVEN)
    draft.score("binpack", given.number("mostrequested.weight", 0), EVEN)
    for key, default, plugin in _SCORES:
        draft.score(plugin, given.number(key, default))
    draft.spread_weight = max(0.0, given.number("podtopologyspread.weight", 2))
    lost = [key for key, default in _NO_SCORES if given.number(key, default)]
    if lost:
        draft.tell(f"nodeorder: {' and '.join(lost)} {'have' if len(lost) > 1 else 'has'} no counterpart", their.name)
    known = ["leastrequested.weight", "mostrequested.weight", "podtopologyspread.weight"]
    known += [key for key, *_ in (*_SCORES, *_NO_SCORES)]
    for key in given:
        if key not in known:
            _unknown_argument(their, key, known, draft)


def _binpack(their: TheirPlugin, draft: Draft) -> None:
    if not their.has("enableNodeOrder"):
        draft.tell("binpack was left out: enableNodeOrder is off", their.name)
        return
    draft.score("binpack", their.arguments.number("binpack.weight", 1), _weights(their, "binpack", draft))


def _weights(their: TheirPlugin, prefix: str, draft: Draft) -> dict[str, float]:
    """What each resource counts: CPU and memory, and those that are named beside them."""
    given = their.arguments
    weights = {CPU: _at_least_zero(their, f"{prefix}.cpu", draft), MEMORY: _at_least_zero(their, f"{prefix}.memory", draft)}
    for name in given.names(f"{prefix}.resources"):
        if _is_resource(name):
            weights[name] = _at_least_zero(their, f"{prefix}.resources.{name}", draft)
        else:
            draft.tell(f"{their.name.text}: {shown(name)} is no resource and was left out", given.at(f"{prefix}.resources"))
    return weights


def _at_least_zero(their: TheirPlugin, key: str, draft: Draft) -> float:
    weight = their.arguments.number(key, 1)
    if weight >= 0:
        return weight
    draft.tell(f"{their.name.text}: {key} is negative; Volcano takes 1 instead, and so does this policy", their.arguments.at(key))
    return 1.0


def _is_resource(name: str) -> bool:
    """Resources of Kubernetes itself have plain names; all others have a domain before theirs."""
    return name in (CPU, MEMORY, PODS, "ephemeral-storage") or "/" in name or name.startswith("hugepages-")


def _resource_strategy_fit(their: TheirPlugin, draft: Draft) -> None:
    """Resources of which nodes are filled up make one score, those of which nodes are kept free another."""
    if not their.has("enableNodeOrder"):
        draft.tell("resource-strategy-fit was left out: enableNodeOrder is off", their.name)
        return
    given = their.arguments
    weight = given.number("resourceStrategyFitWeight", 10)
    strategies = _strategies(their, draft)
    total = sum(part for _, part in strategies.values()) or 1.0
    for plugin in ("binpack", "spread"):
        parts = {name: part for name, (ours, part) in strategies.items() if ours == plugin}
        draft.score(plugin, round(weight * sum(parts.values()) / total, 6), parts)
    for key in ("sra", "proportional"):
        if given.get(key).mapping:
            draft.tell(f"resource-strategy-fit: {key} has no counterpart", given.at(key))


def _strategies(their: TheirPlugin, draft: Draft) -> dict[str, tuple[str, float]]:
    found: dict[str, tuple[str, float]] = {}
    written = their.arguments.get("resources")
    entries = written.mapping or {name: Marked({"type": Marked("LeastAllocated")}) for name in EVEN}
    for name, each in entries.items():
        kind, weight = each.mapping.get("type", Marked("")), each.mapping.get("weight", Marked(1)).value
        if "*" in name or not _is_resource(name):
            draft.tell(f"resource-strategy-fit: {name} has no counterpart: name each resource", written.keys[name])
        elif isinstance(weight, bool) or not isinstance(weight, int | float) or weight < 0:
            fault = f"the weight of {name} must be a number of at least 0"
            their.arguments.faults.add(each, fault, field=f"{their.arguments.where}.resources.{name}.weight")
        else:
            found[name] = ("binpack" if kind.value == "MostAllocated" else "spread", float(weight))
    return found


# -- who may be evicted ------------------------------------------------------------------------------------------------------------


def _conformance(their: TheirPlugin, draft: Draft) -> None:
    draft.use("conformance")
    their.asked.update(_EVICTION_FLAGS)


def _pdb(their: TheirPlugin, draft: Draft) -> None:
    draft.use("pdb")
    their.asked.update((*_EVICTION_FLAGS, "enabledVictim"))


def _cdp(their: TheirPlugin, draft: Draft) -> None:
    draft.use("min_runtime", seconds=60)
    draft.tell("cdp became min_runtime: one time for all pods; volcano.sh/cooldown-time on pods is not read", their.name)
    their.asked.update(_EVICTION_FLAGS)


# -- all of them -------------------------------------------------------------------------------------------------------------------

_ON = Marked(True)
_EVICTION_FLAGS = ("enablePreemptable", "enableReclaimable", "enableJobStarving")
_QUEUE_FLAGS = (
    "enableQueueOrder",
    "enableReclaimable",
    "enablePreemptive",
    "enabledAllocatable",
    "enabledOverused",
    "enableJobEnqueued",
)

RULES: Mapping[str, Callable[[TheirPlugin, Draft], None]] = {
    "priority": _priority,
    "gang": _gang,
    "conformance": _conformance,
    "drf": _drf,
    "proportion": _proportion,
    "capacity": _capacity,
    "overcommit": _overcommit,
    "predicates": _predicates,
    "nodeorder": _nodeorder,
    "binpack": _binpack,
    "resource-strategy-fit": _resource_strategy_fit,
    "network-topology-aware": _network_topology,
    "deviceshare": _deviceshare,
    "pdb": _pdb,
    "cdp": _cdp,
}


def _unknown_argument(their: TheirPlugin, key: str, known: list[str], draft: Draft) -> None:
    near = nearest(key, known)
    hint = f"; did you mean {near!r}?" if near else ""
    draft.tell(f"{their.name.text}: unknown argument {shown(key)} was left out{hint}", their.arguments.at(key))


def _whole(number: float) -> float | int:
    return int(number) if number == int(number) else number


def _settle(conf: TheirConf, draft: Draft) -> None:
    """What depends on two plugins: a score of one with a filter of the other, and what makes no sense together."""
    if draft.spread_weight and not draft.uses("spread_constraints"):
        draft.tell("spread_constraints, for nodeorder's podtopologyspread, also keeps the constraints that must hold")
    if draft.spread_weight or draft.uses("spread_constraints"):
        draft.use("spread_constraints", weight=_whole(draft.spread_weight))
    if draft.uses("binpack") and draft.uses("spread"):
        if all(draft.option("binpack", key) == draft.option("spread", key) for key in ("weight", "resources")):
            draft.drop("spread")
            draft.tell("binpack and nodeorder's leastrequested cancel each other out in Volcano; this policy keeps binpack alone")
    if draft.uses("proportion") and draft.uses("capacity"):
        kept, dropped = sorted(("proportion", "capacity"), key=lambda name: -_parts_on(conf, name))
        draft.drop(dropped)
        draft.tell(
            f"proportion and capacity both say what a queue deserves; this policy keeps {kept}, of which more is switched on"
        )


def _parts_on(conf: TheirConf, name: str) -> int:
    their = conf.plugin(name)
    return 0 if their is None else sum(their.has(flag) for flag in _QUEUE_FLAGS)
