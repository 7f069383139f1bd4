"""The clusters of `others*.yaml`, with somebody who forges in her own namespace: what is decided about everybody else."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from tests.scenario.inline_scenarios import parse_one
from tests.trust.tenant import HERE, NAMESPACE, forged_objects, with_uids

from muster.kube.read.object_references import Manifest
from muster.model.effects import Condition, DeletePlan, Effect, Outcome, PodGroupStatus, QueueStatus, Release, SaveHistory, SavePlan
from muster.scenario.cluster_backend import ClusterBackend
from muster.scenario.scenario_runner import ScenarioRunner
from muster.scenario.syntax_tree import RestartStep, RunStep, Scenario

OTHERS: Final = ("others.yaml", "others_and_moves.yaml")


class TenantAccess(Protocol):
    """What she may do; what is refused changes nothing."""

    def apply(self, manifest: Manifest) -> Any: ...

    def patch(self, kind: str, namespace: str, name: str, patch: Manifest) -> Any: ...


class AboutOthers(NamedTuple):
    decided: list[str]
    """In each cycle, what was decided."""
    objects: list[Manifest]
    """At the end."""


class RunWithTenant(ScenarioRunner):
    """She forges before the scheduler starts, again after each while, and before a restart."""

    def __init__(
        self,
        forgeries: Sequence[Manifest],
        *,
        cluster: ClusterBackend | None = None,
        access: TenantAccess | None = None,
        others: str = OTHERS[0],
    ) -> None:
        super().__init__(_scenario(others), cluster=cluster)
        self.decided: list[str] = []
        self._forgeries = forgeries
        self._access = self.cluster if access is None else access

    def _start_scheduler(self) -> None:
        self.forge()
        super()._start_scheduler()

    def forge(self) -> None:
        uids = (
            {
                f"{kind}/{one['metadata']['namespace']}/{one['metadata']['name']}": one["metadata"]["uid"]
                for kind in ("Pod", "PodGroup")
                for one in self.cluster.listed(kind)
            }
            if self._forgeries
            else {}
        )
        for number, forgery in enumerate(self._forgeries):
            for manifest in forged_objects(forgery, uids, number=number):
                self._access.apply(manifest)
            if "marks" in forgery and f"Pod/{NAMESPACE}/hers-0" in uids:
                self._access.patch("Pod", NAMESPACE, "hers-0", with_uids(forgery["marks"], uids))

    def cycle(self, *, max_writes: int | None = None) -> Outcome:
        outcome = super().cycle(max_writes=max_writes)
        effects = [repr(effect) for effect in outcome.effects if not is_about_her(effect)]
        verdicts = [repr(verdict) for verdict in outcome.verdicts if NAMESPACE not in verdict[0]]
        self.decided.append(self._with_names("\n".join([f"{outcome.now}", *effects, *verdicts])))
        return outcome

    def _with_names(self, text: str) -> str:
        """The simulated cluster counts all pods in their UIDs: these are not compared."""
        for pod in self.world.facts.pods.values():
            text = text.replace(pod.uid, pod.full_name)
        return text

    def objects_of_others(self) -> list[Manifest]:
        found = [one for kind in ("Pod", "PodGroup") for one in self.cluster.listed(kind)]
        for one in found:
            del one["metadata"]["resourceVersion"], one["metadata"]["uid"]
        return [one for one in found if one["metadata"]["namespace"] != NAMESPACE]


def is_about_her(effect: Effect) -> bool:
    match effect:
        case SavePlan(plan=plan):
            return NAMESPACE in plan.gang
        case DeletePlan(gang=gang):
            return NAMESPACE in gang
        case SaveHistory(history=history):
            return history.name == NAMESPACE
        case Condition():
            return NAMESPACE in effect.key
        case PodGroupStatus(group=group):
            return NAMESPACE in group
        case QueueStatus():
            # It counts who waits in the queue, and she may say that she does.
            return True
        case Release():
            return effect.pod.startswith(f"{NAMESPACE}/")
        case _:
            # Evictions of her running pod count: she does not escape them.
            return effect.pod.startswith(f"{NAMESPACE}/forged")


def played(
    *forgeries: Manifest, cluster: ClusterBackend | None = None, access: TenantAccess | None = None, others: str = OTHERS[0]
) -> AboutOthers:
    runner = RunWithTenant(forgeries, cluster=cluster, access=access, others=others)
    runner.set_up()
    for step in runner.scenario.steps:
        runner.run_step(step)
        if isinstance(step, RunStep | RestartStep):
            runner.forge()
    assert not runner.violations, runner.violations
    return AboutOthers(runner.decided, runner.objects_of_others())


@cache
def _scenario(others: str) -> Scenario:
    return parse_one((HERE / others).read_text())
