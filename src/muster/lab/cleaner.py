"""Somebody else's operator, as a program of its own: it deletes pods that bear the label of a soft eviction, some time later.

It knows the label and nothing of Muster. A pod may say itself after how long (`sim.muster.dev/cleanup-after`); with --after all
others go after that time, without it they are left alone. A pod whose label is gone by then stays.

    python -m muster.lab.cleaner --kubeconfig FILE [--after SECONDS]
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from typing import Final

import msgspec

from muster.adapters.kube.access import AccessError, read_access
from muster.adapters.kube.client import ApiError, Client
from muster.adapters.kube.reflector import Notice, Reflector, What
from muster.adapters.kube.resources import resource_of

LABEL: Final = "scheduling.koordinator.sh/soft-eviction"
DELAY: Final = "sim.muster.dev/cleanup-after"
_RETRY_S = 1.0
_SETTLED = frozenset({404, 409})


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    uid: str
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata


class Cleaner:
    def __init__(self, client: Client, *, after_s: float | None) -> None:
        self._client = client
        self._after_s = after_s
        self._plans: dict[str, asyncio.Task[None]] = {}
        self._deleting: set[str] = set()
        """UIDs of those whose time has come: what is heard of them now changes nothing."""

    async def run(self) -> None:
        try:
            await Reflector(self._client, resource_of("", "Pod"), "v1", self._hear).run()
        finally:
            for plan in self._plans.values():
                plan.cancel()

    def _hear(self, notices: list[Notice]) -> None:
        for notice in notices:
            if notice.what is not What.SYNCED:
                self._look(msgspec.json.decode(notice.raw, type=_Pod).metadata, gone=notice.what is What.GONE)

    def _look(self, pod: _Metadata, *, gone: bool) -> None:
        is_marked = pod.labels.get(LABEL) == "true" and not gone and not pod.deletion_timestamp
        plan = self._plans.get(pod.uid)
        if pod.uid in self._deleting:
            return
        if not is_marked:
            if plan is not None:
                plan.cancel()
        elif plan is None and (after_s := self._delay_s(pod)) is not None:
            made = self._plans[pod.uid] = asyncio.create_task(self._delete(pod, after_s=after_s))
            made.add_done_callback(lambda _: self._forget(pod.uid))

    def _forget(self, uid: str) -> None:
        self._plans.pop(uid, None)
        self._deleting.discard(uid)

    def _delay_s(self, pod: _Metadata) -> float | None:
        try:
            return float(pod.annotations[DELAY])
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
                if error.status in _SETTLED:
                    return
                await asyncio.sleep(_RETRY_S)
            else:
                print(f"deleted {pod.namespace}/{pod.name}", flush=True)
                return


async def clean(kubeconfig: Path | None, *, after_s: float | None) -> None:
    """Until somebody ends it."""
    client = Client(await read_access(kubeconfig))
    running = asyncio.create_task(Cleaner(client, after_s=after_s).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        await asyncio.gather(running, return_exceptions=True)
    finally:
        await client.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m muster.lab.cleaner", description="Delete pods marked for a soft eviction.")
    parser.add_argument("--kubeconfig", type=Path, help="the cluster; KUBECONFIG counts without it")
    parser.add_argument("--after", type=float, metavar="SECONDS", help="when to delete pods that do not say it themselves")
    asked = parser.parse_args(arguments)
    try:
        asyncio.run(clean(asked.kubeconfig, after_s=asked.after))
    except AccessError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
