"""A stand-in for the operator of soft evictions, as a program: deletes pods with the label of a soft eviction after a delay.

It knows the label and nothing of Muster. The delay is in the pod's annotation `sim.muster.dev/cleanup-after-seconds`, else --after;
without both the pod is ignored. A pod whose label was removed meanwhile stays.

python -m tests.harness.soft_eviction_cleaner --kubeconfig FILE [--after SECONDS]
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from typing import Final

import msgspec

from muster.kube.read.api_resources import resource_of
from muster.kube.watch.access import AccessError, read_access
from muster.kube.watch.client import ApiError, Client
from muster.kube.watch.object_tracker import UpdateType, WatchUpdate
from muster.kube.watch.reflector import Reflector

SOFT_EVICTION_LABEL: Final = "scheduling.koordinator.sh/soft-eviction"
CLEANUP_AFTER: Final = "sim.muster.dev/cleanup-after-seconds"
_RETRY_S = 1.0
_FINAL_STATUSES = frozenset({404, 409})


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    uid: str
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str = ""


class _PodObject(msgspec.Struct):
    metadata: _Metadata


class SoftEvictionCleaner:
    def __init__(self, client: Client, *, after_s: float | None) -> None:
        self._client = client
        self._after_s = after_s
        self._deletions: dict[str, asyncio.Task[None]] = {}
        self._deleting: set[str] = set()
        """UIDs of pods that are being deleted; further updates of them are ignored."""

    async def run(self) -> None:
        try:
            await Reflector(self._client, resource_of("", "Pod"), self._on_notices).run()
        finally:
            for plan in self._deletions.values():
                plan.cancel()

    def _on_notices(self, updates: list[WatchUpdate]) -> None:
        for update in updates:
            if update.update_type is not UpdateType.SYNCED:
                self._on_pod(
                    msgspec.json.decode(update.raw, type=_PodObject).metadata, gone=update.update_type is UpdateType.DELETE
                )

    def _on_pod(self, pod: _Metadata, *, gone: bool) -> None:
        is_marked = pod.labels.get(SOFT_EVICTION_LABEL) == "true" and not gone and not pod.deletion_timestamp
        plan = self._deletions.get(pod.uid)
        if pod.uid in self._deleting:
            return
        if not is_marked:
            if plan is not None:
                plan.cancel()
        elif plan is None and (after_s := self._delay_s(pod)) is not None:
            made = self._deletions[pod.uid] = asyncio.create_task(self._delete(pod, after_s=after_s))
            made.add_done_callback(lambda _: self._deletion_done(pod.uid))

    def _deletion_done(self, uid: str) -> None:
        self._deletions.pop(uid, None)
        self._deleting.discard(uid)

    def _delay_s(self, pod: _Metadata) -> float | None:
        try:
            return float(pod.annotations[CLEANUP_AFTER])
        except (KeyError, ValueError):
            return self._after_s

    async def _delete(self, pod: _Metadata, *, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._deleting.add(pod.uid)
        path = resource_of("", "Pod").path("v1", namespace=pod.namespace, name=pod.name)
        while True:
            try:
                await self._client.request("DELETE", path, body={"preconditions": {"uid": pod.uid}})
            except ApiError as error:
                if error.status in _FINAL_STATUSES:
                    return
                await asyncio.sleep(_RETRY_S)
            else:
                print(f"deleted {pod.namespace}/{pod.name}", flush=True)
                return


async def run_cleaner(kubeconfig: Path | None, *, after_s: float | None) -> None:
    """Until SIGTERM or SIGINT."""
    client = Client(await read_access(kubeconfig))
    running = asyncio.create_task(SoftEvictionCleaner(client, after_s=after_s).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        await asyncio.gather(running, return_exceptions=True)
    finally:
        await client.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.harness.soft_eviction_cleaner", description="Delete pods marked for a soft eviction."
    )
    parser.add_argument("--kubeconfig", type=Path, help="the cluster; KUBECONFIG counts without it")
    parser.add_argument("--after", type=float, metavar="SECONDS", help="when to delete pods that do not say it themselves")
    asked = parser.parse_args(arguments)
    try:
        asyncio.run(run_cleaner(asked.kubeconfig, after_s=asked.after))
    except AccessError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
