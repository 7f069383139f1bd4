"""An etcd that is restored from a backup: versions go back, what was deleted is there again, and what came later is gone."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from aiohttp import web
from tests.harness.etcd_reset import ResettableServers
from tests.kube.live_backend import install_kinds
from tests.kube.scheduler_process import RunProcess, eventually
from tests.kube.scripted_api_server import refuses_with, scripted_server
from tests.kube.small_live_cluster import PODS, FixtureCluster

from muster.kube.read import names
from muster.kube.watch.client import Client
from muster.kube.watch.restored_server import until_restored
from muster.lab.assets import Assets
from muster.lab.child_processes import Server


class RestorableServers(ResettableServers):
    """Whose etcd can be put back to the state of a backup, on the same ports."""

    commands: list[list[str]]

    def _spawn(self, command: list[str], *, stack: ExitStack) -> Server:
        self.__dict__.setdefault("commands", []).append(command)
        return super()._spawn(command, stack=stack)

    def back_up(self) -> None:
        self._stop()
        shutil.copytree(self.folder / "etcd", self.folder / "backup")
        self._start_again()

    def restore(self) -> None:
        self._stop()
        shutil.rmtree(self.folder / "etcd")
        shutil.copytree(self.folder / "backup", self.folder / "etcd")
        self._start_again()

    def _stop(self) -> None:
        for server in reversed(self._processes):
            server.stop()

    def _start_again(self) -> None:
        etcd, apiserver = (self._spawn(command, stack=self._stack) for command in self.commands[-2:])
        self._processes = (etcd, apiserver)
        self._wait_until_ready()


@pytest.fixture
def restorable(assets: Assets) -> Iterator[RestorableServers]:
    servers = RestorableServers(assets)
    with servers:
        install_kinds(servers, group=names.MUSTER_GROUP)
        yield servers


def pods_by_node(servers: RestorableServers) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with servers.api() as api:
        for pod in api.request("GET", PODS)["items"]:
            found.setdefault(pod["spec"].get("nodeName", ""), []).append(pod["metadata"]["name"])
    return found


def test_pods_that_come_back_are_counted_where_they_are(restorable: RestorableServers) -> None:
    with restorable.api() as api:
        cluster = FixtureCluster(api)
        cluster.nodes("n1", cpu="8")
        for number in range(4):
            cluster.pod(f"old-{number}", cpu="2", nodeName="n1")
    restorable.back_up()
    with RunProcess(restorable.kubeconfig()) as muster_run:
        muster_run.wait_until_ready()
        with restorable.api() as api:
            cluster = FixtureCluster(api)
            for number in range(4):
                api.request("DELETE", f"{PODS}/old-{number}")
            for number in range(50):
                cluster.pod(f"later-{number}", cpu="1", nodeSelector={"never": "there"})
        restorable.restore()
        muster_run.wait_for_log("the API server was restored: everything is read anew")
        eventually(lambda: len(muster_run.log_events("ready")) == 2)
        with restorable.api() as api:
            cluster = FixtureCluster(api)
            cluster.pod("new", cpu="2")
            eventually(lambda: "InsufficientCapacity" in str(cluster.get("new")))
            assert len(pods_by_node(restorable)["n1"]) == 4
            api.request("DELETE", f"{PODS}/old-0")
            eventually(lambda: "new" in pods_by_node(restorable)["n1"])
        assert muster_run.stop() == 0


def test_only_a_version_that_falls_is_a_restored_server() -> None:
    def lists(version: str) -> Callable[[web.Request], Any]:
        async def reply(_: web.Request) -> web.StreamResponse:
            return web.json_response({"metadata": {"resourceVersion": version}, "items": []})

        return reply

    async def steps() -> str:
        replies = (lists("7"), lists("7"), refuses_with(500), lists("9"), refuses_with(403), lists("8"))
        async with scripted_server(*replies) as (scripted, access):
            client = Client(access)
            try:
                return await until_restored(client, received=lambda: 0, interval_s=0.01)
            finally:
                await client.close()
                assert not scripted.replies

    assert asyncio.run(asyncio.wait_for(steps(), 60)) == "the server's version fell from 9 to 8"


def test_a_version_below_what_a_watch_received_is_a_restored_server() -> None:
    async def steps() -> str:
        async def reply(_: web.Request) -> web.StreamResponse:
            return web.json_response({"metadata": {"resourceVersion": "8"}, "items": []})

        received = iter((7, 12))
        async with scripted_server(reply, reply) as (_, access):
            client = Client(access)
            try:
                return await until_restored(client, received=lambda: next(received), interval_s=0.01)
            finally:
                await client.close()

    assert asyncio.run(asyncio.wait_for(steps(), 60)) == "the server's version fell from 12 to 8"
