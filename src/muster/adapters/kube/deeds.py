"""Single deeds on pods, from the first try to the last: bind, claim, release, evict. Whatever goes wrong, the answer is a sentence.

A write that failed may have been done all the same, and one that found another version may have been overtaken: so after each
failure the object is looked at again, and what it shows decides.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from muster.adapters.kube import encode, names, scribe
from muster.adapters.kube.client import ApiError
from muster.adapters.kube.merge import joined, merged
from muster.adapters.kube.mirror import DISRUPTION_TARGET, Mirror
from muster.adapters.kube.refs import Manifest, Ref, Stored, claim_ref, pod_ref
from muster.adapters.kube.sender import BUSY, CONFLICT, GONE, Sender, is_passing
from muster.adapters.kube.tries import BRIEF, LONG, Tries
from muster.model.effects import Bind, Deed, Evict, Hold, Nominate, Release, Spare
from muster.model.volumes import VolumeChoice

PREEMPTED = "PreemptionByScheduler"
"""The reason by which kubelets and controllers know a pod that had to make room."""
BUDGET_CAUSE = "DisruptionBudget"
_TWO_BUDGETS = "more than one PodDisruptionBudget"
_BUDGET_NAMED = re.compile(r"The disruption budget (\S+) ")


class Refusal(NamedTuple):
    """Why an eviction was not done; `by` names the budget that forbids it, or is empty."""

    why: str
    by: str = ""


class Deeds:
    """`volume_wait_s`: how long a pod waits for its volumes before its bind fails; `rests` is told how many more wait so. `pauses`
    is called whenever somebody is about to wait before trying again. `beside` knows what else is to be said of an object as it
    would then be: it goes there in the same patch."""

    def __init__(
        self,
        sender: Sender,
        mirror: Mirror,
        *,
        now: Callable[[], float],
        volume_wait_s: float = 120.0,
        volume_look_s: float = 0.1,
        rests: Callable[[int], None] = lambda _: None,
        pauses: Callable[[], None] = lambda: None,
        beside: Callable[[Ref, Stored], Manifest | None] = lambda _ref, _present: None,
        brief: Tries = BRIEF,
        long: Tries = LONG,
    ) -> None:
        self._sender = sender
        self._mirror = mirror
        self._now = now
        self._volume_wait_s = volume_wait_s
        self._volume_look_s = volume_look_s
        self._rests = rests
        self._pauses = pauses
        self._beside = beside
        self._brief = brief
        self._long = long

    # -- binds -----------------------------------------------------------------------------------------------------------------

    async def bind(self, effect: Bind) -> str:
        """Why the pod could not be bound, or nothing."""
        why = await self._try_to_bind(effect)
        if self._mirror.bears_claim(pod_ref(effect.pod), uid=effect.uid) and scribe.outlook(effect, self._mirror).bound:
            # Wherever it is bound to: its claim is of no use any more.
            await self.patch_pod(effect, tries=self._brief)
        return why

    async def _try_to_bind(self, effect: Bind) -> str:
        if effect.volumes and (why := await self._provide_volumes(effect)):
            return why
        return await self._post_binding(effect)

    async def _provide_volumes(self, effect: Bind) -> str:
        """Why the pod cannot have its volumes on this node, or nothing."""
        seen = scribe.outlook(effect, self._mirror)
        if seen.bound or seen.why:
            return seen.why
        for choice in effect.volumes:
            if why := await self._give_volume(choice, node=effect.node):
                return why
        self._rests(1)
        try:
            return await self._wait_for_volumes(effect)
        finally:
            self._rests(-1)

    async def _post_binding(self, effect: Bind) -> str:
        ref, why = pod_ref(effect.pod), ""
        for attempt in range(self._brief.most):
            seen = scribe.outlook(effect, self._mirror)
            if seen.bound or seen.why:
                return seen.why
            try:
                await self._sender.bind(ref, encode.binding(effect, now=self._now()))
            except ApiError as error:
                why = f"the API server did not bind pod {effect.pod} to {effect.node}: {error}"
                await self._look(ref, uid=effect.uid)
                if not is_passing(error) and error.status != CONFLICT:
                    break
                if not scribe.outlook(effect, self._mirror).bound:
                    await self._pause(self._brief, attempt, error)
            else:
                self._mirror.note_bound(ref, uid=effect.uid, node=effect.node)
                return ""
        seen = scribe.outlook(effect, self._mirror)
        return seen.why if seen.bound or seen.why else why

    async def _give_volume(self, choice: VolumeChoice, *, node: str) -> str:
        """Say which volume a claim gets, or for which node it is to be made; why that cannot be, or nothing."""
        ref, patch = scribe.volume_write(choice, node=node)
        why = ""
        for attempt in range(self._brief.most):
            if _is_bound(self._mirror.peek(claim_ref(choice.claim))):
                return ""
            why = scribe.volume_refusal(choice, self._mirror)
            if why or not self._would_change(ref, patch):
                return why
            try:
                await self._patch(ref, patch, uid=self._mirror.uid_of(ref), exact=True)
                return ""
            except ApiError as error:
                why = f"the API server did not write to {ref.kind} {ref.title}: {error}"
                await self._look(ref, uid=self._mirror.uid_of(ref))
                if not is_passing(error) and error.status != CONFLICT:
                    break
                await self._pause(self._brief, attempt, error)
        return scribe.volume_refusal(choice, self._mirror) or why

    async def _wait_for_volumes(self, effect: Bind) -> str:
        """Others bind the claims, or make the volumes."""
        clock = asyncio.get_running_loop()
        deadline = clock.time() + self._volume_wait_s
        while True:
            waiting = [one for one in effect.volumes if not _is_bound(self._mirror.peek(claim_ref(one.claim)))]
            if not waiting:
                return ""
            if why := next(filter(None, (self._given_up(one, node=effect.node) for one in waiting)), ""):
                return why
            seen = scribe.outlook(effect, self._mirror)
            if seen.bound or seen.why:
                return seen.why
            if clock.time() >= deadline:
                named = ", ".join(one.claim for one in waiting)
                return f"no volume was bound to {named} within {self._volume_wait_s:g} s"
            await asyncio.sleep(self._volume_look_s)

    def _given_up(self, choice: VolumeChoice, *, node: str) -> str:
        """A driver that cannot make the volume there takes the node's name away."""
        if choice.volume:
            return scribe.volume_refusal(choice, self._mirror)
        claim = self._mirror.peek(claim_ref(choice.claim))
        if claim is None:
            return f"claim {choice.claim} is gone"
        told = claim["metadata"].get("annotations", {}).get(names.SELECTED_NODE)
        return "" if told == node else f"no volume can be made for claim {choice.claim} on {node}"

    # -- patches of pods -------------------------------------------------------------------------------------------------------

    async def claim(self, effect: Hold | Nominate) -> str:
        """Why the claim could not be written, or nothing. It is not onto a pod that is gone or has a node."""
        if await self.patch_pod(effect, tries=self._brief, exact=True):
            return ""
        pod = scribe.pod_of(effect, self._mirror)
        if pod is None:
            return f"pod {effect.pod} is gone"
        if at := scribe.node_of(pod):
            return f"pod {effect.pod} is bound to {at} already"
        return f"pod {effect.pod} changed each time that it was written to"

    async def release(self, effect: Release | Spare) -> bool:
        return await self.patch_pod(effect, tries=self._long)

    async def patch_pod(self, effect: Deed, *, tries: Tries, exact: bool = False) -> bool:
        """Does the pod say what it should? `exact`: written only onto the very version that was looked at."""
        ref = pod_ref(effect.pod)
        for attempt in range(tries.most):
            pod = scribe.pod_of(effect, self._mirror)
            patch = None if pod is None else scribe.pod_patch(effect, pod, now=self._now())
            if pod is None or patch is None:
                # A soft eviction of a pod that is marked has nothing to write either.
                return pod is not None and isinstance(effect, Evict)
            if merged(pod, patch) is pod:
                return True
            try:
                whole = joined(patch, self._beside(ref, merged(pod, patch)) or {})
                await self._patch(ref, whole, uid=effect.uid, exact=exact)
                return True
            except ApiError as error:
                if not is_passing(error) and error.status not in (CONFLICT, GONE):
                    raise
                await self._look(ref, uid=effect.uid)
                await self._pause(tries, attempt, error)
        return False

    # -- evictions -------------------------------------------------------------------------------------------------------------

    async def evict(self, effect: Evict) -> Refusal | None:
        """Why the pod was not made to go, or None."""
        ref, why = pod_ref(effect.pod), ""
        for attempt in range(self._brief.most):
            pod = scribe.pod_of(effect, self._mirror)
            if pod is None or scribe.is_leaving(pod):
                return None
            try:
                return await self._send_away(effect, pod)
            except ApiError as error:
                why = f"the API server did not evict pod {effect.pod}: {error}"
                if budget := _budget(error, namespace=ref.namespace):
                    return budget
                await self._look(ref, uid=effect.uid)
                if not is_passing(error) and error.status not in (CONFLICT, GONE):
                    break
                await self._pause(self._brief, attempt, error)
        pod = scribe.pod_of(effect, self._mirror)
        return None if pod is None or scribe.is_leaving(pod) else Refusal(why)

    async def _send_away(self, effect: Evict, pod: Stored) -> Refusal | None:
        ref = pod_ref(effect.pod)
        if effect.manner == "soft":
            marked = await self.patch_pod(effect, tries=self._brief) or scribe.pod_of(effect, self._mirror) is None
            return None if marked else Refusal(f"pod {effect.pod} could not be marked")
        if effect.manner == "evict":
            await self._sender.evict(ref, uid=effect.uid)
        else:
            await self._say_why(effect, pod)
            await self._sender.delete(ref, uid=effect.uid)
        self._mirror.note_leaving(ref, uid=effect.uid)
        return None

    async def _say_why(self, effect: Evict, pod: Stored) -> None:
        """The Eviction API writes this condition itself; before a deletion it is ours to write."""
        entry = {"type": DISRUPTION_TARGET, "status": encode.YES, "reason": PREEMPTED, "message": effect.why}
        patch = encode.conditions_patch([entry], present=scribe.conditions(pod), now=self._now())
        if patch:
            await self._patch(pod_ref(effect.pod), patch, uid=effect.uid)

    # -- writing and looking ---------------------------------------------------------------------------------------------------

    def _would_change(self, ref: Ref, patch: Manifest) -> bool:
        present = self._mirror.peek(ref)
        return present is not None and merged(present, patch) is not present

    async def _patch(self, ref: Ref, patch: Manifest, *, uid: str, exact: bool = False) -> None:
        version = self._mirror.version_of(ref) if exact else ""
        changed = only_news(patch, self._mirror.peek(ref))
        self._mirror.learn(ref[:2], await self._sender.patch(ref, changed, uid=uid, version=version))

    async def _pause(self, tries: Tries, attempt: int, error: ApiError) -> None:
        self._pauses()
        await tries.pause(attempt, error)

    async def _look(self, ref: Ref, *, uid: str) -> None:
        """See how it is now. Where nobody answers, the old picture has to do."""
        try:
            self._mirror.learn(ref[:2], await self._sender.get(ref))
        except ApiError as error:
            if error.status == GONE:
                self._mirror.forget(ref, uid=uid)


def only_news(patch: Manifest, present: Stored | None) -> Manifest:
    """A patch that merges conditions by type needs none of those that are there already: somebody may be changing them."""
    status = patch.get("status") or {}
    if "conditions" not in status:
        return patch
    known = scribe.conditions(present)
    return {**patch, "status": {**status, "conditions": [one for one in status["conditions"] if one not in known]}}


def _is_bound(claim: Stored | None) -> bool:
    return claim is not None and bool(claim["spec"].get("volumeName")) and claim["status"].get("phase") == "Bound"


def _budget(error: ApiError, *, namespace: str) -> Refusal | None:
    """Which disruption budget said no, if one did: its name stands in a sentence. Two of them are too many for the server."""
    if _TWO_BUDGETS in error.message:
        return Refusal(error.message)
    causes: list[Any] = error.details.get("causes") or []
    for cause in causes:
        if error.status == BUSY and isinstance(cause, dict) and cause.get("reason") == BUDGET_CAUSE:
            said = str(cause.get("message") or error.message)
            named = _BUDGET_NAMED.search(said)
            return Refusal(said, f"{namespace}/{named[1]}" if named else "")
    return None
