"""Records a run cycle by cycle, for the report at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from muster.engine.hooks import Policy
from muster.model.effects import Bind, Effect, Evict, Nominate, Outcome, Release, Reserve
from muster.model.gang import Gang
from muster.model.pod import PLACED, UNPLACED, Phase
from muster.queue_report import queue_shares
from muster.scenario.run_report import (
    CycleRow,
    DecidedEffect,
    EvictionRow,
    GangRow,
    QueueSample,
    ResourceUsage,
    TimelineNote,
    UsageSample,
)
from muster.state.gangs.gang_stage import stage
from muster.state.world import World


class RunRecorder:
    def __init__(self, *, started_at: float) -> None:
        self.rows: list[CycleRow] = []
        self.samples: list[UsageSample] = []
        self.shares: list[QueueSample] = []
        self.evictions: dict[str, EvictionRow] = {}
        """By UID of the pod."""
        self.undone_evictions: list[EvictionRow] = []
        self.timeline_notes: list[TimelineNote] = []
        self.decided_effects: list[DecidedEffect] = []
        self._started_at = started_at
        self._gangs: dict[str, Gang] = {}
        self._first_placed_at: dict[str, float] = {}
        self._attempts: dict[str, int] = {}
        """Attempts of schedulers before a restart."""
        self._world: World | None = None

    def add_note(self, now: float, text: str) -> None:
        self.timeline_notes.append(TimelineNote(now - self._started_at, text))

    def on_restart(self) -> None:
        """Keep how often the old scheduler tried each gang."""
        for key, attempt in self._world.memory.attempts.items() if self._world is not None else ():
            self._attempts[key] = self._attempts.get(key, 0) + attempt.count

    def record_cycle(self, world: World, policy: Policy, outcome: Outcome, *, wall_s: float) -> tuple[CycleRow, UsageSample]:
        at_s = outcome.now - self._started_at
        self._world = world
        for key in world.facts.gangs.keys() - self._gangs.keys():
            gang = world.facts.gangs[key]
            # A gang that runs when it is first seen has not waited.
            if any(world.phase(pod) is Phase.BOUND for pod in gang.pods()):
                self._first_placed_at[gang.full_name] = gang.created
        self._gangs.update(world.facts.gangs)
        for effect in outcome.effects:
            self._record_effect(effect, outcome, at_s)
        for uid in [uid for uid in self.evictions if world.placements.by_uid.get(uid, UNPLACED).phase in PLACED]:
            self._undo_eviction(uid)
        row = CycleRow(
            cycle=len(self.rows) + 1,
            at_s=at_s,
            binds=_count(outcome, Bind),
            reservations=_count(outcome, Reserve),
            nominations=_count(outcome, Nominate),
            releases=_count(outcome, Release),
            evictions=_count(outcome, Evict),
            waiting=len(world.placements.unplaced_members),
            wall_s=wall_s,
        )
        sample = UsageSample(at_s, tuple(_usage(world)))
        self.rows.append(row)
        self.samples.append(sample)
        if shares := queue_shares(world, policy):
            self.shares.append(QueueSample(at_s, shares))
        return row, sample

    def _record_effect(self, effect: Effect, outcome: Outcome, at_s: float) -> None:
        self.decided_effects.append(DecidedEffect(len(self.rows) + 1, at_s, effect))
        if isinstance(effect, Bind):
            self._first_placed_at.setdefault(effect.gang, outcome.now)
        elif isinstance(effect, Evict):
            self._undo_eviction(effect.uid)
            self.evictions[effect.uid] = self._eviction_row(effect, outcome.now, at_s)

    def _eviction_row(self, effect: Evict, now: float, at_s: float) -> EvictionRow:
        cycle, pod = len(self.rows) + 1, self._world.facts.pods.get(effect.uid) if self._world is not None else None
        since = None if pod is None else pod.started if pod.checkpoint is None else pod.checkpoint
        return EvictionRow(
            cycle=cycle,
            at_s=at_s,
            pod=effect.pod,
            node=effect.node,
            gang=effect.gang,
            for_gang=effect.for_gang,
            why=effect.why,
            cause=effect.cause,
            request=() if pod is None else pod.signature.request.items,
            lost_work_s=0.0 if since is None else max(0.0, now - since),
        )

    def _undo_eviction(self, uid: str) -> None:
        """The pod was evicted before, and runs on: that was refused or cancelled."""
        if uid in self.evictions:
            self.undone_evictions.append(self.evictions.pop(uid))

    def gang_rows(self, world: World) -> Iterator[GangRow]:
        """Every gang since the start, by name."""
        evicted = Counter(row.gang for row in self.evictions.values())
        for gang in sorted(self._gangs.values(), key=lambda gang: (gang.full_name, gang.key)):
            yield self._gang_row(gang, world, evicted[gang.full_name])

    def _gang_row(self, gang: Gang, world: World, evicted: int) -> GangRow:
        alive = gang.key in world.facts.gangs
        placed = [pod for pod in gang.pods() if world.phase(pod) in PLACED]
        attempt = world.memory.attempts.get(gang.key)
        verdict = attempt.verdict if attempt is not None else None
        why, code = (verdict.why, verdict.code) if verdict is not None and not verdict.ok else ("", "")
        placed_at = self._first_placed_at.get(gang.full_name)
        waited_s = (placed_at if placed_at is not None else world.now) - gang.created
        return GangRow(
            gang=gang.full_name,
            queue=gang.queue,
            priority=gang.priority,
            members=len(placed),
            min=gang.min,
            size=gang.size,
            succeeded=sum(role.succeeded for role in gang.roles),
            failed=sum(role.failed for role in gang.roles),
            stage=stage(world, gang).value if alive else "deleted",
            nodes=tuple(sorted({world.placements.by_uid[pod.uid].node or "" for pod in placed})),
            waited_s=max(0.0, waited_s),
            why=why if gang.key in world.placements.unplaced_members else "",
            code=code if gang.key in world.placements.unplaced_members else "",
            attempts=self._attempts.get(gang.key, 0) + (attempt.count if attempt is not None else 0),
            evicted=evicted,
        )


def _count(outcome: Outcome, kind: type[Effect]) -> int:
    return sum(isinstance(effect, kind) for effect in outcome.effects)


def _usage(world: World) -> Iterator[ResourceUsage]:
    if not len(world.table):
        return
    used, total = world.table.used.sum(axis=0).tolist(), world.table.allocatable.sum(axis=0).tolist()
    for name, in_use, total_amount in zip(world.columns.names, used, total, strict=True):
        if total_amount:
            yield ResourceUsage(name, in_use, total_amount)
