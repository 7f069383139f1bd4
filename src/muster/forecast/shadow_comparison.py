"""What another scheduler does beside what Muster would have done: each time somebody looks, both decide on the same cluster.

What the other started since the last look is taken off its nodes, Muster decides, and everything is put back. What Muster would not
have started is taken off again at each look, until it would have. So decisions are compared with decisions at the same moment, and
none of the figures depends on run times that nobody knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from muster.engine.cycle import StepCallback, run_cycle_undone
from muster.engine.hooks import Policy
from muster.model.effects import Bind, Evict, Nominate, Outcome
from muster.model.gang import Gang
from muster.model.pod import RELEASING, UNPLACED, Phase, Pod
from muster.model.resource_amounts import GPU
from muster.state.gangs.gang_stage import has_enough_members, has_minimum
from muster.state.trial import taken_off
from muster.state.world import World

SAME, SOONER, LATER, WOULD_START, WOULD_EVICT = "same", "sooner", "later", "would start", "would evict"
MAX_DIFFERENCES: Final = 50
T = TypeVar("T", Bind, Nominate)

_HOUR = 3600.0
SAME_WITHIN_S: Final = 5.0
"""A start that is seen so much later is one at the same moment: a bind takes its time, and a look sees it late."""
_BOUND = frozenset({Phase.BOUND})


@dataclass(frozen=True, slots=True)
class ShadowDifference:
    """One gang that fares otherwise. `nodes`: how many Muster would have used, and `other_nodes` how many it got."""

    gang: str
    queue: str
    what: str
    """`sooner`, `later` (the other started it, Muster would not have), `would start`, `would evict` (it waits)."""
    hours: float
    """For how long it waited, or has waited, after Muster would have started it; of a later one, for how long it ran before."""
    nodes: int
    other_nodes: int
    why: str


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """A period. Hours of gangs are those that they waited in it, GPU-hours those that passed in it."""

    begin: float
    end: float
    looks: int
    started: int
    """Gangs that the other scheduler started: Muster would have at the same moment, `sooner`, or not then."""
    same: int
    sooner: int
    later: int
    waiting: int
    """Gangs that wait at its end."""
    would_start: int
    """Of those, on free capacity."""
    would_evict: int
    """Of those, by having others evicted."""
    gang_hours_waited: float
    gang_hours_saved: float
    """Of those, after Muster would have started the gang on free capacity."""
    gang_hours_saved_by_evicting: float
    gang_hours_later: float
    """For which gangs ran that Muster would not have started yet."""
    gpu_hours_idle: float
    """Of GPUs that were free while somebody waited whom Muster would have placed there."""
    gpu_hours_below_minimum: float
    """Of GPUs that were used by gangs with fewer members placed than they need."""
    evictions: int
    """Pods that Muster would have evicted, and what that would have cost in work."""
    lost_gpu_hours: float
    deleted: int
    """Pods that were deleted while they ran, by whomever, and what that cost in work."""
    deleted_lost_gpu_hours: float
    differences: tuple[ShadowDifference, ...]


@dataclass(slots=True)
class _Waiting:
    """A gang that the other scheduler has not started. Since when Muster would have, and how."""

    gang: Gang
    would_start: float | None = None
    would_evict: float | None = None
    nodes: int = 0


@dataclass(slots=True)
class _Later:
    """A gang that the other scheduler started, and Muster would not have yet."""

    gang: Gang
    since: float
    other_nodes: int
    why: str


class ShadowComparison:
    """`look` after events were folded in, `report` at the end of each period."""

    def __init__(self) -> None:
        self._placed: dict[str, Pod] = {}
        """Pods that had a node at the last look, by UID."""
        self._deleting: set[str] = set()
        self._evicted: set[tuple[str, str]] = set()
        """Pods that Muster would have evicted, and for whom: each counts once."""
        self._waiting: dict[str, _Waiting] = {}
        self._later: dict[str, _Later] = {}
        self._followed = -1
        """How far the log of placements was looked through."""
        self._began: float | None = None
        self._looked_at = 0.0
        self._idle_gpus = self._stuck_gpus = 0
        self._begin_period()

    def _begin_period(self) -> None:
        self._counts: Counter[str] = Counter()
        self._amounts: dict[str, float] = dict.fromkeys(("waited", "saved", "saved by evicting", "later", "idle", "stuck"), 0.0)
        self._lost_hours = self._deleted_hours = 0.0
        self._ended: list[ShadowDifference] = []

    # -- looking ---------------------------------------------------------------------------------------------------------------

    def look(self, world: World, policy: Policy, *, on_step: StepCallback | None = None) -> Outcome:
        """What Muster decides in place of what the other scheduler did since the last look."""
        new = self._newly_placed(world)
        self._pass_time(world.now)
        gangs = world.facts.gangs
        later = [pod for key in self._later if key in gangs for pod in gangs[key].pods() if _has_node(world, pod)]
        off = list({pod.uid: pod for pod in (*new, *later)}.values())
        with taken_off(world, off):
            outcome = run_cycle_undone(world, policy, on_step=on_step)
        self._compare(world, outcome, new)
        self._count_gpus(world, outcome, off)
        self._followed = world.changes.placements.position
        self._counts["looks"] += 1
        return outcome

    def _newly_placed(self, world: World) -> list[Pod]:
        """Pods of the scheduler that got a node since the last look; at the first look nobody is new."""
        changed = world.changes.placements.since(self._followed) if self._began is not None else None
        new = []
        for uid in dict.fromkeys(world.placements.by_uid if changed is None else changed):
            pod, placement = world.facts.pods.get(uid), world.placements.by_uid.get(uid, UNPLACED)
            if pod is None or not pod.ours or placement.node is None:
                self._placed.pop(uid, None)
                self._deleting.discard(uid)
            elif placement.phase in RELEASING:
                self._note_deleted(pod, now=world.now)
            elif uid not in self._placed:
                self._placed[uid] = pod
                new.append(pod)
        if changed is None:
            self._forget_gone(world)
        return new if self._began is not None else []

    def _forget_gone(self, world: World) -> None:
        for uid in [uid for uid in self._placed if uid not in world.placements.by_uid]:
            del self._placed[uid]
            self._deleting.discard(uid)

    def _note_deleted(self, pod: Pod, *, now: float) -> None:
        if pod.uid in self._placed and pod.uid not in self._deleting and not pod.finished:
            self._deleting.add(pod.uid)
            self._counts["deleted"] += 1
            self._deleted_hours += pod.hours_lost(since=now, now=now) * _gpus(pod)

    def _pass_time(self, now: float) -> None:
        """Until now all was as the last look left it."""
        if self._began is None:
            self._began = self._looked_at = now
        passed = max(0.0, now - self._looked_at) / _HOUR
        self._looked_at = now
        starts = sum(each.would_start is not None for each in self._waiting.values())
        evicts = sum(each.would_start is None and each.would_evict is not None for each in self._waiting.values())
        amounts = (len(self._waiting), starts, evicts, len(self._later), self._idle_gpus, self._stuck_gpus)
        for name, amount in zip(self._amounts, amounts, strict=True):
            self._amounts[name] += passed * amount

    # -- comparing -------------------------------------------------------------------------------------------------------------

    def _compare(self, world: World, outcome: Outcome, new: Iterable[Pod]) -> None:
        members = world.facts.members
        binds, nominations = _by_gang(world, outcome, Bind), _by_gang(world, outcome, Nominate)
        arrived = Counter(members[pod.uid].gang for pod in new)
        waiting: dict[str, _Waiting] = {}
        for key in dict.fromkeys([*world.placements.unplaced_members, *arrived]):
            gang, known = world.facts.gangs[key], self._waiting.get(key)
            bound = [] if _is_unsupported(gang) else binds.get(key, [])
            if not has_enough_members(gang):
                continue
            if not has_minimum(world, gang, _BOUND):
                waiting[key] = _waits_on(world, known or _Waiting(gang), gang, bound, nominations.get(key, []))
            elif known is not None or _bound(world, gang) - arrived[key] < gang.min:
                self._note_start(world, gang, known, bound)
        self._waiting = waiting
        self._end_later(world, binds)
        self._note_evictions(world, outcome)

    def _note_start(self, world: World, gang: Gang, known: _Waiting | None, bound: list[Bind]) -> None:
        """The other scheduler started it."""
        self._counts["started"] += 1
        others = len({world.placement(pod).node for pod in gang.pods() if _has_node(world, pod)})
        saved_s = 0.0 if known is None or known.would_start is None else world.now - known.would_start
        if known is not None and saved_s > SAME_WITHIN_S:
            self._counts[SOONER] += 1
            self._ended.append(ShadowDifference(gang.full_name, gang.queue, SOONER, saved_s / _HOUR, known.nodes, others, ""))
        elif bound or (known is not None and known.would_start is not None):
            self._counts[SAME] += 1
        else:
            self._counts[LATER] += 1
            self._later[gang.key] = _Later(gang, world.now, others, _why(world, gang))

    def _end_later(self, world: World, binds: dict[str, list[Bind]]) -> None:
        """Muster would start them now, or they run no more."""
        for key, each in list(self._later.items()):
            gang = world.facts.gangs.get(key)
            if (key in binds and gang is not None and not _is_unsupported(gang)) or gang is None or not _bound(world, gang):
                del self._later[key]
                self._ended.append(_later_by(each, world.now))

    def _count_gpus(self, world: World, outcome: Outcome, off: Iterable[Pod]) -> None:
        """GPUs that are free and would not be; and those of gangs that cannot run."""
        taken = sum(_gpus(world.facts.pods[effect.uid]) for effect in outcome.effects if isinstance(effect, Bind))
        self._idle_gpus = max(0, taken - sum(map(_gpus, off)))
        held = (pod for each in self._waiting.values() for pod in each.gang.pods() if _has_node(world, pod))
        self._stuck_gpus = sum(map(_gpus, held))

    def _note_evictions(self, world: World, outcome: Outcome) -> None:
        for effect in outcome.effects:
            if isinstance(effect, Evict) and (effect.uid, effect.for_gang) not in self._evicted:
                self._evicted.add((effect.uid, effect.for_gang))
                pod = world.facts.pods[effect.uid]
                self._counts["evictions"] += 1
                self._lost_hours += pod.hours_lost(since=world.now, now=world.now) * _gpus(pod)

    @property
    def later(self) -> list[str]:
        """Gangs that run, and that Muster would not have started yet."""
        return [each.gang.full_name for each in self._later.values()]

    # -- reporting -------------------------------------------------------------------------------------------------------------

    def report(self, world: World) -> ShadowReport:
        """The period that ends now; the next one begins."""
        self._pass_time(world.now)
        counts, amounts = self._counts, self._amounts
        waits = [*self._waits(world.now), *(_later_by(each, world.now) for each in self._later.values())]
        found = ShadowReport(
            begin=self._began or world.now,
            end=world.now,
            looks=counts["looks"],
            started=counts["started"],
            same=counts[SAME],
            sooner=counts[SOONER],
            later=counts[LATER],
            waiting=len(self._waiting),
            would_start=sum(each.what == WOULD_START for each in waits),
            would_evict=sum(each.what == WOULD_EVICT for each in waits),
            gang_hours_waited=amounts["waited"],
            gang_hours_saved=amounts["saved"],
            gang_hours_saved_by_evicting=amounts["saved by evicting"],
            gang_hours_later=amounts["later"],
            gpu_hours_idle=amounts["idle"],
            gpu_hours_below_minimum=amounts["stuck"],
            evictions=counts["evictions"],
            lost_gpu_hours=self._lost_hours,
            deleted=counts["deleted"],
            deleted_lost_gpu_hours=self._deleted_hours,
            differences=tuple(sorted([*self._ended, *waits], key=lambda each: (-each.hours, each.gang))[:MAX_DIFFERENCES]),
        )
        self._began = world.now
        self._evicted = {(uid, gang) for uid, gang in self._evicted if uid in world.facts.pods}
        self._begin_period()
        return found

    def _waits(self, now: float) -> list[ShadowDifference]:
        found = []
        for each in self._waiting.values():
            since = each.would_start if each.would_start is not None else each.would_evict
            if since is not None:
                what = WOULD_EVICT if each.would_start is None else WOULD_START
                hours = (now - since) / _HOUR
                found.append(ShadowDifference(each.gang.full_name, each.gang.queue, what, hours, each.nodes, 0, ""))
        return found


def _by_gang(world: World, outcome: Outcome, kind: type[T]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for effect in outcome.effects:
        if isinstance(effect, kind):
            found.setdefault(world.facts.members[effect.uid].gang, []).append(effect)
    return found


def _waits_on(world: World, known: _Waiting, gang: Gang, bound: list[Bind], nominated: list[Nominate]) -> _Waiting:
    known.gang = gang
    if bound and known.would_start is None:
        known.would_start, known.nodes = world.now, len({effect.node for effect in bound})
    elif any(effect.evicts for effect in nominated) and known.would_start is known.would_evict is None:
        known.would_evict, known.nodes = world.now, len({effect.node for effect in nominated})
    return known


def _later_by(each: _Later, now: float) -> ShadowDifference:
    gang, hours = each.gang, (now - each.since) / _HOUR
    return ShadowDifference(gang.full_name, gang.queue, LATER, hours, 0, each.other_nodes, each.why)


def _is_unsupported(gang: Gang) -> bool:
    """It asks for what Muster does not honour, which is asked of pods without a node alone."""
    return any(problem.unsupported for pod in gang.pods() for problem in pod.problems)


def _bound(world: World, gang: Gang) -> int:
    return sum(_has_node(world, pod) for pod in gang.pods())


def _has_node(world: World, pod: Pod) -> bool:
    return world.phase(pod) is Phase.BOUND


def _gpus(pod: Pod) -> int:
    return pod.signature.request[GPU]


def _why(world: World, gang: Gang) -> str:
    """Why Muster refused it last."""
    attempts = world.memory.attempts.get(gang.key)
    return "" if attempts is None or attempts.verdict is None else attempts.verdict.why
