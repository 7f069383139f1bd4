"""Why not: verdicts as sentences with numbers that a person can act on."""

from __future__ import annotations

import numpy as np

from muster.engine.hooks import Blames, Domain, Plugin
from muster.engine.session import Session
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang
from muster.model.pod import PROMISED, SEATED, Phase, Pod
from muster.model.topics import Topic, TopicKey
from muster.state.cells import lacks_cells
from muster.state.lifecycle import count, reaches_min, seats_missing
from muster.state.table import BoolColumn, Rows
from muster.state.world import World

NO_ROOM = "NoRoom"
NO_NODE = "NoNodeMatches"
CLEARING = "Clearing"
GATHERING = "Gathering"
INVALID = "Invalid"
VALID = "Valid"
TIMED_OUT = "TimedOut"
LATER = "NextCycle"

CAPACITY: tuple[TopicKey, ...] = (Topic.FREE_CAPACITY.any, Topic.RELEASING.any, Topic.RESERVATIONS.any)
"""What can change that there is no room on a node."""

# Hooks that say no: one for what eviction cannot change, one for what other pods take part in.
MATCH, FIT, AMONG = "match", "fit", "fit_among"


def gathering(gang: Gang) -> Verdict:
    """The gang cannot be attempted yet: what is missing, role by role."""
    if gang.waits_for:
        return Verdict(ok=False, why=gang.waits_for, code=GATHERING)
    for role in gang.roles:
        there = len(role.pods) + role.succeeded
        if there < role.min:
            name = f"role {role.name}: " if role.name else ""
            held_back = f", {role.gated} held back by scheduling gates" if role.gated else ""
            exist = exist_of(there, role.min)
            return Verdict(ok=False, why=f"{name}{exist}{held_back}", code=GATHERING)
    lacking = lacks_cells(gang)
    if lacking:
        return Verdict(ok=False, why=lacking, code=GATHERING)
    there = sum(len(role.pods) + role.succeeded for role in gang.roles)
    return Verdict(ok=False, why=exist_of(there, gang.min), code=GATHERING)


def exist_of(there: int, least: int) -> str:
    return f"{there} of at least {counted(least, 'member exists', 'members exist')}"


def clearing(world: World, gang: Gang) -> Verdict:
    """The gang waits for the room it was promised."""
    promised = sum(count(world, role, {Phase.NOMINATED}) for role in gang.roles)
    topics = (Topic.FREE_CAPACITY.any, Topic.RESERVATIONS.any)
    if not reaches_min(world, gang, PROMISED):
        missing = sum(seats_missing(world, gang, PROMISED).values())
        lost = counted(missing, "lost its node and needs another", "lost theirs and need another")
        why = f"{counted(promised, 'member was', 'members were')} promised a node, {lost}"
        return Verdict(ok=False, why=why, code=CLEARING, curable=True, topics=topics)
    waiting = counted(promised, "member waits for the room that it was", "members wait for the room that they were")
    why = f"{waiting} promised to become free"
    return Verdict(ok=False, why=why, code=CLEARING, topics=topics)


def later(world: World, gang: Gang) -> Verdict:
    """All that were tried have a node. Whoever is beyond the expected size is tried in the next cycle."""
    left = sum(pod.uid not in world.placements.by_uid for pod in gang.pods()) if any(role.bounded for role in gang.roles) else 0
    if not left:
        return YES
    expected = sum(role.total for role in gang.roles)
    are = "is" if left == 1 else "are"
    why = f"{counted(left, 'member', 'members')} beyond the {expected} expected {are} tried in the next cycle"
    return Verdict(ok=False, why=why, code=LATER, at=world.now)


def refused(s: Session, gang: Gang, pod: Pod, domain: Domain, *, soon: bool) -> Verdict:
    """Nobody took this member: which nodes said no, and why. The members placed before it are still in the trial."""
    seats = sum(count(s.world, role, SEATED) + role.succeeded for role in gang.roles)
    phrases, curable, topics = _blames(s, pod, domain, soon=soon)
    nodes = "; ".join(phrases) if phrases else "there are no nodes"
    inside = "" if domain.rows is None else f" in {domain.name}"
    why = f"{_got(seats, gang.min)}{inside}, {pod.name} fits nowhere: {nodes}"
    return Verdict(ok=False, why=why, code=NO_ROOM if curable else NO_NODE, curable=curable, topics=topics)


def _got(seats: int, least: int) -> str:
    if seats < least:
        return f"{seats}/{least} members placed"
    return f"{counted(seats, 'member has', 'members have')} a node (it needs {least})"


def _blames(s: Session, pod: Pod, domain: Domain, *, soon: bool) -> tuple[list[str], bool, tuple[TopicKey, ...]]:
    """One phrase for each plugin that refuses nodes; every node counts for the first that refuses it. Then whether eviction could
    change that, and what else could: where other pods take part, one that gets a node."""
    table = s.world.table
    left = np.arange(len(table), dtype=np.intp) if domain.rows is None else domain.rows
    phrases: list[str] = []
    curable = False
    topics = CAPACITY
    for plugin, column in _refusals(s, pod):
        rows = Rows(table, left, soon=soon)
        ok = column(rows)
        bad = left[~ok]
        if len(bad):
            phrases.append(_blame(s, plugin, pod, Rows(table, bad, soon=soon)))
            curable = curable or column.hook != MATCH
            topics = (*CAPACITY, Topic.POD_PLACED.any) if column.hook == AMONG else topics
        left = left[ok]
    return phrases, curable, topics


class _Column:
    """One plugin's column for a pod, whichever hook it comes from."""

    def __init__(self, s: Session, plugin: Plugin, hook: str, pod: Pod) -> None:
        self._s, self._ask, self._pod = s, getattr(plugin, hook), pod
        self.hook = hook

    def __call__(self, rows: Rows) -> BoolColumn:
        column: BoolColumn = self._ask(self._s, self._pod, rows)
        return column


def _refusals(s: Session, pod: Pod) -> list[tuple[Plugin, _Column]]:
    found: list[tuple[Plugin, _Column]] = []
    for hook, plugins in ((MATCH, s.policy.matches), (FIT, s.policy.fits)):
        found.extend((plugin, _Column(s, plugin, hook, pod)) for plugin in plugins)
    for plugin in s.policy.entangles:
        if plugin.entangled(s, pod):
            found.append((plugin, _Column(s, plugin, AMONG, pod)))
    return found


def _blame(s: Session, plugin: Plugin, pod: Pod, rows: Rows) -> str:
    if isinstance(plugin, Blames):
        return plugin.blame(s, pod, rows)
    return f"{nodes(len(rows))} refused by {plugin.name}"


def nodes(count: int) -> str:
    return counted(count, "node", "nodes")


def counted(count: int, one: str, many: str) -> str:
    """A number and its noun, with as much of the sentence as depends on it."""
    return f"{count} {one if count == 1 else many}"
