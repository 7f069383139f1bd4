"""A whole cluster in one object: API objects, virtual time, kubelets and controllers; events out, effects in.

Nothing of a scheduler lives here. A scheduler that starts anew reads `relist()` and has nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from muster.kube.read import names
from muster.kube.read.decoder import BadObject, Decoder
from muster.kube.read.object_references import BUDGET, ApiObjectRef, Manifest, ManifestView
from muster.kube.read.pod_index import PodIndex
from muster.kube.write.merge_patch import copied, merged
from muster.model.effects import Effect
from muster.model.events import ClusterObject, Delete, Event, Upsert, event_subject
from muster.model.node import Node
from muster.model.pod import Pod
from muster.sim.admission import validate_manifest, with_defaults
from muster.sim.api_kinds import DEFAULT_NAMESPACE, KINDS, BadManifest, is_namespaced, kinds_named, ref_of, with_string_annotations
from muster.sim.disruption_budgets import DisruptionBudgets
from muster.sim.executor import EffectExecutor, Write
from muster.sim.fault_injection import NO_FAULTS, BindFaultInjector, EventStream, FaultRates
from muster.sim.node_controller import NodeController
from muster.sim.object_store import ChangeType, NotFound, ObjectChange, ObjectStore
from muster.sim.pod_behaviour import CONTROLLER_ANNOTATION
from muster.sim.simulated_kubelet import SimulatedKubelet
from muster.sim.soft_eviction_operator import SoftEvictionOperator
from muster.sim.virtual_clock import VIRTUAL_START, VirtualClock
from muster.sim.workload_controller import WorkloadController

_STARTUP_S = 1.0
"""From the bind of a pod to its start."""


class SimCluster:
    """`pod_eviction_timeout_s`: from a node's failure to the deletion of its pods."""

    def __init__(
        self,
        *,
        faults: FaultRates = NO_FAULTS,
        scheduler_names: Iterable[str] = ("muster",),
        pod_eviction_timeout_s: float = 5.0,
        starts_at: float = VIRTUAL_START,
    ) -> None:
        self.rejected: list[tuple[str, str, str]] = []
        """Objects that could not be decoded: kind, name and what is wrong."""
        self._clock = VirtualClock(start=starts_at)
        self._store = ObjectStore(self._clock)
        self._decoder = Decoder(tuple(scheduler_names))
        self._stream = EventStream(faults)
        self._index = PodIndex()
        self._budgets = DisruptionBudgets(self._store)
        self._kubelet = SimulatedKubelet(self._store, self._clock, self._index, startup_s=_STARTUP_S)
        self._nodes = NodeController(
            self._store, self._clock, self._index, self._kubelet, pod_eviction_timeout_s=pod_eviction_timeout_s
        )
        self._workload_controller = WorkloadController(self._store, self._clock)
        self._soft_eviction_operator = SoftEvictionOperator(self._store, self._clock)
        self._executor = EffectExecutor(self._store, self._clock, self._index, self._budgets, BindFaultInjector(faults))

    # -- what a user does ------------------------------------------------------------------------------------------------------

    def apply(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create the object, or merge the manifest into the one that exists. Returns it as it is stored."""
        ref = ref_of(manifest)
        if self._store.peek(ref) is not None:
            return self._apply_patch(ref, {key: part for key, part in manifest.items() if key not in ("apiVersion", "kind")})
        written = with_string_annotations(copied(manifest))
        validate_manifest(written, ref=ref)
        try:
            self._decoder.decode(written)
        except BadObject as bad:
            raise BadManifest(str(bad)) from None
        self._store.create(with_defaults(written, ref=ref, store=self._store, now=self._clock.now))
        self._settle()
        return self._store.get(ref)

    def patch(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Manifest:
        """A JSON merge patch: null removes."""
        return self._apply_patch(self._find_ref(kind, namespace, name), patch)

    def delete(self, kind: str, namespace: str, name: str, *, permanently: bool = False) -> None:
        """Delete it. `permanently`: no controller re-creates it."""
        ref = self._find_ref(kind, namespace, name)
        if permanently:
            self._store.patch(ref, {"metadata": {"annotations": {CONTROLLER_ANNOTATION: None}}})
        self._store.delete(ref)
        self._settle()

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """A copy of the object, or None. `kind` is `Pod`, or `PodGroup.scheduling.volcano.sh` where a plain name is not clear."""
        try:
            return self._store.get(self._find_ref(kind, namespace, name))
        except NotFound:
            return None

    def listed(self, kind: str) -> list[Manifest]:
        """Copies of all objects of a kind, by namespace and name."""
        return [manifest for known in kinds_named(kind) for manifest in self._store.listed(known)]

    def fail_node(self, name: str, *, gone: bool = False, pods_stuck: bool = False) -> None:
        """The node stops answering. `gone`: its object is removed; `pods_stuck`: its deleted pods stay until it returns."""
        self._nodes.fail(name, gone=gone, pods_stuck=pods_stuck)
        self._settle()

    def recover_node(self, name: str) -> None:
        self._nodes.recover(name)
        self._settle()

    def fail_bind(self, pod: str, *, times: int = 1) -> None:
        """The next binds of this pod (namespace/name) fail."""
        self._executor.fail_next("bind", pod, times=times)

    def fail_evict(self, pod: str, *, times: int = 1) -> None:
        """The next evictions of this pod (namespace/name) are refused."""
        self._executor.fail_next("evict", pod, times=times)

    # -- time ------------------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self._clock.now

    def advance(self, seconds: float) -> None:
        """Time passes; what is due in it happens, in order."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds}")
        self._settle()
        until = self._clock.now + seconds
        while self._clock.run_next(until=until):
            self._settle()
        self._clock.now = until

    # -- what a scheduler sees and does ------------------------------------------------------------------------------------------

    @property
    def writes(self) -> list[Write]:
        """All writes of schedulers, in order."""
        return self._executor.writes

    def events(self) -> list[Event]:
        """What happened since the last call, as far as it has arrived."""
        return self._stream.receive(now=self._clock.now)

    def resync(self) -> None:
        """The scheduler's client lists everything anew now: the next events bring all that was missed."""
        self._stream.resync()

    def relist(self) -> list[Event]:
        """All objects as events, for a scheduler that starts anew: `events` continues from here."""
        self._stream.reset()
        return self.list_events()

    def list_events(self) -> list[Event]:
        """All objects as events, without any change to `events`."""
        found = (self._decoded(ref, manifest) for kind in KINDS for ref, manifest in self._store.scan(kind))
        return [Upsert(thing) for thing in found if thing is not None]

    def execute(self, effects: Iterable[Effect], *, max_writes: int | None = None) -> None:
        """Carry these out; what fails comes back as an event. `max_writes`: only so many writes, as if the scheduler died then."""
        for failure in self._executor.execute(effects, max_writes=max_writes):
            self._stream.deliver(failure)
        self._settle()

    # -- reactions --------------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Let everybody react to what changed, until nothing changes any more at this moment."""
        while True:
            for change in self._store.drain():
                self._dispatch(change)
            self._budgets.settle()
            if not self._store.has_changes() and not self._clock.run_next(until=self._clock.now):
                return

    def _dispatch(self, change: ObjectChange) -> None:
        what, ref, manifest = change
        thing = self._decoded(ref, manifest)
        if thing is not None:
            self._stream.send(event_subject(thing), _event(what, thing), now=self._clock.now)
        if isinstance(thing, Pod):
            self._index_pod(what, ref, thing)
            self._kubelet.on_change(what, ref, thing)
            self._nodes.on_change(what, ref, thing)
            self._workload_controller.on_change(what, ref, manifest)
            self._soft_eviction_operator.on_change(what, ref, manifest)
            self._budgets.on_change(ref)
        elif isinstance(thing, Node):
            self._nodes.on_node_change(what, thing)
            self._kubelet.on_node_change(what, thing)
        elif ref[:2] == BUDGET:
            self._budgets.on_change(ref)

    def _index_pod(self, what: ChangeType, ref: ApiObjectRef, pod: Pod) -> None:
        if what is ChangeType.DELETED:
            self._index.drop(ref)
        else:
            self._index.put(ref, pod)

    def _decoded(self, ref: ApiObjectRef, manifest: ManifestView) -> ClusterObject | None:
        """The object as the scheduler reads it; one that cannot be read is remembered and left out."""
        if ref.group == names.MUSTER_GROUP and ref.namespace != names.MUSTER_NAMESPACE:
            return None
        try:
            return self._decoder.decode(manifest)
        except BadObject as bad:
            rejected = (ref.kind, ref.full_name, str(bad))
            if rejected not in self.rejected:
                self.rejected.append(rejected)
            return None

    def _apply_patch(self, ref: ApiObjectRef, patch: Mapping[str, Any]) -> Manifest:
        old = self._store.peek(ref)
        if old is not None:
            validate_manifest(with_string_annotations(dict(merged(old, patch))), ref=ref)
        stored: Manifest = copied(self._store.patch(ref, patch))
        self._settle()
        return stored

    def _find_ref(self, kind: str, namespace: str, name: str) -> ApiObjectRef:
        """The object with this name. A kind that exists in several API groups is the one in which the name exists."""
        refs = [
            ApiObjectRef(*known, (namespace or DEFAULT_NAMESPACE) if is_namespaced(known) else "", name)
            for known in kinds_named(kind)
        ]
        found = [ref for ref in refs if self._store.peek(ref) is not None]
        if len(found) > 1:
            choices = " or ".join(f"{ref.kind}.{ref.group}" for ref in found)
            raise BadManifest(f"kind: there are {len(found)} objects {kind} {refs[0].full_name}; write {choices}")
        if not found:
            raise NotFound(f"{kind} {refs[0].full_name} does not exist")
        return found[0]


def _event(what: ChangeType, thing: ClusterObject) -> Event:
    return Delete(*event_subject(thing), thing.version) if what is ChangeType.DELETED else Upsert(thing)
