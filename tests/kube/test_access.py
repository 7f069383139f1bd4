"""How a cluster is found and how one logs in: kubeconfig, login plugins, the service account of a pod, and what changes."""

import asyncio
import json
import os
import sys
import time
from base64 import b64decode
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from muster.kube.watch import plain_login
from muster.kube.watch.access import FILE_REFRESH_S, Access, AccessError, read_access
from muster.kube.watch.client import Client
from muster.lab.servers import Servers


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster is to be found by chance."""
    proxies = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy")
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", *proxies):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def kubeconfig_file(folder: Path, user: dict[str, Any], *, name: str = "config", server: str = "http://127.0.0.1:1") -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "two", "context": {"cluster": "d", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": server}}, {"name": "d", "cluster": {"server": server + "2"}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / name
    path.write_text(json.dumps(config))
    return path


def read(path: Path | None = None, **more: str) -> Access:
    return asyncio.run(read_access(path, **more))


def test_a_kubeconfig_says_where_and_who(tmp_path: Path) -> None:
    path = kubeconfig_file(tmp_path, {"token": "secret"})
    access = read(path)
    assert (access.server, access.credentials.header) == ("http://127.0.0.1:1", "Bearer secret")
    assert "secret" not in repr(access)
    assert read(path, context="two").server == "http://127.0.0.1:12"


def test_without_a_name_the_environment_counts_and_then_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".kube").mkdir()
    kubeconfig_file(tmp_path / ".kube", {"token": "home"})
    assert read().credentials.header == "Bearer home"
    named = kubeconfig_file(tmp_path, {"token": "named"}, name="named")
    # As kubectl has it: several files, of which some may be missing.
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "absent"), str(named)]))
    assert read().credentials.header == "Bearer named"


def test_an_invalid_kubeconfig_is_reported(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"no kubeconfig at .*absent; name one with --kubeconfig"):
        read(tmp_path / "absent")
    with pytest.raises(AccessError, match="three"):
        read(kubeconfig_file(tmp_path, {"token": "x"}), context="three")
    (tmp_path / "broken").write_text("{ no: [yaml")
    with pytest.raises(AccessError, match="broken"):
        read(tmp_path / "broken")
    (tmp_path / "empty").write_text("")
    with pytest.raises(AccessError, match="empty"):
        read(tmp_path / "empty")
    with pytest.raises(AccessError, match=r"lost\.key"):
        read(kubeconfig_file(tmp_path, {"client-certificate": "lost.key", "client-key": "lost.key"}, server="https://127.0.0.1:1"))


def test_a_token_in_a_file_is_read_again_when_it_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("first")
    access = read(kubeconfig_file(tmp_path, {"tokenFile": "token"}))
    seen = [(access.credentials.header, access.is_due)]
    (tmp_path / "token").write_text("second")
    later = time.monotonic() + FILE_REFRESH_S
    monkeypatch.setattr(time, "monotonic", lambda: later)
    seen.append((access.credentials.header, access.is_due))
    asyncio.run(access.renew())
    seen.append((access.credentials.header, access.is_due))
    assert seen == [("Bearer first", False), ("Bearer first", True), ("Bearer second", False)]


def test_a_token_that_cannot_change_is_never_due(tmp_path: Path) -> None:
    assert read(kubeconfig_file(tmp_path, {"token": "x"})).credentials.refresh_after_s is None


def plugin(folder: Path, status: dict[str, Any], *, code: int = 0) -> dict[str, Any]:
    """A login plugin: prints its credentials, with the number of times that it ran."""
    answer = json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})
    script = folder / "plugin.py"
    script.write_text(
        "import pathlib, sys\n"
        "runs = pathlib.Path(sys.argv[1])\n"
        "runs.write_text(runs.read_text() + 'x' if runs.exists() else 'x')\n"
        f"print({answer!r}.replace('RUNS', str(len(runs.read_text()))))\n"
        f"sys.exit({code})\n"
    )
    command = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(script), str(folder / "runs")],
    }
    return {"exec": command}


def test_a_login_plugin_gives_a_token_and_another_when_that_is_old(tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "token-RUNS", "expirationTimestamp": "2100-01-01T00:00:00Z"})
    access = read(kubeconfig_file(tmp_path, user))
    assert access.credentials.header == "Bearer token-1"
    assert access.credentials.refresh_after_s is not None
    assert access.credentials.refresh_after_s > 3600
    asyncio.run(access.renew())
    assert access.credentials.header == "Bearer token-2"


def test_a_login_plugin_that_fails_is_named(tmp_path: Path) -> None:
    user = plugin(tmp_path, {}, code=3)
    with pytest.raises(AccessError, match=r"login plugin .* returned no credentials"):
        read(kubeconfig_file(tmp_path, user))


def test_in_a_pod_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: Servers) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", servers.url.rpartition(":")[2])
    with pytest.raises(AccessError, match="its service account cannot be read"):
        read()
    token = tmp_path / "token"
    token.write_text("one\n")
    (tmp_path / "ca.crt").write_bytes(servers.ca_file.read_bytes())
    monkeypatch.setattr(plain_login, "SERVICE_ACCOUNT", tmp_path)
    access = read()
    assert (access.server, access.credentials.header) == (servers.url, "Bearer one")
    token.write_text("two\n")
    asyncio.run(access.renew())
    assert access.credentials.header == "Bearer two"


def test_a_certificate_that_was_replaced_in_place_is_used_by_new_connections(servers: Servers, tmp_path: Path) -> None:
    """First somebody without rights, then, in the same files, the admin."""
    pairs = {user: decoded(servers.kubeconfig(user)) for user in ("stranger", "admin")}

    def place(user: str) -> None:
        for name in ("client-certificate", "client-key"):
            (tmp_path / name).write_bytes(pairs[user][name])

    async def steps() -> None:
        place("stranger")
        path = kubeconfig_file(
            tmp_path, {"client-certificate": "client-certificate", "client-key": "client-key"}, server=servers.url
        )
        changed(path, "clusters", "cluster", {"certificate-authority": str(servers.ca_file)})
        access = await read_access(path)
        assert (await whoami(access))["username"] == "stranger"
        place("admin")
        for name in ("client-certificate", "client-key"):
            os.utime(tmp_path / name, (1, 1))
        await access.renew()
        assert (await whoami(access))["username"] == "admin"

    asyncio.run(steps())


def test_whoever_acts_as_another_has_the_rights_of_that_one(servers: Servers, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(servers.kubeconfig().read_text())
    extra = {"as-user-extra": {"example.com/why": ["a test"]}}
    changed(path, "users", "user", {"as": "jane", "as-groups": ["dev", "ops"], "as-uid": "7", **extra})
    found = asyncio.run(_whoami_of(path))
    assert (found["username"], found["uid"]) == ("jane", "7")
    assert {"dev", "ops"} <= set(found["groups"])
    assert found["extra"] == {"example.com/why": ["a test"]}


def test_a_cluster_is_reached_through_the_proxy_that_the_kubeconfig_names(servers: Servers, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(servers.kubeconfig().read_text())

    async def steps() -> None:
        asked: list[str] = []
        async with await asyncio.start_server(partial(_tunnel, asked), "127.0.0.1", 0) as proxy:
            port = proxy.sockets[0].getsockname()[1]
            changed(path, "clusters", "cluster", {"proxy-url": f"http://127.0.0.1:{port}"})
            assert (await _whoami_of(path))["username"] == "admin"
        assert asked == [f"CONNECT {servers.url.removeprefix('https://')} HTTP/1.1"]

    asyncio.run(steps())


@pytest.mark.parametrize(
    ("server", "without", "proxy"),
    [
        ("https://k8s.example.com:6443", "", "http://p:3128"),
        ("https://k8s.example.com:6443", "example.org, other.example.com", "http://p:3128"),
        ("https://k8s.example.com:6443", "example.com", ""),
        ("https://k8s.example.com:6443", ".example.com", ""),
        ("https://k8s.example.com:6443", "K8S.EXAMPLE.COM:6443", ""),
        ("https://k8s.example.com:6443", "k8s.example.com:443", "http://p:3128"),
        ("https://k8s.example.com:6443", "*", ""),
        ("https://mk8s.com", "k8s.com", "http://p:3128"),
        ("https://10.1.2.3", "10.0.0.0/8", ""),
        ("https://10.1.2.3", "10.1.2.4,192.168.0.0/16", "http://p:3128"),
        ("https://[fd00::1]:6443", "fd00::/8", ""),
        ("https://127.0.0.1:6443", "", ""),
        ("https://localhost:6443", "", ""),
        ("http://k8s.example.com", "", ""),
    ],
)
def test_the_environment_names_a_proxy_and_for_whom_not(
    server: str, without: str, proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://p:3128")
    monkeypatch.setenv("NO_PROXY", without)
    assert read(kubeconfig_file(tmp_path, {"token": "x"}, server=server)).proxy == proxy


async def _tunnel(asked: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A proxy that does one thing: CONNECT."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[0]
    asked.append(head)
    host, _, port = head.split()[1].partition(":")
    there, back = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    await asyncio.gather(_pipe(reader, back), _pipe(there, writer))


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await source.read(2**16):
            target.write(piece)
            await target.drain()
    target.close()


async def _whoami_of(kubeconfig: Path) -> dict[str, Any]:
    return await whoami(await read_access(kubeconfig))


async def whoami(access: Access) -> dict[str, Any]:
    """Whom the server takes us for."""
    client = Client(access)
    try:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await client.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review)
    finally:
        await client.close()
    found: dict[str, Any] = json.loads(answer)["status"]["userInfo"]
    return found


def changed(kubeconfig: Path, several: str, one: str, more: dict[str, Any]) -> None:
    """More in its first cluster or user."""
    config = json.loads(kubeconfig.read_text())
    config[several][0][one] |= more
    kubeconfig.write_text(json.dumps(config))


def decoded(kubeconfig: Path) -> dict[str, bytes]:
    user = json.loads(kubeconfig.read_text())["users"][0]["user"]
    return {name: b64decode(user[f"{name}-data"]) for name in ("client-certificate", "client-key")}
