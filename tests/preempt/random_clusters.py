"""Random clusters for the twin, and the same as a world for the engine."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.preempt.single_pod_twin import TwinCluster, TwinGang, TwinPod

from muster.config import load_policy
from muster.engine.session import Session
from muster.model.budget import Budget
from muster.model.events import Upsert
from muster.model.gang import PodGroup
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Membership, Phase, Pod, PodSignature, PodStatusPhase
from muster.model.pod_constraints import HostPort, LabelSelector, Operator, PodAffinity, PodTerm, Requirement
from muster.model.queue import Queue
from muster.model.resource_amounts import GPU, PODS, Resources
from muster.state.store import Store

HOUR_S = 3600.0
NOW = 48
APPS = ("a", "b", "c")
TOPOLOGIES = {"host": "kubernetes.io/hostname", "zone": "zone"}
POLICY = """
actions: [expire, enqueue, allocate, preempt]
plugins: [priority, selectors, taints, ports, fit, pod-affinity, binpack, nominated, {{pdb: {{mode: {mode}}}}}, lost-work]
"""

apps = st.sampled_from(APPS)
affinity_terms = st.none() | st.none() | st.tuples(apps, st.sampled_from(["host", "zone"]))


@st.composite
def clusters(draw: st.DrawFn, *, plain: bool = False) -> TwinCluster:
    """`plain`: capacity, budgets and the queue are all that matters."""
    names = [f"n{i}" for i in range(draw(st.integers(1, 4)))]
    nodes = {name: (draw(st.integers(2, 8)), draw(st.sampled_from(["x", "y"]))) for name in names}
    left = {name: gpus for name, (gpus, _) in nodes.items()}
    gangs = [
        gang for number in range(draw(st.integers(1, 7))) if (gang := draw(_gangs(f"g{number}", left, plain=plain))) is not None
    ]
    budgets = draw(st.dictionaries(apps, st.integers(0, 2), max_size=2))
    term = st.none() if plain else affinity_terms
    asking_pod = TwinPod(
        "asks", "asks", None, draw(st.integers(1, 6)), 9, draw(apps), port=0 if plain else draw(st.sampled_from([0, 0, 80])),
        avoids=draw(term), needs=draw(term),
    )  # fmt: skip
    if asking_pod.needs is not None and asking_pod.needs[0] == asking_pod.app:
        asking_pod = TwinPod(
            asking_pod.name,
            asking_pod.gang,
            None,
            asking_pod.gpus,
            9,
            asking_pod.app,
            port=asking_pod.port,
            avoids=asking_pod.avoids,
        )
    limit = draw(st.none() | st.integers(4, 20))
    return TwinCluster(nodes, tuple(gangs), budgets, draw(st.booleans()), limit, asking_pod, NOW)


@st.composite
def _gangs(draw: st.DrawFn, name: str, left: dict[str, int], *, plain: bool) -> TwinGang | None:
    kind = draw(st.sampled_from(["single pod", "single pod", "gang", "per pod", "nominated"]))
    size = 1 if kind in ("single pod", "nominated") else draw(st.integers(1, 3))
    gpus, priority, app, created = draw(st.integers(1, 3)), draw(st.integers(1, 10)), draw(apps), draw(st.integers(0, 40))
    term = draw(st.none() if plain else affinity_terms)
    port = 0 if plain else draw(st.sampled_from([0, 0, 80]))
    members: list[TwinPod] = []
    for index in range(size):
        node = draw(st.sampled_from(sorted(left)))
        if left[node] < gpus:
            break
        left[node] -= gpus
        started = draw(st.integers(created, NOW))
        title = name if kind in ("single pod", "nominated") else f"{name}-{index}"
        reserved = kind == "nominated"
        members.append(TwinPod(title, name, node, gpus, priority, app, started, port, term, reserved=reserved))
    if not members:
        return None
    least = draw(st.integers(1, len(members))) if kind == "gang" else len(members)
    queue = draw(st.sampled_from(["q", "q", "q", "other"]))
    return TwinGang(name, "single pod" if kind == "nominated" else kind, tuple(members), least, created, queue)


def session(cluster: TwinCluster) -> Session:
    """The same cluster as the engine sees it."""
    store = Store()
    limit = Resources.of({GPU: cluster.limit}) if cluster.limit is not None else Resources()
    store.fold(Upsert(Queue("queue/q", version=1, limit=limit)))
    store.fold(Upsert(Queue("queue/other", version=1)))
    for name, (gpus, zone) in cluster.nodes.items():
        labels = {"kubernetes.io/hostname": name, "zone": zone}
        store.fold(Upsert(Node(name, version=1, allocatable=Resources.of({GPU: gpus, PODS: 110}), labels=labels)))
    for app, count in cluster.budgets.items():
        store.fold(Upsert(Budget("d", f"budget-{app}", version=1, selector=_app_selector(app), allowed=count)))
    for gang in cluster.gangs:
        if gang.kind != "single pod":
            flavour = ApiFlavour.VOLCANO if gang.kind == "gang" else ApiFlavour.SIGS
            group = PodGroup(
                flavour, "d", gang.name, version=1, min_member=gang.least, created=gang.created * HOUR_S,
                queue=f"queue/{gang.queue}",
            )  # fmt: skip
            store.fold(Upsert(group))
        for pod in gang.members:
            store.fold(Upsert(_pod(pod, gang)))
    store.fold(Upsert(_pod(cluster.asking_pod, None)))
    world = store.world(cluster.now * HOUR_S)
    s = Session(world, load_policy(POLICY.format(mode="hard" if cluster.hard else "soft")))
    s.prepare()
    with s.trial("nominated", cause="Test") as trial:
        for pod in (pod for gang in cluster.gangs for pod in gang.members if pod.reserved):
            trial.place(world.facts.pods[pod.name], pod.node or "", phase=Phase.NOMINATED)
        trial.commit()
    return s


def _pod(pod: TwinPod, gang: TwinGang | None) -> Pod:
    membership = None
    if gang is not None and gang.kind != "single pod":
        membership = Membership(ApiFlavour.VOLCANO if gang.kind == "gang" else ApiFlavour.SIGS, gang.name)
    runs = pod.node is not None and not pod.reserved
    kind = PodSignature(
        request=Resources.of({GPU: pod.gpus, PODS: 1}),
        ports=(HostPort(pod.port),) if pod.port else (),
        affinity=_affinity(pod.needs),
        anti_affinity=_affinity(pod.avoids),
        namespace="d" if pod.needs or pod.avoids else "",
    )
    return Pod(
        uid=pod.name, namespace="d", name=pod.name, signature=kind, version=1, priority=pod.priority, labels={"app": pod.app},
        created=gang.created * HOUR_S if gang is not None else NOW * HOUR_S, membership=membership,
        queue=f"queue/{gang.queue if gang is not None else 'q'}",
        node=pod.node if runs else None, status_phase=PodStatusPhase.RUNNING if runs else PodStatusPhase.PENDING,
        started=pod.started * HOUR_S if runs else None,
    )  # fmt: skip


def _affinity(term: tuple[str, str] | None) -> PodAffinity:
    return PodAffinity() if term is None else PodAffinity((PodTerm(TOPOLOGIES[term[1]], _app_selector(term[0])),))


def _app_selector(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", Operator.IN, (app,)),))
