"""Where an outcome of ours is not what Volcano's test asserts, nor what Volcano did.

What upstream asserts must hold. Beyond that a stable outcome must be equal, and of an unstable one the numbers where these are
stable, and whatever is not listed as unstable. A gang is bound whole or not at all in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.conformance.corpus import Case, name_of, spec_of
from tests.conformance.facts import Facts, full_name_of
from tests.conformance.outcome import Result

KEYS = ("binds", "evicted", "pipelined", "podgroup_phase")


def differences(case: Case, result: Result) -> list[str]:
    return list(dict.fromkeys((*_asserted(case, result), *_recorded(case, result), *_split_gangs(case, result))))


def _asserted(case: Case, result: Result) -> Iterator[str]:
    expect = case.expect
    if "binds" in expect:
        yield from _unequal("binds", expect["binds"], result.binds)
    if "binds_num" in expect:
        yield from _unequal("number of binds", expect["binds_num"], len(result.binds))
    if "evicted" in expect:
        yield from _unequal("evicted", sorted(expect["evicted"]), sorted(result.evicted))
    if "evict_num" in expect:
        yield from _unequal("number of evictions", expect["evict_num"], len(result.evicted))
    for group, nodes in (expect.get("pipelined") or {}).items():
        promised = result.pipelined | result.at_once
        found = {node for pod, node in promised.items() if result.group_of.get(pod) == group}
        if not found or not found <= set(nodes):
            yield f"pipelined of {group}: expected on {', '.join(nodes)}, found on {', '.join(sorted(found)) or 'none'}"
    for group, phase in (expect.get("podgroup_phase") or {}).items():
        yield from _unequal(f"phase of {group}", phase, result.podgroup_phase.get(group))
    for group, counts in (expect.get("task_status_nums") or {}).items():
        yield from _unequal(f"statuses of {group}", counts, dict(result.status_nums(group)))
    if "bind_nums_in_hypernode" in expect:
        yield from _unequal("binds by HyperNode", expect["bind_nums_in_hypernode"], _by_hypernode(case, result))


def _recorded(case: Case, result: Result) -> Iterator[str]:
    actual = case.actual
    if case.is_stable or "binds" not in case.unstable:
        yield from _unequal("binds", actual.get("binds") or {}, result.binds)
    if case.is_stable or "evicted" not in case.unstable:
        yield from _unequal("evicted", sorted(actual.get("evicted") or ()), sorted(result.evicted))
    pipelined = {pod: node for pod, node in (actual.get("pipelined") or {}).items() if pod not in result.at_once}
    if case.is_stable or "pipelined" not in case.unstable:
        yield from _unequal("pipelined", pipelined, result.pipelined)
    if case.is_stable or "podgroup_phase" not in case.unstable:
        for group, phase in (actual.get("podgroup_phase") or {}).items():
            if _has_minimum(case, group):
                yield from _unequal(f"phase of {group}", phase, result.podgroup_phase.get(group))
    if case.is_stable or case.counts_stable:
        yield from _unequal("number of binds", len(actual.get("binds") or ()), len(result.binds))
        yield from _unequal("number of evictions", len(actual.get("evicted") or ()), len(result.evicted))
        yield from _unequal("number of pipelined", len(pipelined), len(result.pipelined))


def _split_gangs(case: Case, result: Result) -> Iterator[str]:
    """Gangs of which some members were bound and too few have a node."""
    if not case.has("gang", "enableJobReady"):
        return
    facts = Facts(case)
    for title, bound in facts.count_by_group(result.binds).items():
        group = facts.groups[title]
        if bound + len(group.running) < group.min:
            yield f"{title} is torn: {bound} bound, {len(group.running)} there before, {group.min} needed"


def _has_minimum(case: Case, title: str) -> bool:
    """Volcano says Completed of a PodGroup without a minimum as soon as nobody runs; the API never lets one in."""
    written = next((group for group in case.objects("podgroups") if full_name_of(group) == title), None)
    return written is not None and bool(spec_of(written).get("minMember"))


def _by_hypernode(case: Case, result: Result) -> list[int]:
    """Numbers of bound pods in each HyperNode of the lowest tier, those without any left out."""
    lowest = min((spec_of(each).get("tier", 0) for each in case.objects("hypernodes")), default=0)
    home = {
        ((member.get("selector") or {}).get("exactMatch") or {}).get("name", ""): name_of(each)
        for each in case.objects("hypernodes")
        if spec_of(each).get("tier", 0) == lowest
        for member in spec_of(each).get("members") or ()
    }
    return sorted(Counter(home[node] for node in result.binds.values() if node in home).values())


def _unequal(what: str, wanted: object, found: object) -> Iterator[str]:
    if wanted != found:
        yield f"{what}: expected {wanted}, found {found}"
