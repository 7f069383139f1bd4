"""The syntax tree of a scenario: frozen values, every name and number checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from muster.kube.read.object_references import Manifest
from muster.sim.fault_injection import NO_FAULTS, FaultRates
from muster.sim.virtual_clock import VIRTUAL_START
from muster.yaml_positions import YamlValue


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """What the pods of a role have in common, as parts of their manifest. How a simulated pod behaves is in its annotations."""

    labels: dict[str, str]
    annotations: Manifest
    spec: Manifest


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
    """`annotations` declare the gang; each pod of it has `pod_annotations`."""

    name: str
    namespace: str
    flavour: str
    queue: str
    roles: tuple[RoleSpec, ...]
    min: int
    scheduler_name: str
    annotations: Manifest
    pod_annotations: Manifest
    priority: int | None = None
    priority_class_name: str = ""
    priority_class: Manifest | None = None
    """The class that is created for its priority, where it names none."""
    age_s: float = 0.0
    recreate: bool = False
    topology: Manifest | None = None
    pod_group_spec: Manifest = field(default_factory=dict)
    """More fields of the PodGroup's spec, as its API has them."""
    line: int = 0

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    def member_names(self, role: str | None = None) -> list[str]:
        """The pods that should exist now, of this role or of all."""
        return [
            pod_name(self.name, each.name, number)
            for each in self.roles
            if role in (None, each.name)
            for number in range(each.existing)
        ]


def pod_name(gang: str, role: str | None, number: int) -> str:
    return f"{gang}-{role}-{number}" if role else f"{gang}-{number}"


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
class ScenarioStep:
    line: int


@dataclass(frozen=True, slots=True)
class SubmitStep(ScenarioStep):
    gangs: tuple[GangSpec, ...] = ()
    objects: tuple[SourceManifest, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteStep(ScenarioStep):
    targets: tuple[PodTarget | NamedObject, ...]


@dataclass(frozen=True, slots=True)
class ScaleStep(ScenarioStep):
    to: tuple[tuple[PodTarget, int], ...]


@dataclass(frozen=True, slots=True)
class CycleStep(ScenarioStep):
    count: int = 1


@dataclass(frozen=True, slots=True)
class AdvanceStep(ScenarioStep):
    seconds: float


@dataclass(frozen=True, slots=True)
class RunStep(ScenarioStep):
    seconds: float
    every_s: float


@dataclass(frozen=True, slots=True)
class NodeStep(ScenarioStep):
    """`changes` has a merge patch for each node."""

    verb: str
    names: tuple[str, ...] = ()
    changes: tuple[tuple[str, Manifest], ...] = ()
    nodes: tuple[Manifest, ...] = ()


@dataclass(frozen=True, slots=True)
class FailStep(ScenarioStep):
    bind: tuple[PodTarget, ...] = ()
    evict: tuple[PodTarget, ...] = ()
    times: int = 1


@dataclass(frozen=True, slots=True)
class RestartStep(ScenarioStep):
    pass


@dataclass(frozen=True, slots=True)
class CrashStep(ScenarioStep):
    writes: int


@dataclass(frozen=True, slots=True)
class PatchStep(ScenarioStep):
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
class ExpectStep(ScenarioStep):
    checks: tuple[Check, ...]


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
    faults: FaultRates = NO_FAULTS
    steps: tuple[ScenarioStep, ...] = ()
    starts_at: float = VIRTUAL_START
    """When it begins: objects of a real cluster have real times."""

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
