"""What a case says, looked up: groups, their pods and queues, who runs, how much. Nothing here comes from the scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.conformance.corpus import Case, Json
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
        return [full_name_of(pod) for pod in self.pods if pod["spec"].get("nodeName")]


def full_name_of(written: Json) -> str:
    meta = written["metadata"]
    return f"{meta.get('namespace') or 'default'}/{meta['name']}"


class Facts:
    def __init__(self, case: Case) -> None:
        self.case = case
        classes = {each["metadata"]["name"]: each for each in case.objects("priorityclasses")}
        self.groups: dict[str, Group] = {}
        for each in case.objects("podgroups"):
            spec = each["spec"]
            named = classes.get(spec.get("priorityClassName", ""), {})
            topology = bool(spec.get("networkTopology")) or any(
                sub.get("networkTopology") for sub in spec.get("subGroupPolicy") or ()
            )
            group = Group(
                full_name_of(each), max(1, int(spec.get("minMember") or 0)), spec.get("queue", ""), int(named.get("value", 0)),
                topology, (each.get("status") or {}).get("phase", ""),
            )  # fmt: skip
            self.groups[group.title] = group
        self.pods = {full_name_of(pod): pod for pod in case.objects("pods")}
        self.group_of: dict[str, str] = {}
        for title, pod in self.pods.items():
            named = (pod["metadata"].get("annotations") or {}).get(GROUP_NAME, "")
            group_title = f"{title.partition('/')[0]}/{named}"
            self.group_of[title] = group_title
            if group_title in self.groups:
                self.groups[group_title].pods.append(pod)
        self.queues = {each["metadata"]["name"]: each["spec"] for each in case.objects("queues")}

    def of(self, pod: str) -> Group:
        return self.groups[self.group_of[pod]]

    def count_by_group(self, pods: Iterable[str]) -> Counter[str]:
        return Counter(self.group_of[pod] for pod in pods)

    def is_never(self, group: Group) -> bool:
        """Does the oldest member say Never? Hardly any has a time of creation, so names decide."""
        oldest = min(group.pods, key=lambda pod: (pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]))
        return bool(oldest["spec"].get("preemptionPolicy") == "Never")

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
        for container in pod["spec"]["containers"]:
            for name, text in ((container.get("resources") or {}).get("requests") or {}).items():
                total[name] += amount(name, str(text))
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
                    if pod["spec"].get("nodeName"):
                        total += self.request(pod)
        return total

    def deserved(self, queue: str) -> dict[str, int]:
        written = (self.queues.get(queue) or {}).get("deserved") or {}
        return {name: value for name, text in written.items() if name != PODS and (value := amount(name, str(text)))}

    def is_over(self, queue: str, requested: Iterable[str]) -> bool:
        """Does the queue use more than it deserves of something that is asked for? Without a share all it uses is more."""
        used, deserved = self.used(queue), self.deserved(queue)
        return any(used[name] > deserved.get(name, 0 if not deserved else used[name]) for name in requested)

    def is_within(self, group: Group, queue: str) -> bool:
        """With its minimum placed, is this queue of the group's within its share of something that it asks for?"""
        waiting = [pod for pod in group.pods if not pod["spec"].get("nodeName")]
        need: Counter[str] = Counter()
        for pod in waiting[: max(0, group.min - len(group.running))]:
            need += self.request(pod)
        total = self.used(queue) + need
        return any(total[name] <= value for name, value in self.deserved(queue).items() if need[name])

    def requested(self, group: Group) -> set[str]:
        return {name for pod in group.pods if not pod["spec"].get("nodeName") for name in self.request(pod)}
