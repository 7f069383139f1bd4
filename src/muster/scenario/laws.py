"""What must be true after every cycle of every scenario, whatever the policy.

Each law is judged from facts (pods, placements, nodes, effects) by plain sums over dictionaries: none of the code that it watches
takes part, except to be read. A breach is a bug in Muster, never in the world. What a law is for stands in its docstring.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from muster.engine.hooks import Policy
from muster.model.effects import Bind, Condition, Effect, Evict, GroupStatus, Hold, Nominate, Outcome, QueueStatus, Release, Spare
from muster.model.gang import Gang, MatchPolicy, Mode
from muster.model.pod import Phase, Pod
from muster.model.topology import DomainMember, TopologyAsk
from muster.plugins.topology import Topology
from muster.state.columns import Amounts
from muster.state.world import World

Sums = dict[str, int]

# Written anew on purpose: a law that shares these with the code it watches would believe whatever that says.
_FILLS_NODE = frozenset({Phase.HELD, Phase.BINDING, Phase.BOUND, Phase.LEAVING, Phase.OVERDUE})
_WILL_FILL_NODE = frozenset({Phase.NOMINATED, Phase.HELD, Phase.BINDING, Phase.BOUND, Phase.OVERDUE})
_SEATS = frozenset({Phase.HELD, Phase.BINDING, Phase.BOUND})
_STAYS_IN_QUEUE = frozenset({Phase.HELD, Phase.BINDING, Phase.BOUND})
_LIVES = frozenset(Phase)
_LEAVES = frozenset({Phase.LEAVING})
_PROMISED = frozenset({Phase.NOMINATED})


@dataclass(frozen=True, slots=True)
class Breach:
    law: str
    cycle: int
    now: float
    text: str

    def __str__(self) -> str:
        return f"cycle {self.cycle}: {self.law}: {self.text}"


@dataclass(slots=True)
class Past:
    """What a judge remembers from cycle to cycle."""

    claims: dict[str, dict[str, str]] = field(default_factory=dict)
    """Nominations after the cycle before: gang to pod to node."""
    binding: dict[str, str] = field(default_factory=dict)
    """Pods that were told to bind, and where, until that fails or they are gone."""
    going: dict[str, None] = field(default_factory=dict)
    """Pods that were told to go, until they are gone."""
    evictions: int = 0
    """Since something new happened outside."""


@dataclass(frozen=True, slots=True)
class Case:
    """One cycle, as the laws look at it."""

    world: World
    outcome: Outcome
    policy: Policy
    past: Past

    def phase(self, uid: str) -> Phase:
        placement = self.world.placements.get(uid)
        return Phase.PENDING if placement is None else placement.phase

    def placed(self) -> Iterator[Bind | Hold | Nominate]:
        for effect in self.outcome.effects:
            if isinstance(effect, Bind | Hold | Nominate):
                yield effect

    def gang_key(self, uid: str) -> str:
        member = self.world.members.get(uid)
        return "" if member is None else member.gang


class Judge:
    """Looks at every cycle. `news` tells it that something happened outside that may rightly cause evictions."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._past = Past()

    def news(self) -> None:
        self._past.evictions = 0

    def failed(self, uid: str) -> None:
        """A deed on this pod failed: it may be done again."""
        self._past.binding.pop(uid, None)
        self._past.going.pop(uid, None)

    def restarted(self, policy: Policy) -> None:
        """Another scheduler takes over; it knows what the cluster holds, and no more."""
        self._policy = policy
        self._past = Past(evictions=self._past.evictions)

    def look(self, world: World, outcome: Outcome) -> list[Breach]:
        case = Case(world, outcome, self._policy, self._past)
        found = [Breach(law, outcome.cycle, outcome.now, text) for law, judge in LAWS.items() for text in judge(case)]
        _remember(case)
        return found


# -- room --------------------------------------------------------------------------------------------------------------------------


def no_node_over_capacity(case: Case) -> Iterator[str]:
    """Where this cycle placed somebody, what stands there fits, in every resource that the newcomers ask for.

    Others may fill a node beyond its size, and a node may shrink: that is not because of us.
    """
    world = case.world
    for node, resources in _touched_resources(case).items():
        room = dict(world.nodes[node].allocatable.items) if node in world.nodes else None
        if room is None:
            yield f"{node} was given pods, and does not exist"
            continue
        for phases, what in ((_FILLS_NODE, "stands there"), (_WILL_FILL_NODE, "will stand there")):
            sums = _sum_on_node(world, node, phases)
            for name in sorted(resources):
                # A nomination counts on those who leave: what stands there now may be more than the node has.
                if phases is _FILLS_NODE and not resources[name]:
                    continue
                if sums.get(name, 0) > room.get(name, 0):
                    yield f"{node} has {room.get(name, 0)} of {name}, and {sums[name]} {what}"


def _touched_resources(case: Case) -> dict[str, dict[str, bool]]:
    """By node: the resources that this cycle's newcomers ask for, and whether one of them stands there now."""
    touched: dict[str, dict[str, bool]] = {}
    for effect in case.placed():
        pod = case.world.pods.get(effect.uid)
        now = not isinstance(effect, Nominate)
        for name, amount in pod.kind.request.items if pod is not None else ():
            if amount:
                here = touched.setdefault(effect.node, {})
                here[name] = here.get(name, False) or now
    return touched


def _sum_on_node(world: World, node: str, phases: frozenset[Phase]) -> Sums:
    sums: Sums = {}
    for uid, pod in world.on_node.get(node, {}).items():
        if world.placements[uid].phase in phases:
            _add(sums, pod)
    return sums


def no_device_over_capacity(case: Case) -> Iterator[str]:
    """Slots that this cycle gave out lie on devices that exist and have that much memory and that many cores left."""
    world = case.world
    for node in sorted({effect.node for effect in case.placed() if effect.devices}):
        devices = {device.index: device for device in world.nodes[node].devices} if node in world.nodes else {}
        taken: dict[int, tuple[int, int]] = {}
        for uid in world.on_node.get(node, {}):
            placement = world.placements[uid]
            for slot in placement.devices if placement.phase in _WILL_FILL_NODE else ():
                memory, cores = taken.get(slot.index, (0, 0))
                taken[slot.index] = (memory + slot.memory, cores + slot.cores)
        for index, (memory, cores) in sorted(taken.items()):
            device = devices.get(index)
            if device is None:
                yield f"{node} has no device {index}"
            elif memory > device.memory or cores > device.cores:
                yield f"device {index} of {node}: {memory} of {device.memory} memory and {cores} of {device.cores} cores taken"


def columns_are_sums(case: Case) -> Iterator[str]:
    """What the node table says is used and taken is what the placements add up to, row by row and resource by resource."""
    world = case.world
    used: dict[str, Sums] = {}
    taken: dict[str, Sums] = {}
    for uid, placement in world.placements.items():
        pod = world.pods.get(uid)
        if placement.node is None or pod is None:
            continue
        if placement.phase in _FILLS_NODE:
            _add(used.setdefault(placement.node, {}), pod)
        if placement.phase in _WILL_FILL_NODE:
            _add(taken.setdefault(placement.node, {}), pod)
    names = world.columns.names
    for row, name in enumerate(world.table.names):
        for figure, column, sums in (("used", world.table.used, used), ("taken", world.table.taken, taken)):
            yield from _unequal(f"{name}: {figure}", dict(zip(names, column[row].tolist(), strict=True)), sums.get(name, {}))


def _unequal(where: str, said: Mapping[str, int], sums: Mapping[str, int]) -> Iterator[str]:
    for name, value in said.items():
        if value != sums.get(name, 0):
            yield f"{where} {name} is {value}, and the pods add up to {sums.get(name, 0)}"


def _add(sums: Sums, pod: Pod) -> None:
    for name, amount in pod.kind.request.items:
        sums[name] = sums.get(name, 0) + amount


# -- queues ------------------------------------------------------------------------------------------------------------------------


def ledger_is_sum(case: Case) -> Iterator[str]:
    """Each queue's figures are the sums over its members and those of all queues below it, and none is negative."""
    world = case.world
    sums: dict[tuple[str, bool, Phase], Sums] = {}
    paths: dict[str, list[str]] = {}
    for uid, member in world.members.items():
        pod = world.pods.get(uid)
        if pod is None:
            yield f"member {uid} of {member.gang} is no live pod"
            continue
        path = paths.get(member.queue) or paths.setdefault(member.queue, _path_up(world, member.queue))
        for queue in path:
            _add(sums.setdefault((queue, member.preemptible, case.phase(uid)), {}), pod)
    for queue in world.ledger.names:
        for word, said, parts, phases in _figures(world, queue):
            expected = _total(sums.get((queue, part, phase), {}) for part in parts for phase in phases)
            amounts = dict(zip(world.columns.names, said.tolist(), strict=True))
            yield from _unequal(f"{queue}: {word}", amounts, expected)
            yield from (f"{queue}: {word} {name} is negative: {value}" for name, value in amounts.items() if value < 0)


def no_queue_over_limit(case: Case) -> Iterator[str]:
    """Where this cycle placed somebody, no queue above them but the root has more than its limit of what they ask for.

    A limit may be lowered below what is used, and a queue may move: that is not because of us.
    """
    world = case.world
    touched: dict[str, dict[str, bool]] = {}
    for effect in case.placed():
        member, pod = world.members.get(effect.uid), world.pods.get(effect.uid)
        for queue in _path_up(world, member.queue) if member is not None else ():
            for name, amount in pod.kind.request.items if pod is not None else ():
                here = touched.setdefault(queue, {})
                here[name] = here.get(name, False) or (amount > 0 and not isinstance(effect, Nominate))
    for queue, resources in touched.items():
        limits = dict(world.queues[queue].limit.items) if queue in world.queues else {}
        for phases, what in ((_STAYS_IN_QUEUE | _LEAVES, "used"), (_STAYS_IN_QUEUE | _PROMISED, "taken")):
            sums = _sum_in_queue(case, queue, phases) if limits else {}
            for name in sorted(resources.keys() & limits.keys()):
                if (phases & _PROMISED or resources[name]) and sums.get(name, 0) > limits[name]:
                    yield f"{queue} has a limit of {limits[name]} of {name}, and {sums[name]} {what}"


def _sum_in_queue(case: Case, queue: str, phases: frozenset[Phase]) -> Sums:
    sums: Sums = {}
    for uid, member in case.world.members.items():
        if case.phase(uid) in phases and queue in _path_up(case.world, member.queue):
            _add(sums, case.world.pods[uid])
    return sums


def _figures(world: World, queue: str) -> Iterator[tuple[str, Amounts, tuple[bool, ...], frozenset[Phase]]]:
    """What the ledger says of a queue: the figure's name, its amounts, whose pods it counts, and in which phases."""
    ledger, both = world.ledger, (True, False)
    yield "used", ledger.used(queue), both, _STAYS_IN_QUEUE | _LEAVES
    yield "taken", ledger.taken(queue), both, _STAYS_IN_QUEUE | _PROMISED
    yield "leaving", ledger.leaving(queue), both, _LEAVES
    yield "promised", ledger.promised(queue), both, _PROMISED
    for part, word in ((True, "preemptible"), (False, "non-preemptible")):
        yield f"{word} used", ledger.used_part(queue, preemptible=part), (part,), _STAYS_IN_QUEUE | _LEAVES
        yield f"{word} taken", ledger.taken_part(queue, preemptible=part), (part,), _STAYS_IN_QUEUE | _PROMISED
        yield f"{word} requested", ledger.requested_part(queue, preemptible=part), (part,), _LIVES


def _total(parts: Iterable[Sums]) -> Sums:
    total: Sums = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _path_up(world: World, queue: str) -> list[str]:
    """The queue and all above it. One whose parents lead back to itself is a child of the root."""
    path = [queue]
    while (parent := _parent(world, path[-1])) and parent not in path and not _leads_back(world, path[-1]):
        path.append(parent)
    return [*path, "root"]


def _leads_back(world: World, queue: str) -> bool:
    seen = [queue]
    while (parent := _parent(world, seen[-1])) and parent not in seen:
        seen.append(parent)
    return parent == queue


def _parent(world: World, queue: str) -> str:
    found = world.queues.get(queue)
    named = found.parent if found is not None else ""
    if named.startswith("quota/?/"):
        own = f"quota/{queue.split('/')[1]}/{named.rsplit('/', 1)[1]}"
        same = sorted((q.created, q.key) for q in world.queues.values() if q.is_quota and q.key.split("/")[2] == own.split("/")[2])
        named = own if own in world.queues else same[0][1] if same else ""
    return named if named in world.queues and named != "queue/root" else ""


# -- pods --------------------------------------------------------------------------------------------------------------------------


def no_pod_twice(case: Case) -> Iterator[str]:
    """A pod has one placement, stands on that node and no other, and every index says so."""
    world = case.world
    stands: dict[str, list[str]] = {}
    for node, here in world.on_node.items():
        for uid in here:
            stands.setdefault(uid, []).append(node)
    for uid, placement in world.placements.items():
        if uid not in world.pods:
            yield f"{uid} is placed on {placement.node}, and is no live pod"
        if stands.get(uid) != [placement.node]:
            yield f"{uid} is placed on {placement.node}, and stands on {', '.join(stands.get(uid, [])) or 'no node'}"
    for uid in sorted(stands.keys() - world.placements.keys()):
        yield f"{uid} stands on {stands[uid][0]}, and is not placed"
    yield from _index("claims", world.claims.keys(), case, frozenset({Phase.HELD, Phase.NOMINATED}))
    yield from _index("going", world.going.keys(), case, frozenset({Phase.LEAVING, Phase.OVERDUE}))
    yield from _unseated(case)


def _index(name: str, said: object, case: Case, phases: frozenset[Phase]) -> Iterator[str]:
    found = {uid for uid, placement in case.world.placements.items() if placement.phase in phases}
    if said != found:
        yield f"the index of {name} is wrong about {sorted(set(said) ^ found)}"  # type: ignore[call-overload]


def _unseated(case: Case) -> Iterator[str]:
    counts: dict[str, int] = {}
    for uid, member in case.world.members.items():
        if case.phase(uid) in (Phase.PENDING, Phase.NOMINATED, Phase.HELD):
            counts[member.gang] = counts.get(member.gang, 0) + 1
    if counts != case.world.unseated:
        wrong = sorted({gang for gang, _ in counts.items() ^ case.world.unseated.items()})
        yield f"the count of members without a seat is wrong for {', '.join(wrong)}"


def no_deed_twice(case: Case) -> Iterator[str]:
    """Nobody is told to bind, or to go, twice, unless the first time failed."""
    for effect in case.outcome.effects:
        match effect:
            case Bind(uid=uid, node=node) if uid in case.past.binding:
                yield f"{effect.pod} is bound to {node}, and was bound to {case.past.binding[uid]} before"
            case Evict(uid=uid) if uid in case.past.going:
                yield f"{effect.pod} is evicted a second time"


# -- gangs -------------------------------------------------------------------------------------------------------------------------


def strict_gang_whole(case: Case) -> Iterator[str]:
    """A strict gang that was given anything in this cycle has all that it needs at its end, and it never holds a node."""
    world = case.world
    touched = {case.gang_key(effect.uid): None for effect in case.placed()}
    for key in touched:
        gang = world.gangs.get(key)
        if gang is None or gang.mode is not Mode.STRICT:
            continue
        nominated = any(case.phase(pod.uid) is Phase.NOMINATED for pod in gang.pods())
        phases = _SEATS | {Phase.NOMINATED} if nominated else _SEATS
        yield from _below_min(case, gang, phases)
    for uid in sorted(world.claims):
        gang = world.gangs.get(case.gang_key(uid))
        if gang is not None and gang.mode is Mode.STRICT and case.phase(uid) is Phase.HELD:
            yield f"{gang.title} is strict, and {world.pods[uid].title} holds a node"


def _below_min(case: Case, gang: Gang, phases: frozenset[Phase]) -> Iterator[str]:
    bound = any(case.phase(pod.uid) is Phase.BOUND for pod in gang.pods())
    if gang.match is MatchPolicy.ONCE_SATISFIED and bound:
        return
    counted = phases - {Phase.BOUND} if gang.match is MatchPolicy.ONLY_WAITING else phases
    total = 0
    for role in gang.roles:
        seats = sum(case.phase(pod.uid) in counted for pod in role.pods) + role.succeeded
        total += seats
        if seats < role.min:
            yield f"{gang.title} was given seats, and its role {role.name or 'without a name'} has {seats} of {role.min}"
    if total < gang.min:
        yield f"{gang.title} was given seats, and has {total} of {gang.min}"


def everything_says_why(case: Case) -> Iterator[str]:
    """Every effect, and every gang that waits for a seat, has a sentence and a code."""
    for effect in case.outcome.effects:
        if not isinstance(effect, GroupStatus | QueueStatus) and not (effect.why.strip() and _code(effect).strip()):
            yield f"{type(effect).__name__} of {_subject(effect)} does not say why"
    if "allocate" not in case.policy.actions:
        return
    for gang in case.world.gangs.values():
        waits = [pod for pod in gang.pods() if case.phase(pod.uid) in (Phase.PENDING, Phase.NOMINATED, Phase.HELD)]
        verdict = case.world.attempts[gang.key].verdict
        if waits and (verdict is None or verdict.ok or not (verdict.why.strip() and verdict.code.strip())):
            yield f"{len(waits)} members of {gang.title} wait, and nothing says why"


def _code(effect: Bind | Hold | Nominate | Release | Evict | Spare | Condition) -> str:
    return effect.code if isinstance(effect, Condition) else effect.cause


def _subject(effect: Effect) -> str:
    match effect:
        case Condition(subject=subject, key=key):
            return f"{subject} {key}"
        case GroupStatus(group=key) | QueueStatus(key=key):
            return key
        case _:
            return effect.pod


def hard_topology_holds(case: Case) -> Iterator[str]:
    """A gang that asks for one domain, and was given anything in this cycle, lies in one domain at or below its highest tier."""
    for key in {case.gang_key(effect.uid): None for effect in case.placed()}:
        gang = case.world.gangs.get(key)
        if gang is None:
            continue
        yield from _scattered(case, gang.title, gang.topology, gang.pods())
        for cell in gang.cells:
            members = tuple(pod for pod in gang.pods() if pod.uid in cell.members)
            yield from _scattered(case, f"cell {cell.title} of {gang.title}", cell.topology, members)


def _scattered(case: Case, title: str, ask: TopologyAsk | None, pods: tuple[Pod, ...]) -> Iterator[str]:
    seats = {case.world.placements[pod.uid].node or "" for pod in pods if case.phase(pod.uid) in _SEATS | {Phase.NOMINATED}}
    # A node is a domain below all others.
    if ask is None or not ask.hard or len(seats) < 2:
        return
    domains = list(_domains(case))
    highest = _highest_tier(ask, domains)
    if highest is None or highest > max((tier for tier, _, _ in domains), default=1):
        return
    if not any(tier <= highest and seats <= nodes for tier, _, nodes in domains):
        yield f"{title} must lie in one domain of tier {highest} or below, and lies on {', '.join(sorted(seats))}"


def _highest_tier(ask: TopologyAsk, domains: list[tuple[int, str, set[str]]]) -> int | None:
    if ask.highest_tier_name:
        return next((tier for tier, name, _ in domains if name == ask.highest_tier_name), None)
    return ask.highest_tier


def _domains(case: Case) -> Iterator[tuple[int, str, set[str]]]:
    """Tier, name of the tier and nodes of every domain: HyperNodes, and what the labels in the policy make of all other nodes."""
    world = case.world
    loose = set(world.nodes)
    for domain in world.domains.values():
        nodes = _nodes_in(world, domain.name)
        loose -= nodes
        yield domain.tier, domain.tier_name, nodes
    tiers = next((plugin.tiers for plugin in case.policy.plugins if isinstance(plugin, Topology)), {})
    labels = list(tiers.values())
    for tier, name in enumerate(tiers, start=1):
        by_values: dict[tuple[str | None, ...], set[str]] = {}
        for node in sorted(loose):
            values = tuple(world.nodes[node].labels.get(label) for label in labels[tier - 1 :])
            if values[0] is not None:
                by_values.setdefault(values, set()).add(node)
        for nodes in by_values.values():
            yield tier, name, nodes


def _nodes_in(world: World, domain: str, seen: frozenset[str] = frozenset()) -> set[str]:
    if domain not in world.domains or domain in seen:
        return set()
    nodes: set[str] = set()
    for member in world.domains[domain].members:
        if member.is_node:
            nodes.update(name for name, node in world.nodes.items() if _selects(member, name, node.labels))
        else:
            for name in world.domains:
                if _selects(member, name, {}):
                    nodes |= _nodes_in(world, name, seen | {domain})
    return nodes


def _selects(member: DomainMember, name: str, labels: Mapping[str, str]) -> bool:
    if member.exact:
        return member.exact == name
    if member.regex:
        return re.search(member.regex, name) is not None
    return member.labels is not None and member.labels.selects(labels)


# -- evictions ---------------------------------------------------------------------------------------------------------------------


def eviction_has_beneficiary(case: Case) -> Iterator[str]:
    """Nobody is evicted for nothing: whoever it is for was promised all that it needs."""
    world = case.world
    for effect in case.outcome.effects:
        if not isinstance(effect, Evict):
            continue
        gang = next((gang for gang in world.gangs.values() if effect.for_gang in (gang.key, gang.title)), None)
        if gang is None:
            yield f"{effect.pod} is evicted for {effect.for_gang or 'nobody'}, which is no gang"
        elif not any(case.phase(pod.uid) is Phase.NOMINATED for pod in gang.pods()):
            yield f"{effect.pod} is evicted for {gang.title}, which was promised nothing"
        else:
            yield from (f"{effect.pod} is evicted, and {text}" for text in _below_min(case, gang, _SEATS | {Phase.NOMINATED}))


def nobody_served_is_victim(case: Case) -> Iterator[str]:
    """A gang that was given something in a cycle is not evicted in the same cycle."""
    served = {case.gang_key(effect.uid): effect for effect in case.placed() if isinstance(effect, Bind | Hold)}
    for effect in case.outcome.effects:
        if isinstance(effect, Evict) and case.gang_key(effect.uid) in served:
            yield f"{effect.pod} is evicted, and its gang was given {served[case.gang_key(effect.uid)].node} in the same cycle"


def redeemable_gang_evicts_nobody(case: Case) -> Iterator[str]:
    """A gang that was promised all it needs, and still has every promise, causes no further eviction."""
    world = case.world
    for effect in case.outcome.effects:
        if not isinstance(effect, Evict):
            continue
        gang = next((gang for gang in world.gangs.values() if effect.for_gang in (gang.key, gang.title)), None)
        claims = case.past.claims.get(gang.key, {}) if gang is not None else {}
        kept = all((now := world.placements.get(uid)) is not None and now.node == node for uid, node in claims.items())
        if gang is not None and claims and kept and len(claims) >= gang.min:
            yield f"{effect.pod} is evicted for {gang.title}, whose {len(claims)} promises all stood"


def evictions_end(case: Case) -> Iterator[str]:
    """With nothing new from outside there are not more evictions than pods could ever justify."""
    bound = 4 * len(case.world.pods) + 20
    if case.past.evictions > bound:
        yield f"{case.past.evictions} evictions since anything new happened, with {len(case.world.pods)} pods in all"


LAWS: dict[str, Callable[[Case], Iterator[str]]] = {
    "no node over capacity": no_node_over_capacity,
    "no device over capacity": no_device_over_capacity,
    "node columns are sums": columns_are_sums,
    "the ledger is a sum": ledger_is_sum,
    "no queue over its limit": no_queue_over_limit,
    "no pod twice": no_pod_twice,
    "no deed twice": no_deed_twice,
    "a strict gang is whole": strict_gang_whole,
    "everything says why": everything_says_why,
    "hard topology holds": hard_topology_holds,
    "an eviction has a beneficiary": eviction_has_beneficiary,
    "nobody served is a victim": nobody_served_is_victim,
    "a redeemable gang evicts nobody": redeemable_gang_evicts_nobody,
    "evictions come to an end": evictions_end,
}
NO_TRACE = "a rolled-back trial leaves no trace"
SAME_AGAIN = "same input, same output"


def _remember(case: Case) -> None:
    world, past = case.world, case.past
    past.binding = {uid: node for uid, node in past.binding.items() if uid in world.pods}
    past.going = {uid: None for uid in past.going if uid in world.pods}
    for effect in case.outcome.effects:
        if isinstance(effect, Bind):
            past.binding[effect.uid] = effect.node
        elif isinstance(effect, Evict):
            past.going[effect.uid] = None
            past.evictions += 1
    past.claims = {}
    for uid in world.claims:
        placement = world.placements[uid]
        if placement.phase is Phase.NOMINATED:
            past.claims.setdefault(case.gang_key(uid), {})[uid] = placement.node or ""
