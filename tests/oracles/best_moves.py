"""The cheapest moves that let a gang start, by trying every set of at most four pods and every place for each of them.

Only what a small cluster without topology needs: amounts on nodes, who may be moved, disruption budgets, and what moves cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tests.oracles.plain_amounts import Amounts, fits, minus, plus, request_of, total
from tests.oracles.protection import budget_findings, never_evictable, started_at
from tests.oracles.snapshot import ON_NODE, SEATED_OR_NOMINATED, Finding, Snapshot

from muster.model.gang import Gang
from muster.model.pod import Phase, Pod

MOST_MOVES = 4


@dataclass(frozen=True, slots=True)
class BestMoves:
    price: float
    pods: tuple[str, ...]
    """UIDs."""


def best_moves(s: Snapshot, asker: str) -> BestMoves | None:
    """None where no set of at most four pods does; nobody where the gang fits as it is."""
    members = _missing(s, s.gangs[asker])
    free = _free(s)
    if _places(members, {}, free):
        return BestMoves(0.0, ())
    movable = [uid for uid in sorted(s.pods) if not any(why_not_movable(s, s.pods[uid], s.gangs[asker]))]
    sets = [chosen for size in range(1, MOST_MOVES + 1) for chosen in combinations(movable, size)]
    for price, chosen in sorted((price_of(s, chosen), chosen) for chosen in sets):
        if any(True for _ in budget_findings(s, chosen)):
            continue
        left = dict(free)
        for uid in chosen:
            left[s.node_of(uid)] = plus(left[s.node_of(uid)], request_of(s.pods[uid]))
        if not _places(members, {}, left):
            continue
        items = [*(s.pods[uid] for uid in chosen), *members]
        if _places(items, {uid: s.node_of(uid) for uid in chosen}, left):
            return BestMoves(price, chosen)
    return None


def move_findings(s: Snapshot, asker: str, targets: Mapping[str, str], nominated: Mapping[str, str]) -> Iterator[Finding]:
    """What is wrong with a plan: `targets` has the node that is kept for each moved pod, `nominated` that of each member."""
    for uid, node in targets.items():
        for why in why_not_movable(s, s.pods[uid], s.gangs[asker]):
            yield Finding("D14 movable", f"{s.pods[uid].full_name} is moved, and {why}")
        if node == s.node_of(uid):
            yield Finding("D14 place", f"{s.pods[uid].full_name} is moved to where it is")
    yield from budget_findings(s, tuple(targets))
    left = _free(s)
    for uid in targets:
        left[s.node_of(uid)] = plus(left[s.node_of(uid)], request_of(s.pods[uid]))
    for uid, node in (*targets.items(), *nominated.items()):
        left[node] = minus(left[node], request_of(s.pods[uid]))
    for node, amounts in left.items():
        if any(value < 0 for value in amounts.values()):
            yield Finding("D14 capacity", f"{node} would have less than nothing left")
    if len(nominated) < len(_missing(s, s.gangs[asker])):
        yield Finding("D14 whole", "not every member that is needed has a node")
    if _places(_missing(s, s.gangs[asker]), {}, _free(s)):
        yield Finding("D14 needless", "it fits as it is")


def price_of(s: Snapshot, moved: Sequence[str]) -> float:
    """What all gangs lose. A gang that is below its minimum meanwhile loses the work of all its members."""
    found = 0.0
    for key in sorted({s.members[uid].gang for uid in moved}):
        gang = s.gangs[key]
        theirs = [uid for uid in moved if s.members[uid].gang == key]
        placed = [pod for pod in gang.pods() if s.phase(pod.uid) is Phase.BOUND]
        succeeded = sum(role.succeeded for role in gang.roles)
        is_broken = len(placed) + succeeded - len(theirs) < gang.min
        found += sum(_price(s, pod) for pod in placed if is_broken or pod.uid in theirs)
    return round(found, 9)


def _price(s: Snapshot, pod: Pod) -> float:
    whole = total(dict(node.allocatable.items) for node in s.nodes.values())
    share = max(value / whole[name] for name, value in request_of(pod).items())
    placement = s.placements[pod.uid]
    started = pod.started if pod.started is not None else placement.since
    saved = pod.checkpoint if pod.checkpoint is not None else started
    return share * (1.0 + (max(0.0, s.now - saved) + pod.restart_s) / 3600.0)


def why_not_movable(s: Snapshot, pod: Pod, asker: Gang) -> Iterator[str]:
    gang = s.gang_of(pod.uid)
    if s.phase(pod.uid) is not Phase.BOUND or gang is None or gang.key == asker.key:
        yield "it is not somebody else's that runs"
        return
    if not pod.movable:
        yield "it does not say that it may be"
    if not pod.controller:
        yield "nobody creates it anew"
    if gang.priority > asker.priority:
        yield f"it has priority {gang.priority}"
    yield from (why for _, why in never_evictable(s, pod))
    if has_just_started(s, pod):
        yield "it has just started"


def has_just_started(s: Snapshot, pod: Pod) -> bool:
    return s.now - (started_at(s, pod) or 0.0) < s.rules.min_runtime_s


def _missing(s: Snapshot, gang: Gang) -> list[Pod]:
    waiting = [pod for pod in gang.pods() if s.phase(pod.uid) not in SEATED_OR_NOMINATED]
    return waiting[: max(0, gang.min - (gang.size - len(waiting)))]


def _free(s: Snapshot) -> dict[str, Amounts]:
    free = {name: dict(node.allocatable.items) for name, node in s.nodes.items()}
    for uid, pod in s.pods.items():
        if s.phase(uid) in ON_NODE and s.node_of(uid) in free:
            free[s.node_of(uid)] = minus(free[s.node_of(uid)], request_of(pod))
    return free


def _places(pods: Sequence[Pod], not_on: Mapping[str, str], free: Mapping[str, Amounts]) -> bool:
    """Is there a place for each of these, one way or another?"""
    if not pods:
        return True
    first, *rest = pods
    for node in free:
        if node != not_on.get(first.uid) and fits(request_of(first), free[node]):
            if _places(rest, not_on, {**free, node: minus(free[node], request_of(first))}):
                return True
    return False
