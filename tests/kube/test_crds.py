"""Definitions of custom objects on a real API server: installed where absent, and good for every manifest of the scenarios."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.commands import ROOT, muster

from muster.crds.crd_definitions import definitions, name_of
from muster.kube.read.api_resources import WATCHED
from muster.kube.watch.access import read_access
from muster.kube.watch.client import ApiError, Client
from muster.lab.servers import Servers
from muster.scenario import load, manifest_builder
from muster.sim.api_kinds import with_string_annotations

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CUSTOM = {(each["spec"]["group"], each["spec"]["names"]["kind"]) for each in definitions()}

# The one kind that no scenario has.
COMMUNITY_QUOTA = {
    "apiVersion": "scheduling.x-k8s.io/v1alpha1",
    "kind": "ElasticQuota",
    "metadata": {"name": "q"},
    "spec": {"min": {"cpu": 2, "memory": "1Gi"}, "max": {"cpu": "500m"}},
}


@pytest.fixture(scope="module")
def own_servers(assets: Any) -> Iterator[Servers]:
    """Other tests need not find the definitions that these leave behind."""
    with Servers(assets) as running:
        yield running


def test_what_is_printed_is_what_is_installed() -> None:
    ran = muster("crds")
    assert ran.code == 0
    assert list(yaml.safe_load_all(ran.out)) == list(definitions())


def test_absent_definitions_are_installed_and_others_are_let_be(own_servers: Servers) -> None:
    kubeconfig = own_servers.kubeconfig()
    theirs = json.loads(json.dumps(definitions()[0]))
    theirs["metadata"]["labels"] = {"brought-by": "somebody"}
    asyncio.run(_ask(kubeconfig, "POST", DEFINITIONS, theirs))

    first = muster("crds", "--install", "--kubeconfig", kubeconfig)
    assert first.code == 0, first.err
    assert first.out.count("installed") == len(definitions()) - 1
    assert f"present    {name_of(theirs)}" in first.out

    again = muster("crds", "--install", "--kubeconfig", kubeconfig)
    assert again.out.count("present") == len(definitions())
    kept = asyncio.run(_ask(kubeconfig, "GET", f"{DEFINITIONS}/{name_of(theirs)}"))
    assert kept["metadata"]["labels"] == {"brought-by": "somebody"}
    assert kept["metadata"]["generation"] == 1


def test_the_server_takes_every_custom_object_of_the_scenarios_and_keeps_all_of_it(own_servers: Servers) -> None:
    kubeconfig = own_servers.kubeconfig()
    assert muster("crds", "--install", "--kubeconfig", kubeconfig).code == 0
    written = [manifest for manifest in (*_manifests(), COMMUNITY_QUOTA) if _kind(manifest) in CUSTOM]
    assert {_kind(manifest) for manifest in written} == CUSTOM

    async def refused() -> dict[str, str]:
        client = Client(await read_access(kubeconfig))
        try:
            whys = [await _refusal(client, manifest, name=f"object-{number}") for number, manifest in enumerate(written)]
        finally:
            await client.close()
        return {manifest["metadata"]["name"]: why for manifest, why in zip(written, whys, strict=True) if why}

    # The simulated cluster takes what a real one would not: text in place of a number.
    whys = asyncio.run(refused())
    assert len(whys) <= 3, whys
    assert all("in body must be of type integer" in why for why in whys.values()), whys


async def _refusal(client: Client, manifest: dict[str, Any], *, name: str) -> str:
    """What the server has against it, or nothing."""
    group, kind = _kind(manifest)
    resource = next(one for one in WATCHED if one.key == (group, kind))
    path = resource.path(resource.versions[0], namespace="default")
    plain = with_string_annotations(manifest)
    metadata = {key: plain["metadata"].get(key) or {} for key in ("labels", "annotations")}
    body = {
        "apiVersion": resource.api_version(resource.versions[0]),
        "kind": kind,
        "metadata": {**metadata, "name": name},
        "spec": manifest.get("spec") or {},
    }
    try:
        made = json.loads(await client.request("POST", path, body=body))
    except ApiError as error:
        return str(error)
    assert made["spec"] == body["spec"]
    return ""


def _manifests() -> Iterator[dict[str, Any]]:
    """As the scenarios write or mean them."""
    for path in sorted((ROOT / "scenarios").rglob("*.yaml")):
        for scenario in load(path):
            yield from scenario.queues
            for part in (scenario, *scenario.steps):
                yield from (
                    group for gang in getattr(part, "gangs", ()) if (group := manifest_builder.group(gang, now=0.0)) is not None
                )
                yield from (written.manifest for written in getattr(part, "objects", ()))


def _kind(manifest: dict[str, Any]) -> tuple[str, str]:
    group = manifest["apiVersion"].rpartition("/")[0]
    kind: str = manifest["kind"]
    if not group and kind in ("PodGroup", "ElasticQuota"):
        group = "scheduling.sigs.k8s.io"
    return group, kind


async def _ask(kubeconfig: Path, method: str, path: str, body: Any = None) -> Any:
    client = Client(await read_access(kubeconfig))
    try:
        return json.loads(await client.request(method, path, body=body))
    finally:
        await client.close()
