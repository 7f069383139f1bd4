"""The custom kinds that Muster reads, on a server that has none of them: without a schema, so that it takes what it is given."""

import time
from typing import Any

from tests.harness.blocking_client import BlockingClient
from tests.harness.etcd_reset import ResettableServers as Servers

from muster.kube.read.api_resources import WATCHED, ApiResource
from muster.kube.read.names import NATIVE_GROUP

Manifest = dict[str, Any]
CUSTOM = tuple(one for one in WATCHED if one.optional and one.group != NATIVE_GROUP)
_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install(servers: Servers, *, timeout_s: float = 30.0) -> None:
    """Whichever the server does not have; returns when all are served."""
    with servers.api() as api:
        there = {one["metadata"]["name"] for one in api.request("GET", _PATH)["items"]}
        for kind in CUSTOM:
            if f"{kind.plural}.{kind.group}" not in there:
                api.request("POST", _PATH, body=definition(kind))
        deadline = time.monotonic() + timeout_s
        while not all(_is_served(api, kind) for kind in CUSTOM):
            assert time.monotonic() < deadline, "the server does not serve the custom kinds"
            time.sleep(0.05)


def definition(kind: ApiResource) -> Manifest:
    entry = {
        "name": kind.versions[0],
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            # These groups are the community's own, and guarded by the server.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {"kind": kind.kind, "plural": kind.plural},
            "versions": [entry],
        },
    }


def _is_served(api: BlockingClient, kind: ApiResource) -> bool:
    return api.is_ready(kind.path(kind.versions[0]))
