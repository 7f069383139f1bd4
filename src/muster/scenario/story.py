"""A scenario as it was read: frozen values, every name and number checked. What is in here can be run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.yaml_marks import Marked

Manifest = dict[str, Any]
Amounts = tuple[tuple[str, str], ...]
"""Resources by full name, each with its quantity as written."""


@dataclass(frozen=True, slots=True)
class Template:
    """What the pods of a role have in common."""

    each: Amounts = ()
    runs_s: float | None = None
    ends: str = "Succeeded"
    starts_s: float | None = None
    leaves_s: float | None = None
    """Infinite: never."""
    selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[Manifest, ...] = ()
    affinity: Manifest = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: Manifest = field(default_factory=dict)
    spec: Manifest = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """`at` has a node for each of the first members; the others wait. `name` is empty where the gang has no roles."""

    name: str
    pods: int
    arrived: int
    min: int
    template: Template
    at: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GangSpec:
    name: str
    namespace: str
    dialect: str
    queue: str
    roles: tuple[RoleSpec, ...]
    min: int
    priority: int | None = None
    class_name: str = ""
    created_s: float = 0.0
    recreate: bool = False
    recreate_after_s: float | None = None
    recreate_limit: int | None = None
    scheduler: str = "muster"
    mode: str = ""
    wait: str = ""
    match: str = ""
    total: int | None = None
    group: tuple[str, ...] = ()
    topology: Manifest | None = None
    line: int = 0

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Who:
    """A gang, one of its roles, or one pod, as a scenario names it. Exactly one of `role` and `pod` may be set."""

    text: str
    namespace: str
    gang: str
    role: str | None = None
    pod: str = ""
    """The pod's name where one pod is meant; then `gang` may be empty."""


@dataclass(frozen=True, slots=True)
class ObjectRef:
    kind: str
    namespace: str
    name: str

    @property
    def text(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"


# -- steps -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """A manifest and the line it stands on."""

    manifest: Manifest
    line: int


@dataclass(frozen=True, slots=True)
class Submit:
    line: int
    gangs: tuple[GangSpec, ...] = ()
    objects: tuple[Written, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    line: int
    targets: tuple[Who | ObjectRef, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    line: int
    to: tuple[tuple[Who, int], ...]


@dataclass(frozen=True, slots=True)
class Cycle:
    line: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Advance:
    line: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    line: int
    seconds: float
    every_s: float


@dataclass(frozen=True, slots=True)
class NodeStep:
    """`changes` has a merge patch for each node."""

    line: int
    verb: str
    names: tuple[str, ...] = ()
    changes: tuple[tuple[str, Manifest], ...] = ()
    nodes: tuple[Manifest, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    line: int
    bind: tuple[Who, ...] = ()
    evict: tuple[Who, ...] = ()
    times: int = 1


@dataclass(frozen=True, slots=True)
class Restart:
    line: int


@dataclass(frozen=True, slots=True)
class Crash:
    line: int
    writes: int


@dataclass(frozen=True, slots=True)
class Edit:
    line: int
    object: ObjectRef
    patch: Manifest


@dataclass(frozen=True, slots=True)
class Wanted:
    """One expected thing about one subject: a count, nodes, or texts that must be in what is found."""

    who: Who | ObjectRef | str
    line: int
    count: int | None = None
    nodes: tuple[str, ...] | None = None
    texts: tuple[str, ...] = ()
    amounts: tuple[tuple[str, dict[str, int]], ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """One key of an expect step. `exact`: these and no others."""

    key: str
    line: int
    wanted: tuple[Wanted, ...] = ()
    exact: bool = False
    count: int | None = None
    seconds: float = 0.0
    every_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Expect:
    line: int
    checks: tuple[Check, ...]


Step = Submit | Delete | Scale | Cycle | Advance | Run | NodeStep | Fail | Restart | Crash | Edit | Expect


@dataclass(frozen=True, slots=True)
class FaultShares:
    late: float = 0.0
    lost: float = 0.0
    doubled: float = 0.0
    reordered: float = 0.0
    bind_fails: float = 0.0

    def __bool__(self) -> bool:
        return any((self.late, self.lost, self.doubled, self.reordered, self.bind_fails))


@dataclass(frozen=True, slots=True)
class Scenario:
    """`policy` is what stands in the file, or where its own file is; None is the default policy."""

    name: str
    file: str
    line: int
    policy: Marked | Path | None = None
    nodes: tuple[Manifest, ...] = ()
    queues: tuple[Manifest, ...] = ()
    classes: tuple[Manifest, ...] = ()
    gangs: tuple[GangSpec, ...] = ()
    objects: tuple[Written, ...] = ()
    seed: int = 0
    faults: FaultShares = FaultShares()
    steps: tuple[Step, ...] = ()
    starts_at: float | None = None
    """When it begins, where that matters: objects of a real cluster have real times."""

    @property
    def virtual_s(self) -> float:
        """How much time passes in all."""
        return sum(_seconds(step) for step in self.steps)


def _seconds(step: Step) -> float:
    match step:
        case Advance(seconds=seconds) | Run(seconds=seconds):
            return seconds
        case Expect(checks=checks):
            return sum(check.seconds for check in checks)
    return 0.0
