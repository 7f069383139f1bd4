"""Single deeds on pods, from the first try to the last: bind, claim, release, evict. Whatever goes wrong, the answer is a sentence.

A write that failed may have been done all the same, and one that found another version may have been overtaken: so after each
failure the object is looked at again, and what it shows decides.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from muster.kube.read import names
from muster.kube.read.object_references import ApiObjectRef, Manifest, ManifestView, pod_ref, volume_claim_ref
from muster.kube.watch.client import ApiError
from muster.kube.write import patch_bodies, patch_builder
from muster.kube.write.api_writer import CONFLICT, NOT_FOUND, TOO_MANY_REQUESTS, ApiWriter, is_retryable
from muster.kube.write.backoff import LONG_BACKOFF, SHORT_BACKOFF, Backoff
from muster.kube.write.merge_patch import joined, merged
from muster.kube.write.write_cache import DISRUPTION_TARGET, WriteCache
from muster.model.effects import Bind, CancelEviction, Evict, Nominate, PodEffect, Release, Reserve
from muster.model.volume import VolumeChoice

PREEMPTED = "PreemptionByScheduler"
"""The reason by which kubelets and controllers know a pod that had to make room."""
BUDGET_CAUSE = "DisruptionBudget"
_TWO_BUDGETS = "more than one PodDisruptionBudget"
_BUDGET_NAME = re.compile(r"The disruption budget (\S+) ")


class EvictionRefusal(NamedTuple):
    """Why an eviction was not done; `budget` names the budget that forbids it, or is empty."""

    why: str
    budget: str = ""


class PodWriter:
    """`volume_wait_s`: how long a pod waits for its volumes before its bind fails; `on_blocked` is told how many more wait so.
    `on_retry`
    is called whenever somebody is about to wait before trying again. `pending_patch` knows what else is to be said of an object
    as it would then be: it goes there in the same patch."""

    def __init__(
        self,
        api_writer: ApiWriter,
        cache: WriteCache,
        *,
        now: Callable[[], float],
        volume_wait_s: float = 120.0,
        volume_poll_s: float = 0.1,
        on_blocked: Callable[[int], None] = lambda _: None,
        on_retry: Callable[[], None] = lambda: None,
        pending_patch: Callable[[ApiObjectRef, ManifestView], Manifest | None] = lambda _ref, _present: None,
        short_backoff: Backoff = SHORT_BACKOFF,
        long_backoff: Backoff = LONG_BACKOFF,
    ) -> None:
        self._api_writer = api_writer
        self._cache = cache
        self._now = now
        self._volume_wait_s = volume_wait_s
        self._volume_poll_s = volume_poll_s
        self._on_blocked = on_blocked
        self._on_retry = on_retry
        self._pending_patch = pending_patch
        self._short_backoff = short_backoff
        self._long_backoff = long_backoff

    # -- binds -----------------------------------------------------------------------------------------------------------------

    async def bind(self, effect: Bind) -> str:
        """Why the pod could not be bound, or nothing."""
        why = await self._try_to_bind(effect)
        if self._cache.has_reservation(pod_ref(effect.pod), uid=effect.uid) and patch_builder.check_bind(effect, self._cache).bound:
            # Wherever it is bound to: its claim is of no use any more.
            await self.patch_pod(effect, backoff=self._short_backoff)
        return why

    async def _try_to_bind(self, effect: Bind) -> str:
        if effect.volumes and (why := await self._provide_volumes(effect)):
            return why
        return await self._post_binding(effect)

    async def _provide_volumes(self, effect: Bind) -> str:
        """Why the pod cannot have its volumes on this node, or nothing."""
        seen = patch_builder.check_bind(effect, self._cache)
        if seen.bound or seen.why:
            return seen.why
        for choice in effect.volumes:
            if why := await self._assign_volume(choice, node=effect.node):
                return why
        self._on_blocked(1)
        try:
            return await self._wait_for_volumes(effect)
        finally:
            self._on_blocked(-1)

    async def _post_binding(self, effect: Bind) -> str:
        ref, why = pod_ref(effect.pod), ""
        for attempt in range(self._short_backoff.max_attempts):
            seen = patch_builder.check_bind(effect, self._cache)
            if seen.bound or seen.why:
                return seen.why
            try:
                await self._api_writer.bind(ref, patch_bodies.binding(effect, now=self._now()))
            except ApiError as error:
                why = f"the API server did not bind pod {effect.pod} to {effect.node}: {error}"
                await self._refresh(ref, uid=effect.uid)
                if not is_retryable(error) and error.status != CONFLICT:
                    break
                if not patch_builder.check_bind(effect, self._cache).bound:
                    await self._pause(self._short_backoff, attempt, error)
            else:
                self._cache.mark_bound(ref, uid=effect.uid, node=effect.node)
                return ""
        seen = patch_builder.check_bind(effect, self._cache)
        return seen.why if seen.bound or seen.why else why

    async def _assign_volume(self, choice: VolumeChoice, *, node: str) -> str:
        """Say which volume a claim gets, or for which node it is to be made; why that cannot be, or nothing."""
        ref, patch = patch_builder.volume_write(choice, node=node)
        why = ""
        for attempt in range(self._short_backoff.max_attempts):
            if _is_bound(self._cache.peek(volume_claim_ref(choice.claim))):
                return ""
            why = patch_builder.volume_conflict(choice, self._cache)
            if why or not self._would_change(ref, patch):
                return why
            try:
                await self._patch(ref, patch, uid=self._cache.uid_of(ref), exact=True)
                return ""
            except ApiError as error:
                why = f"the API server did not write to {ref.kind} {ref.full_name}: {error}"
                await self._refresh(ref, uid=self._cache.uid_of(ref))
                if not is_retryable(error) and error.status != CONFLICT:
                    break
                await self._pause(self._short_backoff, attempt, error)
        return patch_builder.volume_conflict(choice, self._cache) or why

    async def _wait_for_volumes(self, effect: Bind) -> str:
        """Others bind the claims, or make the volumes."""
        clock = asyncio.get_running_loop()
        deadline = clock.time() + self._volume_wait_s
        while True:
            waiting = [one for one in effect.volumes if not _is_bound(self._cache.peek(volume_claim_ref(one.claim)))]
            if not waiting:
                return ""
            if why := next(filter(None, (self._why_no_volume(one, node=effect.node) for one in waiting)), ""):
                return why
            seen = patch_builder.check_bind(effect, self._cache)
            if seen.bound or seen.why:
                return seen.why
            if clock.time() >= deadline:
                named = ", ".join(one.claim for one in waiting)
                return f"no volume was bound to {named} within {self._volume_wait_s:g} s"
            await asyncio.sleep(self._volume_poll_s)

    def _why_no_volume(self, choice: VolumeChoice, *, node: str) -> str:
        """A driver that cannot make the volume there takes the node's name away."""
        if choice.volume:
            return patch_builder.volume_conflict(choice, self._cache)
        claim = self._cache.peek(volume_claim_ref(choice.claim))
        if claim is None:
            return f"claim {choice.claim} is gone"
        selected = claim["metadata"].get("annotations", {}).get(names.SELECTED_NODE)
        return "" if selected == node else f"no volume can be made for claim {choice.claim} on {node}"

    # -- patches of pods -------------------------------------------------------------------------------------------------------

    async def reserve(self, effect: Reserve | Nominate) -> str:
        """Why the claim could not be written, or nothing. It is not onto a pod that is gone or has a node."""
        if await self.patch_pod(effect, backoff=self._short_backoff, exact=True):
            return ""
        pod = patch_builder.current_pod(effect, self._cache)
        if pod is None:
            return f"pod {effect.pod} is gone"
        if at := patch_builder.node_of(pod):
            return f"pod {effect.pod} is bound to {at} already"
        return f"pod {effect.pod} changed each time that it was written to"

    async def release(self, effect: Release | CancelEviction) -> bool:
        return await self.patch_pod(effect, backoff=self._long_backoff)

    async def patch_pod(self, effect: PodEffect, *, backoff: Backoff, exact: bool = False) -> bool:
        """Does the pod say what it should? `exact`: written only onto the very version that was looked at."""
        ref = pod_ref(effect.pod)
        for attempt in range(backoff.max_attempts):
            pod = patch_builder.current_pod(effect, self._cache)
            patch = None if pod is None else patch_builder.pod_patch(effect, pod, now=self._now())
            if pod is None or patch is None:
                # A soft eviction of a pod that is marked has nothing to write either.
                return pod is not None and isinstance(effect, Evict)
            if merged(pod, patch) is pod:
                return True
            try:
                whole = joined(patch, self._pending_patch(ref, merged(pod, patch)) or {})
                await self._patch(ref, whole, uid=effect.uid, exact=exact)
                return True
            except ApiError as error:
                if not is_retryable(error) and error.status not in (CONFLICT, NOT_FOUND):
                    raise
                await self._refresh(ref, uid=effect.uid)
                await self._pause(backoff, attempt, error)
        return False

    # -- evictions -------------------------------------------------------------------------------------------------------------

    async def evict(self, effect: Evict) -> EvictionRefusal | None:
        """Why the pod was not made to go, or None."""
        ref, why = pod_ref(effect.pod), ""
        for attempt in range(self._short_backoff.max_attempts):
            pod = patch_builder.current_pod(effect, self._cache)
            if pod is None or patch_builder.is_terminating(pod):
                return None
            try:
                return await self._send_eviction(effect, pod)
            except ApiError as error:
                why = f"the API server did not evict pod {effect.pod}: {error}"
                if budget := _budget_refusal(error, namespace=ref.namespace):
                    return budget
                await self._refresh(ref, uid=effect.uid)
                if not is_retryable(error) and error.status not in (CONFLICT, NOT_FOUND):
                    break
                await self._pause(self._short_backoff, attempt, error)
        pod = patch_builder.current_pod(effect, self._cache)
        return None if pod is None or patch_builder.is_terminating(pod) else EvictionRefusal(why)

    async def _send_eviction(self, effect: Evict, pod: ManifestView) -> EvictionRefusal | None:
        ref = pod_ref(effect.pod)
        if effect.method == "soft":
            marked = (
                await self.patch_pod(effect, backoff=self._short_backoff) or patch_builder.current_pod(effect, self._cache) is None
            )
            return None if marked else EvictionRefusal(f"pod {effect.pod} could not be marked")
        if effect.method == "evict":
            await self._api_writer.evict(ref, uid=effect.uid)
        else:
            await self._write_disruption_condition(effect, pod)
            await self._api_writer.delete(ref, uid=effect.uid)
        self._cache.mark_terminating(ref, uid=effect.uid)
        return None

    async def _write_disruption_condition(self, effect: Evict, pod: ManifestView) -> None:
        """The Eviction API writes this condition itself; before a deletion it is ours to write."""
        entry = {"type": DISRUPTION_TARGET, "status": patch_bodies.STATUS_TRUE, "reason": PREEMPTED, "message": effect.why}
        patch = patch_bodies.conditions_patch([entry], present=patch_builder.conditions(pod), now=self._now())
        if patch:
            await self._patch(pod_ref(effect.pod), patch, uid=effect.uid)

    # -- writing and looking ---------------------------------------------------------------------------------------------------

    def _would_change(self, ref: ApiObjectRef, patch: Manifest) -> bool:
        present = self._cache.peek(ref)
        return present is not None and merged(present, patch) is not present

    async def _patch(self, ref: ApiObjectRef, patch: Manifest, *, uid: str, exact: bool = False) -> None:
        version = self._cache.version_of(ref) if exact else ""
        changed = only_changed_conditions(patch, self._cache.peek(ref))
        self._cache.apply_response(ref[:2], await self._api_writer.patch(ref, changed, uid=uid, version=version))

    async def _pause(self, backoff: Backoff, attempt: int, error: ApiError) -> None:
        self._on_retry()
        await backoff.pause(attempt, error)

    async def _refresh(self, ref: ApiObjectRef, *, uid: str) -> None:
        """See how it is now. Where nobody answers, the old picture has to do."""
        try:
            self._cache.apply_response(ref[:2], await self._api_writer.get(ref))
        except ApiError as error:
            if error.status == NOT_FOUND:
                self._cache.forget(ref, uid=uid)


def only_changed_conditions(patch: Manifest, present: ManifestView | None) -> Manifest:
    """A patch that merges conditions by type needs none of those that are there already: somebody may be changing them."""
    status = patch.get("status") or {}
    if "conditions" not in status:
        return patch
    known = patch_builder.conditions(present)
    return {**patch, "status": {**status, "conditions": [one for one in status["conditions"] if one not in known]}}


def _is_bound(claim: ManifestView | None) -> bool:
    return claim is not None and bool(claim["spec"].get("volumeName")) and claim["status"].get("phase") == "Bound"


def _budget_refusal(error: ApiError, *, namespace: str) -> EvictionRefusal | None:
    """Which disruption budget said no, if one did: its name stands in a sentence. Two of them are too many for the server."""
    if _TWO_BUDGETS in error.message:
        return EvictionRefusal(error.message)
    causes: list[Any] = error.details.get("causes") or []
    for cause in causes:
        if error.status == TOO_MANY_REQUESTS and isinstance(cause, dict) and cause.get("reason") == BUDGET_CAUSE:
            said = str(cause.get("message") or error.message)
            named = _BUDGET_NAME.search(said)
            return EvictionRefusal(said, f"{namespace}/{named[1]}" if named else "")
    return None
