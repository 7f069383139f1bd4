"""History as it is saved for a scheduler that starts later: what gangs lost by evictions, since when they are broken, cooldowns.

One object for each namespace, and one for what queues used. It is written before an eviction that adds to it, and when nodes are
kept for another gang, else at most once a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from muster.engine.evict.eviction_units import MAX_COOLDOWN_S
from muster.engine.session import Session
from muster.model.effects import SaveHistory
from muster.model.gang import Gang
from muster.model.saved_state import QUEUES_HISTORY, Losses, SavedHistory, SavedSuccess, SavedWait
from muster.state.memory import BackfillReservation, Memory

SAVE_EVERY_S = 60.0
MAX_BYTES = 700_000
"""Of one object, about: etcd takes 1.5 MiB."""
_FEW = 500
"""So many entries are small enough, whatever their names."""
_ENTRY_BYTES = 150
"""Of an entry beside its names."""
_NAME_BYTES = 3
"""Of a name of a list: its quotes and its comma."""
MAX_GANGS = 500
"""Of a namespace: those whose last loss is the longest ago are forgotten first."""


def recover_history(s: Session) -> None:
    """Take over what the scheduler before this one had saved."""
    memory = s.world.memory
    for namespace, history in sorted(s.world.facts.saved_histories.items()):
        for key, losses in history.losses.items():
            memory.losses.set(key, losses)
        for gang, since in history.below_min_since.items():
            memory.below_min_since.set(gang, since)
        for gang, wait in history.waits.items():
            memory.recover_first_attempt(gang, at=wait.at)
            if gang in s.world.facts.gangs:
                memory.keep_capacity(gang, BackfillReservation(wait.nodes, wait.starts_at, s.now, wait.since, wait.moves))
        for uid, cancelled in history.cancelled_evictions.items():
            if uid in s.world.facts.pods:
                memory.cancelled_evictions.set(uid, cancelled)
        for queue, past in history.past_use.items():
            memory.past_use.set(queue, past)
        memory.saved_histories.set(namespace, replace(history, version=0))


def history_effects(s: Session, *, evicts: bool) -> list[SaveHistory]:
    """What has to be written. `evicts`: this cycle evicts pods, or cancels evictions, so all of it is written now."""
    memory = s.world.memory
    written = memory.losses.writes + memory.below_min_since.writes + memory.cancelled_evictions.writes
    written += s.world.facts.succeeded.writes + memory.backfill_reservations.writes + memory.past_use.writes
    if written == memory.history_saved_to:
        return []
    effects, is_deferred = [], False
    found = _histories(s)
    for namespace in sorted({*found, *memory.saved_histories}):
        history = found.get(namespace, SavedHistory(namespace))
        saved = memory.saved_histories.get(namespace, SavedHistory(namespace))
        if history == saved:
            continue
        is_urgent = evicts or any(_kept_since(history, gang) != _kept_since(saved, gang) for gang in history.waits)
        if not is_urgent and s.now < memory.histories_saved_at.get(namespace, -SAVE_EVERY_S) + SAVE_EVERY_S:
            is_deferred = True
            continue
        memory.saved_histories.set(namespace, history)
        memory.histories_saved_at.set(namespace, s.now)
        effects.append(SaveHistory(history))
    if not is_deferred:
        memory.history_saved_to = written
    return effects


def _kept_since(history: SavedHistory, gang: str) -> tuple[tuple[str, ...], float] | None:
    """The nodes that are kept for a gang, and since when: what binds others. When it starts is worked out again and again."""
    wait = history.waits.get(gang)
    return None if wait is None else (wait.nodes, wait.since)


def _histories(s: Session) -> dict[str, SavedHistory]:
    memory, facts = s.world.memory, s.world.facts
    found: dict[str, SavedHistory] = {}

    def of(namespace: str) -> SavedHistory:
        return found.setdefault(namespace, SavedHistory(namespace))

    for key, losses in _newest(memory):
        of(losses.namespace).losses[key] = losses
    for gang, since in sorted(memory.below_min_since.items()):
        if gang in facts.gangs:
            of(facts.gangs[gang].full_name.partition("/")[0]).below_min_since[gang] = since
    for gang, kept in memory.backfill_reservations.items():
        started = memory.attempts[gang].started if gang in memory.attempts else None
        if started is not None and gang in facts.gangs:
            wait = SavedWait(started, kept.nodes, kept.starts_at, kept.since, kept.moves)
            of(facts.gangs[gang].full_name.partition("/")[0]).waits[gang] = wait
    for uid, cancelled in memory.cancelled_evictions.items():
        if uid in facts.pods and s.now < cancelled.at + MAX_COOLDOWN_S:
            of(facts.pods[uid].namespace).cancelled_evictions[uid] = cancelled
    for queue, past in memory.past_use.items():
        of(QUEUES_HISTORY).past_use[queue] = past
    for namespace, success in facts.succeeded.saved():
        if _still_counts(facts.gangs.get(success.group), success):
            of(namespace).succeeded[success.group] = success
    return {namespace: _bounded(history) for namespace, history in found.items()}


def _still_counts(gang: Gang | None, success: SavedSuccess) -> bool:
    """A gang that has what it needs and no member left needs no memory of those that succeeded."""
    return gang is None or gang.size > 0 or success.count < gang.min


def _bounded(history: SavedHistory) -> SavedHistory:
    """An object must not grow without bound: what is the longest ago is forgotten first, but of succeeded members, which have no
    time, those of the gangs with the most."""
    if _is_small(history):
        return history
    kept = SavedHistory(history.name, past_use=history.past_use)
    left = MAX_BYTES
    for _, _, field, key, size in sorted(_entries(history)):
        left -= size
        if left < 0:
            break
        getattr(kept, field)[key] = getattr(history, field)[key]
    return kept


def _is_small(history: SavedHistory) -> bool:
    """Most are: it is not worth while to measure them."""
    entries = (
        len(history.losses)
        + len(history.below_min_since)
        + len(history.cancelled_evictions)
        + sum(1 + len(wait.nodes) for wait in history.waits.values())
    )
    return entries <= _FEW and sum(success.count for success in history.succeeded.values()) <= _FEW


def _entries(history: SavedHistory) -> Iterator[tuple[int, float, str, str, int]]:
    """Whether it is a success, how long ago or how much it is, its field and key, and its size in bytes, about."""
    for key, losses in history.losses.items():
        texts = (key, *losses.plans, *(by for by, _ in losses.crossings))
        yield 0, -losses.last_at, "losses", key, sum(_ENTRY_BYTES + len(text) for text in texts)
    for key, since in history.below_min_since.items():
        yield 0, -since, "below_min_since", key, _ENTRY_BYTES + len(key)
    for uid, cancelled in history.cancelled_evictions.items():
        yield 0, -cancelled.at, "cancelled_evictions", uid, _ENTRY_BYTES + len(uid)
    for key, wait in history.waits.items():
        yield 0, -wait.at, "waits", key, _ENTRY_BYTES + sum(_NAME_BYTES + len(name) for name in (key, *wait.nodes))
    for key, success in history.succeeded.items():
        names = (key, *(text for one in success.members for text in (one.role, one.controller, *one.names)))
        yield 1, success.count, "succeeded", key, _ENTRY_BYTES + sum(len(name) + 10 for name in names)


def _newest(memory: Memory) -> list[tuple[str, Losses]]:
    """The losses that are kept: the oldest of a namespace with too many are forgotten."""
    kept: dict[str, int] = {}
    newest = []
    for key, losses in sorted(memory.losses.items(), key=lambda each: (-each[1].last_at, each[0])):
        kept[losses.namespace] = kept.get(losses.namespace, 0) + 1
        if kept[losses.namespace] <= MAX_GANGS:
            newest.append((key, losses))
        else:
            memory.losses.drop(key)
    return newest
