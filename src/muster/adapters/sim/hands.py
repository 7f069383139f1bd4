"""Carries out what a scheduler decided, one API write after the other, and says what failed.

Nothing is written that is there already; what the scheduler did not write itself is left alone. All that one round says of an
object goes there in one patch. A deed on a pod that is gone, or that is another pod of the same name by now, does nothing: the
watch tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from muster.adapters.kube import encode
from muster.adapters.sim import volumes
from muster.adapters.sim.budgets import Budgets
from muster.adapters.sim.clock import Clock
from muster.adapters.sim.faults import BindFaults
from muster.adapters.sim.index import FAMILIES, PodIndex
from muster.adapters.sim.manifests import NODE, POD, Manifest, Ref, Stored, kinds_called
from muster.adapters.sim.objects import ApiError, ObjectStore
from muster.model.effects import Bind, Condition, Effect, Evict, GroupStatus, Hold, Nominate, QueueStatus, Release, Spare
from muster.model.events import BindFailed, Event, EvictFailed


class Write(NamedTuple):
    """One write by the scheduler. The verb is bind, patch, delete or evict; the name has its namespace in front."""

    verb: str
    kind: str
    name: str


class Hands:
    def __init__(self, store: ObjectStore, clock: Clock, index: PodIndex, budgets: Budgets, faults: BindFaults) -> None:
        self.writes: list[Write] = []
        self._store = store
        self._clock = clock
        self._index = index
        self._budgets = budgets
        self._faults = faults
        self._refusals: dict[tuple[str, str], int] = {}
        self._last_write: int | None = None
        self._unsent: dict[Ref, Manifest] = {}
        """Patches of this round that were not sent yet, one for each object."""

    def refuse(self, verb: str, pod: str, *, times: int) -> None:
        """The next `times` deeds of this verb (bind or evict) on the pod fail."""
        self._refusals[verb, pod] = times

    def carry_out(self, effects: Iterable[Effect], *, stop_after: int | None) -> list[Event]:
        """What failed. Evictions come last: nobody is told to go before all claims on the room are written down.

        `stop_after`: that many writes, then nothing more, as if the scheduler died.
        """
        self._last_write = None if stop_after is None else len(self.writes) + stop_after
        in_order = sorted(effects, key=lambda effect: isinstance(effect, Evict))
        evictions = sum(isinstance(effect, Evict) for effect in in_order)
        failed: list[Event] = []
        try:
            for some in (in_order[: len(in_order) - evictions], in_order[len(in_order) - evictions :]):
                failed.extend(failure for effect in some if (failure := self._do(effect)) is not None)
                self._send()
        except _Stopped:
            self._unsent = {}
        return failed

    def _do(self, effect: Effect) -> Event | None:
        match effect:
            case Bind():
                why = self._bind(effect)
                return BindFailed(effect.uid, effect.node, why) if why else None
            case Hold() | Nominate():
                self._claim(effect)
            case Release():
                self._patch_pod(effect, encode.no_claim_patch(timed_out=effect.timed_out))
                # Before others are bound to the room: a claim that outlives its room would be in their way after a crash.
                self._send(pod_ref(effect.pod))
            case Evict():
                return self._evict(effect)
            case Spare():
                self._patch_pod(effect, encode.spare_patch(now=self._clock.now))
            case Condition():
                self._say(effect)
            case GroupStatus():
                self._report(effect)
            case QueueStatus():
                self._report_queue(effect)
        return None

    # -- pods ------------------------------------------------------------------------------------------------------------------

    def _bind(self, effect: Bind) -> str:
        """Why the pod could not be bound, or nothing. One that is bound to the target already is bound."""
        ref = pod_ref(effect.pod)
        pod = self._pod(effect)
        if pod is None:
            return f"pod {effect.pod} with UID {effect.uid} is gone"
        bound_to = pod["spec"].get("nodeName")
        if bound_to:
            self._patch_pod(effect, encode.no_claim_patch())
            return "" if bound_to == effect.node else f"pod {effect.pod} is bound to {bound_to} already"
        if pod["metadata"].get("deletionTimestamp"):
            return f"pod {effect.pod} is being deleted"
        if pod["spec"].get("schedulingGates"):
            return f"pod {effect.pod} has scheduling gates"
        if self._store.peek(Ref(*NODE, "", effect.node)) is None:
            return f"node {effect.node} is gone"
        why = self._refused("bind", effect.pod) or self._faults.why_not(effect.pod) or self._choose_volumes(effect)
        if why:
            return why
        self._write("bind", ref)
        bound = encode.conditions_patch([_SCHEDULED], present=conditions(pod), now=self._clock.now)
        status = {**bound.get("status", {}), "nominatedNodeName": None}
        annotations = encode.binding(effect, now=self._clock.now)["metadata"].get("annotations")
        noted = {"metadata": {"annotations": annotations}} if annotations else {}
        self._store.patch(ref, {"spec": {"nodeName": effect.node}, "status": status, **noted})
        self._patch_pod(effect, encode.no_claim_patch())
        return ""

    def _choose_volumes(self, effect: Bind) -> str:
        """Write down which volumes the pod's waiting claims get; why that cannot be, or nothing."""
        for choice in effect.volumes:
            why = volumes.why_not(self._store, choice)
            if why:
                return why
            kind, patch = encode.volume_patch(choice, node=effect.node)
            self._patch(volumes.claim_ref(choice) if kind == volumes.CLAIM[1] else volumes.volume_ref(choice.volume), patch)
            volumes.bind(self._store, choice)
        return ""

    def _claim(self, effect: Hold | Nominate) -> None:
        pod = self._pod(effect)
        if pod is not None and not pod["spec"].get("nodeName"):
            self._patch_pod(effect, encode.claim_patch(effect))

    def _evict(self, effect: Evict) -> EvictFailed | None:
        ref, pod = pod_ref(effect.pod), self._pod(effect)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return None
        why = self._refused("evict", effect.pod)
        if why:
            return EvictFailed(effect.uid, why)
        if effect.manner == "soft":
            self._mark(effect, pod)
            return None
        refusal = self._budgets.refusal(ref, pod) if effect.manner == "evict" else None
        if refusal is not None:
            return EvictFailed(effect.uid, refusal.why, refusal.by)
        self._write(effect.manner, ref)
        self._store.delete(ref, uid=effect.uid)
        return None

    def _mark(self, effect: Evict, pod: Stored) -> None:
        """One that is marked already keeps its mark: it says since when."""
        patch = encode.soft_eviction_patch(effect, now=self._clock.now)
        (label,) = patch["metadata"]["labels"]
        if (pod["metadata"].get("labels") or {}).get(label) != "true":
            self._patch_pod(effect, patch)

    def _pod(self, effect: Bind | Hold | Nominate | Release | Evict | Spare) -> Stored | None:
        """The pod that is meant, if it still exists."""
        found = self._store.peek(pod_ref(effect.pod))
        return found if found is not None and found["metadata"]["uid"] == effect.uid else None

    def _patch_pod(self, effect: Bind | Hold | Nominate | Release | Evict | Spare, patch: Manifest) -> None:
        if self._pod(effect) is not None:
            self._patch(pod_ref(effect.pod), patch)

    def _refused(self, verb: str, pod: str) -> str:
        left = self._refusals.get((verb, pod), 0)
        self._refusals[verb, pod] = max(0, left - 1)
        return f"the API server refused to {verb} pod {pod}" if left else ""

    # -- words -----------------------------------------------------------------------------------------------------------------

    def _say(self, effect: Condition) -> None:
        if effect.subject == "gang":
            self._say_of_gang(effect)
        elif effect.subject == "pod":
            self._say_of_pods([pod_ref(effect.key)], effect)
        else:
            for ref in _subject(effect):
                self._put_conditions(ref, [encode.validity(effect)])

    def _say_of_gang(self, effect: Condition) -> None:
        for slot in effect.key.replace("+", ",").split(","):
            if effect.code in encode.VALIDITY:
                for ref in (*self._groups(slot), *self._index.gathered(slot)):
                    self._put_conditions(ref, [encode.validity(effect)])
                continue
            for ref in self._groups(slot):
                present = self._conditions(ref)
                self._put_conditions(ref, encode.group_conditions(effect, api_group=ref.group, present=present))
            self._say_of_pods(self._index.gathered(slot), effect)

    def _groups(self, slot: str) -> list[Ref]:
        """The PodGroups of a slot, or of all slots with this title."""
        slots = [slot] if ":" in slot else [f"{family}:{slot}" for family in FAMILIES]
        found = (encode.group_of_slot(one) for one in slots)
        return [Ref(place[0], "PodGroup", *place[1:]) for place in found if place is not None]

    def _say_of_pods(self, pods: Iterable[Ref], effect: Condition) -> None:
        """Only those who wait are told; one that is bound was told by its bind."""
        for ref in pods if not effect.ok else ():
            pod = self._store.peek(ref)
            if pod is not None and not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates"):
                self._put_conditions(ref, [encode.unscheduled(effect)])

    def _put_conditions(self, ref: Ref, entries: Sequence[encode.ConditionEntry]) -> None:
        if self._store.peek(ref) is not None:
            self._patch(ref, encode.conditions_patch(entries, present=self._conditions(ref), now=self._clock.now))

    def _conditions(self, ref: Ref) -> list[Any]:
        """What the object will say once all that was noted down is sent."""
        unsent = (self._unsent.get(ref) or {}).get("status") or {}
        return conditions({"status": unsent} if "conditions" in unsent else self._store.peek(ref))

    def _report(self, effect: GroupStatus) -> None:
        for ref in self._groups(effect.group):
            if self._store.peek(ref) is not None:
                self._patch(ref, encode.group_status(effect, api_group=ref.group))

    def _report_queue(self, effect: QueueStatus) -> None:
        for ref in _queues(effect.key):
            found = self._store.peek(ref)
            if found is not None:
                self._patch(ref, encode.queue_status(effect, present=found.get("status") or {}))

    # -- writing ---------------------------------------------------------------------------------------------------------------

    def _patch(self, ref: Ref, patch: Manifest) -> None:
        self._unsent[ref] = _joined(self._unsent.get(ref, {}), patch)

    def _send(self, *only: Ref) -> None:
        """One write for each object of which something new was said, in the order in which they were first spoken of."""
        for ref in only or list(self._unsent):
            patch = self._unsent.pop(ref, {})
            if self._store.peek(ref) is not None and self._store.would_change(ref, patch):
                self._write("patch", ref)
                self._store.patch(ref, patch)

    def _write(self, verb: str, ref: Ref) -> None:
        if self._last_write is not None and len(self.writes) >= self._last_write:
            raise _Stopped
        self.writes.append(Write(verb, ref.kind, ref.title))


class _Stopped(Exception):
    """The scheduler died before this write."""


def _joined(first: Manifest, then: Manifest) -> Manifest:
    """Two merge patches as one: what the second says goes over the first."""
    both = dict(first)
    for key, value in then.items():
        known = both.get(key)
        both[key] = _joined(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return both


_SCHEDULED = {"type": encode.POD_SCHEDULED, "status": encode.YES}


def pod_ref(title: str) -> Ref:
    namespace, _, name = title.rpartition("/")
    return Ref(*POD, namespace, name)


def conditions(manifest: Stored | None) -> list[Any]:
    status = (manifest or {}).get("status") or {}
    found: list[Any] = status.get("conditions") or []
    return found


def _subject(effect: Condition) -> list[Ref]:
    """The objects that a sentence may be about."""
    match effect.subject:
        case "queue":
            return _queues(effect.key)
        case "node":
            return [Ref(*NODE, "", effect.key)]
        case "domain":
            return [Ref(*kind, "", effect.key) for kind in kinds_called("HyperNode")]
    raise ApiError(f"there is nothing to say about a {effect.subject}: {effect.key}")


def _queues(key: str) -> list[Ref]:
    """`queue/a` is a Queue, `quota/team/a` an ElasticQuota of either API group."""
    kind, *place = key.split("/")
    if kind == "quota":
        return [Ref(*known, *place) for known in kinds_called("ElasticQuota")]
    return [Ref(*known, "", *place) for known in kinds_called("Queue")]
