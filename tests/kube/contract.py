"""What two clusters must agree on: what was decided in each cycle, and what stands on the objects in the end.

UIDs differ from cluster to cluster, so they are read as the names of their pods.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from tests.harness.live_harness import LiveHarness
from tests.scenario_files import SCENARIO_DIR, all_scenarios

from muster.kube.read import names
from muster.kube.watch.access import read_access
from muster.kube.write.patch_bodies import POD_SCHEDULED, SCHEDULER_LABELS, VALID
from muster.lab.servers import Servers
from muster.model.effects import DeletePlan, SaveHistory, SavePlan, StateEffect
from muster.scenario import Report, Scenario, run
from muster.scenario.cluster_backend import ClusterBackend
from muster.scenario.loader import policy_of
from muster.scenario.run_report import DecidedEffect

Manifest = dict[str, Any]

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_OWN = frozenset({POD_SCHEDULED, VALID, "Scheduled", "Unschedulable", "PodGroupInitiallyScheduled"})
_WITH_STATUS = ("PodGroup", "Queue", "ElasticQuota")
_VOLUMES = ("PersistentVolumeClaim", "PersistentVolume")


def scenario_of(file: str, name: str) -> Scenario:
    return next(one for path, one in all_scenarios() if path == SCENARIO_DIR / f"{file}.yaml" and one.name == name)


def real_cluster(servers: Servers, scenario: Scenario) -> LiveHarness:
    scheduler_names = policy_of(scenario).settings.scheduler_names
    return LiveHarness(partial(read_access, servers.kubeconfig()), scheduler_names=scheduler_names)


def run_on(scenario: Scenario, cluster: ClusterBackend) -> tuple[Report, Manifest]:
    """How it went, and how the objects read in the end."""
    report = run(scenario, cluster=cluster)
    titles = {getattr(decided.effect, "uid", ""): getattr(decided.effect, "pod", "") for decided in report.decided_effects}
    titles |= {pod["metadata"]["uid"]: _full_name(pod) for pod in cluster.listed("Pod")}
    objects = {
        **{f"Pod {_full_name(pod)}": _pod(pod) for pod in cluster.listed("Pod")},
        **{f"{kind} {_full_name(one)}": _status(one) for kind in _WITH_STATUS for one in cluster.listed(kind)},
        **{f"{kind} {_full_name(one)}": _volume(one) for kind in _VOLUMES for one in cluster.listed(kind)},
    }
    return report, {name: _named(one, titles) for name, one in sorted(objects.items())}


def decision_lines(decided_effects: Iterable[DecidedEffect]) -> list[str]:
    """One line for each decided effect, in order: all of it but what is a cluster's own (UIDs)."""
    return [_line(decided) for decided in decided_effects]


def _line(decided: DecidedEffect) -> str:
    said = _saved(decided.effect) if isinstance(decided.effect, StateEffect) else dataclasses.asdict(decided.effect)
    victims = len(said.pop("victims", ()))
    for own in ("uid", "plan"):
        said.pop(own, None)
    if str(said.get("gang_key", "")).startswith("pod:"):
        # The key of a single pod is its UID.
        said["gang_key"] = "pod"
    more = f" of {victims} victims" if victims else ""
    fields = json.dumps(said, sort_keys=True, default=str)
    return f"cycle {decided.cycle}, {decided.at_s:g} s: {type(decided.effect).__name__}{more} {fields}"


def _saved(effect: StateEffect) -> dict[str, Any]:
    """What is saved, without UIDs: each server draws its own."""
    match effect:
        case SavePlan(plan=plan):
            members = [(member.pod, member.node, member.phase.name) for member in plan.members]
            evictions = [(entry.action, len(entry.victims)) for entry in plan.evictions]
            return {"members": members, "evictions": evictions, "cancelled": len(plan.cancelled)}
        case DeletePlan(gang=gang):
            return {"gang_key": gang}
        case SaveHistory(history=history):
            cancelled = sorted((one.at, one.count) for one in history.cancelled_evictions.values())
            return {"name": history.name, "losses": len(history.losses), "cancelled": cancelled}


# --- Objects ------------------------------------------------------------------------------------------------------------------


def _full_name(one: Manifest) -> str:
    namespace = one["metadata"].get("namespace")
    return f"{namespace}/{one['metadata']['name']}" if namespace else str(one["metadata"]["name"])


def _pod(pod: Manifest) -> Manifest:
    metadata, status = pod["metadata"], pod.get("status") or {}
    return {
        "node": pod["spec"].get("nodeName") or "",
        "nominated": status.get("nominatedNodeName") or "",
        "phase": status.get("phase"),
        "leaves": metadata.get("deletionTimestamp") or "",
        "created": metadata["creationTimestamp"],
        "notes": _only(metadata.get("annotations"), names.WRITTEN_ANNOTATIONS),
        "labels": _only(metadata.get("labels"), SCHEDULER_LABELS),
        "conditions": _conditions(status),
    }


def _status(one: Manifest) -> Manifest:
    status = dict(one.get("status") or {})
    return {**{key: value for key, value in status.items() if key != "conditions"}, "conditions": _conditions(status)}


def _volume(one: Manifest) -> Manifest:
    spec = one.get("spec") or {}
    holder = spec.get("claimRef") or {}
    bound = (one.get("status") or {}).get("phase") == "Bound"
    return {"bound": bound, "volume": spec.get("volumeName") or "", "claim": holder.get("name") or ""}


def _conditions(status: Manifest) -> Manifest:
    """Those that a scheduler writes. That a pod has a node, the server says in words of its own."""
    found = {one["type"]: one for one in status.get("conditions") or [] if one["type"] in _OWN}
    return {
        kind: [one["status"], one["reason"], one["message"]]
        for kind, one in sorted(found.items())
        if (kind, one["status"]) != (POD_SCHEDULED, "True")
    }


def _only(texts: Mapping[str, str] | None, wanted: Iterable[str]) -> dict[str, str]:
    return {key: (texts or {})[key] for key in sorted(wanted) if key in (texts or {})}


def _named(one: Manifest, titles: Mapping[str, str]) -> Manifest:
    text = _UID.sub(lambda uid: titles.get(uid[0], "of nobody"), json.dumps(one))
    read: Manifest = json.loads(text)
    return read
