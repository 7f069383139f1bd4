"""Which roles of a GangGroup have pods evicted for them, where its roles are charged to several queues.

Each role is judged by what it lacks itself, and free capacity goes first to the roles that may have nobody evicted. A role that
fits on what is left of it takes nothing: pods of its queue are then evicted for another role only if that one may take them.
"""

from __future__ import annotations

from muster.engine.domain_placement import place_gang
from muster.engine.evict.contested import Contested
from muster.engine.evict.eviction_plan import NoPlan
from muster.engine.evict.eviction_policy import EvictionRules
from muster.engine.hooks import WHOLE_CLUSTER, Ask
from muster.engine.session import Session
from muster.model.pod import Phase, Pod
from muster.model.queue import show_queue
from muster.state.trial import Trial

_MOST_WHYS = 2


def taking_roles(s: Session, ask: Ask, rules: EvictionRules, contested: Contested) -> Contested | NoPlan:
    """The queues of the ask whose members take, each with what is contested for them; or why there can be no plan."""
    pods: dict[str, list[Pod]] = {queue: [] for queue in contested}
    for pod in ask.pods:
        pods[s.world.facts.members[pod.uid].queue].append(pod)
    taking: Contested = {}
    whys: dict[str, list[str]] = {}
    for queue, columns in contested.items():
        if rules.may_take(queue):
            taking[queue] = columns
        else:
            whys[queue] = _whys_kept(rules)
    with s.trial("simulated", cause="Simulated") as trial:
        for queue in sorted(contested.keys() - taking.keys()):
            if not _fits(s, trial, pods[queue]):
                nobody = f"no pod may be evicted for its members in {show_queue(queue)}, and they do not fit on free capacity"
                return NoPlan("; ".join([nobody, *whys[queue]]))
        lacking = {queue for queue in taking if not _fits_last(s, trial, queue, {each: pods[each] for each in taking})}
    return {queue: columns for queue, columns in taking.items() if queue in lacking} or taking


def _whys_kept(rules: EvictionRules) -> list[str]:
    """Why the queues that were asked last do not give."""
    whys = sorted({why for why, _ in rules.barred_by_queue()})
    return whys[:_MOST_WHYS] or [rules.why_nobody()]


def _fits_last(s: Session, trial: Trial, queue: str, pods: dict[str, list[Pod]]) -> bool:
    """Do the members of this queue fit on what the others leave?"""
    mark = trial.mark()
    for other, theirs in pods.items():
        if other != queue:
            _fits(s, trial, theirs)
    fits = _fits(s, trial, pods[queue])
    trial.undo_to(mark)
    return fits


def _fits(s: Session, trial: Trial, pods: list[Pod]) -> bool:
    return place_gang(s, trial, pods, domain=WHOLE_CLUSTER, phase=Phase.NOMINATED).count == len(pods)
