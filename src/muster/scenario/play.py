"""Running a scenario: a cluster, a scheduler, and the steps one after the other. The laws are judged after every cycle.

The loop is the one that schedules a real cluster; only the cluster differs. Nothing here decides anything, and the same scenario
gives the same report, apart from the real seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter

from muster.adapters.sim.clock import START
from muster.adapters.sim.cluster import SimCluster
from muster.adapters.sim.faults import Faults
from muster.adapters.sim.manifests import BadManifest
from muster.adapters.sim.objects import ApiError
from muster.adapters.sim.wishes import once_more
from muster.engine.hooks import Policy
from muster.model.effects import Effect, GroupStatus, Outcome, QueueStatus
from muster.model.events import BindFailed, Event, EvictFailed
from muster.runtime import Log, Scheduler, step
from muster.scenario import manifests
from muster.scenario.annals import Annals
from muster.scenario.compare import differences
from muster.scenario.laws import NO_TRACE, SAME_AGAIN, Breach, Judge
from muster.scenario.load import policy_of
from muster.scenario.queue_rows import queue_rows
from muster.scenario.rehearsal import rehearse
from muster.scenario.report import Deed, Difference, Failure, Moment, Observer, Report
from muster.scenario.story import (
    Advance,
    Check,
    Crash,
    Cycle,
    Delete,
    Edit,
    Expect,
    Fail,
    GangSpec,
    Manifest,
    NodeStep,
    ObjectRef,
    Restart,
    Run,
    Scale,
    Scenario,
    Step,
    Submit,
    Who,
    Written,
)
from muster.scenario.twin import Twin
from muster.scenario.venue import Venue
from muster.scenario.words import show_duration
from muster.state.world import World
from muster.yaml_marks import Fault, InputError

MOST_BREACHES = 100
_REPORTS = 2
"""Cycles after which every status is written, if nothing happens any more."""


def run(
    scenario: Scenario,
    *,
    observer: Observer | None = None,
    log: Log | None = None,
    twin: bool = False,
    cluster: Venue | None = None,
) -> Report:
    """Run it to its end, or to the first expectation that does not hold.

    `twin`: a second scheduler is fed the same events, and must decide the same, byte for byte. `cluster`: where it is played, a new
    embedded cluster where nobody says.
    """
    began = perf_counter()
    play = Play(scenario, observer=observer, log=log, twin=twin, cluster=cluster)
    play.set_up()
    failures: list[Failure] = []
    for each in scenario.steps:
        found = play.do(each)
        if found:
            failures.append(Failure(scenario.file, each.line, play.at_s, tuple(found)))
            break
    return play.report(failures, real_s=perf_counter() - began)


class _Ears:
    """The cluster as the scheduler sees it, with a note of what it was told last."""

    def __init__(self, cluster: Venue) -> None:
        self._cluster = cluster
        self.heard: list[Event] = []
        self.stop_after: int | None = None

    def events(self) -> Iterable[Event]:
        self.heard = self._cluster.events()
        return self.heard

    def execute(self, effects: Iterable[Effect]) -> None:
        self._cluster.execute(effects, stop_after=self.stop_after)


class Play:
    """A scenario on its way."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        observer: Observer | None = None,
        log: Log | None = None,
        twin: bool = False,
        cluster: Venue | None = None,
    ) -> None:
        self.scenario = scenario
        self._observer = observer
        self._log = log
        self.policy: Policy = policy_of(scenario)
        self.cluster: Venue = cluster or _embedded(scenario, self.policy)
        self.gangs: dict[str, GangSpec] = {}
        """The gangs of the short form as they are now, scaled and all."""
        self._ears = _Ears(self.cluster)
        self._began = self.cluster.now
        self._scheduler = Scheduler(self.policy, log=log)
        self._twin = Twin(policy_of(scenario)) if twin else None
        self._judge = Judge(self.policy)
        self._annals = Annals(began=self._began)
        self.breaches: list[Breach] = []

    @property
    def world(self) -> World:
        return self._scheduler.world

    @property
    def deeds(self) -> list[Deed]:
        return self._annals.deeds

    @property
    def cycles(self) -> int:
        return len(self._annals.rows)

    @property
    def at_s(self) -> float:
        return self.cluster.now - self._began

    def report(self, failures: Iterable[Failure], *, real_s: float) -> Report:
        return Report(
            name=self.scenario.name,
            file=self.scenario.file,
            line=self.scenario.line,
            cycles=self.cycles,
            virtual_s=self.at_s,
            real_s=real_s,
            rows=tuple(self._annals.rows),
            gangs=tuple(self._annals.gang_rows(self.world)),
            samples=tuple(self._annals.samples),
            queues=queue_rows(self.world, self.policy),
            shares=tuple(self._annals.shares),
            evictions=tuple(self._annals.evictions),
            marks=tuple(self._annals.marks),
            failures=tuple(failures),
            breaches=tuple(self.breaches),
            deeds=tuple(self._annals.deeds),
            writes=len(self.cluster.writes),
        )

    # -- the beginning ---------------------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """What is there at the start, and a scheduler that begins with a list of it."""
        scenario = self.scenario
        with self._told(scenario.line):
            for manifest in (*scenario.classes, *scenario.nodes, *scenario.queues):
                self.cluster.apply(manifest)
        self._submit(Submit(scenario.line, scenario.gangs, scenario.objects))
        self._feed(self.cluster.relist())

    def _feed(self, events: list[Event]) -> None:
        self._scheduler.feed(events)
        if self._twin is not None:
            self._twin.feed(events)

    # -- steps -----------------------------------------------------------------------------------------------------------------

    def do(self, what: Step) -> list[Difference]:
        """One step. What comes back is what does not hold, for an expect step."""
        match what:
            case Cycle():
                for _ in range(what.count):
                    self.cycle()
            case Advance():
                self.cluster.advance(what.seconds)
            case Run():
                self._run(what.seconds, what.every_s)
            case Expect():
                return self._expect(what)
            case Restart():
                self._restart()
            case Crash():
                self._ears.stop_after = what.writes
                self.cycle()
                self._ears.stop_after = None
                self._restart()
            case _:
                self._judge.news()
                with self._told(what.line):
                    self._change(what)
        return []

    def _change(self, what: Submit | Delete | Scale | NodeStep | Fail | Edit) -> None:
        """Something happens in the cluster."""
        match what:
            case Submit():
                self._submit(what)
            case Delete():
                for target in what.targets:
                    self._delete(target)
            case Scale():
                for who, count in what.to:
                    self._scale(who, count)
            case NodeStep():
                self._node(what)
            case Fail():
                self._fail(what)
            case Edit():
                self.cluster.patch(what.object.kind, what.object.namespace, what.object.name, what.patch)

    def _submit(self, what: Submit) -> None:
        for written in what.objects:
            with self._told(written.line):
                self.cluster.apply(written.manifest)
        for gang in what.gangs:
            with self._told(gang.line):
                self._admit(gang)

    def _admit(self, gang: GangSpec) -> None:
        now = self.cluster.now
        for manifest in (manifests.class_of(gang), manifests.group(gang, now=now)):
            if manifest is not None:
                self.cluster.apply(manifest)
        for pod in manifests.pods(gang, now=now):
            self.cluster.apply(pod)
        self.gangs[gang.title] = gang

    def _delete(self, target: Who | ObjectRef) -> None:
        if isinstance(target, ObjectRef):
            self.cluster.delete(target.kind, target.namespace, target.name)
            return
        gang = self.gangs.get(f"{target.namespace}/{target.gang}")
        if target.pod:
            # A member that has gone by itself meanwhile is no fault of the file.
            if gang is None or self.cluster.get("Pod", target.namespace, target.pod) is not None:
                self.cluster.delete("Pod", target.namespace, target.pod)
            return
        if gang is None:
            raise BadManifest(f"{target.text} was written as manifests: delete its objects, such as Pod/default/a")
        for role in gang.roles if target.role is None else [role for role in gang.roles if role.name == target.role]:
            for number in range(role.arrived):
                self._drop(gang, role.name, number)
        if target.role is None:
            if manifests.group_kind(gang):
                self.cluster.delete(manifests.group_kind(gang), gang.namespace, gang.name)
            del self.gangs[gang.title]

    def _drop(self, gang: GangSpec, role: str, number: int) -> None:
        """Somebody who wants the member gone for good; it may be gone already."""
        name = manifests.pod_name(gang.name, role, number)
        if self.cluster.get("Pod", gang.namespace, name) is not None:
            self.cluster.delete("Pod", gang.namespace, name, for_good=True)

    def _bring(self, gang: GangSpec, member: Manifest) -> None:
        """One member more. While somebody of that name still leaves there can be no other: it comes when that one is gone."""
        name = member["metadata"]["name"]
        old = self.cluster.get("Pod", gang.namespace, name)
        if old is None or not old["metadata"].get("deletionTimestamp"):
            self.cluster.apply(member)
            return
        again = once_more(old, for_ever=gang.recreate)
        self.cluster.patch("Pod", gang.namespace, name, {"metadata": {"annotations": again}})

    def _scale(self, who: Who, count: int) -> None:
        gang = self.gangs.get(f"{who.namespace}/{who.gang}")
        if gang is None:
            raise BadManifest(f"{who.text} was written as manifests: submit or delete its pods one by one")
        chosen = [role for role in gang.roles if who.role in (None, role.name)]
        if len(chosen) != 1:
            raise BadManifest(f"{who.text} has roles: write for example {who.text}/{gang.roles[0].name}")
        role = chosen[0]
        for number in range(role.arrived, count):
            self._bring(gang, manifests.pod(replace(gang, created_s=0.0), replace(role, at=()), number, now=self.cluster.now))
        for number in range(count, role.arrived):
            self._drop(gang, role.name, number)
        scaled = replace(role, arrived=count, pods=max(role.pods, count))
        self.gangs[gang.title] = replace(gang, roles=tuple(scaled if each is role else each for each in gang.roles))

    def _node(self, what: NodeStep) -> None:
        for manifest in what.nodes:
            self.cluster.apply(manifest)
        for name, patch in what.changes:
            self.cluster.patch("Node", "", name, patch)
        act: dict[str, Callable[[str], object]] = {
            "fail": self.cluster.fail_node,
            "return": self.cluster.return_node,
            "remove": lambda name: self.cluster.fail_node(name, gone=True),
            "cordon": lambda name: self.cluster.patch("Node", "", name, {"spec": {"unschedulable": True}}),
            "uncordon": lambda name: self.cluster.patch("Node", "", name, {"spec": {"unschedulable": None}}),
        }
        for name in what.names:
            act[what.verb](name)
        names = [*what.names, *dict(what.changes), *(node["metadata"]["name"] for node in what.nodes)]
        self._annals.mark(self.cluster.now, f"{_NODE_WORDS[what.verb]} {_shortened(names)}")

    def _fail(self, what: Fail) -> None:
        for whom, fail in ((what.bind, self.cluster.fail_bind), (what.evict, self.cluster.fail_evict)):
            for who in whom:
                for title in self._titles(who):
                    fail(title, times=what.times)

    def _titles(self, who: Who) -> Iterator[str]:
        if who.pod:
            yield f"{who.namespace}/{who.pod}"
            return
        gang = self.gangs[f"{who.namespace}/{who.gang}"]
        for role in gang.roles:
            for number in range(role.arrived if who.role in (None, role.name) else 0):
                yield f"{gang.namespace}/{manifests.pod_name(gang.name, role.name, number)}"

    def _restart(self) -> None:
        """Every object of the scheduler is thrown away; the new one reads its policy and the cluster, and has nothing else."""
        self._annals.restarted()
        self.policy = policy_of(self.scenario)
        self._scheduler = Scheduler(self.policy, log=self._log)
        self._judge.restarted(self.policy)
        if self._twin is not None:
            self._twin = Twin(policy_of(self.scenario))
        self._feed(self.cluster.relist())
        self._annals.mark(self.cluster.now, "restart")

    # -- cycles ----------------------------------------------------------------------------------------------------------------

    def cycle(self) -> Outcome:
        """One turn of the loop, and a look at everything afterwards."""
        began = perf_counter()
        outcome = step(self._scheduler, self._ears, self.cluster.now)
        real_s = perf_counter() - began
        self._look(outcome)
        row, sample = self._annals.enter(self.world, self.policy, outcome, real_s=real_s)
        if self._observer is not None:
            self._observer.cycle(Moment(row, self.scenario.virtual_s, sample, outcome))
        return outcome

    def _look(self, outcome: Outcome) -> None:
        """The laws. A law that was broken once is broken for the rest: only the first breaches are kept."""
        for event in self._ears.heard:
            if isinstance(event, BindFailed | EvictFailed):
                self._judge.failed(event.uid)
        found = self._judge.look(self.world, outcome)
        now = outcome.now
        # A world that is wrong already cannot show what a rehearsal does to it, and one in which nothing happened was rehearsed.
        if not found and (self._ears.heard or outcome.effects):
            seed = f"{self.scenario.seed} {self.cycles}"
            found.extend(Breach(NO_TRACE, outcome.cycle, now, text) for text in rehearse(self.world, self.policy, seed=seed))
        if self._twin is not None:
            self._twin.feed(self._ears.heard)
            text = self._twin.differs(outcome)
            found.extend([Breach(SAME_AGAIN, outcome.cycle, now, text)] if text else [])
        self.breaches.extend(found[: MOST_BREACHES - len(self.breaches)])

    def _run(self, seconds: float, every_s: float) -> list[Outcome]:
        """A cycle now, and one after each span of time. The last one is at the very end."""
        until = self.cluster.now + seconds
        outcomes = [self.cycle()]
        while self.cluster.now < until:
            self.cluster.advance(min(every_s, until - self.cluster.now))
            outcomes.append(self.cycle())
        return outcomes

    # -- expectations ------------------------------------------------------------------------------------------------------------

    def _expect(self, what: Expect) -> list[Difference]:
        found = differences(what, self)
        for check in what.checks:
            if check.key == "stable" and not found:
                found.extend(self._unstable(check))
        return found

    def _unstable(self, check: Check) -> Iterator[Difference]:
        cycles = check.count or 0
        span = f"{cycles} more cycles" if check.count is not None else f"{show_duration(check.seconds)} more"
        outcomes = [self.cycle() for _ in range(cycles)] if check.count is not None else self._run(check.seconds, check.every_s)
        for number, outcome in enumerate(outcomes, start=1):
            # A status only reports what was seen; while time stands still there is soon nothing left to report.
            reports = check.count is None or number <= _REPORTS
            moved = [effect for effect in outcome.effects if not (reports and isinstance(effect, GroupStatus | QueueStatus))]
            if moved:
                more = f" and {len(moved) - 1} more" if len(moved) > 1 else ""
                text = f"in cycle {number} of them, after {outcome.now - self._began:g} s: {moved[0]}{more}"
                yield Difference("stable", f"no effect in {span}", text, check.line)
                return

    @contextmanager
    def _told(self, line: int) -> Iterator[None]:
        """What no API server would take is a fault of the file."""
        try:
            yield
        except (BadManifest, ApiError) as error:
            raise InputError([Fault(str(error), file=self.scenario.file, line=line)]) from error


def _embedded(scenario: Scenario, policy: Policy) -> SimCluster:
    shares = scenario.faults
    faults = Faults(
        seed=scenario.seed,
        late=shares.late,
        lost=shares.lost,
        doubled=shares.doubled,
        reordered=shares.reordered,
        bind_fails=shares.bind_fails,
    )
    starts_at = START if scenario.starts_at is None else scenario.starts_at
    return SimCluster(seed=scenario.seed, faults=faults, scheduler_names=policy.settings.scheduler_names, starts_at=starts_at)


_NODE_WORDS = {
    "fail": "lost",
    "return": "back:",
    "remove": "removed",
    "cordon": "cordoned",
    "uncordon": "uncordoned",
    "taint": "tainted",
    "label": "labelled",
    "resize": "resized",
    "add": "added",
}


def _shortened(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


__all__ = ["Manifest", "Play", "Written", "run"]
