"""Carries out single effects, with retries.

A write that failed may have been carried out all the same, and one with a conflict may be obsolete: so after each failure the
object is read again, and its state decides (`effect_writes`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from muster.kube.watch.client import CONFLICT, NOT_FOUND, TOO_MANY_REQUESTS, ApiError
from muster.kube.write.api_writer import ApiWriter, NotLeading, is_retryable
from muster.kube.write.backoff import LONG_BACKOFF, SHORT_BACKOFF, Backoff
from muster.kube.write.effect_writes import ApiWrite, EffectWrites, FailedEffect, VolumeWait, WrittenEffect, advance
from muster.model.effects import CancelEviction, DeletePlan, Release

log = structlog.get_logger(__name__)

BUDGET_CAUSE = "DisruptionBudget"
_TWO_BUDGETS = "more than one PodDisruptionBudget"
_BUDGET_NAME = re.compile(r"The disruption budget (\S+) ")
_VOLUME_POLL_S = 0.1
_RELEASES = (Release, CancelEviction, DeletePlan)


@dataclass(slots=True)
class _Retries:
    """Consecutive failures of one effect's writes."""

    backoff: Backoff
    failures: int = 0
    error: ApiError | None = None


class PodWriter:
    """`volume_wait_s`: how long a pod waits for its volumes before its bind fails; `on_blocked` gets the change in the number of
    pods that wait so. `on_retry` is called before an effect waits for its next attempt."""

    def __init__(
        self,
        api_writer: ApiWriter,
        effect_writes: EffectWrites,
        *,
        volume_wait_s: float,
        on_blocked: Callable[[int], None],
        on_retry: Callable[[], None],
    ) -> None:
        self._api_writer = api_writer
        self._effect_writes = effect_writes
        self._volume_wait_s = volume_wait_s
        self._on_blocked = on_blocked
        self._on_retry = on_retry

    async def carry_out(self, effect: WrittenEffect) -> FailedEffect | None:
        """What failed, or None. An error of one effect does not stop the others."""
        try:
            return await self._write_all(effect)
        except NotLeading:
            raise
        except Exception as error:
            log.exception("write failed")
            return FailedEffect(f"{type(error).__name__}: {error}")

    async def _write_all(self, effect: WrittenEffect) -> FailedEffect | None:
        retries = _Retries(LONG_BACKOFF if isinstance(effect, _RELEASES) else SHORT_BACKOFF)
        volumes_until = asyncio.get_running_loop().time() + self._volume_wait_s
        sequence = self._effect_writes.sequence(effect)
        step = advance(sequence)
        while not isinstance(step, str):
            if isinstance(step, VolumeWait):
                done = await self._wait_for_volumes(step, until=volumes_until)
            else:
                done = await self._try_write(step, retries)
            if isinstance(done, FailedEffect):
                return done
            step = advance(sequence, done=done)
        return FailedEffect(step) if step else None

    async def _try_write(self, write: ApiWrite, retries: _Retries) -> FailedEffect | bool:
        """Is it written? False: its object was read again."""
        if retries.error is not None:
            if retries.failures >= retries.backoff.max_attempts:
                return _give_up(write, retries.error)
            await retries.backoff.pause(retries.failures - 1, retries.error)
        try:
            await self._api_writer.write(write)
        except ApiError as error:
            if write.verb == "evict" and (refused := _budget_refusal(error, namespace=write.ref.namespace)):
                return refused
            if not is_retryable(error) and error.status not in (CONFLICT, NOT_FOUND):
                return _give_up(write, error)
            retries.failures, retries.error = retries.failures + 1, error
            self._on_retry()
            await self._api_writer.refresh(write.ref, uid=write.uid)
            return False
        retries.failures, retries.error = 0, None
        return True

    async def _wait_for_volumes(self, wait: VolumeWait, *, until: float) -> FailedEffect | bool:
        if asyncio.get_running_loop().time() >= until:
            claims = ", ".join(one.claim for one in wait.choices)
            return FailedEffect(f"no volume was bound to {claims} within {self._volume_wait_s:g} s")
        self._on_blocked(1)
        try:
            await asyncio.sleep(_VOLUME_POLL_S)
        finally:
            self._on_blocked(-1)
        return True


def _give_up(write: ApiWrite, error: ApiError) -> FailedEffect | bool:
    log.warning("API server refused a write", error=str(error))
    return True if write.optional else FailedEffect(f"the API server did not {write.purpose}: {error}")


def _budget_refusal(error: ApiError, *, namespace: str) -> FailedEffect | None:
    """Which PodDisruptionBudget forbids the eviction, if one does: only the message names it. A pod with two is never evicted."""
    if _TWO_BUDGETS in error.message:
        return FailedEffect(error.message)
    causes: list[Any] = error.details.get("causes") or []
    for cause in causes:
        if error.status == TOO_MANY_REQUESTS and isinstance(cause, dict) and cause.get("reason") == BUDGET_CAUSE:
            message = str(cause.get("message") or error.message)
            name = _BUDGET_NAME.search(message)
            return FailedEffect(message, f"{namespace}/{name[1]}" if name else "")
    return None
