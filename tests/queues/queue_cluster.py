"""A small cluster for scenarios of queues: nodes, queues and gangs in a few words, and cycles whose binds come true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from muster.engine.hooks import Plugin, Policy
from muster.engine.session import Session
from muster.model.effects import Bind, Condition, Effect, Outcome, QueueStatus, Verdict
from muster.model.events import ClusterObject, Delete, Event, Upsert
from muster.model.gang import PodGroup
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Membership, Pod, PodSignature, PodStatusPhase
from muster.model.queue import Queue
from muster.model.resource_amounts import CPU, GPU, MEMORY, PODS, Resources
from muster.plugins.fit import Fit
from muster.plugins.priority import Priority
from muster.scheduler import Scheduler
from muster.state.world import World

ACTIONS = ("expire", "enqueue", "allocate")


def res(*, cpu: int | None = None, gpu: int | None = None, memory: int | None = None) -> Resources:
    """CPUs, GPUs and bytes; only those that are given, zeros included."""
    amounts = {CPU: None if cpu is None else cpu * 1000, GPU: gpu, MEMORY: memory}
    return Resources.of({name: value for name, value in amounts.items() if value is not None})


def queue(name: str, **fields: object) -> Queue:
    """`queue("a", parent="p", limit=res(gpu=4))`; a name with a slash is a quota in a namespace."""
    key = f"quota/{name}" if "/" in name else f"queue/{name}"
    parent = fields.pop("parent", "")
    if parent:
        fields["parent"] = f"quota/?/{parent}" if "/" in name else f"queue/{parent}"
    return Queue(key, **fields)  # type: ignore[arg-type]


class FixtureCluster:
    """Binds come true at once; evicted pods leave only when they are told to."""

    def __init__(self, plugins: Sequence[Plugin] = (), *, actions: Sequence[str] = ACTIONS) -> None:
        policy = Policy([Fit(), Priority(), *plugins], actions)
        self.scheduler = Scheduler(policy)
        self.now = 0.0
        self.pods: dict[str, Pod] = {}
        self.outcome = Outcome(0, 0.0)
        self._version = 0

    @property
    def world(self) -> World:
        return self.scheduler.world

    # -- what there is -------------------------------------------------------------------------------------------------------------

    def upsert(self, *things: ClusterObject) -> FixtureCluster:
        self._feed(Upsert(replace(thing, version=self._next())) for thing in things)
        return self

    def delete_object(self, what: str, key: str) -> FixtureCluster:
        self._feed([Delete(what, key, self._next())])
        return self

    def nodes(self, count: int = 1, *, cpu: int = 64, gpu: int = 8) -> FixtureCluster:
        allocatable = Resources.of({CPU: cpu * 1000, GPU: gpu, MEMORY: 2**40, PODS: 200})
        return self.upsert(*(Node(f"n{i}", allocatable=allocatable) for i in range(1, count + 1)))

    def gang(
        self,
        name: str,
        pods: int = 1,
        each: Resources | None = None,
        *,
        queue: str = "",
        least: int | None = None,
        priority: int = 0,
        at: str = "",
        labels: dict[str, str] | None = None,
        min_resources: Resources | None = None,
        flavour: ApiFlavour = ApiFlavour.VOLCANO,
        namespace: str = "default",
    ) -> FixtureCluster:
        """A PodGroup and its pods, which stand on a node already where `at` names one."""
        named = f"queue/{queue}" if queue and not queue.startswith(("queue/", "quota/")) else queue
        group = PodGroup(
            flavour,
            namespace,
            name,
            min_member=pods if least is None else least,
            queue=named,
            created=self.now,
            min_resources=min_resources or Resources(),
        )
        self.upsert(group)
        kind = PodSignature((each or res(gpu=1)).plus(Resources.of({PODS: 1})))
        for i in range(pods):
            self._add(
                Pod(
                    uid=f"{namespace}/{name}-{i}",
                    namespace=namespace,
                    name=f"{name}-{i}",
                    signature=kind,
                    created=self.now,
                    priority=priority,
                    labels=labels or {},
                    membership=Membership(flavour, name),
                    node=at or None,
                    status_phase=PodStatusPhase.RUNNING if at else PodStatusPhase.PENDING,
                )
            )
        return self

    def pod(
        self, name: str, each: Resources | None = None, *, namespace: str = "default", queue: str = "", at: str = ""
    ) -> FixtureCluster:
        """A pod that belongs to no gang."""
        kind = PodSignature((each or res(gpu=1)).plus(Resources.of({PODS: 1})))
        running = PodStatusPhase.RUNNING if at else PodStatusPhase.PENDING
        uid = f"{namespace}/{name}"
        self._add(Pod(uid, namespace, name, kind, created=self.now, queue=queue, node=at or None, status_phase=running))
        return self

    def change(self, uid: str, **fields: object) -> FixtureCluster:
        self._add(replace(self.pods[uid], **fields))  # type: ignore[arg-type]
        return self

    def delete(self, *uids: str) -> FixtureCluster:
        for uid in uids:
            self.delete_object("Pod", uid)
            self.pods.pop(uid, None)
        return self

    # -- what happens --------------------------------------------------------------------------------------------------------------

    def cycle(self, count: int = 1) -> FixtureCluster:
        for _ in range(count):
            self.now += 1.0
            self.outcome = self.scheduler.tick(self.now)
            for effect in self.outcome.effects:
                if isinstance(effect, Bind):
                    self.change(effect.uid, node=effect.node, status_phase=PodStatusPhase.RUNNING, started=self.now)
        return self

    def session(self) -> Session:
        """A look at the world as it stands, with the policy's plugins."""
        self.world.now = self.now
        s = Session(self.scheduler._store.world(self.now), self.scheduler.policy)
        s.prepare()
        return s

    # -- what came of it -----------------------------------------------------------------------------------------------------------

    @property
    def bound(self) -> list[str]:
        """Names of the pods that were bound in the last cycle, in the order in which that was decided."""
        return [effect.pod.split("/")[1] for effect in self.outcome.effects if isinstance(effect, Bind)]

    def runs(self, gang: str) -> int:
        """How many pods of a gang have a node."""
        return sum(pod.node is not None for pod in self.pods.values() if pod.name.rsplit("-", 1)[0] == gang)

    def verdict(self, gang: str, *, namespace: str = "default") -> Verdict:
        key = next(key for key, each in self.world.facts.gangs.items() if each.full_name == f"{namespace}/{gang}")
        found = self.world.memory.attempts[key].verdict
        assert found is not None, f"nobody judged {gang}"
        return found

    def effects(self, kind: type[Effect]) -> list[Effect]:
        return [effect for effect in self.outcome.effects if isinstance(effect, kind)]

    def status(self, key: str) -> dict[str, str]:
        """The status of a queue that was said in the last cycle."""
        found = [e for e in self.outcome.effects if isinstance(e, QueueStatus) and e.key == key]
        assert len(found) == 1, f"{key}: {len(found)} statuses"
        return dict(found[0].fields)

    def conditions(self, subject: str = "queue") -> list[Condition]:
        return [e for e in self.outcome.effects if isinstance(e, Condition) and e.subject == subject]

    def _add(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod = replace(pod, version=self._next())
        self._feed([Upsert(pod)])

    def _feed(self, events: Iterable[Event]) -> None:
        self.scheduler.feed(events)

    def _next(self) -> int:
        self._version += 1
        return self._version
