"""A story on a real API server whose scheduler, a process, dies at one of its writes; and how it ends."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.kube.nursery import Nursery
from tests.kube.real_time import Doom, RealTime

from muster.adapters.kube import names
from muster.lab.servers import Servers
from muster.model.effects import Bind, Evict, Hold, Nominate, Outcome, Release
from muster.runtime import Scheduler
from muster.scenario.crashes import End, has_claim, shown
from muster.scenario.load import policy_of
from muster.scenario.play import Play
from muster.scenario.report import Difference
from muster.scenario.story import Advance, Cycle, Expect, Manifest, Restart, Run, Scenario, Step

ONCE = ("bind", "evict", "delete", "mark")
_NUMBER = re.compile(r"-\d+$")
_CLAIMS = "muster_claims_open"
_COUNT_S = 12.0
_MOVES = (Bind, Evict, Hold, Nominate, Release)


class _Live(Play):
    """The steps of a story, as users would do them; the scheduler lives elsewhere."""

    def __init__(self, scenario: Scenario, venue: RealTime) -> None:
        super().__init__(scenario, cluster=venue)
        self._venue = venue

    def do(self, what: Step) -> list[Difference]:
        match what:
            case Cycle():
                self._venue.rest()
            case Advance(seconds=seconds) | Run(seconds=seconds):
                self._venue.advance(seconds)
            case Restart():
                self._venue.restart()
            case Expect():
                return []
            case _:
                with self._venue.asleep():
                    super().do(what)
                    self._venue.settle()
        return []


def end_of(scenario: Scenario, *, servers: Servers, nursery: Nursery, folder: Path, doom: Doom | None = None) -> tuple[End, str]:
    """Play it, and let it come to rest. Also: at which write the scheduler died, if it did."""
    options = policy_options(scenario, folder)
    with RealTime(servers, nursery, folder, options=options, fate=doom) as venue:
        play = _Live(scenario, venue)
        venue.undone = lambda: _unfinished(venue, scenario)
        play.set_up()
        venue.settle()
        venue.start()
        venue.rest()
        for step in scenario.steps:
            play.do(step)
        venue.rest()
        died = venue.died_at
        where = "" if died is None else f"{died.method} {died.path} ({died.status})"
        return _end(venue, scenario), where


def alike(end: End) -> End:
    """The same with members of a gang counted and not named: which of several equal ones it is depends on the second in which
    the server made each of them."""
    pods = Counter(f"{_NUMBER.sub('', title)} {state}" for title, state in end.pods)
    deeds: Counter[str] = Counter()
    for deed, times in end.deeds:
        deeds[_NUMBER.sub("", deed)] += times
    counted = tuple((key, str(count)) for key, count in sorted(pods.items()))
    return replace(end, pods=counted, deeds=tuple(sorted(deeds.items())))


def policy_options(scenario: Scenario, folder: Path) -> tuple[str, ...]:
    """The policy as a file, as `muster run` wants it."""
    if scenario.policy is None:
        return ()
    if isinstance(scenario.policy, Path):
        return ("--policy", str(scenario.policy))
    file = folder / "policy.yaml"
    file.write_text(json.dumps(scenario.policy.plain()))
    return ("--policy", str(file))


def _end(venue: RealTime, scenario: Scenario) -> End:
    pods = venue.listed("Pod")
    done = [write for write in venue.gate.writes if write.is_done and write.verb in ONCE]
    deeds = Counter(f"{write.verb} {write.object}" for write in done)
    twice = [
        f"{what} happened {times} times" for what, times in Counter((w.verb, w.object, w.uid) for w in done).items() if times > 1
    ]
    leaks = [
        *twice,
        *(leak for pod in pods for leak in _left_behind(pod)),
        *_claims_unlike(venue, pods),
        *_unfinished(venue, scenario),
    ]
    states = tuple(sorted((_title(pod), shown(pod)) for pod in pods))
    return End(states, tuple(sorted(deeds.items())), tuple(leaks), (), len(venue.gate.writes))


def _left_behind(pod: Manifest) -> list[str]:
    """Words of a claim on a pod that has none, or needs none any more."""
    notes, said = pod["metadata"].get("annotations") or {}, []
    is_bound, is_claimed = bool(pod["spec"].get("nodeName")), has_claim(pod)
    if is_bound and names.CLAIM in notes:
        said.append("is bound and has a claim")
    if not is_claimed and names.PIPELINED_NODE in notes:
        said.append("has no claim and is said to be pipelined")
    if not is_claimed and not is_bound and (pod.get("status") or {}).get("nominatedNodeName"):
        said.append("has no claim and is nominated")
    return [f"{_title(pod)} {what}" for what in said]


def _claims_unlike(venue: RealTime, pods: list[Manifest]) -> list[str]:
    """The scheduler itself must know of as many claims as stand on objects. It counts them now and then."""
    assert venue.child is not None
    written = sum(has_claim(pod) and not pod["spec"].get("nodeName") for pod in pods)
    deadline = time.monotonic() + _COUNT_S
    while (known := venue.child.figures(_CLAIMS)[_CLAIMS]) != written and time.monotonic() < deadline:
        time.sleep(0.1)
    return [] if known == written else [f"the scheduler knows of {known:g} claims, and {written} are written"]


def _unfinished(venue: RealTime, scenario: Scenario) -> list[str]:
    """Whoever looked at this cluster for the first time would find nothing to do."""
    scheduler = Scheduler(policy_of(scenario))
    scheduler.feed(venue.everything())
    outcome: Outcome = scheduler.tick(venue.now)
    return [f"left undone: {effect}" for effect in outcome.effects if isinstance(effect, _MOVES)]


def _title(pod: Manifest) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
