"""A scenario whose scheduler dies: before the first write, after the first, after the second, and so on. What comes out in the end
must be the same each time: nobody bound or evicted twice, no claim lost and none left behind.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from muster.adapters.kube import names
from muster.adapters.kube.claims import read_claim
from muster.adapters.kube.values import BadText
from muster.model.effects import Outcome
from muster.model.pod import CLAIMS
from muster.scenario.laws import Breach
from muster.scenario.play import Play
from muster.scenario.story import Expect, Manifest, Restart, Run, Scenario

_ONCE = ("bind", "delete", "evict")
"""Writes that must not happen twice."""


@dataclass(frozen=True, slots=True)
class End:
    """How a scenario ended, as the cluster shows it. Which of several equal nodes a pod stands on is not part of it."""

    pods: tuple[tuple[str, str], ...]
    """Each pod, and whether it is bound, held, nominated, waiting or finished; and whether it is marked."""
    deeds: tuple[tuple[str, int], ...]
    """How often each pod was bound, deleted or evicted by the scheduler."""
    leaks: tuple[str, ...]
    """Claims that stand on objects and not in the scheduler, or the other way round."""
    breaches: tuple[Breach, ...]
    writes: int


class _Mortal(Play):
    """A play in which the scheduler dies after so many writes, and a new one takes over at the same moment."""

    def __init__(self, scenario: Scenario, *, after: int | None) -> None:
        super().__init__(scenario)
        self._left = after

    def cycle(self) -> Outcome:
        if self._left is None:
            return super().cycle()
        before = len(self.cluster.writes)
        self._ears.stop_after = self._left
        outcome = super().cycle()
        self._ears.stop_after = None
        made = len(self.cluster.writes) - before
        if made < self._left or (made == 0 and not outcome.effects):
            self._left -= made
            return outcome
        self._left = None
        self.do(Restart(line=0))
        return super().cycle()


def end_of(scenario: Scenario, *, crash_after: int | None = None, settle_s: float = 120.0) -> End:
    """Play it without its expectations, with the scheduler dying after so many writes, and let it come to rest."""
    play = _Mortal(scenario, after=crash_after)
    play.set_up()
    for step in scenario.steps:
        if not isinstance(step, Expect):
            play.do(step)
    play.do(Run(line=0, seconds=settle_s, every_s=10.0))
    return _end(play)


def has_claim(pod: Manifest) -> bool:
    """Anybody can write something there; only what a scheduler would believe can be left behind."""
    metadata = pod["metadata"]
    try:
        return read_claim((metadata.get("annotations") or {}).get(names.CLAIM, ""), uid=metadata["uid"]) is not None
    except BadText:
        return False


def shown(pod: Manifest) -> str:
    """What anybody can see of a pod: whether it is bound, claims a node, waits or is finished; and whether it is marked."""
    metadata = pod["metadata"]
    state = "finished" if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") else "waits"
    state = "bound" if state == "waits" and pod["spec"].get("nodeName") else state
    state = "claims" if state == "waits" and has_claim(pod) else state
    marked = " marked" if (metadata.get("annotations") or {}).get(names.GANG_TIMEOUT) else ""
    asked = " asked to go" if (metadata.get("labels") or {}).get(names.SOFT_EVICTION) else ""
    leaving = " leaving" if metadata.get("deletionTimestamp") else ""
    return state + marked + asked + leaving


def _end(play: Play) -> End:
    pods: list[tuple[str, str]] = []
    leaks: list[str] = []
    claimed = {uid for uid, placement in play.world.placements.by_uid.items() if placement.phase in CLAIMS}
    for pod in play.cluster.listed("Pod"):
        meta = pod["metadata"]
        noted = has_claim(pod)
        if noted != (meta["uid"] in claimed) and not meta.get("deletionTimestamp"):
            where = "on its object and not in the scheduler" if noted else "in the scheduler and not on its object"
            leaks.append(f"{meta['namespace']}/{meta['name']}: a claim stands {where}")
        pods.append((f"{meta['namespace']}/{meta['name']}", shown(pod)))
    deeds = Counter(f"{write.verb} {write.name}" for write in play.cluster.writes if write.verb in _ONCE)
    return End(tuple(sorted(pods)), tuple(sorted(deeds.items())), tuple(leaks), tuple(play.breaches), len(play.cluster.writes))
