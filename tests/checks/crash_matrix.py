"""A scenario whose scheduler crashes before the first write, after the first, after the second, and so on. The end state must be
the same each time: no pod bound or evicted twice, no reservation lost and none left behind.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.checks import run_checks

from muster.kube.read import names
from muster.kube.read.object_references import Manifest
from muster.model.effects import Outcome
from muster.model.pod import RESERVATIONS
from muster.scenario.invariants import Violation
from muster.scenario.scenario_runner import ScenarioRunner
from muster.scenario.syntax_tree import ExpectStep, RestartStep, RunStep, Scenario

_ONCE_ONLY_VERBS = ("bind", "delete", "evict")
"""Writes that must not happen twice."""


@dataclass(frozen=True, slots=True)
class EndState:
    """The end of a scenario as the cluster has it. The choice among equal nodes is not part of it."""

    pods: tuple[tuple[str, str], ...]
    """Each pod with its state: bound, reserved (or nominated), pending or finished; and its marks."""
    write_counts: tuple[tuple[str, int], ...]
    """How often each pod was bound, deleted or evicted by the scheduler."""
    leaked_reservations: tuple[str, ...]
    """Reservations on objects that the scheduler does not have, or the other way round."""
    violations: tuple[Violation, ...]
    writes: int


class _CrashingRunner(ScenarioRunner):
    """A run in which the scheduler crashes after so many writes, and a new one starts at the same moment."""

    def __init__(self, scenario: Scenario, *, crash_after: int | None) -> None:
        super().__init__(scenario, checks=run_checks(twin=False))
        self._writes_left = crash_after

    def cycle(self, *, max_writes: int | None = None) -> Outcome:
        if self._writes_left is None:
            return super().cycle(max_writes=max_writes)
        before = len(self.cluster.writes)
        outcome = super().cycle(max_writes=self._writes_left)
        made = len(self.cluster.writes) - before
        if made < self._writes_left or (made == 0 and not outcome.effects):
            self._writes_left -= made
            return outcome
        self._writes_left = None
        self.run_step(RestartStep(line=0))
        return super().cycle()


def run_to_end(scenario: Scenario, *, crash_after: int | None = None, settle_s: float = 120.0) -> EndState:
    """Run it without its expectations, with a crash after so many writes, and then until nothing changes."""
    runner = _CrashingRunner(scenario, crash_after=crash_after)
    runner.set_up()
    for step in scenario.steps:
        if not isinstance(step, ExpectStep):
            runner.run_step(step)
    runner.run_step(RunStep(line=0, seconds=settle_s, every_s=10.0))
    return _end_state(runner)


def pod_state_text(pod: Manifest) -> str:
    """The state of a pod on its object: bound, reserved, pending or finished; and its marks."""
    metadata = pod["metadata"]
    state = "finished" if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") else "pending"
    state = "bound" if state == "pending" and pod["spec"].get("nodeName") else state
    state = "reserved" if state == "pending" and (pod.get("status") or {}).get("nominatedNodeName") else state
    marked = " marked" if (metadata.get("annotations") or {}).get(names.GANG_TIMEOUT) else ""
    soft_evicted = " soft-evicted" if (metadata.get("labels") or {}).get(names.SOFT_EVICTION) else ""
    terminating = " terminating" if metadata.get("deletionTimestamp") else ""
    return state + marked + soft_evicted + terminating


def _end_state(runner: ScenarioRunner) -> EndState:
    pods: list[tuple[str, str]] = []
    leaked_reservations: list[str] = []
    reserved = {uid for uid, placement in runner.world.placements.by_uid.items() if placement.phase in RESERVATIONS}
    plans = [plan["spec"] for plan in runner.cluster.listed("Plan") if plan["metadata"]["namespace"] == names.MUSTER_NAMESPACE]
    kept = [move for plan in plans for move in plan["moves"]]
    planned = {member["uid"] for plan in plans for member in plan["members"]} | {move["uid"] for move in kept}
    for pod in runner.cluster.listed("Pod"):
        meta, is_bound = pod["metadata"], bool(pod["spec"].get("nodeName"))
        is_nominated = bool((pod.get("status") or {}).get("nominatedNodeName"))
        places = {
            "in the scheduler": meta["uid"] in reserved,
            "in its Plan": meta["uid"] in planned and not is_bound,
            "on its object": is_nominated and not is_bound,
        }
        if len(set(places.values())) > 1 and not meta.get("deletionTimestamp"):
            where = " and ".join(place for place, is_there in places.items() if is_there)
            leaked_reservations.append(f"{meta['namespace']}/{meta['name']}: a reservation is only {where}")
        pods.append((f"{meta['namespace']}/{meta['name']}", pod_state_text(pod)))
    moves = {(move.reserve.victim, move.successor) for move in runner.world.memory.moves.values()}
    for move in {(move["victim"], move["uid"]) for move in kept} ^ moves:
        leaked_reservations.append(f"what is kept for {move[0]} is only in its Plan, or only in the scheduler")
    write_counts = Counter(f"{write.verb} {write.name}" for write in runner.cluster.writes if write.verb in _ONCE_ONLY_VERBS)
    return EndState(
        tuple(sorted(pods)),
        tuple(sorted(write_counts.items())),
        tuple(leaked_reservations),
        tuple(runner.violations),
        len(runner.cluster.writes),
    )
