"""What the status of queues and quotas should read, and what is wrong with them: said when it changes, and only then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from muster.engine.fair_shares import fair_shares
from muster.engine.guarantees import guarantees
from muster.engine.quota import BY_QUEUE
from muster.engine.reporting import condition_news, is_news
from muster.engine.session import Session
from muster.model.effects import Condition, QueueStatus
from muster.model.queue import Queue, QueueState, show_queue
from muster.model.resource_amounts import BadQuantity, amount, written
from muster.model.topics import Topic
from muster.state.memory import QueuesReported
from muster.state.world import World

INVALID = "Invalid"
VALID = "Valid"
GUARANTEE_REDUCED = "GuaranteeReduced"


def queue_updates(s: Session, gangs: Sequence[str]) -> Iterator[Condition | QueueStatus]:
    """News of the queues that something happened to, or to one of these gangs in them."""
    world, changes = s.world, s.world.changes
    before = world.memory.reported_queues
    # What the nodes have decides whether guarantees count in full, and how large a fair share is.
    topics = BY_QUEUE if guarantees(s) is None and not _has_fair_shares(s) else (*BY_QUEUE, Topic.ALLOCATABLE)
    shares = fair_shares(s).rows.tobytes() if _has_fair_shares(s) else b""
    now = QueuesReported(changes.ledger.position, changes.stamp(topics), changes.version(Topic.DEMAND), shares)
    if before is None or before.queues != now.queues:
        yield from _conditions(s)
    for key in _changed(s, gangs, before, now):
        queue = world.facts.queues[key]
        status = QueueStatus(key, _fields(s, queue))
        if is_news(world, queue.uid or key, status, queue.status, says=partial(_object_has, queue, status)):
            yield status
    world.memory.reported_queues = now


def _changed(s: Session, gangs: Sequence[str], before: QueuesReported | None, now: QueuesReported) -> list[str]:
    """Queues that exist as objects and whose usage or gangs changed since."""
    log = s.world.changes.ledger.since(before.ledger) if before is not None else None
    # What one queue requests can change what another may have.
    is_shared = before is not None and (
        (bool(s.policy.describes_queues) and before.demand != now.demand) or before.fair_shares != now.fair_shares
    )
    if before is None or log is None or before.queues != now.queues or is_shared:
        return sorted(s.world.facts.queues.keys() & s.world.facts.tree.nodes.keys())
    queues = {*log, *(role.queue for key in gangs for role in s.world.facts.gangs[key].roles)}
    above = {key for queue in queues for key in s.world.ledger.path(queue)}
    return sorted(above & s.world.facts.queues.keys())


# -- conditions --------------------------------------------------------------------------------------------------------------------


def _conditions(s: Session) -> Iterator[Condition]:
    """What is wrong with a queue, where that is something else than before."""
    for key, queue in sorted(s.world.facts.queues.items()):
        yield from condition_news(s.world, queue.uid or key, _validity_condition(s, queue), _all_well(key))


def _all_well(key: str) -> Condition:
    return Condition("queue", key, True, VALID, f"nothing is wrong with {show_queue(key)} any more")


def _validity_condition(s: Session, queue: Queue) -> Condition | None:
    fault = s.world.facts.tree.faults.get(queue.key)
    if fault is not None:
        return Condition("queue", queue.key, False, fault.code, fault.why)
    if queue.problems:
        why = "; ".join(f"{problem.field}: {problem.text}" for problem in queue.problems)
        return Condition("queue", queue.key, False, INVALID, why)
    found = guarantees(s)
    if found is not None and queue.key in found.why_reduced:
        return Condition("queue", queue.key, False, GUARANTEE_REDUCED, found.why_reduced[queue.key])
    return None


# -- status ------------------------------------------------------------------------------------------------------------------------

StatusFields = tuple[tuple[str, str], ...]


def _fields(s: Session, queue: Queue) -> StatusFields:
    if queue.is_quota:
        names = {*queue.limit, *queue.deserved}
        own = _amounts(s.world, queue.key, "used", names)
    else:
        names = {name for name, value in zip(s.world.columns.names, s.world.ledger.used(queue.key).tolist(), strict=True) if value}
        own = (*_amounts(s.world, queue.key, "allocated", names), *_counts(s, queue))
    if _has_fair_shares(s):
        own = (*own, *_fair_share(s, queue.key))
    more = (field for plugin in s.policy.describes_queues for field in plugin.queue_fields(s, queue.key))
    return tuple(sorted((*own, *more)))


def _has_fair_shares(s: Session) -> bool:
    return s.policy.settings.reclaim_for == "fairShare"


def _fair_share(s: Session, key: str) -> StatusFields:
    shares = zip(s.world.columns.names, fair_shares(s).rows[s.world.ledger.row[key]].tolist(), strict=True)
    return tuple((f"fairShare.{name}", written(name, value)) for name, value in sorted(shares) if value)


def _amounts(world: World, key: str, word: str, names: Iterable[str]) -> StatusFields:
    used, position = world.ledger.used(key).tolist(), world.columns.position
    return tuple((f"{word}.{name}", written(name, used[position[name]])) for name in sorted(names))


def _counts(s: Session, queue: Queue) -> StatusFields:
    """How many gangs are pending, enqueued and running. A closing queue is closed when its last gang is gone."""
    world = s.world
    pending = inqueue = running = 0
    for key in world.facts.gangs_in_queue.get(queue.key, ()):
        gang = world.facts.gangs[key]
        unplaced_members = world.placements.unplaced_members.get(key, 0)
        if unplaced_members < gang.size:
            running += 1
        elif key in world.facts.without_pods or (
            gang.min_resources and "enqueue" in s.policy.actions and not world.memory.attempts[key].enqueued
        ):
            pending += 1
        elif unplaced_members:
            inqueue += 1
    state = queue.state
    if state is QueueState.CLOSING and not pending + inqueue + running:
        state = QueueState.CLOSED
    counts = (("inqueue", inqueue), ("pending", pending), ("running", running))
    return (*((word, str(count)) for word, count in counts), ("state", state.value))


def _object_has(queue: Queue, status: QueueStatus) -> bool:
    """Does the object say so already?"""
    known = dict(queue.status)
    amounts = {key for key in known if key.startswith(("allocated.", "used."))}
    reported = dict(status.fields)
    return amounts <= reported.keys() and all(_same_value(key, known.get(key, "0"), value) for key, value in reported.items())


def _same_value(key: str, known: str, value: str) -> bool:
    if known == value:
        return True
    resource = key.partition(".")[2]
    try:
        return bool(resource) and amount(resource, known) == amount(resource, value)
    except BadQuantity:
        return False
