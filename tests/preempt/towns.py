"""Random towns for the twin, and the same as a world for the engine."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.preempt.twin import Body, Company, Town

from muster.config import load_policy
from muster.engine.session import Session
from muster.model.budget import Budget
from muster.model.events import Seen
from muster.model.gang import Group
from muster.model.node import Node
from muster.model.pod import Dialect, Kind, Membership, Phase, Pod, Running
from muster.model.queue import Queue
from muster.model.resources import GPU, PODS, Resources
from muster.model.selectors import HostPort, LabelSelector, Operator, PodAffinity, PodTerm, Requirement
from muster.state.store import Store

HOUR = 3600.0
NOW = 48
APPS = ("a", "b", "c")
TOPOLOGIES = {"host": "kubernetes.io/hostname", "zone": "zone"}
POLICY = """
actions: [expire, enqueue, allocate, preempt]
plugins: [priority, selectors, taints, ports, fit, pod_affinity, binpack, nominated, {{pdb: {{mode: {mode}}}}}, lost_work]
"""

apps = st.sampled_from(APPS)
ties = st.none() | st.none() | st.tuples(apps, st.sampled_from(["host", "zone"]))


@st.composite
def towns(draw: st.DrawFn, *, plain: bool = False) -> Town:
    """`plain`: room, budgets and the queue are all that matters."""
    names = [f"n{i}" for i in range(draw(st.integers(1, 4)))]
    nodes = {name: (draw(st.integers(2, 8)), draw(st.sampled_from(["x", "y"]))) for name in names}
    left = {name: room for name, (room, _) in nodes.items()}
    companies = [
        company
        for number in range(draw(st.integers(1, 7)))
        if (company := draw(_companies(f"g{number}", left, plain=plain))) is not None
    ]
    budgets = draw(st.dictionaries(apps, st.integers(0, 2), max_size=2))
    tie = st.none() if plain else ties
    asker = Body(
        "asks", "asks", None, draw(st.integers(1, 6)), 9, draw(apps), port=0 if plain else draw(st.sampled_from([0, 0, 80])),
        avoids=draw(tie), needs=draw(tie),
    )  # fmt: skip
    if asker.needs is not None and asker.needs[0] == asker.app:
        asker = Body(asker.name, asker.gang, None, asker.gpus, 9, asker.app, port=asker.port, avoids=asker.avoids)
    limit = draw(st.none() | st.integers(4, 20))
    return Town(nodes, tuple(companies), budgets, draw(st.booleans()), limit, asker, NOW)


@st.composite
def _companies(draw: st.DrawFn, name: str, left: dict[str, int], *, plain: bool) -> Company | None:
    kind = draw(st.sampled_from(["lone", "lone", "whole", "single", "claim"]))
    size = 1 if kind in ("lone", "claim") else draw(st.integers(1, 3))
    gpus, priority, app, created = draw(st.integers(1, 3)), draw(st.integers(1, 10)), draw(apps), draw(st.integers(0, 40))
    tie = draw(st.none() if plain else ties)
    port = 0 if plain else draw(st.sampled_from([0, 0, 80]))
    members: list[Body] = []
    for index in range(size):
        node = draw(st.sampled_from(sorted(left)))
        if left[node] < gpus:
            break
        left[node] -= gpus
        started = draw(st.integers(created, NOW))
        title = name if kind in ("lone", "claim") else f"{name}-{index}"
        claimed = kind == "claim"
        members.append(Body(title, name, node, gpus, priority, app, started, port, tie, claimed=claimed))
    if not members:
        return None
    least = draw(st.integers(1, len(members))) if kind == "whole" else len(members)
    queue = draw(st.sampled_from(["q", "q", "q", "other"]))
    return Company(name, "lone" if kind == "claim" else kind, tuple(members), least, created, queue)


def session(town: Town) -> Session:
    """The same town as the engine sees it."""
    store = Store()
    limit = Resources.of({GPU: town.limit}) if town.limit is not None else Resources()
    store.fold(Seen(Queue("queue/q", version=1, limit=limit)))
    store.fold(Seen(Queue("queue/other", version=1)))
    for name, (gpus, zone) in town.nodes.items():
        labels = {"kubernetes.io/hostname": name, "zone": zone}
        store.fold(Seen(Node(name, version=1, allocatable=Resources.of({GPU: gpus, PODS: 110}), labels=labels)))
    for app, count in town.budgets.items():
        store.fold(Seen(Budget("d", f"budget-{app}", version=1, selector=_meaning(app), allowed=count)))
    for company in town.companies:
        if company.kind != "lone":
            dialect = Dialect.VOLCANO if company.kind == "whole" else Dialect.SIGS
            group = Group(
                dialect, "d", company.name, version=1, min_member=company.least, created=company.created * HOUR,
                queue=f"queue/{company.queue}",
            )  # fmt: skip
            store.fold(Seen(group))
        for body in company.members:
            store.fold(Seen(_pod(body, company)))
    store.fold(Seen(_pod(town.asker, None)))
    world = store.world(town.now * HOUR)
    s = Session(world, load_policy(POLICY.format(mode="hard" if town.hard else "soft")))
    s.prepare()
    with s.trial("claims", cause="Test") as trial:
        for body in (body for company in town.companies for body in company.members if body.claimed):
            trial.place(world.facts.pods[body.name], body.node or "", phase=Phase.NOMINATED)
        trial.commit()
    return s


def _pod(body: Body, company: Company | None) -> Pod:
    membership = None
    if company is not None and company.kind != "lone":
        membership = Membership(Dialect.VOLCANO if company.kind == "whole" else Dialect.SIGS, company.name)
    runs = body.node is not None and not body.claimed
    kind = Kind(
        request=Resources.of({GPU: body.gpus, PODS: 1}),
        ports=(HostPort(body.port),) if body.port else (),
        affinity=_tie(body.needs),
        anti_affinity=_tie(body.avoids),
        namespace="d" if body.needs or body.avoids else "",
    )
    return Pod(
        uid=body.name, namespace="d", name=body.name, kind=kind, version=1, priority=body.priority, labels={"app": body.app},
        created=company.created * HOUR if company is not None else NOW * HOUR, membership=membership,
        queue=f"queue/{company.queue if company is not None else 'q'}",
        node=body.node if runs else None, running=Running.RUNNING if runs else Running.PENDING,
        started=body.started * HOUR if runs else None,
    )  # fmt: skip


def _tie(tie: tuple[str, str] | None) -> PodAffinity:
    return PodAffinity() if tie is None else PodAffinity((PodTerm(TOPOLOGIES[tie[1]], _meaning(tie[0])),))


def _meaning(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", Operator.IN, (app,)),))
