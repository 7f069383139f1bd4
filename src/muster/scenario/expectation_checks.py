"""Compares expectations with the cluster's pods, and with the scheduler's reservations, nominations and verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from muster.kube.read import names
from muster.kube.read.object_references import Manifest
from muster.model.effects import Bind, Evict, Release
from muster.model.gang import Gang
from muster.model.pod import Phase
from muster.model.resource_amounts import short_name, show_amount
from muster.scenario.cluster_backend import ClusterBackend
from muster.scenario.manifest_builder import SCENARIO_GANG_LABEL
from muster.scenario.run_report import DecidedEffect, Mismatch
from muster.scenario.syntax_tree import Check, ExpectStep, GangSpec, NamedObject, PodTarget, Wanted
from muster.state.gangs.gang_stage import stage
from muster.state.world import World

FITS = "Fits"
_GROUP_NAMES = (names.VOLCANO_GROUP_NAME, names.GANG_NAME)
_GROUP_LABELS = (names.SIGS_POD_GROUP, names.X_K8S_POD_GROUP, names.LIGHTWEIGHT_GANG_NAME, SCENARIO_GANG_LABEL)
_MAX_NAMES = 12
_EFFECTS: dict[str, type[Evict] | type[Release]] = {"evicted": Evict, "released": Release}
_SCHEDULER_STATES = {Phase.RESERVED: "reserved", Phase.NOMINATED: "nominated"}


def mismatches(expect: ExpectStep, observed: ObservedState) -> list[Mismatch]:
    """All mismatches, except those of `stable`, which runs further cycles."""
    return [difference for check in expect.checks if check.key != "stable" for difference in _CHECKS[check.key](check, observed)]


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """A pod in one of the states that an expectation names. `node` is empty where it has none."""

    title: str
    gang: str
    role: str
    node: str = ""
    is_managed: bool = True


@dataclass(frozen=True)
class ObservedState:
    """The state at this moment, for all checks of a step. `gangs` are those of the short form, after all scaling."""

    cluster: ClusterBackend
    world: World
    gangs: dict[str, GangSpec]
    decided_effects: list[DecidedEffect]
    cycles: int

    @cached_property
    def pods(self) -> list[Manifest]:
        return self.cluster.listed("Pod")

    @cached_property
    def observed_pods(self) -> dict[str, ObservedPod]:
        """Every pod of the cluster by UID."""
        return {pod["metadata"]["uid"]: _observed_pod(pod) for pod in self.pods}

    def pods_of(self, key: str) -> list[ObservedPod]:
        """The pods that this key is about: in such a state now, or with such an effect since the start, in order."""
        if key in _EFFECTS:
            effects = [decided.effect for decided in self.decided_effects if isinstance(decided.effect, _EFFECTS[key])]
            # A Release without a node is a timeout that released nothing.
            return [ObservedPod(effect.pod, effect.gang, "", effect.node) for effect in effects if effect.node]
        return [pod for pod, state in map(self._state_of, self.pods) if state == key]

    def _state_of(self, pod: Manifest) -> tuple[ObservedPod, str]:
        """The pod with its node, and its state. Reservations and nominations are known to the scheduler alone."""
        uid = pod["metadata"]["uid"]
        state, node, placement = _state(pod), pod["spec"].get("nodeName", ""), self.world.placements.by_uid.get(uid)
        if state == "pending" and placement is not None and placement.phase in _SCHEDULER_STATES:
            state, node = _SCHEDULER_STATES[placement.phase], placement.node or ""
        return replace(self.observed_pods[uid], node=node), state

    def members(self, target: PodTarget) -> list[str]:
        """The pods that a name means."""
        if target.pod:
            return [f"{target.namespace}/{target.pod}"]
        spec = self.gangs.get(f"{target.namespace}/{target.gang}")
        if spec is not None:
            return [f"{spec.namespace}/{name}" for name in spec.member_names(target.role)]
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
    declared = [annotations.get(name) for name in _GROUP_NAMES] + [labels.get(name) for name in _GROUP_LABELS]
    native = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    gang = next((name for name in (*declared, native) if name), "")
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


def _matches(target: PodTarget, observed_pod: ObservedPod) -> bool:
    if target.pod:
        return observed_pod.title == f"{target.namespace}/{target.pod}"
    return observed_pod.gang == f"{target.namespace}/{target.gang}" and target.role in (None, observed_pod.role)


# -- pods --------------------------------------------------------------------------------------------------------------------------


def _check_pods(check: Check, observed: ObservedState) -> Iterator[Mismatch]:
    observed_pods = observed.pods_of(check.key)
    if check.exact:
        yield from _check_exact(check, observed_pods, observed)
        return
    for target, wanted in _by_target(check):
        matching = _matching(target, observed_pods, observed)
        what = f"{check.key} of {target.text}"
        if wanted.count is not None and len(matching) != wanted.count:
            yield Mismatch(what, str(wanted.count), f"{len(matching)}{_names_suffix(matching)}", wanted.line)
        elif wanted.nodes is not None:
            yield from _check_on_nodes(what, wanted, matching)


def _by_target(check: Check) -> Iterator[tuple[PodTarget, Wanted]]:
    return ((wanted.target, wanted) for wanted in check.wanted if isinstance(wanted.target, PodTarget))


def _matching(target: PodTarget, observed_pods: Iterable[ObservedPod], observed: ObservedState) -> list[ObservedPod]:
    members = set(observed.members(target))
    return [observed_pod for observed_pod in observed_pods if observed_pod.title in members or _matches(target, observed_pod)]


def _check_exact(check: Check, observed_pods: list[ObservedPod], observed: ObservedState) -> Iterator[Mismatch]:
    expected = Counter(title for target, _ in _by_target(check) for title in observed.members(target))
    found = Counter(observed_pod.title for observed_pod in observed_pods if observed_pod.is_managed)
    if expected != found:
        extra, missing = sorted((found - expected).elements()), sorted((expected - found).elements())
        text = "; ".join(f"{word} {shortened(names)}" for word, names in (("not", missing), ("but also", extra)) if names)
        yield Mismatch(f"{check.key}, exactly", shortened(sorted(expected.elements())) or "none", text, check.line)


def _check_on_nodes(what: str, wanted: Wanted, matching: list[ObservedPod]) -> Iterator[Mismatch]:
    """A single node is expected of each of them; several nodes are one for each, in any order."""
    found = sorted(observed_pod.node for observed_pod in matching)
    expected = sorted(wanted.nodes or ())
    ok = bool(found) and set(found) == set(expected) if wanted.texts else found == expected
    if not ok:
        yield Mismatch(what, f"on {shortened(expected)}", f"on {shortened(found)}" if found else "none", wanted.line)


def _names_suffix(observed_pods: list[ObservedPod]) -> str:
    names = [f"{pod.title} on {pod.node}" if pod.node else pod.title for pod in observed_pods]
    return f": {shortened(names)}" if names else ""


def shortened(names: list[str], *, most: int = _MAX_NAMES) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _check_order(check: Check, observed: ObservedState) -> Iterator[Mismatch]:
    members = {target.text: observed.members(target) for target, _ in _by_target(check)}
    bound = [decided.effect.pod for decided in observed.decided_effects if isinstance(decided.effect, Bind)]
    found = list(dict.fromkeys(text for pod in bound for text, pods in members.items() if pod in pods))
    if found != list(members):
        yield Mismatch("bindOrder", ", ".join(members), ", ".join(found) or "none", check.line)


def _check_nodes(check: Check, observed: ObservedState) -> Iterator[Mismatch]:
    bound = observed.pods_of("bound")
    for target, wanted in _by_target(check):
        found = sorted({pod.node for pod in _matching(target, bound, observed)})
        yield from _unequal(f"nodes of {target.text}", list(wanted.nodes or ()), found, line=wanted.line)


def _check_devices(check: Check, observed: ObservedState) -> Iterator[Mismatch]:
    uids = {observed_pod.title: uid for uid, observed_pod in observed.observed_pods.items()}
    for target, wanted in _by_target(check):
        placed = [observed.world.placements.by_uid.get(uids.get(title, "")) for title in observed.members(target)]
        found = [str(slot.index) for placement in placed if placement is not None for slot in placement.devices]
        yield from _unequal(f"devices of {target.text}", list(wanted.texts), found, line=wanted.line)


def _unequal(what: str, expected: list[str], found: list[str], *, line: int) -> Iterator[Mismatch]:
    if found != expected:
        yield Mismatch(what, shortened(expected) or "none", shortened(found) or "none", line)


# -- verdicts ----------------------------------------------------------------------------------------------------------------------


def _check_verdicts(check: Check, observed: ObservedState) -> Iterator[Mismatch]:
    for target, wanted in _by_target(check):
        found = _gang_texts(observed.gang(target), observed)[check.key]
        expected = wanted.texts or (str(wanted.count),)
        missing = [text for text in expected if (text not in found if check.key == "why" else text != found)]
        if missing:
            wanted_text = " and ".join(repr(text) for text in missing) if check.key == "why" else missing[0]
            yield Mismatch(f"{check.key} of {target.text}", wanted_text, found or "not waiting", wanted.line)


def _gang_texts(gang: Gang | None, observed: ObservedState) -> dict[str, str]:
    """What each of these keys is compared with."""
    if gang is None:
        return {"why": "", "code": FITS, "stage": "deleted", "attempts": "0"}
    attempt = observed.world.memory.attempts[gang.key]
    why, code = (
        (attempt.verdict.why, attempt.verdict.code) if attempt.verdict is not None and not attempt.verdict.ok else ("", FITS)
    )
    return {"why": why, "code": code, "stage": stage(observed.world, gang).value, "attempts": str(attempt.count)}


def _check_conditions(check: Check, observed: ObservedState) -> Iterator[Mismatch]:
    for wanted in check.wanted:
        texts = list(_condition_texts(wanted.target, observed))
        what = f"conditions of {wanted.target.text if not isinstance(wanted.target, str) else wanted.target}"
        missing = [text for text in wanted.texts if not any(text in each for each in texts)]
        if missing:
            yield Mismatch(what, " and ".join(repr(text) for text in missing), " | ".join(texts) or "no condition", wanted.line)


def _condition_texts(target: PodTarget | NamedObject | str, observed: ObservedState) -> Iterator[str]:
    """All conditions on the object, or on the gang's PodGroup and its pods."""
    assert not isinstance(target, str)
    if isinstance(target, NamedObject):
        found = observed.cluster.get(target.kind, target.namespace, target.name)
        yield from _conditions_of(found or {})
        return
    for group in observed.cluster.listed("PodGroup"):
        if group["metadata"]["name"] == target.gang and group["metadata"]["namespace"] == target.namespace:
            yield from _conditions_of(group)
    for pod in observed.pods:
        if _matches(target, observed.observed_pods[pod["metadata"]["uid"]]):
            yield from _conditions_of(pod)


def _conditions_of(found: Manifest) -> Iterator[str]:
    for one in (found.get("status") or {}).get("conditions") or []:
        yield f"{one.get('type')}={one.get('status')} {one.get('reason', '')}: {one.get('message', '')}"


# -- amounts and counts ------------------------------------------------------------------------------------------------------------


def _check_queues(check: Check, observed: ObservedState) -> Iterator[Mismatch]:
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


def _check_cycles(check: Check, observed: ObservedState) -> Iterator[Mismatch]:
    if check.count != observed.cycles:
        yield Mismatch("cycles", str(check.count), str(observed.cycles), check.line)


def _check_writes(check: Check, observed: ObservedState) -> Iterator[Mismatch]:
    writes = Counter(write.verb for write in observed.cluster.writes)
    if check.count is not None and check.count != writes.total():
        yield Mismatch("writes", str(check.count), f"{writes.total()}: {dict(writes)}", check.line)
    for wanted in check.wanted:
        found = writes[str(wanted.target)]
        if found != wanted.count:
            yield Mismatch(f"writes of {wanted.target}", str(wanted.count), str(found), wanted.line)


_CHECKS: dict[str, Callable[[Check, ObservedState], Iterator[Mismatch]]] = {
    **dict.fromkeys(("bound", "reserved", "nominated", "pending", "finished", "evicted", "released"), _check_pods),
    **dict.fromkeys(("why", "code", "stage", "attempts"), _check_verdicts),
    "bindOrder": _check_order,
    "nodes": _check_nodes,
    "devices": _check_devices,
    "conditions": _check_conditions,
    "queues": _check_queues,
    "cycles": _check_cycles,
    "writes": _check_writes,
}
