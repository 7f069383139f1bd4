"""One cycle on the world of a case, and what came of it in Volcano's words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.conformance.corpus import Case
from tests.conformance.facts import full_name_of
from tests.conformance.inputs import events_of, policy_of

from muster.engine.group_status import status_of
from muster.engine.hooks import Policy
from muster.model.effects import Bind, Evict, Nominate
from muster.model.pod import Phase, Pod, PodStatusPhase
from muster.scheduler import Scheduler
from muster.state.world import World

NOW = 1_000_000.0
"""Nearly no object of the corpus says when it was made: all of them are old."""

PHASES = {
    "Pending": "Pending",
    "PreScheduling": "Inqueue",
    "Scheduling": "Inqueue",
    "Scheduled": "Running",
    "Running": "Running",
    "Finished": "Completed",
    "Failed": "Unknown",
}


@dataclass(slots=True)
class Result:
    binds: dict[str, str] = field(default_factory=dict)
    evicted: list[str] = field(default_factory=list)
    pipelined: dict[str, str] = field(default_factory=dict)
    at_once: dict[str, str] = field(default_factory=dict)
    """Where only evicting actions ran: who found free capacity and needed none of them."""
    podgroup_phase: dict[str, str] = field(default_factory=dict)
    task_status: dict[str, str] = field(default_factory=dict)
    group_of: dict[str, str] = field(default_factory=dict)
    """The PodGroup of each pod."""
    verdicts: dict[str, str] = field(default_factory=dict)
    world: World = field(default_factory=World)
    policy: Policy | None = None

    def status_nums(self, group: str) -> Counter[str]:
        return Counter(status for pod, status in self.task_status.items() if self.group_of.get(pod) == group)


def binds_pods(case: Case) -> bool:
    """Does any of the case's actions bind pods?"""
    return not {"allocate", "backfill"}.isdisjoint(case.actions)


def run(case: Case) -> Result:
    policy = policy_of(case)
    scheduler = Scheduler(policy)
    scheduler.feed(events_of(case))
    outcome = scheduler.tick(NOW)
    result = Result(verdicts={title: verdict.why for title, verdict in outcome.verdicts})
    for effect in outcome.effects:
        match effect:
            case Bind():
                result.binds[effect.pod] = effect.node
            case Evict():
                result.evicted.append(effect.pod)
            case Nominate():
                result.pipelined[effect.pod] = effect.node
    if not binds_pods(case):
        # Here whoever finds free capacity is bound at once; what an evicting action of Volcano does then depends on it.
        result.at_once, result.binds = result.binds, {}
    result.world, result.policy = scheduler.world, policy
    _read_world(case, scheduler.world, result)
    return result


def _read_world(case: Case, world: World, result: Result) -> None:
    for gang in world.facts.gangs.values():
        for group in dict.fromkeys(role.group for role in gang.roles if role.group):
            title = group.partition(":")[2]
            result.podgroup_phase[title] = _phase(case, title, PHASES[status_of(world, gang, group).phase])
            for role in gang.roles:
                for pod in (*role.pods, *role.terminating):
                    result.group_of[pod.full_name] = title
                    result.task_status[pod.full_name] = _status(case, world, pod)


def _phase(case: Case, title: str, phase: str) -> str:
    """To Volcano a PodGroup that said Running and no longer runs was never let in: it starts anew with the next session."""
    said = [(group.get("status") or {}).get("phase") for group in case.objects("podgroups") if full_name_of(group) == title]
    return "Pending" if phase == "Inqueue" and said == ["Running"] else phase


def _status(case: Case, world: World, pod: Pod) -> str:
    match world.phase(pod):
        case Phase.PENDING:
            return "Pending"
        case Phase.NOMINATED | Phase.RESERVED | Phase.MOVING:
            return "Pipelined"
        case Phase.BINDING:
            return "Binding" if binds_pods(case) else "Pipelined"
        case Phase.BOUND:
            return "Running" if pod.status_phase is PodStatusPhase.RUNNING else "Bound"
        case Phase.TERMINATING | Phase.OVERDUE:
            return "Releasing"
