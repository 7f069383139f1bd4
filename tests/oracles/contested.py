"""L, the contested part of an ask: the dimensions in which, each taken alone, the missing members do not fit or break a limit."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracles.allowed_domains import allowed_domains
from tests.oracles.guarantees import guaranteed_to_others, left_by_guarantees
from tests.oracles.packing import TooHardToPack, pack
from tests.oracles.plain_amounts import shared_request_of
from tests.oracles.queue_amounts import Ledger, charge, ledger_of
from tests.oracles.snapshot import Snapshot

from muster.model.gang import Gang
from muster.model.pod import Pod


def contested_dimensions(s: Snapshot, gang: Gang, missing: Sequence[Pod]) -> frozenset[str]:
    """Of members of one queue. All that is requested where no dimension is short by itself."""
    return short_dimensions(s, gang, missing) or frozenset(name for pod in missing for name in shared_request_of(pod))


def short_dimensions(s: Snapshot, gang: Gang, missing: Sequence[Pod]) -> frozenset[str]:
    """The dimensions in which these members find no capacity, or break a limit, each taken alone."""
    requested = sorted({name for pod in missing for name in shared_request_of(pod)})
    domains = allowed_domains(s, gang, missing)
    if len(missing) == 1:
        # One pod finds capacity on some node if it can be packed into all of them.
        domains = [frozenset().union(*domains)]
    after = charge(s, ledger_of(s), [pod.uid for pod in missing])
    found = [name for name in requested if _breaks_limit(s, after, missing, name) or not _has_capacity(s, missing, domains, name)]
    return frozenset(found)


def finds_capacity(s: Snapshot, gang: Gang, missing: Sequence[Pod]) -> bool:
    """Whether these members fit as it is, by themselves and within the limits."""
    after = charge(s, ledger_of(s), [pod.uid for pod in missing])
    if any(_breaks_limit(s, after, missing, name) for pod in missing for name in shared_request_of(pod)):
        return False
    domains = allowed_domains(s, gang, missing)
    if len(missing) == 1:
        domains = [frozenset().union(*domains)]
    try:
        return any(pack(s, missing, domain) is not None for domain in domains)
    except TooHardToPack:
        return True


def _has_capacity(s: Snapshot, missing: Sequence[Pod], domains: Sequence[frozenset[str]], name: str) -> bool:
    try:
        return any(pack(s, missing, domain, only=name) is not None for domain in domains)
    except TooHardToPack:
        return True


def _breaks_limit(s: Snapshot, after: Ledger, missing: Sequence[Pod], name: str) -> bool:
    paths = {level for pod in missing if shared_request_of(pod).get(name) for level in s.path(s.queue_of(pod.uid))}
    limits = {level: s.queues[level].limit.get(name) for level in paths if level in s.queues}
    return any(limit is not None and after[level].get(name, 0) > limit for level, limit in limits.items())


def exceeds_limit(s: Snapshot, ledger: Ledger, queue: str, name: str) -> bool:
    bound = most_of(s, queue, name)
    return bound is not None and ledger.get(queue, {}).get(name, 0) > bound


def most_of(s: Snapshot, queue: str, name: str) -> int | None:
    """The most that a queue may have: its limit, and what its parent may have without what is guaranteed to its siblings."""
    limit, left = s.queues[queue].limit.get(name), _left_by_guarantees(s, queue, name)
    return left if limit is None else limit if left is None else min(limit, left)


def _left_by_guarantees(s: Snapshot, queue: str, name: str) -> int | None:
    """None: nothing is guaranteed to its siblings, or the policy has no plugin that reads guarantees."""
    if not s.rules.plugins & {"capacity", "proportion"} or not guaranteed_to_others(s, queue, name):
        return None
    return left_by_guarantees(s, queue, name)
