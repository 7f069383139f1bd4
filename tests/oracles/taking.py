"""Whether the asker may have what the finished plan gives it: within its share, its limits, and its quota."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.oracles.contested import exceeds_limit, most_of
from tests.oracles.giving import Taker, freed_by_queue, nobody_has_share
from tests.oracles.plain_amounts import Amounts, request_of, total
from tests.oracles.plan_units import Unit
from tests.oracles.protection import is_preemptible
from tests.oracles.queue_amounts import Ledger, ShareTable, below_common_ancestor, configured, is_within
from tests.oracles.snapshot import CHARGED, Finding, Snapshot

from muster.model.pod import Pod
from muster.model.queue import show_queue

CAN_PREEMPT = "quota.scheduling.koordinator.sh/can-preempt"


def limit_findings(s: Snapshot, finished: Ledger, members: Sequence[Pod]) -> Iterator[Finding]:
    """Limits of every queue on the way up, in what is asked, and what guarantees of others leave; the root's are informative."""
    asked = {name for pod in members for name in request_of(pod)}
    for level in sorted({level for pod in members for level in s.path(s.queue_of(pod.uid))} & set(s.queues)):
        for name in sorted(asked):
            if exceeds_limit(s, finished, level, name):
                amounts = f"{finished[level].get(name, 0)} of {most_of(s, level, name)}"
                yield Finding("B6 limit", f"{show_queue(level)} then uses {name} {amounts}")


def taking_findings(
    s: Snapshot, tables: Sequence[ShareTable], finished: Ledger, taker: Taker, givers: Sequence[Unit]
) -> Iterator[Finding]:
    """Borrowing never evicts: the taking queue and its ancestors below the common one are within their shares."""
    ways = _ways_to_givers(s, tables, taker, givers)
    for levels in ways:
        if not any(configured(tables, level) & taker.contested for level in levels):
            names = ", ".join(sorted(taker.contested))
            yield Finding("B6 taking", f"{show_queue(taker.queue)} has a share of none of {names}, for which others are evicted")
    for level in dict.fromkeys(level for levels in ways for level in levels):
        for name in sorted(configured(tables, level) & set(taker.ask)):
            if not is_within(tables, finished, level, name):
                share = min(table[level][name] for table in tables if name in table.get(level, {}))
                amounts = f"{finished[level].get(name, 0)} of {share}"
                yield Finding("B6 taking", f"{show_queue(level)} borrows: with the ask it uses {name} {amounts}")


def _ways_to_givers(s: Snapshot, tables: Sequence[ShareTable], taker: Taker, givers: Sequence[Unit]) -> list[list[str]]:
    """The levels of the taker below the common ancestor with each queue that gives, where anybody has a share."""
    found: list[list[str]] = []
    for unit in givers:
        for queue, freed in freed_by_queue(s, unit).items():
            ours, theirs = below_common_ancestor(s, taker.queue, queue)
            if queue != taker.queue and ours not in found and not nobody_has_share(tables, theirs, ours, taker, freed):
                found.append(ours)
    return found


def quota_findings(s: Snapshot, after: Snapshot, finished: Ledger, members: Sequence[Pod]) -> Iterator[Finding]:
    """What admits a job to its quota, with the ask and without the victims. `after` has neither."""
    for queue in sorted({s.queue_of(pod.uid) for pod in members}):
        if not queue.startswith("quota/") or queue not in s.queues:
            continue
        ours = [pod for pod in members if s.queue_of(pod.uid) == queue]
        yield from _trigger_in_quota(s, queue, ours)
        levels = s.path(queue) if s.rules.checks_parent_quota else [queue]
        for level in levels:
            yield from _quota_level(after, finished, level, ours)


def _trigger_in_quota(s: Snapshot, queue: str, ours: Sequence[Pod]) -> Iterator[Finding]:
    """A preemptible job has others evicted only while it is within the maximum of its own quota beside all that is used there, and
    beside what the quota keeps for its non-preemptible jobs."""
    if not is_preemptible(s, ours[0]):
        return
    asked = total(request_of(pod) for pod in ours)
    members = {pod.uid for pod in ours}
    charged = [
        uid
        for uid, placement in s.placements.items()
        # Members that a plan from before a restart has nominated already count once, as what is asked for.
        if placement.phase in CHARGED and uid not in members and uid in s.pods and queue in s.path(s.queue_of(uid))
    ]
    loose = total(request_of(s.pods[uid]) for uid in charged if not is_fixed(s, uid))
    fixed = total(request_of(s.pods[uid]) for uid in charged if is_fixed(s, uid))
    requested = requested_by_fixed_jobs(s, queue)
    for name, value in sorted(asked.items()):
        least, most = s.queues[queue].deserved.get(name), s.queues[queue].limit.get(name)
        kept = fixed.get(name, 0) if least is None else max(fixed.get(name, 0), min(least, requested.get(name, 0)))
        if most is not None and loose.get(name, 0) + kept + value > most:
            amounts = f"{loose.get(name, 0)} used + {kept} of non-preemptible jobs + {value} > max {most}"
            yield Finding("F3 trigger", f"{show_queue(queue)}: {name} {amounts}")


def requested_by_fixed_jobs(s: Snapshot, queue: str) -> Amounts:
    """What non-preemptible jobs of the quota request, those alone that it could admit by themselves."""
    levels = s.path(queue) if s.rules.checks_parent_quota else [queue]
    found: list[Amounts] = []
    for gang in s.gangs.values():
        pods = [pod for pod in gang.pods() if s.queue_of(pod.uid) == queue and is_fixed(s, pod.uid)]
        least = total(request_of(pod) for pod in pods[: gang.min])
        bounds = [amounts for level in levels for amounts in (s.queues[level].deserved, s.queues[level].limit)]
        if all(value <= most for name, value in least.items() for bound in bounds if (most := bound.get(name)) is not None):
            found += [request_of(pod) for pod in pods]
    return total(found)


def _quota_level(after: Snapshot, finished: Ledger, level: str, ours: Sequence[Pod]) -> Iterator[Finding]:
    quota = after.queues[level]
    asked = total(request_of(pod) for pod in ours)
    fixed = total(
        request_of(after.pods[uid])
        for uid, placement in after.placements.items()
        if placement.phase in CHARGED and is_fixed(after, uid) and level in after.path(after.queue_of(uid))
    )
    for name, value in sorted(asked.items()):
        least, most = quota.deserved.get(name), quota.limit.get(name)
        if not is_preemptible(after, ours[0]) and least is not None and fixed.get(name, 0) + value > least:
            yield Finding("F3 min", f"{show_queue(level)}: non-preemptible {name} {fixed.get(name, 0)} + {value} > min {least}")
        if most is not None and finished[level].get(name, 0) > most:
            yield Finding("F3 max", f"{show_queue(level)}: {name} {finished[level].get(name, 0)} > max {most}")


def is_fixed(s: Snapshot, uid: str) -> bool:
    return uid in s.pods and uid in s.members and not is_preemptible(s, s.pods[uid])


def trigger_findings(s: Snapshot, asker: str) -> Iterator[Finding]:
    """Who may have others evicted at all."""
    gang = s.gangs[asker]
    if gang.never_preempts:
        yield Finding("D1 Never", f"the preemption policy of {gang.full_name} is Never")
    if not any(role.queue.startswith("quota/") for role in gang.roles):
        return
    for pod in gang.pods():
        label = pod.labels.get(CAN_PREEMPT)
        if label == "false" or (label is None and s.rules.requires_can_preempt):
            yield Finding("F3 trigger", f"{pod.full_name} may not trigger preemption (can-preempt: {label})")
            return
