"""Names that policy files and plugins had in earlier versions. Each is an error that names the present one; none is still read."""

from __future__ import annotations

from collections.abc import Mapping

from muster.yaml_positions import InputFaults, YamlValue

PLUGINS: Mapping[str, str] = {
    name.replace("-", "_"): name
    for name in (
        "elastic-quota",
        "lost-work",
        "min-runtime",
        "node-affinity-preference",
        "pod-affinity",
        "pod-affinity-preference",
        "spread-constraints",
        "taint-preference",
    )
}
SETTINGS: Mapping[str, str] = {
    "claimSeconds": "nominationSeconds",
    "defaultWaitSeconds": "defaultPermitWaitSeconds",
    "spareSeconds": "evictionCooldownSeconds",
    "shareOf": "reclaimFor",
}
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "pod-affinity-preference": {"hardWeight": "hardPodAffinityWeight"},
    "topology": {"maxEvictDomains": "settings.maxEvictDomains"},
}
"""By the plugin that has them."""

HOOKS: Mapping[str, str] = {
    "quota_room": "quota_fit",
    "minds": "applies_to",
    "blame": "reasons",
    "entangled": "has_inter_pod_constraints",
    "fit_among": "fit_inter_pod",
    "score_among": "score_inter_pod",
    "gate": "inter_pod_state",
    "stamp": "inter_pod_key",
    "may_take": "allows_eviction",
    "guards": "budget_use",
    "violates": "budget_use",
    "beyond": "budget_use",
    "over_share": "configured_share",
    "free_at": "evictable_at",
}
"""Methods of plugins. One of an earlier version would never be called, and what it vetoed would be allowed."""


def is_retired(at: YamlValue, what: str, renamed: Mapping[str, str], faults: InputFaults, *, field: str) -> bool:
    """True, and a fault that names the present name, if `at` is a name of an earlier version. `what` is `plugin` or the like."""
    new = renamed.get(at.text)
    if new is not None:
        faults.add(at, f"{what} {at.text} is now {new}", field=field)
    return new is not None
