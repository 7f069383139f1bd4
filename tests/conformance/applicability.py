"""Which cases say anything about Muster: those that need what it does not have are counted apart, never as agreement."""

from __future__ import annotations

from tests.conformance.corpus import Case, annotations_of
from tests.conformance.emulated import not_emulated

from muster.convert.volcano_plugins import UNSUPPORTED

_FEATURES = {
    "sharding": "nodes are not divided among schedulers",
    "dra": "ResourceClaims are not read",
}
# Where these take part the outcome hangs on them; a plugin that only orders or delays may be left out.
_DECIDING_PLUGINS = frozenset(UNSUPPORTED) - {"sla"}
_SCORES = tuple(
    f"{name}.weight"
    for name in ("leastrequested", "mostrequested", "nodeaffinity", "podaffinity", "tainttoleration", "podtopologyspread")
)
_HIERARCHY = "volcano.sh/hierarchy"
_PROBED = ("node_order", "hypernode_order", "job_enqueueable")


def why_not_applicable(case: Case) -> str:
    """Why this case cannot be run, or empty."""
    for feature in case.features:
        if feature in _FEATURES:
            return f"{feature}: {_FEATURES[feature]}"
    custom = not_emulated(case)
    if custom:
        return f"needs plugins that exist in a test alone: {', '.join(custom)}"
    for plugin in case.plugins:
        if plugin["name"] in _DECIDING_PLUGINS:
            return f"plugin {plugin['name']}: {UNSUPPORTED[plugin['name']]}"
    return _switches(case) or _probe(case)


def _switches(case: Case) -> str:
    if any(_HIERARCHY in annotations_of(queue) for queue in case.objects("queues")):
        return f"queues form a tree by spec.parent; the annotation {_HIERARCHY} is not read"
    for each in case.written.get("configurations") or ():
        if (each.get("arguments") or {}).get("allowWholeBundle") is False:
            return "allowWholeBundle: there is no switch against taking whole gangs"
    nodeorder = case.plugin("nodeorder")
    if nodeorder is not None and not any(float((nodeorder.get("arguments") or {}).get(key, 1)) for key in _SCORES):
        return "nodeorder: only scores without a counterpart count"
    sra = ((case.plugin("resource-strategy-fit") or {}).get("arguments") or {}).get("sra") or {}
    if sra.get("enable") and sra.get("weight"):
        return "resource-strategy-fit: scarce resources are not avoided"
    return ""


def _probe(case: Case) -> str:
    asked = list(case.actual.get("probe") or ()) if case.is_probe else []
    if case.is_probe and not set(asked) & set(_PROBED):
        return f"nothing here answers the question {', '.join(asked) or 'of this probe'}"
    return ""
