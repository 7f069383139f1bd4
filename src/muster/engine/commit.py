"""From moves to effects: what a cycle changed about each pod, as one deed with its reason."""

from __future__ import annotations

from collections.abc import Iterator

from muster.engine.group_status import statuses
from muster.engine.queue_status import queue_updates
from muster.engine.reporting import changed_gangs, group_uids
from muster.engine.session import Session
from muster.engine.validity_conditions import validity_conditions
from muster.model.device import grants
from muster.model.effects import Bind, CancelEviction, Condition, Effect, Evict, Nominate, Release, Reserve
from muster.model.pod import RESERVATIONS, UNPLACED, Phase, Placement
from muster.model.topics import Topic
from muster.state.derived.volume_choice import choices
from muster.state.memory import CONDITION, BindingReservation
from muster.state.placements import Step


def collect_effects(s: Session) -> tuple[Effect, ...]:
    """One effect for each pod whose placement is not what it was when the cycle began, in the order of the first moves."""
    first: dict[str, Step] = {}
    last: dict[str, Step] = {}
    for step in s.world.placements.steps():
        first.setdefault(step.pod.uid, step)
        last[step.pod.uid] = step
    effects: list[Effect] = [effect for effect in s.extra_effects if not _is_superseded(s, effect)]
    for uid, step in first.items():
        now = s.world.placements.by_uid.get(uid, UNPLACED)
        if now != step.before:
            effects.extend(_pod_effects(s, step.before, now, last[uid]))
    gangs = changed_gangs(s)
    effects.extend(queue_updates(s, gangs))
    effects.extend(validity_conditions(s, gangs))
    effects.extend(statuses(s, gangs))
    effects.extend(_conditions(s))
    return tuple(effects)


def _is_superseded(s: Session, effect: Effect) -> bool:
    """A claim that is cleared needs no clearing where the pod got another node in the same cycle."""
    if not isinstance(effect, Release) or effect.timed_out:
        return False
    placement = s.world.placements.by_uid.get(effect.uid)
    return placement is not None and placement.phase in (*RESERVATIONS, Phase.BINDING)


def _pod_effects(s: Session, before: Placement, now: Placement, step: Step) -> Iterator[Effect]:
    pod, why, cause = step.pod, step.why, step.cause
    member = s.world.facts.members.get(pod.uid)
    gang = s.world.facts.gangs[member.gang].full_name if member is not None else ""
    changes = s.world.changes
    if member is not None and before.node is not None:
        s.world.bump_queue(member.queue)
    if member is not None and before.node is None:
        changes.bump(Topic.QUEUE_USAGE)
    node = now.node or ""
    if now.phase is Phase.BINDING:
        changes.bump(Topic.POD_PLACED)
        if before.phase in RESERVATIONS and before.node == now.node:
            s.world.memory.binding_reservations.set(pod.uid, BindingReservation(before, s.world.memory.plans.get(before.plan)))
        volumes = choices(s.world, pod) if pod.signature.volume_claims else ()
        given = grants(pod.signature.devices, now.devices, s.world.facts.nodes[node].devices) if now.devices else ()
        yield Bind(pod.uid, pod.full_name, node, gang, why, cause, now.devices, volumes, given)
    elif now.phase is Phase.RESERVED:
        changes.bump(Topic.RESERVATIONS)
        changes.bump(Topic.POD_PLACED)
        yield Reserve(pod.uid, pod.full_name, node, gang, why, cause, now.since, now.devices)
    elif now.phase is Phase.NOMINATED:
        changes.bump(Topic.POD_PLACED)
        plan = s.world.memory.plans[now.plan]
        yield Nominate(pod.uid, pod.full_name, node, gang, why, cause, now.since, now.plan, plan.size, plan.victims, now.devices)
    elif now.phase is Phase.TERMINATING:
        changes.bump(Topic.RELEASING)
        yield Evict(pod.uid, pod.full_name, node, gang, step.for_gang, why, cause, s.policy.manner(cause))
    elif now.phase is Phase.BOUND and before.phase is Phase.TERMINATING:
        yield CancelEviction(pod.uid, pod.full_name, node, gang, why, cause)
    elif now.phase is Phase.PENDING and before.phase in RESERVATIONS:
        changes.bump(Topic.FREE_CAPACITY)
        # Whoever timed out was told so already.
        if pod.uid not in s.world.memory.timed_out:
            yield Release(pod.uid, pod.full_name, before.node or "", gang, why, cause)


def _conditions(s: Session) -> Iterator[Condition]:
    """What the owner of a gang should read now, where that is something else than before."""
    reported = s.world.memory.reported
    for key, verdict in s.verdicts.items():
        gang = s.world.facts.gangs[key]
        said = None if verdict.ok else (verdict.code, verdict.why, group_uids(s.world, gang))
        if reported.get((key, CONDITION)) == said:
            continue
        if said is None:
            reported.drop((key, CONDITION))
        else:
            reported.set((key, CONDITION), said)
        yield Condition("gang", gang.full_name, verdict.ok, verdict.code or "Scheduled", verdict.why or "every member has a node")
