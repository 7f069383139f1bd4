"""Objects drawn from the OpenAPI schemas of an API server, some with values that the schemas forbid, in a cluster with somebody who
only wants a node: nothing may raise, and she gets her node in the same cycle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from muster.config import default_policy
from muster.crds.crd_install import install
from muster.kube.read.api_resources import WATCHED
from muster.kube.read.decoder import BadObject, Decoder
from muster.kube.read.names import NATIVE_GROUP
from muster.kube.read.object_references import Manifest
from muster.kube.watch.access import read_access
from muster.kube.watch.client import ApiError, Client
from muster.kube.write.write_order import order_writes
from muster.lab.servers import Servers
from muster.model.effects import Bind
from muster.model.events import Event, Upsert
from muster.model.node import Node
from muster.scheduler import Scheduler
from tools.reliability.measured import Measured

Schema = Mapping[str, Any]


class _Kind(msgspec.Struct):
    schema: Schema
    components: Schema


Schemas = Mapping[tuple[str, str], _Kind]

_BATCH = 50
_MOST_DEPTH = 9
_MOST_PRIORITY = 2**31 - 1
_NOW = 1_000_000.0
_TEXTS = (
    *("", "a", "default", "0", "-1", "1", "true", "1.5", "100m", "1e30", "9" * 40, "1Ei", "NaN", "\u202e\n\x1b[31m", "x" * 300),
    *("n1", "kubernetes.io/hostname", "In", "DoesNotExist", "NoSchedule", "Strict", "2026-01-01T00:00:00Z", "[1, 2]", '{"a": {}}'),
    *("team/a", "gang", "root", "cpu", "memory", "nvidia.com/gpu", "gang.scheduling.koordinator.sh/name"),
    *("gang.scheduling.koordinator.sh/groups", "scheduling.k8s.io/group-name", "scheduling.volcano.sh/queue-name"),
)
_NUMBERS = (0, 1, 2, -1, 10, 100, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 10**30)
_WRONG: tuple[Any, ...] = (None, [], {}, "x", -1, 1.5, True, [[]], {"": None})


def fuzz(amount: int) -> Measured:
    with Servers() as servers:
        schemas = asyncio.run(read_schemas(servers.kubeconfig()))
    return fuzz_with(schemas, amount)


def fuzz_with(schemas: Schemas, amount: int) -> Measured:
    chance = Random("hostile")
    faults: list[str] = []
    refused = drawn = 0
    while drawn < amount:
        batch = [_hostile(chance, schemas, drawn + number) for number in range(min(_BATCH, amount - drawn))]
        drawn += len(batch)
        try:
            refused += _try_batch(batch, faults)
        except Exception as error:
            faults.append(f"objects {drawn - len(batch)} to {drawn}: {type(error).__name__}: {error}")
    reached = f"{drawn:,} objects of {len(schemas)} kinds, {refused:,} refused as a whole"
    return Measured(reached, tuple(faults))


def _try_batch(batch: list[Manifest], faults: list[str]) -> int:
    decoder, refused = Decoder(), 0
    events: list[Event] = [Upsert(_decoded(decoder, manifest)) for manifest in (_node(), _queue(), _bystander())]
    for manifest in batch:
        try:
            thing = decoder.decode(msgspec.json.encode(manifest))
        except BadObject:
            thing = None
        if thing is None:
            refused += 1
        else:
            events.append(Upsert(thing))
    scheduler = Scheduler(default_policy())
    scheduler.feed(events)
    outcome = scheduler.tick(_NOW)
    order_writes(outcome.effects, gang_pods=lambda *_: ())
    if not any(isinstance(effect, Bind) and effect.pod == "quiet/bystander" for effect in outcome.effects):
        names = f"{batch[0]['metadata']['name']} to {batch[-1]['metadata']['name']}"
        faults.append(f"beside {names} a pod that fits got no node")
    scheduler.tick(_NOW + 700.0)
    return refused


def _decoded(decoder: Decoder, manifest: Manifest) -> Any:
    thing = decoder.decode(manifest)
    assert thing is not None
    if isinstance(thing, Node):
        assert thing.allocatable
    return thing


def _node() -> Manifest:
    allocatable = {"cpu": "100k", "memory": "1Pi", "pods": "100k"}
    status = {"allocatable": allocatable, "capacity": allocatable}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "quiet", "labels": {"for": "bystander"}}, "status": status}


def _queue() -> Manifest:
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "quiet"}}


def _bystander() -> Manifest:
    """Before everybody else, in a queue and on a node of her own."""
    metadata = {
        "name": "bystander",
        "namespace": "quiet",
        "uid": "bystander",
        "creationTimestamp": "2000-01-01T00:00:00Z",
        "annotations": {"scheduling.volcano.sh/queue-name": "quiet"},
    }
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    spec = {"schedulerName": "muster", "priority": _MOST_PRIORITY, "nodeSelector": {"for": "bystander"}, "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


# --- objects ----------------------------------------------------------------------------------------------------------------------


def _hostile(chance: Random, schemas: Schemas, number: int) -> Manifest:
    """A kind, and whatever its schema has. Its identity is valid: an API server sees to that."""
    (version, kind), found = chance.choice(sorted(schemas.items(), key=lambda pair: pair[0]))
    drawn = _Drawing(chance, found.components).value(found.schema, 0)
    made: Manifest = drawn if isinstance(drawn, dict) else {}
    written = made.get("metadata")
    metadata: Manifest = written if isinstance(written, dict) else {}
    identity = {"name": f"hostile-{number}", "namespace": "default", "uid": f"uid-{number}"}
    made |= {"apiVersion": version, "kind": kind, "metadata": {**metadata, **identity}}
    if kind == "Pod" and isinstance(made.get("spec"), dict) and chance.random() < 0.8:
        made["spec"]["schedulerName"] = "muster"
        made["metadata"].pop("deletionTimestamp", None)
    return made


class _Drawing:
    """Values of one schema."""

    def __init__(self, chance: Random, components: Schema) -> None:
        self._chance, self._components = chance, components

    def value(self, schema: Schema, depth: int) -> Any:
        schema = self._resolved(schema)
        if self._chance.random() < 0.03:
            return self._chance.choice(_WRONG)
        if "enum" in schema and self._chance.random() < 0.7:
            return self._chance.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                return [self.value(schema["items"], depth + 1) for _ in range(self._size(depth))]
            case "boolean":
                return self._chance.random() < 0.5
            case "integer" | "number":
                return self._chance.choice(_NUMBERS)
            case "string":
                return self._chance.choice(_TEXTS)
        return self._chance.choice((*_TEXTS, *_NUMBERS))

    def _resolved(self, schema: Schema) -> Schema:
        while True:
            schema = schema["allOf"][0] if schema.get("allOf") else schema
            if "$ref" not in schema:
                return schema
            schema = self._components[schema["$ref"].rpartition("/")[2]]

    def _object(self, schema: Schema, depth: int) -> Manifest:
        properties = schema.get("properties", {})
        share = 0.6 if depth < 2 else 0.25 if depth < 5 else 0.1
        made = {key: self.value(one, depth + 1) for key, one in properties.items() if self._is_drawn(share, depth)}
        more = schema.get("additionalProperties")
        if isinstance(more, Mapping):
            made |= {self._chance.choice(_TEXTS): self.value(more, depth + 1) for _ in range(self._size(depth))}
        return made

    def _is_drawn(self, share: float, depth: int) -> bool:
        return depth < _MOST_DEPTH and self._chance.random() < share

    def _size(self, depth: int) -> int:
        return self._chance.choice((0, 1, 1, 2, 3)) if depth < _MOST_DEPTH else 0


# --- schemas ----------------------------------------------------------------------------------------------------------------------


async def read_schemas(kubeconfig: Path) -> Schemas:
    """Of all kinds that Muster reads, by API version and kind; its definitions are installed where they are missing."""
    client = Client(await read_access(kubeconfig))
    found: dict[tuple[str, str], _Kind] = {}
    try:
        await install(client)
        for _ in range(20):
            for api, wanted in _wanted():
                try:
                    document = msgspec.json.decode(await client.request("GET", f"/openapi/v3/{api}"))
                except ApiError:
                    continue
                found.update(_kinds(document["components"]["schemas"], wanted))
            # Definitions are published some time after they are served.
            if len(found) >= len(WATCHED) - 4:
                break
            await asyncio.sleep(0.5)
    finally:
        await client.close()
    return found


def _wanted() -> Iterator[tuple[str, set[tuple[str, str]]]]:
    """Each API and the kinds of it that Muster reads."""
    for resource in WATCHED:
        for version in resource.versions:
            api = f"apis/{resource.group}/{version}" if resource.group else f"api/{version}"
            if resource.group != NATIVE_GROUP:
                yield api, {(f"{resource.group}/{version}" if resource.group else version, resource.kind)}


def _kinds(components: dict[str, Any], wanted: set[tuple[str, str]]) -> Iterator[tuple[tuple[str, str], _Kind]]:
    for schema in components.values():
        for name in schema.get("x-kubernetes-group-version-kind", ()):
            version = f"{name['group']}/{name['version']}" if name["group"] else name["version"]
            if (version, name["kind"]) in wanted:
                yield (version, name["kind"]), _Kind(schema, components)
