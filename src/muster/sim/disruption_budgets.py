"""PodDisruptionBudgets: how many disruptions each allows now, and the Eviction API's check."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from muster.kube.read.decoding_problems import Problems
from muster.kube.read.object_references import BUDGET, POD, ApiObjectRef, Manifest, ManifestView
from muster.kube.read.selector_decoding import label_selector
from muster.kube.read.wire import WireLabelSelector
from muster.sim.object_store import ObjectStore


class BudgetRefusal(NamedTuple):
    why: str
    budget_name: str


class DisruptionBudgets:
    """Keeps the budgets' status. `eviction_refusal` is the Eviction API's check."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._changed_namespaces: dict[str, None] = {}

    def on_change(self, ref: ApiObjectRef) -> None:
        """A pod or a budget of this namespace changed."""
        self._changed_namespaces[ref.namespace] = None

    def settle(self) -> None:
        """Update the status of the budgets in changed namespaces."""
        touched, self._changed_namespaces = self._changed_namespaces, {}
        for ref, budget in self._store.scan(BUDGET):
            if ref.namespace in touched:
                self._store.patch(ref, {"status": self._status(ref, budget)})

    def eviction_refusal(self, ref: ApiObjectRef, pod: ManifestView) -> BudgetRefusal | None:
        """Why the pod may not be evicted now, or None. A pod that does not run counts for no budget."""
        phase = (pod.get("status") or {}).get("phase")
        if phase != "Running" or pod["metadata"].get("deletionTimestamp"):
            return None
        covering = [(r, b) for r, b in self._store.scan(BUDGET) if r.namespace == ref.namespace and _budget_selects(b, pod)]
        if len(covering) > 1:
            names = " and ".join(r.full_name for r, _ in covering)
            return BudgetRefusal(
                f"{len(covering)} budgets cover it ({names}): the Eviction API supports only one", covering[0][0].full_name
            )
        for budget_ref, budget in covering:
            status = self._status(budget_ref, budget)
            healthy, desired = status["currentHealthy"], status["desiredHealthy"]
            # An unhealthy pod may be evicted while the others are enough.
            allowed = healthy - desired if _is_healthy(pod) else healthy - desired + 1
            if allowed <= 0:
                return BudgetRefusal(
                    f"budget {budget_ref.full_name} needs {desired} healthy pods and has {healthy}", budget_ref.full_name
                )
        return None

    def _status(self, ref: ApiObjectRef, budget: ManifestView) -> Manifest:
        pods = [
            pod
            for pod_ref, pod in self._store.scan(POD)
            if pod_ref.namespace == ref.namespace and _budget_selects(budget, pod) and _is_expected(pod)
        ]
        desired = _desired_healthy(budget.get("spec") or {}, expected=len(pods))
        disrupted = (budget.get("status") or {}).get("disruptedPods") or {}
        healthy = sum(_is_healthy(pod) and pod["metadata"]["name"] not in disrupted for pod in pods)
        return {
            **_without_deleted(disrupted, pods=pods),
            "expectedPods": len(pods),
            "desiredHealthy": desired,
            "currentHealthy": healthy,
            "disruptionsAllowed": max(0, healthy - desired),
            "observedGeneration": budget["metadata"]["generation"],
        }


def _without_deleted(disrupted: ManifestView, *, pods: list[ManifestView]) -> Manifest:
    """A real API server lists an eviction in the status before it deletes the pod; the entry is removed once the pod is deleted."""
    staying = {pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}
    done = [name for name in disrupted if name not in staying]
    return {"disruptedPods": dict.fromkeys(done)} if done else {}


def _is_expected(pod: ManifestView) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _is_healthy(pod: ManifestView) -> bool:
    """Running, and ready where it says anything about that."""
    status = pod.get("status") or {}
    ready = next((c.get("status") for c in status.get("conditions") or [] if c.get("type") == "Ready"), "True")
    return status.get("phase") == "Running" and ready == "True" and not pod["metadata"].get("deletionTimestamp")


def _desired_healthy(spec: ManifestView, *, expected: int) -> int:
    if spec.get("minAvailable") is not None:
        return int_or_percent(spec["minAvailable"], of=expected)
    if spec.get("maxUnavailable") is not None:
        return max(0, expected - int_or_percent(spec["maxUnavailable"], of=expected))
    return 0


def int_or_percent(written: int | str, *, of: int) -> int:
    """A number, or a percentage of the pods, rounded up."""
    text = str(written)
    return -(-int(text[:-1]) * of // 100) if text.endswith("%") else int(text)


def _budget_selects(budget: ManifestView, pod: ManifestView) -> bool:
    written = (budget.get("spec") or {}).get("selector")
    selector = label_selector(msgspec.convert(written, WireLabelSelector | None), problems=Problems(), field="selector")
    return selector is not None and selector.selects(pod["metadata"].get("labels") or {})
