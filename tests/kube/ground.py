"""The ground that stories stand on: a real API server with a user, kubelets, and a gate through which schedulers come.

Users and kubelets do not come through the gate. Schedulers are processes, each with a door of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.kube.background import Background
from tests.kube.gate import Gate
from tests.kube.nursery import Child, Nursery
from tests.kube.user import User

from muster.adapters.kube.access import read_access
from muster.adapters.kube.client import Client
from muster.adapters.kube.reflector import discover
from muster.crds.install import install
from muster.lab.kubelet import Kubelets
from muster.lab.servers import Servers

START_S: Final = 0.1
"""From a bind to the start of a pod."""


class Ground:
    """A context manager. All schedulers are dead at its end. `one_by_one`: no write begins before the last one was answered."""

    def __init__(self, servers: Servers, nursery: Nursery, folder: Path, *, one_by_one: bool = False) -> None:
        self.children: dict[str, Child] = {}
        """The schedulers by the names of their doors, dead ones included."""
        self._servers = servers
        self._nursery = nursery
        self._folder = folder
        self._one_by_one = one_by_one
        self._stack = ExitStack()

    def __enter__(self) -> Ground:
        with ExitStack() as stack:
            self.background = stack.enter_context(Background())
            do = self.background.do
            self._client = Client(do(read_access(self._servers.kubeconfig())))
            stack.callback(lambda: do(self._client.close()))
            self.user = User(stack.enter_context(self._servers.door()), do(discover(self._client)))
            self.gate = do(self._open_gate())
            stack.callback(lambda: do(self._opened.__aexit__(None, None, None)))
            self.kubelets = do(self._open_kubelets())
            stack.callback(lambda: do(self.kubelets.__aexit__(None, None, None)))
            stack.callback(self._end_schedulers)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for name, child in self.children.items() if error is not None else ():
            print(f"{name}:\n{child.log.read_text(errors='replace')[-6000:]}")
        self._stack.close()

    async def _open_gate(self) -> Gate:
        gate = Gate(await read_access(self._servers.kubeconfig()), one_by_one=self._one_by_one)
        self._opened = gate.opened()
        await self._opened.__aenter__()
        return gate

    async def _open_kubelets(self) -> Kubelets:
        return await Kubelets(self._client, start_s=START_S, beat_s=None).__aenter__()

    # -- schedulers ------------------------------------------------------------------------------------------------------------

    def scheduler(self, name: str, *options: str) -> Child:
        """A new process behind a new door of this name."""
        url = self.background.do(self.gate.door(name))
        config = self._folder / f"{name}.json"
        config.write_text(json.dumps(_kubeconfig(url)))
        child = self.children[name] = self._nursery.start("--kubeconfig", str(config), *options)
        return child

    def _end_schedulers(self) -> None:
        for child in self.children.values():
            child.kill()

    # -- kubelets --------------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Nodes are ready, and all that kubelets have to do now is done."""
        self.background.do(self.kubelets.settle())

    def tell(self, told: Callable[[Kubelets], None]) -> None:
        """Something happens to nodes, once their kubelets have seen all there is."""

        async def telling() -> None:
            told(self.kubelets)

        self.settle()
        self.background.do(telling())
        self.settle()


def install_kinds(servers: Servers) -> None:
    """What `muster crds --install` does."""

    async def installed() -> None:
        client = Client(await read_access(servers.kubeconfig()))
        try:
            await install(client)
        finally:
            await client.close()

    with Background() as background:
        background.do(installed())


def until(check: Callable[[], object], *, timeout_s: float = 40.0) -> None:
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
