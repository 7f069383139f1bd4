"""What a sentence claims, read back from its words, and whether that is so in the cluster of which it speaks.

A sentence is cut into clauses; each must be of a known form, and what it says is compared with sums over plain values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction

from tests.oracles.best_moves import has_just_started, why_not_movable
from tests.oracles.contested import finds_capacity, most_of
from tests.oracles.plain_amounts import request_of, total
from tests.oracles.protection import budgets_over, started_at
from tests.oracles.queue_amounts import dominant_share
from tests.oracles.sentence_facts import SentenceFacts
from tests.oracles.snapshot import Snapshot

from muster.model.gang import Gang
from muster.model.pod import Pod

NOBODY_EVICTED = "; no pod is evicted for it: "
NOBODY_MOVED = "; no pod is moved for it: "
NAME = r"[\w./-]+"
QUEUE = rf"((?:queue|quota) {NAME})"
AMOUNTS = rf"{NAME} \S+ of \S+(?:, {NAME} \S+ of \S+)*"
WORD = "(?:deserved|min|fair share)"
SUM = rf"{NAME} \S+ requested(?: \+ \S+ used)? > \S+ {WORD}"
SUMS = rf"{SUM}(?:, {SUM})*"
SHARE = "(?:deserved share|fair share|minimum)"
COUNTED = r"(?: \((\d+) pods?\))?"
Match = re.Match[str]
Check = Callable[[SentenceFacts, Match], Iterator[str]]


def untrue_claims(s: Snapshot, gang: Gang, sentence: str) -> list[str]:
    """What the refusal of a gang says and is not so."""
    clauses = [clause for part in re.split(f"{NOBODY_EVICTED}|{NOBODY_MOVED}", sentence) for clause in _clauses(part)]
    found = [f"said twice: {text}" for text, count in Counter(clauses).items() if count > 1]
    facts = SentenceFacts(s, gang)
    return found + [why for text in clauses for why in _untrue(facts, text)]


def untrue_eviction(s: Snapshot, gang: Gang, victim: Pod, sentence: str) -> list[str]:
    """What the reason of an eviction for this gang says and is not so."""
    found = re.fullmatch(rf"(preempted|reclaimed|moved) for (\S+): (?:capacity is kept for it on ({NAME}); )?(.+)", sentence)
    if found is None or found[2] != gang.full_name or (found[1] == "moved") is (found[3] is None):
        return [f"it is evicted for {gang.full_name} (said: {sentence})"]
    facts = SentenceFacts(s, gang)
    untrue = [why for part in found[4].split("; ") for why in _both_sides(facts, victim, part, is_moved=found[1] == "moved")]
    if found[3] is not None and (found[3] not in s.nodes or found[3] == s.node_of(victim.uid)):
        untrue.append(f"it is not moved to {found[3]}")
    return [f"{why} (said: {sentence})" for why in untrue]


def _clauses(text: str) -> list[str]:
    """Cut at semicolons; what is said of nodes stays together."""
    found: list[str] = []
    for part in text.split("; ") if text else ():
        if found and re.match(r"\d+ nodes? ", part):
            found[-1] += f"; {part}"
        else:
            found.append(part)
    return found


def _untrue(facts: SentenceFacts, text: str) -> Iterator[str]:
    domain, _, rest = text.partition(": ")
    here = sorted(name for name, node in facts.s.nodes.items() if domain in node.labels.values())
    facts.nodes = here or sorted(facts.s.nodes)
    whole = re.fullmatch(r"(with \d+ pods? evicted, )?(.+?)(?: \((\d+ pods? (?:is|are) .+)\))?", rest if here else text)
    assert whole is not None
    facts.in_trial = whole[1] is not None
    matching = [(found, check) for pattern, check in _FORMS if (found := re.fullmatch(pattern, whole[2])) is not None]
    if not matching:
        yield f"no known form: {text}"
    for why in (*(why for found, check in matching for why in check(facts, found)), *_barred(facts, whole[3])):
        yield f"{why} (said: {text})"


# -- nodes -------------------------------------------------------------------------------------------------------------------------


def _fits_nowhere(facts: SentenceFacts, found: Match) -> Iterator[str]:
    """`1/3 members placed, a-1 fits nowhere: 2 nodes full (cpu), 1 node too small (gpu); 1 node taken by its other members`: each
    node is counted once, and as it was before the attempt."""
    placed, pod = int(found[1]), next(pod for pod in facts.gang.pods() if pod.name == found[3])
    if int(found[2]) != facts.gang.min or placed >= facts.gang.min:
        yield f"its minimum is {facts.gang.min}"
    said: Counter[tuple[str, frozenset[str]]] = Counter()
    for count, what, names in re.findall(r"(\d+) nodes? (full|too small|taken|with|without)(?: \(([^)]*)\))?", found[4]):
        said[what, frozenset(names.split(", ")) - {""}] += int(count)
    if said.total() != len(facts.nodes):
        yield f"{said.total()} nodes of {len(facts.nodes)} are accounted for"
    taken = said["taken", frozenset()]
    if taken > placed:
        yield f"{taken} nodes cannot be taken by {placed} members"
    there = Counter(facts.node_state(pod, node) for node in facts.nodes)
    for state, count in said.items():
        if state[0] in ("full", "too small") and not count <= there[state] <= count + taken:
            yield f"{there[state]} nodes are {state[0]} ({sorted(state[1])}) for {pod.name}"


def _fits_in_part(facts: SentenceFacts, found: Match) -> Iterator[str]:
    if int(found[2]) != len(facts.missing) or int(found[1]) >= len(facts.missing):
        yield f"{len(facts.missing)} members are missing"


def _would_not_fit(facts: SentenceFacts, found: Match) -> Iterator[str]:
    yield from facts.at_most(found[1] or "1", facts.unprotected(), "not protected")


def _no_domain(facts: SentenceFacts, found: Match) -> Iterator[str]:
    if int(found[1]) != len(facts.missing) or int(found[2]) >= len(facts.missing):
        yield f"{len(facts.missing)} members are missing"


def _wider_domain(facts: SentenceFacts, found: Match) -> Iterator[str]:
    if found[1] is not None and int(found[1]) < len(facts.missing):
        yield f"{len(facts.missing)} members are missing"


# -- who is protected --------------------------------------------------------------------------------------------------------------


def _nobody_now(facts: SentenceFacts, _: Match) -> Iterator[str]:
    if not facts.could_evict():
        yield "there is nobody whom it could evict"


def _barred(facts: SentenceFacts, text: str | None) -> Iterator[str]:
    """`2 pods are protected from eviction, 1 pod is under a disruption budget that allows no eviction now: default/web`."""
    for part in re.split(r", (?=\d+ pods? |the first )", text) if text else ():
        found = re.fullmatch(r"(\d+) pods? (?:is|are) ([^:]+)(?:: (.+))?", part)
        if found is None:
            yield from _first_evictable(facts, part)
            continue
        pods = _kept_by(facts, found[2])
        if pods is None:
            yield f"no known form: {part}"
        elif "a member" in found[2]:
            yield from facts.at_most(found[1], pods, found[2])
        else:
            yield from facts.counted(int(found[1]), pods, found[2])
        named = {key for pod in pods or () for key in facts.exhausted_budgets(pod)}
        if found[3] is not None and not set(found[3].split(", ")) <= named:
            yield f"only {sorted(named)} protect anybody"


def _kept_by(facts: SentenceFacts, what: str) -> list[Pod] | None:
    match what:
        case "protected from eviction":
            return [pod for pod in facts.could_evict() if facts.is_protected(pod)]
        case "under a disruption budget that allows no eviction now":
            return [pod for pod in facts.could_evict() if facts.is_under_budget(pod) and not facts.is_protected(pod)]
        case "within the minimum run time of their gang":
            return [pod for pod in facts.unprotected() if facts.is_young(pod)]
        case (
            "in a gang with a member that is not evictable" | "needed for the minimum of a gang with a member that is not evictable"
        ):
            return [pod for pod in facts.unprotected() if _has_protected_member(facts, pod)]
    return None


def _has_protected_member(facts: SentenceFacts, pod: Pod) -> bool:
    gang = facts.s.gang_of(pod.uid)
    others = [] if gang is None else [other for other in gang.pods() if other.uid in facts.s.placements]
    return any(facts.is_protected(other) or facts.is_under_budget(other) or facts.is_young(other) for other in others)


def _first_evictable(facts: SentenceFacts, text: str) -> Iterator[str]:
    found = re.fullmatch(r"the first is evictable in (\d+) s", text)
    starts = [started_at(facts.s, pod) for pod in facts.unprotected() if facts.is_young(pod)]
    waits = {round(start + facts.s.rules.min_runtime_s - facts.s.now) for start in starts if start is not None}
    if found is None:
        yield f"no known form: {text}"
    elif int(found[1]) not in waits:
        yield f"pods become evictable in {sorted(waits)} s"


def _protected(facts: SentenceFacts, found: Match) -> Iterator[str]:
    yield from facts.at_most(found[1], [pod for pod in facts.could_evict() if facts.is_protected(pod)], "protected from eviction")


def _budget(facts: SentenceFacts, found: Match) -> Iterator[str]:
    if facts.s.budgets[found[1]].allowed != int(found[2]):
        yield f"it allows {facts.s.budgets[found[1]].allowed}"
    if not any(found[1] in budgets_over(pod, facts.s) for pod in facts.could_evict()):
        yield "it covers nobody who could be evicted"


def _nobody_lower(facts: SentenceFacts, _: Match) -> Iterator[str]:
    yield from (f"{pod.full_name} is of lower priority" for pod in facts.lower_in_own_queues())


def _nobody_at_all(facts: SentenceFacts, _: Match) -> Iterator[str]:
    yield from (f"{pod.full_name} is placed" for pod in facts.could_evict())


# -- who may be moved --------------------------------------------------------------------------------------------------------------


def _not_free(facts: SentenceFacts, found: Match) -> Iterator[str]:
    asked = total(request_of(pod) for pod in facts.missing)
    short = {name for name, amount in asked.items() if amount > facts.free(name)}
    said = re.findall(rf"({NAME}) (\S+) requested > (\S+) free", found[1])
    if short != {facts.resource(name) for name, _, _ in said}:
        yield f"{sorted(short)} is not free"
    for name, requested, free in said:
        resource = facts.resource(name)
        yield from facts.figure(requested, resource, asked.get(resource, 0), "requested")
        yield from facts.figure(free, resource, facts.free(resource), "free")


def _movable(facts: SentenceFacts, found: Match) -> Iterator[str]:
    """`2 pods may be moved, and no way to move them was found that makes it fit: 3 pods not declared as movable`, or `none of 3
    pods may be moved: ...`: everybody is counted once."""
    placed = facts.others_placed()
    movable = [pod for pod in placed if not any(why_not_movable(facts.s, pod, facts.gang)) and not facts.is_under_budget(pod)]
    if int(found[1] or 0) != len(movable):
        yield f"{len(movable)} pods may be moved"
    barred = 0
    for count, why in re.findall(r"(\d+) pods? ([^,:]+)", found[3] or ""):
        barred += int(count)
        reason = _NOT_MOVABLE.get(why)
        if reason is None:
            yield f"no known form: {why}"
        else:
            yield from facts.at_most(count, [pod for pod in placed if reason(facts, pod)], why)
    if barred != len(placed) - len(movable) or int(found[2] or barred) != barred:
        yield f"{len(placed)} pods are placed, {len(movable)} of them may be moved"


_NOT_MOVABLE: dict[str, Callable[[SentenceFacts, Pod], bool]] = {
    "not declared as movable": lambda _, pod: not pod.movable,
    "without a controller that creates them anew": lambda _, pod: not pod.controller,
    "protected from eviction": SentenceFacts.is_protected,
    "of a higher priority": lambda facts, pod: facts.priority(pod) > facts.gang.priority,
    "under a disruption budget that allows no eviction now": SentenceFacts.is_under_budget,
    "within the minimum run time of their gang": lambda facts, pod: has_just_started(facts.s, pod),
}


# -- queues ------------------------------------------------------------------------------------------------------------------------


def _over_limit(facts: SentenceFacts, found: Match) -> Iterator[str]:
    queue = facts.queues[found[2]]
    facts.in_trial = facts.in_trial or found[1] is not None
    for term in found[3].split(", "):
        figures = re.fullmatch(
            rf"({NAME}) (?:(\S+) used( by non-preemptible pods)? \+ )?(?:(\S+) reserved for non-preemptible jobs \+ )?"
            r"(\S+) requested > (\S+) (limit|max|min|left by the guarantees of others)",
            term,
        )
        if figures is None:
            yield f"no known form: {term}"
            continue
        name, is_min = facts.resource(figures[1]), figures[7] == "min"
        most = facts.s.queues[queue].deserved.get(name) if is_min else most_of(facts.s, queue, name)
        used = facts.used_by_non_preemptible(queue, name) if is_min else facts.used(queue, name)
        asked, kept = facts.requested(queue).get(name, 0), facts.kept_for_non_preemptible(queue, name)
        yield from facts.figure(figures[5], name, asked, "requested")
        yield from facts.figure(figures[6], name, most or 0, figures[7])
        if bool(figures[3]) is not is_min:
            yield "a minimum bounds what non-preemptible pods use, and only that"
        if figures[2] is not None and not facts.in_trial:
            yield from facts.figure(figures[2], name, used, "used")
        if figures[4] is not None and not facts.in_trial:
            yield from facts.figure(figures[4], name, kept, "reserved")
        if most is None or (not facts.in_trial and used + asked + (0 if figures[4] is None else kept) <= most):
            yield f"that is not more than {most}"


def _not_within_quota(facts: SentenceFacts, _: Match) -> Iterator[str]:
    if not facts.is_refused_by_quota():
        yield "it is within the bounds of its quota"


def _below_already(facts: SentenceFacts, found: Match) -> Iterator[str]:
    """What others before it took brought the queue below its share: it had as much, or more."""
    queue = facts.queues[found[1]]
    names = {name for pod in facts.could_evict() for name in request_of(pod)}
    had = any(share <= facts.used(queue, name) for name in names for share in facts.shares(queue, name))
    if not facts.in_trial or not had:
        yield "it is not, before anybody is evicted"
    yield from facts.at_most(found[2], _below(facts, queue), f"in {queue}")


def _within(facts: SentenceFacts, found: Match) -> Iterator[str]:
    queue = facts.queues[found[1]]
    for short, used, share in re.findall(rf"({NAME}) (\S+) of ([^\s,]+)", found[2]):
        name = facts.resource(short)
        yield from facts.usage(used, queue, name)
        yield from facts.share(share, queue, name)
        if not facts.in_trial and facts.used(queue, name) > max(facts.shares(queue, name), default=0):
            yield f"it is over its share of {name}"
    yield from facts.at_most(found[3], _below(facts, queue), f"in {queue}")


def _over_in_others(facts: SentenceFacts, found: Match) -> Iterator[str]:
    queue = facts.queues[found[1]]
    for name in map(facts.resource, found[2].split(", ")):
        if facts.used(queue, name) <= min(facts.shares(queue, name), default=0):
            yield f"it is within its share of {name}"
    yield from facts.at_most(found[3], _below(facts, queue), f"in {queue}")


def _frees_nothing(facts: SentenceFacts, found: Match) -> Iterator[str]:
    if not _below(facts, facts.queues[found[1]]) and facts.queues[found[1]] not in facts.s.path(facts.gang.queue):
        yield "it has no pods"


def _would_be_over(facts: SentenceFacts, found: Match) -> Iterator[str]:
    queue = facts.queues[found[2]]
    for short, asked, used, share in re.findall(rf"({NAME}) (\S+) requested \+ (\S+) used > (\S+) {WORD}", found[3]):
        name = facts.resource(short)
        yield from facts.figure(asked, name, facts.requested(queue).get(name, 0), "requested")
        yield from facts.share(share, queue, name)
        if found[1] is None:
            yield from facts.usage(used, queue, name)
        else:
            yield from facts.figure(used, name, facts.used_by_others_than_lower(queue, name), "used by others than those")
    yield from facts.at_most(found[4], facts.pods_of_other_queues(), "in other queues")


def _never(facts: SentenceFacts, found: Match) -> Iterator[str]:
    queue = facts.queues[found[1]]
    for short, asked, share in re.findall(rf"({NAME}) (\S+) requested > (\S+) {WORD}", found[2]):
        name = facts.resource(short)
        yield from facts.figure(asked, name, facts.requested(queue).get(name, 0), "requested")
        yield from facts.share(share, queue, name)
        if facts.requested(queue).get(name, 0) <= min(facts.shares(queue, name), default=0):
            yield "that is not more than it deserves"
    yield from facts.at_most(found[3], facts.pods_of_other_queues(), "in other queues")


def _borrows(facts: SentenceFacts, found: Match) -> Iterator[str]:
    queue = facts.queues[found[1]]
    if all(facts.shares(queue, name) for name in facts.requested(queue) if name != "pods"):
        yield "it has a share of all that it requests"


def _not_reclaimable(facts: SentenceFacts, found: Match) -> Iterator[str]:
    queue = facts.queues[found[1]]
    if facts.s.queues[queue].reclaimable:
        yield "it is reclaimable"
    yield from facts.at_most(found[2], _below(facts, queue), f"in {queue}")


def _would_fall_below(facts: SentenceFacts, found: Match) -> Iterator[str]:
    queue, name = facts.queues[found[1]], facts.resource(found[3])
    least = facts.s.queues[queue].guarantee.get(name) if found[2] == "guarantee" else min(facts.shares(queue, name), default=None)
    if least is None:
        yield f"it has no {found[2]} of {name}"
    elif found[2] != "guarantee":
        yield from facts.share(found[6], queue, name)
    yield from facts.usage(found[4], queue, name)


def _larger_share(facts: SentenceFacts, found: Match) -> Iterator[str]:
    if found[4] == "has" and not facts.in_trial:
        yield from _percent(found[5], dominant_share(facts.s, facts.ledger, facts.queues[found[3]]))
    if int(found[2]) < int(found[5]):
        yield "the first share is not larger"


def _below(facts: SentenceFacts, queue: str) -> list[Pod]:
    return [pod for pod in facts.pods_of_other_queues() if queue in facts.s.path(facts.s.queue_of(pod.uid))]


def _percent(text: str, value: Fraction) -> Iterator[str]:
    if abs(int(text) - 100 * value) > Fraction(51, 100):
        yield f"it is {float(100 * value):.1f} %"


# -- gangs of one group in several queues ------------------------------------------------------------------------------------------


def _takes_nothing(facts: SentenceFacts, found: Match) -> Iterator[str]:
    yield from _does_not_fit(facts, found)
    queue = facts.queues[found[1]]
    for pod in facts.unprotected():
        if pod in facts.lower_in_own_queues() and facts.s.queue_of(pod.uid) == queue and not facts.is_young(pod):
            yield f"{pod.full_name} is of lower priority there"


def _does_not_fit(facts: SentenceFacts, found: Match) -> Iterator[str]:
    members = facts.missing_in(facts.queues[found[1]])
    if not members or finds_capacity(facts.s, facts.gang, members):
        yield "it fits on what is free"


def _cannot_share_out(facts: SentenceFacts, _: Match) -> Iterator[str]:
    if len({facts.s.queue_of(pod.uid) for pod in facts.missing}) < 2:
        yield "its members are in one queue"


# -- evictions ---------------------------------------------------------------------------------------------------------------------


def _both_sides(facts: SentenceFacts, victim: Pod, text: str, *, is_moved: bool) -> Iterator[str]:
    if (found := re.fullmatch(r"priority (-?\d+) against (-?\d+)", text)) is not None:
        theirs, ours = facts.priority(victim), facts.gang.priority
        if (int(found[1]), int(found[2])) != (theirs, ours) or theirs > ours or (theirs == ours and not is_moved):
            yield f"the priorities are {theirs} and {ours}"
        return
    sides = re.findall(rf"{QUEUE} uses (.+?)(?=, (?:queue|quota) {NAME} uses |$)", text)
    if len(sides) != 2:
        yield f"no known form: {text}"
        return
    levels = [facts.queues[name] for name, _ in sides]
    if levels[0] not in facts.s.path(facts.s.queue_of(victim.uid)) or levels[1] not in facts.s.path(facts.gang.queue):
        yield "they are not the queues of the two"
    for level, (_, used) in zip(levels, sides, strict=True):
        yield from _usage(facts, level, used)


def _usage(facts: SentenceFacts, queue: str, text: str) -> Iterator[str]:
    if (found := re.fullmatch(r"(\d+)% of the cluster", text)) is not None:
        weight = max(facts.s.queues[queue].weight, 1) if queue in facts.s.queues else 1
        yield from _percent(found[1], dominant_share(facts.s, facts.ledger, queue) * weight)
    elif (found := re.fullmatch(rf"({AMOUNTS}) {WORD}", text)) is not None:
        for short, used, share in re.findall(rf"({NAME}) (\S+) of ([^\s,]+)", found[1]):
            yield from facts.usage(used, queue, facts.resource(short))
            yield from facts.share(share, queue, facts.resource(short))
    elif (found := re.fullmatch(r"(.+) and deserves none", text)) is not None:
        for short, used in (part.split(" ") for part in found[1].split(", ")):
            yield from facts.usage(used, queue, facts.resource(short))
            if facts.shares(queue, facts.resource(short)):
                yield f"{queue} has a share of {short}"
    else:
        yield f"no known form: {text}"


_NO_DOMAIN = r"no \S+(?: nor anything narrower)? fits (\d+) members?.*: best of \d+ is \S+, which fits (\d+) \(.+\)"
_MORE_THAN_FREE = rf"{NAME} \S+ requested > \S+ free"
_FORMS: list[tuple[str, Check]] = [
    (r"(\d+)/(\d+) members placed(?: in \S+)?, (\S+) fits nowhere: (.+)", _fits_nowhere),
    (r"even with every evictable pod evicted, (\d+) of (\d+) members? fits?: .+", _fits_in_part),
    (r"it would not fit even if (?:the one|all (\d+)) evictable gangs? (?:or|and) pods? were evicted", _would_not_fit),
    (r"it would fit into none of \d+ domains even if every evictable pod were evicted", _nobody_now),
    (_NO_DOMAIN, _no_domain),
    (r"it would fit(?: with tier .+ allowed)? in .+, for (\d+)|no higher tier fits it either", _wider_domain),
    (r"(\d+) pods? (?:is|are) protected from eviction", _protected),
    (rf"({_MORE_THAN_FREE}(?:, {_MORE_THAN_FREE})*)", _not_free),
    (r"(\d+) pods? may be moved, and no way to move them was found that makes it fit()(?:: (.+))?", _movable),
    (r"none of ()(\d+) pods? may be moved(?:: (.+))?", _movable),
    (r"no pod that it could evict is evictable now", _nobody_now),
    (r"the disruption budget (\S+) allows (\d+) at a time", _budget),
    (r"no pod of lower priority in its queue is placed", _nobody_lower),
    (r"no preemptible pod of lower priority is placed, in its quota or in a queue that is over its share", _nobody_lower),
    (r"no other queue has pods placed, and no pod of lower priority in its own is placed", _nobody_at_all),
    (rf"(even with every evictable pod evicted, )?{QUEUE}: ([^()]+ > [^()]+)", _over_limit),
    (r"a job must be within the bounds of its quota before pods are evicted for it", _not_within_quota),
    (rf"{QUEUE} is below its {SHARE} already{COUNTED}", _below_already),
    (rf"{QUEUE} is within its {SHARE}: ({AMOUNTS}){COUNTED}", _within),
    (rf"{QUEUE} is over its {SHARE} of (.+), of which the unit frees nothing{COUNTED}", _over_in_others),
    (rf"a unit of {QUEUE} frees nothing that is lacking", _frees_nothing),
    (rf"(even without its pods of lower priority, )?{QUEUE} would be over its {SHARE}: ({SUMS}){COUNTED}", _would_be_over),
    (rf"{QUEUE} can never reclaim that much: ({SUMS}){COUNTED}", _never),
    (rf"{QUEUE} has no deserved share of what it lacks: borrowing evicts nobody{COUNTED}", _borrows),
    (rf"{QUEUE} is not reclaimable{COUNTED}", _not_reclaimable),
    (
        rf"{QUEUE} would fall below its (guarantee|deserved share|fair share|minimum) of ({NAME}): "
        rf"(\S+) used - (\S+) evicted < (\S+?){COUNTED}",
        _would_fall_below,
    ),
    (
        rf"{QUEUE} would have a larger share of the cluster \((\d+)%\) than {QUEUE} (has|would keep) \((\d+)%\){COUNTED}",
        _larger_share,
    ),
    (rf"no pod may be evicted for its members in {QUEUE}, and they do not fit on free capacity", _takes_nothing),
    (rf"those of them that may be evicted for its members in {QUEUE} are too few for these", _does_not_fit),
    (r"its members in different queues cannot share them out: those that lack one may not have it", _cannot_share_out),
]
