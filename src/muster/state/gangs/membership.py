"""Who belongs to which gang and is charged to which queue. The bridge from gangs, which come and go, to the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from muster.model.gang import Gang, Role, changed
from muster.model.pod import UNBOUND, Phase, Pod
from muster.model.queue import PREEMPTIBLE_LABEL
from muster.model.resource_amounts import Resources
from muster.model.topics import Topic
from muster.state.facts import Member
from muster.state.memory import NOT_ATTEMPTED
from muster.state.world import World


class GangMembership:
    def __init__(self, world: World, *, preemptible_by_default: bool = True) -> None:
        self._world = world
        self._by_default = preemptible_by_default
        self._pods: dict[str, Pod] = {}
        """Each enlisted pod as it was when it was charged."""

    def with_queues(self, gang: Gang) -> Gang:
        """The gang with each role in the queue that it belongs to, as the tree of queues is now."""
        roles = tuple(self._in_queue(gang, role) for role in gang.roles)
        return gang if all(a is b for a, b in zip(roles, gang.roles, strict=True)) else changed(gang, roles=roles)

    def _in_queue(self, gang: Gang, role: Role) -> Role:
        queue = self._world.facts.tree.settle(role.named_queue, namespace=_namespace(gang, role))
        return role if role.queue == queue else changed(role, queue=queue)

    def add_gang(self, gang: Gang) -> None:
        """The gang as it is now: its pods are its members, charged to their queues."""
        world = self._world
        self._note_evictable(gang)
        self._index(gang)
        world.changes.gangs.add(gang.key)
        attempts = world.memory.attempts.get(gang.key, NOT_ATTEMPTED)
        started = gang.started if attempts.started is None else attempts.started
        world.memory.attempts.set(gang.key, replace(attempts, verdict=None, started=started))
        world.columns.require(gang.min_resources)
        for role in gang.roles:
            for member, joined in self._joined(gang, role):
                for pod in joined:
                    self.remove_pod(pod)
                    world.facts.members[pod.uid] = member
                    self._pods[pod.uid] = pod
                self._charge(joined, member, sign=1)

    def _note_evictable(self, gang: Gang) -> None:
        """Gangs that are refused because nobody may be evicted for them wait for a change of this in placed gangs."""
        world = self._world
        before = world.facts.gangs.get(gang.key)
        placed = [pod for pod in gang.pods() if pod.uid in world.placements.by_uid]
        known = [world.facts.members.get(pod.uid) for pod in placed]
        is_another = before is not None and _evicted_by(before) != _evicted_by(gang)
        if placed and (is_another or any(member is not None and member.gang != gang.key for member in known)):
            world.changes.bump(Topic.EVICTABLE)

    def swap(self, key: str, pods: Mapping[str, Pod]) -> None:
        """The same gang with newer objects of some members, which change neither membership nor requests."""
        world = self._world
        gang = world.facts.gangs.get(key)
        if gang is None:
            return
        roles = tuple(changed(role, pods=tuple(pods.get(pod.uid, pod) for pod in role.pods)) for role in gang.roles)
        world.facts.gangs[key] = changed(gang, roles=roles)
        world.changes.gangs.add(key)
        world.memory.retry(key)
        # What a queue tells of its gangs may be another number now.
        world.changes.ledger.extend([role.queue for role in roles])

    def _index(self, gang: Gang) -> None:
        world = self._world
        before = world.facts.gangs.get(gang.key)
        world.facts.gangs[gang.key] = gang
        if before is not None:
            self._remove_from_queues(before)
        for role in gang.roles:
            world.facts.gangs_in_queue.setdefault(role.queue, {})[gang.key] = None
        if any(role.pods or role.terminating or role.gated or role.succeeded or role.failed for role in gang.roles):
            world.facts.without_pods.pop(gang.key, None)
        else:
            world.facts.without_pods[gang.key] = None

    def _remove_from_queues(self, gang: Gang) -> None:
        for role in gang.roles:
            gangs = self._world.facts.gangs_in_queue.get(role.queue, {})
            gangs.pop(gang.key, None)
            if not gangs:
                self._world.facts.gangs_in_queue.pop(role.queue, None)
            # A gang without members changes no amount, but the queue has one gang less to report.
            self._world.changes.ledger.add(role.queue)

    def _joined(self, gang: Gang, role: Role) -> Iterable[tuple[Member, list[Pod]]]:
        """The pods of a role that take part otherwise than before, or not yet: preemptible ones, then the others."""
        members = self._world.facts.members
        parts = tuple(Member(gang.key, role.name, role.queue, preemptible) for preemptible in (True, False))
        joined: tuple[list[Pod], list[Pod]] = ([], [])
        for pod in role.pods:
            part = 0 if self._is_preemptible(pod) else 1
            if members.get(pod.uid) != parts[part]:
                joined[part].append(pod)
        return [*((member, pods) for member, pods in zip(parts, joined, strict=True) if pods), *self._terminating(gang, role)]

    def _terminating(self, gang: Gang, role: Role) -> Iterator[tuple[Member, list[Pod]]]:
        """A terminating pod stays charged to its queue, also when its PodGroup, which named the queue, was deleted first."""
        for pod in role.terminating:
            known = self._world.facts.members.get(pod.uid)
            queue = known.queue if known is not None else role.queue
            member = Member(gang.key, role.name, queue, self._is_preemptible(pod))
            if known != member:
                yield member, [pod]

    def _is_preemptible(self, pod: Pod) -> bool:
        label = pod.labels.get(PREEMPTIBLE_LABEL)
        return self._by_default if label is None else label != "false"

    def remove_pod(self, pod: Pod) -> None:
        """The pod takes part no more: what it was charged is given back."""
        member = self._world.facts.members.get(pod.uid)
        if member is not None:
            self._charge([self._pods.pop(pod.uid)], member, sign=-1)
            del self._world.facts.members[pod.uid]
            self._world.placements.queue_capacity_freed(member.queue)

    def remove_gang(self, key: str) -> None:
        world = self._world
        gang = world.facts.gangs.pop(key, None)
        if gang is not None:
            self._remove_from_queues(gang)
            world.changes.bump(Topic.DEMAND)
        world.changes.gangs.add(key)
        world.memory.forget_gang(key)
        world.facts.without_pods.pop(key, None)

    def charge_all(self) -> None:
        """After the ledger was laid out anew."""
        self._world.placements.unplaced_members.clear()
        by_member: dict[Member, list[Pod]] = {}
        for uid, member in self._world.facts.members.items():
            by_member.setdefault(member, []).append(self._pods[uid])
        for member, pods in by_member.items():
            self._charge(pods, member, sign=1)
        for pod in self._world.placements.reserve_pods.values():
            amounts, queue = self._world.request(pod), pod.member.queue
            self._world.ledger.charge(queue, amounts, phase=Phase.MOVING, preemptible=pod.member.preemptible, count=1)

    def _charge(self, pods: Iterable[Pod], member: Member, *, sign: int) -> None:
        """Equal pods are charged together: a gang of a thousand is one entry."""
        world = self._world
        requested: dict[Resources, int] = {}
        placed: dict[tuple[Resources, Phase], int] = {}
        unplaced_members = 0
        for pod in pods:
            request, phase = pod.signature.request, world.phase(pod)
            requested[request] = requested.get(request, 0) + sign
            if phase is not Phase.PENDING:
                placed[request, phase] = placed.get((request, phase), 0) + sign
            unplaced_members += phase in UNBOUND
        vector = world.columns.vector
        for request, count in requested.items():
            world.ledger.request(member.queue, vector(request), preemptible=member.preemptible, count=count)
        for (request, phase), count in placed.items():
            world.ledger.charge(member.queue, vector(request), phase=phase, preemptible=member.preemptible, count=count)
        world.placements.count_unplaced(member.gang, sign * unplaced_members)
        world.changes.bump(Topic.DEMAND)


def _evicted_by(gang: Gang) -> tuple[object, ...]:
    """All of a gang that decides for whom, and with whom, its members are evicted."""
    roles = tuple((role.name, role.queue, role.min) for role in gang.roles)
    subgroups = tuple((subgroup.title, subgroup.min) for subgroup in gang.subgroups)
    return gang.priority, gang.min, gang.min_is_known, gang.match_policy, roles, subgroups


def _namespace(gang: Gang, role: Role) -> str:
    """Where a role lives: its pods' namespace, else its PodGroup's."""
    for pod in (*role.pods, *role.terminating):
        return pod.namespace
    return role.group.partition(":")[2].partition("/")[0] or gang.full_name.partition("/")[0]
