"""From moves to effects: what a cycle changed about each pod, as one deed with its reason."""

from __future__ import annotations

from collections.abc import Iterator

from muster.engine.complaints import complaints
from muster.engine.queue_status import queue_news
from muster.engine.session import Session
from muster.engine.status import statuses
from muster.model.devices import grants
from muster.model.effects import Bind, Condition, Effect, Evict, Hold, Nominate, Release, Spare
from muster.model.pod import CLAIMS, UNPLACED, Phase, Placement
from muster.state.store import COMPANY, HOLDS, ROOM, SOON
from muster.state.volume_choice import choices
from muster.state.world import Redeemed, Step


def deeds(s: Session) -> tuple[Effect, ...]:
    """One effect for each pod whose placement is not what it was when the cycle began, in the order of the first moves."""
    first: dict[str, Step] = {}
    last: dict[str, Step] = {}
    for step in s.world.journal:
        first.setdefault(step.pod.uid, step)
        last[step.pod.uid] = step
    effects: list[Effect] = [effect for effect in s.extra if not _is_overtaken(s, effect)]
    for uid, step in first.items():
        now = s.world.placements.get(uid, UNPLACED)
        if now != step.before:
            effects.extend(_deed(s, step.before, now, last[uid]))
    effects.extend(queue_news(s))
    effects.extend(complaints(s))
    effects.extend(statuses(s))
    effects.extend(_conditions(s))
    return tuple(effects)


def _is_overtaken(s: Session, effect: Effect) -> bool:
    """A claim that is cleared needs no clearing where the pod got another node in the same cycle."""
    if not isinstance(effect, Release) or effect.timed_out:
        return False
    placement = s.world.placements.get(effect.uid)
    return placement is not None and placement.phase in (*CLAIMS, Phase.BINDING)


def _deed(s: Session, before: Placement, now: Placement, step: Step) -> Iterator[Effect]:
    pod, why, cause = step.pod, step.why, step.cause
    member = s.world.members.get(pod.uid)
    gang = s.world.gangs[member.gang].title if member is not None else ""
    if member is not None and before.node is not None:
        s.world.wake_queue(member.queue)
    node = now.node or ""
    if now.phase is Phase.BINDING:
        s.world.wake(COMPANY)
        if before.phase in CLAIMS and before.node == now.node:
            s.world.redeemed[pod.uid] = Redeemed(before, s.world.plans.get(before.plan))
        volumes = choices(s.world, pod) if pod.kind.claims else ()
        given = grants(pod.kind.devices, now.devices, s.world.nodes[node].devices) if now.devices else ()
        yield Bind(pod.uid, pod.title, node, gang, why, cause, now.devices, volumes, given)
    elif now.phase is Phase.HELD:
        s.world.wake(HOLDS, COMPANY)
        yield Hold(pod.uid, pod.title, node, gang, why, cause, now.since, now.devices)
    elif now.phase is Phase.NOMINATED:
        s.world.wake(COMPANY)
        plan = s.world.plans[now.plan]
        yield Nominate(pod.uid, pod.title, node, gang, why, cause, now.since, now.plan, plan.size, plan.victims, now.devices)
    elif now.phase is Phase.LEAVING:
        s.world.wake(SOON)
        yield Evict(pod.uid, pod.title, node, gang, step.for_gang, why, cause, s.policy.manner(cause))
    elif now.phase is Phase.BOUND and before.phase is Phase.LEAVING:
        yield Spare(pod.uid, pod.title, node, gang, why, cause)
    elif now.phase is Phase.PENDING and before.phase in CLAIMS:
        s.world.wake(ROOM)
        # Whoever timed out was told so already.
        if pod.uid not in s.world.marked:
            yield Release(pod.uid, pod.title, before.node or "", gang, why, cause)


def _conditions(s: Session) -> Iterator[Condition]:
    """What the owner of a gang should read now, where that is something else than before."""
    for key, verdict in s.verdicts.items():
        memory, gang = s.world.attempts[key], s.world.gangs[key]
        said = (verdict.code, verdict.why)
        if memory.said == said or (verdict.ok and memory.said is None):
            continue
        memory.said = None if verdict.ok else said
        yield Condition("gang", gang.title, verdict.ok, verdict.code or "Scheduled", verdict.why or "every member has a node")
