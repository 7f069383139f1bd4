"""Every key of the scenario language, by table. The parsers look keys up here; docs/scenarios.md says what each means.

A test compares the two.
"""

from __future__ import annotations

POD_KEYS = (
    "pods",
    "initialPods",
    "min",
    "requests",
    "runningOn",
    "runDuration",
    "exitPhase",
    "startupDuration",
    "terminationDuration",
    "nodeSelector",
    "tolerations",
    "affinity",
    "labels",
    "annotations",
    "spec",
)
"""Keys of a gang that are about all its pods, or of a role about its own."""

KEY_TABLES: dict[str, tuple[str, ...]] = {
    "scenario": ("name", "policy", "nodes", "queues", "priorityClasses", "gangs", "objects", "seed", "faults", "steps"),
    "node": ("name", "cpu", "memory", "gpu", "pods", "devices", "labels", "taints", "unschedulable"),
    "device": ("type", "count", "memory", "shares", "deviceGroup", "healthy", "apiFlavour"),
    "queue": ("name", "parent", "weight", "limit", "deserved", "guarantee", "reclaimable", "priority", "state", "annotations"),
    "priority class": ("name", "value", "globalDefault", "preemptionPolicy", "annotations"),
    "gang": (
        "name",
        "namespace",
        "apiFlavour",
        "queue",
        "priority",
        "priorityClassName",
        *POD_KEYS,
        "roles",
        "age",
        "controller",
        "recreateAfter",
        "recreateLimit",
        "schedulerName",
        "mode",
        "waitingTime",
        "matchPolicy",
        "totalNumber",
        "gangGroup",
        "networkTopology",
        "podGroupSpec",
    ),
    "role": ("name", *POD_KEYS),
    "network topology": ("mode", "highestTierAllowed"),
    "faults": ("delayed", "dropped", "duplicated", "reordered", "bindFailures"),
    "step": ("submit", "delete", "scale", "cycle", "advance", "run", "node", "fail", "restart", "crash", "patch", "expect"),
    "run": ("for", "every"),
    "node step": ("fail", "recover", "cordon", "uncordon", "taint", "label", "resize", "remove", "add"),
    "fail step": ("bind", "evict", "times"),
    "patch": ("object", "merge"),
    "expect": (
        "bound",
        "reserved",
        "nominated",
        "pending",
        "finished",
        "evicted",
        "released",
        "bindOrder",
        "nodes",
        "devices",
        "why",
        "code",
        "stage",
        "queues",
        "conditions",
        "attempts",
        "cycles",
        "writes",
        "stable",
    ),
    "queue amounts": ("used", "releasing", "nominated", "requested"),
}

_RETIRED_POD_KEYS = {
    "arrived": "initialPods",
    "each": "requests",
    "at": "runningOn",
    "runs": "runDuration",
    "ends": "exitPhase",
    "starts": "startupDuration",
    "leaves": "terminationDuration",
    "selector": "nodeSelector",
}
RETIRED_KEYS: dict[str, dict[str, str]] = {
    "scenario": {"classes": "priorityClasses"},
    "node": {"cordoned": "unschedulable"},
    "device": {"kind": "type", "island": "deviceGroup", "dialect": "apiFlavour"},
    "priority class": {"default": "globalDefault", "preempts": "preemptionPolicy"},
    "gang": {
        "dialect": "apiFlavour",
        "class": "priorityClassName",
        "created": "age",
        "recreate-after": "recreateAfter",
        "recreate-limit": "recreateLimit",
        "scheduler": "schedulerName",
        "wait": "waitingTime",
        "match": "matchPolicy",
        "total": "totalNumber",
        "group": "gangGroup",
        "topology": "networkTopology",
        **_RETIRED_POD_KEYS,
    },
    "role": {**_RETIRED_POD_KEYS},
    "network topology": {"hard": "mode: hard", "soft": "mode: soft"},
    "faults": {"late": "delayed", "lost": "dropped", "doubled": "duplicated", "bind_fails": "bindFailures"},
    "step": {"edit": "patch"},
    "node step": {"return": "recover"},
    "patch": {"patch": "merge"},
    "expect": {"held": "reserved", "order": "bindOrder", "where": "nodes", "queue": "queues", "condition": "conditions"},
    "queue amounts": {"leaving": "releasing", "promised": "nominated"},
}
"""Former keys of these tables, and what is written now: the error for a former key names the present one."""

RETIRED_VALUES = {
    "apiFlavour": {"lone": "single-pod"},
    "preemptionPolicy": {"true": "PreemptLowerPriority", "false": "Never"},
    "stage": {
        "gathering": "waiting-for-pods",
        "holding": "waiting-on-permit",
        "clearing": "preempting",
        "satisfied": "running",
        "timed out": "timed-out",
        "gone": "deleted",
    },
}
"""Former values of these keys, and what is written now."""
