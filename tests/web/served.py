"""A page that is served in a thread of its own, for tests that ask it from outside."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from muster.cli.cluster_state import ClusterOptions
from muster.cli.view import read_views
from muster.web.api_access import ApiAccess, LoopbackAccess
from muster.web.api_server import ApiServer
from muster.web.dry_runs import DryRuns
from muster.web.http_server import serving_api
from muster.web.view_source import ViewSource

BUSY = """
name: two racks, two queues, a preemptor and a gang that waits
policy:
  plugins: [capacity, priority, topology: {tiers: {rack: rack}}, fit, nominated, lost-work]
nodes:
- {name: "a[1-2]", gpu: 8, labels: {rack: a}}
- {name: "b[1-2]", gpu: 8, labels: {rack: b}}
queues:
- {name: prod, deserved: {gpu: 24}}
- {name: research, deserved: {gpu: 8}, limit: {gpu: 24}}
gangs:
- {name: llm, namespace: research, queue: research, pods: 2, requests: {gpu: 8}, priority: 5, age: 2h, runningOn: [a1, a2]}
- {name: train, namespace: prod, queue: prod, priority: 100, pods: 1, requests: {gpu: 8}, age: 1h, runningOn: [b1]}
steps:
- submit: {name: huge, namespace: research, queue: research, pods: 5, requests: {gpu: 8}}
- run: {for: 2m, every: 30s}
- submit: {name: xl, namespace: prod, queue: prod, priority: 50, pods: 2, requests: {gpu: 8}}
- run: {for: 2m, every: 30s}
"""


def scenario(folder: Path, text: str = BUSY) -> ClusterOptions:
    file = folder / "scenario.yaml"
    file.write_text(text, encoding="utf-8")
    return ClusterOptions(str(file), quiet=True)


@contextmanager
def serving(source: ViewSource, access: ApiAccess | None = None, *, port: int = 0) -> Iterator[str]:
    """The address of the page."""
    ready, stop = threading.Event(), threading.Event()
    found: list[str] = []

    async def run() -> None:
        api = ApiServer(source, DryRuns())
        async with serving_api(api, access or LoopbackAccess(), ("127.0.0.1", port)) as (host, actual):
            found.append(f"http://{host}:{actual}")
            ready.set()
            await asyncio.to_thread(stop.wait)
        api.close()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    ready.wait(20)
    try:
        yield found[0]
    finally:
        stop.set()
        thread.join()


@contextmanager
def serving_file(options: ClusterOptions) -> Iterator[str]:
    with serving(read_views(options)) as address:
        yield address


def ask(url: str, *, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """Status and document."""
    request = urllib.request.Request(url, data=body, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())
