"""What a pod says about the nodes and the other pods it wants: selectors, affinities, tolerations, spread.

Values only. Their meaning is written once per check, in the plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Operator(Enum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression over a label: key, operator, values."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value is not None and value in self.values
            case Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GT | Operator.LT:
                return _compares(value, self)


def _compares(value: str | None, wanted: Requirement) -> bool:
    left, right = whole_number(value), whole_number(wanted.values[0] if len(wanted.values) == 1 else None)
    if left is None or right is None:
        return False
    return left > right if wanted.operator is Operator.GT else left < right


def whole_number(text: str | None) -> int | None:
    """The 64-bit integer that a label value writes, else None: Gt and Lt hold for nothing else."""
    try:
        number = int(text) if text is not None and len(text) <= 20 and "_" not in text and text.strip() == text else None
    except ValueError:
        return None
    return number if number is not None and -(2**63) <= number < 2**63 else None


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Every requirement must hold. A selector without requirements selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.holds(labels) for requirement in self.requirements)


EVERYTHING = LabelSelector()


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One node selector term: all expressions and fields must hold; an empty term matches no node."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str], *, name: str) -> bool:
        if not self.expressions and not self.fields:
            return False
        return all(e.holds(labels) for e in self.expressions) and all(f.holds({"metadata.name": name}) for f in self.fields)


@dataclass(frozen=True, slots=True)
class WeightedNodeTerm:
    weight: int
    term: NodeTerm


@dataclass(frozen=True, slots=True)
class NodeAffinity:
    """`required` is a choice of terms: one of them must match. None means that nothing is required."""

    required: tuple[NodeTerm, ...] | None = None
    preferred: tuple[WeightedNodeTerm, ...] = ()


class TaintEffect(Enum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    effect: TaintEffect
    value: str = ""


@dataclass(frozen=True, slots=True)
class Toleration:
    """`effect` None tolerates every effect; an empty key with Exists tolerates every taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: TaintEffect | None = None

    def tolerates(self, taint: Taint) -> bool:
        if self.effect is not None and self.effect is not taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self._accepts(taint.value)

    def _accepts(self, value: str) -> bool:
        match self.operator:
            case "Exists":
                return True
            case "Gt" | "Lt":
                left, right = whole_number(value), whole_number(self.value)
                if left is None or right is None:
                    return False
                return left > right if self.operator == "Gt" else left < right
            case _:
                return bool(self.key) and self.value == value


@dataclass(frozen=True, slots=True)
class HostPort:
    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class PodTerm:
    """One inter-pod (anti)affinity term. A selector of None selects nothing; `namespaces` empty and no namespace selector
    means the pod's own namespace."""

    topology_key: str
    selector: LabelSelector | None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightedPodTerm:
    weight: int
    term: PodTerm


@dataclass(frozen=True, slots=True)
class PodAffinity:
    required: tuple[PodTerm, ...] = ()
    preferred: tuple[WeightedPodTerm, ...] = ()


NO_NODE_AFFINITY = NodeAffinity()
NO_POD_AFFINITY = PodAffinity()


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """`hard` is DoNotSchedule; otherwise ScheduleAnyway, a preference."""

    max_skew: int
    topology_key: str
    hard: bool
    selector: LabelSelector | None
    min_domains: int | None = None
    honor_affinity: bool = True
    honor_taints: bool = False
    match_label_keys: tuple[str, ...] = ()
