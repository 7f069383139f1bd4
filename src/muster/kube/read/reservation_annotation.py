"""The reservation annotation: what a scheduler needs after a restart to recover a reservation or nomination.

Anyone who may edit a pod can write it, so it is accepted only when it is complete and has the UID of its pod: a copied manifest has
no reservation. Whether the node exists and has the capacity is checked later, against the cluster.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from muster.kube.read.text_values import BadText
from muster.model.device import DeviceSlot
from muster.model.pod import Phase, ReservationNote

MAX_ANNOTATION_LENGTH = 256 * 1024

_NonNegativeInt = Annotated[int, msgspec.Meta(ge=0, le=2**52)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class _ReservationJson(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The JSON of a reservation. A device slot is [index, memory, cores]."""

    uid: _Name
    phase: Literal["RESERVED", "NOMINATED"]
    node: _Name
    since: Annotated[float, msgspec.Meta(ge=0)]
    plan: str = ""
    size: _NonNegativeInt = 0
    victims: tuple[_Name, ...] = ()
    devices: tuple[tuple[_NonNegativeInt, _NonNegativeInt, _NonNegativeInt], ...] = ()


def write_reservation(note: ReservationNote, *, uid: str) -> str:
    """The value of the annotation for the pod of this UID."""
    reservation = _ReservationJson(
        uid=uid,
        phase="RESERVED" if note.phase is Phase.RESERVED else "NOMINATED",
        node=note.node,
        since=note.since,
        plan=note.plan,
        size=note.size,
        victims=note.victims,
        devices=tuple((slot.index, slot.memory, slot.cores) for slot in note.devices),
    )
    return msgspec.json.encode(reservation).decode()


def read_reservation(text: str, *, uid: str) -> ReservationNote:
    """The reservation, or BadText where it is incomplete or of another pod."""
    if len(text) > MAX_ANNOTATION_LENGTH:
        raise BadText(f"is longer than {MAX_ANNOTATION_LENGTH} characters and was ignored")
    try:
        found = msgspec.json.decode(text, type=_ReservationJson)
    except (msgspec.DecodeError, RecursionError):
        raise BadText("is no reservation that this scheduler wrote and was ignored; remove the annotation") from None
    if found.uid != uid:
        raise BadText(f"is the reservation of another pod ({found.uid[:40]!r}) and was ignored; remove the annotation")
    return ReservationNote(
        phase=Phase[found.phase],
        node=found.node,
        since=found.since,
        plan=found.plan,
        size=found.size,
        victims=found.victims,
        devices=tuple(DeviceSlot(index, memory, cores) for index, memory, cores in found.devices),
    )
