"""Why an outcome of ours may differ from Volcano's: one check for each entry of differences.yaml.

A check looks at the case and at both outcomes and says whether this reason, and nothing else, accounts for what differs. It must
hold for cases that nobody has seen yet, so it asks for the circumstances and for what we do in them, not for names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.conformance.corpus import Case
from tests.conformance.facts import Facts, Group
from tests.conformance.outcome import Result

from muster.engine.evict.reclaim import ReclaimRules
from muster.engine.evict.seats import seat_table
from muster.engine.hooks import Ask, Purpose
from muster.engine.session import Session
from muster.model.effects import Verdict


@dataclass(frozen=True, slots=True)
class Seen:
    """A case that differs: what it says, what came out, and the sentences about it."""

    case: Case
    result: Result
    differences: tuple[str, ...]
    facts: Facts

    @property
    def their_evicted(self) -> list[str]:
        return list(self.case.actual.get("evicted") or ())

    @property
    def their_pipelined(self) -> dict[str, str]:
        return dict(self.case.actual.get("pipelined") or {})

    @property
    def their_binds(self) -> dict[str, str]:
        return dict(self.case.actual.get("binds") or {})

    def only(self, *words: str) -> bool:
        """Do all differences speak of these things alone?"""
        return all(sentence.startswith(words) for sentence in self.differences)

    def askers(self) -> list[Group]:
        """Groups that room was made for, by us or by Volcano."""
        pods = {**self.result.pipelined, **self.their_pipelined}
        return [self.facts.groups[title] for title in dict.fromkeys(self.facts.group_of[pod] for pod in pods)]

    def waiting(self) -> list[Group]:
        """Groups that want seats and have fewer than their minimum."""
        return [group for group in self.facts.groups.values() if len(group.running) < min(group.min, len(group.pods))]


_EVICTION = ("evicted", "number of evictions", "pipelined", "number of pipelined")


def whole_gangs(seen: Seen) -> bool:
    """Volcano leaves a gang with too few members; we take all of it, or none."""
    theirs, ours = seen.facts.breaks(seen.their_evicted), seen.facts.breaks(seen.result.evicted)
    return seen.only(*_EVICTION) and bool(theirs) and not ours


def only_the_minimum(seen: Seen) -> bool:
    """Room is made for members above the minimum, too; here for those alone that the minimum needs."""
    ours, theirs = (_seats(seen, pods) for pods in (seen.result.pipelined, seen.their_pipelined))
    least = {title: seen.facts.groups[title].min for title in theirs}
    fewer = len(seen.result.evicted) <= len(seen.their_evicted)
    return seen.only(*_EVICTION) and fewer and ours == least != theirs and all(theirs[title] >= least[title] for title in theirs)


def no_more_than_needed(seen: Seen) -> bool:
    """The same gangs get as many seats as they do in Volcano, and some of those who leave there stay."""
    ours, theirs = (_seats(seen, pods) for pods in (seen.result.pipelined, seen.their_pipelined))
    fewer = set(seen.result.evicted) < set(seen.their_evicted)
    return seen.only(*_EVICTION) and fewer and bool(ours) and ours == theirs and _may_evict_all(seen)


def _seats(seen: Seen, promised: Mapping[str, str]) -> dict[str, int]:
    """How many members of each gang that was promised anything have a node then."""
    return {title: count + len(seen.facts.groups[title].running) for title, count in seen.facts.count_by_group(promised).items()}


def cheaper_victims(seen: Seen) -> bool:
    """The same gangs get as many seats for other victims, of no higher priority, with whom no more is lost."""
    ours, theirs = (_seats(seen, pods) for pods in (seen.result.pipelined, seen.their_pipelined))
    lost, their_lost = (seen.facts.total(pods) for pods in (seen.result.evicted, seen.their_evicted))
    highest, their_highest = (_highest(seen, pods) for pods in (seen.result.evicted, seen.their_evicted))
    no_more = highest <= their_highest and all(lost[name] <= their_lost[name] for name in lost)
    return seen.only(*_EVICTION) and bool(ours) and ours == theirs and no_more and _may_evict_all(seen)


def _highest(seen: Seen, pods: Sequence[str]) -> int:
    return max((seen.facts.of(pod).priority for pod in pods), default=0)


def never_its_own(seen: Seen) -> bool:
    """Volcano lets an important member push out a lesser one of the same gang."""
    theirs = seen.facts.count_by_group(seen.their_pipelined)
    return (
        seen.only(*_EVICTION)
        and not seen.result.evicted
        and bool(seen.their_evicted)
        and all(seen.facts.group_of[pod] in theirs for pod in seen.their_evicted)
    )


def whole_gangs_may_go(seen: Seen) -> bool:
    """Volcano's gang plugin spares whoever has no more members than it needs; here such a gang goes whole."""
    guarded = any(
        action in seen.case.actions and seen.case.has("gang", flag)
        for action, flag in (("preempt", "enablePreemptable"), ("reclaim", "enableReclaimable"))
    )
    gone = seen.facts.count_by_group(seen.result.evicted)
    groups = [seen.facts.groups[title] for title in gone]
    return (
        seen.only(*_EVICTION)
        and guarded
        and not seen.their_evicted
        and any(len(group.running) <= group.min for group in groups)
        and not seen.facts.breaks(seen.result.evicted)
        and _serves_whole(seen)
        and _may_evict_all(seen)
    )


def topology_is_served(seen: Seen) -> bool:
    """Volcano's preempt makes no room for a gang with a topology wish; here it is made where the wish can be kept."""
    askers = [seen.facts.groups[title] for title in seen.facts.count_by_group(seen.result.pipelined)]
    return (
        seen.only(*_EVICTION)
        and "preempt" in seen.case.actions
        and not seen.their_evicted
        and not seen.their_pipelined
        and all(group.topology for group in askers)
        and _serves_whole(seen)
        and _may_evict_all(seen)
    )


def reclaims_for_gangs(seen: Seen) -> bool:
    """Volcano's reclaim goes member by member and passes over a node where nobody is left to evict, even if one victim left room
    for several: so gangs come away empty."""
    left = Counter(seen.facts.pods[pod]["spec"]["nodeName"] for pod in seen.result.evicted)
    entered = Counter(seen.result.pipelined.values())
    return (
        seen.only(*_EVICTION)
        and "reclaim" in seen.case.actions
        and not seen.their_evicted
        and any(count > left[node] > 0 for node, count in entered.items())
        and _serves_whole(seen)
        and _may_evict_all(seen)
    )


def _serves_whole(seen: Seen) -> bool:
    """Does somebody get room here, and everybody who does at least its minimum?"""
    seats = _seats(seen, seen.result.pipelined)
    return bool(seats) and all(count >= seen.facts.groups[title].min for title, count in seats.items())


def _may_evict_all(seen: Seen) -> bool:
    """Were those who leave fair game? Of lower priority in the asker's queue, or in a queue that is over its share."""
    for asker in seen.askers():
        for pod in seen.result.evicted:
            victim = seen.facts.of(pod)
            if victim.queue == asker.queue:
                fair = victim.priority < asker.priority
            else:
                above, theirs = seen.facts.fork(asker.queue, victim.queue)
                fair = seen.facts.is_over(theirs, seen.facts.asked(asker)) and seen.facts.is_within(asker, above)
            if not fair or (seen.facts.queues.get(victim.queue) or {}).get("reclaimable") is False:
                return False
    return True


def never_means_the_gang(seen: Seen) -> bool:
    """A gang whose oldest member says Never has nobody evicted, not even for the others."""
    theirs = [seen.facts.groups[title] for title in seen.facts.count_by_group(seen.their_pipelined)]
    return (
        seen.only(*_EVICTION) and not seen.result.evicted and bool(theirs) and all(seen.facts.is_never(group) for group in theirs)
    )


def would_have_the_larger_share(seen: Seen) -> bool:
    """The asking queue would have as large a share of the cluster as the one that it takes from."""
    if not seen.only(*_EVICTION) or seen.result.evicted:
        return False
    verdicts = [verdict for _, _, verdict in _reclaims(seen)]
    return bool(verdicts) and all(not verdict.ok and "as large a share" in verdict.why for verdict in verdicts)


def judged_where_the_tree_forks(seen: Seen) -> bool:
    """Two queues of a tree are compared just below their common ancestor; Volcano compares leaves, and as many levels as it is
    told to."""
    if not seen.only(*_EVICTION, "binds", "number of binds"):
        return False
    if seen.result.evicted:
        pairs = [(asker.queue, seen.facts.of(pod).queue) for asker in seen.askers() for pod in seen.result.evicted]
        return not seen.their_evicted and _is_above_leaves(seen, pairs) and _may_evict_all(seen)
    refused = [(asker, giver) for asker, giver, verdict in _reclaims(seen) if not verdict.ok]
    return len(refused) == len(list(_reclaims(seen))) and _is_above_leaves(seen, refused)


def _is_above_leaves(seen: Seen, pairs: Sequence[tuple[str, str]]) -> bool:
    """Is every one of these pairs compared at a fork that is not the two queues themselves?"""
    return bool(pairs) and all(seen.facts.fork(one, other) != (one, other) for one, other in pairs)


def _reclaims(seen: Seen) -> Iterator[tuple[str, str, Verdict]]:
    """What Volcano took for whom across queues: the asking queue, the giving one, and what we say to it."""
    if seen.result.policy is None or "gang-reclaim" not in seen.result.policy.actions:
        return
    s = Session(seen.result.world, seen.result.policy)
    s.prepare()
    for title in seen.facts.count_by_group(seen.their_pipelined):
        gang = next(gang for gang in s.world.facts.gangs.values() if gang.title == title)
        pods = tuple(pod for pod in gang.pods() if pod.uid not in s.world.placements.by_uid)[: gang.min]
        ask = Ask(gang, pods, Purpose.EVICT, "gang-reclaim")
        for pod in seen.their_evicted:
            queue = seen.facts.of(pod).queue
            yield seen.facts.groups[title].queue, queue, ReclaimRules(s, ask, seat_table(s.world)).may_give(f"queue/{queue}")


def checks_see_who_is_gone(seen: Seen) -> bool:
    """Volcano's simulation shows its predicates who has left only where these are asked about evictions or allocations at all."""
    simulates = any(
        (each.get("arguments") or {}).get("enableTopologyAwarePreemption") for each in seen.case.written.get("configurations") or ()
    )
    shown = seen.case.has("predicates", "enablePreemptable") or seen.case.has("predicates", "enabledAllocatable")
    pods = [pod for group in seen.askers() for pod in group.pods]
    return (
        seen.only(*_EVICTION)
        and simulates
        and not shown
        and not seen.their_evicted
        and bool(seen.result.pipelined)
        and any(pod["spec"].get("affinity") for pod in pods)
        and _may_evict_all(seen)
    )


def others_are_not_stopped(seen: Seen) -> bool:
    """A queue with a wrong place in the tree keeps its own gangs waiting; Volcano's capacity plugin then serves nobody at all."""
    bad = seen.facts.bad_queues()
    return (
        seen.only("binds", "number of binds")
        and bool(bad)
        and not seen.their_binds
        and not any(bad & set(seen.facts.path(seen.facts.of(pod).queue)) for pod in seen.result.binds)
    )


def phase_follows_members(seen: Seen) -> bool:
    """A PodGroup that says Running while too few of its members run."""
    groups = {sentence.removeprefix("phase of ").partition(":")[0] for sentence in seen.differences}
    return seen.only("phase of ") and all(
        seen.facts.groups[title].phase == "Running" and len(seen.facts.groups[title].running) < seen.facts.groups[title].min
        for title in groups
    )


def surplus_in_one_go(seen: Seen) -> bool:
    """Volcano serves gangs by turns once they have their minimum; here a gang gets all that fits when it is its turn."""
    ours, theirs = (seen.facts.count_by_group(pods) for pods in (seen.result.binds, seen.their_binds))
    more = [title for title in ours if ours[title] > theirs[title]]
    less = [title for title in theirs if theirs[title] > ours[title]]
    return (
        seen.only("binds", "number of binds", "phase of ")
        and bool(less)
        and bool(more)
        and all(theirs[title] >= seen.facts.groups[title].min for title in more)
    )


REASONS: Mapping[str, Callable[[Seen], bool]] = {
    check.__name__: check
    for check in (
        whole_gangs,
        only_the_minimum,
        no_more_than_needed,
        cheaper_victims,
        never_its_own,
        whole_gangs_may_go,
        topology_is_served,
        reclaims_for_gangs,
        never_means_the_gang,
        would_have_the_larger_share,
        judged_where_the_tree_forks,
        checks_see_who_is_gone,
        others_are_not_stopped,
        phase_follows_members,
        surplus_in_one_go,
    )
}
