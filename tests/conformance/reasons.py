"""Why an outcome of ours may differ from Volcano's: one check for each entry of differences.yaml.

A check looks at the case and at both outcomes and says whether this reason, and nothing else, accounts for what differs. It must
hold for cases that nobody has seen yet, so it asks for the circumstances and for what we do in them, not for names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.conformance.corpus import Case, spec_of
from tests.conformance.facts import Facts, Group
from tests.conformance.outcome import Result
from tests.evict.eviction_asks import eviction_ask

from muster.engine.evict.eviction_policy import EvictionRules
from muster.engine.evict.reclaim import GANG_RECLAIM
from muster.engine.session import Session
from muster.model.effects import Verdict
from muster.model.pod import Phase, Pod


@dataclass(frozen=True, slots=True)
class DifferingCase:
    """A case that differs: what it says, what came out, and the sentences about it."""

    case: Case
    result: Result
    differences: tuple[str, ...]
    facts: Facts

    @property
    def volcano_evicted(self) -> list[str]:
        return list(self.case.actual.get("evicted") or ())

    @property
    def volcano_pipelined(self) -> dict[str, str]:
        return dict(self.case.actual.get("pipelined") or {})

    @property
    def volcano_binds(self) -> dict[str, str]:
        return dict(self.case.actual.get("binds") or {})

    @property
    def is_complete(self) -> bool:
        """Are all pods there of which an outcome speaks? Without them no reason can be checked."""
        pods = (*self.volcano_evicted, *self.volcano_pipelined, *self.volcano_binds)
        return all(pod in self.facts.pods for pod in pods)

    def only(self, *words: str) -> bool:
        """Do all differences speak of these things alone?"""
        return all(sentence.startswith(words) for sentence in self.differences)

    def askers(self) -> list[Group]:
        """Groups that capacity was freed for, by us or by Volcano."""
        pods = {**self.result.pipelined, **self.volcano_pipelined}
        return [self.facts.groups[title] for title in dict.fromkeys(self.facts.group_of[pod] for pod in pods)]

    def waiting(self) -> list[Group]:
        """Groups that want nodes and have fewer than their minimum."""
        return [group for group in self.facts.groups.values() if len(group.running) < min(group.min, len(group.pods))]


_EVICTION = ("evicted", "number of evictions", "pipelined", "number of pipelined")


def whole_gangs(differing: DifferingCase) -> bool:
    """Volcano leaves a gang with too few members; we take all of it, or none."""
    theirs, ours = differing.facts.breaks(differing.volcano_evicted), differing.facts.breaks(differing.result.evicted)
    return differing.only(*_EVICTION) and bool(theirs) and not ours


def only_the_minimum(differing: DifferingCase) -> bool:
    """Capacity is freed for members above the minimum, too; here for those alone that the minimum needs."""
    ours, theirs = (_placed_counts(differing, pods) for pods in (differing.result.pipelined, differing.volcano_pipelined))
    least = {title: differing.facts.groups[title].min for title in theirs}
    fewer = len(differing.result.evicted) <= len(differing.volcano_evicted)
    return (
        differing.only(*_EVICTION) and fewer and ours == least != theirs and all(theirs[title] >= least[title] for title in theirs)
    )


def no_more_than_needed(differing: DifferingCase) -> bool:
    """The same gangs get as many nodes as they do in Volcano, and some of those who leave there stay."""
    ours, theirs = (_placed_counts(differing, pods) for pods in (differing.result.pipelined, differing.volcano_pipelined))
    fewer = set(differing.result.evicted) < set(differing.volcano_evicted)
    return differing.only(*_EVICTION) and fewer and bool(ours) and ours == theirs and _may_evict_all(differing)


def _placed_counts(differing: DifferingCase, nominated: Mapping[str, str]) -> dict[str, int]:
    """How many members of each gang that was promised anything have a node then."""
    return {
        title: count + len(differing.facts.groups[title].running)
        for title, count in differing.facts.count_by_group(nominated).items()
    }


def cheaper_victims(differing: DifferingCase) -> bool:
    """The same gangs get as many nodes for other victims, of no higher priority, with whom no more is lost."""
    ours, theirs = (_placed_counts(differing, pods) for pods in (differing.result.pipelined, differing.volcano_pipelined))
    lost, their_lost = (differing.facts.total(pods) for pods in (differing.result.evicted, differing.volcano_evicted))
    highest, their_highest = (_highest_priority(differing, pods) for pods in (differing.result.evicted, differing.volcano_evicted))
    no_more = highest <= their_highest and all(lost[name] <= their_lost[name] for name in lost)
    return differing.only(*_EVICTION) and bool(ours) and ours == theirs and no_more and _may_evict_all(differing)


def _highest_priority(differing: DifferingCase, pods: Sequence[str]) -> int:
    return max((differing.facts.of(pod).priority for pod in pods), default=0)


def never_its_own(differing: DifferingCase) -> bool:
    """Volcano lets an important member push out a lesser one of the same gang."""
    theirs = differing.facts.count_by_group(differing.volcano_pipelined)
    return (
        differing.only(*_EVICTION)
        and not differing.result.evicted
        and bool(differing.volcano_evicted)
        and all(differing.facts.group_of[pod] in theirs for pod in differing.volcano_evicted)
    )


def whole_gangs_are_evictable(differing: DifferingCase) -> bool:
    """Volcano's gang plugin spares whoever has no more members than it needs; here such a gang goes whole."""
    guarded = any(
        action in differing.case.actions and differing.case.has("gang", flag)
        for action, flag in (("preempt", "enablePreemptable"), ("reclaim", "enableReclaimable"))
    )
    gone = differing.facts.count_by_group(differing.result.evicted)
    groups = [differing.facts.groups[title] for title in gone]
    return (
        differing.only(*_EVICTION)
        and guarded
        and not differing.volcano_evicted
        and any(len(group.running) <= group.min for group in groups)
        and not differing.facts.breaks(differing.result.evicted)
        and _serves_whole(differing)
        and _may_evict_all(differing)
    )


def topology_is_served(differing: DifferingCase) -> bool:
    """Volcano's preempt frees no capacity for a gang with a topology constraint; here it is freed where it can be kept."""
    askers = [differing.facts.groups[title] for title in differing.facts.count_by_group(differing.result.pipelined)]
    return (
        differing.only(*_EVICTION)
        and "preempt" in differing.case.actions
        and not differing.volcano_evicted
        and not differing.volcano_pipelined
        and all(group.topology for group in askers)
        and _serves_whole(differing)
        and _may_evict_all(differing)
    )


def reclaims_for_gangs(differing: DifferingCase) -> bool:
    """Volcano's reclaim goes member by member and passes over a node where nobody is left to evict, even if one victim left enough
    for several: so gangs come away empty."""
    left = Counter(spec_of(differing.facts.pods[pod]).get("nodeName", "") for pod in differing.result.evicted)
    entered = Counter(differing.result.pipelined.values())
    return (
        differing.only(*_EVICTION)
        and "reclaim" in differing.case.actions
        and not differing.volcano_evicted
        and any(count > left[node] > 0 for node, count in entered.items())
        and _serves_whole(differing)
        and _may_evict_all(differing)
    )


def _serves_whole(differing: DifferingCase) -> bool:
    """Does somebody get capacity here, and everybody who does at least its minimum?"""
    placed = _placed_counts(differing, differing.result.pipelined)
    return bool(placed) and all(count >= differing.facts.groups[title].min for title, count in placed.items())


def _may_evict_all(differing: DifferingCase) -> bool:
    """Were those who leave fair game? Of lower priority in the asker's queue, or in a queue that is over its share."""
    for asker in differing.askers():
        for pod in differing.result.evicted:
            victim = differing.facts.of(pod)
            if victim.queue == asker.queue:
                fair = victim.priority < asker.priority
            else:
                above, theirs = differing.facts.fork(asker.queue, victim.queue)
                fair = differing.facts.is_over(theirs, differing.facts.lacking(asker))
                fair = fair and differing.facts.is_within(asker, above, differing.result.evicted)
            if not fair or (differing.facts.queues.get(victim.queue) or {}).get("reclaimable") is False:
                return False
    return True


def never_means_the_gang(differing: DifferingCase) -> bool:
    """A gang whose oldest member says Never has nobody evicted, not even for the others."""
    theirs = [differing.facts.groups[title] for title in differing.facts.count_by_group(differing.volcano_pipelined)]
    return (
        differing.only(*_EVICTION)
        and not differing.result.evicted
        and bool(theirs)
        and all(differing.facts.is_never(group) for group in theirs)
    )


def borrowing_never_evicts(differing: DifferingCase) -> bool:
    """The asking queue would be over its share of something that it asks for; to Volcano one dimension within it is enough."""
    if not differing.only(*_EVICTION) or differing.result.evicted:
        return False
    verdicts = [verdict for _, _, verdict in _reclaims(differing)]
    askers = [differing.facts.groups[title] for title in differing.facts.count_by_group(differing.volcano_pipelined)]
    queues = [
        differing.facts.fork(asker.queue, differing.facts.of(pod).queue)[0] for asker in askers for pod in differing.volcano_evicted
    ]
    over = [
        bool(differing.facts.deserved(queue)) and not differing.facts.is_within(asker, queue, differing.volcano_evicted)
        for asker in askers
        for queue in queues
    ]
    return bool(verdicts) and not any(verdict.ok for verdict in verdicts) and bool(over) and all(over)


def only_borrowed_there(differing: DifferingCase) -> bool:
    """Whose queue has a share, but none of what is lacking, uses of that only what it has borrowed; Volcano spares it for its share
    of something else."""
    pairs = [(asker, differing.facts.of(pod).queue) for asker in differing.askers() for pod in differing.result.evicted]
    return (
        differing.only(*_EVICTION)
        and not differing.volcano_evicted
        and bool(pairs)
        and all(
            (deserved := differing.facts.deserved(differing.facts.fork(asker.queue, queue)[1]))
            and differing.facts.lacking(asker).isdisjoint(deserved)
            for asker, queue in pairs
        )
        and _serves_whole(differing)
        and _may_evict_all(differing)
    )


def judged_where_the_tree_forks(differing: DifferingCase) -> bool:
    """Two queues of a tree are compared just below their common ancestor; Volcano compares leaves, and as many levels as it is
    told to."""
    if not differing.only(*_EVICTION, "binds", "number of binds"):
        return False
    if differing.result.evicted:
        pairs = [(asker.queue, differing.facts.of(pod).queue) for asker in differing.askers() for pod in differing.result.evicted]
        return not differing.volcano_evicted and _is_above_leaves(differing, pairs) and _may_evict_all(differing)
    refused = [(asker, giver) for asker, giver, verdict in _reclaims(differing) if not verdict.ok]
    return len(refused) == len(list(_reclaims(differing))) and _is_above_leaves(differing, refused)


def _is_above_leaves(differing: DifferingCase, pairs: Sequence[tuple[str, str]]) -> bool:
    """Is every one of these pairs compared at a fork that is not the two queues themselves?"""
    return bool(pairs) and all(differing.facts.fork(one, other) != (one, other) for one, other in pairs)


def _reclaims(differing: DifferingCase) -> Iterator[tuple[str, str, Verdict]]:
    """What Volcano took for whom across queues: the asking queue, the giving one, and what we say to that plan."""
    if differing.result.policy is None or "gang-reclaim" not in differing.result.policy.actions:
        return
    s = Session(differing.result.world, differing.result.policy)
    s.prepare()
    by_name = {pod.full_name: pod for pod in s.world.facts.pods.values()}
    for title in differing.facts.count_by_group(differing.volcano_pipelined):
        gang = next(gang for gang in s.world.facts.gangs.values() if gang.full_name == title)
        pods = tuple(pod for pod in gang.pods() if pod.uid not in s.world.placements.by_uid)[: gang.min]
        rules = eviction_ask(s, title, GANG_RECLAIM, pods=pods).rules
        for name in differing.volcano_evicted:
            queue = differing.facts.of(name).queue
            yield differing.facts.groups[title].queue, queue, _verdict(s, rules, by_name[name], pods)


def _verdict(s: Session, rules: EvictionRules, victim: Pod, pods: Sequence[Pod]) -> Verdict:
    """May this pod be evicted, and may the ask take what it leaves?"""
    verdict = rules.allows_eviction([victim], priority=victim.priority)
    if not verdict.ok:
        return verdict
    with s.trial("simulated", cause="Simulated") as trial:
        node = s.world.placement(victim).node or ""
        trial.evict(victim)
        for pod in pods:
            trial.place(pod, node, phase=Phase.NOMINATED)
        return rules.allows_plan([[victim]])


def checks_see_evicted_pods(differing: DifferingCase) -> bool:
    """Volcano's simulation shows its predicates who has left only where these are asked about evictions or allocations at all."""
    simulates = any(
        (each.get("arguments") or {}).get("enableTopologyAwarePreemption")
        for each in differing.case.written.get("configurations") or ()
    )
    shown = differing.case.has("predicates", "enablePreemptable") or differing.case.has("predicates", "enabledAllocatable")
    pods = [pod for group in differing.askers() for pod in group.pods]
    return (
        differing.only(*_EVICTION)
        and simulates
        and not shown
        and not differing.volcano_evicted
        and bool(differing.result.pipelined)
        and any(spec_of(pod).get("affinity") for pod in pods)
        and _may_evict_all(differing)
    )


def others_are_not_stopped(differing: DifferingCase) -> bool:
    """A queue with a wrong place in the tree keeps its own gangs waiting; Volcano's capacity plugin then serves nobody at all."""
    bad = differing.facts.bad_queues()
    return (
        differing.only("binds", "number of binds")
        and bool(bad)
        and not differing.volcano_binds
        and not any(bad & set(differing.facts.path(differing.facts.of(pod).queue)) for pod in differing.result.binds)
    )


def surplus_in_one_go(differing: DifferingCase) -> bool:
    """Volcano serves gangs one after the other once they have their minimum; here a gang gets all that fits when it is its turn."""
    ours, theirs = (differing.facts.count_by_group(pods) for pods in (differing.result.binds, differing.volcano_binds))
    more = [title for title in ours if ours[title] > theirs[title]]
    less = [title for title in theirs if theirs[title] > ours[title]]
    return (
        differing.only("binds", "number of binds", "phase of ")
        and bool(less)
        and bool(more)
        and all(theirs[title] >= differing.facts.groups[title].min for title in more)
    )


REASONS: Mapping[str, Callable[[DifferingCase], bool]] = {
    check.__name__: check
    for check in (
        whole_gangs,
        only_the_minimum,
        no_more_than_needed,
        cheaper_victims,
        never_its_own,
        whole_gangs_are_evictable,
        topology_is_served,
        reclaims_for_gangs,
        never_means_the_gang,
        borrowing_never_evicts,
        only_borrowed_there,
        judged_where_the_tree_forks,
        checks_see_evicted_pods,
        others_are_not_stopped,
        surplus_in_one_go,
    )
}
