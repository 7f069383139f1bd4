"""Many queues: ordering gangs and checking quotas must cost little compared with placement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from muster.bench import synthetic
from muster.bench.core_workloads import empty_cluster
from muster.bench.workload import Measurement, Stopwatch, Workload
from muster.config import default_policy
from muster.engine import allocate
from muster.engine.cycle import run_cycle
from muster.engine.fair_shares import fair_shares
from muster.engine.gang_order import WaitingGangs
from muster.engine.hooks import Plugin, Policy
from muster.engine.session import Session
from muster.model.effects import Bind
from muster.model.events import Delete, Event, Upsert
from muster.model.queue import Queue
from muster.model.resource_amounts import CPU, GPU, Resources
from muster.model.topics import Topic
from muster.plugins.capacity import Capacity
from muster.plugins.drf import Drf
from muster.plugins.elastic_quota import ElasticQuotas
from muster.plugins.proportion import Proportion
from muster.state.store import Store

GROUP = "queues"

P = ParamSpec("P")
R = TypeVar("R")

# Each of these is measured by itself.
_QUOTA_PLUGINS = ("capacity", "drf", "proportion", "elastic-quota")

# Four levels: 10 companies, 4 departments each, 5 teams each, 750 queues among the teams.
_QUEUES_PER_LEVEL = (10, 40, 200, 750)


def queue_tree(*, quota: bool = False) -> Iterator[Event]:
    """1,000 queues in four levels, each with a limit, a weight and a deserved amount."""
    parents: list[str] = [""]
    for level, width in enumerate(_QUEUES_PER_LEVEL):
        level_keys: list[str] = []
        for number in range(width):
            name = f"l{level}-{number}"
            parent = parents[number % len(parents)]
            share = 40_000 // width
            amounts = Resources.of({GPU: share, CPU: share * 8000})
            key = f"quota/bench/{name}" if quota else f"queue/{name}"
            yield Upsert(
                Queue(
                    key,
                    version=1,
                    parent=parent,
                    weight=1 + number % 3,
                    deserved=amounts,
                    limit=amounts.times(2),
                    weights=amounts if quota else Resources(),
                )
            )
            level_keys.append(key)
        parents = level_keys


def gangs(count: int, *, quota: bool = False) -> Iterator[Event]:
    each = [synthetic.signature(cpu_m=4000 + 1000 * i, gpus=1 + i % 2) for i in range(10)]
    for number in range(count):
        where = f"l3-{number % _QUEUES_PER_LEVEL[3]}"
        key = f"quota/bench/{where}" if quota else f"queue/{where}"
        yield from synthetic.gang(f"gang-{number}", 2 + number % 3, each[number % 10], created=float(number), queue=key)


def populated_store(count: int = 10_000, *, quota: bool = False) -> Store:
    store = empty_cluster(5000)
    for event in (*queue_tree(quota=quota), *gangs(count, quota=quota)):
        store.fold(event)
    return store


class _CallTimer:
    """CPU seconds spent in some functions, calls from one into another counted once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    def timed(self, function: Callable[P, R]) -> Callable[P, R]:
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._depth:
                return function(*args, **kwargs)
            self._depth += 1
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - start
                self._depth -= 1

        return run


@contextmanager
def time_calls(timer: _CallTimer) -> Iterator[None]:
    """Measure the time in ordering, admission and quota checks."""
    places = (
        (WaitingGangs, "__init__"),
        (WaitingGangs, "pop"),
        (allocate, "may_attempt"),
        (Session, "admit"),
        (Session, "quota_fit"),
    )
    before = [getattr(owner, name) for owner, name in places]
    for (owner, name), function in zip(places, before, strict=True):
        setattr(owner, name, timer.timed(function))
    try:
        yield
    finally:
        for (owner, name), function in zip(places, before, strict=True):
            setattr(owner, name, function)


def _order_share(plugins: tuple[Plugin, ...], *, quota: bool = False) -> Callable[[], Measurement]:
    def run() -> Measurement:
        others = (plugin for plugin in default_policy().plugins if plugin.name not in _QUOTA_PLUGINS)
        policy = Policy((*plugins, *others), ("expire", "allocate"))
        world = populated_store(quota=quota).world(1000.0)
        timer, watch = _CallTimer(), Stopwatch()
        with time_calls(timer), watch:
            outcome = run_cycle(world, policy)
        bound = sum(isinstance(effect, Bind) for effect in outcome.effects)
        details = (("cycle ms", 1000 * watch.seconds), ("order and quota ms", 1000 * timer.seconds), ("binds", float(bound)))
        return Measurement(100 * timer.seconds / watch.seconds, details)

    return run


def _idle_cycle() -> Measurement:
    """All gangs were refused and nothing has changed since."""
    policy = Policy((Capacity(), *default_policy().plugins), ("expire", "allocate"))
    store = populated_store()
    for key in [key for key in store.world(1000.0).facts.nodes if key != "node-00000"]:
        store.fold(Delete("Node", key, 2))
    run_cycle(store.world(1000.0), policy)
    watch = Stopwatch()
    with watch:
        run_cycle(store.world(1001.0), policy)
    return Measurement(1000 * watch.seconds)


def _fair_shares() -> Measurement:
    """All that decides on the order of queues beyond what they deserve, from nothing but the ledger and the configured shares."""
    policy = default_policy()
    world = populated_store().world(1000.0)
    s = Session(world, policy)
    s.prepare()
    fair_shares(s)
    times = []
    for _ in range(7):
        world.changes.bump(Topic.CYCLE)
        world.changes.bump(Topic.DEMAND)
        watch = Stopwatch()
        with watch:
            s.prepare()
            found = fair_shares(s)
        if not found.rows.any():
            raise AssertionError("nobody has a fair share")
        times.append(1000 * watch.seconds)
    return Measurement(sorted(times)[3])


_SETUP = "1,000 queues in 4 levels, 10,000 gangs, 5,000 nodes"

WORKLOADS = (
    Workload(GROUP, "fair shares of 1,000 queues in 4 levels", "ms", _fair_shares, target=20, at_least=False),
    Workload(GROUP, f"{_SETUP}: capacity", "% of the cycle", _order_share((Capacity(),)), target=20, at_least=False),
    Workload(GROUP, f"{_SETUP}: drf", "% of the cycle", _order_share((Drf(),)), target=20, at_least=False),
    Workload(GROUP, f"{_SETUP}: proportion", "% of the cycle", _order_share((Proportion(),)), target=20, at_least=False),
    Workload(
        GROUP,
        f"{_SETUP}: elastic-quota with runtimes",
        "% of the cycle",
        _order_share((ElasticQuotas(enable_runtime_quota=True),), quota=True),
        target=20,
        at_least=False,
    ),
    Workload(
        GROUP,
        f"{_SETUP}: elastic-quota with runtimes, and capacity",
        "% of the cycle",
        _order_share((ElasticQuotas(enable_runtime_quota=True), Capacity()), quota=True),
    ),
    Workload(GROUP, "10,000 gangs refused, a cycle without changes", "ms", _idle_cycle, target=50, at_least=False),
)
