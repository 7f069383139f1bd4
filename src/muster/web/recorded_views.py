"""Views of a cluster that is in a file: of a decision log, run again, or of one moment."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

from muster.config import load_policy
from muster.cycle_log import CycleLog
from muster.decision_log import BadDecisionLog, LogHeader, read_decision_log
from muster.engine.gang_order import order_gangs
from muster.engine.hooks import Policy
from muster.engine.session import Session
from muster.forecast.dry_run import TimeLimit, dry_run, observed, starts_with_evictions
from muster.forecast.remedies import remedies_of
from muster.forecast.start_time import RunTimes
from muster.json_values import to_json
from muster.model.effects import Outcome, PodEffect
from muster.model.events import ClusterObject
from muster.model.gang import Gang
from muster.queue_report import main_resource, queue_rows
from muster.rotating_decision_log import LatestObjects
from muster.scheduler import Scheduler
from muster.state.world import World
from muster.web.cluster_view import ClusterCopy, ClusterView, copy_cluster, start_rows, view_of
from muster.web.run_history import RunHistory
from muster.web.view_source import NotReady, encode_state

MAX_FRAMES: Final = 200
_MAX_KEPT: Final = 4_000_000
"""Pods and nodes in all frames together."""
_QUIET_S: Final = 60.0
"""Without a decision a frame is kept this often."""


class RecordedViews:
    """`frames`: the cluster after some cycles, the oldest first."""

    def __init__(
        self,
        frames: list[ClusterCopy],
        *,
        history: RunHistory,
        objects: list[ClusterObject],
        policy: Policy,
        whys: dict[str, str] | None = None,
    ) -> None:
        if not frames:
            raise NotReady("nothing was decided in this decision log")
        self.times = [frame.world.now for frame in frames]
        self._frames = frames
        self._history = history
        self._objects = objects
        self._policy = policy
        self._whys = whys or {}
        self.frame = lru_cache(maxsize=8)(self._frame)

    async def view(self, at: float | None = None) -> ClusterView:
        return self.frame(len(self._frames) - 1 if at is None else max(0, bisect_right(self.times, at) - 1))

    def entries(self, gang: str) -> list[dict[str, Any]]:
        return self._history.of_gang(gang)

    def starts(self, *, may_go_on: Callable[[], bool]) -> dict[str, Any]:
        """When the gangs that wait at the end are expected to start."""
        now = self.times[-1]
        waiting: list[Gang] = []

        def look(session: Session) -> None:
            gangs = session.world.facts.gangs
            waiting.extend(gangs[key] for key in sorted(session.world.placements.unplaced_members))

        run = dry_run(self._policy, self._objects, now=now, look=look)
        found = starts_with_evictions(run, self._objects, waiting, RunTimes(), may_go_on=may_go_on) if waiting else {}
        return start_rows(found, waiting, now=now)

    def remedies(self, *, most: int, limit: TimeLimit) -> dict[str, Any]:
        """With which changes the gangs that wait at the end would run: of the first so many in their order."""
        waiting: list[Gang] = []

        def look(session: Session) -> None:
            gangs = session.world.facts.gangs
            waiting.extend(order_gangs(session, [gangs[key] for key in sorted(session.world.placements.unplaced_members)]))

        dry_run(
            Policy(self._policy.plugins, ("allocate",), settings=self._policy.settings),
            self._objects,
            now=self.times[-1],
            look=look,
        )
        found = {}
        for gang in waiting[:most]:
            remedies, cut_short = remedies_of(
                self._policy, self._objects, gang, now=self.times[-1], limit=limit, bounds_cycles=False
            )
            found[gang.full_name] = {"remedies": [to_json(each) for each in remedies], "remediesCutShort": cut_short}
        return found

    async def question_state(self) -> bytes:
        return encode_state(self._objects, now=self.times[-1], policy=self._policy.source)

    def _frame(self, at: int) -> ClusterView:
        view = view_of(self._frames[at], whys=self._whys)
        # Of one moment there is no past to go back to.
        view.timeline["times"] = self.times if len(self.times) > 1 else []
        view.timeline["samples"] = list(self._history.samples)
        return view


def recorded(lines: Iterable[bytes], *, file: str, policy: Policy | None = None, most: int = MAX_FRAMES) -> RecordedViews:
    """Of a decision log, with this policy in place of its own. Raises BadDecisionLog and NotReady."""
    recorder = _FrameRecorder(most)
    scheduler: Scheduler | None = None
    for number, entry, _ in read_decision_log(lines):
        if isinstance(entry, LogHeader):
            scheduler = Scheduler(policy or load_policy(entry.policy, file=file))
            recorder.objects = LatestObjects()
        elif scheduler is None:
            raise BadDecisionLog(f"line {number} comes before the line that names the policy")
        elif isinstance(entry, Outcome):
            recorder.cycle(scheduler.world, scheduler.policy, scheduler.tick(entry.now))
        else:
            recorder.objects.apply([entry])
            scheduler.feed([entry])
    if scheduler is None:
        raise NotReady("nothing was decided in this decision log")
    return recorder.views(scheduler)


def at_one_moment(policy: Policy, objects: list[ClusterObject], *, now: float) -> RecordedViews:
    """The cluster as it is, with what the next cycle would say of gangs that wait."""
    outcome = dry_run(policy, objects, now=now).outcome
    whys = {name.partition(":")[2] or name: verdict.why for name, verdict in outcome.verdicts if not verdict.ok}
    history, world = RunHistory(), observed(policy, objects, now=now)
    return RecordedViews([copy_cluster(world, policy, history)], history=history, objects=objects, policy=policy, whys=whys)


class _FrameRecorder:
    """Keeps as many frames as there may be: whenever there are too many, every other one is dropped."""

    def __init__(self, most: int) -> None:
        self.objects = LatestObjects()
        self._most = most
        self._history = RunHistory()
        self._cycle_log = CycleLog()
        self._frames: list[ClusterCopy] = []
        self._stride = 1
        self._seen = 0

    def cycle(self, world: World, policy: Policy, outcome: Outcome) -> None:
        self._history.record_evictions(world, outcome)
        self._history.record_entries(outcome, self._cycle_log.entries(outcome))
        quiet = self._frames and outcome.now - self._frames[-1].world.now < _QUIET_S
        if quiet and not any(isinstance(effect, PodEffect) for effect in outcome.effects):
            return
        self._seen += 1
        if self._seen % self._stride == 0:
            self._keep(world, policy)

    def views(self, scheduler: Scheduler) -> RecordedViews:
        if self._frames and self._frames[-1].world.now < scheduler.world.now:
            self._keep(scheduler.world, scheduler.policy)
        return RecordedViews(self._frames, history=self._history, objects=self.objects.listed(), policy=scheduler.policy)

    def _keep(self, world: World, policy: Policy) -> None:
        rows, waiting = queue_rows(world, policy), len(world.placements.unplaced_members)
        self._history.record_sample(world.now, rows, resource=main_resource(world), waiting=waiting)
        self._frames.append(copy_cluster(world, policy, self._history))
        if len(self._frames) > min(self._most, max(4, _MAX_KEPT // (1 + len(world.facts.pods) + len(world.facts.nodes)))):
            del self._frames[1::2]
            self._stride *= 2
