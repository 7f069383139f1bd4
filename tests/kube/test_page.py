"""The API of `muster run` on a real API server: what it says is what the server says, and tokens are asked about there."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.harness.blocking_client import BlockingClient
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.scheduler_process import PATIENCE_S, RunProcess, eventually
from tests.kube.small_live_cluster import PODS, FixtureCluster
from tests.web.chromium import HOW, find_chromium
from tests.web.page_speed import opened_browser
from tests.web.served import ask
from tests.web.shown_page import Shown

from muster.kube.watch.access import read_access
from muster.kube.watch.client import Client
from muster.lab.certificates import CertificateAuthority
from muster.lab.scheduler_process import SchedulerProcess
from muster.web.api_access import CACHE_S, Denied, TokenAccess

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def test_the_api_shows_what_the_server_has_and_a_token_shows_what_its_owner_may_list(
    servers: Servers, kubeconfig: Path, tmp_path: Path
) -> None:
    options = ("--api-address", "127.0.0.1:0", "--api-certificate", tmp_path / "tls.crt", "--api-key", tmp_path / "tls.key")
    authority = CertificateAuthority()
    pair = authority.server("localhost")
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    with servers.api() as api, RunProcess(kubeconfig, *options) as run:
        cluster = FixtureCluster(api)
        cluster.nodes("n1", "n2")
        run.wait_until_ready()
        cluster.gang("train", pods=4)
        cluster.gang("large", pods=9)
        eventually(lambda: len(cluster.placed()) == 4)
        page = f"http://{run.wait_for_log('serving')['address']}/api/v1"
        # The pods of both may be seen one after the other.
        eventually(lambda: _stages(page) == {"default/train": "running", "default/large": "waiting"})
        members = ask(f"{page}/gangs/default/train")[1]["members"]
        assert {row["pod"].removeprefix("default/"): row["node"] for row in members} == cluster.placed()
        assert ask(f"{page}/why/default/large")[1]["forecast"]["code"] == 3

        tls = f"https://{run.wait_for_log('serving the API')['address']}/api/v1"
        context = ssl.create_default_context(cadata=authority.certificate.decode())
        assert _get(tls, "gangs", "", context)[0] == 401
        assert _get(tls, "gangs", "no.such.token", context)[0] == 401
        guest, owner = _token(api, "guest"), _token(api, "owner", may_list_pods=True)
        assert _get(tls, "gangs", guest, context) == (200, set())
        assert _get(tls, "gangs", owner, context) == (200, {"default/train", "default/large"})


def test_a_browser_shows_what_the_server_has_while_it_changes_and_the_scheduler_stops_and_starts(
    servers: Servers, kubeconfig: Path
) -> None:
    pytest.importorskip("selenium.webdriver", reason=HOW)
    if find_chromium() is None:
        pytest.skip(HOW)
    with servers.api() as api, opened_browser() as browser:
        cluster = FixtureCluster(api)
        cluster.nodes("n1", "n2")
        with RunProcess(kubeconfig) as run:
            run.wait_until_ready()
            address = run.wait_for_log("serving")["address"]
            shown = Shown(browser, f"http://{address}/#/gangs")
            # Nobody loads the page again.
            cluster.gang("train", pods=4)
            cluster.gang("large", pods=9)
            shown.until(lambda: "default/train" in shown.text("main") and "8 of 8 cpu in use" in shown.text("#headline"))
            shown.until(lambda: _said_of(address, "large") in shown.text("main"))
            assert _said_of(address, "large")
            stages = {name.partition("/")[2]: stage for name, stage in _stages(f"http://{address}/api/v1").items()}
            assert stages == {"train": "running", "large": "waiting"}
            shown.run("location.hash = '#/gang/default/train'")
            shown.until(lambda: all(f"default/{pod}" in shown.text("main") for pod in cluster.placed()))
            assert sorted(shown.run("return [...state.marked]")) == ["n1", "n2"]
            shown.run("location.hash = '#/plan'")
            job = "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: default}, spec: {schedulerName: muster, "
            job += "containers: [{name: main, image: i, resources: {requests: {cpu: 1}}}]}}"
            shown.run(f"document.getElementById('job').value = '{job}'; document.querySelector('main form button').click()")
            shown.until(lambda: "default/x" in shown.text("main .answer"))
            assert shown.errors() == []
        shown.until(lambda: "The connection is lost: these are the figures of" in shown.text("#trouble"))
        api.request("DELETE", f"{PODS}/train-0")
        with SchedulerProcess(kubeconfig, "--no-leader-election", address=address, environment={}) as again:
            again.wait_for_log("ready")
            shown.until(lambda: "6 of 8 cpu in use" in shown.text("#headline") and not shown.text("#trouble"))


def _said_of(address: str, gang: str) -> str:
    return str(ask(f"http://{address}/api/v1/gangs/default/{gang}")[1]["gang"]["why"])


def test_the_server_says_which_tokens_count_and_until_when(servers: Servers) -> None:
    """Of another audience, tampered with, of an account that was deleted and made anew, and of an owner who lost her rights."""
    now = [0.0]

    async def sees(access: TokenAccess, token: str) -> frozenset[str] | str | None:
        try:
            reader = await access.reader(remote="10.0.0.7", host="", token=token)
        except Denied as denied:
            return str(denied.status)
        return await reader.visible(_default)

    async def steps(client: Client, api: BlockingClient) -> None:
        access = TokenAccess(lambda path, body: client.request("POST", path, body=body), clock=lambda: now[0])
        owner, other = _token(api, "owner", may_list_pods=True), _token(api, "other", audience="vault")
        head, claims, signature = owner.split(".")
        said = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        later = base64.urlsafe_b64encode(json.dumps({**said, "exp": said["exp"] + 10**6}).encode()).decode().rstrip("=")
        assert await sees(access, owner) == frozenset({"default"})
        assert [await sees(access, token) for token in (other, f"{head}.{later}.{signature}", f"{owner}x")] == ["401"] * 3
        # What was answered counts for a minute, and no longer, whatever was revoked: first her rights, then her account.
        api.request("DELETE", f"{RBAC}/namespaces/default/rolebindings/owner")
        assert await sees(access, owner) == frozenset({"default"})
        now[0] += CACHE_S + 1
        assert await sees(access, owner) == frozenset()
        api.request("DELETE", f"{ACCOUNTS}/owner")
        # The server itself remembers tokens for some seconds.
        deadline = time.monotonic() + PATIENCE_S
        while await sees(access, owner) != "401":
            assert time.monotonic() < deadline
            await asyncio.sleep(0.5)
            now[0] += CACHE_S + 1
        api.request("POST", ACCOUNTS, body={"metadata": {"name": "owner"}})
        now[0] += CACHE_S + 1
        assert await sees(access, owner) == "401"

    async def run() -> None:
        client = Client(await read_access(servers.kubeconfig()))
        try:
            with servers.api() as api:
                await steps(client, api)
        finally:
            await client.close()

    asyncio.run(run())


async def _default() -> list[str]:
    return ["default", "kube-system"]


def _stages(page: str) -> dict[str, str]:
    return {row["gang"]: row["stage"] for row in ask(f"{page}/gangs")[1].get("gangs", [])}


def _token(api: BlockingClient, name: str, *, may_list_pods: bool = False, audience: str = "") -> str:
    api.request("POST", ACCOUNTS, body={"metadata": {"name": name}})
    if may_list_pods:
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
        api.request("POST", f"{RBAC}/namespaces/default/roles", body={"metadata": {"name": name}, "rules": rules})
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        api.request("POST", f"{RBAC}/namespaces/default/rolebindings", body=binding)
    audiences = {"audiences": [audience]} if audience else {}
    made = api.request("POST", f"{ACCOUNTS}/{name}/token", body={"spec": {"expirationSeconds": 600, **audiences}})
    return str(made["status"]["token"])


def _get(api: str, part: str, token: str, context: ssl.SSLContext) -> tuple[int, Any]:
    request = urllib.request.Request(f"{api}/{part}", headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return answer.status, {row["gang"] for row in json.loads(answer.read())[part]}
    except urllib.error.HTTPError as error:
        with error:
            return error.code, None
