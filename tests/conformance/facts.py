"""What a case says, looked up: groups, their pods and queues, who runs, how much. Nothing here comes from the scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tests.conformance.corpus import Case, Json, annotations_of, meta_of, name_of, spec_of
from tests.conformance.inputs import GROUP_NAME

from muster.model.resource_amounts import PODS, amount

ROOT = "root"


@dataclass(slots=True)
class Group:
    title: str
    min: int
    queue: str
    priority: int
    topology: bool
    phase: str
    pods: list[Json] = field(default_factory=list)

    @property
    def running(self) -> list[str]:
        return [full_name_of(pod) for pod in self.pods if spec_of(pod).get("nodeName")]


def full_name_of(written: Json) -> str:
    return f"{meta_of(written).get('namespace') or 'default'}/{name_of(written)}"


class Facts:
    def __init__(self, case: Case) -> None:
        self.case = case
        classes = {name_of(each): each for each in case.objects("priorityclasses")}
        self.groups: dict[str, Group] = {}
        for each in case.objects("podgroups"):
            spec = spec_of(each)
            named = classes.get(spec.get("priorityClassName", ""), {})
            topology = bool(spec.get("networkTopology")) or any(
                sub.get("networkTopology") for sub in spec.get("subGroupPolicy") or ()
            )
            group = Group(
                full_name_of(each), max(1, int(spec.get("minMember") or 0)), spec.get("queue", ""), int(named.get("value") or 0),
                topology, (each.get("status") or {}).get("phase", ""),
            )  # fmt: skip
            self.groups[group.title] = group
        self.pods = {full_name_of(pod): pod for pod in case.objects("pods")}
        self.group_of: dict[str, str] = {}
        for title, pod in self.pods.items():
            named = annotations_of(pod).get(GROUP_NAME, "")
            group_title = f"{title.partition('/')[0]}/{named}" if named else title
            self.group_of[title] = group_title
            # A pod without a PodGroup is one of its own.
            alone = Group(group_title, 1, "default", int(spec_of(pod).get("priority") or 0), topology=False, phase="")
            self.groups.setdefault(group_title, alone).pods.append(pod)
        self.queues = {name_of(each): spec_of(each) for each in case.objects("queues")}

    def of(self, pod: str) -> Group:
        return self.groups[self.group_of[pod]]

    def count_by_group(self, pods: Iterable[str]) -> Counter[str]:
        return Counter(self.group_of[pod] for pod in pods)

    def is_never(self, group: Group) -> bool:
        """Does the oldest member say Never? Hardly any has a time of creation, so names decide."""
        oldest = min(group.pods, key=lambda pod: (meta_of(pod).get("creationTimestamp") or "", name_of(pod)))
        return bool(spec_of(oldest).get("preemptionPolicy") == "Never")

    def breaks(self, evicted: Iterable[str]) -> list[str]:
        """Groups of which some members stay, too few for their minimum."""
        broken = []
        for title, gone in self.count_by_group(evicted).items():
            group = self.groups[title]
            left = len(group.running) - gone
            if 0 < left < group.min <= len(group.running):
                broken.append(title)
        return broken

    # -- amounts -------------------------------------------------------------------------------------------------------------------

    def request(self, pod: Json) -> Counter[str]:
        total: Counter[str] = Counter()
        for container in filter(None, spec_of(pod).get("containers") or ()):
            for name, text in ((container.get("resources") or {}).get("requests") or {}).items():
                total[name] += amount(name, str(text or 0))
        return +total

    def total(self, pods: Iterable[str]) -> Counter[str]:
        return sum((self.request(self.pods[pod]) for pod in pods), start=Counter())

    def path(self, queue: str) -> list[str]:
        """The queue, its parent, and so on below the root; short where the parents lead in a ring."""
        path: list[str] = []
        while queue and queue != ROOT and queue not in path:
            path.append(queue)
            queue = (self.queues.get(queue) or {}).get("parent", "")
        return path

    def fork(self, one: str, other: str) -> tuple[str, str]:
        """The ancestors of two queues just below the one that they have in common."""
        for a, b in zip(self.path(one)[::-1], self.path(other)[::-1], strict=False):
            if a != b:
                return a, b
        return one, other

    def bad_queues(self) -> set[str]:
        """Queues whose parents do not exist or lead in a ring, and those with children that gangs wait in all the same."""
        parents = {name: spec.get("parent", "") for name, spec in self.queues.items()}
        orphans = {name for name, parent in parents.items() if parent not in ("", ROOT, *self.queues)}
        rings = {name for name in parents if self._is_in_ring(name)}
        return orphans | rings | ({group.queue for group in self.groups.values()} & set(parents.values()))

    def _is_in_ring(self, queue: str) -> bool:
        top = self.path(queue)[-1] if self.path(queue) else ""
        return (self.queues.get(top) or {}).get("parent", "") not in ("", ROOT) and top in self.queues

    def used(self, queue: str) -> Counter[str]:
        """What all members in this branch of the tree use."""
        total: Counter[str] = Counter()
        for group in self.groups.values():
            if queue in self.path(group.queue):
                for pod in group.pods:
                    if spec_of(pod).get("nodeName"):
                        total += self.request(pod)
        return total

    def deserved(self, queue: str) -> dict[str, int]:
        written = (self.queues.get(queue) or {}).get("deserved") or {}
        return {name: value for name, text in written.items() if name != PODS and (value := amount(name, str(text or 0)))}

    def is_over(self, queue: str, lacking: Collection[str]) -> bool:
        """Does the queue use more than it deserves of something that is lacking? What it has no share of it has only borrowed."""
        used, deserved = self.used(queue), self.deserved(queue)
        judged = [name for name in lacking if name in deserved] or lacking
        return any(used[name] > deserved.get(name, 0) for name in judged)

    def is_within(self, group: Group, queue: str, evicted: Iterable[str] = ()) -> bool:
        """With its minimum placed, and these evicted, is this queue of the group's within its share of all that it asks for?"""
        gone = self.total(pod for pod in evicted if queue in self.path(self.of(pod).queue))
        need, used = self.need(group), self.used(queue)
        asked = {name: value for name, value in self.deserved(queue).items() if need[name]}
        return bool(asked) and all(used[name] - gone[name] + need[name] <= value for name, value in asked.items())

    def need(self, group: Group) -> Counter[str]:
        """What the group's minimum still lacks."""
        return sum((self.request(pod) for pod in self._missing(group)), start=Counter())

    def _missing(self, group: Group) -> list[Json]:
        waiting = [pod for pod in group.pods if not spec_of(pod).get("nodeName")]
        return waiting[: max(0, group.min - len(group.running))]

    def lacking(self, group: Group) -> set[str]:
        """What is asked for and, taken alone, not free for all of the minimum; all that is asked for where there is none."""
        need = self.need(group)
        found = {name for name in need if not self._has_capacity(group, name)}
        return found or set(need)

    def _has_capacity(self, group: Group, name: str) -> bool:
        free: Counter[str] = Counter()
        for node in self.case.objects("nodes"):
            allocatable = (node.get("status") or {}).get("allocatable") or {}
            free[name_of(node)] = amount(name, str(allocatable.get(name) or 0))
        for pod in self.pods.values():
            free[spec_of(pod).get("nodeName", "")] -= self.request(pod)[name]
        for wanted in sorted((self.request(pod)[name] for pod in self._missing(group)), reverse=True):
            found = next((name for name in sorted(free) if name and free[name] >= wanted), None)
            if found is None:
                return False
            free[found] -= wanted
        return True
