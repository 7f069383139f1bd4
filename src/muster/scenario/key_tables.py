"""Every key of the scenario language: its value, its meaning, and its former name. The parsers look keys up here.

`docs/scenarios.md` has the same tables; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeySpec:
    """`retired` is the former name of the key: the error for it names the present one."""

    name: str
    value_type: str
    description: str
    retired: str = ""


SCENARIO = (
    KeySpec("name", "text", "a sentence that states the expected result"),
    KeySpec("policy", "mapping or path", "the policy, inline or a path relative to this file; the default policy if absent"),
    KeySpec("nodes", "list of nodes", "the nodes at the start"),
    KeySpec("queues", "list of queues", "the queues at the start"),
    KeySpec("priorityClasses", "list of priority classes", "the priority classes", retired="classes"),
    KeySpec("gangs", "list of gangs", "the gangs at the start"),
    KeySpec("objects", "list of manifests", "Kubernetes objects, in addition to the short forms or instead of them"),
    KeySpec("seed", "number", "seed of the simulated cluster's random numbers; 0"),
    KeySpec("faults", "faults", "faults that the simulated cluster injects"),
    KeySpec("steps", "list of steps", "what happens, and what is expected"),
)

NODE = (
    KeySpec("name", "name or range", "`n1`, or `n[1-64]` for 64 equal nodes"),
    KeySpec("cpu", "quantity", "cores; 64"),
    KeySpec("memory", "quantity", "256Gi"),
    KeySpec("gpu", "quantity", "nvidia.com/gpu; none. Any other resource is written by its full name"),
    KeySpec("pods", "count", "maximum number of pods; 110"),
    KeySpec("devices", "list of devices", "devices with indices that pods share, numbered from 0 in this order"),
    KeySpec("labels", "mapping", "its labels; `kubernetes.io/hostname` is added"),
    KeySpec("taints", "taints", "`key=value:Effect`, or a list of them"),
    KeySpec("unschedulable", "true or false", "true: cordoned", retired="cordoned"),
)

DEVICE = (
    KeySpec("type", "gpu", "the type of the device; gpu", retired="kind"),
    KeySpec("count", "count", "number of such devices; 1"),
    KeySpec("memory", "quantity", "the memory of each; 16Gi"),
    KeySpec("shares", "count", "how many pods may share each (vgpu); 10"),
    KeySpec("deviceGroup", "name", "devices with a fast interconnect (NVLink, PCIe) have the same group", retired="island"),
    KeySpec("healthy", "true or false", "false: no further pod is assigned to it"),
    KeySpec("apiFlavour", "API flavour", "who registers them: vgpu (the default), gpushare or koordinator", retired="dialect"),
)

QUEUE = (
    KeySpec("name", "name or range", "its name"),
    KeySpec("parent", "queue", "its parent queue"),
    KeySpec("weight", "count", "its weight; 1"),
    KeySpec("limit", "amounts", "the most it may use (Volcano: capability)"),
    KeySpec("deserved", "amounts", "its deserved share"),
    KeySpec("guarantee", "amounts", "what other queues may not use"),
    KeySpec("reclaimable", "true or false", "whether other queues may reclaim what it uses over its share; true"),
    KeySpec("priority", "number", "its priority among queues"),
    KeySpec("state", "Open, Closed or Closing", "whether it accepts new gangs; Open"),
)

PRIORITY_CLASS = (
    KeySpec("name", "name", "its name"),
    KeySpec("value", "number", "the priority"),
    KeySpec("globalDefault", "true or false", "whether it applies to pods without a priority class", retired="default"),
    KeySpec("preemptionPolicy", "PreemptLowerPriority or Never", "Never: its pods never preempt", retired="preempts"),
)

# Keys of a gang that hold for all its pods, or of a role for its own.
_POD_KEYS = (
    KeySpec("pods", "count", "number of members; 1"),
    KeySpec("initialPods", "count", "how many of them exist at the start; all. `scale` creates the others", retired="arrived"),
    KeySpec("min", "count", "how many must be placed together (minMember); all"),
    KeySpec("requests", "amounts", "what each member requests: cpu, memory, gpu, or a resource's full name", retired="each"),
    KeySpec(
        "runningOn",
        "node, range or list",
        "members that run already: all on one node, or one on each of a list, the others pending",
        retired="at",
    ),
    KeySpec("runDuration", "duration", "how long a member runs; for ever", retired="runs"),
    KeySpec("exitPhase", "Succeeded or Failed", "its phase after that; Succeeded", retired="ends"),
    KeySpec("startupDuration", "duration", "from a member's bind to its start; 1s", retired="starts"),
    KeySpec("terminationDuration", "duration or never", "from a member's deletion to its end", retired="leaves"),
    KeySpec("nodeSelector", "mapping", "labels that the node must have", retired="selector"),
    KeySpec("tolerations", "tolerations", "`key=value:Effect`, `key:Effect`, `key`, or as in a manifest; one or a list"),
    KeySpec("affinity", "mapping", "as in a pod's manifest"),
    KeySpec("labels", "mapping", "labels of the pods"),
    KeySpec("annotations", "mapping", "annotations of the pods"),
    KeySpec("spec", "mapping", "other fields of the pods' spec, as in a manifest"),
)

ROLE = (KeySpec("name", "name", "its name; its members are `<gang>-<role>-<number>`"), *_POD_KEYS)

GANG = (
    KeySpec("name", "name or range", "its members are `<name>-<number>`"),
    KeySpec("namespace", "name", "default"),
    KeySpec(
        "apiFlavour",
        "API flavour",
        "how it is declared: volcano (the default), koordinator, sigs, native, annotation or single-pod",
        retired="dialect",
    ),
    KeySpec("queue", "queue", "its queue"),
    KeySpec("priority", "number", "its priority; a priority class `priority-<number>` is created for it"),
    KeySpec("priorityClassName", "priority class", "its priority class", retired="class"),
    *_POD_KEYS,
    KeySpec("roles", "list of roles", "members with different templates; a role inherits the gang's keys that it does not set"),
    KeySpec("age", "duration", "how long ago it was created; 0s", retired="created"),
    KeySpec("controller", "recreate", "a controller re-creates members that were evicted, failed or lost"),
    KeySpec("recreateAfter", "duration", "how long that takes", retired="recreate-after"),
    KeySpec("recreateLimit", "count", "how often, for each member", retired="recreate-limit"),
    KeySpec("schedulerName", "name", "the pods' schedulerName; muster", retired="scheduler"),
    KeySpec("mode", "Strict or NonStrict", "Strict"),
    KeySpec("waitingTime", "duration", "how long members keep reservations until the gang is complete", retired="wait"),
    KeySpec("matchPolicy", "match policy", "once-satisfied, waiting-and-running or only-waiting", retired="match"),
    KeySpec("totalNumber", "count", "the expected number of members (total-number)", retired="total"),
    KeySpec("gangGroup", "list of gangs", "the gangs that start together with it, itself included", retired="group"),
    KeySpec("networkTopology", "mapping", "`{mode: hard, highestTierAllowed: 1}`, as in Volcano's PodGroup", retired="topology"),
)

FAULTS = (
    KeySpec("delayed", "fraction", "events that arrive late, from 0 to 1", retired="late"),
    KeySpec("dropped", "fraction", "events that do not arrive; the next resync, within a minute, replaces them", retired="lost"),
    KeySpec("duplicated", "fraction", "events that arrive twice", retired="doubled"),
    KeySpec("reordered", "fraction", "events that overtake others"),
    KeySpec("bindFailures", "fraction", "binds that fail", retired="bind_fails"),
)

STEP = (
    KeySpec("submit", "gang, manifest or list", "creates them"),
    KeySpec("delete", "names", "a gang with its PodGroup, members, or any object as `Kind/namespace/name`"),
    KeySpec("scale", "gang: count", "creates or deletes members of the gang (or `gang/role`), the last ones first"),
    KeySpec("cycle", "count", "scheduling cycles, without time between them"),
    KeySpec("advance", "duration", "time passes without a cycle"),
    KeySpec("run", "duration or mapping", "time passes with a cycle every 10s, or as in `{for: 2h, every: 30s}`"),
    KeySpec("node", "node step", "changes nodes"),
    KeySpec("fail", "fail step", "the next binds or evictions of these pods fail"),
    KeySpec("restart", "nothing", "the scheduler starts anew with nothing but the cluster's objects"),
    KeySpec("crash", "count", "a cycle of which only the first writes are done, and then a restart"),
    KeySpec("patch", "mapping", "`{object: Kind/namespace/name, merge: {...}}`: a JSON merge patch", retired="edit"),
    KeySpec("expect", "expectations", "what must be true now"),
)

RUN = (
    KeySpec("for", "duration", "how much time passes"),
    KeySpec("every", "duration", "the time from one cycle to the next"),
)

NODE_STEP = (
    KeySpec("fail", "names", "the kubelet stops reporting; its pods are lost after the toleration time"),
    KeySpec("recover", "names", "the kubelet reports again", retired="return"),
    KeySpec("cordon", "names", "unschedulable"),
    KeySpec("uncordon", "names", "schedulable again"),
    KeySpec("taint", "name: taints", "replaces its taints"),
    KeySpec("label", "name: labels", "sets these labels; an empty value removes the label"),
    KeySpec("resize", "name: amounts", "changes its allocatable; other resources stay"),
    KeySpec("remove", "names", "deletes the node and its pods"),
    KeySpec("add", "node or list", "creates nodes, in their short form"),
)

FAIL_STEP = (
    KeySpec("bind", "names", "gangs or members whose next binds fail"),
    KeySpec("evict", "names", "gangs or members whose next evictions are refused"),
    KeySpec("times", "count", "how often, for each pod; 1"),
)

PATCH = (
    KeySpec("object", "Kind/namespace/name", "the object"),
    KeySpec("merge", "mapping", "a JSON merge patch: null removes", retired="patch"),
)

EXPECT = (
    KeySpec("bound", "pods", "pods that have a node"),
    KeySpec("reserved", "pods", "pods with a reserved node, waiting on permit", retired="held"),
    KeySpec("nominated", "pods", "pods nominated to a node"),
    KeySpec("pending", "pods", "pods without a node"),
    KeySpec("finished", "pods", "pods that succeeded or failed"),
    KeySpec("evicted", "pods", "pods evicted since the start"),
    KeySpec("released", "pods", "pods whose reservation or nomination was released since the start"),
    KeySpec("bindOrder", "list of gangs", "the order in which gangs first got a node", retired="order"),
    KeySpec("nodes", "gang: nodes", "exactly the nodes of its members", retired="where"),
    KeySpec("devices", "gang: indices", "the devices assigned or nominated to its members, members in order"),
    KeySpec("why", "gang: text", "the message of the waiting gang contains this, or all of a list"),
    KeySpec("code", "gang: text", "the verdict's code; `Fits` for a gang with a node for every member"),
    KeySpec(
        "stage",
        "gang: stage",
        "waiting-for-pods, waiting, waiting-on-permit, preempting, running, timed-out, finished or deleted",
    ),
    KeySpec("queues", "queue: queue amounts", "used, releasing, nominated or requested, in amounts", retired="queue"),
    KeySpec("conditions", "gang or Kind/name: text", "the last condition written on it contains this", retired="condition"),
    KeySpec("attempts", "gang: count", "how often it was tried (its schedule cycle)"),
    KeySpec("cycles", "count", "cycles since the start"),
    KeySpec(
        "writes",
        "count or mapping",
        "the scheduler's API writes since the start, in total or by verb: bind, patch, delete, evict",
    ),
    KeySpec("stable", "count or mapping", "so many more cycles, or as in `{for: 10m}`, without any effect"),
)

QUEUE_AMOUNTS = (
    KeySpec("used", "amounts", "reserved, binding, bound and releasing"),
    KeySpec("releasing", "amounts", "of terminating pods", retired="leaving"),
    KeySpec("nominated", "amounts", "of nominated pods", retired="promised"),
    KeySpec("requested", "amounts", "of all pods in the queue"),
)

NETWORK_TOPOLOGY = (
    KeySpec("mode", "hard or soft", "hard: the whole gang in one domain; soft: preferably"),
    KeySpec("highestTierAllowed", "count", "the highest tier of that domain"),
)

KEY_TABLES: dict[str, tuple[KeySpec, ...]] = {
    "scenario": SCENARIO,
    "node": NODE,
    "device": DEVICE,
    "queue": QUEUE,
    "priority class": PRIORITY_CLASS,
    "gang": GANG,
    "role": ROLE,
    "network topology": NETWORK_TOPOLOGY,
    "faults": FAULTS,
    "step": STEP,
    "run": RUN,
    "node step": NODE_STEP,
    "fail step": FAIL_STEP,
    "patch": PATCH,
    "expect": EXPECT,
    "queue amounts": QUEUE_AMOUNTS,
}

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


_REPLACED_KEYS = {"network topology": {"hard": "mode: hard", "soft": "mode: soft"}}


def key_names(table: str) -> tuple[str, ...]:
    return tuple(key.name for key in KEY_TABLES[table])


def retired_keys(table: str) -> dict[str, str]:
    """The present form of each former key."""
    return {key.retired: key.name for key in KEY_TABLES[table] if key.retired} | _REPLACED_KEYS.get(table, {})
