"""What a history of more gangs than the cluster can take comes to: work lost, evictions, waits.

2,000 gangs in 14 days on 64 nodes of 8 GPUs, of three queues that deserve 50, 37.5 and 12.5 %, 110 % load, no checkpoints: what
`muster compare --generate gangs=2000,days=14,nodes=64,load=110` plays. The targets are for the policy
`examples/policies/less-lost-work.yaml`; beside it stand the default policy, and it without evictions.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

from muster.bench.workload import Measurement, Workload
from muster.config import default_policy, load_policy
from muster.engine.hooks import Policy
from muster.trace.job_simulation import JobSimulation
from muster.trace.made_trace import MadeTrace, make_trace
from muster.trace.outcome import figures

GROUP = "trace"
POLICY = Path(__file__).parents[1] / "examples/policies/less-lost-work.yaml"
EVICTING = {"preempt", "gang-preempt", "job-preempt", "gang-reclaim"}


def without_evictions() -> Policy:
    actions = [name for name in default_policy().actions if name not in EVICTING]
    return load_policy({"base": "default", "actions": actions})


POLICIES = {"less lost work": lambda: load_policy(POLICY), "default": default_policy, "without evictions": without_evictions}


@cache
def played(policy: str) -> dict[str, float]:
    """The figures of the history."""
    return {figure.name: figure.value for figure in figures(JobSimulation(make_trace(MadeTrace()), POLICIES[policy]()).run())}


def measured(figure: str) -> Measurement:
    first, *others = POLICIES
    return Measurement(played(first).get(figure, 0.0), tuple((other, played(other).get(figure, 0.0)) for other in others))


def above_no_eviction() -> Measurement:
    """By how much more of the GPU-hours counted than without evictions."""
    counted = {name: played(name)["GPU-hours that counted"] for name in POLICIES}
    first, *others = POLICIES
    least = counted["without evictions"]
    return Measurement(counted[first] - least, tuple((other, counted[other] - least) for other in others))


def row(name: str, unit: str, figure: str, target: float) -> Workload:
    return Workload(GROUP, name, unit, partial(measured, figure), target, at_least=False)


WORKLOADS = (
    row("GPU-hours lost", "%", "GPU-hours lost", 4.0),
    row("worst gang evicted", "times", "worst gang evicted", 5.0),
    row("mean wait of the highest queue", "h", "wait, prod, mean", 0.2),
    Workload(GROUP, "work that counted above no eviction", "%", above_no_eviction, target=0.0),
)
