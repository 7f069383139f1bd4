"""What the pods of a gang and its PodGroup declare about it, as one; and what is wrong with that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter

from muster.model.gang import PodGroup, RoleMin
from muster.model.pod import NOT_DECLARED, Declared, Pod, Problem

_POD_MINIMUMS = ("min-available]",)
GROUP_MINIMUMS = ("spec.minMember", "spec.minTaskMember", "spec.schedulingPolicy")
"""Fields of a PodGroup that declare a minimum."""


@dataclass(frozen=True, slots=True)
class Minimums:
    """How many members a gang needs in all, and of each role that says so."""

    members: int
    roles: tuple[RoleMin, ...] = ()


def age(pod: Pod) -> tuple[float, str, str]:
    return (pod.created, pod.name, pod.uid)


def live_pods(pods: list[Pod]) -> list[Pod]:
    """Those that decide for their gang: pods that finished, or are being deleted, decide nothing for their successors."""
    unfinished = [pod for pod in pods if not pod.finished]
    return [pod for pod in unfinished if pod.deleted_at is None] or unfinished or pods


def lacks_group(live: list[Pod], group: PodGroup | None) -> bool:
    """Does the gang wait for a PodGroup? Not where a pod of it says all that a PodGroup would."""
    return group is None and all(pod.membership is not None and pod.membership.needs_group for pod in live)


_VALUES = attrgetter(*(field.name for field in fields(Declared)))


_ANNOTATION_OF = {"min": "min-available", "total": "total-number", "wait_s": "waiting-time", "groups": "groups"}


def merge_declared(pods: list[Pod], live: list[Pod], oldest: Pod, group: PodGroup | None) -> tuple[Declared, tuple[Problem, ...]]:
    """Annotations of the oldest live pod win over the PodGroup's; a value that it lacks is that of the oldest pod that has one.
    Pods that declare other values, or lack one, get a problem."""
    others = sorted((pod for pod in live if _declared_by(pod) != _declared_by(oldest)), key=age)
    own = _declared_by(oldest)
    for pod in others:
        own = _first_declared(own, _declared_by(pod))
    problems = list(group.problems if group is not None else ())
    for pod in sorted((pod for pod in pods if pod.problems), key=age):
        problems.extend(Problem(f"{pod.full_name}: {problem.field}", problem.text) for problem in pod.problems)
    for pod in (oldest, *others) if others else ():
        problems.extend(_disagreement(pod, oldest, own))
    return _first_declared(own, group.declared if group is not None else NOT_DECLARED), tuple(problems)


def _first_declared(first: Declared, second: Declared) -> Declared:
    """The values of the first, and those of the second where the first has none."""
    return Declared(*(a if a is not None else b for a, b in zip(_VALUES(first), _VALUES(second), strict=True)))


def _disagreement(pod: Pod, oldest: Pod, own: Declared) -> Iterator[Problem]:
    """What a pod declares otherwise than what counts for its gang, or does not declare."""
    declared = _declared_by(pod)
    if _first_declared(declared, own) != own:
        text = f"pod {pod.full_name} declares other values than the oldest pod {oldest.full_name}, whose values count"
        yield Problem("metadata.annotations", text)
    lacking = [name for name in _ANNOTATION_OF if getattr(declared, name) is None and getattr(own, name) is not None]
    if lacking:
        names = ", ".join(_ANNOTATION_OF[name] for name in lacking)
        yield Problem("metadata.annotations", f"pod {pod.full_name} lacks {names}, which other pods of its gang declare")


def _declared_by(pod: Pod) -> Declared:
    return pod.membership.declared if pod.membership is not None else NOT_DECLARED


def minimums_of(group: PodGroup | None, declared: Declared) -> Minimums:
    if group is None:
        return Minimums(1 if declared.min is None else declared.min)
    return Minimums(group.min_member if declared.min is None else declared.min, group.role_mins)


def unreadable_minimum(oldest: Pod, group: PodGroup | None, declared: Declared) -> str:
    """Which minimum cannot be read, where nothing else declares how many members the gang needs."""
    if declared.min is not None:
        return ""
    if group is None:
        return unreadable_field(oldest.problems, _POD_MINIMUMS)
    return unreadable_field(group.problems, GROUP_MINIMUMS)


def unreadable_field(problems: Iterable[Problem], fields: Iterable[str]) -> str:
    for problem in problems:
        if problem.lost and any(field in problem.field for field in fields):
            return f"{problem.field}: {problem.text}"
    return ""
