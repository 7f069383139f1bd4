"""The claim annotation: what a scheduler that starts anew must know about a claim, and nothing else.

Anybody who may edit a pod can write it, so it is believed only when it is whole and names the pod it stands on: a copied
manifest carries no claim over. Whether its node and its room still fit is judged later, by those who know the cluster.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from muster.adapters.kube.values import BadText
from muster.model.devices import Slot
from muster.model.pod import ClaimNote, Phase

LONGEST_CLAIM = 256 * 1024

_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**52)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class _Text(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The JSON of a claim. A slot is written as [index, memory, cores]."""

    uid: _Name
    phase: Literal["HELD", "NOMINATED"]
    node: _Name
    since: Annotated[float, msgspec.Meta(ge=0)]
    plan: str = ""
    size: _Whole = 0
    victims: tuple[_Name, ...] = ()
    devices: tuple[tuple[_Whole, _Whole, _Whole], ...] = ()


def write_claim(note: ClaimNote, *, uid: str) -> str:
    """The annotation's value for the pod of this UID."""
    text = _Text(
        uid=uid,
        phase="HELD" if note.phase is Phase.HELD else "NOMINATED",
        node=note.node,
        since=note.since,
        plan=note.plan,
        size=note.size,
        victims=note.victims,
        devices=tuple((slot.index, slot.memory, slot.cores) for slot in note.devices),
    )
    return msgspec.json.encode(text).decode()


def read_claim(text: str, *, uid: str) -> ClaimNote:
    """The claim, or BadText where it is not whole or belongs to another pod."""
    if len(text) > LONGEST_CLAIM:
        raise BadText(f"is longer than {LONGEST_CLAIM} characters and was ignored")
    try:
        found = msgspec.json.decode(text, type=_Text)
    except (msgspec.DecodeError, RecursionError):
        raise BadText("is no claim that this scheduler wrote and was ignored; remove the annotation") from None
    if found.uid != uid:
        raise BadText(f"is the claim of another pod ({found.uid[:40]!r}) and was ignored; remove the annotation")
    return ClaimNote(
        phase=Phase[found.phase],
        node=found.node,
        since=found.since,
        plan=found.plan,
        size=found.size,
        victims=found.victims,
        devices=tuple(Slot(index, memory, cores) for index, memory, cores in found.devices),
    )
