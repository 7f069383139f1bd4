"""What a policy that can be used leaves unchecked, because it leaves a filter or the shares of queues out."""

from __future__ import annotations

from collections.abc import Mapping

from muster.engine.hooks import Policy

UNCHECKED: Mapping[str, str] = {
    "topology": "topology constraints of gangs are ignored",
    "unschedulable": "cordoned nodes are used",
    "selectors": "node selectors and required node affinity are ignored",
    "taints": "NoSchedule and NoExecute taints are ignored",
    "volumes": "pods are placed where their volumes are not accessible",
    "ports": "two pods with one host port are placed on one node",
    "devices": "shared devices are filled beyond what they have, and no slots of them are assigned",
    "pod-affinity": "required pod affinity and anti-affinity are ignored",
    "spread-constraints": "topologySpreadConstraints are ignored",
}
"""By filter. `fit` is not among them: no policy can be without it."""


def policy_warnings(policy: Policy) -> tuple[str, ...]:
    """A sentence for each filter that is missing, and for shares. A plugin of one's own may do its work, so it is no error."""
    names = {plugin.name for plugin in policy.plugins}
    warnings = [f"the plugin {name} is left out: {what}" for name, what in UNCHECKED.items() if name not in names]
    if "gang-reclaim" in policy.actions and not policy.deserved_shares:
        warnings.append("gang-reclaim has no share plugin (capacity or proportion): nothing says which queue is over its share")
    return tuple(warnings)
