"""From effects to writes: what has to be written where, in which order, and what need not be written at all.

Pure: whoever carries the writes out, onto a virtual cluster or a real one, shows the objects as they are and sends what this says.
A deed on a pod that is gone, or that is another pod of the same name by now, does nothing: the watch tells. What the scheduler did
not write itself is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from muster.adapters.kube import encode
from muster.adapters.kube.index import FAMILIES
from muster.adapters.kube.refs import (
    GROUP_KIND,
    HYPERNODE,
    QUEUE,
    QUOTAS,
    Ref,
    Stored,
    claim_ref,
    node_ref,
    pod_ref,
    volume_ref,
)
from muster.model.effects import (
    Bind,
    Condition,
    Deed,
    Effect,
    Evict,
    GroupStatus,
    Hold,
    Nominate,
    QueueStatus,
    Release,
    Spare,
    Word,
)
from muster.model.volumes import VolumeChoice

Claim = Hold | Nominate

Gather = Callable[[str], Sequence[Ref]]
"""The pods of a slot, or of all slots with a title."""


class Objects(Protocol):
    """The objects as they are now, to look at."""

    def peek(self, ref: Ref) -> Stored | None: ...


# --- Order --------------------------------------------------------------------------------------------------------------------


class Saying(NamedTuple):
    """Something to be said of one object."""

    ref: Ref
    word: Word


class Eviction(NamedTuple):
    """`after`: UIDs of the pods whose claims have to be written first, so that nobody leaves for a plan that a crash tears."""

    effect: Evict
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """All that one cycle decided, in the order in which it is written.

    Who may stay is told before the claim ends that says who was to go. And a claim ends before others are bound to its room: one
    that outlives it would be in their way after a crash.
    """

    spares: tuple[Spare, ...] = ()
    releases: tuple[Release, ...] = ()
    deeds: tuple[Bind | Claim, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    words: tuple[Saying, ...] = ()

    @property
    def size(self) -> int:
        """How many deeds there are in it."""
        return len(self.spares) + len(self.releases) + len(self.deeds) + len(self.evictions)


def staged(effects: Iterable[Effect], *, gathered: Gather) -> Round:
    effects = tuple(effects)
    claims = [effect for effect in effects if isinstance(effect, Nominate)]
    return Round(
        spares=tuple(effect for effect in effects if isinstance(effect, Spare)),
        releases=tuple(effect for effect in effects if isinstance(effect, Release)),
        deeds=tuple(effect for effect in effects if isinstance(effect, Bind | Hold | Nominate)),
        evictions=_evictions([effect for effect in effects if isinstance(effect, Evict)], claims),
        words=tuple(
            saying
            for effect in effects
            if isinstance(effect, Condition | GroupStatus | QueueStatus)
            for saying in sayings(effect, gathered=gathered)
        ),
    )


def _evictions(evictions: Sequence[Evict], claims: Sequence[Nominate]) -> tuple[Eviction, ...]:
    """Each with the claims of the plans that name its victim, or else of the gang that it is for."""
    by_victim: dict[str, list[str]] = {}
    by_gang: dict[str, list[str]] = {}
    members: dict[str, list[str]] = {}
    for claim in claims:
        members.setdefault(claim.plan, []).append(claim.uid)
        by_gang.setdefault(claim.gang, []).append(claim.uid)
    for claim in {claim.plan: claim for claim in claims}.values():
        for victim in claim.victims:
            by_victim.setdefault(victim, []).extend(members[claim.plan])
    none: list[str] = []
    return tuple(Eviction(one, tuple(by_victim.get(one.uid) or by_gang.get(one.for_gang, none))) for one in evictions)


# --- Pods ---------------------------------------------------------------------------------------------------------------------


def pod_of(effect: Deed, objects: Objects) -> Stored | None:
    """The pod that is meant, if it still exists."""
    found = objects.peek(pod_ref(effect.pod))
    return found if found is not None and found["metadata"]["uid"] == effect.uid else None


def node_of(pod: Stored) -> str:
    found = pod["spec"].get("nodeName")
    return found if isinstance(found, str) else ""


def is_leaving(pod: Stored) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


class Outlook(NamedTuple):
    """What can be said of a bind before it is tried. `bound`: there is nothing to try, the pod has a node and needs no claim any
    more; `why`: the bind fails."""

    bound: bool = False
    why: str = ""


_GO = Outlook()


def outlook(effect: Bind, objects: Objects) -> Outlook:
    """One that is bound to the target already is bound."""
    pod = pod_of(effect, objects)
    if pod is None:
        return Outlook(why=f"pod {effect.pod} with UID {effect.uid} is gone")
    if at := node_of(pod):
        return Outlook(bound=True, why="" if at == effect.node else f"pod {effect.pod} is bound to {at} already")
    if is_leaving(pod):
        return Outlook(why=f"pod {effect.pod} is being deleted")
    if pod["spec"].get("schedulingGates"):
        return Outlook(why=f"pod {effect.pod} has scheduling gates")
    if objects.peek(node_ref(effect.node)) is None:
        return Outlook(why=f"node {effect.node} is gone")
    return _GO


def volume_refusal(choice: VolumeChoice, objects: Objects) -> str:
    """Why the claim cannot get this volume, or nothing."""
    if objects.peek(claim_ref(choice.claim)) is None:
        return f"claim {choice.claim} is gone"
    if not choice.volume:
        return ""
    volume = objects.peek(volume_ref(choice.volume))
    if volume is None:
        return f"volume {choice.volume} is gone"
    holder = (volume.get("spec") or {}).get("claimRef") or {}
    taken_by = f"{holder.get('namespace', 'default')}/{holder.get('name')}" if holder else choice.claim
    return f"volume {choice.volume} went to claim {taken_by}" if taken_by != choice.claim else ""


def volume_write(choice: VolumeChoice, *, node: str) -> tuple[Ref, encode.Patch]:
    """What a claim that waited for a node needs to be told, and where."""
    kind, patch = encode.volume_patch(choice, node=node)
    ref = claim_ref(choice.claim)
    return (ref if kind == ref.kind else volume_ref(choice.volume)), patch


def pod_patch(effect: Deed, pod: Stored, *, now: float) -> encode.Patch | None:
    """What a deed writes onto its pod, or None where there is nothing to write. Of a bind: what is left to do after it."""
    match effect:
        case Hold() | Nominate():
            return None if node_of(pod) else encode.claim_patch(effect)
        case Release():
            return encode.no_claim_patch(timed_out=effect.timed_out)
        case Spare():
            return encode.spare_patch(now=now)
        case Bind():
            return encode.no_claim_patch()
        case Evict():
            return _mark(effect, pod, now=now)


def _mark(effect: Evict, pod: Stored, *, now: float) -> encode.Patch | None:
    """One that is marked already keeps its mark: it says since when."""
    patch = encode.soft_eviction_patch(effect, now=now)
    (label,) = patch["metadata"]["labels"]
    return None if (pod["metadata"].get("labels") or {}).get(label) == "true" else patch


# --- Words --------------------------------------------------------------------------------------------------------------------


def sayings(word: Word, *, gathered: Gather) -> list[Saying]:
    """The objects of which something is to be said. Some of them may not exist."""
    return [Saying(ref, word) for ref in _subjects(word, gathered=gathered)]


def _subjects(word: Word, *, gathered: Gather) -> list[Ref]:
    match word:
        case GroupStatus():
            return groups_of(word.group)
        case QueueStatus():
            return _queues(word.key)
        case Condition(subject="gang"):
            slots = slots_of(word.key)
            return [ref for slot in slots for ref in (*groups_of(slot), *(gathered(slot) if _is_for_pods(word) else ()))]
        case Condition(subject="pod"):
            return [pod_ref(word.key)] if not word.ok else []
        case Condition(subject="queue"):
            return _queues(word.key)
        case Condition(subject="node"):
            return [node_ref(word.key)]
        case Condition(subject="domain"):
            return [Ref(*HYPERNODE, "", word.key)]
    raise ValueError(f"there is nothing to say about a {word.subject}: {word.key}")


def _is_for_pods(word: Condition) -> bool:
    """That all is well with a gang is told to its members by their binds."""
    return not word.ok or word.code in encode.VALIDITY


def slots_of(gang: str) -> list[str]:
    """The slots, or titles of slots, that a gang's title or key is made of: one, or several for a group of gangs."""
    return gang.replace("+", ",").split(",")


def groups_of(slot: str) -> list[Ref]:
    """The PodGroups of a slot, or of all slots with this title."""
    slots = [slot] if ":" in slot else [f"{family}:{slot}" for family in FAMILIES]
    found = (encode.group_of_slot(one) for one in slots)
    return [Ref(place[0], GROUP_KIND, *place[1:]) for place in found if place is not None]


def _queues(key: str) -> list[Ref]:
    """`queue/a` is a Queue, `quota/team/a` an ElasticQuota of either API group."""
    kind, *place = key.split("/")
    return [Ref(*known, *place) for known in QUOTAS] if kind == "quota" else [Ref(*QUEUE, "", *place)]


def word_patch(saying: Saying, present: Stored, *, now: float) -> encode.Patch | None:
    """How the object changes that the saying is about; None where it is none of its business."""
    ref, word = saying
    match word:
        case GroupStatus():
            return encode.group_status(word, api_group=ref.group)
        case QueueStatus():
            return encode.queue_status(word, present=_status(present))
        case Condition():
            entries = _entries(ref, word, present)
            return None if entries is None else encode.conditions_patch(entries, present=conditions(present), now=now)


def topic(saying: Saying) -> str:
    """What of an object a saying is about: of two on one topic only the newer counts."""
    word = saying.word
    if not isinstance(word, Condition):
        return "status"
    return "fate" if _is_fate(word) else "validity"


def _is_fate(word: Condition) -> bool:
    """How somebody fares, not whether its fields are right."""
    return word.subject == "pod" or (word.subject == "gang" and word.code not in encode.VALIDITY)


def _entries(ref: Ref, word: Condition, present: Stored) -> Sequence[encode.ConditionEntry] | None:
    if not _is_fate(word):
        return [encode.validity(word)]
    if ref.kind == GROUP_KIND:
        return encode.group_conditions(word, api_group=ref.group, present=conditions(present))
    return [encode.unscheduled(word)] if _waits(present) else None


def _waits(pod: Stored) -> bool:
    """Only those who wait are told; one that is bound was told by its bind."""
    return not node_of(pod) and not pod["spec"].get("schedulingGates")


def conditions(manifest: Stored | None) -> list[Mapping[str, Any]]:
    """Custom objects may have anything in their place: what is no condition is written over."""
    found = _status(manifest).get("conditions")
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _status(manifest: Stored | None) -> Stored:
    found = (manifest or {}).get("status")
    return found if isinstance(found, Mapping) else {}
