"""Single effects on pods with their retries: bind, reserve, release, evict. The result of a failure is a sentence.

The writes of an effect and their order are those of `write_order.steps_of`. A write that failed may have been carried out all the
same, and one with a conflict may be obsolete: so after each failure the object is read again, and its state decides.
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
from muster.kube.write.write_cache import WriteCache
from muster.kube.write.write_order import WriteStep, steps_of
from muster.model.effects import Bind, CancelEviction, Evict, Nominate, PodEffect, Release, Reserve
from muster.model.volume import VolumeChoice

BUDGET_CAUSE = "DisruptionBudget"
_TWO_BUDGETS = "more than one PodDisruptionBudget"
_BUDGET_NAME = re.compile(r"The disruption budget (\S+) ")


class RefusedEviction(NamedTuple):
    """Why an eviction failed; `budget` names the PodDisruptionBudget that forbids it, or is empty."""

    why: str
    budget: str = ""


class PodWriter:
    """`volume_wait_s`: how long a pod waits for its volumes before its bind fails; `on_blocked` gets the change in the number of
    pods that wait so. `on_retry` is called before each pause. `pending_patch` returns the pending status updates of an object in
    the given state: they go into the same patch."""

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
        why = ""
        for step in steps_of(effect):
            if step is WriteStep.CLEAR_RESERVATION:
                await self._clear_reservation(effect)
            elif not why:
                why = await (self._provide_volumes(effect) if step is WriteStep.VOLUMES else self._post_binding(effect))
        return why

    async def _clear_reservation(self, effect: Bind) -> None:
        if self._cache.has_reservation(pod_ref(effect.pod), uid=effect.uid) and patch_builder.check_bind(effect, self._cache).bound:
            await self.patch_pod(effect, backoff=self._short_backoff)

    async def _provide_volumes(self, effect: Bind) -> str:
        """Why the pod cannot have its volumes on this node, or nothing."""
        check = patch_builder.check_bind(effect, self._cache)
        if check.bound or check.why:
            return check.why
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
            check = patch_builder.check_bind(effect, self._cache)
            if check.bound or check.why:
                return check.why
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
        check = patch_builder.check_bind(effect, self._cache)
        return check.why if check.bound or check.why else why

    async def _assign_volume(self, choice: VolumeChoice, *, node: str) -> str:
        """Write which volume a claim gets, or on which node one is provisioned; why that is not possible, or nothing."""
        ref, patch = patch_builder.volume_write(choice, node=node)
        why = ""
        for attempt in range(self._short_backoff.max_attempts):
            if patch_builder.is_claim_bound(choice, self._cache):
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
        """Controllers bind the claims, drivers provision the volumes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._volume_wait_s
        while True:
            waiting = [one for one in effect.volumes if not patch_builder.is_claim_bound(one, self._cache)]
            if not waiting:
                return ""
            if why := next(filter(None, (self._why_no_volume(one, node=effect.node) for one in waiting)), ""):
                return why
            check = patch_builder.check_bind(effect, self._cache)
            if check.bound or check.why:
                return check.why
            if loop.time() >= deadline:
                claims = ", ".join(one.claim for one in waiting)
                return f"no volume was bound to {claims} within {self._volume_wait_s:g} s"
            await asyncio.sleep(self._volume_poll_s)

    def _why_no_volume(self, choice: VolumeChoice, *, node: str) -> str:
        """A driver that cannot provision the volume on the selected node removes the annotation."""
        if choice.volume:
            return patch_builder.volume_conflict(choice, self._cache)
        claim = self._cache.peek(volume_claim_ref(choice.claim))
        if claim is None:
            return f"claim {choice.claim} is gone"
        selected = claim["metadata"].get("annotations", {}).get(names.SELECTED_NODE)
        return "" if selected == node else f"no volume can be provisioned for claim {choice.claim} on {node}"

    # -- patches of pods -------------------------------------------------------------------------------------------------------

    async def reserve(self, effect: Reserve | Nominate) -> str:
        """Why the reservation could not be written, or nothing."""
        if await self.patch_pod(effect, backoff=self._short_backoff, exact=True):
            return ""
        refusal = patch_builder.reservation_refusal(effect, self._cache)
        return refusal or f"pod {effect.pod} was changed by others at each attempt"

    async def release(self, effect: Release | CancelEviction) -> bool:
        return await self.patch_pod(effect, backoff=self._long_backoff)

    async def patch_pod(self, effect: PodEffect, *, backoff: Backoff, exact: bool = False) -> bool:
        """Is the pod as the effect wants it? `exact`: patched only at the resourceVersion that was checked."""
        ref = pod_ref(effect.pod)
        for attempt in range(backoff.max_attempts):
            pod = patch_builder.current_pod(effect, self._cache)
            patch = None if pod is None else patch_builder.pod_patch(effect, pod, now=self._now())
            if pod is None or patch is None:
                # A soft eviction of a pod that has the label writes nothing, and is no failure.
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

    async def evict(self, effect: Evict) -> RefusedEviction | None:
        """Why the pod was not evicted, or None."""
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
        return None if pod is None or patch_builder.is_terminating(pod) else RefusedEviction(why)

    async def _send_eviction(self, effect: Evict, pod: ManifestView) -> RefusedEviction | None:
        ref = pod_ref(effect.pod)
        for step in steps_of(effect):
            match step:
                case WriteStep.PATCH:
                    return await self._request_soft_eviction(effect)
                case WriteStep.DISRUPTION_CONDITION:
                    if patch := patch_builder.disruption_patch(effect, pod, now=self._now()):
                        await self._patch(ref, patch, uid=effect.uid)
                case WriteStep.EVICTION:
                    await self._api_writer.evict(ref, uid=effect.uid)
                case WriteStep.DELETION:
                    await self._api_writer.delete(ref, uid=effect.uid)
        self._cache.mark_terminating(ref, uid=effect.uid)
        return None

    async def _request_soft_eviction(self, effect: Evict) -> RefusedEviction | None:
        done = await self.patch_pod(effect, backoff=self._short_backoff)
        if done or patch_builder.current_pod(effect, self._cache) is None:
            return None
        return RefusedEviction(f"pod {effect.pod} could not be labelled for soft eviction")

    # -- requests --------------------------------------------------------------------------------------------------------------

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
        """Read the object again. Without an answer, the cached state stays."""
        try:
            self._cache.apply_response(ref[:2], await self._api_writer.get(ref))
        except ApiError as error:
            if error.status == NOT_FOUND:
                self._cache.forget(ref, uid=uid)


def only_changed_conditions(patch: Manifest, present: ManifestView | None) -> Manifest:
    """A strategic merge patch merges conditions by type: those that are there already are left out, for others may change them."""
    status = patch.get("status") or {}
    if "conditions" not in status:
        return patch
    known = patch_builder.conditions(present)
    return {**patch, "status": {**status, "conditions": [one for one in status["conditions"] if one not in known]}}


def _budget_refusal(error: ApiError, *, namespace: str) -> RefusedEviction | None:
    """Which PodDisruptionBudget forbids the eviction, if one does: only the message names it. A pod with two is never evicted."""
    if _TWO_BUDGETS in error.message:
        return RefusedEviction(error.message)
    causes: list[Any] = error.details.get("causes") or []
    for cause in causes:
        if error.status == TOO_MANY_REQUESTS and isinstance(cause, dict) and cause.get("reason") == BUDGET_CAUSE:
            message = str(cause.get("message") or error.message)
            name = _BUDGET_NAME.search(message)
            return RefusedEviction(message, f"{namespace}/{name[1]}" if name else "")
    return None
