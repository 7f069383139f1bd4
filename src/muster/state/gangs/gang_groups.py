"""One gang out of the PodGroups of a GangGroup: each of them is one of its roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from muster.model.gang import Gang, Mode, Role, Subgroup
from muster.model.resource_amounts import NOTHING, Resources


def joined(gangs: Sequence[Gang], *, missing: tuple[str, bool] | None) -> Gang:
    """One gang out of one or several. `missing`: the first name of another that they declare, and whether that exists."""
    gang = gangs[0] if len(gangs) == 1 else reduce(_both, map(_with_one_role, gangs))
    return replace(gang, waiting_for=_waiting_for(missing)) if missing is not None and not gang.waiting_for else gang


def _waiting_for(missing: tuple[str, bool]) -> str:
    name, exists = missing
    lacks = "does not name it in its own group" if exists else "does not exist yet"
    return f"gang {name} of its group {lacks}"


def _both(one: Gang, other: Gang) -> Gang:
    return Gang(
        key=f"{one.key},{other.key}",
        full_name=f"{one.full_name}+{other.full_name}",
        roles=one.roles + other.roles,
        min=one.min + other.min,
        priority=max(one.priority, other.priority),
        created=min(one.created, other.created),
        flavour=one.flavour,
        mode=Mode.STRICT if Mode.STRICT in (one.mode, other.mode) else Mode.NON_STRICT,
        match_policy=one.match_policy,
        wait_s=min(one.wait_s, other.wait_s),
        run_s=None if one.run_s is None or other.run_s is None else max(one.run_s, other.run_s),
        stale_s=min((each.stale_s for each in (one, other) if each.stale_s is not None), default=None),
        subgroups=one.subgroups + other.subgroups,
        min_subgroups=one.min_subgroups + other.min_subgroups,
        min_resources=_min_resources(one, other),
        never_preempts=one.never_preempts or other.never_preempts,
        started=min((each.started for each in (one, other) if each.started is not None), default=None),
        waiting_for=one.waiting_for or other.waiting_for,
        invalid_because=one.invalid_because or other.invalid_because,
        min_is_known=one.min_is_known and other.min_is_known,
        problems=one.problems + other.problems,
    )


def _min_resources(one: Gang, other: Gang) -> Resources:
    """Those of the only PodGroup. Of several each speaks of its own members alone."""
    declared = [gang.min_resources for gang in (one, other) if any(role.group for role in gang.roles)]
    return declared[0] if len(declared) == 1 else NOTHING


def _with_one_role(gang: Gang) -> Gang:
    """Inside a GangGroup a PodGroup is a role; where it has a topology constraint or subgroups, it is a subgroup, too."""
    if gang.topology is None and not gang.subgroups:
        return replace(gang, roles=(_merged(gang),))
    whole = Subgroup(
        gang.full_name,
        frozenset(pod.uid for pod in gang.pods()),
        topology=gang.topology,
        subgroups=gang.subgroups,
        min_subgroups=gang.min_subgroups,
    )
    return replace(gang, roles=(_merged(gang),), topology=None, subgroups=(whole,), min_subgroups=1)


def _merged(gang: Gang) -> Role:
    roles = gang.roles
    return replace(
        roles[0],
        name=gang.full_name,
        min=gang.min,
        pods=gang.pods(),
        terminating=tuple(pod for role in roles for pod in role.terminating),
        total=max(gang.min, sum(role.total for role in roles)),
        succeeded=sum(role.succeeded for role in roles),
        failed=sum(role.failed for role in roles),
        gated=sum(role.gated for role in roles),
    )
