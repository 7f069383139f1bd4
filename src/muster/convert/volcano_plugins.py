"""Plugin by plugin: the counterpart of each of Volcano's, and a note where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from muster.convert.policy_draft import NoteRank, PolicyDraft, as_int
from muster.convert.volcano_conf import VolcanoConf, VolcanoPlugin
from muster.engine.policy_settings import DEFAULT_SETTINGS
from muster.kube.read.text_values import BadText, read_duration
from muster.model.resource_amounts import CPU, MEMORY, is_resource_name
from muster.yaml_positions import YamlValue, quoted

EQUAL_WEIGHTS: Mapping[str, float] = {CPU: 1.0, MEMORY: 1.0}

# Volcano's switches for its filters, and the plugin that does the same.
_FILTERS = {
    "predicate.NodeAffinityEnable": "selectors",
    "predicate.TaintTolerationEnable": "taints",
    "predicate.NodePortsEnable": "ports",
    "predicate.PodAffinityEnable": "pod-affinity",
    "predicate.PodTopologySpreadEnable": "spread-constraints",
    "predicate.VolumeBindingEnable": "volumes",
}
_OTHER_FILTERS = {
    "predicate.NodeVolumeLimitsEnable": "volumes checks all that a volume needs of its node",
    "predicate.VolumeZoneEnable": "volumes checks all that a volume needs of its node",
    "predicate.CacheEnable": "what is cached does not change a decision",
    "predicate.GPUSharingEnable": "name the plugin devices for devices that several pods share",
    "predicate.ProportionalEnable": "keeping capacity free in proportion has no counterpart",
    "predicate.DynamicResourceAllocationEnable": "ResourceClaims are not read",
}
_DEVICES = ("deviceshare.VGPUEnable", "deviceshare.GPUSharingEnable", "deviceshare.GPUNumberEnable")
_DEVICE_POLICY = "deviceshare.SchedulePolicy"
# The scores of nodeorder: Volcano's weight for each, and the plugin that does the same; none where there is no such plugin.
_SCORES = (
    ("nodeaffinity.weight", 2, "node-affinity-preference"),
    ("podaffinity.weight", 2, "pod-affinity-preference"),
    ("tainttoleration.weight", 3, "taint-preference"),
)
_UNSUPPORTED_SCORES = (("balancedresource.weight", 1), ("imagelocality.weight", 1))

_SLA = "a long wait does not change the order; nodes are kept for a gang after reserveAfterSeconds"
_WAITING_TIME = "sla-waiting-time"

UNSUPPORTED: Mapping[str, str] = {
    "extender": "an HTTP extender is not called; write a plugin in Python instead",
    "nodegroup": "queues are not tied to groups of nodes; use node selectors, or taints and tolerations",
    "numaaware": "where on a node a pod's CPUs lie is left to the kubelet",
    "rescheduling": "running pods are not moved for balance; the action consolidate moves them for a gang that waits",
    "reservation": "nodes are kept for the first gang of each queue that has waited longer than reserveAfterSeconds",
    "resourcequota": "namespace quotas are enforced by the API server when pods are made; PodGroups do not wait for them",
    "sla": _SLA,
    "task-topology": "roles have no affinity to each other; use pod affinity",
    "tdm": "nodes that are shared by time of day are not supported",
    "usage": "the real usage of nodes is not read, only what pods request",
}


def convert_plugins(conf: VolcanoConf, draft: PolicyDraft) -> None:
    draft.use("fit")
    for their in conf.plugins:
        _convert(their, draft)
    draft.use("nominated")
    if conf.plugin("gang") is None:
        draft.add_note("plugin gang is missing: Volcano starts members one by one, but here a gang starts whole or not at all")
    _resolve_conflicts(conf, draft)


def _convert(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    name = their.name.text
    if name == "sla" and _WAITING_TIME in their.arguments:
        _sla(their, draft)
    if name in UNSUPPORTED:
        draft.add_note(f"plugin {name} has no counterpart: {UNSUPPORTED[name]}", their.name)
        return
    rule = CONVERTERS.get(name)
    if rule is None:
        draft.note_unknown("unknown plugin", their.name, [*CONVERTERS, *UNSUPPORTED])
        return
    if rule.needs_one_of and not their.any_enabled(*rule.needs_one_of):
        why = f"{rule.needs_one_of[0]} is off" if len(rule.needs_one_of) == 1 else "all of it is switched off"
        draft.add_note(f"{name} was left out: {why}", their.name, rank=NoteRank.IGNORED)
        return
    their.checked_flags.update(rule.ignored_flags)
    rule.convert(their, draft)
    for flag, given in their.flags.items():
        if given.value is False and flag not in their.checked_flags:
            draft.add_note(f"{name}: {flag}: false has no counterpart and was left out", given)


# -- who goes first ----------------------------------------------------------------------------------------------------------------


def _priority(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    if their.is_enabled("enableJobOrder"):
        draft.use("priority")
    else:
        draft.add_note("priority: enableJobOrder is off, so gangs are ordered by creation", their.name)
    if their.flags.get("enableTaskOrder", _TRUE).value is False:
        their.checked_flags.add("enableTaskOrder")
        draft.add_note("priority: enableTaskOrder: false: members of a gang are still ordered by their priority", their.name)


def _gang(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    draft.add_note("plugin gang is no plugin here: gangs are always scheduled whole", their.name, rank=NoteRank.SAME)
    given = their.flags.get("enableJobReady", _TRUE)
    if given.value is False:
        draft.add_note("gang: enableJobReady: false has no counterpart: a gang starts whole or not at all", given)


def _drf(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    if their.is_enabled("enableHierarchy"):
        draft.use("drf")
        draft.add_note(
            "drf: queues form a tree by their spec.parent; the annotations volcano.sh/hierarchy are not read", their.name
        )
    else:
        why = "gangs of one queue are ordered by priority and creation, whatever share each of them has"
        draft.add_note(f"drf without enableHierarchy has no counterpart: {why}", their.name)


def _proportion(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    strict = their.any_enabled("enabledAllocatable", "enabledOverused")
    draft.use("proportion", **({"strict": True} if strict else {}))


def _capacity(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    draft.use("capacity")
    if their.arguments.number("ancestorReclaimLevel", 0):
        why = "two queues are always compared just below the ancestor that they have in common"
        draft.add_note(f"capacity: ancestorReclaimLevel has no counterpart: {why}", their.arguments.at("ancestorReclaimLevel"))
    if "capacity.DynamicResourceAllocationEnable" in their.arguments:
        at = their.arguments.at("capacity.DynamicResourceAllocationEnable")
        draft.add_note("capacity: quotas of device classes have no counterpart: ResourceClaims are not read", at)


def _sla(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    """The wait after which a job goes first there is the one after which nodes are kept for it here."""
    at = their.arguments.get(_WAITING_TIME)
    try:
        seconds = read_duration(at.text)
    except BadText as bad:
        kept = f"nodes are kept after {DEFAULT_SETTINGS.reserve_after_s:.0f} s"
        draft.add_note(f"sla: {_WAITING_TIME} {quoted(at.text)} {bad}; {kept}", at)
        return
    draft.settings["reserveAfterSeconds"] = as_int(seconds or 0.0)


def _overcommit(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    factor = their.arguments.number("overcommit-factor", 1.2)
    if factor < 1:
        draft.add_note(
            f"overcommit: a factor of {factor:g} is below 1; Volcano takes 1.2 instead, and so does this policy",
            their.name,
            rank=NoteRank.SAME,
        )
        factor = 1.2
    draft.use("overcommit", factor=factor)


# -- where they may go -------------------------------------------------------------------------------------------------------------


def _predicates(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    draft.use("unschedulable")
    for key, plugin in _FILTERS.items():
        if their.arguments.is_enabled(key, default=True):
            draft.use(plugin)
    for key in their.arguments:
        if key in _OTHER_FILTERS and _differs_from_default(their, key):
            draft.add_note(f"predicates: {key} has no counterpart: {_OTHER_FILTERS[key]}", their.arguments.at(key))
        elif key not in _FILTERS and key not in _OTHER_FILTERS:
            draft.note_unknown("predicates: unknown argument", their.arguments.at(key), [*_FILTERS, *_OTHER_FILTERS])


def _differs_from_default(their: VolcanoPlugin, key: str) -> bool:
    """Needs a note: a filter that was switched off, or an extra that was switched on."""
    usually = key in ("predicate.NodeVolumeLimitsEnable", "predicate.VolumeZoneEnable")
    return their.arguments.is_enabled(key, default=usually) != usually


def _deviceshare(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    """What of it is switched on counts what is free of each device, whatever the API flavour."""
    given = their.arguments
    if not their.is_enabled("enablePredicate") or not [key for key in _DEVICES if given.is_enabled(key, default=False)]:
        draft.add_note(
            "deviceshare was left out: no part of it that is supported is switched on", their.name, rank=NoteRank.IGNORED
        )
        return
    spreads = given.get(_DEVICE_POLICY).text == "spread"
    draft.use("devices", **({"strategy": "spread"} if spreads else {}))
    for key in given:
        if key not in (*_DEVICES, _DEVICE_POLICY):
            draft.add_note(f"deviceshare: {key} has no counterpart", given.at(key))


def _network_topology(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    given = their.arguments
    draft.use("topology")
    weight = given.number("weight", 1)
    if weight > 0:
        draft.score("topology", weight, _weights(their, "hypernode.binpack", draft))
    else:
        draft.use("topology", weight=0)
    if "hypernode.gradient.evict.max-hypernodes" in given:
        draft.settings["maxEvictDomains"] = max(1, int(given.number("hypernode.gradient.evict.max-hypernodes", 8)))
    if given.is_enabled("hypernode.binpack.normal-pod.enable", default=True):
        why = "pods without a topology constraint are placed without regard to HyperNodes"
        draft.add_note(f"network-topology-aware: hypernode.binpack.normal-pod has no counterpart: {why}", their.name)


# -- which node is best ------------------------------------------------------------------------------------------------------------


def _nodeorder(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    given = their.arguments
    draft.score("spread", given.number("leastrequested.weight", 1), EQUAL_WEIGHTS)
    draft.score("binpack", given.number("mostrequested.weight", 0), EQUAL_WEIGHTS)
    for key, default, plugin in _SCORES:
        draft.score(plugin, given.number(key, default))
    draft.spread_weight = max(0.0, given.number("podtopologyspread.weight", 2))
    lost = [key for key, default in _UNSUPPORTED_SCORES if given.number(key, default)]
    if lost:
        draft.add_note(f"nodeorder: {' and '.join(lost)} {'have' if len(lost) > 1 else 'has'} no counterpart", their.name)
    known = ["leastrequested.weight", "mostrequested.weight", "podtopologyspread.weight"]
    known += [key for key, *_ in (*_SCORES, *_UNSUPPORTED_SCORES)]
    for key in given:
        if key not in known:
            draft.note_unknown("nodeorder: unknown argument", given.at(key), known)


def _binpack(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    draft.score("binpack", their.arguments.number("binpack.weight", 1), _weights(their, "binpack", draft))


def _weights(their: VolcanoPlugin, prefix: str, draft: PolicyDraft) -> dict[str, float]:
    """What each resource counts: CPU and memory, and those that are named beside them."""
    given = their.arguments
    weights = {CPU: _non_negative(their, f"{prefix}.cpu", draft), MEMORY: _non_negative(their, f"{prefix}.memory", draft)}
    for name in given.names(f"{prefix}.resources"):
        if is_resource_name(name):
            weights[name] = _non_negative(their, f"{prefix}.resources.{name}", draft)
        else:
            draft.add_note(f"{their.name.text}: {quoted(name)} is no resource and was left out", given.at(f"{prefix}.resources"))
    return weights


def _non_negative(their: VolcanoPlugin, key: str, draft: PolicyDraft) -> float:
    weight = their.arguments.number(key, 1)
    if weight >= 0:
        return weight
    draft.add_note(
        f"{their.name.text}: {key} is negative; Volcano takes 1 instead, and so does this policy",
        their.arguments.at(key),
        rank=NoteRank.SAME,
    )
    return 1.0


def _resource_strategy_fit(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    """Resources of which nodes are filled up make one score, those of which nodes are kept free another."""
    given = their.arguments
    weight = given.number("resourceStrategyFitWeight", 10)
    strategies = _strategies(their, draft)
    total = sum(part for _, part in strategies.values()) or 1.0
    for plugin in ("binpack", "spread"):
        parts = {name: part for name, (ours, part) in strategies.items() if ours == plugin}
        draft.score(plugin, round(weight * sum(parts.values()) / total, 6), parts)
    for key in ("sra", "proportional"):
        if given.get(key).mapping:
            draft.add_note(f"resource-strategy-fit: {key} has no counterpart", given.at(key))


def _strategies(their: VolcanoPlugin, draft: PolicyDraft) -> dict[str, tuple[str, float]]:
    found: dict[str, tuple[str, float]] = {}
    written = their.arguments.get("resources")
    entries = written.mapping or {name: YamlValue({"type": YamlValue("LeastAllocated")}) for name in EQUAL_WEIGHTS}
    for name, each in entries.items():
        kind, weight = each.mapping.get("type", YamlValue("")), each.mapping.get("weight", YamlValue(1)).value
        if "*" in name or not is_resource_name(name):
            draft.add_note(f"resource-strategy-fit: {name} has no counterpart: name each resource", written.keys[name])
        elif isinstance(weight, bool) or not isinstance(weight, int | float) or weight < 0:
            fault = f"the weight of {name} must be a number of at least 0"
            their.arguments.faults.add(each, fault, field=f"{their.arguments.where}.resources.{name}.weight")
        else:
            found[name] = ("binpack" if kind.value == "MostAllocated" else "spread", float(weight))
    return found


# -- who may be evicted ------------------------------------------------------------------------------------------------------------


def _cdp(their: VolcanoPlugin, draft: PolicyDraft) -> None:
    draft.use("min-runtime", seconds=60)
    draft.add_note("cdp became min-runtime: one time for all pods; volcano.sh/cooldown-time on pods is not read", their.name)


# -- all of them -------------------------------------------------------------------------------------------------------------------

_TRUE = YamlValue(True)
_EVICTION_FLAGS = ("enablePreemptable", "enableReclaimable", "enableJobStarving")
_QUEUE_FLAGS = (
    "enableQueueOrder",
    "enableReclaimable",
    "enablePreemptive",
    "enabledAllocatable",
    "enabledOverused",
    "enableJobEnqueued",
)


@dataclass(frozen=True, slots=True)
class Converter:
    """What a plugin becomes. It has no effect unless one of `needs_one_of` is on; `ignored_flags` make no difference here."""

    convert: Callable[[VolcanoPlugin, PolicyDraft], None]
    needs_one_of: tuple[str, ...] = ()
    ignored_flags: tuple[str, ...] = ()


CONVERTERS: Mapping[str, Converter] = {
    "priority": Converter(_priority, ignored_flags=_EVICTION_FLAGS),
    "gang": Converter(_gang, ignored_flags=(*_EVICTION_FLAGS, "enableJobReady")),
    "conformance": Converter(lambda _, draft: draft.use("conformance"), ignored_flags=_EVICTION_FLAGS),
    "drf": Converter(_drf, ignored_flags=(*_EVICTION_FLAGS, "enableJobOrder", "enableQueueOrder")),
    "proportion": Converter(_proportion, _QUEUE_FLAGS),
    "capacity": Converter(_capacity, _QUEUE_FLAGS, ("enableHierarchy",)),
    "overcommit": Converter(_overcommit, ("enableJobEnqueued",)),
    "predicates": Converter(_predicates, ("enablePredicate",), _EVICTION_FLAGS),
    "nodeorder": Converter(_nodeorder, ("enableNodeOrder",)),
    "binpack": Converter(_binpack, ("enableNodeOrder",)),
    "resource-strategy-fit": Converter(_resource_strategy_fit, ("enableNodeOrder",)),
    "network-topology-aware": Converter(
        _network_topology, ("enabledHyperNodeGradient", "enabledHyperNodeOrder", "enableNodeOrder")
    ),
    "deviceshare": Converter(_deviceshare),
    "pdb": Converter(lambda _, draft: draft.use("pdb"), ignored_flags=(*_EVICTION_FLAGS, "enabledVictim")),
    "cdp": Converter(_cdp, ignored_flags=_EVICTION_FLAGS),
}


def _resolve_conflicts(conf: VolcanoConf, draft: PolicyDraft) -> None:
    """What depends on two plugins: a score of one with a filter of the other, and what excludes each other."""
    if draft.spread_weight and not draft.uses("spread-constraints"):
        draft.add_note("spread-constraints, for nodeorder's podtopologyspread, also enforces DoNotSchedule constraints")
    if draft.spread_weight or draft.uses("spread-constraints"):
        draft.use("spread-constraints", weight=as_int(draft.spread_weight))
    if draft.uses("binpack") and draft.uses("spread"):
        if all(draft.option("binpack", key) == draft.option("spread", key) for key in ("weight", "resources")):
            draft.drop("spread")
            draft.add_note(
                "binpack and nodeorder's leastrequested cancel each other out in Volcano; this policy keeps binpack alone"
            )
    if draft.uses("proportion") and draft.uses("capacity"):
        kept, dropped = sorted(("proportion", "capacity"), key=lambda name: -_enabled_parts(conf, name))
        draft.drop(dropped)
        draft.add_note(
            f"proportion and capacity both define what a queue deserves; this policy keeps {kept}, of which more is switched on"
        )


def _enabled_parts(conf: VolcanoConf, name: str) -> int:
    their = conf.plugin(name)
    return 0 if their is None else sum(their.is_enabled(flag) for flag in _QUEUE_FLAGS)
