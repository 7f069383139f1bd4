"""Every key of the scenario language, with what it takes and what it means. Whoever reads a file looks keys up here.

`docs/scenarios.md` has the same table; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    takes: str
    meaning: str


SCENARIO = (
    Key("name", "text", "a sentence that says what must come out"),
    Key("policy", "mapping or path", "the policy file, inline or relative to this file; the default policy if left out"),
    Key("nodes", "list of nodes", "the nodes that are there at the start"),
    Key("queues", "list of queues", "the queues that are there at the start"),
    Key("classes", "list of classes", "priority classes"),
    Key("gangs", "list of gangs", "the gangs that are there at the start"),
    Key("objects", "list of manifests", "Kubernetes objects, beside the short forms or instead of them"),
    Key("seed", "number", "where the cluster's chance begins; 0"),
    Key("faults", "faults", "how the cluster misbehaves"),
    Key("steps", "list of steps", "what happens, and what must come out"),
)

NODE = (
    Key("name", "name or range", "`n1`, or `n[1-64]` for 64 equal nodes"),
    Key("cpu", "quantity", "cores; 64"),
    Key("memory", "quantity", "256Gi"),
    Key("gpu", "quantity", "nvidia.com/gpu; none. Any other resource is written by its full name"),
    Key("pods", "count", "how many pods it takes; 110"),
    Key("devices", "list of devices", "devices with indices that pods share, numbered from 0 in this order"),
    Key("labels", "mapping", "its labels; `kubernetes.io/hostname` is added"),
    Key("taints", "taints", "`key=value:Effect`, or a list of them"),
    Key("cordoned", "true or false", "true: unschedulable"),
)

DEVICE = (
    Key("kind", "gpu", "what it is; gpu"),
    Key("count", "count", "how many of them; 1"),
    Key("memory", "quantity", "the memory of each; 16Gi"),
    Key("shares", "count", "how many pods may share each (vgpu); 10"),
    Key("island", "name", "which are close to each other (NVLink, PCIe)"),
    Key("healthy", "true or false", "false: nobody new is put onto it"),
    Key("dialect", "dialect", "who registers them: vgpu (unless said), gpushare or koordinator"),
)

QUEUE = (
    Key("name", "name or range", "its name"),
    Key("parent", "queue", "the queue above it"),
    Key("weight", "count", "its weight; 1"),
    Key("limit", "amounts", "the most it may use (Volcano: capability)"),
    Key("deserved", "amounts", "its fair share"),
    Key("guarantee", "amounts", "what nobody may take from it"),
    Key("reclaimable", "true or false", "whether others may take back what it borrowed; true"),
    Key("priority", "number", "its priority among queues"),
    Key("state", "Open, Closed or Closing", "whether it takes new gangs; Open"),
)

CLASS = (
    Key("name", "name", "its name"),
    Key("value", "number", "the priority"),
    Key("default", "true or false", "whether it is for pods that name no class"),
    Key("preempts", "true or false", "false: its pods never cause an eviction"),
)

# What a gang says of all its pods, and a role of its own.
_SEATS = (
    Key("pods", "count", "how many members it has; 1"),
    Key("arrived", "count", "how many of them exist from the beginning; all. `scale` brings the others"),
    Key("min", "count", "how many it needs; as many as it has"),
    Key("each", "amounts", "what each member asks for: cpu, memory, gpu, or a resource's full name"),
    Key("at", "node, range or list", "the members run there already: all on one node, or one on each of a list, the others wait"),
    Key("runs", "duration", "how long a member runs; for ever"),
    Key("ends", "Succeeded or Failed", "how it ends; Succeeded"),
    Key("starts", "duration", "how long a member takes from its bind to its start; 1s"),
    Key("leaves", "duration or never", "how long a member takes to go when it is told to"),
    Key("selector", "mapping", "the labels that a node must have"),
    Key("tolerations", "tolerations", "`key=value:Effect`, `key:Effect`, `key`, or a manifest's; one or a list"),
    Key("affinity", "mapping", "as in a pod's manifest"),
    Key("labels", "mapping", "labels of the pods"),
    Key("annotations", "mapping", "annotations of the pods"),
    Key("spec", "mapping", "anything else for the pods' spec, as in a manifest"),
)

ROLE = (Key("name", "name", "its name; its members are `<gang>-<role>-<number>`"), *_SEATS)

GANG = (
    Key("name", "name or range", "its members are `<name>-<number>`"),
    Key("namespace", "name", "default"),
    Key("dialect", "dialect", "how it is declared: volcano (unless said), koordinator, sigs, native, annotation or lone"),
    Key("queue", "queue", "where it waits"),
    Key("priority", "number", "its priority; a class `priority-<number>` is made for it"),
    Key("class", "class", "its priority class"),
    *_SEATS,
    Key("roles", "list of roles", "members that do different work; what the gang says holds for each role that says nothing"),
    Key("created", "duration", "when it was created, such as -2h; now"),
    Key("controller", "recreate", "somebody re-creates members that were evicted, failed or lost"),
    Key("recreate-after", "duration", "how long that takes"),
    Key("recreate-limit", "count", "how often, for each member"),
    Key("scheduler", "name", "the pods' schedulerName; muster"),
    Key("mode", "Strict or NonStrict", "Strict"),
    Key("wait", "duration", "how long members are held for the rest"),
    Key("match", "match policy", "once-satisfied, waiting-and-running or only-waiting"),
    Key("total", "count", "how many members are expected (total-number)"),
    Key("group", "list of gangs", "the gangs that start together with it, itself included"),
    Key("topology", "mapping", "`hard: <tier>` or `soft: <tier>`"),
)

FAULTS = (
    Key("late", "share", "events that come late, from 0 to 1"),
    Key("lost", "share", "events that do not come; the scheduler learns what it missed within a minute"),
    Key("doubled", "share", "events that come twice"),
    Key("reordered", "share", "events that overtake others"),
    Key("bind_fails", "share", "binds that fail"),
)

STEP = (
    Key("submit", "gang, manifest or list", "they appear now"),
    Key("delete", "names", "a gang with its PodGroup, members, or any object as `Kind/namespace/name`"),
    Key("scale", "gang: count", "the gang (or `gang/role`) gets or loses members, the last ones first"),
    Key("cycle", "count", "that many cycles, one after the other at the same moment"),
    Key("advance", "duration", "time passes without a cycle"),
    Key("run", "duration or mapping", "time passes with a cycle every 10s, or as `{for: 2h, every: 30s}` says"),
    Key("node", "node step", "something happens to nodes"),
    Key("fail", "fail step", "the next deeds on these pods fail"),
    Key("restart", "nothing", "the scheduler is thrown away and starts anew from what the cluster holds"),
    Key("crash", "count", "a cycle of which only so many writes get through, and then a restart"),
    Key("edit", "mapping", "`{object: Kind/namespace/name, patch: {...}}`: a merge patch"),
    Key("expect", "expectations", "what must be true now"),
)

RUN = (
    Key("for", "duration", "how much time passes"),
    Key("every", "duration", "how long from one cycle to the next"),
)

NODE_STEP = (
    Key("fail", "names", "the node stops answering; its pods are lost after a while"),
    Key("return", "names", "it answers again"),
    Key("cordon", "names", "no new pods"),
    Key("uncordon", "names", "new pods again"),
    Key("taint", "name: taints", "gets these taints, and no others"),
    Key("label", "name: labels", "gets these labels; one set to nothing is removed"),
    Key("resize", "name: amounts", "gets another size; what is not named stays"),
    Key("remove", "names", "the node is gone, and its pods with it"),
    Key("add", "node or list", "new nodes, in their short form"),
)

FAIL_STEP = (
    Key("bind", "names", "gangs or members whose next binds fail"),
    Key("evict", "names", "gangs or members whose next evictions are refused"),
    Key("times", "count", "how often, for each pod; 1"),
)

EDIT = (
    Key("object", "Kind/namespace/name", "which object"),
    Key("patch", "mapping", "a JSON merge patch: null removes"),
)

EXPECT = (
    Key("bound", "who", "who stands on a node"),
    Key("held", "who", "for whom a free node is kept"),
    Key("nominated", "who", "who was promised a node"),
    Key("pending", "who", "who waits without a node"),
    Key("finished", "who", "who ran to its end"),
    Key("evicted", "who", "who was evicted, from the beginning until now"),
    Key("released", "who", "whose claims ended, from the beginning until now"),
    Key("order", "list of gangs", "in this order they first got a node"),
    Key("where", "gang: nodes", "exactly these nodes carry its members"),
    Key("devices", "gang: indices", "the devices that its members have or were promised, members in order"),
    Key("why", "gang: text", "the sentence on the waiting gang has this in it, or all of a list"),
    Key("code", "gang: text", "the verdict's code; `Fits` for a gang with a node for every member"),
    Key("stage", "gang: stage", "gathering, waiting, holding, clearing, satisfied, timed out, finished, or gone"),
    Key("queue", "queue: figures", "used, leaving, promised or requested, in amounts"),
    Key("condition", "gang or Kind/name: text", "the condition that was last written about it has this in it"),
    Key("attempts", "gang: count", "how often it was tried (its schedule cycle)"),
    Key("cycles", "count", "cycles run since the beginning"),
    Key(
        "writes",
        "count or mapping",
        "the scheduler's API writes until now, in all or by verb: bind, patch, delete, evict",
    ),
    Key("stable", "count or mapping", "that many more cycles, or as `{for: 10m}` says, and nothing happens in them"),
)

FIGURES = (
    Key("used", "amounts", "held, binding, bound and leaving"),
    Key("leaving", "amounts", "about to become free"),
    Key("promised", "amounts", "nominated"),
    Key("requested", "amounts", "all that live in the queue"),
)

TOPOLOGY = (
    Key("hard", "count", "the whole gang in one domain at or below this tier"),
    Key("soft", "count", "preferably so"),
)

TABLES: dict[str, tuple[Key, ...]] = {
    "scenario": SCENARIO,
    "node": NODE,
    "device": DEVICE,
    "queue": QUEUE,
    "class": CLASS,
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
    "figures": FIGURES,
}


def names(table: str) -> tuple[str, ...]:
    return tuple(key.name for key in TABLES[table])
