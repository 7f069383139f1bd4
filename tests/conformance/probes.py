"""Probes: no action runs; the plugins are asked how good nodes and domains are, and whether a PodGroup is let in.

Our scores go from 0 to 1 and Volcano's do not, so what is compared is the order: of every two places that both could be chosen, the
same one must be the better, and neither where they are equal. A probe that compares nothing is no agreement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations

from tests.conformance.corpus import Case
from tests.conformance.inputs import events_of, policy_of
from tests.conformance.outcome import NOW

from muster.engine.enqueue import enqueue
from muster.engine.hooks import Ask, Purpose
from muster.engine.node_scores import REFUSED
from muster.engine.session import Session
from muster.model.effects import Verdict
from muster.model.gang import Gang, Subgroup
from muster.plugins.topology import Topology
from muster.state.derived.topology_domains import domain_tree
from muster.state.gangs.subgroups import all_subgroups
from muster.state.store import Store

_EQUAL = 1e-6


@dataclass(slots=True)
class ProbeResult:
    """How many comparisons were made, and those that came out otherwise."""

    compared: int = 0
    differences: list[str] = field(default_factory=list)

    def same_order(self, what: str, theirs: Mapping[str, float], ours: Mapping[str, float]) -> None:
        for one, other in combinations(sorted(theirs.keys() & ours.keys()), 2):
            self.compared += 1
            wanted, found = _sign(theirs[one] - theirs[other]), _sign(ours[one] - ours[other])
            if wanted != found:
                words = {1: "better than", 0: "as good as", -1: "worse than"}
                self.differences.append(f"{what}: expected {one} {words[wanted]} {other}, found it {words[found]} it")

    def same(self, what: str, wanted: object, found: object) -> None:
        self.compared += 1
        if wanted != found:
            self.differences.append(f"{what}: expected {wanted}, found {found}")


def _sign(value: float) -> int:
    return 0 if abs(value) < _EQUAL else 1 if value > 0 else -1


def probe(case: Case) -> ProbeResult:
    probe_result = ProbeResult()
    try:
        _compare(case, probe_result)
    except LookupError as missing:
        probe_result.differences.append(f"{missing.args[0]} is asked about and is not there")
    return probe_result


def _compare(case: Case, probe_result: ProbeResult) -> None:
    asked = case.actual.get("probe") or {}
    for title, scores in (asked.get("node_order") or {}).items():
        probe_result.same_order(f"nodes for {title}", scores, _node_scores(_session(case), title))
    for title, by_plugin in (asked.get("hypernode_order") or {}).items():
        for scores in by_plugin.values():
            _compare_domains(_session(case), title, scores, probe_result)
    for title, wanted in (asked.get("job_enqueueable") or {}).items():
        probe_result.same(f"{title} let in", wanted, _is_enqueued(_session(case), title))


def _session(case: Case) -> Session:
    """A fresh one for every question: no state carries over."""
    store = Store()
    for event in events_of(case):
        store.fold(event)
    session = Session(store.world(NOW), policy_of(case))
    session.prepare()
    return session


def _node_scores(s: Session, title: str) -> dict[str, float]:
    """Of the nodes that the pod could go to."""
    pod = next((pod for pod in s.world.facts.pods.values() if pod.full_name == title), None)
    if pod is None:
        raise LookupError(title)
    values = s.node_scores(pod, after_releases=False).value
    return {name: float(values[row]) for name, row in s.world.table.row.items() if values[row] > REFUSED}


def _compare_domains(s: Session, title: str, theirs: Mapping[str, float], probe_result: ProbeResult) -> None:
    """Tier by tier: which tier is better is no question of scores here. What Volcano gives nothing is too small for the ask, and
    must not be offered to it."""
    plugin = next(plugin for plugin in s.policy.plugins if isinstance(plugin, Topology))
    gang, subgroup = _gang_and_subgroup(s, title)
    members = None if subgroup is None else subgroup.members
    pods = [pod for pod in gang.pods() if pod.uid not in s.world.placements.by_uid and (members is None or pod.uid in members)]
    if not pods:
        return
    ask = Ask(gang, tuple(pods), Purpose.ALLOCATE, subgroup=subgroup)
    domains = [domain for domain in domain_tree(s.world, ()).domains if domain.tier and domain.name in theirs]
    scores = plugin.score_domains(s, ask, domains)
    for tier in sorted({domain.tier or 0 for domain in domains}):
        found = {d.name: float(score) for d, score in zip(domains, scores, strict=True) if d.tier == tier and theirs[d.name] > 0}
        probe_result.same_order(f"domains of tier {tier} for {title}", theirs, found)
    offered = plugin.domains(s, ask)
    names = set() if offered is None or isinstance(offered, Verdict) else {domain.name for domain in offered}
    for domain in domains:
        if not theirs[domain.name]:
            probe_result.same(f"capacity for {title} in {domain.name}", False, domain.name in names)


def _gang_and_subgroup(s: Session, title: str) -> tuple[Gang, Subgroup | None]:
    for gang in s.world.facts.gangs.values():
        if gang.full_name == title:
            return gang, None
        for subgroup in all_subgroups(gang):
            if f"{gang.full_name}/{subgroup.title}" == title:
                return gang, subgroup
    raise LookupError(title)


def _is_enqueued(s: Session, title: str) -> bool:
    enqueue(s, {})
    gang, _ = _gang_and_subgroup(s, title)
    return not s.world.memory.attempts[gang.key].not_admitted
