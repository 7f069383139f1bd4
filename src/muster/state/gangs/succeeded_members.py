"""Members that succeeded: they count towards the minimum of their gang also after their pods were deleted.

They are known by name: a new pod of that name replaces the old one. They are forgotten with the PodGroup, and where there is none
with the last pod of the gang; those of one controller as soon as another one makes pods of their role.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from muster.model.pod import ApiFlavour, Membership, Pod, PodSignature, PodStatusPhase
from muster.model.saved_state import SavedMembers, SavedSuccess

MAX_SUCCEEDED = 10_000
"""So many names of a gang are remembered: whoever makes pods that end at once must not fill the memory. The oldest go first."""


@dataclass(slots=True)
class _Succeeded:
    owner: str = ""
    """UID of the PodGroup, or empty while there is none."""
    pods: dict[str, Pod] = field(default_factory=dict)
    """By name."""
    seen: frozenset[str] = frozenset()
    """UIDs of the pods that there were when its gang was last made."""
    saved: SavedSuccess | None = None
    """The same as it is saved; None while it is not made."""


class SucceededMembers:
    def __init__(self) -> None:
        self._by_group: dict[str, _Succeeded] = {}
        self.writes = 0
        """How often something of this changed."""

    def note(self, group_key: str, pod: Pod) -> None:
        """A pod was seen: it may have succeeded. Whether it replaces another one is looked at when its gang is made, so that the
        order of arrival does not matter."""
        if pod.status_phase is not PodStatusPhase.SUCCEEDED or pod.membership is None:
            return
        known = self._by_group.setdefault(group_key, _Succeeded())
        if known.pods.get(pod.name) is not pod:
            known.pods[pod.name] = pod
            if len(known.pods) > MAX_SUCCEEDED:
                del known.pods[next(iter(known.pods))]
            self._note_change(known)

    def _note_change(self, known: _Succeeded) -> None:
        known.saved = None
        self.writes += 1

    def settle(self, group_key: str, *, owner: str, present: Mapping[str, Pod]) -> list[Pod]:
        """Those that count although their pods were deleted. `owner`: the UID of the PodGroup, or empty; `present`: the pods that
        there are, by UID."""
        known = self._by_group.get(group_key)
        if known is None:
            return []
        is_another = bool(known.seen) and known.seen.isdisjoint(present)
        if (known.owner and known.owner != owner) or (not owner and (not present or is_another)):
            known.pods = {pod.name: pod for pod in present.values() if pod.status_phase is PodStatusPhase.SUCCEEDED}
            self._note_change(known)
        if known.owner != owner:
            known.owner = owner
            self._note_change(known)
        for name in _replaced(known.pods, present):
            del known.pods[name]
            self._note_change(known)
        known.seen = frozenset(present)
        if not known.pods:
            del self._by_group[group_key]
        return [pod for pod in known.pods.values() if pod.uid not in present]

    def saved(self) -> Iterator[tuple[str, SavedSuccess]]:
        """What is kept for a scheduler that starts later, by namespace."""
        for group_key, known in sorted(self._by_group.items()):
            if known.saved is None:
                known.saved = _saved(group_key, known)
            if known.pods:
                yield namespace_of(group_key), known.saved

    def recover(self, saved: SavedSuccess) -> None:
        """Take over what the scheduler before this one had saved. What is seen of a pod itself counts."""
        known = self._by_group.setdefault(saved.group, _Succeeded())
        known.owner = saved.owner
        for members in saved.members:
            for name in members.names:
                known.pods.setdefault(name, _pod(saved.group, name, members))
        self._note_change(known)


def namespace_of(group_key: str) -> str:
    return group_key.partition(":")[2].partition("/")[0]


def _saved(group_key: str, known: _Succeeded) -> SavedSuccess:
    names: dict[tuple[str, str], list[str]] = {}
    for name, pod in known.pods.items():
        names.setdefault((_role(pod), pod.controller), []).append(name)
    members = tuple(SavedMembers(role, by, tuple(sorted(found))) for (role, by), found in sorted(names.items()))
    return SavedSuccess(group_key, known.owner, members, len(known.pods))


def _replaced(succeeded: Mapping[str, Pod], present: Mapping[str, Pod]) -> list[str]:
    """The names of those that a pod of the same name replaces, or another controller that makes pods of their role."""
    by_name = {pod.name: pod for pod in present.values() if pod.status_phase is not PodStatusPhase.SUCCEEDED}
    controllers: dict[str, set[str]] = {}
    for pod in present.values():
        controllers.setdefault(_role(pod), set()).add(pod.controller)
    unfinished = {_role(pod) for pod in present.values() if not pod.finished}
    return [
        name
        for name, pod in succeeded.items()
        if name in by_name or (_role(pod) in unfinished and pod.controller not in controllers[_role(pod)])
    ]


def _role(pod: Pod) -> str:
    return pod.membership.role if pod.membership is not None else ""


def _pod(group_key: str, name: str, members: SavedMembers) -> Pod:
    """A pod that is no more, as far as it counts."""
    family, _, full_name = group_key.partition(":")
    namespace, _, group = full_name.partition("/")
    return Pod(
        f"succeeded:{group_key}/{name}",
        namespace,
        name,
        PodSignature(),
        created=inf,
        controller=members.controller,
        membership=Membership(ApiFlavour(family), group, members.role),
        status_phase=PodStatusPhase.SUCCEEDED,
    )
