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
from muster.scenario import Scenario
from muster.scenario.generate import document
from muster.scenario.load import from_plain
from muster.scenario.play import Play
from muster.scenario.story import Manifest, Run

STEPS = int(os.environ.get("MUSTER_FAULT_STEPS", "120"))
AT_ONCE = 60
"""Events of one story."""
PACE = Pace(events_per_s=0, timeout_s=0.5, patience_s=1.0, release_s=2.0)
WATCH_PACE = reflector.Pace(quiet_s=1.5, first_wait_s=0.02, longest_wait_s=0.3, watch_s=10.0)
HURRIES = 0.4
LULL = 5
"""Steps after which the sky is clear for a moment."""


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(max(1, STEPS // AT_ONCE)))
def test_no_law_is_broken_in_a_storm(seed: int, equipped: Servers) -> None:
    kubeconfig = equipped.kubeconfig()
    chance = Random(f"hurry {seed}")
    scenario = story(seed)
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
            for number, step in enumerate(scenario.steps, start=1):
                play.do(step)
                assert not play.breaches, "\n".join(map(str, play.breaches))
                if number % LULL == 0:
                    look_around(play, storm)
            storm.calm = True
            play.do(Run(line=0, seconds=60.0, every_s=20.0))
            look_around(play, storm)
            assert not play.breaches, "\n".join(map(str, play.breaches))
    felt = {ill for _, ill in storm.felt}
    assert len(felt) >= (len(OF_WRITES[0]) + len(OF_WATCHES[0])) // 2, storm.felt


def story(seed: int) -> Scenario:
    """Every third is as it was generated. In the others room is so scarce that most of it is fought for, held and promised."""
    made = document(nodes=4 + seed % 5, gangs=60, seed=seed, events=AT_ONCE)
    if seed % 3 != 2:
        chance = Random(f"scarce {seed}")
        submitted = [step["submit"] for step in made["steps"] if "submit" in step]
        gangs = [gang for some in (made["gangs"], *submitted) for gang in (some if isinstance(some, list) else [some])]
        for node in made["nodes"]:
            node["cpu"] = 8
        for gang in gangs:
            _tighten(gang, chance)
    return from_plain(made, file=f"<storm, seed {seed}>")


def _tighten(gang: Manifest, chance: Random) -> None:
    gang |= {"priority": chance.randrange(10), "leaves": chance.choice(("5s", "30s", "90s"))}
    if chance.random() < 0.4 and "group" not in gang:
        gang |= {"mode": "NonStrict", "wait": "5m"}
    for seats in gang.get("roles", [gang]):
        seats["each"] = {"cpu": chance.choice((2, 3, 4))}
        for narrow in ("selector", "affinity", "labels"):
            seats.pop(narrow, None)


def look_around(play: Play, storm: Storm) -> None:
    """While the sky is clear for a moment."""
    storm.calm = True
    assert any(not play.cycle().effects for _ in range(10)), "it does not come to rest"
    assert differences(play) == []
    storm.calm = False


def differences(play: Play) -> list[str]:
    """What the server knows and the scheduler does not, or the other way round."""
    world, found = play.world, []
    pods = [pod for pod in play.cluster.listed("Pod") if _counts(pod)]
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
        claimed = _claims((meta.get("annotations") or {}).get(names.CLAIM, ""), uid=meta["uid"])
        if claimed != (phase in CLAIMS) and not meta.get("deletionTimestamp"):
            found.append(f"{title}: a claim stands on its object: {claimed}, and in the scheduler: {phase.name}")
    there = {pod["metadata"]["uid"] for pod in pods}
    found.extend(f"{world.facts.pods[uid].title} is gone, and not known to be" for uid in world.facts.pods if uid not in there)
    return found


def _counts(pod: Manifest) -> bool:
    """Those that ended, and those that others have yet to schedule, take no room."""
    is_over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not is_over and ("nodeName" in pod["spec"] or pod["spec"]["schedulerName"] == "muster")


def _claims(note: str, *, uid: str) -> bool:
    try:
        return bool(note) and read_claim(note, uid=uid) is not None
    except BadText:
        return False
