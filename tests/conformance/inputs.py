"""A case as events and a policy of ours: Volcano's conventions, as far as they are no concern of the core, are met here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

import yaml
from tests.conformance.corpus import Case, Json, annotations_of, meta_of, name_of, spec_of
from tests.conformance.emulated import emulated_plugins

from muster.config import load_policy
from muster.convert import convert
from muster.convert.volcano_conf import FLAGS
from muster.engine.hooks import Policy
from muster.kube.read.decoder import Decoder
from muster.kube.read.names import DEFAULT_SCHEDULER
from muster.model.events import ClusterObject, Event, Upsert
from muster.model.gang import PodGroup
from muster.model.node import Node
from muster.model.pod import Pod
from muster.model.resource_amounts import PODS, Resources
from muster.model.topology_spec import DomainMember, DomainSpec

TASK_PRIORITY = "volcano.sh/task-priority"
GROUP_NAME = "scheduling.k8s.io/group-name"

# Volcano reads a pod without a priority as 1, a PodGroup without a class as 0.
_POD_PRIORITY = 1
_JOB_PRIORITY = 0
_PLENTY_OF_PODS = 1_000_000

_EVICTING = frozenset({"preempt", "reclaim", "gangpreempt", "gangreclaim"})

# Objects that others refer to come first, so that one round of events is enough. An object that does not say what it is, is what
# the case lists it as.
_KINDS = {
    "priorityclasses": ("scheduling.k8s.io/v1", "PriorityClass"),
    "queues": ("scheduling.volcano.sh/v1beta1", "Queue"),
    "hypernodes": ("topology.volcano.sh/v1alpha1", "HyperNode"),
    "storageclasses": ("storage.k8s.io/v1", "StorageClass"),
    "persistentvolumes": ("v1", "PersistentVolume"),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim"),
    "nodes": ("v1", "Node"),
    "podgroups": ("scheduling.volcano.sh/v1beta1", "PodGroup"),
    "pods": ("v1", "Pod"),
}


def policy_of(case: Case) -> Policy:
    converted = convert(yaml.safe_dump(conf_of(case))).text
    emulated = emulated_plugins(case)
    if not emulated:
        return load_policy(converted)
    written = yaml.safe_load(converted)
    return load_policy(yaml.safe_dump({**written, "plugins": [*written["plugins"], *emulated]}))


def conf_of(case: Case) -> Json:
    """The case's plugins and actions as Volcano's configuration file would say it."""
    tiers = [
        {"plugins": [_plugin(plugin) for plugin in tier if plugin.get("registered", True) and not plugin.get("custom")]}
        for tier in case.written.get("plugins") or ()
    ]
    conf: Json = {"actions": ", ".join(case.actions or ["allocate"]), "tiers": tiers}
    if case.written.get("configurations"):
        conf["configurations"] = case.written["configurations"]
    return conf


def _plugin(written: Json) -> Json:
    """A case names what is on; the file would have to name what is off."""
    return {
        "name": written["name"],
        **dict.fromkeys(FLAGS, False),
        **(written.get("enabled") or {}),
        "arguments": written.get("arguments") or {},
    }


def events_of(case: Case) -> list[Event]:
    return [Upsert(thing) for thing in objects_of(case)]


def objects_of(case: Case) -> Iterator[ClusterObject]:
    decoder = Decoder((DEFAULT_SCHEDULER,))
    classes = {name_of(each): int(each.get("value") or 0) for each in case.objects("priorityclasses")}
    not_admitted = set(_ignored_groups(case))
    for kind, (version, name) in _KINDS.items():
        # Without a name an object is none that a server could have.
        for written in filter(name_of, case.objects(kind)):
            if kind == "pods" and _key_of_group(written) in not_admitted and not spec_of(written).get("nodeName"):
                continue
            known = {key: value for key, value in written.items() if value}
            thing = decoder.decode({"apiVersion": version, "kind": name, **known})
            if thing is not None:
                yield _adapted(case, thing, written, classes)


def _adapted(case: Case, thing: ClusterObject, written: Json, classes: dict[str, int]) -> ClusterObject:
    match thing:
        case Pod():
            return replace(thing, priority=pod_priority(written, _class_value(case, written, classes)))
        case PodGroup():
            group = replace(thing, priority=classes.get(thing.priority_class, _JOB_PRIORITY))
            return replace(group, min_member=1, role_mins=()) if _starts_pod_by_pod(case, group) else group
        case Node() if thing.allocatable.get(PODS) is None:
            # Volcano reads this as a node without a bound on pods, unless its predicates look at it.
            return replace(thing, allocatable=Resources.of({**dict(thing.allocatable.items), PODS: _PLENTY_OF_PODS}))
        case DomainSpec() if thing.name in (case.written.get("hypernode_nodes") or {}):
            names = cast(Iterable[str], case.written["hypernode_nodes"][thing.name])
            return replace(thing, members=tuple(DomainMember(is_node=True, exact=name) for name in names))
    return thing


def _starts_pod_by_pod(case: Case, group: PodGroup) -> bool:
    """Without that part of its gang plugin, Volcano binds members as it finds capacity, once the PodGroup has enough of them."""
    if case.has("gang", "enableJobReady") or not _EVICTING.isdisjoint(case.actions) or case.is_probe:
        return False
    pods = sum(_key_of_group(pod) == group.full_name for pod in case.objects("pods"))
    return case.plugin("gang") is None or pods >= group.min_member


def _class_value(case: Case, pod: Json, classes: dict[str, int]) -> int | None:
    """The priority of the pod's PodGroup, if that has a class."""
    for group in case.objects("podgroups"):
        if f"{meta_of(group).get('namespace') or 'default'}/{name_of(group)}" == _key_of_group(pod):
            return classes.get(spec_of(group).get("priorityClassName", ""))
    return None


def pod_priority(written: Json, class_value: int | None) -> int:
    """Pods of the corpus have no class of their own: whoever has no priority has that of its PodGroup, as a Job of Volcano gives
    it to its pods."""
    said = annotations_of(written).get(TASK_PRIORITY)
    if said is not None:
        return int(said)
    priority = spec_of(written).get("priority")
    if priority is not None:
        return int(priority)
    return _POD_PRIORITY if class_value is None else class_value


def _key_of_group(pod: Json) -> str:
    return f"{meta_of(pod).get('namespace') or 'default'}/{annotations_of(pod).get(GROUP_NAME, '')}"


def _ignored_groups(case: Case) -> Iterator[str]:
    """PodGroups whose pods no action looks at: of queues that do not exist, and those that only enqueue would have let in."""
    yield from case.written.get("not_in_session") or ()
    if {"enqueue", "allocate"}.isdisjoint(case.actions) and not case.is_probe:
        for group in case.objects("podgroups"):
            if (group.get("status") or {}).get("phase", "") in ("", "Pending"):
                yield f"{meta_of(group).get('namespace') or 'default'}/{name_of(group)}"
