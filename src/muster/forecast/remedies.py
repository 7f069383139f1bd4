"""The smallest changes that make a gang run. Each is tried: the objects are changed, a cycle decides, and all of it is undone.

One world serves all of them, so that a try costs a cycle and not a cluster. A cycle is looked at before it is committed; until then
the journal can undo it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from muster.engine.consolidate.movable_pods import CONSOLIDATE
from muster.engine.cycle import run_session
from muster.engine.explain import plural
from muster.engine.hooks import Policy
from muster.engine.session import Session
from muster.forecast.start_time import MayGoOn, always
from muster.model.budget import Budget
from muster.model.events import ClusterObject, Delete, PriorityClass, Upsert
from muster.model.gang import Gang, PodGroup
from muster.model.node import Node
from muster.model.pod import PLACED_OR_NOMINATED, ApiFlavour, Phase, Pod
from muster.model.queue import Queue, show_queue
from muster.model.resource_amounts import CPU, MEMORY, Resources, short_name, show_amount, written
from muster.scheduler import new_store
from muster.state.placements import Step
from muster.state.trial import Trial
from muster.state.world import World

HOSTNAME = "kubernetes.io/hostname"
PLANNED = "planned-"
"""Begins the UID of an object that is not in the cluster yet: no command can change it there."""
_COMMIT = "commit"
_MANY = 1 << 62
"""Above every version that an API server gives: what is changed here is newer than what was read."""
_MAX_CLASSES, _MAX_BUDGETS, _MAX_TIERS = 4, 6, 4
_GROUP_RESOURCES = {
    ApiFlavour.VOLCANO: "podgroups.scheduling.volcano.sh",
    ApiFlavour.SIGS: "podgroups.scheduling.x-k8s.io",
    ApiFlavour.KOORDINATOR: "podgroups.scheduling.sigs.k8s.io",
}


@dataclass(frozen=True, slots=True)
class Remedy:
    """With this change the gang runs; with `evicts` above zero after so many pods are evicted for it."""

    what: str
    evicts: int
    command: str = ""
    """Makes the change; empty where it is one to the job itself. Of a job that is not submitted it is the option that plans so."""


@dataclass(frozen=True, slots=True)
class _Try:
    """What is different: objects as they are now, and as they would be. New ones have no former self."""

    what: str
    objects: tuple[tuple[ClusterObject | None, ClusterObject], ...]
    command: str = ""
    policy: Policy | None = None
    """The policy as it would be, where that is what is different."""

    def __add__(self, other: _Try) -> _Try:
        command = " && ".join(filter(None, (self.command, other.command)))
        return _Try(f"{self.what} and {other.what}", (*self.objects, *other.objects), command, self.policy or other.policy)


_SameKind = Sequence[Callable[[], _Try]]
"""Changes of one kind, the smallest first."""


class _DecidedError(Exception):
    """The cycle has decided, and is not committed."""


class _RemedySearch:
    def __init__(
        self,
        policy: Policy,
        objects: Sequence[ClusterObject],
        gang: Gang,
        *,
        now: float,
        limit: Callable[[], MayGoOn],
        bounds_cycles: bool,
    ) -> None:
        self.cut_short = False
        """The time was over before all was tried."""
        self._policy, self._objects, self._now = policy, objects, now
        self._may_go_on = limit()
        self._within = self._may_go_on if bounds_cycles else always
        self._store = new_store(policy)
        self._versions = count(_MANY)
        for obj in objects:
            self._store.fold(Upsert(obj))
        world = self._store.world(now)
        self._gang = world.facts.gangs[gang.key]
        self._uids = {pod.uid for pod in gang.pods()}
        self._groups = [obj for obj in objects if isinstance(obj, PodGroup) and obj.key in {role.group for role in gang.roles}]

    def remedies(self) -> list[Remedy]:
        """One of each kind: those that evict nobody first, the smallest change of a job before one of the cluster."""
        found = list(self._found(None))
        if not found:
            # A limit bars it, and something else, too: what would do beside a higher limit?
            limits = [family[0]() for family in self._limits() if family]
            base = limits[0] if limits else None
            found = list(self._found(base)) if base is not None else []
        return sorted(found, key=lambda remedy: remedy.evicts > 0)

    def _found(self, base: _Try | None) -> Iterator[Remedy]:
        for family in self._families(skip_limits=base is not None):
            if (best := self._smallest(family, base)) is not None:
                yield best[0]
        yield from self._fewest_nodes(base)
        for family in self._without_budgets():
            if (best := self._smallest(family, base)) is not None:
                yield best[0]

    def _families(self, *, skip_limits: bool) -> Iterator[_SameKind]:
        yield self._moves()
        yield self._fewer_members()
        yield from self._smaller_requests()
        yield self._other_tiers()
        yield self._classes()
        yield from () if skip_limits else self._limits()
        yield self._deserved()

    def _smallest(self, family: _SameKind, base: _Try | None) -> tuple[Remedy, int] | None:
        """With how many smaller ones there are. Bisected: of a long family most is never tried. What is returned was."""
        low, high, best = 0, len(family) - 1, None
        while low <= high:
            if not self._may_go_on():
                self.cut_short = True
                return best
            # The largest change first: where it does not help, no smaller one is worth a cycle.
            middle = high if best is None else (low + high) // 2
            found = self._tried(family[middle]() if base is None else base + family[middle]())
            if found is None and best is None:
                return None
            if found is None:
                low = middle + 1
            else:
                best, high = (found, middle), middle - 1
        return best

    # -- one try ---------------------------------------------------------------------------------------------------------------

    def _tried(self, each: _Try) -> Remedy | None:
        for _, now in each.objects:
            self._fold(now)
        world = self._store.world(self._now)
        world.placements.clear_journal()
        try:
            with Trial(world, why="", cause=""):
                session = Session(world, each.policy or self._policy)
                session.may_search = lambda gang: gang == self._gang.key or self._within()
                try:
                    run_session(session, on_step=self._stop_before_commit)
                except _DecidedError:
                    return self._decided(world, each) if self._is_whole() else None
                return None
        finally:
            for before, now in each.objects:
                if before is not None:
                    self._fold(before)
                else:
                    assert isinstance(now, Node)
                    self._store.fold(Delete("Node", now.name, next(self._versions)))

    def _is_whole(self) -> bool:
        """Was all of the cycle decided? Once the time is over, what others would have had evicted is not known."""
        if self._within():
            return True
        self.cut_short = True
        return False

    def _fold(self, obj: ClusterObject) -> None:
        self._store.fold(Upsert(replace(obj, version=next(self._versions))))

    @staticmethod
    def _stop_before_commit(step: str) -> None:
        if step == _COMMIT:
            raise _DecidedError

    def _decided(self, world: World, each: _Try) -> Remedy | None:
        gang = world.facts.gangs.get(self._gang.key)
        placed = sum(world.phase(pod) in PLACED_OR_NOMINATED for pod in gang.pods()) if gang is not None else 0
        if gang is None or not placed or placed < gang.min:
            return None
        steps = [step for step in world.placements.journal if isinstance(step, Step)]
        victims = {step.pod.uid for step in steps if step.for_gang and world.phase(step.pod) is Phase.TERMINATING}
        nominated = any(world.phase(pod) is Phase.NOMINATED for pod in gang.pods())
        if each.policy is not None and nominated:
            return Remedy(f"{each.what}: {_moved_text(world, gang)}", 0, each.command)
        return Remedy(each.what, len(victims) if nominated else 0, each.command)

    # -- the policy -------------------------------------------------------------------------------------------------------------

    def _moves(self) -> _SameKind:
        """Off by default: what would the action do that moves pods together?"""
        policy = self._policy
        may_move = bool(policy.settings.movable_queues) or any(isinstance(obj, Pod) and obj.movable for obj in self._objects)
        if CONSOLIDATE in policy.actions or "allocate" not in policy.actions or not may_move:
            return ()
        at = policy.actions.index("allocate") + 1
        actions = (*policy.actions[:at], CONSOLIDATE, *policy.actions[at:])
        other = Policy(policy.plugins, actions, settings=policy.settings, source=policy.source)
        return [lambda: _Try("the policy has the action consolidate", (), policy=other)]

    # -- the job ---------------------------------------------------------------------------------------------------------------

    def _fewer_members(self) -> _SameKind:
        if len(self._groups) != 1 or len(self._gang.roles) != 1 or self._gang.min < 2:
            return ()
        [group] = self._groups

        return [partial(_fewer, group, number) for number in range(self._gang.min - 1, 0, -1)]

    def _smaller_requests(self) -> Iterator[_SameKind]:
        pods = [pod for pod in self._gang.pods() if pod.node is None]
        for resource in sorted({name for pod in pods for name in pod.signature.request}, key=_by_worth):
            most = max(pod.signature.request[resource] for pod in pods)
            if most < 2 or resource == "pods":
                continue
            steps = range(most - 1, 0, -1) if most <= 64 else [most * tenths // 10 for tenths in range(9, 0, -1)]
            yield [partial(_smaller, pods, resource, to) for to in steps]

    def _other_tiers(self) -> _SameKind:
        found: list[Callable[[], _Try]] = []
        for group in self._groups:
            topology = group.topology
            if topology is None or not topology.hard or topology.highest_tier is None:
                continue
            for tier in range(topology.highest_tier + 1, topology.highest_tier + _MAX_TIERS + 1):
                wider = replace(group, topology=replace(topology, highest_tier=tier))
                is_volcano = group.flavour is ApiFlavour.VOLCANO
                command = _patch(group, {"networkTopology": {"highestTierAllowed": tier}}) if is_volcano else ""
                made = _Try(f"tier {tier} were allowed", ((group, wider),), command)
                found.append(partial(_same, made))
        return found

    def _classes(self) -> _SameKind:
        higher = [obj for obj in self._objects if isinstance(obj, PriorityClass) and obj.value > self._gang.priority]
        return [partial(self._of_class, each) for each in sorted(higher, key=lambda each: each.value)]

    def _of_class(self, found: PriorityClass) -> _Try:
        changed: list[tuple[ClusterObject | None, ClusterObject]] = []
        for pod in self._gang.pods():
            changed.append((pod, replace(pod, priority=found.value, priority_class=found.name)))
        for group in self._groups:
            value = None if group.priority is None else found.value
            changed.append((group, replace(group, priority=value, priority_class=found.name)))
        volcano = [group for group in self._groups[:1] if group.flavour is ApiFlavour.VOLCANO]
        command = "".join(_patch(group, {"priorityClassName": found.name}) for group in volcano)
        if any(group.uid.startswith(PLANNED) for group in self._groups):
            command = f"--priority {found.name}"
        return _Try(f"its priority class were {found.name}", tuple(changed), command)

    # -- the cluster -----------------------------------------------------------------------------------------------------------

    def _path(self) -> list[Queue]:
        world = self._store.world(self._now)
        return [node for key in world.ledger.path(self._gang.queue) if (node := world.facts.tree.nodes.get(key)) is not None]

    def _needed(self, queue: Queue, bound: Resources) -> Resources:
        """The bound, with as much as the queue would use with this gang."""
        world = self._store.world(self._now)
        asked = Counter[str]()
        for pod in self._gang.pods():
            if pod.node is None:
                asked.update(dict(pod.signature.request.items))
        used = world.ledger.planned(queue.key).tolist()
        position = world.columns.position
        return Resources.of(
            {name: max(value, used[position[name]] + asked[name]) if name in position else value for name, value in bound.items}
        )

    def _limits(self) -> Iterator[_SameKind]:
        for queue in self._path():
            limit = self._needed(queue, queue.limit)
            if limit != queue.limit:
                made = self._bound("limit", queue, replace(queue, limit=limit), queue.limit, limit)
                yield (partial(_same, made),)

    def _deserved(self) -> _SameKind:
        for queue in self._path():
            deserved = self._needed(queue, queue.deserved)
            if deserved != queue.deserved:
                made = self._bound("deserved share", queue, replace(queue, deserved=deserved), queue.deserved, deserved)
                return (partial(_same, made),)
        return ()

    def _bound(self, name: str, queue: Queue, larger: Queue, before: Resources, after: Resources) -> _Try:
        raised = {key: value for key, value in after.items if value != before[key]}
        amounts = ", ".join(f"{short_name(key)} {show_amount(key, value)}" for key, value in raised.items())
        spec = {key: written(key, value) for key, value in raised.items()}
        if queue.is_quota:
            namespace, _, own = queue.key.removeprefix("quota/").rpartition("/")
            key = "max" if name == "limit" else "min"
            command = f"kubectl -n {namespace} patch elasticquotas {own} {_merge({key: spec})}"
        else:
            key = "capability" if name == "limit" else "deserved"
            command = f"kubectl patch queues.scheduling.volcano.sh {queue.name} {_merge({key: spec})}"
        return _Try(f"the {name} of {show_queue(queue.key)} were {amounts}", ((queue, larger),), command)

    def _fewest_nodes(self, base: _Try | None) -> Iterator[Remedy]:
        """Of each kind of hardware. Where nodes of one kind differ in labels, such as the rack, those of which it needs fewest."""
        kinds: dict[object, dict[object, list[Node]]] = {}
        for obj in self._objects:
            if isinstance(obj, Node) and not obj.unschedulable:
                labels = tuple(sorted((key, value) for key, value in obj.labels.items() if key != HOSTNAME))
                kinds.setdefault((obj.allocatable, obj.taints), {}).setdefault(labels, []).append(obj)
        by_size = sorted(kinds.values(), key=lambda kind: sum(map(len, kind.values())), reverse=True)
        for classes in by_size[:_MAX_CLASSES]:
            best, most = None, self._gang.size
            for like, *_ in sorted(classes.values(), key=len, reverse=True)[:_MAX_CLASSES]:
                found = self._smallest([partial(_nodes_like, like, more) for more in range(1, most + 1)], base)
                if found is not None:
                    best, most = found
            if best is not None:
                yield best

    def _without_budgets(self) -> Iterator[_SameKind]:
        budgets = [obj for obj in self._objects if isinstance(obj, Budget)]
        for budget in [each for each in budgets if each.allowed < len(self._uids)][:_MAX_BUDGETS]:
            made = _Try(f"disruption budget {budget.key} allowed it", ((budget, replace(budget, allowed=1 << 20)),))
            yield (partial(_same, made),)


def _same(made: _Try) -> _Try:
    return made


def _moved_text(world: World, gang: Gang) -> str:
    victims = {move.reserve.victim for move in world.memory.moves.values() if move.for_gang == gang.key}
    gangs = plural(len({world.facts.members[uid].gang for uid in victims}), "gang", "gangs")
    return f"{plural(len(victims), 'pod', 'pods')} of {gangs} {'is' if len(victims) == 1 else 'are'} moved, and nobody ends"


def _fewer(group: PodGroup, number: int) -> _Try:
    declared = replace(group.declared, min=number if group.declared.min is not None else None)
    smaller = replace(group, min_member=number, declared=declared)
    command = f"--min {number}" if group.uid.startswith(PLANNED) else _patch(group, {"minMember": number})
    return _Try(f"its minimum were {number}", ((group, smaller),), command)


def _smaller(pods: Sequence[Pod], resource: str, to: int) -> _Try:
    return _Try(
        f"each member asked for at most {show_amount(resource, to)} {short_name(resource)}",
        tuple((pod, _with_request(pod, resource, to)) for pod in pods),
    )


def _patch(group: PodGroup, spec: dict[str, object]) -> str:
    resource = None if group.uid.startswith(PLANNED) else _GROUP_RESOURCES.get(group.flavour)
    return f"kubectl -n {group.namespace} patch {resource} {group.name} {_merge(spec)}" if resource else ""


def _nodes_like(like: Node, more: int) -> _Try:
    names = [f"{like.name}-more-{number}" for number in range(1, more + 1)]
    made = [replace(like, name=name, uid=name, labels={**like.labels, HOSTNAME: name}) for name in names]
    nodes = "one more node" if more == 1 else f"{more} more nodes"
    return _Try(f"there were {nodes} like {like.name}", tuple((None, node) for node in made))


def _with_request(pod: Pod, resource: str, to: int) -> Pod:
    before = pod.signature.request
    request = Resources.of({name: min(value, to) if name == resource else value for name, value in before.items})
    devices = tuple(
        replace(each, count=min(each.count, to)) if each.count == before[resource] else each for each in pod.signature.devices
    )
    return replace(pod, signature=replace(pod.signature, request=request, devices=devices))


def _by_worth(resource: str) -> tuple[bool, str]:
    """Devices first: they are what lacks, mostly."""
    return resource in (CPU, MEMORY), resource


def _merge(spec: dict[str, object]) -> str:
    return f"--type merge -p '{json.dumps({'spec': spec}, separators=(',', ':'))}'"


def remedies_of(
    policy: Policy,
    objects: Iterable[ClusterObject],
    gang: Gang,
    *,
    now: float,
    limit: Callable[[], MayGoOn],
    bounds_cycles: bool = True,
) -> tuple[tuple[Remedy, ...], bool]:
    """Those that were found, and whether the time was over before all were tried. Reading the cluster again counts. The limit is
    asked before every try, and, unless it counts these (`bounds_cycles`), within each."""
    if not limit()():
        return (), True
    search = _RemedySearch(policy, tuple(objects), gang, now=now, limit=limit, bounds_cycles=bounds_cycles)
    return tuple(search.remedies()), search.cut_short
