"""Whom nobody may take: protected pods, pods of others, pods that just started, and what hard disruption budgets do not allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.oracles.snapshot import Finding, JudgedPlan, Snapshot

from muster.model.pod import RELEASING, Phase, Pod
from muster.model.queue import PREEMPTIBLE_LABEL

PREEMPTABLE = "volcano.sh/preemptable"


def protection_findings(s: Snapshot, plan: JudgedPlan) -> Iterator[Finding]:
    for uid in plan.victims:
        pod = s.pods[uid]
        for rule, why in protected_because(s, pod, plan):
            yield Finding(rule, f"{pod.full_name} is evicted, and {why}")
    yield from budget_findings(s, plan.victims)


def protected_because(s: Snapshot, pod: Pod, plan: JudgedPlan) -> Iterator[tuple[str, str]]:
    gang = s.gang_of(pod.uid)
    if gang is not None and gang.key == plan.asker:
        yield "D1 own pod", "it belongs to the gang that it is evicted for"
    if s.phase(pod.uid) not in (Phase.BOUND, Phase.BINDING):
        yield "D9 placed", f"it has no node of its own but is {s.phase(pod.uid).name}"
    yield from never_evictable(s, pod)
    if is_too_young(s, pod, _action_for(s, pod, plan)) and (gang is None or gang.key not in s.history.stale):
        yield "D11 run time", f"it has run for {s.now - (started_at(s, pod) or 0):g} s of {s.rules.min_runtime_s:g} s"


def _action_for(s: Snapshot, pod: Pod, plan: JudgedPlan) -> str:
    """Reclaim may take what preemption may: the asking gang's own queue, lower priority. It is protected as it is there."""
    gang, asker = s.gang_of(pod.uid), s.gangs.get(plan.asker)
    if plan.action != "gang-reclaim" or gang is None or asker is None:
        return plan.action
    theirs, ours = ({role.queue for role in each.roles} for each in (gang, asker))
    return "gang-preempt" if gang.priority < asker.priority and len(theirs) == 1 and theirs <= ours else plan.action


def never_evictable(s: Snapshot, pod: Pod) -> Iterator[tuple[str, str]]:
    if not pod.ours and pod.scheduler not in s.rules.victim_schedulers:
        yield "G3 other scheduler", f"its scheduler is {pod.scheduler}"
    if pod.protected:
        yield "G3 protected", pod.protected
    elif pod.namespace == "kube-system":
        yield "G3 protected", "it is in kube-system"
    elif pod.priority_class.startswith("system-") and pod.priority_class.endswith("-critical"):
        yield "G3 protected", f"its class is {pod.priority_class}"
    if "false" in (pod.annotations.get(PREEMPTABLE), pod.labels.get(PREEMPTABLE)):
        yield "D3 protected", f"it says {PREEMPTABLE}: false"
    if not is_preemptible(s, pod):
        yield "F2 protected", "it is not preemptible"


def is_preemptible(s: Snapshot, pod: Pod) -> bool:
    label = pod.labels.get(PREEMPTIBLE_LABEL)
    return s.rules.preemptible_by_default if label is None else label != "false"


def is_too_young(s: Snapshot, pod: Pod, action: str) -> bool:
    if action not in s.rules.min_runtime_actions or pod.started is None:
        return False
    started = started_at(s, pod)
    return started is not None and s.now - started < s.rules.min_runtime_s


def started_at(s: Snapshot, pod: Pod) -> float | None:
    """When its gang started: a member that fails and comes again does not start the gang's time anew."""
    gang = s.gang_of(pod.uid)
    running = [other for other in gang.pods() if s.phase(other.uid) is Phase.BOUND] if gang is not None and pod.ours else [pod]
    return min((other.started for other in running if other.started is not None), default=pod.started)


def budgets_over(pod: Pod, s: Snapshot) -> list[str]:
    return [
        key
        for key, budget in sorted(s.budgets.items())
        if budget.namespace == pod.namespace and budget.selector is not None and budget.selector.selects(pod.labels)
    ]


def broken_budgets(s: Snapshot, victims: Iterable[str]) -> dict[str, int]:
    """By budget, how many more of its pods are evicted than it allows. Evictions that it has not counted yet use it up."""
    left = {key: budget.allowed for key, budget in s.budgets.items()}
    for uid, placement in s.placements.items():
        pod = s.pods.get(uid)
        if pod is not None and placement.phase in RELEASING and pod.deleted_at is None:
            for key in budgets_over(pod, s):
                left[key] -= 1
    taken: dict[str, int] = {}
    for uid in victims:
        for key in budgets_over(s.pods[uid], s) if s.phase(uid) is Phase.BOUND else ():
            taken[key] = taken.get(key, 0) + 1
    return {key: count - max(left[key], 0) for key, count in taken.items() if count > left[key]}


def budget_findings(s: Snapshot, victims: Iterable[str]) -> Iterator[Finding]:
    if s.rules.budgets == "hard":
        for key, more in broken_budgets(s, victims).items():
            yield Finding("D7 budget", f"{more} more pods are evicted than the disruption budget {key} allows")
