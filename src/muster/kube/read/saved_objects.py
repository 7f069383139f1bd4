"""The custom resources Plan and History: what a scheduler keeps in its own namespace, encoded and decoded.

Only the scheduler writes them. One that cannot be decoded has been damaged: it is read as empty, and deleted or written anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Annotated, Any, Literal

import msgspec

from muster.kube.read import names
from muster.kube.read.decoding_problems import Problems
from muster.kube.read.object_references import ApiObjectRef, GroupKind, Manifest
from muster.kube.read.text_values import read_version
from muster.kube.read.wire import WireObject, WireStruct
from muster.model.device import DeviceSlot
from muster.model.pod import Phase
from muster.model.saved_state import (
    CancelledEviction,
    Losses,
    PastUse,
    SavedEvictions,
    SavedHistory,
    SavedMember,
    SavedMembers,
    SavedMove,
    SavedPlan,
    SavedSuccess,
    SavedWait,
)

PLAN: GroupKind = (names.MUSTER_GROUP, "Plan")
HISTORY: GroupKind = (names.MUSTER_GROUP, "History")
VERSION = "v1alpha1"

MAX_PLAN_BYTES = 1_000_000
"""Of the spec of one object: etcd takes 1.5 MiB."""
_LONGEST_ENTRY = 1000
"""Bytes of a member, about: the longest names that there can be."""

_NonNegative = Annotated[int, msgspec.Meta(ge=0, le=2**52)]


class _WireMember(WireStruct, frozen=True):
    """A device slot is [index, memory, cores]."""

    uid: str
    pod: str
    node: str
    phase: Literal["NOMINATED", "RESERVED"]
    since: float
    plan: str = ""
    devices: tuple[tuple[_NonNegative, _NonNegative, _NonNegative], ...] = ()


class _WireEvictions(WireStruct, frozen=True):
    plan: str
    action: str
    since: float
    victims: tuple[str, ...] = ()


class _WireMove(WireStruct, frozen=True):
    victim: str
    pod: str
    gang: str
    role: str
    owner: str
    queue: str
    preemptible: bool
    priority: int
    node: str
    since: float
    plan: str
    request: dict[str, _NonNegative] = msgspec.field(default_factory=dict)
    devices: tuple[tuple[_NonNegative, _NonNegative, _NonNegative], ...] = ()
    uid: str = ""


class _PlanSpec(WireStruct, frozen=True):
    gang: str = ""
    members: tuple[_WireMember, ...] = ()
    evictions: tuple[_WireEvictions, ...] = ()
    cancelled: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    part_of: str = ""
    moves: tuple[_WireMove, ...] = ()


class WirePlan(WireObject, frozen=True):
    spec: _PlanSpec = _PlanSpec()


class _WireCount(WireStruct, frozen=True):
    key: str
    count: _NonNegative


class _WireLosses(WireStruct, frozen=True):
    key: str
    evictions: float = 0.0
    evicted_at: float = 0.0
    reclaims: float = 0.0
    reclaimed_at: float = 0.0
    hours: float = 0.0
    moved_at: float = 0.0
    crossings: tuple[_WireCount, ...] = ()
    plans: tuple[str, ...] = ()


class _WireTime(WireStruct, frozen=True):
    key: str
    at: float


class _WireWait(WireStruct, frozen=True):
    key: str
    at: float
    nodes: tuple[str, ...] = ()
    starts_at: float | None = None
    since: float = 0.0
    moves: _NonNegative = 0


class _WireCancelled(WireStruct, frozen=True):
    key: str
    at: float
    count: _NonNegative = 1


class _WireMembers(WireStruct, frozen=True):
    role: str = ""
    controller: str = ""
    names: tuple[str, ...] = ()


class _WireSuccess(WireStruct, frozen=True):
    key: str
    owner: str = ""
    members: tuple[_WireMembers, ...] = ()


class _WirePastUse(WireStruct, frozen=True):
    queue: str
    at: float
    used: dict[str, int] = msgspec.field(default_factory=dict)
    average: dict[str, float] = msgspec.field(default_factory=dict)


class _HistorySpec(WireStruct, frozen=True):
    losses: tuple[_WireLosses, ...] = ()
    below_min_since: tuple[_WireTime, ...] = ()
    cancelled_evictions: tuple[_WireCancelled, ...] = ()
    waiting_since: tuple[_WireWait, ...] = ()
    succeeded: tuple[_WireSuccess, ...] = ()
    past_use: tuple[_WirePastUse, ...] = ()


class WireHistory(WireObject, frozen=True):
    spec: _HistorySpec = _HistorySpec()


# --- decoding -----------------------------------------------------------------------------------------------------------------


def read_plan(written: WirePlan, *, problems: Problems) -> SavedPlan:
    meta, spec = written.metadata, written.spec
    return SavedPlan(
        gang=spec.gang,
        members=tuple(
            SavedMember(one.uid, one.pod, one.node, Phase[one.phase], one.since, one.plan, _slots(one)) for one in spec.members
        ),
        evictions=tuple(SavedEvictions(one.plan, one.action, one.since, one.victims) for one in spec.evictions),
        cancelled=spec.cancelled,
        moves=tuple(
            SavedMove(**{**msgspec.structs.asdict(one), "request": tuple(sorted(one.request.items())), "devices": _slots(one)})
            for one in spec.moves
        ),
        name=meta.name,
        version=read_version(meta.resource_version),
        problems=problems.all(),
        parts=spec.parts,
        part_of=spec.part_of,
    )


def _slots(member: _WireMember | _WireMove) -> tuple[DeviceSlot, ...]:
    return tuple(DeviceSlot(*slot) for slot in member.devices)


def read_history(written: WireHistory, *, problems: Problems) -> SavedHistory:
    meta, spec = written.metadata, written.spec
    return SavedHistory(
        name=meta.name,
        losses={one.key: _losses(one, namespace=meta.name) for one in spec.losses},
        below_min_since={one.key: one.at for one in spec.below_min_since},
        cancelled_evictions={one.key: CancelledEviction(one.at, one.count) for one in spec.cancelled_evictions},
        waits={one.key: SavedWait(one.at, one.nodes, one.starts_at, one.since, one.moves) for one in spec.waiting_since},
        succeeded={one.key: _success(one) for one in spec.succeeded},
        past_use={
            one.queue: PastUse(one.at, tuple(sorted(one.used.items())), tuple(sorted(one.average.items()))) for one in spec.past_use
        },
        version=read_version(meta.resource_version),
        problems=problems.all(),
    )


def _losses(one: _WireLosses, *, namespace: str) -> Losses:
    crossings = tuple((each.key, each.count) for each in one.crossings)
    return Losses(
        namespace, one.evictions, one.evicted_at, one.reclaims, one.reclaimed_at, one.hours, crossings, one.plans, one.moved_at
    )


def _success(one: _WireSuccess) -> SavedSuccess:
    members = tuple(SavedMembers(each.role, each.controller, each.names) for each in one.members)
    return SavedSuccess(one.key, one.owner, members, sum(len(each.names) for each in members))


# --- encoding -----------------------------------------------------------------------------------------------------------------


def plan_ref(name: str, *, namespace: str) -> ApiObjectRef:
    return ApiObjectRef(*PLAN, namespace, name)


def history_ref(name: str, *, namespace: str) -> ApiObjectRef:
    return ApiObjectRef(*HISTORY, namespace, name)


def plan_specs(plan: SavedPlan) -> dict[str, Manifest]:
    """The objects of a plan by name: one, or several where it is too large. The first one names all others, whose names no other
    state of the plan has: until it is written these mean nothing, and from then on the plan is there whole.

    A merge patch replaces lists whole, so these are both the specs of new objects and patches of those that exist.
    """
    if _is_small(plan):
        return {plan.name: _plan_spec(plan)}
    first, *rest = _pieces(plan)
    state = blake2b(msgspec.json.encode(_plan_spec(plan)), digest_size=8).hexdigest()
    parts = {f"{plan.name}-{state}-{number}": {**_plan_spec(piece), "partOf": plan.name} for number, piece in enumerate(rest, 1)}
    return {plan.name: {**_plan_spec(first), "parts": list(parts)}, **parts}


def _plan_spec(plan: SavedPlan) -> Manifest:
    return {
        "gang": plan.gang,
        "members": [_member_fields(member) for member in plan.members],
        "evictions": [msgspec.to_builtins(entry) for entry in plan.evictions],
        "cancelled": list(plan.cancelled),
        "parts": [],
        "moves": [_move_fields(move) for move in plan.moves],
    }


def _is_small(plan: SavedPlan) -> bool:
    entries = len(plan.members) + len(plan.cancelled) + 2 * len(plan.moves) + sum(len(entry.victims) for entry in plan.evictions)
    return entries * _LONGEST_ENTRY <= MAX_PLAN_BYTES or len(msgspec.json.encode(_plan_spec(plan))) <= MAX_PLAN_BYTES


def _pieces(plan: SavedPlan) -> Iterator[SavedPlan]:
    """The plan in pieces that are small enough."""
    empty = replace(plan, members=(), evictions=(), cancelled=(), moves=())
    entries = [
        *((replace(empty, members=(member,))) for member in plan.members),
        *((replace(empty, evictions=(replace(one, victims=(uid,)),))) for one in plan.evictions for uid in one.victims),
        *((replace(empty, cancelled=(uid,))) for uid in plan.cancelled),
        *((replace(empty, moves=(move,))) for move in plan.moves),
    ]
    size = 0
    piece: list[SavedPlan] = []
    for entry in entries:
        more = len(msgspec.json.encode(_plan_spec(entry)))
        if size + more > MAX_PLAN_BYTES and size:
            yield empty.with_rest(piece)
            size, piece = 0, []
        size += more
        piece.append(entry)
    yield empty.with_rest(piece)


def _member_fields(member: SavedMember) -> dict[str, Any]:
    fields = msgspec.to_builtins(member)
    slots = [[slot.index, slot.memory, slot.cores] for slot in member.devices]
    return {**fields, "phase": member.phase.name, "devices": slots}


def _move_fields(move: SavedMove) -> dict[str, Any]:
    slots = [[slot.index, slot.memory, slot.cores] for slot in move.devices]
    return {**msgspec.to_builtins(move), "request": dict(move.request), "devices": slots}


def history_spec(history: SavedHistory) -> Manifest:
    return {
        "losses": [_losses_fields(key, losses) for key, losses in sorted(history.losses.items())],
        "belowMinSince": [{"key": key, "at": at} for key, at in sorted(history.below_min_since.items())],
        "cancelledEvictions": [
            {"key": key, "at": one.at, "count": one.count} for key, one in sorted(history.cancelled_evictions.items())
        ],
        "waitingSince": [
            {"key": key, "at": one.at, "nodes": list(one.nodes), "startsAt": one.starts_at, "since": one.since, "moves": one.moves}
            for key, one in sorted(history.waits.items())
        ],
        "pastUse": [
            {"queue": queue, "at": one.at, "used": dict(one.used), "average": dict(one.average)}
            for queue, one in sorted(history.past_use.items())
        ],
        "succeeded": [
            {"key": key, "owner": one.owner, "members": msgspec.to_builtins(one.members)}
            for key, one in sorted(history.succeeded.items())
        ],
    }


def _losses_fields(key: str, losses: Losses) -> dict[str, Any]:
    return {
        "key": key,
        "evictions": losses.evictions,
        "evictedAt": losses.evicted_at,
        "reclaims": losses.reclaims,
        "reclaimedAt": losses.reclaimed_at,
        "hours": losses.hours,
        "movedAt": losses.moved_at,
        "crossings": [{"key": by, "count": count} for by, count in losses.crossings],
        "plans": list(losses.plans),
    }


def new_object(ref: ApiObjectRef, spec: Manifest) -> Manifest:
    metadata = {"name": ref.name, "namespace": ref.namespace}
    return {"apiVersion": f"{names.MUSTER_GROUP}/{VERSION}", "kind": ref.kind, "metadata": metadata, "spec": spec}
