"""Where members go: the one way to place, for every action.

Members are placed the most constrained first, each on the node with the best score, ties by name. Equal members are placed
together: the outcome is the same as one by one, because a score depends on its own row alone, and a row can tell what it
would say after one, two, three more of them. Members whose place depends on other pods are in
`inter_pod_placement`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from muster.engine.hooks import WHOLE_CLUSTER, Domain, QuotaFit
from muster.engine.inter_pod_placement import (
    NO_INTER_POD_CONSTRAINTS,
    InterPodConstraints,
    inter_pod_constraints_of,
    pick_inter_pod_rows,
    place_one,
    place_pod,
)
from muster.engine.node_scores import REFUSED, NodeScores, score_column
from muster.engine.session import Session
from muster.model.device import DeviceSlot
from muster.model.effects import Verdict
from muster.model.pod import Phase, Pod, PodSignature
from muster.state.derived.device_usage import are_free
from muster.state.node_table import BoolColumn, FloatColumn, NodeRows, RowIndex
from muster.state.trial import Trial

# For how many further pods on one row scores are computed at once, at most.
_MAX_LOOKAHEAD = 64
# So many best rows are found one by one; whoever needs more sorts all of them.
_FEW_ROWS = 24


@dataclass(frozen=True, slots=True)
class PlaceResult:
    """How many were placed, and who was refused first. `verdict` says why where it was a queue that refused."""

    count: int
    first_refused: Pod | None
    verdict: Verdict | None = None


def place(s: Session, trial: Trial, pods: Sequence[Pod], *, domain: Domain, phase: Phase, admitted: bool = False) -> PlaceResult:
    """Place as many of these as fit, in turn; each is tried once. `admitted`: all are known to fit into their queues."""
    count, first_refused, verdict = 0, None, None
    if s.left_out is not None:
        domain = _without(domain, s.left_out)
    for run, inter_pod_constraints in _equal_runs(s, placement_order(s, pods, domain)):
        quota_fit = QuotaFit(len(run)) if admitted else s.quota_fit(run[0], count=len(run), phase=phase)
        done = (
            _place_equal_pods(s, trial, run[: quota_fit.fit_count], inter_pod_constraints, domain, phase)
            if quota_fit.fit_count
            else 0
        )
        count += done
        if done < len(run) and first_refused is None:
            first_refused = run[done]
            verdict = quota_fit.verdict if done == quota_fit.fit_count else None
    return PlaceResult(count, first_refused, verdict)


def without_rows(domains: Sequence[Domain], left_out: BoolColumn | None) -> Sequence[Domain]:
    """These domains without the rows that are left out, as far as anything remains of them."""
    if left_out is None:
        return domains
    return [each for domain in domains if (each := _without(domain, left_out)).rows is None or len(each.rows)]


def _without(domain: Domain, left_out: BoolColumn) -> Domain:
    rows = np.flatnonzero(~left_out) if domain.rows is None else domain.rows[~left_out[domain.rows]]
    return replace(domain, rows=rows)


def placement_order(s: Session, pods: Sequence[Pod], domain: Domain = WHOLE_CLUSTER) -> Sequence[Pod]:
    """The members in the order in which they are placed: what plugins want first, then the most constrained, so that a flexible
    member does not take the only node of another; equal ones as given."""
    if len(pods) < 2:
        return pods
    plugins, first = s.policy.orders_pods, pods[0].signature
    signatures = {first: None} if all(pod.signature is first for pod in pods) else dict.fromkeys(pod.signature for pod in pods)
    if len(signatures) == 1:
        return sorted(pods, key=lambda pod: [plugin.pod_key(s, pod) for plugin in plugins]) if plugins else pods
    flexibility = _flexibility(s, {pod.signature: pod for pod in reversed(pods)}, domain)
    rank = {signature: at for at, signature in enumerate(sorted(signatures, key=flexibility.__getitem__))}
    return sorted(pods, key=lambda pod: [*(plugin.pod_key(s, pod) for plugin in plugins), rank[pod.signature]])


def _flexibility(s: Session, pods: Mapping[PodSignature, Pod], domain: Domain) -> dict[PodSignature, tuple[int, float]]:
    """How many nodes match pods of each signature; then the share of the cluster that they request, the largest first."""
    total = np.maximum(s.world.table.allocatable.sum(axis=0), 1)
    found: dict[PodSignature, tuple[int, float]] = {}
    for signature, pod in pods.items():
        match = s.match(pod)
        share = s.world.request(pod) / total
        inside = match if domain.rows is None else match[domain.rows]
        found[signature] = (int(np.count_nonzero(inside)), -float(share.max(initial=0.0)))
    return found


def has_filters(s: Session, pod: Pod) -> bool:
    """Does more than capacity decide whether a node takes the pod: ports, devices, volumes, inter-pod constraints?"""
    if pod.signature.ports or pod.signature.devices:
        return True
    if not s.policy.inter_pod_fits:
        return False
    return s.has_inter_pod_constraints(pod if pod.nominated_node is None else replace(pod, nominated_node=None))


def passes_filters(s: Session, pod: Pod, *, after_releases: bool = False) -> bool:
    """Would the node that is reserved for the pod, or that it is nominated to, pass every check if it had none yet?"""
    if not has_filters(s, pod):
        return True
    now = s.world.placement(pod)
    with s.trial("to look at its node without it", cause="Looks") as trial:
        trial.release(pod)
        return fits_on(s, pod, now.node or "", after_releases=after_releases, devices=now.devices)


def fits_on(s: Session, pod: Pod, node: str, *, after_releases: bool, devices: tuple[DeviceSlot, ...] = ()) -> bool:
    """Does the pod pass every check on this node as the world is now? `devices`: with exactly these device slots."""
    row = s.world.table.row.get(node)
    if row is None:
        return False
    rows = NodeRows(s.world.table, np.array([row], dtype=np.intp), after_releases=after_releases)
    checks = [plugin.match(s, pod, rows) for plugin in s.policy.matches]
    checks += [plugin.fit(s, pod, rows) for plugin in s.policy.fits]
    checks += [plugin.fit_inter_pod(s, pod, rows) for plugin in s.policy.inter_pod_fits if plugin.has_inter_pod_constraints(s, pod)]
    return all(bool(column[0]) for column in checks) and (
        not devices or are_free(s.world, node, devices, after_releases=after_releases)
    )


def _equal_runs(s: Session, pods: Sequence[Pod]) -> Iterator[tuple[Sequence[Pod], InterPodConstraints]]:
    """Stretches of interchangeable members: the same signature, role and queue, and the same inter-pod constraints. A stretch is
    cut when its turn comes, because those placed before it may constrain it."""
    members, is_constrained = s.world.facts.members, bool(s.policy.inter_pod_fits)
    start = 0
    while start < len(pods):
        a = pods[start]
        inter_pod_constraints = (
            inter_pod_constraints_of(s, a, alone=start + 1 == len(pods)) if is_constrained else NO_INTER_POD_CONSTRAINTS
        )
        end = start + 1
        while end < len(pods) and inter_pod_constraints.inter_pod_keys is not None:
            b = pods[end]
            alike = (a.signature is b.signature or a.signature == b.signature) and members[a.uid] == members[b.uid]
            if not alike:
                break
            if is_constrained and not _is_like(pods[end - 1], b) and inter_pod_constraints_of(s, b) != inter_pod_constraints:
                break
            end += 1
        yield pods[start:end], inter_pod_constraints
        start = end


def _is_like(a: Pod, b: Pod) -> bool:
    """Do plugins see the same other pods for both? Of one signature they are."""
    return a.namespace == b.namespace and a.labels == b.labels and a.nominated_node == b.nominated_node


def _place_equal_pods(
    s: Session, trial: Trial, pods: Sequence[Pod], inter_pod_constraints: InterPodConstraints, domain: Domain, phase: Phase
) -> int:
    if len(pods) == 1 and inter_pod_constraints.plugins:
        return place_one(s, trial, pods[0], inter_pod_constraints, domain, phase)
    columns = s.node_scores(pods[0], after_releases=phase is Phase.NOMINATED)
    names = s.world.table.names
    if len(pods) == 1:
        row = _best_row(columns.value, domain.rows)
        if row is None:
            return 0
        place_pod(s, trial, pods[0], names[row], phase=phase)
        return 1
    next_scores = _NextScores(s, pods[0], columns)
    if inter_pod_constraints.plugins:
        value = _only_rows(columns.value, domain.rows)
        picked = pick_inter_pod_rows(
            s, pods[0], inter_pod_constraints, value, next_scores, wanted=len(pods), after_releases=columns.after_releases
        )
    else:
        picked = _pick_rows(next_scores, _RowsByScore(columns.value, domain.rows), len(pods))
    if picked:
        places = [names[row] for row in picked]
        trial.place_many(
            pods[: len(picked)], places, phase=phase, devices=s.slots(pods[0], places, after_releases=columns.after_releases)
        )
    return len(picked)


def _only_rows(value: FloatColumn, rows: RowIndex | None) -> FloatColumn:
    """A copy that is REFUSED outside of these rows."""
    if rows is None:
        return value.copy()
    inside = np.full(len(value), REFUSED)
    inside[rows] = value[rows]
    return inside


def _best_row(value: FloatColumn, rows: RowIndex | None) -> int | None:
    inside = value if rows is None else value[rows]
    at = int(inside.argmax()) if len(inside) else 0
    if not len(inside) or inside[at] == REFUSED:
        return None
    return at if rows is None else int(rows[at])


def _pick_rows(next_scores: _NextScores, untouched: _RowsByScore, wanted: int) -> list[int]:
    """The rows that `wanted` equal pods take one after the other: each goes to the row with the highest score for one more pod.

    The heap has the next score of some rows, best first; `limit` is the worst of those when they were fetched, so that whatever
    comes before it in the heap comes before every row that was not fetched yet.
    """
    picked: list[int] = []
    heap: list[tuple[float, int]] = []
    limit, fetched = (-np.inf, -1), 1
    while len(picked) < wanted:
        if not heap or heap[0] > limit:
            fresh = untouched.best(min(fetched, wanted - len(picked)))
            fetched *= 4
            if fresh:
                limit = fresh[-1]
                next_scores.add_rows([row for _, row in fresh], left=wanted - len(picked))
                for entry in fresh:
                    heapq.heappush(heap, entry)
            elif not heap:
                break
            else:
                limit = (np.inf, -1)
        row = heap[0][1]
        picked.append(row)
        score = next_scores.score_after_placing(row)
        if score == REFUSED:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (-score, row))
    return picked


class _RowsByScore:
    """Rows that got none of the pods yet, as (minus score, row): the best first, of equals the first by row. Refused ones never."""

    def __init__(self, value: FloatColumn, rows: RowIndex | None) -> None:
        self._value = value.copy() if rows is None else value[rows]
        self._rows = rows
        self._found = 0
        self._sorted: list[tuple[float, int]] | None = None

    def best(self, count: int) -> list[tuple[float, int]]:
        """The next ones: `count`, or as many as there are. Finding a few is cheaper than sorting all."""
        self._found += count
        if self._found <= _FEW_ROWS:
            return list(self._highest(count))
        if self._sorted is None:
            self._sorted = self._sorted_worst_first()
        cut = max(0, len(self._sorted) - count)
        found = self._sorted[cut:][::-1]
        del self._sorted[cut:]
        return found

    def _highest(self, count: int) -> Iterator[tuple[float, int]]:
        for _ in range(count if len(self._value) else 0):
            at = int(self._value.argmax())
            score = float(self._value[at])
            if score == REFUSED:
                return
            self._value[at] = REFUSED
            yield -score, at if self._rows is None else int(self._rows[at])

    def _sorted_worst_first(self) -> list[tuple[float, int]]:
        feasible = np.flatnonzero(self._value > REFUSED)
        order = feasible[np.argsort(-self._value[feasible], kind="stable")][::-1]
        rows = order if self._rows is None else self._rows[order]
        return list(zip((-self._value[order]).tolist(), rows.tolist(), strict=True))


class _NextScores:
    """The scores of rows with further pods on them, computed for many rows and pods at a time."""

    def __init__(self, s: Session, pod: Pod, columns: NodeScores) -> None:
        self._s, self._pod, self._columns = s, pod, columns
        self._request = s.world.request(pod)
        self._unscored_rows: list[int] = []
        self._lookahead = 1
        self._scores_ahead: dict[int, list[float]] = {}
        self._placed_on: dict[int, int] = {}

    def add_rows(self, rows: list[int], *, left: int) -> None:
        """These rows come next. Nothing is computed before one of them is used, and then as far ahead as rows were filled so
        far."""
        filled = -(-sum(self._placed_on.values()) // len(self._placed_on)) if self._placed_on else left
        self._unscored_rows.extend(rows)
        self._lookahead = max(1, min(2 * filled, left, _MAX_LOOKAHEAD))

    def score_after_placing(self, row: int) -> float:
        """Count one more pod on the row; the score of the next one there, or REFUSED."""
        placed = self._placed_on[row] = self._placed_on.get(row, 0) + 1
        ahead = self._scores_ahead.get(row)
        if ahead is None:
            for each, scores in zip(
                self._unscored_rows, self._score_rows(self._unscored_rows, start=1, depth=self._lookahead), strict=True
            ):
                self._scores_ahead[each] = scores
            self._unscored_rows = []
            ahead = self._scores_ahead[row]
        elif placed > len(ahead):
            ahead.extend(self._score_rows([row], start=placed, depth=3 * len(ahead))[0])
        return ahead[placed - 1]

    def _score_rows(self, rows: Sequence[int], *, start: int, depth: int) -> list[list[float]]:
        """For each row, the scores after `start`, `start` + 1, ... further pods."""
        index = np.repeat(np.array(rows, dtype=np.intp), depth)
        extra = np.tile(np.arange(start, start + depth, dtype=np.int64), len(rows))
        view = NodeRows(self._s.world.table, index, after_releases=self._columns.after_releases, extra=extra, request=self._request)
        answer: list[list[float]] = score_column(self._s, self._pod, view, self._columns.base).reshape(len(rows), depth).tolist()
        return answer
