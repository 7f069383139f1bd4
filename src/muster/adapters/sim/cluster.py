"""A whole cluster in one object: API objects, virtual time, kubelets and controllers; events out, effects in.

Nothing of a scheduler lives here. One that starts anew reads `relist()` and has nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from muster.adapters.kube.decode import BadObject, Decoder, subject_of
from muster.adapters.kube.index import PodIndex
from muster.adapters.kube.merge import copied, merged
from muster.adapters.kube.refs import BUDGET, Manifest, Ref, Stored
from muster.adapters.sim.admission import admitted, check
from muster.adapters.sim.budgets import Budgets
from muster.adapters.sim.cleanup import Cleanup
from muster.adapters.sim.clock import START, Clock
from muster.adapters.sim.controllers import Controllers
from muster.adapters.sim.faults import NO_FAULTS, BindFaults, EventStream, Faults
from muster.adapters.sim.hands import Hands, Write
from muster.adapters.sim.kubelet import Kubelet
from muster.adapters.sim.manifests import DEFAULT_NAMESPACE, KINDS, BadManifest, is_namespaced, kinds_called, ref_of, with_texts
from muster.adapters.sim.nodes import NodeController
from muster.adapters.sim.objects import Change, NotFound, ObjectStore, What
from muster.adapters.sim.wishes import CONTROLLER
from muster.model.effects import Effect
from muster.model.events import Event, Gone, Seen, Thing
from muster.model.node import Node
from muster.model.pod import Pod

Rejected = tuple[str, str, str]
"""Kind, name and what is wrong."""


class SimCluster:
    """`start_s`: from a bind to the start of the pod; `lost_s`: from the failure of a node to the deletion of its pods."""

    def __init__(
        self,
        *,
        seed: int = 0,
        faults: Faults | None = None,
        scheduler_names: Iterable[str] = ("muster",),
        start_s: float = 1.0,
        lost_s: float = 5.0,
        starts_at: float = START,
    ) -> None:
        faults = faults or NO_FAULTS
        self.rejected: list[Rejected] = []
        """Objects that no event could be made of."""
        self._clock = Clock(start=starts_at)
        self._store = ObjectStore(self._clock)
        self._decoder = Decoder(tuple(scheduler_names))
        self._stream = EventStream(faults, seed=seed)
        self._index = PodIndex()
        self._budgets = Budgets(self._store)
        self._kubelet = Kubelet(self._store, self._clock, self._index, start_s=start_s)
        self._nodes = NodeController(self._store, self._clock, self._index, self._kubelet, lost_s=lost_s)
        self._controllers = Controllers(self._store, self._clock)
        self._cleanup = Cleanup(self._store, self._clock)
        self._hands = Hands(self._store, self._clock, self._index, self._budgets, BindFaults(faults, seed=seed))

    # -- what a user does ------------------------------------------------------------------------------------------------------

    def apply(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create the object, or merge the manifest into the one that exists. Returns it as it is stored."""
        ref = ref_of(manifest)
        if self._store.peek(ref) is not None:
            return self._patched(ref, {key: part for key, part in manifest.items() if key not in ("apiVersion", "kind")})
        written = with_texts(copied(manifest))
        check(written, ref=ref)
        self._readable(written)
        self._store.create(admitted(written, ref=ref, store=self._store, now=self._clock.now))
        self._settle()
        return self._store.get(ref)

    def patch(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Manifest:
        """A JSON merge patch: null removes."""
        return self._patched(self._ref(kind, namespace, name), patch)

    def delete(self, kind: str, namespace: str, name: str, *, for_good: bool = False) -> None:
        """Ask it to go. `for_good`: nobody re-creates it."""
        ref = self._ref(kind, namespace, name)
        if for_good:
            self._store.patch(ref, {"metadata": {"annotations": {CONTROLLER: None}}})
        self._store.delete(ref)
        self._settle()

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """A copy of the object, or None. `kind` is `Pod`, or `PodGroup.scheduling.volcano.sh` where a plain name is not clear."""
        try:
            return self._store.get(self._ref(kind, namespace, name))
        except NotFound:
            return None

    def listed(self, kind: str) -> list[Manifest]:
        """Copies of all objects of a kind, by namespace and name."""
        return [manifest for known in kinds_called(kind) for manifest in self._store.listed(known)]

    def fail_node(self, name: str, *, gone: bool = False, stuck: bool = False) -> None:
        """The node stops answering. `gone`: its object is removed; `stuck`: its deleted pods stay until it returns."""
        self._nodes.fail(name, gone=gone, stuck=stuck)
        self._settle()

    def return_node(self, name: str) -> None:
        self._nodes.bring_back(name)
        self._settle()

    def fail_bind(self, pod: str, *, times: int = 1) -> None:
        """The next binds of this pod (namespace/name) fail."""
        self._hands.refuse("bind", pod, times=times)

    def fail_evict(self, pod: str, *, times: int = 1) -> None:
        """The next evictions of this pod (namespace/name) are refused."""
        self._hands.refuse("evict", pod, times=times)

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

    def next_event_at(self) -> float | None:
        """When something happens next by itself, or None if nothing does any more."""
        times = (self._clock.next_at(), self._stream.next_at(now=self._clock.now))
        return min((at for at in times if at is not None), default=None)

    # -- what a scheduler sees and does ------------------------------------------------------------------------------------------

    @property
    def writes(self) -> list[Write]:
        """All that schedulers wrote, in order."""
        return self._hands.writes

    def events(self) -> list[Event]:
        """What happened since the last call, as far as it has arrived."""
        return self._stream.take(now=self._clock.now)

    def resync(self) -> None:
        """The scheduler's client lists everything anew now: the next events bring all that was missed."""
        self._stream.resync()

    def relist(self) -> list[Event]:
        """All that exists, for a scheduler that starts anew: `events` goes on from here."""
        self._stream.start_over()
        return self.everything()

    def everything(self) -> list[Event]:
        """All that exists, as events; whoever follows `events` is not disturbed."""
        found = (self._thing(ref, manifest) for kind in KINDS for ref, manifest in self._store.scan(kind))
        return [Seen(thing) for thing in found if thing is not None]

    def execute(self, effects: Iterable[Effect], *, stop_after: int | None = None) -> None:
        """Carry these out; what fails comes back as an event. `stop_after`: only so many writes, as if the scheduler died then."""
        for failure in self._hands.carry_out(effects, stop_after=stop_after):
            self._stream.tell(failure)
        self._settle()

    # -- turning the wheels ------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Let everybody react to what changed, until nothing changes any more at this moment."""
        while True:
            for change in self._store.drain():
                self._react(change)
            self._budgets.settle()
            if not self._store.has_changes() and not self._clock.run_next(until=self._clock.now):
                return

    def _react(self, change: Change) -> None:
        what, ref, manifest = change
        thing = self._thing(ref, manifest)
        if thing is not None:
            self._stream.send(subject_of(thing), _event(what, thing), now=self._clock.now)
        if isinstance(thing, Pod):
            self._place(what, ref, thing)
            self._kubelet.react(what, ref, thing)
            self._nodes.react(what, ref, thing)
            self._controllers.react(what, ref, manifest)
            self._cleanup.react(what, ref, manifest)
            self._budgets.react(ref)
        elif isinstance(thing, Node):
            self._nodes.react_to_node(what, thing.name, manifest)
            self._kubelet.react_to_node(what, thing)
        elif ref[:2] == BUDGET:
            self._budgets.react(ref)

    def _place(self, what: What, ref: Ref, pod: Pod) -> None:
        if what is What.DELETED:
            self._index.drop(ref)
        else:
            self._index.put(ref, pod)

    def _thing(self, ref: Ref, manifest: Stored) -> Thing | None:
        """The object as the scheduler reads it; one that cannot be read is remembered and left out."""
        try:
            return self._decoder.decode(manifest)
        except BadObject as bad:
            rejected = (ref.kind, ref.title, str(bad))
            if rejected not in self.rejected:
                self.rejected.append(rejected)
            return None

    def _readable(self, manifest: Stored) -> None:
        try:
            self._decoder.decode(manifest)
        except BadObject as bad:
            raise BadManifest(str(bad)) from None

    def _patched(self, ref: Ref, patch: Mapping[str, Any]) -> Manifest:
        old = self._store.peek(ref)
        if old is not None:
            check(with_texts(dict(merged(old, patch))), ref=ref)
        stored: Manifest = copied(self._store.patch(ref, patch))
        self._settle()
        return stored

    def _ref(self, kind: str, namespace: str, name: str) -> Ref:
        """The object that somebody means. A kind that exists in several API groups is the one in which the name exists."""
        refs = [Ref(*known, (namespace or DEFAULT_NAMESPACE) if is_namespaced(known) else "", name) for known in kinds_called(kind)]
        found = [ref for ref in refs if self._store.peek(ref) is not None]
        if len(found) > 1:
            choices = " or ".join(f"{ref.kind}.{ref.group}" for ref in found)
            raise BadManifest(f"kind: there are {len(found)} objects {kind} {refs[0].title}; write {choices}")
        if not found:
            raise NotFound(f"{kind} {refs[0].title} does not exist")
        return found[0]


def _event(what: What, thing: Thing) -> Event:
    return Gone(*subject_of(thing), thing.version) if what is What.DELETED else Seen(thing)
