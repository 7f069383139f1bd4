"""Scenarios from a seed: nodes, gangs and many events. The same numbers lead to the same scenario.

A generated scenario is plain data in the scenario language, so that it can be saved, reduced and kept as a file. It has no
expectations: the invariants are checked after every cycle.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from muster.scenario.loader import from_document
from muster.scenario.syntax_tree import Scenario
from muster.yaml_positions import InputFaults, YamlValue

ScenarioDocument = dict[str, Any]

GENERATOR_OPTIONS: dict[str, tuple[int, int, int]] = {
    "nodes": (500, 1, 20_000),
    "gangs": (200, 1, 100_000),
    "events": (300, 0, 1_000_000),
}
"""Default, minimum and maximum of each option."""

_ZONES = ("a", "b", "c")
_TAINT = "dedicated=gpu:NoSchedule"
_PRIORITIES = (0, 0, 0, 1, 5, 9)
_MAX_MEMBERS = 64
_ANTI_AFFINITY: ScenarioDocument = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}
        ]
    }
}


def generate(
    *, nodes: int = 500, gangs: int = 200, seed: int = 7, events: int = 300, policy: Mapping[str, object] | None = None
) -> Scenario:
    """A scenario with so many nodes, gangs and events. Every number leads to another world."""
    return from_document(
        generate_document(nodes=nodes, gangs=gangs, seed=seed, events=events, policy=policy), file=f"<generated, seed {seed}>"
    )


def generate_from_text(text: str) -> Scenario:
    """From `nodes=500,gangs=200,seed=7`; what is left out has its default. Raises InputError."""
    numbers = {name: default for name, (default, _, _) in GENERATOR_OPTIONS.items()} | {"seed": 7}
    faults = InputFaults("--generate")
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        at = YamlValue(part, text=name)
        least, most = GENERATOR_OPTIONS[name][1:] if name in GENERATOR_OPTIONS else (0, 2**31 - 1)
        if name not in numbers:
            faults.unknown(at, "option", numbers, field=name)
        elif not value.isdigit() or not least <= int(value) <= most:
            faults.add(at, f"{name}: {value!r} is no whole number from {least} to {most}", field=name)
        else:
            numbers[name] = int(value)
    faults.raise_any()
    return generate(nodes=numbers["nodes"], gangs=numbers["gangs"], seed=numbers["seed"], events=numbers["events"])


def generate_document(
    *, nodes: int, gangs: int, seed: int, events: int, policy: Mapping[str, object] | None = None
) -> ScenarioDocument:
    """The same as plain data, as a YAML file would hold it."""
    chance = random.Random(f"{nodes} {gangs} {seed} {events}")
    generator = _EventGenerator(chance, nodes=nodes, gangs=gangs)
    made: ScenarioDocument = {
        "name": f"generated: {nodes} nodes, {gangs} gangs, {events} events, seed {seed}",
        "seed": seed,
        **({"policy": dict(policy)} if policy is not None else {}),
        **_faults(chance),
        "nodes": generator.node_documents(),
        "queues": generator.queue_documents(),
        "gangs": [generator.gang() for _ in range(min(gangs, max(1, gangs // 4)))],
    }
    steps: list[ScenarioDocument] = [{"cycle": 1}]
    for _ in range(events):
        steps.append(generator.event())
        steps.extend(generator.time_steps())
    made["steps"] = [*steps, {"run": {"for": "5m", "every": "30s"}}]
    return made


def _faults(chance: random.Random) -> ScenarioDocument:
    """Every other cluster has no faults."""
    if chance.random() < 0.5:
        return {}
    kinds = ("delayed", "dropped", "duplicated", "reordered", "bindFailures")
    return {"faults": {kind: round(chance.uniform(0.0, 0.2), 2) for kind in kinds if chance.random() < 0.6}}


class _EventGenerator:
    """What has happened so far, as far as the next event must know it."""

    def __init__(self, chance: random.Random, *, nodes: int, gangs: int) -> None:
        self._random = chance
        self._ready_nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self._failed_nodes: list[str] = []
        self._nodes_made = nodes
        self._gangs_left = gangs
        self._gangs_made = 0
        self._live_gangs: list[ScenarioDocument] = []
        self._max_members = max(2, min(_MAX_MEMBERS, nodes // 4))

    # -- what there is ---------------------------------------------------------------------------------------------------------

    def node_documents(self) -> list[ScenarioDocument]:
        return [self._node(name) for name in self._ready_nodes]

    def _node(self, name: str) -> ScenarioDocument:
        chance = self._random
        gpus = chance.choice((0, 4, 8, 8))
        made: ScenarioDocument = {"name": name, "cpu": chance.choice((8, 16, 32)), "memory": f"{chance.choice((32, 64, 128))}Gi"}
        made |= {"gpu": gpus} if gpus else {}
        made["labels"] = {"zone": chance.choice(_ZONES), "gpu": "true" if gpus else "false"}
        if gpus and chance.random() < 0.2:
            made["taints"] = _TAINT
        if chance.random() < 0.1:
            made["pods"] = 4
        return made

    def queue_documents(self) -> list[ScenarioDocument]:
        """Beside the default queue one leaf and one with two children; sometimes with limits, shares and a guarantee."""
        chance, nodes = self._random, self._nodes_made
        red: ScenarioDocument = {"name": "red"}
        blue: ScenarioDocument = {"name": "blue", "weight": 3}
        if chance.random() < 0.4:
            red["limit"] = {"gpu": chance.randint(1, 4 * nodes), "cpu": 8 * nodes}
        if chance.random() < 0.4:
            red["deserved"], blue["deserved"] = {"gpu": nodes}, {"gpu": 2 * nodes}
            blue["guarantee"] = {"gpu": chance.randint(0, nodes)}
        return [red, blue, {"name": "navy", "parent": "blue"}, {"name": "teal", "parent": "blue", "weight": 2}]

    def gang(self) -> ScenarioDocument:
        """One more gang. Sizes are mostly small, needs mostly modest: some must wait, none for ever."""
        chance = self._random
        self._gangs_left -= 1
        self._gangs_made += 1
        made: ScenarioDocument = {"name": f"g{self._gangs_made}", "queue": chance.choice(("red", "navy", "teal", "default"))}
        made |= {"priority": chance.choice(_PRIORITIES)}
        if chance.random() < 0.25:
            made["roles"] = [self._pods(name) for name in ("boss", "worker")]
        else:
            made |= self._pods("")
            made["apiFlavour"] = chance.choice(("volcano", "volcano", "koordinator", "sigs", "native", "annotation", "single-pod"))
        if chance.random() < 0.75:
            made["runDuration"] = f"{chance.randrange(10, 600)}s"
        made |= self._lifecycle_keys()
        self._live_gangs.append(made)
        return made

    def _pods(self, name: str) -> ScenarioDocument:
        chance = self._random
        pods = 1 if chance.random() < 0.3 else chance.randint(1, self._max_members)
        made: ScenarioDocument = {"name": name} if name else {}
        made |= {"pods": pods, "min": chance.randint(1, pods)}
        requests: ScenarioDocument = {"cpu": chance.choice(("500m", 1, 2, 4)), "memory": f"{chance.choice((1, 2, 4))}Gi"}
        made["requests"] = requests | ({"gpu": chance.choice((1, 1, 2, 4))} if chance.random() < 0.5 else {})
        if chance.random() < 0.15:
            made["nodeSelector"] = {"zone": chance.choice(_ZONES)}
        if chance.random() < 0.4:
            made["tolerations"] = ["dedicated"]
        if chance.random() < 0.1:
            made |= {"labels": {"app": "apart"}, "affinity": _ANTI_AFFINITY}
        return made

    def _lifecycle_keys(self) -> ScenarioDocument:
        """How its members come, go and are made anew."""
        chance = self._random
        made: ScenarioDocument = {}
        if chance.random() < 0.3:
            made |= {"controller": "recreate", "recreateLimit": chance.randint(1, 4)}
        if chance.random() < 0.3:
            made["terminationDuration"] = chance.choice(("0s", "5s", "90s"))
        if chance.random() < 0.15:
            made["exitPhase"] = "Failed"
        if chance.random() < 0.15:
            made |= {"mode": "NonStrict", "waitingTime": chance.choice(("30s", "5m"))}
        if chance.random() < 0.1:
            made["schedulerName"] = "another"
        return made

    # -- what happens ----------------------------------------------------------------------------------------------------------

    def event(self) -> ScenarioDocument:
        choices: list[tuple[int, Callable[[], ScenarioDocument]]] = [
            (16 if self._gangs_left else 0, lambda: {"submit": self.gang()}),
            (2 if self._gangs_left > 1 else 0, self._submit_group),
            (2, self._change_queue),
            (6 if self._live_gangs else 0, self._delete),
            (6 if self._live_gangs else 0, self._scale),
            (4 if self._live_gangs else 0, lambda: {"delete": self._member()}),
            (4 if self._live_gangs else 0, lambda: {"fail": {"bind": self._member(), "times": self._random.randint(1, 2)}}),
            (4 if len(self._ready_nodes) > 1 else 0, self._fail_node),
            (6 if self._failed_nodes else 0, self._return_node),
            (4 if self._ready_nodes else 0, self._change_node),
            (2, self._add_node),
            (1, lambda: {"restart": {}}),
            (1, lambda: {"crash": self._random.randrange(6)}),
            (4, lambda: {"advance": f"{self._random.randrange(1, 120)}s"}),
        ]
        happens = self._random.choices([event for _, event in choices], [weight for weight, _ in choices])[0]
        return happens()

    def time_steps(self) -> list[ScenarioDocument]:
        """Sometimes several things happen at one moment, and sometimes nothing does for a while."""
        drawn = self._random.random()
        if drawn < 0.2:
            return []
        if drawn < 0.7:
            return [{"cycle": 1}]
        return [{"run": {"for": f"{self._random.randrange(5, 60)}s", "every": "20s"}}]

    def _submit_group(self) -> ScenarioDocument:
        """Two gangs that start together or not at all."""
        pair = [self.gang(), self.gang()]
        names = [gang["name"] for gang in pair]
        for gang in pair:
            if gang.pop("roles", None) is not None:
                gang |= self._pods("")
            gang.pop("schedulerName", None)
            gang |= {"apiFlavour": "koordinator", "gangGroup": names, "requests": {"cpu": 1}}
        return {"submit": pair}

    def _change_queue(self) -> ScenarioDocument:
        limit = {"nvidia.com/gpu": str(self._random.randint(1, 4 * self._nodes_made))}
        patch = {"spec": {"capability": self._random.choice((limit, None))}}
        return {"patch": {"object": f"Queue/{self._random.choice(('red', 'blue', 'navy'))}", "merge": patch}}

    def _delete(self) -> ScenarioDocument:
        gang = self._live_gangs.pop(self._random.randrange(len(self._live_gangs)))
        return {"delete": gang["name"]}

    def _scale(self) -> ScenarioDocument:
        gang = self._random.choice(self._live_gangs)
        role = self._random.choice(gang["roles"])["name"] if "roles" in gang else ""
        return {"scale": {f"{gang['name']}/{role}" if role else gang["name"]: self._random.randint(0, self._max_members)}}

    def _member(self) -> str:
        gang = self._random.choice(self._live_gangs)
        role = f"/{self._random.choice(gang['roles'])['name']}" if "roles" in gang else ""
        return f"{gang['name']}{role}/{self._random.randrange(self._max_members)}"

    def _fail_node(self) -> ScenarioDocument:
        name = self._ready_nodes.pop(self._random.randrange(len(self._ready_nodes)))
        self._failed_nodes.append(name)
        return {"node": {self._random.choice(("fail", "fail", "remove")): name}}

    def _return_node(self) -> ScenarioDocument:
        name = self._failed_nodes.pop(self._random.randrange(len(self._failed_nodes)))
        self._ready_nodes.append(name)
        return {"node": {"recover": name}}

    def _change_node(self) -> ScenarioDocument:
        name = self._random.choice(self._ready_nodes)
        return {
            "node": self._random.choice(
                (
                    {"cordon": name},
                    {"uncordon": name},
                    {"taint": {name: _TAINT}},
                    {"taint": {name: []}},
                    {"label": {name: {"zone": self._random.choice(_ZONES)}}},
                    {"resize": {name: {"cpu": self._random.choice((4, 16, 64))}}},
                )
            )
        }

    def _add_node(self) -> ScenarioDocument:
        self._nodes_made += 1
        name = f"n{self._nodes_made}"
        self._ready_nodes.append(name)
        return {"node": {"add": self._node(name)}}
