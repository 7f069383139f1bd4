"""Reservations and nominations that no longer hold: their node does not take the pod any more, or the capacity is gone."""

from __future__ import annotations

from collections import Counter

import numpy as np

from muster.engine.explain import why_not_on
from muster.engine.place import has_filters, passes_filters
from muster.engine.session import Session
from muster.model.pod import Phase, Placement, Pod, PodSignature
from muster.state.derived.device_usage import are_free, overcommitted_device
from muster.state.node_table import BoolColumn, NodeRows

RESERVATION_LOST = "ReservationLost"


def end_lost_reservations(s: Session) -> None:
    """A reservation or nomination is lost when its node is gone or no longer takes the pod, or when its capacity, on the node or in
    its queues, is not there any more."""
    for pod in sorted(possibly_lost(s), key=lambda pod: _loss_order(s, pod)):
        uid = pod.uid
        why = why_lost(s, pod, s.world.placements.by_uid[uid])
        if why:
            lose_reservation(s, pod, why)
    s.world.memory.unwritten_reservations.clear()


def lose_reservation(s: Session, pod: Pod, why: str) -> None:
    """Its gang is attempted again in this cycle, whatever took the node: it starts from its other reservations."""
    with s.trial(why, cause=RESERVATION_LOST) as trial:
        trial.release(pod)
        trial.commit()
    s.world.memory.retry(s.world.facts.members[pod.uid].gang)
    s.count("reservations lost")


def possibly_lost(s: Session) -> list[Pod]:
    """Pods whose reservation may be lost, found with one look at all nodes and queues: a release makes no other one worse."""
    world, table = s.world, s.world.table
    over: BoolColumn = np.any(table.planned > table.allocatable, axis=1)
    found: list[Pod] = []
    filtered: list[Pod] = []
    within_quota: dict[object, bool] = {}
    # Of pods that share what they say, one is enough.
    kinds: dict[tuple[int, int, str], tuple[BoolColumn, bool]] = {}
    is_bounded = s.has_bounded_queues
    for uid in list(world.placements.reservations):
        pod, placement = world.facts.pods[uid], world.placements.by_uid[uid]
        row = table.row.get(placement.node or "")
        if row is None or over[row] or uid in world.memory.unwritten_reservations:
            found.append(pod)
            continue
        kind = id(pod.signature), id(pod.labels), pod.namespace
        if kind not in kinds:
            kinds[kind] = s.match(pod), has_filters(s, pod)
        match, is_filtered = kinds[kind]
        if not match[row] or (is_bounded and not _is_within_quota(s, pod, within_quota)):
            found.append(pod)
        elif is_filtered:
            filtered.append(pod)
    fitting = _fitting(s, filtered)
    return [*found, *(pod for pod in filtered if pod.uid not in fitting)]


def _fitting(s: Session, pods: list[Pod]) -> set[str]:
    """Those whose nodes would take them again, by UID. Equal pods are looked at together, one of each node at a time; where pods
    constrain each other nothing is known."""
    together: dict[tuple[PodSignature, bool, int], list[Pod]] = {}
    seen: Counter[str | None] = Counter()
    for pod in pods:
        if not s.has_inter_pod_constraints(pod):
            placement = s.world.placements.by_uid[pod.uid]
            seen[placement.node] += 1
            key = (pod.signature, placement.phase is Phase.NOMINATED, seen[placement.node])
            together.setdefault(key, []).append(pod)
    return {uid for (_, after_releases, _), some in together.items() for uid in _fitting_together(s, some, after_releases)}


def _fitting_together(s: Session, pods: list[Pod], after_releases: bool) -> list[str]:
    placements = [s.world.placements.by_uid[pod.uid] for pod in pods]
    index = np.array([s.world.table.row[placement.node or ""] for placement in placements], dtype=np.intp)
    rows = NodeRows(s.world.table, index, after_releases=after_releases)
    with s.trial("to look at their nodes without them", cause="Looks") as trial:
        for pod in pods:
            trial.release(pod)
        fits = np.logical_and.reduce([plugin.fit(s, pods[0], rows) for plugin in s.policy.fits])
        return [
            pod.uid
            for pod, placement, good in zip(pods, placements, fits.tolist(), strict=True)
            if good and are_free(s.world, placement.node or "", placement.devices, after_releases=after_releases)
        ]


def _is_within_quota(s: Session, pod: Pod, known: dict[object, bool]) -> bool:
    """Do its queues still take it? Asked once for pods that count for the same in the same queue."""
    member = s.world.facts.members[pod.uid]
    key = (member, pod.signature.request, s.world.phase(pod))
    if key not in known:
        known[key] = not _why_over_quota(s, pod)
    return known[key]


def _why_over_quota(s: Session, pod: Pod) -> str:
    """Why its queues would not take the pod once more: their limit is lower than it was, or others use what it was to use."""
    if not s.has_bounded_queues:
        return ""
    phase = s.world.phase(pod)
    with s.trial("to look at its queues without it", cause="Looks") as trial:
        trial.release(pod)
        quota_fit = s.quota_fit(pod, count=1, phase=phase)
    return "" if quota_fit.fit_count else quota_fit.verdict.why


def _loss_order(s: Session, pod: Pod) -> tuple[int, float, str, str]:
    """Where a node cannot take all reservations on it, the lowest priority ends first, then the youngest."""
    gang = s.world.gang_of(pod)
    return (gang.priority if gang is not None else pod.priority, -s.world.placement(pod).since, pod.full_name, pod.uid)


def why_lost(s: Session, pod: Pod, placement: Placement) -> str:
    table = s.world.table
    if pod.uid in s.world.memory.unwritten_reservations:
        return f"it could not be written: {s.world.memory.unwritten_reservations[pod.uid]}"
    row = table.row.get(placement.node or "")
    if row is None:
        return f"node {placement.node} is gone"
    if not s.match(pod)[row]:
        return f"node {placement.node} no longer takes the pod"
    # Another pod took the capacity, or a victim does not terminate. Reservations end one by one until the rest fits.
    over = table.planned[row] > table.allocatable[row]
    if bool((over & (s.world.request(pod) > 0)).any()):
        return f"the capacity on node {placement.node} was taken by other pods, or is not being released"
    device = overcommitted_device(s.world, placement.node or "", placement.devices) if placement.devices else None
    if device is not None:
        return f"device {device} of node {placement.node} is gone, was taken by other pods, or is not being released"
    after_releases = placement.phase is Phase.NOMINATED
    if not passes_filters(s, pod, after_releases=after_releases):
        refusal = why_not_on(s, pod, placement.node or "", after_releases=after_releases)
        return f"node {placement.node} no longer takes the pod: {refusal}"
    return _why_over_quota(s, pod)
