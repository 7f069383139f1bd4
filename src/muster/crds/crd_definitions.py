"""The schemas: all fields that Muster reads, with their types. Unknown fields are preserved.

No value is forbidden here that can be decoded. Invalid values are reported in a condition of the object.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from muster.kube.read import names
from muster.kube.read.api_resources import ApiResource, resource_of
from muster.kube.read.saved_objects import HISTORY, PLAN

Schema = dict[str, Any]

_PRESERVE_UNKNOWN: Schema = {"x-kubernetes-preserve-unknown-fields": True}
_STRING: Schema = {"type": "string"}
_BOOLEAN: Schema = {"type": "boolean"}
_INT32: Schema = {"type": "integer", "format": "int32"}
_TIME: Schema = {"type": "string", "format": "date-time", "nullable": True}
_QUANTITY: Schema = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}


def definitions() -> tuple[Schema, ...]:
    """All of them, in the order in which they are printed and installed."""
    return (
        _definition(resource_of(*PLAN), _PLAN, short="mplan", columns=_PLAN_COLUMNS),
        _definition(resource_of(*HISTORY), _HISTORY, short="mhistory", columns=()),
        _definition(resource_of(names.VOLCANO_GROUP, "Queue"), _QUEUE, short="q", columns=_QUEUE_COLUMNS),
        _definition(resource_of(names.VOLCANO_GROUP, "PodGroup"), _VOLCANO_POD_GROUP, short="pg", columns=_GROUP_COLUMNS),
        _definition(resource_of(names.VOLCANO_TOPOLOGY_GROUP, "HyperNode"), _HYPERNODE, short="hn", columns=_HYPERNODE_COLUMNS),
        _definition(resource_of(names.SIGS_GROUP, "PodGroup"), _POD_GROUP, short="pg", columns=_GROUP_COLUMNS),
        _definition(resource_of(names.SIGS_GROUP, "ElasticQuota"), _QUOTA, short="eq", columns=()),
        _definition(resource_of(names.X_K8S_GROUP, "PodGroup"), _POD_GROUP, short="pg", columns=_GROUP_COLUMNS),
        _definition(resource_of(names.X_K8S_GROUP, "ElasticQuota"), _QUOTA, short="eq", columns=()),
    )


def as_yaml() -> str:
    """For `kubectl apply -f -`."""
    text: str = yaml.dump_all(definitions(), Dumper=_DumperWithoutAliases, sort_keys=False, explicit_start=True)
    return text


def name_of(definition: Schema) -> str:
    name: str = definition["metadata"]["name"]
    return name


# -- parts -------------------------------------------------------------------------------------------------------------------------


def _object(properties: Schema | None = None, *, description: str = "") -> Schema:
    schema: Schema = {"type": "object", **_PRESERVE_UNKNOWN}
    if description:
        schema["description"] = description
    if properties:
        schema["properties"] = properties
    return schema


def _amounts(description: str) -> Schema:
    return {"type": "object", "description": description, "additionalProperties": _QUANTITY}


def _described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def _list(items: Schema, description: str = "") -> Schema:
    return {"type": "array", "items": items, **({"description": description} if description else {})}


_SELECTOR: Final = _object(
    {
        "matchLabels": {"type": "object", "additionalProperties": _STRING},
        "matchExpressions": _list(_object({"key": _STRING, "operator": _STRING, "values": _list(_STRING)})),
    }
)
_TOPOLOGY: Final = _object(
    {
        "mode": _described(_STRING, "hard: all members in one domain, or none is placed. soft: as close as possible."),
        "highestTierAllowed": _described(_INT32, "The highest tier of HyperNodes that the domain may belong to."),
        "highestTierName": _described(_STRING, "The same, by the name of the tier."),
    },
    description="The topology constraint of the members.",
)
_SUB_GROUP: Final = _object(
    {
        "name": _STRING,
        "labelSelector": _described(_SELECTOR, "Which members belong to it."),
        "matchLabelKeys": _list(_STRING, "Members with equal values of these labels are one subgroup."),
        "subGroupSize": _described(_INT32, "The number of members of a subgroup."),
        "minSubGroups": _described(_INT32, "How many subgroups must be placed together."),
        "networkTopology": _TOPOLOGY,
    }
)
_CONDITIONS: Final = _list(
    _object(
        {"type": _STRING, "status": _STRING, "reason": _STRING, "message": _STRING, "lastTransitionTime": _TIME},
    ),
    "Why the object is in this state, with numbers.",
)

_GROUP_STATUS: Final = _object(
    {
        "phase": _described(_STRING, "The phase of the gang."),
        "scheduled": _INT32,
        "running": _INT32,
        "succeeded": _INT32,
        "failed": _INT32,
        "scheduleStartTime": _described(_TIME, "When scheduling was first attempted."),
        "conditions": _CONDITIONS,
    }
)
_POD_GROUP: Final = {
    "spec": _object(
        {
            "minMember": _described(_INT32, "How many members must be placed together."),
            "minResources": _amounts("The resources that must be available before the gang is admitted to scheduling."),
            "scheduleTimeoutSeconds": _described(_INT32, "How long reserved members wait for the rest."),
        }
    ),
    "status": _GROUP_STATUS,
}
_VOLCANO_POD_GROUP: Final = {
    "spec": _object(
        {
            "minMember": _described(_INT32, "How many members must be placed together."),
            "minTaskMember": {
                "type": "object",
                "description": "The same for each role, by its name.",
                "additionalProperties": _INT32,
            },
            "minResources": _amounts("The resources that must be available before the gang is admitted to scheduling."),
            "priorityClassName": _described(_STRING, "The priority of the gang; by default that of its members."),
            "queue": _described(_STRING, "The queue of the gang."),
            "networkTopology": _TOPOLOGY,
            "subGroupPolicy": _list(_SUB_GROUP, "Subgroups of the gang with topology constraints of their own."),
        }
    ),
    "status": _GROUP_STATUS,
}
_QUEUE: Final = {
    "spec": _object(
        {
            "parent": _described(_STRING, "The parent queue; by default the root."),
            "weight": _described(_INT32, "Its weight in the division of resources among sibling queues."),
            "capability": _amounts("The most that it may use. 0 forbids a resource."),
            "deserved": _amounts("Its deserved share. Usage above it may be reclaimed."),
            "guarantee": _object({"resource": _amounts("Resources that are kept for it and never reclaimed.")}),
            "reclaimable": _described(_BOOLEAN, "false: nothing is reclaimed from it."),
            "priority": _described(_INT32, "Queues of higher priority are scheduled first."),
        }
    ),
    "status": _object(
        {
            "state": _described(_STRING, "Open, Closed, or Closing. A queue that is not open admits no new gangs."),
            "allocated": _amounts("What its pods use."),
            "inqueue": _INT32,
            "pending": _INT32,
            "running": _INT32,
            "conditions": _CONDITIONS,
        }
    ),
}
_HYPERNODE: Final = {
    "spec": _object(
        {
            "tier": _described(_INT32, "1 is the closest; domains of a higher tier consist of those of lower ones."),
            "tierName": _described(_STRING, "A name for the tier, such as rack."),
            "members": _list(
                _object(
                    {
                        "type": _described(_STRING, "Node or HyperNode."),
                        "selector": _object(
                            {
                                "exactMatch": _object({"name": _STRING}),
                                "regexMatch": _object({"pattern": _STRING}),
                                "labelMatch": _SELECTOR,
                            }
                        ),
                    }
                ),
                "The nodes or HyperNodes that belong to it.",
            ),
        }
    ),
    "status": _object({"conditions": _CONDITIONS}),
}
_QUOTA: Final = {
    "spec": _object(
        {
            "min": _amounts("Its deserved share, and the most that non-preemptible pods may use."),
            "max": _amounts("The most that it may use. 0 forbids a resource."),
        }
    ),
    "status": _object({"used": _amounts("What its pods use."), "conditions": _CONDITIONS}),
}
_NUMBER: Final[Schema] = {"type": "number"}
_TIMES: Final = _list(_object({"key": _STRING, "at": _NUMBER}))
_PLAN: Final = {
    "spec": _object(
        {
            "gang": _described(_STRING, "The gang that the nodes are kept for."),
            "members": _list(
                _object({"uid": _STRING, "pod": _STRING, "node": _STRING, "phase": _STRING, "since": _NUMBER, "plan": _STRING}),
                "The nodes that are reserved for its pods, or that these are nominated to.",
            ),
            "evictions": _list(
                _object({"plan": _STRING, "action": _STRING, "since": _NUMBER, "victims": _list(_STRING)}),
                "The UIDs of the pods that are evicted for it.",
            ),
            "cancelled": _list(_STRING, "The UIDs of pods whose soft eviction is being cancelled."),
            "parts": _list(_STRING, "The names of other objects with the rest of a plan that is too large for one."),
            "partOf": _described(_STRING, "Of such a rest: the name of the first object."),
            "moves": _list(
                _object({"gang": _STRING, "role": _STRING, "pod": _STRING, "victim": _STRING, "node": _STRING, "since": _NUMBER}),
                "The nodes that are kept for pods that are moved for it, until they are created anew.",
            ),
        },
        description="Written by the scheduler, for the one that starts after it.",
    )
}
_HISTORY: Final = {
    "spec": _object(
        {
            "losses": _list(_object({"key": _STRING}), "What gangs lost by evictions, by their controller or name."),
            "belowMinSince": _described(_TIMES, "Since when gangs have run with fewer members than their minimum."),
            "cancelledEvictions": _described(_TIMES, "When the soft eviction of a pod was last cancelled, by UID."),
            "waitingSince": _described(_TIMES, "Since when gangs wait for capacity for which nodes are kept, and which."),
            "pastUse": _list(_object({"queue": _STRING, "at": _NUMBER}), "What queues used on average, and use now."),
            "succeeded": _list(_object({"key": _STRING, "owner": _STRING}), "Members of gangs that succeeded, by name."),
        },
        description="Written by the scheduler, for the one that starts after it.",
    )
}


def _column(name: str, path: str, *, kind: str = "string") -> Schema:
    return {"name": name, "type": kind, "jsonPath": path}


_AGE: Final = _column("Age", ".metadata.creationTimestamp", kind="date")
_GROUP_COLUMNS: Final = (
    _column("Phase", ".status.phase"),
    _column("Min", ".spec.minMember", kind="integer"),
    _column("Running", ".status.running", kind="integer"),
)
_PLAN_COLUMNS: Final = (_column("Gang", ".spec.gang"),)
_QUEUE_COLUMNS: Final = (
    _column("State", ".status.state"),
    _column("Parent", ".spec.parent"),
    _column("Pending", ".status.pending", kind="integer"),
    _column("Running", ".status.running", kind="integer"),
)
_HYPERNODE_COLUMNS: Final = (_column("Tier", ".spec.tier", kind="integer"), _column("Name", ".spec.tierName"))


def _definition(resource: ApiResource, parts: Schema, *, short: str, columns: tuple[Schema, ...]) -> Schema:
    metadata: Schema = {"name": f"{resource.plural}.{resource.group}"}
    if resource.group.endswith(".k8s.io"):
        # These groups are protected: Kubernetes requires this annotation.
        metadata["annotations"] = {"api-approved.kubernetes.io": "unapproved, a kind that users already have"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [short],
            },
            "versions": [_version(resource.versions[0], parts, columns)],
        },
    }


def _version(name: str, parts: Schema, columns: tuple[Schema, ...]) -> Schema:
    properties = {"apiVersion": _STRING, "kind": _STRING, "metadata": {"type": "object"}, **parts}
    return {
        "name": name,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [*columns, _AGE],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }


class _DumperWithoutAliases(yaml.SafeDumper):
    """Without anchors: repeated values are written again."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True
