"""A real etcd and kube-apiserver for the tests in this folder: one pair for each worker, emptied after every test.

The programs are found or built while tests are collected: a build takes minutes, and no test may be timed out by it.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.fork_server import ForkServer
from tests.kube.schemaless_crds import install as install_rest

from muster.crds.crd_install import install
from muster.kube.read import names
from muster.kube.watch.access import read_access
from muster.kube.watch.client import Client
from muster.lab.assets import Assets, NoServerBinaries, get_assets

FOUND = pytest.StashKey[Assets | str]()
"""The programs, or why there are none."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = any("assets" in getattr(item, "fixturenames", ()) for item in items)
    if wanted and FOUND not in config.stash and not config.option.collectonly:
        config.stash[FOUND] = _find_assets(config)


def _find_assets(config: pytest.Config) -> Assets | str:
    capture = config.pluginmanager.getplugin("capturemanager")
    try:
        if capture is None:
            return get_assets()
        # Whoever waits for a build should see that it goes on.
        with capture.global_and_fixture_disabled():
            return get_assets()
    except NoServerBinaries as none:
        return str(none)


@pytest.fixture(scope="session")
def assets(request: pytest.FixtureRequest) -> Assets:
    found = request.config.stash[FOUND]
    if isinstance(found, str):
        pytest.skip(f"NO KUBE-APISERVER: {found}")
    return found


@pytest.fixture(scope="session")
def servers(assets: Assets) -> Iterator[Servers]:
    """Servers with Plans and Histories, without which no scheduler starts, and no other custom kinds."""
    with Servers(assets) as running:
        asyncio.run(_install(running, group=names.MUSTER_GROUP))
        running.keep_present_objects()
        yield running


async def _install(running: Servers, *, group: str = "") -> None:
    client = Client(await read_access(running.kubeconfig()))
    try:
        await install(client, group=group)
    finally:
        await client.close()


@pytest.fixture(scope="session")
def servers_with_kinds(assets: Assets) -> Iterator[Servers]:
    """Servers with the custom kinds that Muster ships. They are others, because some tests want to bring their own."""
    with Servers(assets) as running:
        asyncio.run(_install(running))
        # Others bring the kinds that Muster only reads.
        install_rest(running)
        yield running


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test left behind is gone before the next one."""
    running: list[Servers] = [
        request.getfixturevalue(name) for name in ("servers", "servers_with_kinds") if name in request.fixturenames
    ]
    yield
    for one in running:
        one.check()
        one.reset()


@pytest.fixture
def kubeconfig(servers: Servers) -> Path:
    """Of somebody who may do everything."""
    return servers.kubeconfig()


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Where schedulers come from that start at once."""
    with ForkServer(tmp_path_factory.mktemp("schedulers")) as running:
        yield running
