"""The ledger equals the plain sum over all placements, at every level of the tree, after any history."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from muster.model.events import Delete, Upsert
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Membership, Phase, Placement, Pod, PodSignature, PodStatusPhase
from muster.model.queue import PREEMPTIBLE_LABEL, ROOT_QUEUE, Queue
from muster.model.resource_amounts import CPU, GPU, PODS, Resources
from muster.state.store import Store
from muster.state.trial import Trial
from muster.state.world import World

QUEUES = ["queue/default", "queue/a", "queue/b", "queue/c", "quota/t/t", "quota/t/x"]
NODES = ["n1", "n2", "n3"]
NAMES = [f"p{i}" for i in range(6)]
KINDS = [PodSignature(Resources.of({CPU: 500, PODS: 1})), PodSignature(Resources.of({CPU: 100, GPU: 2, PODS: 1}))]

Sums = dict[tuple[str, str, bool], Counter[str]]

PHASES_OF_AMOUNT = {
    "used": {Phase.RESERVED, Phase.BINDING, Phase.BOUND, Phase.TERMINATING},
    "releasing": {Phase.TERMINATING},
    "nominated": {Phase.NOMINATED, Phase.MOVING},
    "planned": {Phase.RESERVED, Phase.BINDING, Phase.BOUND, Phase.NOMINATED, Phase.MOVING},
    "requested": set(Phase),
}


def plain_sums(world: World) -> Sums:
    """By queue, figure and preemptible: each pod in its queue, in the queue's parent, and so on up to the root."""
    sums: Sums = {}
    for uid, member in world.facts.members.items():
        pod = world.facts.pods[uid]
        for queue in (*world.facts.tree.path(member.queue), ROOT_QUEUE):
            for amount, phases in PHASES_OF_AMOUNT.items():
                if world.phase(pod) in phases:
                    sums.setdefault((queue, amount, member.preemptible), Counter()).update(dict(pod.signature.request.items))
    return sums


def ledger_sums(world: World) -> Sums:
    ledger, names = world.ledger, world.columns.names
    found: Sums = {}
    for queue in ledger.names:
        for preemptible in (True, False):
            parts = {
                "used": ledger.used_part(queue, preemptible=preemptible),
                "planned": ledger.planned_part(queue, preemptible=preemptible),
                "requested": ledger.requested_part(queue, preemptible=preemptible),
            }
            for amount, amounts in parts.items():
                counted = Counter({name: value for name, value in zip(names, amounts.tolist(), strict=True) if value})
                if counted:
                    found[queue, amount, preemptible] = counted
    return found


def both_parts(sums: Sums, queue: str, amount: str) -> dict[str, int]:
    return dict(sums.get((queue, amount, True), Counter()) + sums.get((queue, amount, False), Counter()))


class Histories(RuleBasedStateMachine):
    """Facts come and go, pods are moved in trials that are kept or undone, queues appear, move and disappear."""

    @initialize()
    def begin(self) -> None:
        self.store = Store()
        self.version = 0
        self.pods: dict[str, Pod] = {}
        for name in NODES:
            self.store.fold(Upsert(Node(name, allocatable=Resources.of({CPU: 8000, GPU: 8, PODS: 20}))))
        self.world = self.store.world(0.0)

    def next_version(self) -> int:
        self.version += 1
        return self.version

    def refresh(self) -> None:
        self.world = self.store.world(float(self.version))

    @rule(
        name=st.sampled_from(NAMES),
        kind=st.sampled_from(KINDS),
        queue=st.sampled_from(["", *QUEUES, "queue/gone", "quota/?/x", "quota/?/none"]),
        label=st.sampled_from([None, "true", "false"]),
        gang=st.sampled_from(["", "g1", "g2"]),
        namespace=st.sampled_from(["t", "u"]),
    )
    def upsert_pod(self, name: str, kind: PodSignature, queue: str, label: str | None, gang: str, namespace: str) -> None:
        known = self.pods.get(name)
        pod = Pod(
            uid=name,
            namespace=namespace,
            name=name,
            signature=kind,
            queue=queue,
            labels={} if label is None else {PREEMPTIBLE_LABEL: label},
            membership=Membership(ApiFlavour.VOLCANO, gang, needs_group=False) if gang else None,
            node=known.node if known is not None else None,
            deleted_at=known.deleted_at if known is not None else None,
        )
        self.put(pod)

    @rule(name=st.sampled_from(NAMES), node=st.sampled_from(NODES))
    def bind_pod(self, name: str, node: str) -> None:
        if name in self.pods and self.pods[name].node is None:
            self.put(replace(self.pods[name], node=node, status_phase=PodStatusPhase.RUNNING))

    @rule(name=st.sampled_from(NAMES))
    def delete_pod_gracefully(self, name: str) -> None:
        if name in self.pods:
            self.put(replace(self.pods[name], deleted_at=float(self.version)))

    @rule(name=st.sampled_from(NAMES), ends=st.sampled_from([PodStatusPhase.SUCCEEDED, PodStatusPhase.FAILED]))
    def finish_pod(self, name: str, ends: PodStatusPhase) -> None:
        if name in self.pods:
            self.put(replace(self.pods.pop(name), status_phase=ends))
            self.store.fold(Delete("Pod", name))
            self.store._pods._tombstones.clear()
            self.refresh()

    @rule(name=st.sampled_from(NAMES))
    def delete_pod(self, name: str) -> None:
        if self.pods.pop(name, None) is not None:
            self.store.fold(Delete("Pod", name))
            # The names are few: a new pod of the same name may come.
            self.store._pods._tombstones.clear()
            self.refresh()

    @rule(key=st.sampled_from(QUEUES), parent=st.sampled_from(["", *QUEUES, "queue/gone", "quota/?/t"]))
    def upsert_queue(self, key: str, parent: str) -> None:
        same_kind = parent.split("/")[0] == key.split("/")[0]
        self.store.fold(Upsert(Queue(key, version=self.next_version(), parent=parent if same_kind else "")))
        self.refresh()

    @rule(key=st.sampled_from(QUEUES))
    def delete_queue(self, key: str) -> None:
        self.store.fold(Delete("Queue", key, self.next_version()))
        self.refresh()

    @rule(data=st.data(), keep=st.booleans())
    def run_trial(self, data: st.DataObject, keep: bool) -> None:
        """Some moves in a trial, some of them in a trial within it; all, some or none of them stay."""
        with Trial(self.world, why="", cause="") as trial:
            self.move_some(data)
            with Trial(self.world, why="", cause="") as inner:
                self.move_some(data)
                if data.draw(st.booleans()):
                    inner.commit()
            if keep:
                trial.commit()

    def move_some(self, data: st.DataObject) -> None:
        trial = Trial(self.world, why="", cause="")
        for name in data.draw(st.lists(st.sampled_from(NAMES), max_size=4)):
            pod = self.world.facts.pods.get(name)
            if pod is None or name not in self.world.facts.members:
                continue
            phase = data.draw(st.sampled_from(Phase))
            if phase is Phase.PENDING:
                trial.release(pod)
            else:
                trial.restore(pod, Placement(phase, data.draw(st.sampled_from(NODES)), self.world.now))
        trial.commit()

    def put(self, pod: Pod) -> None:
        self.pods[pod.name] = pod = replace(pod, version=self.next_version())
        self.store.fold(Upsert(pod))
        self.refresh()

    @invariant()
    def the_ledger_is_the_plain_sum(self) -> None:
        if not hasattr(self, "world"):
            return
        sums = plain_sums(self.world)
        kept = {key: value for key, value in sums.items() if key[1] in ("used", "planned", "requested")}
        assert ledger_sums(self.world) == kept
        for queue in self.world.ledger.names:
            for amount in PHASES_OF_AMOUNT:
                amounts = getattr(self.world.ledger, amount)(queue).tolist()
                shown = {name: value for name, value in zip(self.world.columns.names, amounts, strict=True) if value}
                assert shown == both_parts(sums, queue, amount)

    @invariant()
    def no_amount_is_negative(self) -> None:
        if hasattr(self, "world"):
            assert not (self.world.ledger._amounts < 0).any()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_a_pod_that_is_overdue_fills_its_node_and_no_longer_counts_in_its_queue() -> None:
    store = Store()
    store.fold(Upsert(Node("n1", allocatable=Resources.of({CPU: 8000, PODS: 20}))))
    store.fold(
        Upsert(Pod("p", "t", "p", KINDS[0], version=1, node="n1", status_phase=PodStatusPhase.RUNNING, queue="queue/default"))
    )
    world = store.world(0.0)
    pod = world.facts.pods["p"]
    for phase, used, planned in ((Phase.BOUND, 500, 500), (Phase.TERMINATING, 500, 0), (Phase.OVERDUE, 0, 0)):
        with Trial(world, why="", cause="") as trial:
            trial.restore(pod, Placement(phase, "n1"))
            assert (world.ledger.used("queue/default")[0], world.ledger.planned("queue/default")[0]) == (used, planned)
            assert world.table.used[0, 0] == 500
