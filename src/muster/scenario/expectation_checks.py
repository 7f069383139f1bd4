"""Compares expectations with the cluster's pods, and with the scheduler's reservations, nominations and verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from muster.kube.read import names
from muster.kube.read.object_references import Manifest
from muster.model.effects import Bind, Evict, Release
from muster.model.gang import Gang
from muster.model.pod import Phase
from muster.model.resource_amounts import short_name, show_amount
from muster.scenario.cluster_backend import ClusterBackend
from muster.scenario.manifest_builder import SCENARIO_GANG_LABEL, pod_name
from muster.scenario.run_report import DecidedEffect, Mismatch
from muster.scenario.syntax_tree import Check, ExpectStep, GangSpec, NamedObject, PodTarget, Wanted
from muster.state.gangs.gang_stage import stage
from muster.state.world import World

FITS = "Fits"
_GROUP_NAMES = (names.VOLCANO_GROUP_NAME, names.GANG_NAME)
_GROUP_LABELS = (names.SIGS_POD_GROUP, names.X_K8S_POD_GROUP, names.LIGHTWEIGHT_GANG_NAME, SCENARIO_GANG_LABEL)
_MAX_NAMES = 12


class ScenarioState(Protocol):
    """What an expectation is compared with."""

    @property
    def cluster(self) -> ClusterBackend: ...

    @property
    def world(self) -> World: ...

    @property
    def gangs(self) -> dict[str, GangSpec]: ...

    @property
    def decided_effects(self) -> list[DecidedEffect]: ...

    @property
    def cycles(self) -> int: ...


def mismatches(expect: ExpectStep, found: ScenarioState) -> list[Mismatch]:
    """All mismatches, except those of `stable`, which runs further cycles."""
    observed = _ObservedState(found)
    return [difference for check in expect.checks if check.key != "stable" for difference in _CHECKS[check.key](check, observed)]


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """A pod in one of the states that an expectation names. `node` is empty where it has none."""

    title: str
    gang: str
    role: str
    node: str = ""
    is_managed: bool = True


class _ObservedState:
    """The state at this moment, collected once for all checks of a step."""

    def __init__(self, found: ScenarioState) -> None:
        self.found = found
        self.world = found.world

    @cached_property
    def pods(self) -> list[Manifest]:
        return self.found.cluster.listed("Pod")

    @cached_property
    def observed_pods(self) -> dict[str, ObservedPod]:
        """Every pod of the cluster by UID."""
        return {pod["metadata"]["uid"]: _observed_pod(pod) for pod in self.pods}

    def pods_in_state(self, key: str) -> list[ObservedPod]:
        """The pods in this state now."""
        scheduler_states = {Phase.RESERVED: "reserved", Phase.NOMINATED: "nominated"}
        found: list[ObservedPod] = []
        for pod in self.pods:
            uid, placement = pod["metadata"]["uid"], self.world.placements.by_uid.get(pod["metadata"]["uid"])
            state = _state(pod)
            node = pod["spec"].get("nodeName", "")
            if state == "pending" and placement is not None and placement.phase in scheduler_states:
                state, node = scheduler_states[placement.phase], placement.node or ""
            if state == key:
                observed_pod = self.observed_pods[uid]
                found.append(ObservedPod(observed_pod.title, observed_pod.gang, observed_pod.role, node, observed_pod.is_managed))
        return found

    def pods_with_effect(self, kind: type[Evict] | type[Release]) -> list[ObservedPod]:
        """The pods with such an effect since the start, in order. A Release without a node is a timeout that released nothing."""
        return [
            _pod_of_effect(decided.effect)
            for decided in self.found.decided_effects
            if isinstance(decided.effect, kind) and decided.effect.node
        ]

    def members(self, target: PodTarget) -> list[str]:
        """The pods that a name means."""
        if target.pod:
            return [f"{target.namespace}/{target.pod}"]
        spec = self.found.gangs.get(f"{target.namespace}/{target.gang}")
        if spec is not None:
            return [
                f"{spec.namespace}/{pod_name(spec.name, role.name, number)}"
                for role in spec.roles
                if target.role is None or role.name == target.role
                for number in range(role.existing)
            ]
        return [observed_pod.title for observed_pod in self.observed_pods.values() if _matches(target, observed_pod)]

    def gang(self, target: PodTarget) -> Gang | None:
        """The scheduler's gang that a name means: of several, one that waits."""
        title = f"{target.namespace}/{target.gang or target.pod}"
        gangs = self.world.facts.gangs.values()
        found = [gang for gang in gangs if title in gang.full_name.split("+")]
        if not found:
            members = set(self.members(target))
            found = [gang for gang in gangs if any(pod.full_name in members for pod in gang.pods())]
        waiting = [gang for gang in found if gang.key in self.world.placements.unplaced_members]
        return next(iter([*waiting, *found]), None)


def _observed_pod(pod: Manifest) -> ObservedPod:
    metadata = pod["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    said = [annotations.get(name) for name in _GROUP_NAMES] + [labels.get(name) for name in _GROUP_LABELS]
    native = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    gang = next((name for name in (*said, native) if name), "")
    role = annotations.get(names.VOLCANO_TASK) or labels.get(names.VOLCANO_TASK) or ""
    namespace = metadata["namespace"]
    is_managed = pod["spec"].get("schedulerName") == "muster"
    return ObservedPod(f"{namespace}/{metadata['name']}", f"{namespace}/{gang or metadata['name']}", role, is_managed=is_managed)


def _state(pod: Manifest) -> str:
    phase = (pod.get("status") or {}).get("phase")
    if phase in ("Succeeded", "Failed"):
        return "finished"
    if pod["metadata"].get("deletionTimestamp"):
        return "terminating"
    return "bound" if pod["spec"].get("nodeName") else "pending"


def _pod_of_effect(effect: Any) -> ObservedPod:
    return ObservedPod(effect.pod, effect.gang, "", effect.node)


def _matches(target: PodTarget, observed_pod: ObservedPod) -> bool:
    if target.pod:
        return observed_pod.title == f"{target.namespace}/{target.pod}"
    return observed_pod.gang == f"{target.namespace}/{target.gang}" and target.role in (None, observed_pod.role)


# -- pods --------------------------------------------------------------------------------------------------------------------------


def _check_pods_now(check: Check, observed: _ObservedState) -> Iterator[Mismatch]:
    yield from _check_pods(check, observed.pods_in_state(check.key), observed)


def _check_pods_so_far(check: Check, observed: _ObservedState) -> Iterator[Mismatch]:
    observed_pods = observed.pods_with_effect(Evict if check.key == "evicted" else Release)
    yield from _check_pods(check, observed_pods, observed)


def _check_pods(check: Check, observed_pods: list[ObservedPod], observed: _ObservedState) -> Iterator[Mismatch]:
    if check.exact:
        yield from _check_exact(check, observed_pods, observed)
        return
    for wanted in check.wanted:
        assert isinstance(wanted.target, PodTarget)
        matching = _matching(wanted.target, observed_pods, observed)
        what = f"{check.key} of {wanted.target.text}"
        if wanted.count is not None and len(matching) != wanted.count:
            yield Mismatch(what, str(wanted.count), f"{len(matching)}{_names_suffix(matching)}", wanted.line)
        elif wanted.nodes is not None:
            yield from _check_on_nodes(what, wanted, matching)


def _matching(target: PodTarget, observed_pods: Iterable[ObservedPod], observed: _ObservedState) -> list[ObservedPod]:
    members = set(observed.members(target))
    return [observed_pod for observed_pod in observed_pods if observed_pod.title in members or _matches(target, observed_pod)]


def _check_exact(check: Check, observed_pods: list[ObservedPod], observed: _ObservedState) -> Iterator[Mismatch]:
    expected = Counter(
        title for wanted in check.wanted if isinstance(wanted.target, PodTarget) for title in observed.members(wanted.target)
    )
    found = Counter(observed_pod.title for observed_pod in observed_pods if observed_pod.is_managed)
    if expected != found:
        extra, missing = sorted((found - expected).elements()), sorted((expected - found).elements())
        text = "; ".join(f"{word} {_shortened(names)}" for word, names in (("not", missing), ("but also", extra)) if names)
        yield Mismatch(f"{check.key}, exactly", _shortened(sorted(expected.elements())) or "none", text, check.line)


def _check_on_nodes(what: str, wanted: Wanted, matching: list[ObservedPod]) -> Iterator[Mismatch]:
    """A single node is expected of each of them; several nodes are one for each, in any order."""
    found = sorted(observed_pod.node for observed_pod in matching)
    expected = sorted(wanted.nodes or ())
    ok = bool(found) and set(found) == set(expected) if wanted.texts else found == expected
    if not ok:
        yield Mismatch(what, f"on {_shortened(expected)}", f"on {_shortened(found)}" if found else "none", wanted.line)


def _names_suffix(observed_pods: list[ObservedPod]) -> str:
    names = [f"{pod.title} on {pod.node}" if pod.node else pod.title for pod in observed_pods]
    return f": {_shortened(names)}" if names else ""


def _shortened(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def _check_order(check: Check, observed: _ObservedState) -> Iterator[Mismatch]:
    wanted = [wanted.target for wanted in check.wanted if isinstance(wanted.target, PodTarget)]
    seen: dict[str, None] = {}
    for decided in observed.found.decided_effects:
        if isinstance(decided.effect, Bind):
            for target in wanted:
                if decided.effect.pod in observed.members(target):
                    seen[target.text] = None
    expected = [target.text for target in wanted]
    if list(seen) != expected:
        yield Mismatch("bindOrder", ", ".join(expected), ", ".join(seen) or "none", check.line)


def _check_nodes(check: Check, observed: _ObservedState) -> Iterator[Mismatch]:
    bound = observed.pods_in_state("bound")
    for wanted in check.wanted:
        assert isinstance(wanted.target, PodTarget)
        found = sorted({observed_pod.node for observed_pod in _matching(wanted.target, bound, observed)})
        if found != list(wanted.nodes or ()):
            yield Mismatch(
                f"nodes of {wanted.target.text}", _shortened(list(wanted.nodes or ())), _shortened(found) or "none", wanted.line
            )


def _check_devices(check: Check, observed: _ObservedState) -> Iterator[Mismatch]:
    uids = {observed_pod.title: uid for uid, observed_pod in observed.observed_pods.items()}
    for wanted in check.wanted:
        assert isinstance(wanted.target, PodTarget)
        placed = [observed.world.placements.by_uid.get(uids.get(title, "")) for title in observed.members(wanted.target)]
        found = tuple(str(slot.index) for placement in placed if placement is not None for slot in placement.devices)
        if found != wanted.texts:
            expected = ", ".join(wanted.texts) or "none"
            yield Mismatch(f"devices of {wanted.target.text}", expected, ", ".join(found) or "none", wanted.line)


# -- verdicts ----------------------------------------------------------------------------------------------------------------------


def _check_verdicts(check: Check, observed: _ObservedState) -> Iterator[Mismatch]:
    for wanted in check.wanted:
        assert isinstance(wanted.target, PodTarget)
        gang = observed.gang(wanted.target)
        found = _VERDICT_READERS[check.key](gang, observed)
        what = f"{check.key} of {wanted.target.text}"
        if check.key == "why":
            missing = [text for text in wanted.texts if text not in found]
            if missing:
                yield Mismatch(what, " and ".join(repr(text) for text in missing), found or "not waiting", wanted.line)
        elif (wanted.texts[0] if wanted.texts else str(wanted.count)) != found:
            yield Mismatch(what, wanted.texts[0] if wanted.texts else str(wanted.count), found, wanted.line)


def _why(gang: Gang | None, observed: _ObservedState) -> str:
    verdict = observed.world.memory.attempts[gang.key].verdict if gang is not None else None
    return verdict.why if verdict is not None and not verdict.ok else ""


def _code(gang: Gang | None, observed: _ObservedState) -> str:
    verdict = observed.world.memory.attempts[gang.key].verdict if gang is not None else None
    return verdict.code if verdict is not None and not verdict.ok else FITS


def _stage(gang: Gang | None, observed: _ObservedState) -> str:
    return "deleted" if gang is None else stage(observed.world, gang).value


def _attempts(gang: Gang | None, observed: _ObservedState) -> str:
    return str(observed.world.memory.attempts[gang.key].count if gang is not None else 0)


_VERDICT_READERS: dict[str, Callable[[Gang | None, _ObservedState], str]] = {
    "why": _why,
    "code": _code,
    "stage": _stage,
    "attempts": _attempts,
}


def _check_conditions(check: Check, observed: _ObservedState) -> Iterator[Mismatch]:
    for wanted in check.wanted:
        texts = list(_condition_texts(wanted.target, observed))
        what = f"conditions of {wanted.target.text if not isinstance(wanted.target, str) else wanted.target}"
        missing = [text for text in wanted.texts if not any(text in each for each in texts)]
        if missing:
            yield Mismatch(what, " and ".join(repr(text) for text in missing), " | ".join(texts) or "no condition", wanted.line)


def _condition_texts(target: PodTarget | NamedObject | str, observed: _ObservedState) -> Iterator[str]:
    """All conditions on the object, or on the gang's PodGroup and its pods."""
    assert not isinstance(target, str)
    if isinstance(target, NamedObject):
        found = observed.found.cluster.get(target.kind, target.namespace, target.name)
        yield from _conditions_of(found or {})
        return
    for group in observed.found.cluster.listed("PodGroup"):
        if group["metadata"]["name"] == target.gang and group["metadata"]["namespace"] == target.namespace:
            yield from _conditions_of(group)
    for pod in observed.pods:
        if _matches(target, observed.observed_pods[pod["metadata"]["uid"]]):
            yield from _conditions_of(pod)


def _conditions_of(found: Manifest) -> Iterator[str]:
    for one in (found.get("status") or {}).get("conditions") or []:
        yield f"{one.get('type')}={one.get('status')} {one.get('reason', '')}: {one.get('message', '')}"


# -- amounts and counts ------------------------------------------------------------------------------------------------------------


def _check_queues(check: Check, observed: _ObservedState) -> Iterator[Mismatch]:
    ledger, columns = observed.world.ledger, observed.world.columns
    read = {"used": ledger.used, "releasing": ledger.releasing, "nominated": ledger.nominated, "requested": ledger.requested}
    for wanted in check.wanted:
        key = "root" if wanted.target == "root" else f"queue/{wanted.target}"
        for column, amounts in wanted.amounts:
            row = read[column](key).tolist() if key in ledger else [0] * len(columns.names)
            found = dict(zip(columns.names, row, strict=True))
            for name, amount in amounts.items():
                if found.get(name, 0) != amount:
                    what = f"{column} {short_name(name)} of queue {wanted.target}"
                    yield Mismatch(what, show_amount(name, amount), show_amount(name, found.get(name, 0)), wanted.line)


def _check_cycles(check: Check, observed: _ObservedState) -> Iterator[Mismatch]:
    if check.count != observed.found.cycles:
        yield Mismatch("cycles", str(check.count), str(observed.found.cycles), check.line)


def _check_writes(check: Check, observed: _ObservedState) -> Iterator[Mismatch]:
    writes = Counter(write.verb for write in observed.found.cluster.writes)
    if check.count is not None and check.count != writes.total():
        yield Mismatch("writes", str(check.count), f"{writes.total()}: {dict(writes)}", check.line)
    for wanted in check.wanted:
        found = writes[str(wanted.target)]
        if found != wanted.count:
            yield Mismatch(f"writes of {wanted.target}", str(wanted.count), str(found), wanted.line)


_CHECKS: dict[str, Callable[[Check, _ObservedState], Iterator[Mismatch]]] = {
    **dict.fromkeys(("bound", "reserved", "nominated", "pending", "finished"), _check_pods_now),
    **dict.fromkeys(("evicted", "released"), _check_pods_so_far),
    **dict.fromkeys(("why", "code", "stage", "attempts"), _check_verdicts),
    "bindOrder": _check_order,
    "nodes": _check_nodes,
    "devices": _check_devices,
    "conditions": _check_conditions,
    "queues": _check_queues,
    "cycles": _check_cycles,
    "writes": _check_writes,
}
