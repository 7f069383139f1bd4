"""Why not: verdicts as sentences with numbers that a person can act on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from muster.engine.hooks import Domain, GivesReasons, Plugin
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang
from muster.model.pod import PLACED, PLACED_OR_NOMINATED, Phase, Pod
from muster.model.topics import Topic, TopicKey
from muster.state.derived_values import Derived
from muster.state.gangs.gang_stage import count, members_missing, reaches_min
from muster.state.gangs.refused_binds import pause_s, refused_member
from muster.state.gangs.subgroups import is_complete, lowest_incomplete
from muster.state.node_table import BoolColumn, NodeRows
from muster.state.world import World

NO_CAPACITY = "InsufficientCapacity"
NO_NODE = "NoNodeMatches"
PREEMPTING = "Preempting"
WAITING_FOR_PODS = "WaitingForPods"
INVALID = "Invalid"
UNSUPPORTED = "Unsupported"
VALID = "Valid"
TIMED_OUT = "TimedOut"
NEXT_CYCLE = "NextCycle"
BIND_REFUSED = "BindRefused"

ALL_KEPT = "all nodes that it may use are kept for others"
CAPACITY: tuple[TopicKey, ...] = (Topic.FREE_CAPACITY.any, Topic.RELEASING.any, Topic.RESERVATIONS.any)
"""What can end a lack of capacity on nodes."""

# Hooks that say no: one for what eviction cannot change, one for what other pods take part in.
MATCH, FIT, INTER_POD = "match", "fit", "fit_inter_pod"


def waiting_for_pods(gang: Gang) -> Verdict:
    """The gang cannot be attempted yet: what is missing, role by role."""
    if gang.waiting_for:
        return Verdict(ok=False, why=gang.waiting_for, code=WAITING_FOR_PODS)
    for role in gang.roles:
        existing = len(role.pods) + role.succeeded
        if existing < role.min:
            name = f"role {role.name}: " if role.name else ""
            held_back = f", {role.gated} with scheduling gates" if role.gated else ""
            exist = members_exist(existing, role.min)
            return Verdict(ok=False, why=f"{name}{exist}{held_back}", code=WAITING_FOR_PODS)
    existing = sum(len(role.pods) + role.succeeded for role in gang.roles)
    if existing >= gang.min:
        return Verdict(ok=False, why=_subgroups_missing(gang), code=WAITING_FOR_PODS)
    return Verdict(ok=False, why=members_exist(existing, gang.min), code=WAITING_FOR_PODS)


def _subgroups_missing(gang: Gang) -> str:
    """Which subgroup has too few complete ones for want of members, and which of these lacks how many."""
    group = lowest_incomplete(gang, lambda _: True)
    short = [each for each in group.subgroups if not is_complete(each, lambda _: True)]
    name, noun = ("", "sub-groups") if isinstance(group, Gang) else (f"sub-group {group.title}: ", "parts")
    whole = f"{name}{len(group.subgroups) - len(short)} of at least {group.min_subgroups} {noun} have their members"
    return whole + "".join(f" ({each.title}: {members_exist(len(each.members) + each.succeeded, each.min)})" for each in short[:1])


def bind_refused(world: World, gang: Gang) -> Verdict:
    """Not ok where the API server refused to bind a member again and again: until when the gang waits, and what the server said."""
    refused = refused_member(world, gang)
    if refused is None:
        return YES
    pod, refusal = refused
    at = refusal.at + pause_s(refusal)
    why = f"{pod.full_name} was not bound, {refusal.count} times, the last time because {refusal.why}"
    pause = f"; tried again after {pause_s(refusal):.0f} s" if world.now < at else ""
    return Verdict(ok=False, why=why + pause, code=BIND_REFUSED, at=at)


def unsupported(gang: Gang) -> Verdict:
    """Not ok where a member asks for what is not honoured: it must not be bound as if it had not asked."""
    for pod in gang.pods():
        problem = next((problem for problem in pod.problems if problem.unsupported), None) if pod.node is None else None
        if problem is not None:
            return Verdict(ok=False, why=f"{pod.full_name}: {problem.field}: {problem.text}", code=UNSUPPORTED)
    return YES


def members_exist(existing: int, least: int) -> str:
    return f"{existing} of at least {plural(least, 'member exists', 'members exist')}"


def waiting_for_preemption(world: World, gang: Gang) -> Verdict:
    """The gang waits for capacity that is being released on its nominated nodes."""
    nominated = sum(count(world, role, {Phase.NOMINATED}) for role in gang.roles)
    topics = (Topic.FREE_CAPACITY.any, Topic.RESERVATIONS.any)
    if not reaches_min(world, gang, PLACED_OR_NOMINATED):
        missing = sum(members_missing(world, gang, PLACED_OR_NOMINATED).values())
        lost = plural(missing, "lost its node and needs another", "lost theirs and need another")
        why = f"{plural(nominated, 'member is', 'members are')} nominated, {lost}"
        return Verdict(ok=False, why=why, code=PREEMPTING, curable=True, topics=topics)
    nodes = "its nominated node" if nominated == 1 else "their nominated nodes"
    why = f"{plural(nominated, 'member waits', 'members wait')} for capacity to be released on {nodes}"
    return Verdict(ok=False, why=why, code=PREEMPTING, topics=topics)


def next_cycle(world: World, gang: Gang) -> Verdict:
    """All that were tried have a node. Whoever is beyond the expected size is tried in the next cycle."""
    left = (
        sum(pod.uid not in world.placements.by_uid for pod in gang.pods())
        if any(role.has_declared_total for role in gang.roles)
        else 0
    )
    if not left:
        return YES
    expected = sum(role.total for role in gang.roles)
    are = "is" if left == 1 else "are"
    why = f"{plural(left, 'member', 'members')} beyond the {expected} expected {are} tried in the next cycle"
    return Verdict(ok=False, why=why, code=NEXT_CYCLE, at=world.now)


def deferred(s: Session, namespace: str, most: int) -> Verdict:
    """Not attempted yet, because too many others of its namespace were refused."""
    why = f"{most} attempts of namespace {namespace} were refused before its turn came; it is attempted in one of the next cycles"
    return Verdict(ok=False, why=why, code=NEXT_CYCLE, at=s.now)


def no_node_fits(s: Session, gang: Gang, pod: Pod, domain: Domain, *, after_releases: bool) -> Verdict:
    """Nobody took this member: which nodes said no, and why. The members placed before it are still in the trial."""
    placed = sum(count(s.world, role, PLACED) + role.succeeded for role in gang.roles)
    nodes, curable, topics = nodes_that_refuse(s, gang, pod, domain, after_releases=after_releases)
    inside = "" if domain.rows is None else f" in {domain.name}"
    why = f"{_placed_of(placed, gang.min)}{inside}{_fits_nowhere(pod)}{nodes}"
    return Verdict(ok=False, why=why, code=NO_CAPACITY if curable else NO_NODE, curable=curable, topics=topics)


def _fits_nowhere(pod: Pod) -> str:
    return f", {pod.name} fits nowhere: "


def said_of_equal(verdict: Verdict, before: Gang, gang: Gang) -> Verdict:
    """What was said of a gang, said of one that is equal to it, member by member."""
    for old, pod in zip(before.pods(), gang.pods(), strict=True):
        if (named := _fits_nowhere(old)) in verdict.why:
            return replace(verdict, why=verdict.why.replace(named, _fits_nowhere(pod)))
    return verdict


_Refusing = tuple[str, bool, tuple[TopicKey, ...]]

_REFUSING: Derived[_Refusing] = Derived("why no node takes pods of a signature", Topic.CYCLE, Topic.PLACEMENTS)


def nodes_that_refuse(s: Session, gang: Gang, pod: Pod, domain: Domain, *, after_releases: bool) -> _Refusing:
    """How many nodes refuse this member and why; then whether eviction could change that, and what else could. Equal pods are
    refused for the same reasons until somebody moves, as long as no other pods take part in them."""
    own = _rows_of_members(s, gang)

    def find() -> _Refusing:
        too_small = (s.world.request(pod) > s.world.table.allocatable).any(axis=1)
        phrases, curable, topics = _all_reasons(s, pod, domain, after_releases=after_releases, own=own & ~too_small)
        if not phrases and s.left_out is not None:
            return ALL_KEPT, True, topics
        return "; ".join(phrases) if phrases else "there are no nodes", curable, topics

    if domain.rows is not None or own.any() or s.has_inter_pod_constraints(pod):
        return find()
    return _REFUSING.of(s.world, find, key=(s.policy, pod.signature, after_releases))


def _placed_of(placed: int, least: int) -> str:
    if placed < least:
        return f"{placed}/{least} members placed"
    return f"{plural(placed, 'member has', 'members have')} a node (it needs {least})"


def _rows_of_members(s: Session, gang: Gang) -> BoolColumn:
    """Nodes on which an attempt that fails has placed other members of the gang: they are not full for others."""
    own = np.zeros(len(s.world.table), dtype=np.bool_)
    for pod in gang.pods() if not reaches_min(s.world, gang) else ():
        placement = s.world.placements.by_uid.get(pod.uid)
        if placement is not None and placement.phase is not Phase.BOUND and placement.node in s.world.table.row:
            own[s.world.table.row[placement.node]] = True
    return own


def _all_reasons(
    s: Session, pod: Pod, domain: Domain, *, after_releases: bool, own: BoolColumn
) -> tuple[list[str], bool, tuple[TopicKey, ...]]:
    """One phrase for each plugin that refuses nodes; every node counts for the first that refuses it, and for the gang itself where
    its own members are. Then whether eviction could change that, and what else could: where other pods take part, one that gets a
    node."""
    table = s.world.table
    left = np.arange(len(table), dtype=np.intp) if domain.rows is None else domain.rows
    phrases: list[str] = []
    curable, filled = False, 0
    topics = CAPACITY
    for plugin, hook in _filters(s, pod):
        ok: BoolColumn = getattr(plugin, hook)(s, pod, NodeRows(table, left, after_releases=after_releases))
        bad = left[~ok]
        curable = curable or (len(bad) > 0 and hook != MATCH)
        if len(bad) and hook == INTER_POD:
            topics = (*CAPACITY, Topic.POD_PLACED.any)
        if hook == FIT:
            filled += int(np.count_nonzero(own[bad]))
            bad = bad[~own[bad]]
        if len(bad):
            phrases.append(_reasons_of(s, plugin, pod, NodeRows(table, bad, after_releases=after_releases)))
        left = left[ok]
    if filled:
        phrases.append(f"{nodes(filled)} taken by its other members")
    return phrases, curable, topics


def why_not_on(s: Session, pod: Pod, node: str, *, after_releases: bool) -> str:
    """Why this node does not take the pod, were the pod not there; empty where it does, or there is no such node."""
    row = s.world.table.row.get(node)
    if row is None:
        return ""
    with s.trial("to look at its node without it", cause="Looks") as trial:
        trial.release(pod)
        only = Domain(node, np.array([row], dtype=np.intp))
        phrases, _, _ = _all_reasons(s, pod, only, after_releases=after_releases, own=np.zeros(len(s.world.table), dtype=np.bool_))
    return "; ".join(phrases).replace("1 node ", "it is ", 1) if phrases else ""


def _filters(s: Session, pod: Pod) -> Iterator[tuple[Plugin, str]]:
    """The plugins that may refuse a node, each with the hook by which it does."""
    yield from ((plugin, MATCH) for plugin in s.policy.matches)
    yield from ((plugin, FIT) for plugin in s.policy.fits)
    yield from ((plugin, INTER_POD) for plugin in s.policy.inter_pod_fits if plugin.has_inter_pod_constraints(s, pod))


def _reasons_of(s: Session, plugin: Plugin, pod: Pod, rows: NodeRows) -> str:
    if isinstance(plugin, GivesReasons):
        return plugin.reasons(s, pod, rows)
    return f"{nodes(len(rows))} refused by {plugin.name}"


def reasons_in_order(rows: NodeRows, refusals: Iterable[tuple[BoolColumn, str]]) -> str:
    """A phrase for each reason of a plugin that has several, by columns of the nodes that each refuses. Every row counts for the
    first that refuses it."""
    left = rows.numbers
    phrases: list[str] = []
    for refused, text in refusals:
        if count := int(refused[left].sum()):
            phrases.append(f"{nodes(count)} {text}")
            left = left[~refused[left]]
    return ", ".join(phrases)


def nodes(count: int) -> str:
    return plural(count, "node", "nodes")


def plural(count: int, one: str, many: str) -> str:
    """A number and its noun, with as much of the sentence as depends on it."""
    return f"{count} {one if count == 1 else many}"
