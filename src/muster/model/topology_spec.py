"""Domains: sets of nodes that are close to each other, and what a gang asks of them."""

from __future__ import annotations

from dataclasses import dataclass

from muster.model.pod import Problem
from muster.model.pod_constraints import LabelSelector


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    """`hard` keeps the whole gang (or role) inside one domain at or below the highest tier allowed; otherwise it is preferred."""

    hard: bool
    highest_tier: int | None = None
    highest_tier_name: str = ""


@dataclass(frozen=True, slots=True)
class DomainMember:
    """One member selector of a HyperNode: nodes or other domains, by exact name, regular expression or label."""

    is_node: bool
    exact: str = ""
    regex: str = ""
    labels: LabelSelector | None = None


@dataclass(frozen=True, slots=True)
class DomainSpec:
    """A HyperNode as it was declared."""

    name: str
    uid: str = ""
    created: float = 0.0
    version: int = 0
    tier: int = 1
    tier_name: str = ""
    members: tuple[DomainMember, ...] = ()
    problems: tuple[Problem, ...] = ()
