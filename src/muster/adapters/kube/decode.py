"""The door from the Kubernetes API into the model: one object in, one thing out.

An object arrives as the bytes of its JSON or as the mapping that a YAML file gave. It is read in one pass where it fits
its shape, field by field where it does not: bad fields become Problems of the thing, and only an object without an
identity is refused. No clock and no network here; what is remembered between objects is shared memory and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from muster.adapters.kube import names, wire
from muster.adapters.kube.devices import read_inventory
from muster.adapters.kube.groups import DIALECT, read_group
from muster.adapters.kube.nodes import read_domain, read_node
from muster.adapters.kube.pods import Pods
from muster.adapters.kube.problems import Problems, excerpt
from muster.adapters.kube.queues import read_queue, read_quota
from muster.adapters.kube.repair import MISFIT, repaired
from muster.adapters.kube.selectors import label_selector
from muster.adapters.kube.values import read_version
from muster.adapters.kube.volumes import read_csi_node, read_storage_class, read_volume, read_volume_claim
from muster.model.budget import Budget
from muster.model.events import Namespace, PriorityClass, Thing
from muster.model.pod import Dialect, Pod

Written = Mapping[str, object] | bytes | msgspec.Raw


class BadObject(ValueError):
    """An object that cannot be told from others: no kind, no name, or no JSON at all."""


class Decoder:
    """Turns API objects into things. One decoder serves all kinds and shares what their objects have in common."""

    def __init__(self, scheduler_names: Collection[str] = ("muster",)) -> None:
        self._doors = _doors(Pods(scheduler_names))

    def decode(self, obj: Written, *, api_version: str = "", kind: str = "") -> Thing | None:
        """The thing that an object describes, or None for a kind that the scheduler does not read.

        `api_version` and `kind` count where the object itself is silent: items of a list do not say what they are.
        """
        return self.decode_as(_identity(obj, api_version=api_version, kind=kind), obj)

    def decode_as(self, kind: tuple[str, str], obj: Written) -> Thing | None:
        """The same for an object of which API group and kind are known: it is not asked what it is."""
        door = self._doors.get(kind)
        return None if door is None else door.thing(obj)


def subject_of(thing: Thing) -> tuple[str, str]:
    """What an event is about: the class name of the thing, and its UID, key or name."""
    if isinstance(thing, Pod):
        return "Pod", thing.uid
    key: str = getattr(thing, "key", "") or thing.name
    return type(thing).__name__, key


S = TypeVar("S", bound=wire.Shape)
S_in = TypeVar("S_in", bound=wire.Shape, contravariant=True)


class _Read(Protocol[S_in]):
    """Makes a thing of a shape; what is wrong goes into `problems`."""

    def __call__(self, written: S_in, *, problems: Problems) -> Thing: ...


class _Door(Generic[S]):
    """One kind of object: its shape, and what is made of it."""

    def __init__(self, shape: type[S], read: _Read[S]) -> None:
        self._shape = shape
        self._read = read
        self._decoder = msgspec.json.Decoder(shape)

    def thing(self, obj: Written) -> Thing:
        problems = Problems()
        shaped = self._shaped(obj, problems=problems)
        if not shaped.metadata.name:
            raise BadObject(f"{self._shape.__name__}: metadata.name is missing, so the object cannot be told from others")
        try:
            return self._read(shaped, problems=problems)
        except UnicodeEncodeError:
            raise BadObject(f"{self._shape.__name__} {excerpt(shaped.metadata.name)}: holds text that is not Unicode") from None

    def _shaped(self, obj: Written, *, problems: Problems) -> S:
        try:
            if isinstance(obj, Mapping):
                return msgspec.convert(obj, self._shape)
            return self._decoder.decode(obj)
        except MISFIT:
            whole = obj if isinstance(obj, Mapping) else _loaded(obj)
            return repaired(whole, wanted=self._shape, problems=problems)


def _doors(pods: Pods) -> dict[tuple[str, str], _Door[Any]]:
    doors: dict[tuple[str, str], _Door[Any]] = {
        (names.CORE_GROUP, "Pod"): _Door(wire.Pod, pods.read),
        (names.CORE_GROUP, "Node"): _Door(wire.Node, read_node),
        (names.CORE_GROUP, "Namespace"): _Door(wire.Namespace, _read_namespace),
        (names.NATIVE_GROUP, "PriorityClass"): _Door(wire.PriorityClass, _read_priority_class),
        (names.POLICY_GROUP, "PodDisruptionBudget"): _Door(wire.PodDisruptionBudget, _read_budget),
        (names.VOLCANO_GROUP, "Queue"): _Door(wire.Queue, read_queue),
        (names.VOLCANO_TOPOLOGY_GROUP, "HyperNode"): _Door(wire.HyperNode, read_domain),
        (names.CORE_GROUP, "PersistentVolume"): _Door(wire.PersistentVolume, read_volume),
        (names.CORE_GROUP, "PersistentVolumeClaim"): _Door(wire.PersistentVolumeClaim, read_volume_claim),
        (names.STORAGE_GROUP, "StorageClass"): _Door(wire.StorageClass, read_storage_class),
        (names.STORAGE_GROUP, "CSINode"): _Door(wire.CSINode, read_csi_node),
        (names.KOORDINATOR_GROUP, "Device"): _Door(wire.Device, read_inventory),
    }
    for group, dialect in DIALECT.items():
        doors[group, "PodGroup"] = _Door(wire.PodGroup, _group_reader(dialect))
    for group in (names.SIGS_GROUP, names.X_K8S_GROUP):
        doors[group, "ElasticQuota"] = _Door(wire.ElasticQuota, _quota_reader(group))
    # Documents write `apiVersion: v1alpha1` for these two, without a group.
    for kind in ("PodGroup", "ElasticQuota"):
        doors["", kind] = doors[names.SIGS_GROUP, kind]
    return doors


def _group_reader(dialect: Dialect) -> _Read[wire.PodGroup]:
    def read(written: wire.PodGroup, *, problems: Problems) -> Thing:
        return read_group(written, dialect=dialect, problems=problems)

    return read


def _quota_reader(group: str) -> _Read[wire.ElasticQuota]:
    def read(written: wire.ElasticQuota, *, problems: Problems) -> Thing:
        return read_quota(written, group=group, problems=problems)

    return read


def _read_namespace(written: wire.Namespace, *, problems: Problems) -> Namespace:
    meta = written.metadata
    return Namespace(meta.name, read_version(meta.resource_version), meta.labels, problems.all())


def _read_budget(written: wire.PodDisruptionBudget, *, problems: Problems) -> Budget:
    meta = written.metadata
    selector = label_selector(written.spec.selector, field="spec.selector", problems=problems)
    return Budget(
        namespace=meta.namespace or "default",
        name=meta.name,
        uid=meta.uid,
        version=read_version(meta.resource_version),
        selector=selector,
        allowed=written.status.disruptions_allowed,
        problems=problems.all(),
    )


def _read_priority_class(written: wire.PriorityClass, *, problems: Problems) -> PriorityClass:
    return PriorityClass(
        name=written.metadata.name,
        value=written.value,
        version=read_version(written.metadata.resource_version),
        is_default=written.global_default,
        never_preempts=written.preemption_policy == "Never",
        problems=problems.all(),
    )


_TYPE_META = msgspec.json.Decoder(wire.TypeMeta)


def _identity(obj: Written, *, api_version: str, kind: str) -> tuple[str, str]:
    """API group and kind. Versions of one group do not differ in what is read of them."""
    said = _type_meta(obj)
    version = said.api_version if isinstance(said.api_version, str) and said.api_version else api_version
    found = said.kind if said.kind is not None else kind
    if not isinstance(found, str) or not found:
        raise BadObject(f"kind: {excerpt(found)} is no kind; write for example Pod")
    return version.rpartition("/")[0], found


def _type_meta(obj: Written) -> wire.TypeMeta:
    if isinstance(obj, Mapping):
        return wire.TypeMeta(obj.get("apiVersion"), obj.get("kind"))
    try:
        return _TYPE_META.decode(obj)
    except MISFIT:
        return _type_meta(_loaded(obj))


def _loaded(obj: bytes | msgspec.Raw) -> Mapping[str, object]:
    """The whole object by a more forgiving reader: one NaN must not lose it."""
    text = bytes(obj)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as bad:
        raise BadObject(f"{excerpt(text[:100])} is no JSON: {bad}") from None
    if not isinstance(found, dict):
        raise BadObject(f"{excerpt(found)} is no object; write for example {{}}")
    return found
