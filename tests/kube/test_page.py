"""The API of `muster run` on a real API server: what it says is what the server says, and tokens are asked about there."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.harness.blocking_client import BlockingClient
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.scheduler_process import RunProcess, eventually
from tests.kube.small_live_cluster import FixtureCluster
from tests.web.served import ask

from muster.lab.certificates import CertificateAuthority

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


def _stages(page: str) -> dict[str, str]:
    return {row["gang"]: row["stage"] for row in ask(f"{page}/gangs")[1].get("gangs", [])}


def _token(api: BlockingClient, name: str, *, may_list_pods: bool = False) -> str:
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
    made = api.request("POST", f"{ACCOUNTS}/{name}/token", body={"spec": {"expirationSeconds": 600}})
    return str(made["status"]["token"])


def _get(api: str, part: str, token: str, context: ssl.SSLContext) -> tuple[int, Any]:
    request = urllib.request.Request(f"{api}/{part}", headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return answer.status, {row["gang"] for row in json.loads(answer.read())[part]}
    except urllib.error.HTTPError as error:
        with error:
            return error.code, None
