"""Somebody with rights on pods and PodGroups in one namespace of a real cluster writes there all that she may: nobody notices."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.harness.blocking_client import BlockingClient, RequestRefused
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.harness.live_harness import LiveHarness
from tests.trust.tenant import NAMESPACE, ON_SERVER
from tests.trust.tenant_run import AboutOthers, played

from muster.kube.read.api_resources import resource_of
from muster.kube.read.object_references import Manifest
from muster.kube.watch.access import read_access
from muster.sim.api_kinds import ref_of, with_string_annotations

USER: Final = "mallory@example.com"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
GROUPS: Final = ("scheduling.volcano.sh", "scheduling.sigs.k8s.io", "scheduling.x-k8s.io", "scheduling.k8s.io")
MERGE: Final = "application/merge-patch+json"
_REFUSED: Final = (400, 403, 404, 409, 415, 422)


class Tenant:
    """Her own rights, and no others. What the server refuses is counted and changes nothing."""

    def __init__(self, api: BlockingClient) -> None:
        self.written = 0
        self.refused: dict[int, int] = {}
        self._api = api

    def apply(self, manifest: Manifest) -> None:
        ref = ref_of(manifest)
        version = manifest["apiVersion"].rpartition("/")[2]
        resource = resource_of(*ref[:2])
        if not self._sent("POST", resource.path(version, namespace=NAMESPACE), with_string_annotations(dict(manifest))):
            self._sent("PATCH", resource.path(version, namespace=NAMESPACE, name=ref.name), {"metadata": manifest["metadata"]})
        if "status" in manifest:
            path = resource.path(version, namespace=NAMESPACE, name=ref.name, subresource="status")
            self._sent("PATCH", path, {"status": manifest["status"]})

    def patch(self, kind: str, namespace: str, name: str, patch: Manifest) -> None:
        path = resource_of("", kind).path("v1", namespace=namespace, name=name)
        self._sent("PATCH", path, {key: part for key, part in patch.items() if key != "status"})
        if "status" in patch:
            self._sent("PATCH", f"{path}/status", {"status": patch["status"]})

    def _sent(self, method: str, path: str, body: Mapping[str, Any]) -> bool:
        try:
            self._api.request(method, path, body=body, content_type=MERGE if method == "PATCH" else "application/json")
        except RequestRefused as refused:
            if refused.status not in _REFUSED:
                raise
            self.refused[refused.status] = self.refused.get(refused.status, 0) + 1
            return False
        self.written += 1
        return True


@contextmanager
def tenant(servers: Servers, folder: Path) -> Iterator[Tenant]:
    with servers.api() as admin:
        admin.request("POST", "/api/v1/namespaces", body={"metadata": {"name": NAMESPACE}})
        rules = [
            {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["*"]},
            {"apiGroups": [*GROUPS], "resources": ["podgroups", "podgroups/status"], "verbs": ["*"]},
        ]
        body = {"metadata": {"name": "hers", "namespace": NAMESPACE}, "rules": rules}
        admin.request("POST", f"{RBAC}/namespaces/{NAMESPACE}/roles", body=body)
        binding = {
            "metadata": {"name": "hers", "namespace": NAMESPACE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "hers"},
            "subjects": [{"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}],
        }
        admin.request("POST", f"{RBAC}/namespaces/{NAMESPACE}/rolebindings", body=binding)
    config = json.loads(servers.kubeconfig(USER).read_text())
    for name, key in (("her.crt", "client-certificate-data"), ("her.key", "client-key-data")):
        (folder / name).write_bytes(b64decode(config["users"][0]["user"][key]))
    port = int(servers.url.rpartition(":")[2])
    with closing(BlockingClient(port, ca_file=servers.ca_file, certificate=folder / "her.crt", key=folder / "her.key")) as api:
        yield Tenant(api)


def run_on(servers: Servers, *forgeries: Manifest, access: Tenant | None = None) -> AboutOthers:
    with LiveHarness(partial(read_access, servers.kubeconfig())) as cluster:
        return played(*forgeries, cluster=cluster, access=access)


def test_all_that_she_writes_changes_nothing_that_is_decided_about_others(servers_with_kinds: Servers, tmp_path: Path) -> None:
    expected = run_on(servers_with_kinds)
    servers_with_kinds.reset()
    with tenant(servers_with_kinds, tmp_path) as her:
        found = run_on(servers_with_kinds, *ON_SERVER, access=her)
    for cycle, wanted in zip(found.decided, expected.decided, strict=True):
        assert cycle == wanted
    assert her.written > 2 * len(ON_SERVER), her.refused
