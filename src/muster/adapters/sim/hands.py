"""Carries out what a scheduler decided, one API write after the other, and says what failed.

What is written where, the scribe says; here it is done at once. Nothing is written that is there already. All that one round says
of an object goes there in one patch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from muster.adapters.kube import encode, scribe
from muster.adapters.kube.index import PodIndex
from muster.adapters.kube.merge import joined, merged
from muster.adapters.kube.refs import Manifest, Ref, pod_ref
from muster.adapters.sim import volumes
from muster.adapters.sim.budgets import Budgets
from muster.adapters.sim.clock import Clock
from muster.adapters.sim.faults import BindFaults
from muster.adapters.sim.objects import ObjectStore
from muster.model.effects import (
    Bind,
    Condition,
    Deed,
    Effect,
    Evict,
    GroupStatus,
    Hold,
    Nominate,
    QueueStatus,
    Release,
    Spare,
    Word,
)
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
            case Spare() | Release():
                self._patch_pod(effect)
                # Who may stay is told before the claim ends that says who was to go. And a claim ends before others are bound to
                # the room: one that outlives its room would be in their way after a crash.
                self._send(pod_ref(effect.pod))
            case Hold() | Nominate():
                self._patch_pod(effect)
            case Evict():
                return self._evict(effect)
            case Condition() | GroupStatus() | QueueStatus():
                self._say(effect)
        return None

    # -- pods ------------------------------------------------------------------------------------------------------------------

    def _bind(self, effect: Bind) -> str:
        """Why the pod could not be bound, or nothing."""
        seen = scribe.outlook(effect, self._store)
        if seen.bound:
            self._patch_pod(effect)
        if seen.bound or seen.why:
            return seen.why
        why = self._refused("bind", effect.pod) or self._faults.why_not(effect.pod) or self._choose_volumes(effect)
        if why:
            return why
        ref = pod_ref(effect.pod)
        self._write("bind", ref)
        bound = encode.conditions_patch([_SCHEDULED], present=scribe.conditions(self._store.peek(ref)), now=self._clock.now)
        status = {**bound.get("status", {}), "nominatedNodeName": None}
        annotations = encode.binding(effect, now=self._clock.now)["metadata"].get("annotations")
        noted = {"metadata": {"annotations": annotations}} if annotations else {}
        self._store.patch(ref, {"spec": {"nodeName": effect.node}, "status": status, **noted})
        self._patch_pod(effect)
        return ""

    def _choose_volumes(self, effect: Bind) -> str:
        """Write down which volumes the pod's waiting claims get; why that cannot be, or nothing."""
        for choice in effect.volumes:
            why = scribe.volume_refusal(choice, self._store)
            if why:
                return why
            ref, patch = scribe.volume_write(choice, node=effect.node)
            self._note(ref, patch)
            # Before the bind: after a crash a pod that is bound must not find its volume given to another.
            self._send(ref)
            volumes.bind(self._store, choice)
        return ""

    def _evict(self, effect: Evict) -> EvictFailed | None:
        ref, pod = pod_ref(effect.pod), scribe.pod_of(effect, self._store)
        if pod is None or scribe.is_leaving(pod):
            return None
        why = self._refused("evict", effect.pod)
        if why:
            return EvictFailed(effect.uid, why)
        if effect.manner == "soft":
            self._patch_pod(effect)
            return None
        refusal = self._budgets.refusal(ref, pod) if effect.manner == "evict" else None
        if refusal is not None:
            return EvictFailed(effect.uid, refusal.why, refusal.by)
        self._write(effect.manner, ref)
        self._store.delete(ref, uid=effect.uid)
        return None

    def _patch_pod(self, effect: Deed) -> None:
        pod = scribe.pod_of(effect, self._store)
        patch = None if pod is None else scribe.pod_patch(effect, pod, now=self._clock.now)
        if patch is not None:
            self._note(pod_ref(effect.pod), patch)

    def _refused(self, verb: str, pod: str) -> str:
        left = self._refusals.get((verb, pod), 0)
        self._refusals[verb, pod] = max(0, left - 1)
        return f"the API server refused to {verb} pod {pod}" if left else ""

    # -- words -----------------------------------------------------------------------------------------------------------------

    def _say(self, word: Word) -> None:
        for saying in scribe.sayings(word, gathered=self._index.gathered):
            found = self._store.peek(saying.ref)
            if found is None:
                continue
            # As it will be once all that was noted down is sent.
            present = merged(found, self._unsent.get(saying.ref, {}))
            patch = scribe.word_patch(saying, present, now=self._clock.now)
            if patch is not None:
                self._note(saying.ref, patch)

    # -- writing ---------------------------------------------------------------------------------------------------------------

    def _note(self, ref: Ref, patch: Manifest) -> None:
        self._unsent[ref] = joined(self._unsent.get(ref, {}), patch)

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


_SCHEDULED = {"type": encode.POD_SCHEDULED, "status": encode.YES}
