"""Commit: what a cycle decided about each pod, as one effect with its reason. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster.engine.group_status import statuses
from muster.engine.queue_status import queue_updates
from muster.engine.reporting import changed_gangs, group_uids
from muster.engine.saved_history import history_effects
from muster.engine.saved_plans import plan_effects
from muster.engine.session import Session
from muster.engine.validity_conditions import validity_conditions
from muster.model.device import grants
from muster.model.effects import Bind, CancelEviction, Condition, Effect, Evict, Nominate, Release, Reserve
from muster.model.pod import RESERVATIONS, Phase
from muster.state.derived.volume_choice import choices
from muster.state.memory import CONDITION
from muster.state.placements import NetChange


def collect_effects(s: Session, changes: Sequence[NetChange]) -> tuple[Effect, ...]:
    """One effect for each pod whose placement changed in this cycle; then what is to be reported on objects."""
    effects: list[Effect] = [effect for effect in s.extra_effects if not _is_superseded(s, effect)]
    for change in changes:
        effects.extend(_pod_effects(s, change))
    effects.extend(plan_effects(s))
    evicts = any(isinstance(effect, Evict | CancelEviction) for effect in effects)
    effects.extend(history_effects(s, evicts=evicts))
    gangs = changed_gangs(s)
    effects.extend(queue_updates(s, gangs))
    effects.extend(validity_conditions(s, gangs))
    effects.extend(statuses(s, gangs))
    effects.extend(_conditions(s))
    return tuple(effects)


def _is_superseded(s: Session, effect: Effect) -> bool:
    """A stale reservation need not be cleared where the pod got another node in the same cycle."""
    if not isinstance(effect, Release) or effect.timed_out:
        return False
    placement = s.world.placements.by_uid.get(effect.uid)
    return placement is not None and placement.phase in (*RESERVATIONS, Phase.BINDING)


def _pod_effects(s: Session, change: NetChange) -> Iterator[Effect]:
    before, now, step = change.before, change.now, change.step
    pod, why, cause = step.pod, step.why, step.cause
    member = s.world.facts.members.get(pod.uid)
    gang = s.world.facts.gangs[member.gang].full_name if member is not None else ""
    node = now.node or ""
    match now.phase:
        case Phase.BINDING:
            volumes = choices(s.world, pod) if pod.signature.volume_claims else ()
            given = grants(pod.signature.devices, now.devices, s.world.facts.nodes[node].devices) if now.devices else ()
            yield Bind(pod.uid, pod.full_name, node, gang, why, cause, now.devices, volumes, given)
        case Phase.RESERVED:
            yield Reserve(pod.uid, pod.full_name, node, gang, why, cause, now.since, now.devices)
        case Phase.NOMINATED:
            evicts = bool(s.world.memory.plans[now.plan].victims)
            yield Nominate(pod.uid, pod.full_name, node, gang, why, cause, now.since, now.plan, evicts, now.devices)
        case Phase.TERMINATING:
            manner = s.policy.manner(cause, queue=member.queue if member is not None else "")
            yield Evict(pod.uid, pod.full_name, node, gang, step.for_gang, why, cause, manner)
        case Phase.BOUND if before.phase is Phase.TERMINATING:
            yield CancelEviction(pod.uid, pod.full_name, node, gang, why, cause)
        # A pod whose gang timed out has its Release already.
        case Phase.PENDING if before.phase in RESERVATIONS and pod.uid not in s.world.memory.timed_out:
            yield Release(pod.uid, pod.full_name, before.node or "", gang, why, cause)


def _conditions(s: Session) -> Iterator[Condition]:
    """What the owner of a gang should read, where that is not what was last reported."""
    reported = s.world.memory.reported
    for key, verdict in s.verdicts.items():
        gang = s.world.facts.gangs[key]
        condition = None if verdict.ok else (verdict.code, verdict.why, group_uids(s.world, gang))
        if reported.get((key, CONDITION)) == condition:
            continue
        if condition is None:
            reported.drop((key, CONDITION))
        else:
            reported.set((key, CONDITION), condition)
        code, why = verdict.code or "Scheduled", verdict.why or "every member has a node"
        yield Condition("gang", gang.full_name, verdict.ok, code, why, gang_key=key)
