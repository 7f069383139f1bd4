"""What the status of queues and quotas should read, and what is wrong with them: said when it changes, and only then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

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


def queue_updates(s: Session, gangs: Sequence[str]) -> Iterator[Condition | QueueStatus]:
    """News of the queues that something happened to, or to one of these gangs in them."""
    world, changes = s.world, s.world.changes
    before = world.memory.reported_queues
    now = QueuesReported(changes.ledger.position, changes.stamp(BY_QUEUE), changes.version(Topic.DEMAND))
    if before is None or before.queues != now.queues:
        yield from _conditions(world)
    for key in _changed(s, gangs, before, now):
        queue = world.facts.queues[key]
        status = QueueStatus(key, _fields(s, queue))
        if is_news(world, queue.uid or key, status, queue.status, says=partial(_object_has, queue, status)):
            yield status
    world.memory.reported_queues = now


def _changed(s: Session, gangs: Sequence[str], before: QueuesReported | None, now: QueuesReported) -> list[str]:
    """Queues that exist as objects and whose usage or gangs changed since."""
    world = s.world
    log = world.changes.ledger.since(before.ledger) if before is not None else None
    if before is None or log is None or before.queues != now.queues:
        return sorted(key for key in world.facts.queues if key in world.facts.tree.nodes)
    queues = {*log, *(role.queue for key in gangs for role in world.facts.gangs[key].roles)}
    changed = {above for queue in queues for above in world.ledger.path(queue) if above in world.facts.queues}
    if s.policy.describes_queues and before.demand != now.demand:
        # What one asks for can change what another may have.
        changed.update(key for key in world.facts.queues if key in world.facts.tree.nodes)
    return sorted(changed)


# -- conditions --------------------------------------------------------------------------------------------------------------------


def _conditions(world: World) -> Iterator[Condition]:
    """What is wrong with a queue, where that is something else than before."""
    for key, queue in sorted(world.facts.queues.items()):
        yield from condition_news(world, queue.uid or key, _validity_condition(world, queue), _all_well(key))


def _all_well(key: str) -> Condition:
    return Condition("queue", key, True, VALID, f"nothing is wrong with {show_queue(key)} any more")


def _validity_condition(world: World, queue: Queue) -> Condition | None:
    fault = world.facts.tree.faults.get(queue.key)
    if fault is not None:
        return Condition("queue", queue.key, False, fault.code, fault.why)
    if queue.problems:
        why = "; ".join(f"{problem.field}: {problem.text}" for problem in queue.problems)
        return Condition("queue", queue.key, False, INVALID, why)
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
    more = (field for plugin in s.policy.describes_queues for field in plugin.queue_fields(s, queue.key))
    return tuple(sorted((*own, *more)))


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
    said = dict(queue.status)
    amounts = {key for key in said if key.startswith(("allocated.", "used."))}
    reported = dict(status.fields)
    return amounts <= reported.keys() and all(_same_value(key, said.get(key, "0"), value) for key, value in reported.items())


def _same_value(key: str, said: str, value: str) -> bool:
    if said == value:
        return True
    resource = key.partition(".")[2]
    try:
        return bool(resource) and amount(resource, said) == amount(resource, value)
    except BadQuantity:
        return False
