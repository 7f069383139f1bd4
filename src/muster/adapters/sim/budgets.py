"""PodDisruptionBudgets: how many pods each can spare now, and who refuses an eviction."""

from __future__ import annotations

from typing import Any, NamedTuple

from muster.adapters.kube.refs import BUDGET, POD, Manifest, Ref, Stored
from muster.adapters.sim.objects import ObjectStore
from muster.model.selectors import LabelSelector, Operator, Requirement


class Refusal(NamedTuple):
    why: str
    by: str


class Budgets:
    """Watches over the budgets' status. `refusal` is the Eviction API's check."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._touched: dict[str, None] = {}

    def react(self, ref: Ref) -> None:
        """A pod or a budget of this namespace changed."""
        self._touched[ref.namespace] = None

    def settle(self) -> None:
        """Write down what the budgets of touched namespaces can spare now."""
        touched, self._touched = self._touched, {}
        for ref, budget in self._store.scan(BUDGET):
            if ref.namespace in touched:
                self._store.patch(ref, {"status": self._status(ref, budget)})

    def refusal(self, ref: Ref, pod: Stored) -> Refusal | None:
        """Why the pod may not be evicted now, or None. A pod that does not run disturbs nobody by going."""
        phase = (pod.get("status") or {}).get("phase")
        if phase != "Running" or pod["metadata"].get("deletionTimestamp"):
            return None
        covering = [(r, b) for r, b in self._store.scan(BUDGET) if r.namespace == ref.namespace and _covers(b, pod)]
        if len(covering) > 1:
            names = " and ".join(r.title for r, _ in covering)
            return Refusal(f"{len(covering)} budgets cover it ({names}): the Eviction API supports only one", covering[0][0].title)
        for budget_ref, budget in covering:
            status = self._status(budget_ref, budget)
            healthy, desired = status["currentHealthy"], status["desiredHealthy"]
            # An unhealthy pod may go while the others are enough.
            spare = healthy - desired if _is_healthy(pod) else healthy - desired + 1
            if spare <= 0:
                return Refusal(f"budget {budget_ref.title} needs {desired} healthy pods and has {healthy}", budget_ref.title)
        return None

    def _status(self, ref: Ref, budget: Stored) -> Manifest:
        pods = [
            pod
            for pod_ref, pod in self._store.scan(POD)
            if pod_ref.namespace == ref.namespace and _covers(budget, pod) and _is_expected(pod)
        ]
        desired = _desired(budget.get("spec") or {}, expected=len(pods))
        doomed = (budget.get("status") or {}).get("disruptedPods") or {}
        healthy = sum(_is_healthy(pod) and pod["metadata"]["name"] not in doomed for pod in pods)
        return {
            **_without_gone(doomed, pods=pods),
            "expectedPods": len(pods),
            "desiredHealthy": desired,
            "currentHealthy": healthy,
            "disruptionsAllowed": max(0, healthy - desired),
            "observedGeneration": budget["metadata"]["generation"],
        }


def _without_gone(doomed: Stored, *, pods: list[Stored]) -> Manifest:
    """A real API server notes an eviction in the status before it deletes the pod. Once that is seen, the note can go."""
    staying = {pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}
    done = [name for name in doomed if name not in staying]
    return {"disruptedPods": dict.fromkeys(done)} if done else {}


def _is_expected(pod: Stored) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _is_healthy(pod: Stored) -> bool:
    """Running, and ready where it says anything about that."""
    status = pod.get("status") or {}
    ready = next((c.get("status") for c in status.get("conditions") or [] if c.get("type") == "Ready"), "True")
    return status.get("phase") == "Running" and ready == "True" and not pod["metadata"].get("deletionTimestamp")


def _desired(spec: Stored, *, expected: int) -> int:
    if spec.get("minAvailable") is not None:
        return share_of(spec["minAvailable"], of=expected)
    if spec.get("maxUnavailable") is not None:
        return max(0, expected - share_of(spec["maxUnavailable"], of=expected))
    return 0


def share_of(written: int | str, *, of: int) -> int:
    """A number, or a percentage of the pods, rounded up."""
    text = str(written)
    return -(-int(text[:-1]) * of // 100) if text.endswith("%") else int(text)


def _covers(budget: Stored, pod: Stored) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    return selector is not None and _selector(selector).selects(pod["metadata"].get("labels") or {})


def _selector(written: Stored) -> LabelSelector:
    labels: dict[str, str] = written.get("matchLabels") or {}
    expressions: list[Any] = written.get("matchExpressions") or []
    equal = [Requirement(key, Operator.IN, (value,)) for key, value in sorted(labels.items())]
    others = [Requirement(e["key"], Operator(e["operator"]), tuple(e.get("values") or ())) for e in expressions]
    return LabelSelector((*equal, *others))
