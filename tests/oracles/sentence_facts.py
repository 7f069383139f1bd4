"""The plain facts that sentences on one gang are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.oracles.best_plan import missing_members
from tests.oracles.plain_amounts import Amounts, minus, request_of, total
from tests.oracles.protection import budgets_over, is_too_young, never_evictable
from tests.oracles.queue_amounts import charge, ledger_of, share_tables
from tests.oracles.snapshot import CHARGED, ON_NODE, Snapshot
from tests.oracles.taking import is_fixed, quota_findings, requested_by_fixed_jobs

from muster.model.gang import Gang
from muster.model.pod import Pod
from muster.model.queue import show_queue
from muster.model.resource_amounts import short_name, show_amount


class SentenceFacts:
    """`missing`: the members that the gang lacks. `nodes`: those of the domain that a clause speaks of. `in_trial`: does it speak
    of the cluster with some pods evicted?"""

    def __init__(self, s: Snapshot, gang: Gang) -> None:
        self.s, self.gang = s, gang
        self.missing = missing_members(s, gang)
        self.ledger, self._tables = ledger_of(s), share_tables(s)
        self.queues = {show_queue(key): key for key in s.queues}
        self.nodes = sorted(s.nodes)
        self.in_trial = False

    # -- nodes -----------------------------------------------------------------------------------------------------------------

    def node_state(self, pod: Pod, node: str) -> tuple[str, frozenset[str]]:
        """Is the node too small for the pod or full, and in what?"""
        whole = dict(self.s.nodes[node].allocatable.items)
        placed = [uid for uid, placement in self.s.placements.items() if placement.node == node and placement.phase in ON_NODE]
        free = minus(whole, total(request_of(self.s.pods[uid]) for uid in placed))
        for state, there in (("too small", whole), ("full", free)):
            lacking = frozenset(short_name(name) for name, value in request_of(pod).items() if value > there.get(name, 0))
            if lacking:
                return state, lacking
        return "free", frozenset()

    def free(self, name: str) -> int:
        """What is free of a resource on all nodes together."""
        found = 0
        for node in self.nodes:
            placed = [uid for uid, placement in self.s.placements.items() if placement.node == node and placement.phase in ON_NODE]
            used = total(request_of(self.s.pods[uid]) for uid in placed)
            found += max(0, self.s.nodes[node].allocatable[name] - used.get(name, 0))
        return found

    def missing_in(self, queue: str) -> list[Pod]:
        return [pod for pod in self.missing if self.s.queue_of(pod.uid) == queue]

    # -- queues ----------------------------------------------------------------------------------------------------------------

    def resource(self, short: str) -> str:
        return next(name for node in self.s.nodes.values() for name in node.allocatable if short_name(name) == short)

    def requested(self, queue: str) -> Amounts:
        return total(request_of(pod) for pod in self.missing if queue in self.s.path(self.s.queue_of(pod.uid)))

    def used(self, queue: str, name: str) -> int:
        return self.ledger.get(queue, {}).get(name, 0)

    def used_by_non_preemptible(self, queue: str, name: str) -> int:
        fixed = [uid for uid, placement in self.s.placements.items() if placement.phase in CHARGED and is_fixed(self.s, uid)]
        return charge(self.s, {}, fixed).get(queue, {}).get(name, 0)

    def kept_for_non_preemptible(self, queue: str, name: str) -> int:
        """What a quota keeps for those of its non-preemptible jobs that wait."""
        least, wanted = self.s.queues[queue].deserved.get(name), requested_by_fixed_jobs(self.s, queue).get(name, 0)
        return 0 if least is None else max(0, min(least, wanted) - self.used_by_non_preemptible(queue, name))

    def is_refused_by_quota(self) -> bool:
        """Beyond the minimum for a job that is not preemptible, beyond the maximum for one that is."""
        own = [pod for pod in self.missing if self.s.queue_of(pod.uid).startswith("quota/")]
        finished = charge(self.s, self.ledger, [pod.uid for pod in self.missing])
        return any(found.rule in ("F3 trigger", "F3 min") for found in quota_findings(self.s, self.s, finished, own))

    def used_by_others_than_lower(self, queue: str, name: str) -> int:
        """What it would use without those of lower priority that the gang could evict in it."""
        own = [pod.uid for pod in self.lower_in_own_queues() if not self.is_protected(pod)]
        return charge(self.s, self.ledger, own, sign=-1).get(queue, {}).get(name, 0)

    def shares(self, queue: str, name: str) -> set[int]:
        return {table[queue][name] for table in self._tables if name in table.get(queue, {})}

    # -- whom it could evict ---------------------------------------------------------------------------------------------------

    def pods_of_other_queues(self) -> list[Pod]:
        """In a queue that is not that of some role: this one may take them by shares."""
        placed, own = self.others_placed(), self._own_queues()
        return [pod for pod in placed if own - {self.s.queue_of(pod.uid)}]

    def others_placed(self) -> list[Pod]:
        return [pod for pod in self._placed_here() if pod not in self.gang.pods()]

    def lower_in_own_queues(self) -> list[Pod]:
        own = [pod for pod in self._placed_here() if self.s.queue_of(pod.uid) in self._own_queues()]
        return [pod for pod in own if self.priority(pod) < self.gang.priority and pod not in self.gang.pods()]

    def could_evict(self) -> list[Pod]:
        """All whom some action could evict for the gang, were nobody protected and did every queue give."""
        lower = self.lower_in_own_queues()
        return lower + [pod for pod in self.pods_of_other_queues() if pod not in lower]

    def unprotected(self) -> list[Pod]:
        """Those of them whom nothing but time protects."""
        return [pod for pod in self.could_evict() if not self.is_protected(pod) and not self.is_under_budget(pod)]

    def _own_queues(self) -> set[str]:
        return {role.queue for role in self.gang.roles}

    def _placed_here(self) -> list[Pod]:
        placements = self.s.placements
        return [self.s.pods[uid] for uid in placements if placements[uid].node in self.nodes and uid in self.s.members]

    def priority(self, pod: Pod) -> int:
        gang = self.s.gang_of(pod.uid)
        return pod.priority if gang is None else gang.priority

    def is_protected(self, pod: Pod) -> bool:
        return any(True for _ in never_evictable(self.s, pod))

    def exhausted_budgets(self, pod: Pod) -> set[str]:
        if self.s.rules.budgets != "hard":
            return set()
        return {key for key in budgets_over(pod, self.s) if self.s.budgets[key].allowed <= 0}

    def is_under_budget(self, pod: Pod) -> bool:
        return bool(self.exhausted_budgets(pod))

    def is_young(self, pod: Pod) -> bool:
        """Whom preemption may take is protected as it is there, also where reclaim would take it."""
        actions = {"gang-preempt"} if pod in self.lower_in_own_queues() else self.s.rules.min_runtime_actions
        return any(is_too_young(self.s, pod, action) for action in actions)

    # -- comparing -------------------------------------------------------------------------------------------------------------

    def figure(self, text: str, name: str, value: int, what: str) -> Iterator[str]:
        if text != show_amount(name, value):
            yield f"{name} {what} is {show_amount(name, value)}, not {text}"

    def usage(self, text: str, queue: str, name: str) -> Iterator[str]:
        """What a queue uses now; nothing is known of a cluster with some pods evicted."""
        if not self.in_trial:
            yield from self.figure(text, name, self.used(queue, name), "used")

    def share(self, text: str, queue: str, name: str) -> Iterator[str]:
        if text not in {show_amount(name, value) for value in self.shares(queue, name)}:
            yield f"{name} {text} is no share of {queue}: {self.shares(queue, name)}"

    def counted(self, said: int, pods: Sequence[Pod], what: str) -> Iterator[str]:
        """Those of lower priority in its own queues are all counted; of others those that give."""
        lower = self.lower_in_own_queues()
        least = sum(pod in lower for pod in pods)
        if not least <= said <= len(pods):
            yield f"{least} to {len(pods)} pods are {what}"

    def at_most(self, said: str | None, pods: Sequence[Pod], what: str) -> Iterator[str]:
        if said is not None and not 0 < int(said) <= len(pods):
            yield f"{len(pods)} pods are {what}"
