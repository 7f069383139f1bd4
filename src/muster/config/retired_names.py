"""Names that a policy file had in earlier versions. Each is an error that names the present one; none is still read."""

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
}
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "pod-affinity-preference": {"hardWeight": "hardPodAffinityWeight"},
}
"""By the plugin that has them."""


def is_retired(at: YamlValue, what: str, renamed: Mapping[str, str], faults: InputFaults, *, field: str) -> bool:
    """True, and a fault that names the present name, if `at` is a name of an earlier version. `what` is `plugin` or the like."""
    new = renamed.get(at.text)
    if new is not None:
        faults.add(at, f"{what} {at.text} was renamed to {new}", field=field)
    return new is not None
