"""The syntax tree of a scenario: frozen values, every name and number checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from muster.kube.read.object_references import Manifest
from muster.yaml_positions import YamlValue

Quantities = tuple[tuple[str, str], ...]
"""Resources by full name, each with its quantity as written."""


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """What the pods of a role have in common."""

    requests: Quantities = ()
    run_s: float | None = None
    exit_phase: str = "Succeeded"
    startup_s: float | None = None
    termination_s: float | None = None
    """Infinite: never."""
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[Manifest, ...] = ()
    affinity: Manifest = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: Manifest = field(default_factory=dict)
    spec: Manifest = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """`running_on` has a node for each of the first members; others are pending. `name` is empty where the gang has no roles."""

    name: str
    pods: int
    existing: int
    min: int
    template: PodTemplate
    running_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GangSpec:
    name: str
    namespace: str
    flavour: str
    queue: str
    roles: tuple[RoleSpec, ...]
    min: int
    priority: int | None = None
    priority_class_name: str = ""
    age_s: float = 0.0
    recreate: bool = False
    recreate_after_s: float | None = None
    recreate_limit: int | None = None
    scheduler_name: str = "muster"
    mode: str = ""
    waiting_time: str = ""
    match: str = ""
    total_members: int | None = None
    group: tuple[str, ...] = ()
    topology: Manifest | None = None
    line: int = 0

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PodTarget:
    """A gang, one of its roles, or one pod, as a scenario names it. Exactly one of `role` and `pod` may be set."""

    text: str
    namespace: str
    gang: str
    role: str | None = None
    pod: str = ""
    """The pod's name where one pod is meant; then `gang` may be empty."""


@dataclass(frozen=True, slots=True)
class NamedObject:
    kind: str
    namespace: str
    name: str

    @property
    def text(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"


# -- steps -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceManifest:
    """A manifest and its line."""

    manifest: Manifest
    line: int


@dataclass(frozen=True, slots=True)
class SubmitStep:
    line: int
    gangs: tuple[GangSpec, ...] = ()
    objects: tuple[SourceManifest, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteStep:
    line: int
    targets: tuple[PodTarget | NamedObject, ...]


@dataclass(frozen=True, slots=True)
class ScaleStep:
    line: int
    to: tuple[tuple[PodTarget, int], ...]


@dataclass(frozen=True, slots=True)
class CycleStep:
    line: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class AdvanceStep:
    line: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RunStep:
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
class FailStep:
    line: int
    bind: tuple[PodTarget, ...] = ()
    evict: tuple[PodTarget, ...] = ()
    times: int = 1


@dataclass(frozen=True, slots=True)
class RestartStep:
    line: int


@dataclass(frozen=True, slots=True)
class CrashStep:
    line: int
    writes: int


@dataclass(frozen=True, slots=True)
class PatchStep:
    line: int
    object: NamedObject
    merge_patch: Manifest


@dataclass(frozen=True, slots=True)
class Wanted:
    """One expected thing about one subject: a count, nodes, or texts that must be in what is found."""

    target: PodTarget | NamedObject | str
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
class ExpectStep:
    line: int
    checks: tuple[Check, ...]


ScenarioStep = (
    SubmitStep
    | DeleteStep
    | ScaleStep
    | CycleStep
    | AdvanceStep
    | RunStep
    | NodeStep
    | FailStep
    | RestartStep
    | CrashStep
    | PatchStep
    | ExpectStep
)


@dataclass(frozen=True, slots=True)
class FaultSpec:
    delayed: float = 0.0
    dropped: float = 0.0
    duplicated: float = 0.0
    reordered: float = 0.0
    bind_failures: float = 0.0

    def __bool__(self) -> bool:
        return any((self.delayed, self.dropped, self.duplicated, self.reordered, self.bind_failures))


@dataclass(frozen=True, slots=True)
class Scenario:
    """`policy` is inline or the path of a file; None is the default policy."""

    name: str
    file: str
    line: int
    policy: YamlValue | Path | None = None
    nodes: tuple[Manifest, ...] = ()
    queues: tuple[Manifest, ...] = ()
    classes: tuple[Manifest, ...] = ()
    gangs: tuple[GangSpec, ...] = ()
    objects: tuple[SourceManifest, ...] = ()
    seed: int = 0
    faults: FaultSpec = FaultSpec()
    steps: tuple[ScenarioStep, ...] = ()
    starts_at: float | None = None
    """When it begins, where that matters: objects of a real cluster have real times."""

    @property
    def virtual_s(self) -> float:
        """How much time passes in all."""
        return sum(_seconds(step) for step in self.steps)


def _seconds(step: ScenarioStep) -> float:
    match step:
        case AdvanceStep(seconds=seconds) | RunStep(seconds=seconds):
            return seconds
        case ExpectStep(checks=checks):
            return sum(check.seconds for check in checks)
    return 0.0
