"""Who belongs to which gang and is charged to which queue. The bridge from gangs, which come and go, to the ledger."""

from __future__ import annotations

from collections.abc import Iterable

from muster.model.gang import Gang
from muster.model.pod import UNSEATED, Phase, Pod
from muster.model.resources import Resources
from muster.state.world import Attempts, Member, World


class Roster:
    def __init__(self, world: World) -> None:
        self._world = world
        self._pods: dict[str, Pod] = {}
        """Each enlisted pod as it was when it was charged."""

    def enlist(self, gang: Gang) -> None:
        """The gang as it is now: its pods are its members, charged to their queues."""
        world = self._world
        world.gangs[gang.key] = gang
        world.touched[gang.key] = None
        world.attempts.setdefault(gang.key, Attempts()).verdict = None
        for role in gang.roles:
            member = Member(gang.key, role.name, role.queue)
            members = world.members
            joined = [pod for pod in (*role.pods, *role.leaving) if members.get(pod.uid) != member]
            for pod in joined:
                self.dismiss(pod)
                members[pod.uid] = member
                self._pods[pod.uid] = pod
            if joined:
                self._charge(joined, member, sign=1)

    def dismiss(self, pod: Pod) -> None:
        """The pod takes part no more: what it was charged is given back."""
        member = self._world.members.get(pod.uid)
        if member is not None:
            self._charge([self._pods.pop(pod.uid)], member, sign=-1)
            del self._world.members[pod.uid]

    def disband(self, key: str) -> None:
        world = self._world
        world.gangs.pop(key, None)
        world.attempts.pop(key, None)
        world.touched.pop(key, None)

    def charge_all(self) -> None:
        """After the ledger was laid out anew."""
        self._world.unseated.clear()
        by_member: dict[Member, list[Pod]] = {}
        for uid, member in self._world.members.items():
            by_member.setdefault(member, []).append(self._pods[uid])
        for member, pods in by_member.items():
            self._charge(pods, member, sign=1)

    def _charge(self, pods: Iterable[Pod], member: Member, *, sign: int) -> None:
        """Equal pods are charged together: a gang of a thousand is one entry."""
        world = self._world
        requested: dict[Resources, int] = {}
        placed: dict[tuple[Resources, Phase], int] = {}
        unseated = 0
        for pod in pods:
            request, phase = pod.kind.request, world.phase(pod)
            requested[request] = requested.get(request, 0) + sign
            if phase is not Phase.PENDING:
                placed[request, phase] = placed.get((request, phase), 0) + sign
            unseated += phase in UNSEATED
        vector = world.columns.vector
        for request, count in requested.items():
            world.ledger.request(member.queue, vector(request), preemptible=member.preemptible, count=count)
        for (request, phase), count in placed.items():
            world.ledger.charge(member.queue, vector(request), phase=phase, preemptible=member.preemptible, count=count)
        world.count_unseated(member.gang, sign * unseated)
