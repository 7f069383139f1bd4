"""A real API server with a user, kubelets, and schedulers behind a recording proxy.

Users and kubelets do not go through the proxy. Schedulers are processes, each with a listener of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.harness.api_discovery import discover_versions
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.harness.settling_kubelets import SettlingKubelets
from tests.kube.api_user import ApiUser
from tests.kube.event_loop_thread import BackgroundLoop
from tests.kube.fork_server import ForkServer, SchedulerProcess
from tests.kube.recording_proxy import RecordingProxy

from muster.crds.crd_install import install
from muster.kube.watch.access import read_access
from muster.kube.watch.client import Client

START_S: Final = 0.1
"""From a bind to the start of a pod."""


class ProcessHarness:
    """A context manager. All schedulers are dead at its end. `one_by_one`: no write begins before the last one was answered."""

    def __init__(self, servers: Servers, fork_server: ForkServer, folder: Path, *, one_by_one: bool = False) -> None:
        self.processes: dict[str, SchedulerProcess] = {}
        """The schedulers by the names of their listeners, dead ones included."""
        self._servers = servers
        self._fork_server = fork_server
        self._folder = folder
        self._one_by_one = one_by_one
        self._stack = ExitStack()

    def __enter__(self) -> ProcessHarness:
        with ExitStack() as stack:
            self.background = stack.enter_context(BackgroundLoop())
            run = self.background.run
            self._client = Client(run(read_access(self._servers.kubeconfig())))
            stack.callback(lambda: run(self._client.close()))
            self.user = ApiUser(stack.enter_context(self._servers.api()), run(discover_versions(self._client)))
            self.proxy = run(self._open_proxy())
            stack.callback(lambda: run(self._opened.__aexit__(None, None, None)))
            self.kubelets = run(self._open_kubelets())
            stack.callback(lambda: run(self.kubelets.__aexit__(None, None, None)))
            stack.callback(self._end_schedulers)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for name, process in self.processes.items() if error is not None else ():
            print(f"{name}:\n{process.log.read_text(errors='replace')[-6000:]}")
        self._stack.close()

    async def _open_proxy(self) -> RecordingProxy:
        proxy = RecordingProxy(await read_access(self._servers.kubeconfig()), one_by_one=self._one_by_one)
        self._opened = proxy.opened()
        await self._opened.__aenter__()
        return proxy

    async def _open_kubelets(self) -> SettlingKubelets:
        return await SettlingKubelets(self._client, startup_s=START_S).__aenter__()

    # -- schedulers ----------------------------------------------------------------------------------------------------------------

    def scheduler(self, name: str, *options: str) -> SchedulerProcess:
        """A new process behind a new listener of this name."""
        url = self.background.run(self.proxy.listener(name))
        config = self._folder / f"{name}.json"
        config.write_text(json.dumps(_kubeconfig(url)))
        process = self.processes[name] = self._fork_server.start("--kubeconfig", str(config), *options)
        return process

    def _end_schedulers(self) -> None:
        for process in self.processes.values():
            process.kill()

    # -- kubelets ------------------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Nodes are ready, and all that kubelets have to do now is done."""
        self.background.run(self.kubelets.settle())

    def on_kubelets(self, change: Callable[[SettlingKubelets], None]) -> None:
        """Something happens to nodes, once their kubelets have seen all there is."""

        async def telling() -> None:
            change(self.kubelets)

        self.settle()
        self.background.run(telling())
        self.settle()


def install_kinds(servers: Servers, *, group: str = "") -> None:
    """What `muster crds --install` does, for the definitions of this group only where one is given."""

    async def installed() -> None:
        client = Client(await read_access(servers.kubeconfig()))
        try:
            await install(client, group=group)
        finally:
            await client.close()

    with BackgroundLoop() as background:
        background.run(installed())


def wait_until(check: Callable[[], object], *, timeout_s: float = 40.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def _kubeconfig(url: str) -> dict[str, object]:
    """To a gate, which says itself who it is."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "gate", "cluster": {"server": url}}],
        "users": [{"name": "anybody", "user": {}}],
        "contexts": [{"name": "gate", "context": {"cluster": "gate", "user": "anybody"}}],
        "current-context": "gate",
    }
