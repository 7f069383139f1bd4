"""Assembles gangs out of pods, PodGroups and annotations, whatever the order in which they arrive.

A *group key* is where pods of one declared name belong: `volcano:ns/name`, or `pod:uid` for a single pod. A gang is made of one
group key, or of several where they declare each other as a GangGroup. Only gangs that changed are assembled again. What one group
key makes is in `declared_gang`, what several make together in `gang_groups`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter

from muster.model.events import PriorityClass
from muster.model.gang import CompositePodGroup, Gang, PodGroup, RoleMin, changed
from muster.model.pod import ApiFlavour, Pod
from muster.model.saved_state import SavedHistory
from muster.state.gangs.composite_groups import CompositeGroups, composed
from muster.state.gangs.declared_gang import gang_of_pods, gang_without_pods
from muster.state.gangs.declared_values import GROUP_MINIMUMS, Minimums, unreadable_field
from muster.state.gangs.gang_groups import joined
from muster.state.gangs.succeeded_members import SucceededMembers

DEFAULT_WAIT_S = 600.0
_GROUPED_FAMILIES = (ApiFlavour.KOORDINATOR.family, ApiFlavour.SIGS.family)
"""PodGroups of these APIs may be in one GangGroup."""


# All of a pod that its gang is made of. Whether it has ended counts, whether it has started does not.
_MEMBER = attrgetter(
    "finished", "created", "name", "namespace", "signature", "membership", "priority", "never_preempts", "labels", "queue", "gates",
    "deleted_at", "problems",
)  # fmt: skip


class GangAssembler:
    def __init__(self, succeeded: SucceededMembers, *, default_wait_s: float = DEFAULT_WAIT_S) -> None:
        self._succeeded = succeeded
        self.default_wait_s = default_wait_s
        self.groups: dict[str, PodGroup] = {}
        self.classes: dict[str, PriorityClass] = {}
        self._pods: dict[str, dict[str, Pod]] = {}
        self._group_key_of: dict[str, str] = {}
        self._gang_of_group: dict[str, str] = {}
        self._groups_of_gang: dict[str, tuple[str, ...]] = {}
        self._siblings_of: dict[str, tuple[str, ...]] = {}
        """The names that a group key declares as its GangGroup, sorted, for those that declare any."""
        self._declared_by: dict[str, dict[str, None]] = {}
        """By name, the group keys that declare it."""
        self._last_readable: dict[str, PodGroup] = {}
        """Each PodGroup as it was when its minimum could last be read; kept while its gang has pods."""
        self._composites = CompositeGroups()
        self._changed: dict[str, None] = {}
        self._replaced: dict[str, dict[str, Pod]] = {}
        """By group key, members whose objects changed in what their gang does not depend on: most updates are of this kind."""

    # -- facts -----------------------------------------------------------------------------------------------------------------

    def put_pod(self, pod: Pod) -> None:
        group_key = pod.gang_key
        before = self._group_key_of.get(pod.uid)
        if before is not None and before != group_key:
            self.drop_pod(pod.uid)
        self._group_key_of[pod.uid] = group_key
        self._succeeded.note(group_key, pod)
        pods = self._pods.setdefault(group_key, {})
        known = pods.get(pod.uid)
        pods[pod.uid] = pod
        if known is not None and pod.deleted_at is None and _MEMBER(pod) == _MEMBER(known):
            self._replaced.setdefault(group_key, {})[pod.uid] = pod
        else:
            self._changed[group_key] = None

    def drop_pod(self, uid: str) -> None:
        group_key = self._group_key_of.pop(uid, None)
        if group_key is None:
            return
        pods = self._pods[group_key]
        del pods[uid]
        if not pods:
            del self._pods[group_key]
        self._changed[group_key] = None

    def recover_succeeded(self, history: SavedHistory) -> None:
        """Members that succeeded and whose pods may have been deleted while no scheduler ran."""
        for group_key, saved in sorted(history.succeeded.items()):
            self._succeeded.recover(saved)
            self._changed[group_key] = None

    def put_group(self, group: PodGroup) -> None:
        group_key = group.key
        known = self.groups.get(group_key)
        self.groups[group_key] = group
        if group.parent != ("" if known is None else known.parent):
            self._set_parent(group_key, group.parent_key)
        if not unreadable_field(group.problems, GROUP_MINIMUMS):
            self._last_readable[group_key] = group
        # An event that only echoes a status that was written changes nothing.
        if known is None or _as_declared(group) != _as_declared(known):
            self._changed[group_key] = None

    def put_composite(self, group: CompositePodGroup) -> None:
        self._mark_related(group.key)
        self._composites.put(group)
        self._mark_related(group.key)

    def drop_composite(self, key: str) -> None:
        self._mark_related(key)
        self._composites.drop(key)
        self._mark_related(key)

    def gangs_below(self, key: str) -> list[str]:
        """The gangs of the PodGroups around a CompositePodGroup."""
        found = (self._gang_of_group.get(group_key) for group_key in self._composites.related(key))
        return list(dict.fromkeys(gang for gang in found if gang is not None))

    def _mark_related(self, key: str) -> None:
        self._changed.update(dict.fromkeys(self._composites.related(key)))

    def _set_parent(self, group_key: str, parent: str) -> None:
        self._mark_related(group_key)
        self._composites.set_parent(group_key, parent)
        self._mark_related(group_key)

    def gang_of(self, group_key: str) -> str | None:
        """The gang that a PodGroup belongs to, as it was last assembled."""
        return self._gang_of_group.get(group_key)

    def drop_group(self, group_key: str) -> None:
        group = self.groups.pop(group_key, None)
        if group is not None:
            self._changed[group_key] = None
            if group.parent:
                self._set_parent(group_key, "")

    def put_class(self, found: PriorityClass) -> None:
        self.classes[found.name] = found
        self._mark_all_changed()

    def drop_class(self, name: str) -> None:
        if self.classes.pop(name, None) is not None:
            self._mark_all_changed()

    def _mark_all_changed(self) -> None:
        for group_key in (*self._pods, *self.groups):
            self._changed[group_key] = None

    # -- gangs -----------------------------------------------------------------------------------------------------------------

    def assemble(self) -> tuple[dict[str, Gang], list[str]]:
        """The gangs that changed, assembled anew, and the keys of those that are no more."""
        if not self._changed:
            return {}, []
        for group_key in self._changed:
            self._replaced.pop(group_key, None)
        stale, parts = self._stale_gangs()
        made: dict[str, Gang] = {}
        for group_key in sorted(parts):
            part = parts[group_key]
            if part is not None and group_key not in self._gang_of_group:
                gang = self._gang(part, parts)
                made[gang.key] = gang
        return made, [key for key in stale if key not in made]

    def replaced_members(self) -> dict[str, dict[str, Pod]]:
        """By gang, the members whose objects changed although the gang did not. For gangs that were not just assembled anew."""
        found: dict[str, dict[str, Pod]] = {}
        for group_key, pods in self._replaced.items():
            key = self._gang_of_group.get(group_key)
            if key is not None:
                found.setdefault(key, {}).update(pods)
        self._replaced = {}
        return found

    def _stale_gangs(self) -> tuple[list[str], dict[str, Gang | None]]:
        """Keys of the gangs to assemble anew, and their parts: those of changed group keys, and of those that declare one that
        came, went or declares others than before. Who belongs together must not depend on who came first."""
        stale: dict[str, None] = {}
        parts: dict[str, Gang | None] = {}
        todo, self._changed = list(self._changed), {}
        while todo:
            group_key = todo.pop()
            if group_key in parts:
                continue
            part = parts[group_key] = self._part(group_key)
            key = self._gang_of_group.pop(group_key, None)
            if self._set_siblings(group_key, () if part is None else part.siblings) or (key is None) != (part is None):
                todo.extend(self._declared_by.get(_name(group_key), ()))
            if key is not None:
                stale[key] = None
                todo.extend(self._groups_of_gang.pop(key, ()))
        return list(stale), parts

    def _set_siblings(self, group_key: str, siblings: tuple[str, ...]) -> bool:
        """Remember which others this one declares as its GangGroup; were these others before?"""
        before = self._siblings_of.get(group_key, ())
        if siblings == before:
            return False
        for name in before:
            self._declared_by[name].pop(group_key)
            if not self._declared_by[name]:
                del self._declared_by[name]
        for name in siblings:
            self._declared_by.setdefault(name, {})[group_key] = None
        self._siblings_of[group_key] = siblings
        if not siblings:
            del self._siblings_of[group_key]
        return True

    def _gang(self, part: Gang, parts: Mapping[str, Gang | None]) -> Gang:
        together = self._connected(part, parts)
        gangs = sorted(together.values(), key=lambda gang: gang.full_name)
        root = self._composites.root_of(part.key) if part.parent else ""
        if root:
            gang = composed(self._composites, root, gangs, self.classes)
        else:
            gang = joined(gangs, missing=self._first_missing(together, parts))
        self._groups_of_gang[gang.key] = tuple(together)
        for group_key in together:
            self._gang_of_group[group_key] = gang.key
        return gang

    def _first_missing(self, together: Mapping[str, Gang], parts: Mapping[str, Gang | None]) -> tuple[str, bool] | None:
        """The first name that one of them declares and that is not with them, and whether there is such a gang."""
        present = {gang.full_name for gang in together.values()}
        firsts: dict[str, str] = {}
        for group_key in together:
            name = next((name for name in self._siblings_of.get(group_key, ()) if name not in present), None)
            if name is not None:
                firsts[group_key] = name
        if not firsts:
            return None
        name = min(firsts.values())
        named = (key for group_key, first in firsts.items() if first == name for key in _keys(name, declared_by=group_key))
        return name, any(parts.get(key) is not None or key in self._gang_of_group for key in named)

    def _connected(self, part: Gang, parts: Mapping[str, Gang | None]) -> dict[str, Gang]:
        """The part and all that are in one GangGroup with it. Both must declare it: nobody is added to a group by others alone."""
        if part.parent and (root := self._composites.root_of(part.key)):
            below = {key: parts.get(key) for key in self._composites.leaves(root)}
            return {key: each for key, each in below.items() if each is not None}
        together = {part.key: part}
        todo = [part.key]
        while todo:
            for other in self._neighbours(todo.pop()):
                found = parts.get(other)
                if found is not None and other not in together:
                    together[other] = found
                    todo.append(other)
        return together

    def _neighbours(self, group_key: str) -> Iterator[str]:
        """Those that it declares and that declare it."""
        own = _name(group_key)
        declaring = self._declared_by.get(own, {})
        for name in self._siblings_of.get(group_key, ()) if declaring else ():
            for other in _keys(name, declared_by=group_key):
                if other in declaring and group_key in _keys(own, declared_by=other):
                    yield other

    def _part(self, group_key: str) -> Gang | None:
        group = self.groups.get(group_key)
        if group_key in self._pods or (group is not None and self._deleted(group_key, group)):
            part = self._part_with_pods(group_key, group)
            return part if group is not None else self._in_last_queue(part)
        if group is None:
            self._deleted(group_key, None)
            self._last_readable.pop(group_key, None)
            return None
        return gang_without_pods(group_key, group, default_wait_s=self.default_wait_s)

    def _in_last_queue(self, part: Gang) -> Gang:
        """Pods whose PodGroup was deleted stay in the queue that it named, unless they name one themselves."""
        last = self._last_readable.get(part.key)
        queue = last.queue if last is not None else ""
        return changed(part, roles=tuple(changed(role, named_queue=role.named_queue or queue) for role in part.roles))

    def _part_with_pods(self, group_key: str, group: PodGroup | None) -> Gang:
        pods = [*self._pods.get(group_key, {}).values(), *self._deleted(group_key, group)]
        return gang_of_pods(group_key, pods, group, self.classes, default_wait_s=self.default_wait_s)

    def _deleted(self, group_key: str, group: PodGroup | None) -> list[Pod]:
        """Members that succeeded and whose pods were deleted."""
        owner = "" if group is None else group.uid or group.key
        return self._succeeded.settle(group_key, owner=owner, present=self._pods.get(group_key, {}))

    def last_minimums(self, gang: Gang) -> Minimums | None:
        """The minimums of a gang when they could last be read, where they are not known now."""
        group_keys = () if gang.min_is_known else self._groups_of_gang[gang.key]
        if not any(group_key in self._last_readable for group_key in group_keys):
            return None
        parts = [self._part_as_last_read(group_key) for group_key in group_keys]
        known = joined(sorted(parts, key=lambda part: part.full_name), missing=None)
        return Minimums(known.min, tuple(RoleMin(role.name, role.min) for role in known.roles))

    def _part_as_last_read(self, group_key: str) -> Gang:
        group = self._last_readable.get(group_key, self.groups.get(group_key))
        if group_key in self._pods:
            return self._part_with_pods(group_key, group)
        assert group is not None, f"{group_key} is part of a gang and has neither pods nor a PodGroup"
        return gang_without_pods(group_key, group, default_wait_s=self.default_wait_s)


def _name(group_key: str) -> str:
    return group_key.split(":", 1)[1]


def _keys(name: str, *, declared_by: str) -> list[str]:
    """The group keys that a name may stand for: in each API in which the members of a GangGroup may be declared."""
    return [f"{family}:{name}" for family in dict.fromkeys((declared_by.split(":", 1)[0], *_GROUPED_FAMILIES))]


def _as_declared(group: PodGroup) -> PodGroup:
    """The group without what only its status says."""
    return replace(group, version=0, phase="", started=None, status={})
