"""From effects to writes: what has to be written where, in which order, and what need not be written at all.

Pure: whoever carries the writes out, onto a virtual cluster or a real one, shows the objects as they are and sends what this says.
A deed on a pod that is gone, or that is another pod of the same name by now, does nothing: the watch tells. What the scheduler did
not write itself is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from muster.kube.read.object_references import (
    HYPERNODE,
    POD_GROUP_KIND,
    QUEUE,
    QUOTAS,
    ApiObjectRef,
    ManifestView,
    node_ref,
    pod_ref,
    volume_claim_ref,
    volume_ref,
)
from muster.kube.read.pod_index import FAMILIES
from muster.kube.write import patch_bodies
from muster.model.effects import (
    Bind,
    CancelEviction,
    Condition,
    Effect,
    Evict,
    Nominate,
    PodEffect,
    PodGroupStatus,
    QueueStatus,
    Release,
    Reserve,
    StatusEffect,
)
from muster.model.volume import VolumeChoice

ReservationEffect = Reserve | Nominate

GangPods = Callable[[str], Sequence[ApiObjectRef]]
"""The pods of a slot, or of all slots with a title."""


class ObjectReader(Protocol):
    """The objects as they are now, to look at."""

    def peek(self, ref: ApiObjectRef) -> ManifestView | None: ...


# --- Order --------------------------------------------------------------------------------------------------------------------


class StatusWrite(NamedTuple):
    """Something to be said of one object."""

    ref: ApiObjectRef
    update: StatusEffect


class EvictionWrite(NamedTuple):
    """`after`: UIDs of the pods whose claims have to be written first, so that nobody leaves for a plan that a crash tears."""

    effect: Evict
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """All that one cycle decided, in the order in which it is written.

    Who may stay is told before the claim ends that says who was to go. And a claim ends before others are bound to its room: one
    that outlives it would be in their way after a crash.
    """

    cancellations: tuple[CancelEviction, ...] = ()
    releases: tuple[Release, ...] = ()
    placements: tuple[Bind | ReservationEffect, ...] = ()
    evictions: tuple[EvictionWrite, ...] = ()
    status_updates: tuple[StatusWrite, ...] = ()

    @property
    def size(self) -> int:
        """How many deeds there are in it."""
        return len(self.cancellations) + len(self.releases) + len(self.placements) + len(self.evictions)


def order_writes(effects: Iterable[Effect], *, gang_pods: GangPods) -> WriteBatch:
    effects = tuple(effects)
    claims = [effect for effect in effects if isinstance(effect, Nominate)]
    return WriteBatch(
        cancellations=tuple(effect for effect in effects if isinstance(effect, CancelEviction)),
        releases=tuple(effect for effect in effects if isinstance(effect, Release)),
        placements=tuple(effect for effect in effects if isinstance(effect, Bind | Reserve | Nominate)),
        evictions=_eviction_writes([effect for effect in effects if isinstance(effect, Evict)], claims),
        status_updates=tuple(
            status_write
            for effect in effects
            if isinstance(effect, Condition | PodGroupStatus | QueueStatus)
            for status_write in status_writes(effect, gang_pods=gang_pods)
        ),
    )


def _eviction_writes(evictions: Sequence[Evict], claims: Sequence[Nominate]) -> tuple[EvictionWrite, ...]:
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
    return tuple(EvictionWrite(one, tuple(by_victim.get(one.uid) or by_gang.get(one.for_gang, none))) for one in evictions)


# --- Pods ---------------------------------------------------------------------------------------------------------------------


def current_pod(effect: PodEffect, objects: ObjectReader) -> ManifestView | None:
    """The pod that is meant, if it still exists."""
    found = objects.peek(pod_ref(effect.pod))
    return found if found is not None and found["metadata"]["uid"] == effect.uid else None


def node_of(pod: ManifestView) -> str:
    found = pod["spec"].get("nodeName")
    return found if isinstance(found, str) else ""


def is_terminating(pod: ManifestView) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


class BindCheck(NamedTuple):
    """What can be said of a bind before it is tried. `bound`: there is nothing to try, the pod has a node and needs no claim any
    more; `why`: the bind fails."""

    bound: bool = False
    why: str = ""


_MAY_BIND = BindCheck()


def check_bind(effect: Bind, objects: ObjectReader) -> BindCheck:
    """One that is bound to the target already is bound."""
    pod = current_pod(effect, objects)
    if pod is None:
        return BindCheck(why=f"pod {effect.pod} with UID {effect.uid} is gone")
    if at := node_of(pod):
        return BindCheck(bound=True, why="" if at == effect.node else f"pod {effect.pod} is bound to {at} already")
    if is_terminating(pod):
        return BindCheck(why=f"pod {effect.pod} is being deleted")
    if pod["spec"].get("schedulingGates"):
        return BindCheck(why=f"pod {effect.pod} has scheduling gates")
    if objects.peek(node_ref(effect.node)) is None:
        return BindCheck(why=f"node {effect.node} is gone")
    return _MAY_BIND


def volume_conflict(choice: VolumeChoice, objects: ObjectReader) -> str:
    """Why the claim cannot get this volume, or nothing."""
    if objects.peek(volume_claim_ref(choice.claim)) is None:
        return f"claim {choice.claim} is gone"
    if not choice.volume:
        return ""
    volume = objects.peek(volume_ref(choice.volume))
    if volume is None:
        return f"volume {choice.volume} is gone"
    holder = (volume.get("spec") or {}).get("claimRef") or {}
    taken_by = f"{holder.get('namespace', 'default')}/{holder.get('name')}" if holder else choice.claim
    return f"volume {choice.volume} went to claim {taken_by}" if taken_by != choice.claim else ""


def volume_write(choice: VolumeChoice, *, node: str) -> tuple[ApiObjectRef, patch_bodies.Patch]:
    """What a claim that waited for a node needs to be told, and where."""
    kind, patch = patch_bodies.volume_patch(choice, node=node)
    ref = volume_claim_ref(choice.claim)
    return (ref if kind == ref.kind else volume_ref(choice.volume)), patch


def pod_patch(effect: PodEffect, pod: ManifestView, *, now: float) -> patch_bodies.Patch | None:
    """What a deed writes onto its pod, or None where there is nothing to write. Of a bind: what is left to do after it."""
    match effect:
        case Reserve() | Nominate():
            return None if node_of(pod) else patch_bodies.reservation_patch(effect)
        case Release():
            return patch_bodies.clear_reservation_patch(timed_out=effect.timed_out)
        case CancelEviction():
            return patch_bodies.cancel_eviction_patch(now=now)
        case Bind():
            return patch_bodies.clear_reservation_patch()
        case Evict():
            return _soft_eviction_patch(effect, pod, now=now)


def _soft_eviction_patch(effect: Evict, pod: ManifestView, *, now: float) -> patch_bodies.Patch | None:
    """One that is marked already keeps its mark: it says since when."""
    patch = patch_bodies.soft_eviction_patch(effect, now=now)
    (label,) = patch["metadata"]["labels"]
    return None if (pod["metadata"].get("labels") or {}).get(label) == "true" else patch


# --- Words --------------------------------------------------------------------------------------------------------------------


def status_writes(update: StatusEffect, *, gang_pods: GangPods) -> list[StatusWrite]:
    """The objects of which something is to be said. Some of them may not exist."""
    return [StatusWrite(ref, update) for ref in _targets(update, gang_pods=gang_pods)]


def _targets(update: StatusEffect, *, gang_pods: GangPods) -> list[ApiObjectRef]:
    match update:
        case PodGroupStatus():
            return pod_group_refs(update.group)
        case QueueStatus():
            return _queue_refs(update.key)
        case Condition(subject="gang"):
            slots = gang_keys_of(update.key)
            return [
                ref
                for gang_key in slots
                for ref in (*pod_group_refs(gang_key), *(gang_pods(gang_key) if _is_for_pods(update) else ()))
            ]
        case Condition(subject="pod"):
            return [pod_ref(update.key)] if not update.ok else []
        case Condition(subject="queue"):
            return _queue_refs(update.key)
        case Condition(subject="node"):
            return [node_ref(update.key)]
        case Condition(subject="domain"):
            return [ApiObjectRef(*HYPERNODE, "", update.key)]
    raise ValueError(f"there is nothing to say about a {update.subject}: {update.key}")


def _is_for_pods(update: Condition) -> bool:
    """That all is well with a gang is told to its members by their binds."""
    return not update.ok or update.code in patch_bodies.VALIDITY_CODES


def gang_keys_of(gang: str) -> list[str]:
    """The slots, or titles of slots, that a gang's title or key is made of: one, or several for a group of gangs."""
    return gang.replace("+", ",").split(",")


def pod_group_refs(gang_key: str) -> list[ApiObjectRef]:
    """The PodGroups of a slot, or of all slots with this title."""
    slots = [gang_key] if ":" in gang_key else [f"{family}:{gang_key}" for family in FAMILIES]
    found = (patch_bodies.pod_group_of_gang_key(one) for one in slots)
    return [ApiObjectRef(place[0], POD_GROUP_KIND, *place[1:]) for place in found if place is not None]


def _queue_refs(key: str) -> list[ApiObjectRef]:
    """`queue/a` is a Queue, `quota/team/a` an ElasticQuota of either API group."""
    kind, *place = key.split("/")
    return [ApiObjectRef(*known, *place) for known in QUOTAS] if kind == "quota" else [ApiObjectRef(*QUEUE, "", *place)]


def status_patch(status_write: StatusWrite, present: ManifestView, *, now: float) -> patch_bodies.Patch | None:
    """How the object changes that the saying is about; None where it is none of its business."""
    ref, update = status_write
    match update:
        case PodGroupStatus():
            return patch_bodies.group_status(update, api_group=ref.group)
        case QueueStatus():
            return patch_bodies.queue_status(update, present=_status(present))
        case Condition():
            entries = _condition_entries(ref, update, present)
            return None if entries is None else patch_bodies.conditions_patch(entries, present=conditions(present), now=now)


def status_key(status_write: StatusWrite) -> str:
    """What of an object a saying is about: of two on one topic only the newer counts."""
    update = status_write.update
    if not isinstance(update, Condition):
        return "status"
    return "fate" if _is_scheduling_condition(update) else "validity"


def _is_scheduling_condition(update: Condition) -> bool:
    """How somebody fares, not whether its fields are right."""
    return update.subject == "pod" or (update.subject == "gang" and update.code not in patch_bodies.VALIDITY_CODES)


def _condition_entries(ref: ApiObjectRef, update: Condition, present: ManifestView) -> Sequence[patch_bodies.ConditionEntry] | None:
    if not _is_scheduling_condition(update):
        return [patch_bodies.validity_condition(update)]
    if ref.kind == POD_GROUP_KIND:
        return patch_bodies.group_conditions(update, api_group=ref.group, present=conditions(present))
    return [patch_bodies.unscheduled_condition(update)] if _is_unscheduled(present) else None


def _is_unscheduled(pod: ManifestView) -> bool:
    """Only those who wait are told; one that is bound was told by its bind."""
    return not node_of(pod) and not pod["spec"].get("schedulingGates")


def conditions(manifest: ManifestView | None) -> list[Mapping[str, Any]]:
    """Custom objects may have anything in their place: what is no condition is written over."""
    found = _status(manifest).get("conditions")
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _status(manifest: ManifestView | None) -> ManifestView:
    found = (manifest or {}).get("status")
    return found if isinstance(found, Mapping) else {}
