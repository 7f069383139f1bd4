"""Is what was expected true? Pods are looked up in the cluster, which is the truth; claims and verdicts in the scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from muster.adapters.kube import names
from muster.model.effects import Bind, Evict, Release
from muster.model.gang import Gang
from muster.model.pod import Phase
from muster.model.resources import short_name, show_amount
from muster.scenario.manifests import GANG_LABEL, pod_name
from muster.scenario.report import Deed, Difference
from muster.scenario.story import Check, Expect, GangSpec, Manifest, ObjectRef, Wanted, Who
from muster.scenario.venue import Venue
from muster.state.lifecycle import stage
from muster.state.world import World

FITS = "Fits"
_GROUP_NAMES = (names.VOLCANO_GROUP_NAME, names.GANG_NAME)
_GROUP_LABELS = (names.SIGS_POD_GROUP, names.X_K8S_POD_GROUP, names.LIGHT_NAME, GANG_LABEL)
_MOST_NAMES = 12


class Found(Protocol):
    """Where to look."""

    @property
    def cluster(self) -> Venue: ...

    @property
    def world(self) -> World: ...

    @property
    def gangs(self) -> dict[str, GangSpec]: ...

    @property
    def deeds(self) -> list[Deed]: ...

    @property
    def cycles(self) -> int: ...


def differences(expect: Expect, found: Found) -> list[Difference]:
    """All that is not as expected, apart from `stable`, which needs time."""
    look = _Look(found)
    return [difference for check in expect.checks if check.key != "stable" for difference in _CHECKS[check.key](check, look)]


@dataclass(frozen=True, slots=True)
class Seat:
    """A pod in one of the states that a scenario asks about. `node` is empty where it has none."""

    title: str
    gang: str
    role: str
    node: str = ""
    ours: bool = True


class _Look:
    """The state of everything at this moment, gathered once for all checks of a step."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.world = found.world

    @cached_property
    def pods(self) -> list[Manifest]:
        return self.found.cluster.listed("Pod")

    @cached_property
    def seats(self) -> dict[str, Seat]:
        """Every pod of the cluster by UID."""
        return {pod["metadata"]["uid"]: _seat(pod) for pod in self.pods}

    def now(self, key: str) -> list[Seat]:
        """Who is in this state now."""
        claims = {Phase.HELD: "held", Phase.NOMINATED: "nominated"}
        found: list[Seat] = []
        for pod in self.pods:
            uid, placement = pod["metadata"]["uid"], self.world.placements.by_uid.get(pod["metadata"]["uid"])
            state = _state(pod)
            node = pod["spec"].get("nodeName", "")
            if state == "pending" and placement is not None and placement.phase in claims:
                state, node = claims[placement.phase], placement.node or ""
            if state == key:
                seat = self.seats[uid]
                found.append(Seat(seat.title, seat.gang, seat.role, node, seat.ours))
        return found

    def ever(self, kind: type[Evict] | type[Release]) -> list[Seat]:
        """Whom this ever happened to, in order."""
        # Who is only told that it timed out had nothing that could end.
        return [_seat_of_effect(deed.effect) for deed in self.found.deeds if isinstance(deed.effect, kind) and deed.effect.node]

    def members(self, who: Who) -> list[str]:
        """The pods that a name stands for."""
        if who.pod:
            return [f"{who.namespace}/{who.pod}"]
        spec = self.found.gangs.get(f"{who.namespace}/{who.gang}")
        if spec is not None:
            return [
                f"{spec.namespace}/{pod_name(spec.name, role.name, number)}"
                for role in spec.roles
                if who.role is None or role.name == who.role
                for number in range(role.arrived)
            ]
        return [seat.title for seat in self.seats.values() if _is_meant(who, seat)]

    def gang(self, who: Who) -> Gang | None:
        """The scheduler's gang that a name stands for: of several, one that waits."""
        title = f"{who.namespace}/{who.gang or who.pod}"
        gangs = self.world.facts.gangs.values()
        found = [gang for gang in gangs if title in gang.title.split("+")]
        if not found:
            members = set(self.members(who))
            found = [gang for gang in gangs if any(pod.title in members for pod in gang.pods())]
        waiting = [gang for gang in found if gang.key in self.world.placements.unseated]
        return next(iter([*waiting, *found]), None)


def _seat(pod: Manifest) -> Seat:
    metadata = pod["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    said = [annotations.get(name) for name in _GROUP_NAMES] + [labels.get(name) for name in _GROUP_LABELS]
    native = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    gang = next((name for name in (*said, native) if name), "")
    role = annotations.get(names.VOLCANO_TASK) or labels.get(names.VOLCANO_TASK) or ""
    namespace = metadata["namespace"]
    ours = pod["spec"].get("schedulerName") == "muster"
    return Seat(f"{namespace}/{metadata['name']}", f"{namespace}/{gang or metadata['name']}", role, ours=ours)


def _state(pod: Manifest) -> str:
    phase = (pod.get("status") or {}).get("phase")
    if phase in ("Succeeded", "Failed"):
        return "finished"
    if pod["metadata"].get("deletionTimestamp"):
        return "leaving"
    return "bound" if pod["spec"].get("nodeName") else "pending"


def _seat_of_effect(effect: Any) -> Seat:
    return Seat(effect.pod, effect.gang, "", effect.node)


def _is_meant(who: Who, seat: Seat) -> bool:
    if who.pod:
        return seat.title == f"{who.namespace}/{who.pod}"
    return seat.gang == f"{who.namespace}/{who.gang}" and who.role in (None, seat.role)


# -- who ---------------------------------------------------------------------------------------------------------------------------


def _who_now(check: Check, look: _Look) -> Iterator[Difference]:
    yield from _who(check, look.now(check.key), look)


def _who_ever(check: Check, look: _Look) -> Iterator[Difference]:
    seats = look.ever(Evict if check.key == "evicted" else Release)
    yield from _who(check, seats, look)


def _who(check: Check, seats: list[Seat], look: _Look) -> Iterator[Difference]:
    if check.exact:
        yield from _exactly(check, seats, look)
        return
    for wanted in check.wanted:
        assert isinstance(wanted.who, Who)
        meant = _meant(wanted.who, seats, look)
        what = f"{check.key} of {wanted.who.text}"
        if wanted.count is not None and len(meant) != wanted.count:
            yield Difference(what, str(wanted.count), f"{len(meant)}{_named(meant)}", wanted.line)
        elif wanted.nodes is not None:
            yield from _on_nodes(what, wanted, meant)


def _meant(who: Who, seats: Iterable[Seat], look: _Look) -> list[Seat]:
    members = set(look.members(who))
    return [seat for seat in seats if seat.title in members or _is_meant(who, seat)]


def _exactly(check: Check, seats: list[Seat], look: _Look) -> Iterator[Difference]:
    expected = Counter(title for wanted in check.wanted if isinstance(wanted.who, Who) for title in look.members(wanted.who))
    found = Counter(seat.title for seat in seats if seat.ours)
    if expected != found:
        extra, missing = sorted((found - expected).elements()), sorted((expected - found).elements())
        text = "; ".join(f"{word} {_few(names)}" for word, names in (("not", missing), ("but also", extra)) if names)
        yield Difference(f"{check.key}, exactly", _few(sorted(expected.elements())) or "nobody", text, check.line)


def _on_nodes(what: str, wanted: Wanted, meant: list[Seat]) -> Iterator[Difference]:
    """One node alone is for each of them; several are one for each, in any order."""
    found = sorted(seat.node for seat in meant)
    expected = sorted(wanted.nodes or ())
    ok = bool(found) and set(found) == set(expected) if wanted.texts else found == expected
    if not ok:
        yield Difference(what, f"on {_few(expected)}", f"on {_few(found)}" if found else "nobody", wanted.line)


def _named(seats: list[Seat]) -> str:
    return f": {_few([f'{seat.title} on {seat.node}' if seat.node else seat.title for seat in seats])}" if seats else ""


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _order(check: Check, look: _Look) -> Iterator[Difference]:
    wanted = [wanted.who for wanted in check.wanted if isinstance(wanted.who, Who)]
    seen: dict[str, None] = {}
    for deed in look.found.deeds:
        if isinstance(deed.effect, Bind):
            for who in wanted:
                if deed.effect.pod in look.members(who):
                    seen[who.text] = None
    expected = [who.text for who in wanted]
    if list(seen) != expected:
        yield Difference("order", ", ".join(expected), ", ".join(seen) or "nobody", check.line)


def _where(check: Check, look: _Look) -> Iterator[Difference]:
    bound = look.now("bound")
    for wanted in check.wanted:
        assert isinstance(wanted.who, Who)
        found = sorted({seat.node for seat in _meant(wanted.who, bound, look)})
        if found != list(wanted.nodes or ()):
            yield Difference(f"where of {wanted.who.text}", _few(list(wanted.nodes or ())), _few(found) or "nowhere", wanted.line)


def _devices(check: Check, look: _Look) -> Iterator[Difference]:
    uids = {seat.title: uid for uid, seat in look.seats.items()}
    for wanted in check.wanted:
        assert isinstance(wanted.who, Who)
        placed = [look.world.placements.by_uid.get(uids.get(title, "")) for title in look.members(wanted.who)]
        found = tuple(str(slot.index) for placement in placed if placement is not None for slot in placement.devices)
        if found != wanted.texts:
            expected = ", ".join(wanted.texts) or "none"
            yield Difference(f"devices of {wanted.who.text}", expected, ", ".join(found) or "none", wanted.line)


# -- verdicts ----------------------------------------------------------------------------------------------------------------------


def _verdicts(check: Check, look: _Look) -> Iterator[Difference]:
    for wanted in check.wanted:
        assert isinstance(wanted.who, Who)
        gang = look.gang(wanted.who)
        found = _READ[check.key](gang, look)
        what = f"{check.key} of {wanted.who.text}"
        if check.key == "why":
            missing = [text for text in wanted.texts if text not in found]
            if missing:
                yield Difference(what, " and ".join(repr(text) for text in missing), found or "it does not wait", wanted.line)
        elif (wanted.texts[0] if wanted.texts else str(wanted.count)) != found:
            yield Difference(what, wanted.texts[0] if wanted.texts else str(wanted.count), found, wanted.line)


def _why(gang: Gang | None, look: _Look) -> str:
    verdict = look.world.memory.attempts[gang.key].verdict if gang is not None else None
    return verdict.why if verdict is not None and not verdict.ok else ""


def _code(gang: Gang | None, look: _Look) -> str:
    verdict = look.world.memory.attempts[gang.key].verdict if gang is not None else None
    return verdict.code if verdict is not None and not verdict.ok else FITS


def _stage(gang: Gang | None, look: _Look) -> str:
    return "gone" if gang is None else stage(look.world, gang).value


def _attempts(gang: Gang | None, look: _Look) -> str:
    return str(look.world.memory.attempts[gang.key].count if gang is not None else 0)


_READ: dict[str, Callable[[Gang | None, _Look], str]] = {"why": _why, "code": _code, "stage": _stage, "attempts": _attempts}


def _conditions(check: Check, look: _Look) -> Iterator[Difference]:
    for wanted in check.wanted:
        texts = list(_written(wanted.who, look))
        what = f"condition of {wanted.who.text if not isinstance(wanted.who, str) else wanted.who}"
        missing = [text for text in wanted.texts if not any(text in each for each in texts)]
        if missing:
            yield Difference(what, " and ".join(repr(text) for text in missing), " | ".join(texts) or "no condition", wanted.line)


def _written(who: Who | ObjectRef | str, look: _Look) -> Iterator[str]:
    """All conditions on the object, or on the gang's PodGroup and its pods."""
    assert not isinstance(who, str)
    if isinstance(who, ObjectRef):
        found = look.found.cluster.get(who.kind, who.namespace, who.name)
        yield from _texts_of(found or {})
        return
    for group in look.found.cluster.listed("PodGroup"):
        if group["metadata"]["name"] == who.gang and group["metadata"]["namespace"] == who.namespace:
            yield from _texts_of(group)
    for pod in look.pods:
        if _is_meant(who, look.seats[pod["metadata"]["uid"]]):
            yield from _texts_of(pod)


def _texts_of(found: Manifest) -> Iterator[str]:
    for one in (found.get("status") or {}).get("conditions") or []:
        yield f"{one.get('type')}={one.get('status')} {one.get('reason', '')}: {one.get('message', '')}"


# -- figures -----------------------------------------------------------------------------------------------------------------------


def _queues(check: Check, look: _Look) -> Iterator[Difference]:
    ledger, columns = look.world.ledger, look.world.columns
    for wanted in check.wanted:
        key = "root" if wanted.who == "root" else f"queue/{wanted.who}"
        for figure, amounts in wanted.amounts:
            read = {"used": ledger.used, "leaving": ledger.leaving, "promised": ledger.promised, "requested": ledger.requested}
            said = read[figure](key).tolist() if key in ledger else [0] * len(columns.names)
            found = dict(zip(columns.names, said, strict=True))
            for name, amount in amounts.items():
                if found.get(name, 0) != amount:
                    what = f"{figure} {short_name(name)} of queue {wanted.who}"
                    yield Difference(what, show_amount(name, amount), show_amount(name, found.get(name, 0)), wanted.line)


def _cycles(check: Check, look: _Look) -> Iterator[Difference]:
    if check.count != look.found.cycles:
        yield Difference("cycles", str(check.count), str(look.found.cycles), check.line)


def _writes(check: Check, look: _Look) -> Iterator[Difference]:
    writes = Counter(write.verb for write in look.found.cluster.writes)
    if check.count is not None and check.count != writes.total():
        yield Difference("writes", str(check.count), f"{writes.total()}: {dict(writes)}", check.line)
    for wanted in check.wanted:
        found = writes[str(wanted.who)]
        if found != wanted.count:
            yield Difference(f"writes of {wanted.who}", str(wanted.count), str(found), wanted.line)


_CHECKS: dict[str, Callable[[Check, _Look], Iterator[Difference]]] = {
    **dict.fromkeys(("bound", "held", "nominated", "pending", "finished"), _who_now),
    **dict.fromkeys(("evicted", "released"), _who_ever),
    **dict.fromkeys(("why", "code", "stage", "attempts"), _verdicts),
    "order": _order,
    "where": _where,
    "devices": _devices,
    "condition": _conditions,
    "queue": _queues,
    "cycles": _cycles,
    "writes": _writes,
}
