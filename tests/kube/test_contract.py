"""The same scenarios on the embedded cluster and on a real API server: the same decisions, cycle by cycle and word by word, and the
same words on the objects in the end. What holds on the one holds on the other.
"""

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.kube.contract import decision_lines, real_cluster, run_on, scenario_of
from tests.scenario_files import all_scenarios

from muster.kube.read.object_references import BUDGET
from muster.lab.servers import Servers
from muster.model.effects import (
    Bind,
    CancelEviction,
    Condition,
    Effect,
    Evict,
    Nominate,
    PodGroupStatus,
    QueueStatus,
    Release,
    Reserve,
)
from muster.scenario import Scenario, run
from muster.scenario.loader import policy_of
from muster.scenario.syntax_tree import CrashStep, FailStep, RestartStep
from muster.sim.cluster import SimCluster
from muster.sim.fault_injection import FaultRates

CHOSEN = {
    "devices/api-flavours": (
        "a virtual GPU of Volcano's is written where its device plugin looks for it",
        "whole GPUs and shared ones of Volcano's older API",
        "Koordinator's GPUs by hundredths, by memory, over several and whole",
    ),
    "devices/nominations": (
        "a nomination to a device outlives the scheduler, and so does what runs",
        "a nomination is lost when somebody else's pod takes its device",
    ),
    "evict/nominations-after-a-restart": (
        "a nomination whose node somebody else's pod took is lost, and planned anew, also after a restart",
    ),
    "evict/domains": ("a domain that fails is followed by the next",),
    "evict/vetoes": (
        "a gang that was refused because of a budget is tried again when the budget changes",
        "a hard budget with nothing left protects its pods, and another gang is evicted",
        "victims that were chosen earlier in the cycle use their budget up",
    ),
    "foundation/amounts": ("thousandths of a core add up exactly",),
    "foundation/attempts": ("a failed bind takes back that pod only, and it is tried again",),
    "foundation/bad-input": (
        "a quota whose minimum is above its maximum is reported",
        "queues whose parents lead in a circle are reported, and the others go on",
    ),
    "foundation/everything-says-why": ("a cluster without nodes says so",),
    "foundation/waiting-for-pods": (
        "a PodGroup that changes is another condition from then on",
        "a member behind a scheduling gate is not there yet",
    ),
    "foundation/the-gang-is-the-unit": ("a gang of every API flavour starts whole",),
    "lifecycle/binds": (
        "a bind that fails takes back that pod alone, and a partly bound gang goes first",
        "a nominee whose bind fails goes back to its nomination, and nobody takes the node meanwhile",
    ),
    "lifecycle/api-flavours": (
        "a gang of Kubernetes itself is declared by its PodGroup and the scheduling group of its pods",
        "annotations alone make a gang, without any PodGroup",
    ),
    "lifecycle/groups": ("nothing of an accumulating group binds until each of its gangs has its own minimum",),
    "lifecycle/reservations": (
        "reservations are released for a gang earlier in the order that completes with them, with a reason",
    ),
    "lifecycle/match": (
        "a gang of Kubernetes itself counts its running members, too",
        "a gang of the community's plugins is satisfied once, as Koordinator's are",
    ),
    "lifecycle/podgroups": (
        "pods of every API flavour wait for a PodGroup that is late",
        "what is reserved stays reserved while its PodGroup is deleted and created again",
    ),
    "lifecycle/restarts": (
        "a gang that waits waits on after a restart, and nothing is written again",
        "what was nominated is nominated again after a restart, and nobody is evicted twice",
    ),
    "lifecycle/stages": (
        "a gang with reserved nodes that is nominated to the others preempts, and waits again when these are lost",
        "a gang whose nomination is lost waits again",
    ),
    "lifecycle/waits": (
        "a gang that timed out stays so over a restart",
        "the annotation's wait time goes before the PodGroup's",
    ),
    "placement/volumes": (
        "a claim that waits for its first pod sends it where the class makes volumes",
        "members of one gang do not choose the same local volume",
        "a claim that waited is bound with its first pod, and the next pod goes where the volume is",
    ),
    "preempt/affinity": ("a host port is freed by evicting the pod that has it",),
    "preempt/cost": ("a pod whose budget would be broken is evicted last and put back first",),
    "preempt/process": ("the least important are evicted first, and whoever is not needed is put back, the most important first",),
    "queues/elastic-quota": (
        "a preemptible job borrows up to the maximum, and leaves capacity for non-preemptible ones that wait",
    ),
    "queues/tree": ("a pod that names no queue belongs to the quota that is named like its namespace, else to one that lists it",),
    "quota/job-preempt": ("a round whose victims nobody removes is given up, the marks are removed and the victims run on",),
    "quota/rounds": (
        "a finalizer keeps a victim, and the round waits for it",
        "a slow operator that knows only the label cleans up, and there is one round",
    ),
    "stories/03-group-over-two-queues": (
        "a group over two namespaces and queues binds nothing until both can, and says which queue is full",
    ),
    "stories/04-a-node-dies-while-preempting": (
        "a node that dies while its pods terminate costs only its own nomination, and that is planned anew at once",
    ),
    "stories/07-a-budget-refuses": (
        "a victim that its budget refuses is not evicted again, and the gang is planned anew with the freed nodes",
    ),
    "stories/12-wait-time-ends-with-some-bound": (
        "when the wait time ends only the unbound are released and marked, the bound run on",
    ),
    "stories/15-another-scheduler": ("a nomination whose node another scheduler took is lost and planned anew",),
    "stories/18-nominations-of-a-borrowing-queue": (
        "a queue within its share takes the nominations of one that borrows, without an eviction",
    ),
    "topology/hypernodes": ("what is wrong with a HyperNode is reported to its owner and keeps nobody else from working",),
}
SCENARIOS = [scenario_of(file, name) for file, names in CHOSEN.items() for name in names]

ALL = os.environ.get("MUSTER_CONTRACT") == "all"
"""All other scenarios as well, which takes ten minutes."""
SIM_ONLY = {
    "what the server itself refuses": (
        "a minimum count of Kubernetes that is no number keeps its gang back",
        "a minimum that is no number does not start with one pod",
        "a node whose amounts cannot be read says so, and the others are used",
        "a node with a size that cannot be read takes nobody, and the others do",
        "a number written as a text is read, and reported",
        "a request that is no quantity stops nobody else",
        "a role's minimum that is no number keeps its gang back",
        "pods that the cluster itself needs are never victims",
    ),
    "what the server leaves out or writes in other words": (
        "a Kubernetes PodGroup names a node label, and nodes with one value of it are one domain",
        "two revisions keep apart each for itself with matchLabelKeys",
    ),
    "claims of pods whose UIDs the scenario chooses": (
        "a nomination to a node that does not exist is ignored",
        "a nomination to a node without free capacity is ignored",
        "a nomination that its queue has no capacity for is ignored",
        "a nomination whose node the pod's status does not name is ignored, and reported",
    ),
    "counts of writes: a real server takes the reason of a deletion in a write of its own": (
        "a nomination is one write for each member, and nothing is written while nothing changes",
    ),
    "too long for what it shows": ("two hours on 512 GPUs",),
}


def others() -> Iterator[Scenario]:
    """All that a real server can play: no faults of the embedded cluster, no death between two writes that it orders otherwise."""
    left_out = {*(name for names in SIM_ONLY.values() for name in names), *(one.name for one in SCENARIOS)}
    for _, scenario in all_scenarios():
        dies = any(isinstance(step, CrashStep) for step in scenario.steps)
        if scenario.name not in left_out and not dies and scenario.faults == FaultRates(seed=scenario.faults.seed):
            yield scenario


@pytest.mark.parametrize("scenario", [pytest.param(one, id=one.name) for one in SCENARIOS])
def test_both_clusters_come_to_the_same(scenario: Scenario, servers_with_kinds: Servers) -> None:
    assert_same_outcome(scenario, servers_with_kinds)


@pytest.mark.soak
@pytest.mark.parametrize("scenario", [pytest.param(one, id=one.name) for one in (others() if ALL else ())])
def test_both_clusters_come_to_the_same_in_all_other_scenarios(scenario: Scenario, servers_with_kinds: Servers) -> None:
    assert_same_outcome(scenario, servers_with_kinds)


def assert_same_outcome(scenario: Scenario, servers_with_kinds: Servers) -> None:
    embedded = SimCluster(scheduler_names=policy_of(scenario).settings.scheduler_names)
    expected, objects = run_on(scenario, embedded)
    assert expected.ok, "\n" + expected.explain()
    with real_cluster(servers_with_kinds, scenario) as cluster:
        found, real_objects = run_on(scenario, cluster)
    assert decision_lines(found.decided_effects) == decision_lines(expected.decided_effects)
    assert found.ok, "\n" + found.explain()
    assert real_objects == objects


def test_the_chosen_scenarios_show_every_effect() -> None:
    """What is not shown here is not proven there."""
    assert len(SCENARIOS) >= 40
    shown = Counter(what for scenario in SCENARIOS for what in _effects_shown(scenario))
    wanted = {
        *(
            kind.__name__
            for kind in (Bind, Reserve, Nominate, Release, Evict, CancelEviction, Condition, PodGroupStatus, QueueStatus)
        ),
        *("delete", "evict", "soft", "timed out", "volumes", "devices", "restart", "budget", "failed effect"),
        *("status of volcano", "status of koordinator", "status of sigs", "status of native", "status of queue", "status of quota"),
        *("condition of gang", "condition of pod", "condition of queue", "condition of domain"),
    }
    assert wanted <= shown.keys(), wanted - shown.keys()


def _effects_shown(scenario: Scenario) -> set[str]:
    effects = {word for decided in run(scenario).decided_effects for word in _effect_names(decided.effect)}
    if any(isinstance(step, RestartStep) for step in scenario.steps):
        effects.add("restart")
    if any(isinstance(step, FailStep) for step in scenario.steps):
        effects.add("failed effect")
    if any(written.manifest.get("kind") == BUDGET[1] for written in scenario.objects):
        effects.add("budget")
    return effects


def _effect_names(effect: Effect) -> Iterator[str]:
    yield type(effect).__name__
    match effect:
        case Evict():
            yield effect.method
        case Release() if effect.timed_out:
            yield "timed out"
        case Bind():
            yield from ("volumes",) if effect.volumes else ()
            yield from ("devices",) if effect.grants else ()
        case PodGroupStatus():
            yield f"status of {effect.group.partition(':')[0]}"
        case QueueStatus():
            yield f"status of {effect.key.partition('/')[0]}"
        case Condition():
            yield f"condition of {effect.subject}"
        case _:
            return
