"""Runs a scenario: a cluster, a scheduler, and the steps in order. The invariants are checked after every cycle.

The loop is that of a real cluster; only the cluster differs. The same scenario leads to the same report, except the wall time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter

from muster.engine.hooks import Policy
from muster.kube.read.object_references import Manifest
from muster.literals import format_duration
from muster.model.effects import DeletePlan, Outcome, PodGroupStatus, QueueStatus
from muster.model.events import BindFailed, Event, EvictFailed
from muster.queue_report import queue_rows
from muster.scenario import manifest_builder
from muster.scenario.cluster_backend import ClusterBackend
from muster.scenario.expectation_checks import ObservedState, mismatches, shortened
from muster.scenario.invariants import InvariantChecker, Violation
from muster.scenario.loader import policy_of
from muster.scenario.run_check import FinishedCycle, RunCheck
from muster.scenario.run_recorder import RunRecorder
from muster.scenario.run_report import CycleUpdate, DecidedEffect, ExpectationFailure, Mismatch, Observer, Report
from muster.scenario.syntax_tree import (
    AdvanceStep,
    Check,
    CrashStep,
    CycleStep,
    DeleteStep,
    ExpectStep,
    FailStep,
    GangSpec,
    NamedObject,
    NodeStep,
    PatchStep,
    PodTarget,
    RestartStep,
    RunStep,
    ScaleStep,
    Scenario,
    ScenarioStep,
    SubmitStep,
    pod_name,
)
from muster.scheduler import DecisionLog, Scheduler
from muster.sim.api_kinds import BadManifest
from muster.sim.cluster import SimCluster
from muster.sim.object_store import StoreError
from muster.sim.pod_behaviour import recreate_annotations
from muster.state.world import World
from muster.yaml_positions import InputError, InputFault

MAX_VIOLATIONS = 100
_REPORTS = PodGroupStatus | QueueStatus | DeletePlan
_STATUS_CYCLES = 2
"""Cycles after which every status is written, if nothing happens any more."""


def run(
    scenario: Scenario,
    *,
    observer: Observer | None = None,
    log: DecisionLog | None = None,
    checks: Sequence[RunCheck] = (),
    cluster: ClusterBackend | None = None,
) -> Report:
    """Run it to its end, or to the first expectation that does not hold.

    `checks` run after each cycle, in addition to the invariants. `cluster` is a new simulated cluster by default.
    """
    started_at = perf_counter()
    runner = ScenarioRunner(scenario, observer=observer, log=log, checks=checks, cluster=cluster)
    runner.set_up()
    failures: list[ExpectationFailure] = []
    for each in scenario.steps:
        found = runner.run_step(each)
        if found:
            failures.append(ExpectationFailure(scenario.file, each.line, runner.at_s, tuple(found)))
            break
    return runner.report(failures, wall_s=perf_counter() - started_at)


class ScenarioRunner:
    """A running scenario."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        observer: Observer | None = None,
        log: DecisionLog | None = None,
        checks: Sequence[RunCheck] = (),
        cluster: ClusterBackend | None = None,
    ) -> None:
        self.scenario = scenario
        self._observer = observer
        self._log = log
        self.policy: Policy = policy_of(scenario)
        self.cluster: ClusterBackend = cluster or SimCluster(
            faults=scenario.faults, scheduler_names=self.policy.settings.scheduler_names, starts_at=scenario.starts_at
        )
        self.gangs: dict[str, GangSpec] = {}
        """The gangs of the short form as they are now, after all scaling."""
        self._started_at = self.cluster.now
        self._scheduler = Scheduler(self.policy, log=log, on_step=self._on_step)
        self._checks = checks
        self._invariants = InvariantChecker(self.policy)
        self._recorder = RunRecorder(started_at=self._started_at)
        self.violations: list[Violation] = []

    @property
    def world(self) -> World:
        return self._scheduler.world

    @property
    def decided_effects(self) -> list[DecidedEffect]:
        return self._recorder.decided_effects

    @property
    def cycles(self) -> int:
        return len(self._recorder.rows)

    @property
    def at_s(self) -> float:
        return self.cluster.now - self._started_at

    def report(self, failures: Iterable[ExpectationFailure], *, wall_s: float) -> Report:
        return Report(
            name=self.scenario.name,
            file=self.scenario.file,
            line=self.scenario.line,
            cycles=self.cycles,
            virtual_s=self.at_s,
            wall_s=wall_s,
            rows=tuple(self._recorder.rows),
            gangs=tuple(self._recorder.gang_rows(self.world)),
            samples=tuple(self._recorder.samples),
            queues=queue_rows(self.world, self.policy),
            shares=tuple(self._recorder.shares),
            evictions=tuple(self._recorder.evictions.values()),
            undone_evictions=tuple(self._recorder.undone_evictions),
            timeline_notes=tuple(self._recorder.timeline_notes),
            failures=tuple(failures),
            violations=tuple(self.violations),
            decided_effects=tuple(self._recorder.decided_effects),
            writes=len(self.cluster.writes),
        )

    # -- the start ------------------------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Create the objects of the start, and start the scheduler."""
        scenario = self.scenario
        with self._as_input_error(scenario.line):
            for manifest in (*scenario.classes, *scenario.nodes, *scenario.queues):
                self.cluster.apply(manifest)
        self._submit(SubmitStep(scenario.line, scenario.gangs, scenario.objects))
        self._start_scheduler()

    def _start_scheduler(self) -> None:
        """The scheduler begins with a list of the cluster's objects."""
        events = self.cluster.relist()
        self._scheduler.feed(events)
        policy = policy_of(self.scenario)
        for check in self._checks:
            check.start(policy, events)

    # -- steps -----------------------------------------------------------------------------------------------------------------

    def run_step(self, what: ScenarioStep) -> list[Mismatch]:
        """One step. Returns the mismatches of an expect step."""
        match what:
            case CycleStep():
                for _ in range(what.count):
                    self.cycle()
            case AdvanceStep():
                self.cluster.advance(what.seconds)
            case RunStep():
                self._run(what.seconds, what.every_s)
            case ExpectStep():
                return self._expect(what)
            case RestartStep():
                self._restart()
            case CrashStep():
                self.cycle(max_writes=what.writes)
                self._restart()
            case _:
                self._invariants.on_external_change()
                with self._as_input_error(what.line):
                    self._apply_step(what)
        return []

    def _apply_step(self, what: ScenarioStep) -> None:
        """A change in the cluster."""
        match what:
            case SubmitStep():
                self._submit(what)
            case DeleteStep():
                for target in what.targets:
                    self._delete(target)
            case ScaleStep():
                for target, count in what.to:
                    self._scale(target, count)
            case NodeStep():
                self._node(what)
            case FailStep():
                self._fail(what)
            case PatchStep():
                self.cluster.patch(what.object.kind, what.object.namespace, what.object.name, what.merge_patch)

    def _submit(self, what: SubmitStep) -> None:
        for written in what.objects:
            with self._as_input_error(written.line):
                self.cluster.apply(written.manifest)
        for gang in what.gangs:
            with self._as_input_error(gang.line):
                self._create_gang(gang)

    def _create_gang(self, gang: GangSpec) -> None:
        for manifest in manifest_builder.gang_manifests(gang, now=self.cluster.now):
            self.cluster.apply(manifest)
        self.gangs[gang.title] = gang

    def _delete(self, target: PodTarget | NamedObject) -> None:
        if isinstance(target, NamedObject):
            self.cluster.delete(target.kind, target.namespace, target.name)
            return
        if target.pod:
            # A member that ended meanwhile is no fault of the file.
            is_member = f"{target.namespace}/{target.gang}" in self.gangs
            if not is_member or self.cluster.get("Pod", target.namespace, target.pod) is not None:
                self.cluster.delete("Pod", target.namespace, target.pod)
            return
        gang = self._gang(target, instead="delete its objects, such as Pod/default/a")
        for name in gang.member_names(target.role):
            self._delete_member(gang, name)
        if target.role is None:
            if manifest_builder.pod_group_kind(gang):
                self.cluster.delete(manifest_builder.pod_group_kind(gang), gang.namespace, gang.name)
            del self.gangs[gang.title]

    def _delete_member(self, gang: GangSpec, name: str) -> None:
        """Delete the member for good; it may have ended already."""
        if self.cluster.get("Pod", gang.namespace, name) is not None:
            self.cluster.delete("Pod", gang.namespace, name, permanently=True)

    def _create_member(self, gang: GangSpec, member: Manifest) -> None:
        """One more member. While a pod of that name is terminating, the member is created after its end."""
        name = member["metadata"]["name"]
        old = self.cluster.get("Pod", gang.namespace, name)
        if old is None or not old["metadata"].get("deletionTimestamp"):
            self.cluster.apply(member)
            return
        again = recreate_annotations(old, always=gang.recreate)
        self.cluster.patch("Pod", gang.namespace, name, {"metadata": {"annotations": again}})

    def _scale(self, target: PodTarget, count: int) -> None:
        gang = self._gang(target, instead="submit or delete its pods one by one")
        chosen = [role for role in gang.roles if target.role in (None, role.name)]
        if len(chosen) != 1:
            raise BadManifest(f"{target.text} has roles: write for example {target.text}/{gang.roles[0].name}")
        role = chosen[0]
        for number in range(role.existing, count):
            self._create_member(
                gang, manifest_builder.pod(replace(gang, age_s=0.0), replace(role, running_on=()), number, now=self.cluster.now)
            )
        for number in range(count, role.existing):
            self._delete_member(gang, pod_name(gang.name, role.name, number))
        scaled = replace(role, existing=count, pods=max(role.pods, count))
        self.gangs[gang.title] = replace(gang, roles=tuple(scaled if each is role else each for each in gang.roles))

    def _node(self, what: NodeStep) -> None:
        for manifest in what.nodes:
            self.cluster.apply(manifest)
        for name, patch in what.changes:
            self.cluster.patch("Node", "", name, patch)
        act: dict[str, Callable[[str], object]] = {
            "fail": self.cluster.fail_node,
            "recover": self.cluster.recover_node,
            "remove": lambda name: self.cluster.fail_node(name, gone=True),
        }
        for name in what.names:
            act[what.verb](name)
        names = [*what.names, *dict(what.changes), *(node["metadata"]["name"] for node in what.nodes)]
        self._recorder.add_note(self.cluster.now, f"{_NODE_NOTES[what.verb]} {shortened(names, most=3)}")

    def _fail(self, what: FailStep) -> None:
        for targets, fail in ((what.bind, self.cluster.fail_bind), (what.evict, self.cluster.fail_evict)):
            for target in targets:
                gang = None if target.pod else self._gang(target, instead="name its pods one by one")
                for name in [target.pod] if gang is None else gang.member_names(target.role):
                    fail(f"{target.namespace}/{name}", times=what.times)

    def _gang(self, target: PodTarget, *, instead: str) -> GangSpec:
        gang = self.gangs.get(f"{target.namespace}/{target.gang}")
        if gang is None:
            raise BadManifest(f"{target.text} was written as manifests: {instead}")
        return gang

    def _restart(self) -> None:
        """A new scheduler, with nothing but the policy and the cluster's objects."""
        self._recorder.on_restart()
        self.policy = policy_of(self.scenario)
        self._scheduler = Scheduler(self.policy, log=self._log, on_step=self._on_step)
        self._invariants.on_restart(self.policy)
        self._start_scheduler()
        self._recorder.add_note(self.cluster.now, "restart")

    # -- cycles ----------------------------------------------------------------------------------------------------------------

    def cycle(self, *, max_writes: int | None = None) -> Outcome:
        """One cycle of the scheduling loop, and all checks after it. `max_writes`: the scheduler dies after so many writes."""
        started_at = perf_counter()
        events = self.cluster.events()
        self._scheduler.feed(events)
        outcome = self._scheduler.tick(self.cluster.now)
        self.cluster.execute(outcome.effects, max_writes=max_writes)
        wall_s = perf_counter() - started_at
        self._check_invariants(events, outcome)
        row, sample = self._recorder.record_cycle(self.world, self.policy, outcome, wall_s=wall_s)
        if self._observer is not None:
            self._observer.cycle(CycleUpdate(row, self.scenario.virtual_s, sample, outcome))
        return outcome

    def _on_step(self, name: str) -> None:
        for check in self._checks:
            check.on_step(name, self.world)

    def _check_invariants(self, events: Sequence[Event], outcome: Outcome) -> None:
        """The invariants and the further checks. A violation repeats in the cycles after it: only the first ones are kept."""
        for event in events:
            if isinstance(event, BindFailed | EvictFailed):
                self._invariants.on_failure(event.uid)
        found = self._invariants.check_cycle(self.world, outcome)
        finished = FinishedCycle(self.world, self.policy, outcome, events, ok=not found)
        for check in self._checks:
            found.extend(check.check_cycle(finished))
        self.violations.extend(found[: MAX_VIOLATIONS - len(self.violations)])

    def _run(self, seconds: float, every_s: float) -> list[Outcome]:
        """A cycle now, and one after each interval. The last one is at the very end."""
        until = self.cluster.now + seconds
        outcomes = [self.cycle()]
        while self.cluster.now < until:
            self.cluster.advance(min(every_s, until - self.cluster.now))
            outcomes.append(self.cycle())
        return outcomes

    # -- expectations ------------------------------------------------------------------------------------------------------------

    def _expect(self, what: ExpectStep) -> list[Mismatch]:
        observed = ObservedState(self.cluster, self.world, self.gangs, self.decided_effects, self.cycles)
        found = mismatches(what, observed)
        for check in what.checks:
            if check.key == "stable" and not found:
                found.extend(self._check_stable(check))
        return found

    def _check_stable(self, check: Check) -> Iterator[Mismatch]:
        cycles = check.count or 0
        span = f"{cycles} more cycles" if check.count is not None else f"{format_duration(check.seconds)} more"
        outcomes = [self.cycle() for _ in range(cycles)] if check.count is not None else self._run(check.seconds, check.every_s)
        for number, outcome in enumerate(outcomes, start=1):
            # A status only reports what was observed, and a Plan ends when that is: without time passing, nothing is left after a
            # while.
            reports = check.count is None or number <= _STATUS_CYCLES
            moved = [effect for effect in outcome.effects if not (reports and isinstance(effect, _REPORTS))]
            if moved:
                more = f" and {len(moved) - 1} more" if len(moved) > 1 else ""
                text = f"in cycle {number} of them, after {outcome.now - self._started_at:g} s: {moved[0]}{more}"
                yield Mismatch("stable", f"no effect in {span}", text, check.line)
                return

    @contextmanager
    def _as_input_error(self, line: int) -> Iterator[None]:
        """What an API server would refuse is a fault of the file."""
        try:
            yield
        except (BadManifest, StoreError) as error:
            raise InputError([InputFault(str(error), file=self.scenario.file, line=line)]) from error


_NODE_NOTES = {
    "fail": "node failed:",
    "recover": "node recovered:",
    "remove": "node removed:",
    "cordon": "node cordoned:",
    "uncordon": "node uncordoned:",
    "taint": "node tainted:",
    "label": "node labelled:",
    "resize": "node resized:",
    "add": "node added:",
}
