"""Generated stories on a real server through a storm: requests are refused, lost and done all the same, watches cut and stale. No
law is broken, and once the sky clears the scheduler knows what the server knows.

MUSTER_FAULT_STEPS says how many events there are in all.
"""

import os
from functools import partial
from random import Random

import pytest
from tests.kube.storm import OF_WATCHES, OF_WRITES, Storm

from muster.adapters.kube import names, reflector
from muster.adapters.kube.access import read_access
from muster.adapters.kube.claims import read_claim
from muster.adapters.kube.values import BadText
from muster.adapters.kube.writer import Pace
from muster.lab.servers import Servers
from muster.lab.stage import RealCluster
from muster.model.pod import CLAIMS, Phase
from muster.scenario import generate
from muster.scenario.play import Play
from muster.scenario.story import Run

STEPS = int(os.environ.get("MUSTER_FAULT_STEPS", "120"))
AT_ONCE = 60
"""Events of one story."""
PACE = Pace(events_per_s=0, timeout_s=0.5, patience_s=1.0, release_s=2.0)
WATCH_PACE = reflector.Pace(quiet_s=1.5, first_wait_s=0.02, longest_wait_s=0.3, watch_s=10.0)
HURRIES = 0.4


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(max(1, STEPS // AT_ONCE)))
def test_no_law_is_broken_in_a_storm(seed: int, equipped: Servers) -> None:
    kubeconfig = equipped.kubeconfig()
    chance = Random(f"hurry {seed}")
    scenario = generate(nodes=6 + seed % 5, gangs=30, seed=seed, events=AT_ONCE)
    with Storm(kubeconfig, seed=seed) as storm:
        stage = RealCluster(
            partial(read_access, kubeconfig),
            through=storm.access,
            pace=PACE,
            watch_pace=WATCH_PACE,
            hurries=lambda: not storm.calm and chance.random() < HURRIES,
        )
        with stage as cluster:
            play = Play(scenario, cluster=cluster)
            play.set_up()
            for step in scenario.steps:
                play.do(step)
                assert not play.breaches, "\n".join(map(str, play.breaches))
            storm.calm = True
            play.do(Run(line=0, seconds=60.0, every_s=20.0))
            assert not play.breaches, "\n".join(map(str, play.breaches))
            assert differences(play) == []
    felt = {ill for _, ill in storm.felt}
    assert len(felt) >= (len(OF_WRITES[0]) + len(OF_WATCHES[0])) // 2, storm.felt


def differences(play: Play) -> list[str]:
    """What the server knows and the scheduler does not, or the other way round."""
    world, found = play.world, []
    pods = play.cluster.listed("Pod")
    for pod in pods:
        meta, title = pod["metadata"], f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        placement = world.placements.get(meta["uid"])
        bound = pod["spec"].get("nodeName", "")
        is_over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if placement is None:
            # Those that ended, and those that others will schedule, take no room.
            is_counted = not is_over and (bound or pod["spec"]["schedulerName"] == "muster")
            found.extend([f"{title} is not known"] if is_counted else [])
            continue
        seated = placement.node or "" if placement.phase not in (*CLAIMS, Phase.PENDING) else ""
        if seated != ("" if is_over else bound):
            found.append(f"{title} is bound to {bound!r}, and known to be on {seated!r} ({placement.phase})")
        claimed = _claims((meta.get("annotations") or {}).get(names.CLAIM, ""), uid=meta["uid"])
        if claimed != (placement.phase in CLAIMS) and not meta.get("deletionTimestamp"):
            found.append(f"{title}: a claim stands on its object: {claimed}, and in the scheduler: {placement.phase}")
    there = {pod["metadata"]["uid"] for pod in pods}
    found.extend(f"{world.pods[uid].title} is gone, and not known to be" for uid in world.pods if uid not in there)
    return found


def _claims(note: str, *, uid: str) -> bool:
    try:
        return bool(note) and read_claim(note, uid=uid) is not None
    except BadText:
        return False
