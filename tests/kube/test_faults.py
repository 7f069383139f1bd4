"""Generated scenarios on a real server through a storm: requests are refused, lost and done all the same, watches cut and stale. No
invariant is violated, and once it is over the scheduler knows what the server knows.

MUSTER_FAULT_STEPS says how many events there are in all.
"""

import os
from functools import partial
from random import Random

import pytest
from tests.harness.live_harness import LiveHarness
from tests.kube.fault_proxy import WATCH_FAULTS, WRITE_FAULTS, FaultProxy

from muster.kube.read.object_references import Manifest
from muster.kube.watch import reflector
from muster.kube.watch.access import read_access
from muster.kube.write.effect_writer import WriteLimits
from muster.lab.servers import Servers
from muster.model.pod import RESERVATIONS, Phase
from muster.scenario import Scenario
from muster.scenario.loader import from_document
from muster.scenario.scenario_generator import generate_document
from muster.scenario.scenario_runner import ScenarioRunner
from muster.scenario.syntax_tree import RunStep

STEPS = int(os.environ.get("MUSTER_FAULT_STEPS", "120"))
EVENTS_PER_RUN = 60
"""Events of one scenario."""
PACE = WriteLimits(events_per_s=0, timeout_s=0.5, stall_timeout_s=1.0, release_timeout_s=2.0)
WATCH_PACE = reflector.WatchTiming(idle_timeout_s=1.5, initial_wait_s=0.02, max_wait_s=0.3, watch_s=10.0)
CUT_SHORT_SHARE = 0.4
CHECK_EVERY = 5
"""Steps after which the sky is clear for a moment."""


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(max(1, STEPS // EVENTS_PER_RUN)))
def test_no_invariant_is_violated_while_requests_fail(seed: int, servers_with_kinds: Servers) -> None:
    kubeconfig = servers_with_kinds.kubeconfig()
    chance = Random(f"hurry {seed}")
    scenario = scarce_scenario(seed)
    with FaultProxy(kubeconfig, seed=seed) as fault_proxy:
        stage = LiveHarness(
            partial(read_access, kubeconfig),
            scheduler_access=fault_proxy.access,
            limits=PACE,
            watch_timing=WATCH_PACE,
            skip_settling=lambda: not fault_proxy.is_off and chance.random() < CUT_SHORT_SHARE,
        )
        with stage as cluster:
            play = ScenarioRunner(scenario, cluster=cluster)
            play.set_up()
            for number, step in enumerate(scenario.steps, start=1):
                play.run_step(step)
                assert not play.violations, "\n".join(map(str, play.violations))
                if number % CHECK_EVERY == 0:
                    check_without_faults(play, fault_proxy)
            fault_proxy.is_off = True
            play.run_step(RunStep(line=0, seconds=60.0, every_s=20.0))
            check_without_faults(play, fault_proxy)
            assert not play.violations, "\n".join(map(str, play.violations))
    injected = {fault for _, fault in fault_proxy.injected}
    assert len(injected) >= (len(WRITE_FAULTS[0]) + len(WATCH_FAULTS[0])) // 2, fault_proxy.injected


def scarce_scenario(seed: int) -> Scenario:
    """Every third is as it was generated. In the others capacity is so scarce that most of it is fought for, held and promised."""
    made = generate_document(nodes=4 + seed % 5, gangs=60, seed=seed, events=EVENTS_PER_RUN)
    if seed % 3 != 2:
        chance = Random(f"scarce {seed}")
        submitted = [step["submit"] for step in made["steps"] if "submit" in step]
        gangs = [gang for some in (made["gangs"], *submitted) for gang in (some if isinstance(some, list) else [some])]
        for node in made["nodes"]:
            node["cpu"] = 8
        for gang in gangs:
            _tighten(gang, chance)
    return from_document(made, file=f"<storm, seed {seed}>")


def _tighten(gang: Manifest, chance: Random) -> None:
    gang |= {"priority": chance.randrange(10), "terminationDuration": chance.choice(("5s", "30s", "90s"))}
    if chance.random() < 0.4 and "gangGroup" not in gang:
        gang |= {"mode": "NonStrict", "waitingTime": "5m"}
    for role in gang.get("roles", [gang]):
        role["requests"] = {"cpu": chance.choice((2, 3, 4))}
        for narrow in ("nodeSelector", "affinity", "labels"):
            role.pop(narrow, None)


def check_without_faults(play: ScenarioRunner, fault_proxy: FaultProxy) -> None:
    """While the sky is clear for a moment."""
    fault_proxy.is_off = True
    assert any(not play.cycle().effects for _ in range(10)), "it does not come to rest"
    assert differences(play) == []
    fault_proxy.is_off = False


def differences(play: ScenarioRunner) -> list[str]:
    """What the server knows and the scheduler does not, or the other way round."""
    world, found = play.world, []
    pods = [pod for pod in play.cluster.listed("Pod") if _counts(pod)]
    planned = {member["uid"] for plan in play.cluster.listed("Plan") for member in plan["spec"]["members"]}
    for pod in pods:
        meta, title = pod["metadata"], f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        known = world.facts.pods.get(meta["uid"])
        if known is None:
            found.append(f"{title} is not known")
            continue
        phase, bound = world.phase(known), pod["spec"].get("nodeName", "")
        seated = world.placements.by_uid[known.uid].node if phase >= Phase.BINDING else ""
        if seated != bound:
            found.append(f"{title} is bound to {bound!r}, and known to be on {seated!r} ({phase.name})")
        claimed = meta["uid"] in planned and not bound
        if claimed != (phase in RESERVATIONS) and not meta.get("deletionTimestamp"):
            found.append(f"{title}: a reservation stands on its object: {claimed}, and in the scheduler: {phase.name}")
    there = {pod["metadata"]["uid"] for pod in pods}
    found.extend(f"{world.facts.pods[uid].full_name} is gone, and not known to be" for uid in world.facts.pods if uid not in there)
    return found


def _counts(pod: Manifest) -> bool:
    """Those that ended, and those that others have yet to schedule, take no capacity."""
    is_over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not is_over and ("nodeName" in pod["spec"] or pod["spec"]["schedulerName"] == "muster")
