"""What the status of queues and quotas should read, and what is wrong with them: said when it changes, and only then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from muster.engine.session import Session
from muster.model.effects import Condition, QueueStatus
from muster.model.queue import Queue, QueueState, show_queue
from muster.model.resources import BadQuantity, amount, written
from muster.state.queues import QueueTree
from muster.state.roster import DEMAND
from muster.state.world import World

INVALID = "Invalid"
VALID = "Valid"


@dataclass(frozen=True, slots=True)
class _Told:
    """How far the world was when queues were last told about."""

    tree: QueueTree
    layout: int
    position: int
    demand: int


def queue_news(s: Session) -> Iterator[Condition | QueueStatus]:
    """News of the queues that something happened to. To be asked before the gangs' own news are cleared away."""
    world = s.world
    before = world.memo.get("queues told")
    told = before if isinstance(before, _Told) else None
    if told is None or told.tree is not world.tree:
        yield from _conditions(world)
    for key in _changed(s, told):
        status = QueueStatus(key, _fields(s, world.queues[key]))
        if world.queue_statuses.get(key) != status:
            known = key in world.queue_statuses or not _reads(world.queues[key], status)
            world.queue_statuses[key] = status
            if known:
                yield status
    world.memo["queues told"] = _Told(world.tree, world.ledger.layout, world.ledger.position, world.version(DEMAND))


def _changed(s: Session, told: _Told | None) -> list[str]:
    """Queues that exist as objects and whose figures or gangs changed since."""
    world = s.world
    log = world.ledger.changed_since(told.position) if told is not None else None
    if told is None or log is None or told.tree is not world.tree or told.layout != world.ledger.layout:
        return sorted(key for key in world.queues if key in world.tree.nodes)
    touched = (world.gangs[key] for key in world.touched if key in world.gangs)
    queues = {*log, *(role.queue for gang in touched for role in gang.roles)}
    changed = {above for queue in queues for above in world.ledger.path(queue) if above in world.queues}
    if s.policy.describes_queues and told.demand != world.version(DEMAND):
        # What one asks for can change what another may have.
        changed.update(key for key in world.queues if key in world.tree.nodes)
    return sorted(changed)


# -- conditions --------------------------------------------------------------------------------------------------------------------


def _conditions(world: World) -> Iterator[Condition]:
    """What is wrong with a queue, where that is something else than before."""
    for key in sorted({*world.queue_conditions, *world.queues}):
        queue = world.queues.get(key)
        now = _complaint(world, queue) if queue is not None else None
        before = world.queue_conditions.pop(key, None)
        if now is not None:
            world.queue_conditions[key] = now
        elif before is not None and queue is not None:
            now = Condition("queue", key, True, VALID, f"nothing is wrong with {show_queue(key)} any more")
        if now is not None and now != before:
            yield now


def _complaint(world: World, queue: Queue) -> Condition | None:
    fault = world.tree.faults.get(queue.key)
    if fault is not None:
        return Condition("queue", queue.key, False, fault.code, fault.why)
    if queue.problems:
        why = "; ".join(f"{problem.field}: {problem.text}" for problem in queue.problems)
        return Condition("queue", queue.key, False, INVALID, why)
    return None


# -- status ------------------------------------------------------------------------------------------------------------------------

Fields = tuple[tuple[str, str], ...]


def _fields(s: Session, queue: Queue) -> Fields:
    if queue.is_quota:
        names = {*queue.limit, *queue.deserved}
        own = _amounts(s.world, queue.key, "used", names)
    else:
        names = {name for name, value in zip(s.world.columns.names, s.world.ledger.used(queue.key).tolist(), strict=True) if value}
        own = (*_amounts(s.world, queue.key, "allocated", names), *_counts(s, queue))
    more = (field for plugin in s.policy.describes_queues for field in plugin.queue_fields(s, queue.key))
    return tuple(sorted((*own, *more)))


def _amounts(world: World, key: str, word: str, names: Iterable[str]) -> Fields:
    used, position = world.ledger.used(key).tolist(), world.columns.position
    return tuple((f"{word}.{name}", written(name, used[position[name]])) for name in sorted(names))


def _counts(s: Session, queue: Queue) -> Fields:
    """How many gangs wait before the door, wait inside, and run. A queue that closes is closed when its last gang has gone."""
    world = s.world
    pending = inqueue = running = 0
    for key in world.in_queue.get(queue.key, ()):
        gang = world.gangs[key]
        unseated = world.unseated.get(key, 0)
        if unseated < gang.size:
            running += 1
        elif key in world.awaited or (gang.min_resources and "enqueue" in s.policy.actions and not world.attempts[key].enqueued):
            pending += 1
        elif unseated:
            inqueue += 1
    state = queue.state
    if state is QueueState.CLOSING and not pending + inqueue + running:
        state = QueueState.CLOSED
    counts = (("inqueue", inqueue), ("pending", pending), ("running", running))
    return (*((word, str(count)) for word, count in counts), ("state", state.value))


def _reads(queue: Queue, status: QueueStatus) -> bool:
    """Does the object say so already?"""
    said = dict(queue.status)
    amounts = {key for key in said if key.startswith(("allocated.", "used."))}
    told = dict(status.fields)
    return amounts <= told.keys() and all(_same(key, said.get(key, "0"), value) for key, value in told.items())


def _same(key: str, said: str, value: str) -> bool:
    if said == value:
        return True
    resource = key.partition(".")[2]
    try:
        return bool(resource) and amount(resource, said) == amount(resource, value)
    except BadQuantity:
        return False
