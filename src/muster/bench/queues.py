"""Many queues: who is next and whether its queues have room must cost little beside the placing itself."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from muster.bench import worlds
from muster.bench.core import cluster
from muster.bench.workload import Measured, Stopwatch, Workload
from muster.config import default_policy
from muster.engine import allocate
from muster.engine.cycle import run_cycle
from muster.engine.hooks import Plugin, Policy
from muster.engine.order import Line
from muster.engine.session import Session
from muster.model.effects import Bind
from muster.model.events import Event, Gone, Seen
from muster.model.queue import Queue
from muster.model.resources import CPU, GPU, Resources
from muster.plugins.capacity import Capacity
from muster.plugins.drf import Drf
from muster.plugins.elastic_quota import ElasticQuota
from muster.plugins.proportion import Proportion
from muster.state.store import Store

GROUP = "queues"

P = ParamSpec("P")
R = TypeVar("R")

# Each of these is measured by itself: a policy chooses.
_FAIRNESS = ("capacity", "drf", "proportion", "elastic_quota")

# Four levels: 10 companies, 4 departments each, 5 teams each, 750 queues among the teams.
_WIDTHS = (10, 40, 200, 750)


def tree(*, quota: bool = False) -> Iterator[Event]:
    """1,000 queues in four levels, each with a limit, a weight and something that it deserves."""
    above: list[str] = [""]
    for level, width in enumerate(_WIDTHS):
        here: list[str] = []
        for number in range(width):
            name = f"l{level}-{number}"
            parent = above[number % len(above)]
            share = 40_000 // width
            amounts = Resources.of({GPU: share, CPU: share * 8000})
            key = f"quota/bench/{name}" if quota else f"queue/{name}"
            yield Seen(
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
            here.append(key)
        above = here


def gangs(count: int, *, quota: bool = False) -> Iterator[Event]:
    each = [worlds.kind(cpu_m=4000 + 1000 * i, gpus=1 + i % 2) for i in range(10)]
    for number in range(count):
        where = f"l3-{number % _WIDTHS[3]}"
        key = f"quota/bench/{where}" if quota else f"queue/{where}"
        yield from worlds.gang(f"gang-{number}", 2 + number % 3, each[number % 10], created=float(number), queue=key)


def full_house(count: int = 10_000, *, quota: bool = False) -> Store:
    store = cluster(5000)
    for event in (*tree(quota=quota), *gangs(count, quota=quota)):
        store.fold(event)
    return store


class _Meter:
    """Seconds spent in some functions, calls from one into another counted once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._deep = 0

    def timed(self, function: Callable[P, R]) -> Callable[P, R]:
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._deep:
                return function(*args, **kwargs)
            self._deep += 1
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start
                self._deep -= 1

        return run


@contextmanager
def measured(meter: _Meter) -> Iterator[None]:
    """Who is next, may it enter, is there room: the time that goes into these."""
    places = ((Line, "__init__"), (Line, "pop"), (allocate, "may_enter"), (Session, "admit"), (Session, "room"))
    before = [getattr(owner, name) for owner, name in places]
    for (owner, name), function in zip(places, before, strict=True):
        setattr(owner, name, meter.timed(function))
    try:
        yield
    finally:
        for (owner, name), function in zip(places, before, strict=True):
            setattr(owner, name, function)


def _part(plugins: tuple[Plugin, ...], *, quota: bool = False) -> Callable[[], Measured]:
    def run() -> Measured:
        others = (plugin for plugin in default_policy().plugins if plugin.name not in _FAIRNESS)
        policy = Policy((*plugins, *others), ("expire", "allocate"))
        world = full_house(quota=quota).world(1000.0)
        gc.collect()
        meter, watch = _Meter(), Stopwatch()
        with measured(meter), watch:
            outcome = run_cycle(world, policy)
        bound = sum(isinstance(effect, Bind) for effect in outcome.effects)
        figures = (("cycle ms", 1000 * watch.seconds), ("order and quota ms", 1000 * meter.seconds), ("binds", float(bound)))
        return Measured(100 * meter.seconds / watch.seconds, figures)

    return run


def _quiet() -> Measured:
    """Everybody was refused and nothing has changed since."""
    policy = Policy((Capacity(), *default_policy().plugins), ("expire", "allocate"))
    store = full_house()
    for key in [key for key in store.world(1000.0).facts.nodes if key != "node-00000"]:
        store.fold(Gone("Node", key, 2))
    run_cycle(store.world(1000.0), policy)
    watch = Stopwatch()
    with watch:
        run_cycle(store.world(1001.0), policy)
    return Measured(1000 * watch.seconds)


_HOUSE = "1,000 queues in 4 levels, 10,000 gangs, 5,000 nodes"

WORKLOADS = (
    Workload(GROUP, f"{_HOUSE}: capacity", "% of the cycle", _part((Capacity(),)), bar=20, at_least=False),
    Workload(GROUP, f"{_HOUSE}: drf", "% of the cycle", _part((Drf(),)), bar=20, at_least=False),
    Workload(GROUP, f"{_HOUSE}: proportion", "% of the cycle", _part((Proportion(),)), bar=20, at_least=False),
    Workload(
        GROUP,
        f"{_HOUSE}: elastic_quota with runtimes",
        "% of the cycle",
        _part((ElasticQuota(enable_runtime_quota=True),), quota=True),
        bar=20,
        at_least=False,
    ),
    Workload(
        GROUP,
        f"{_HOUSE}: elastic_quota with runtimes, and capacity",
        "% of the cycle",
        _part((ElasticQuota(enable_runtime_quota=True), Capacity()), quota=True),
    ),
    Workload(GROUP, "10,000 gangs refused and nothing changed", "ms", _quiet, bar=50, at_least=False),
)
