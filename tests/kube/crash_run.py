"""A scenario on a real API server whose scheduler, a process, dies at one of its writes; and how it ends."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.checks.crash_matrix import EndState, pod_state_text
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.fork_server import ForkServer
from tests.kube.real_time_backend import CrashPoint, RealTimeBackend

from muster.kube.read import names
from muster.kube.read.object_references import Manifest
from muster.model.effects import Bind, Evict, Nominate, Outcome, Release, Reserve
from muster.scenario.loader import policy_of
from muster.scenario.run_report import Mismatch
from muster.scenario.scenario_runner import ScenarioRunner
from muster.scenario.syntax_tree import AdvanceStep, CycleStep, ExpectStep, RestartStep, RunStep, Scenario, ScenarioStep
from muster.scheduler import Scheduler

ONCE_VERBS = ("bind", "evict", "delete", "mark")
_NUMBER = re.compile(r"-\d+$")
_RESERVATIONS_METRIC = "muster_active_reservations"
_COUNT_TIMEOUT_S = 60.0
_POD_EFFECTS = (Bind, Evict, Reserve, Nominate, Release)


class _LiveSteps(ScenarioRunner):
    """The steps of a scenario, as users would do them; the scheduler lives elsewhere."""

    def __init__(self, scenario: Scenario, backend: RealTimeBackend) -> None:
        super().__init__(scenario, cluster=backend)
        self._backend = backend

    def run_step(self, what: ScenarioStep) -> list[Mismatch]:
        match what:
            case CycleStep():
                self._backend.wait_until_settled()
            case AdvanceStep(seconds=seconds) | RunStep(seconds=seconds):
                self._backend.advance(seconds)
            case RestartStep():
                self._backend.restart()
            case ExpectStep():
                return []
            case _:
                with self._backend.paused():
                    super().run_step(what)
                    self._backend.settle()
        return []


def run_to_end(
    scenario: Scenario, *, servers: Servers, fork_server: ForkServer, folder: Path, crash_point: CrashPoint | None = None
) -> tuple[EndState, str]:
    """Play it, and let it come to rest. Also: at which write the scheduler died, if it did."""
    options = policy_options(scenario, folder)
    with RealTimeBackend(servers, fork_server, folder, options=options, crash_trigger=crash_point) as backend:
        play = _LiveSteps(scenario, backend)
        backend.unfinished = lambda: _unfinished(backend, scenario)
        play.set_up()
        backend.settle()
        backend.start()
        backend.wait_until_settled()
        for step in scenario.steps:
            play.run_step(step)
        backend.wait_until_settled()
        died = backend.died_at
        where = "" if died is None else f"{died.method} {died.path} ({died.status})"
        return _end_state(backend, scenario), where


def without_member_names(end: EndState) -> EndState:
    """The same with members of a gang counted and not named: which of several equal ones it is depends on the second in which
    the server made each of them."""
    pods = Counter(f"{_NUMBER.sub('', title)} {state}" for title, state in end.pods)
    write_counts: Counter[str] = Counter()
    for decided, times in end.write_counts:
        write_counts[_NUMBER.sub("", decided)] += times
    counted = tuple((key, str(count)) for key, count in sorted(pods.items()))
    return replace(end, pods=counted, write_counts=tuple(sorted(write_counts.items())))


def policy_options(scenario: Scenario, folder: Path) -> tuple[str, ...]:
    """The policy as a file, as `muster run` wants it."""
    if scenario.policy is None:
        return ()
    if isinstance(scenario.policy, Path):
        return ("--policy", str(scenario.policy))
    file = folder / "policy.yaml"
    file.write_text(json.dumps(scenario.policy.plain()))
    return ("--policy", str(file))


def _end_state(backend: RealTimeBackend, scenario: Scenario) -> EndState:
    pods = backend.listed("Pod")
    done = [write for write in backend.proxy.writes if write.is_done and write.verb in ONCE_VERBS]
    write_counts = Counter(f"{write.verb} {write.object}" for write in done)
    twice = [
        f"{what} happened {times} times" for what, times in Counter((w.verb, w.object, w.uid) for w in done).items() if times > 1
    ]
    planned = {member["uid"] for plan in backend.listed("Plan") for member in plan["spec"]["members"]}
    leaked_reservations = [
        *twice,
        *(leak for pod in pods for leak in _stale_fields(pod, planned=planned)),
        *_reservation_mismatch(backend, pods, planned=planned),
        *_unfinished(backend, scenario),
    ]
    states = tuple(sorted((_full_name(pod), pod_state_text(pod)) for pod in pods))
    return EndState(states, tuple(sorted(write_counts.items())), tuple(leaked_reservations), (), len(backend.proxy.writes))


def _stale_fields(pod: Manifest, *, planned: set[str]) -> list[str]:
    """Fields of a reservation on a pod that has none, or needs none any more."""
    notes, said = pod["metadata"].get("annotations") or {}, []
    is_bound, is_planned = bool(pod["spec"].get("nodeName")), pod["metadata"]["uid"] in planned
    is_nominated = bool((pod.get("status") or {}).get("nominatedNodeName"))
    if is_bound and names.PIPELINED_NODE in notes:
        said.append("is bound and is said to be pipelined")
    if not is_planned and names.PIPELINED_NODE in notes:
        said.append("is in no Plan and is said to be pipelined")
    if is_planned != is_nominated and not is_bound:
        said.append("is in no Plan and is nominated" if is_nominated else "is in a Plan and is not nominated")
    return [f"{_full_name(pod)} {what}" for what in said]


def _reservation_mismatch(backend: RealTimeBackend, pods: list[Manifest], *, planned: set[str]) -> list[str]:
    """The scheduler must know of as many reservations and nominations as are in Plans; the gauge is updated every 5 s."""
    assert backend.process is not None
    written = sum(pod["metadata"]["uid"] in planned and not pod["spec"].get("nodeName") for pod in pods)
    deadline = time.monotonic() + _COUNT_TIMEOUT_S
    while (known := backend.process.metrics(_RESERVATIONS_METRIC)[_RESERVATIONS_METRIC]) != written and time.monotonic() < deadline:
        time.sleep(0.1)
    return [] if known == written else [f"the scheduler knows of {known:g} reservations, and {written} are written"]


def _unfinished(backend: RealTimeBackend, scenario: Scenario) -> list[str]:
    """Whoever looked at this cluster for the first time would find nothing to do."""
    scheduler = Scheduler(policy_of(scenario))
    scheduler.feed(backend.list_events())
    outcome: Outcome = scheduler.tick(backend.now)
    return [f"left undone: {effect}" for effect in outcome.effects if isinstance(effect, _POD_EFFECTS)]


def _full_name(pod: Manifest) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
