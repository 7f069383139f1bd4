"""The tree of queues: who is whose child, which queue a member belongs to, and what is wrong with the tree.

Volcano's queues and ElasticQuotas are nodes of one tree under one root. A tree is made anew when a queue comes, changes or goes; it
is never changed. What was named wrongly is a fault of that queue and of those below it, and of nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from muster.model.queue import (
    ANY_NAMESPACE,
    DEFAULT_QUEUE,
    DEFAULT_QUOTA,
    ROOT_QUEUE,
    ROOT_QUOTA,
    SYSTEM_QUOTA,
    Queue,
    QueueState,
    show_queue,
)

UNKNOWN_QUEUE = "UnknownQueue"
UNKNOWN_PARENT = "UnknownParent"
CYCLIC_PARENTS = "CyclicParents"
TOO_DEEP = "TooDeep"
QUEUE_CLOSED = "QueueClosed"
QUEUE_FORBIDDEN = "QueueForbidden"

_FORBIDDEN_TO = "@"
"""Between a queue and a namespace whose pods may not be in it: no name has this."""

_RESERVED = (DEFAULT_QUOTA, SYSTEM_QUOTA)
# A ring of queues is written out up to this length.
_LONGEST_WAY = 8
# So many queues may lie one above the other.
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a queue takes no new gangs."""

    code: str
    why: str


_NOT_CONFIGURED = Queue("")


class QueueTree:
    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self.nodes: dict[str, Queue] = {key: queues[key] for key in sorted(queues) if not is_root(key)}
        """All queues but the root, by key. The default queue is always there."""
        self.nodes.setdefault(DEFAULT_QUEUE, Queue(DEFAULT_QUEUE))
        self.faults: dict[str, Fault] = {}
        """What is wrong with a queue's place in the tree."""
        self._has_restrictions = any(queue.only_for is not None for queue in self.nodes.values())
        self._quotas = _by_name(self.nodes.values())
        self._owner = _by_listed_namespace(self.nodes.values())
        self.parents = {key: self._parent(queue) for key, queue in self.nodes.items()}
        """The parent of each queue; the empty text for the root's children."""
        self._cut_cycles()
        self._cut_deep()
        self.children = _children(self.parents)
        self._paths: dict[str, tuple[str, ...]] = {}
        self._closed_to: dict[str, Fault | None] = {}

    def node(self, key: str) -> Queue:
        """The queue; the root, and what gangs only name, configure nothing."""
        return self.nodes.get(key, _NOT_CONFIGURED)

    def path(self, key: str) -> tuple[str, ...]:
        """The queue, its parent, and so on; the root is left out. A queue that does not exist stands alone."""
        found = self._paths.get(key)
        if found is None:
            found = self._paths[key] = path_up(key, self.parents)
        return found

    def settle(self, named: str, *, namespace: str) -> str:
        """The queue of a member that names this one, or none. A name that means nothing stays what it is, and that of a queue for
        others is no queue either: nothing is charged to them."""
        queue = self._settle(named, namespace=namespace)
        return f"{queue}{_FORBIDDEN_TO}{namespace}" if self._restricting(queue, namespace) else queue

    def _settle(self, named: str, *, namespace: str) -> str:
        if named.startswith(ANY_NAMESPACE):
            return self._quota(named.removeprefix(ANY_NAMESPACE), near=namespace) or named
        if named:
            return named
        own = f"quota/{namespace}/{namespace}"
        return own if own in self.nodes else self._owner.get(namespace, DEFAULT_QUEUE)

    def _restricting(self, key: str, namespace: str) -> Queue | None:
        """The queue on its path that is for other namespaces only."""
        if not self._has_restrictions or key not in self.nodes:
            return None
        path = (self.nodes[above] for above in self.path(key))
        return next((queue for queue in path if queue.only_for is not None and namespace not in queue.only_for), None)

    def fault(self, key: str) -> Fault | None:
        """Why the queue takes no new gangs: it does not exist, is for others, its place in the tree is wrong, or it is closed."""
        if key not in self._closed_to:
            self._closed_to[key] = self._fault(key)
        return self._closed_to[key]

    def _fault(self, key: str) -> Fault | None:
        named, _, namespace = key.partition(_FORBIDDEN_TO)
        if namespace and (queue := self._restricting(named, namespace)) is not None:
            allowed = ", ".join((queue.only_for or ("none",))[:_LONGEST_WAY])
            why = f"{show_queue(queue.key)} is not for namespace {namespace}: its annotation muster.dev/namespaces has {allowed}"
            return Fault(QUEUE_FORBIDDEN, why)
        if key not in self.nodes:
            return Fault(UNKNOWN_QUEUE, f"{show_queue(key)} does not exist{self._nearest(key)}")
        found = (self.faults.get(above) or _closed(self.nodes[above]) for above in self.path(key))
        return next((fault for fault in found if fault is not None), None)

    def _parent(self, queue: Queue) -> str:
        named = queue.parent
        if not named or is_root(named):
            return ""
        found: str | None = named if named in self.nodes else None
        if named.startswith(ANY_NAMESPACE):
            space = queue.key.split("/")[1] if queue.is_quota else ""
            found = self._quota(named.removeprefix(ANY_NAMESPACE), near=space)
        if found is None:
            hint = self._nearest(named, besides=queue.key)
            why = f"{show_queue(queue.key)}: its parent {show_queue(named)} does not exist{hint}"
            self.faults[queue.key] = Fault(UNKNOWN_PARENT, why)
        return found or ""

    def _quota(self, name: str, *, near: str) -> str | None:
        """The quota of this name: in this namespace, else the oldest anywhere. The built-in ones need no object."""
        own = f"quota/{near}/{name}"
        if own in self.nodes:
            return own
        found = self._quotas.get(name)
        return DEFAULT_QUEUE if found is None and name in _RESERVED else found

    def _cut_cycles(self) -> None:
        """Queues that are their own ancestors are children of the root until somebody mends them."""
        settled: set[str] = set()
        for start in self.parents:
            trail: dict[str, None] = {}
            key = start
            while key and key not in settled and key not in trail:
                trail[key] = None
                key = self.parents[key]
            if key in trail:
                self._cut([*trail][[*trail].index(key) :])
            settled.update(trail)

    def _cut(self, ring: list[str]) -> None:
        shown = min(len(ring), _LONGEST_WAY)
        for at, key in enumerate(ring):
            names = [ring[(at + step) % len(ring)].rsplit("/", 1)[-1] for step in range(shown)]
            way = " -> ".join([*names, *([] if shown == len(ring) else ["..."]), names[0]])
            self.faults[key] = Fault(CYCLIC_PARENTS, f"{show_queue(key)}: its parents lead back to itself ({way})")
            self.parents[key] = ""

    def _cut_deep(self) -> None:
        """No branch is longer than anybody could mean: every queue carries its whole way up with it."""
        children = _children(self.parents)
        level, depth = list(children.get("", ())), 1
        while level:
            below = [child for key in level for child in children.get(key, ())]
            if depth == _DEEPEST:
                for key in below:
                    self.faults[key] = Fault(TOO_DEEP, f"{show_queue(key)}: it lies more than {_DEEPEST} levels deep")
                    self.parents[key] = ""
            level, depth = below, depth % _DEEPEST + 1

    def _nearest(self, key: str, *, besides: str = "") -> str:
        """Words that name the queue of the same kind whose name is most like this one."""
        kind = key.split("/", 1)[0]
        names = {queue.name: other for other, queue in self.nodes.items() if other.split("/", 1)[0] == kind and other != besides}
        close = get_close_matches(key.rsplit("/", 1)[-1], names, n=1)
        return f"; did you mean {show_queue(names[close[0]])}?" if close else ""


def path_up(key: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    """The key, its parent, and so on. The parents must have no cycle."""
    path: list[str] = []
    while key:
        path.append(key)
        key = parents.get(key, "")
    return tuple(path)


def is_root(key: str) -> bool:
    """The root itself, under any of its names."""
    return key in (ROOT_QUEUE, f"queue/{ROOT_QUEUE}") or (key.startswith("quota/") and key.endswith(f"/{ROOT_QUOTA}"))


def is_reserved(key: str) -> bool:
    """One of Koordinator's quotas that take no part in sharing: what they use is simply not there for the others."""
    return key.startswith("quota/") and key.rsplit("/", 1)[-1] in _RESERVED


def _closed(queue: Queue) -> Fault | None:
    if queue.state is QueueState.OPEN:
        return None
    return Fault(QUEUE_CLOSED, f"{show_queue(queue.key)} is {queue.state.value.lower()} and takes no new gangs")


def _oldest_first(queue: Queue) -> tuple[float, str]:
    return (queue.created, queue.key)


def _by_name(queues: Iterable[Queue]) -> dict[str, str]:
    found: dict[str, str] = {}
    for queue in sorted((q for q in queues if q.is_quota), key=_oldest_first):
        found.setdefault(queue.name, queue.key)
    return found


def _by_listed_namespace(queues: Iterable[Queue]) -> dict[str, str]:
    found: dict[str, str] = {}
    for queue in sorted((q for q in queues if q.namespaces), key=_oldest_first):
        for namespace in queue.namespaces:
            found.setdefault(namespace, queue.key)
    return found


def _children(parents: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The children of each queue that has any, the root's under the empty text, sorted."""
    found: dict[str, list[str]] = {}
    for key in sorted(parents):
        found.setdefault(parents[key], []).append(key)
    return {key: tuple(below) for key, below in found.items()}
