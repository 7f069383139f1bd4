"""Every key of the scenario language, with what it takes and what it means. Whoever reads a file looks keys up here.

`docs/scenarios.md` has the same table; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeySpec:
    name: str
    value_type: str
    description: str


SCENARIO = (
    KeySpec("name", "text", "a sentence that says what must come out"),
    KeySpec("policy", "mapping or path", "the policy file, inline or relative to this file; the default policy if left out"),
    KeySpec("nodes", "list of nodes", "the nodes that are there at the start"),
    KeySpec("queues", "list of queues", "the queues that are there at the start"),
    KeySpec("classes", "list of classes", "priority classes"),
    KeySpec("gangs", "list of gangs", "the gangs that are there at the start"),
    KeySpec("objects", "list of manifests", "Kubernetes objects, beside the short forms or instead of them"),
    KeySpec("seed", "number", "where the cluster's chance begins; 0"),
    KeySpec("faults", "faults", "how the cluster misbehaves"),
    KeySpec("steps", "list of steps", "what happens, and what must come out"),
)

NODE = (
    KeySpec("name", "name or range", "`n1`, or `n[1-64]` for 64 equal nodes"),
    KeySpec("cpu", "quantity", "cores; 64"),
    KeySpec("memory", "quantity", "256Gi"),
    KeySpec("gpu", "quantity", "nvidia.com/gpu; none. Any other resource is written by its full name"),
    KeySpec("pods", "count", "how many pods it takes; 110"),
    KeySpec("devices", "list of devices", "devices with indices that pods share, numbered from 0 in this order"),
    KeySpec("labels", "mapping", "its labels; `kubernetes.io/hostname` is added"),
    KeySpec("taints", "taints", "`key=value:Effect`, or a list of them"),
    KeySpec("cordoned", "true or false", "true: unschedulable"),
)

DEVICE = (
    KeySpec("kind", "gpu", "what it is; gpu"),
    KeySpec("count", "count", "how many of them; 1"),
    KeySpec("memory", "quantity", "the memory of each; 16Gi"),
    KeySpec("shares", "count", "how many pods may share each (vgpu); 10"),
    KeySpec("island", "name", "which are close to each other (NVLink, PCIe)"),
    KeySpec("healthy", "true or false", "false: nobody new is put onto it"),
    KeySpec("dialect", "dialect", "who registers them: vgpu (unless said), gpushare or koordinator"),
)

QUEUE = (
    KeySpec("name", "name or range", "its name"),
    KeySpec("parent", "queue", "the queue above it"),
    KeySpec("weight", "count", "its weight; 1"),
    KeySpec("limit", "amounts", "the most it may use (Volcano: capability)"),
    KeySpec("deserved", "amounts", "its fair share"),
    KeySpec("guarantee", "amounts", "what nobody may take from it"),
    KeySpec("reclaimable", "true or false", "whether others may take back what it borrowed; true"),
    KeySpec("priority", "number", "its priority among queues"),
    KeySpec("state", "Open, Closed or Closing", "whether it takes new gangs; Open"),
)

PRIORITY_CLASS = (
    KeySpec("name", "name", "its name"),
    KeySpec("value", "number", "the priority"),
    KeySpec("default", "true or false", "whether it is for pods that name no class"),
    KeySpec("preempts", "true or false", "false: its pods never cause an eviction"),
)

# What a gang says of all its pods, and a role of its own.
_POD_KEYS = (
    KeySpec("pods", "count", "how many members it has; 1"),
    KeySpec("arrived", "count", "how many of them exist from the beginning; all. `scale` brings the others"),
    KeySpec("min", "count", "how many it needs; as many as it has"),
    KeySpec("each", "amounts", "what each member asks for: cpu, memory, gpu, or a resource's full name"),
    KeySpec(
        "at", "node, range or list", "the members run there already: all on one node, or one on each of a list, the others wait"
    ),
    KeySpec("runs", "duration", "how long a member runs; for ever"),
    KeySpec("ends", "Succeeded or Failed", "how it ends; Succeeded"),
    KeySpec("starts", "duration", "how long a member takes from its bind to its start; 1s"),
    KeySpec("leaves", "duration or never", "how long a member takes to go when it is told to"),
    KeySpec("selector", "mapping", "the labels that a node must have"),
    KeySpec("tolerations", "tolerations", "`key=value:Effect`, `key:Effect`, `key`, or a manifest's; one or a list"),
    KeySpec("affinity", "mapping", "as in a pod's manifest"),
    KeySpec("labels", "mapping", "labels of the pods"),
    KeySpec("annotations", "mapping", "annotations of the pods"),
    KeySpec("spec", "mapping", "anything else for the pods' spec, as in a manifest"),
)

ROLE = (KeySpec("name", "name", "its name; its members are `<gang>-<role>-<number>`"), *_POD_KEYS)

GANG = (
    KeySpec("name", "name or range", "its members are `<name>-<number>`"),
    KeySpec("namespace", "name", "default"),
    KeySpec("dialect", "dialect", "how it is declared: volcano (unless said), koordinator, sigs, native, annotation or lone"),
    KeySpec("queue", "queue", "where it waits"),
    KeySpec("priority", "number", "its priority; a class `priority-<number>` is made for it"),
    KeySpec("class", "class", "its priority class"),
    *_POD_KEYS,
    KeySpec("roles", "list of roles", "members that do different work; what the gang says holds for each role that says nothing"),
    KeySpec("created", "duration", "when it was created, such as -2h; now"),
    KeySpec("controller", "recreate", "somebody re-creates members that were evicted, failed or lost"),
    KeySpec("recreate-after", "duration", "how long that takes"),
    KeySpec("recreate-limit", "count", "how often, for each member"),
    KeySpec("scheduler", "name", "the pods' schedulerName; muster"),
    KeySpec("mode", "Strict or NonStrict", "Strict"),
    KeySpec("wait", "duration", "how long members are held for the rest"),
    KeySpec("match", "match policy", "once-satisfied, waiting-and-running or only-waiting"),
    KeySpec("total", "count", "how many members are expected (total-number)"),
    KeySpec("group", "list of gangs", "the gangs that start together with it, itself included"),
    KeySpec("topology", "mapping", "`hard: <tier>` or `soft: <tier>`"),
)

FAULTS = (
    KeySpec("late", "share", "events that come late, from 0 to 1"),
    KeySpec("lost", "share", "events that do not come; the scheduler learns what it missed within a minute"),
    KeySpec("doubled", "share", "events that come twice"),
    KeySpec("reordered", "share", "events that overtake others"),
    KeySpec("bind_fails", "share", "binds that fail"),
)

STEP = (
    KeySpec("submit", "gang, manifest or list", "they appear now"),
    KeySpec("delete", "names", "a gang with its PodGroup, members, or any object as `Kind/namespace/name`"),
    KeySpec("scale", "gang: count", "the gang (or `gang/role`) gets or loses members, the last ones first"),
    KeySpec("cycle", "count", "that many cycles, one after the other at the same moment"),
    KeySpec("advance", "duration", "time passes without a cycle"),
    KeySpec("run", "duration or mapping", "time passes with a cycle every 10s, or as `{for: 2h, every: 30s}` says"),
    KeySpec("node", "node step", "something happens to nodes"),
    KeySpec("fail", "fail step", "the next deeds on these pods fail"),
    KeySpec("restart", "nothing", "the scheduler is thrown away and starts anew from what the cluster holds"),
    KeySpec("crash", "count", "a cycle of which only so many writes get through, and then a restart"),
    KeySpec("edit", "mapping", "`{object: Kind/namespace/name, patch: {...}}`: a merge patch"),
    KeySpec("expect", "expectations", "what must be true now"),
)

RUN = (
    KeySpec("for", "duration", "how much time passes"),
    KeySpec("every", "duration", "how long from one cycle to the next"),
)

NODE_STEP = (
    KeySpec("fail", "names", "the node stops answering; its pods are lost after a while"),
    KeySpec("return", "names", "it answers again"),
    KeySpec("cordon", "names", "no new pods"),
    KeySpec("uncordon", "names", "new pods again"),
    KeySpec("taint", "name: taints", "gets these taints, and no others"),
    KeySpec("label", "name: labels", "gets these labels; one set to nothing is removed"),
    KeySpec("resize", "name: amounts", "gets another size; what is not named stays"),
    KeySpec("remove", "names", "the node is gone, and its pods with it"),
    KeySpec("add", "node or list", "new nodes, in their short form"),
)

FAIL_STEP = (
    KeySpec("bind", "names", "gangs or members whose next binds fail"),
    KeySpec("evict", "names", "gangs or members whose next evictions are refused"),
    KeySpec("times", "count", "how often, for each pod; 1"),
)

EDIT = (
    KeySpec("object", "Kind/namespace/name", "which object"),
    KeySpec("patch", "mapping", "a JSON merge patch: null removes"),
)

EXPECT = (
    KeySpec("bound", "who", "who stands on a node"),
    KeySpec("held", "who", "for whom a free node is kept"),
    KeySpec("nominated", "who", "who was promised a node"),
    KeySpec("pending", "who", "who waits without a node"),
    KeySpec("finished", "who", "who ran to its end"),
    KeySpec("evicted", "who", "who was evicted, from the beginning until now"),
    KeySpec("released", "who", "whose claims ended, from the beginning until now"),
    KeySpec("order", "list of gangs", "in this order they first got a node"),
    KeySpec("where", "gang: nodes", "exactly these nodes carry its members"),
    KeySpec("devices", "gang: indices", "the devices that its members have or were promised, members in order"),
    KeySpec("why", "gang: text", "the sentence on the waiting gang has this in it, or all of a list"),
    KeySpec("code", "gang: text", "the verdict's code; `Fits` for a gang with a node for every member"),
    KeySpec("stage", "gang: stage", "gathering, waiting, holding, clearing, satisfied, timed out, finished, or gone"),
    KeySpec("queue", "queue: figures", "used, leaving, promised or requested, in amounts"),
    KeySpec("condition", "gang or Kind/name: text", "the condition that was last written about it has this in it"),
    KeySpec("attempts", "gang: count", "how often it was tried (its schedule cycle)"),
    KeySpec("cycles", "count", "cycles run since the beginning"),
    KeySpec(
        "writes",
        "count or mapping",
        "the scheduler's API writes until now, in all or by verb: bind, patch, delete, evict",
    ),
    KeySpec("stable", "count or mapping", "that many more cycles, or as `{for: 10m}` says, and nothing happens in them"),
)

QUEUE_AMOUNTS = (
    KeySpec("used", "amounts", "held, binding, bound and leaving"),
    KeySpec("leaving", "amounts", "about to become free"),
    KeySpec("promised", "amounts", "nominated"),
    KeySpec("requested", "amounts", "all that live in the queue"),
)

TOPOLOGY = (
    KeySpec("hard", "count", "the whole gang in one domain at or below this tier"),
    KeySpec("soft", "count", "preferably so"),
)

KEY_TABLES: dict[str, tuple[KeySpec, ...]] = {
    "scenario": SCENARIO,
    "node": NODE,
    "device": DEVICE,
    "queue": QUEUE,
    "class": PRIORITY_CLASS,
    "gang": GANG,
    "role": ROLE,
    "topology": TOPOLOGY,
    "faults": FAULTS,
    "step": STEP,
    "run": RUN,
    "node step": NODE_STEP,
    "fail step": FAIL_STEP,
    "edit": EDIT,
    "expect": EXPECT,
    "figures": QUEUE_AMOUNTS,
}


def names(table: str) -> tuple[str, ...]:
    return tuple(key.name for key in KEY_TABLES[table])
